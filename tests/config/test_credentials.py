"""Secrets in files of their own: which are taken, over what, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbles import config
from bubbles.errors import Misconfigured
from bubbles.paths import Home


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    path.mkdir()
    return path


def load(home: Home, directory: Path | str, *sections: str, **env: str) -> config.Settings:
    return config.load(home, *sections, env={"CREDENTIALS_DIRECTORY": str(directory), **env})


def key_of(found: config.Settings) -> str:
    return found.providers.custom.api_key.get_secret_value()


def test_it_stands_over_the_environment_and_the_file(home: Home, directory: Path) -> None:
    config.save(home, {"providers.custom.api_key": "of-the-file"})
    (directory / "providers.custom.api_key").write_text("of-the-credential\n")
    found = load(home, directory, "providers", BUBBLES_PROVIDERS__CUSTOM__API_KEY="of-the-environment")
    assert key_of(found) == "of-the-credential"
    assert found.secrets() == ["of-the-credential"]
    assert "of-the-credential" not in home.config.read_text()


@pytest.mark.parametrize("name", ["providers.custom.api_key", "providers.custom.apiKey", "Providers.Custom.API-KEY"])
def test_its_name_is_the_key_however_it_is_written(home: Home, directory: Path, name: str) -> None:
    (directory / name).write_text("the-key")
    assert key_of(load(home, directory, "providers")) == "the-key"


@pytest.mark.parametrize(("text", "said"), [("1234567890", "1234567890"), ("true", "true"), ('"quoted"', '"quoted"'), ("key\r\n", "key")])
def test_it_is_text_whatever_it_looks_like(home: Home, directory: Path, text: str, said: str) -> None:
    (directory / "providers.custom.api_key").write_bytes(text.encode())
    assert key_of(load(home, directory, "providers")) == said


def test_a_secret_in_a_map(home: Home, directory: Path) -> None:
    (directory / "providers.custom.headers.x-token").write_text("abcdef")
    assert load(home, directory, "providers").providers.custom.headers["x-token"].get_secret_value() == "abcdef"


@pytest.mark.parametrize("name", ["agents.defaults.model", "providers.custom.base_url", "providers.custom.apikee", "providers.nobody.api_key"])
def test_what_is_no_secret_is_warned_of_and_does_nothing(home: Home, directory: Path, name: str) -> None:
    (directory / name).write_text("x")
    found = load(home, directory, "agents", "providers")
    assert [warning for warning in found.warnings if f"the credential {name}" in warning and "does nothing" in warning]
    assert found.agents.defaults.model == config.load(home, "agents", env={}).agents.defaults.model


@pytest.mark.parametrize("name", ["db_password", "providers", "providers.", ".providers", "other.thing", "tools.web.search.api_key.x"])
def test_those_of_others_are_passed_over(home: Home, directory: Path, name: str) -> None:
    (directory / name).write_text("x")
    assert load(home, directory, "providers").warnings == ()


WRONG = [(b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "not UTF-8"), (b"x" * 70_000, "larger than 64 KiB")]


@pytest.mark.parametrize(("data", "said"), WRONG)
def test_one_that_is_no_key_is_refused_by_name(home: Home, directory: Path, data: bytes, said: str) -> None:
    (directory / "providers.custom.api_key").write_bytes(data)
    with pytest.raises(Misconfigured, match=said) as caught:
        load(home, directory, "providers")
    assert "providers.custom.api_key" in caught.value.text
    assert caught.value.remedy


def test_a_wrong_value_is_hidden_and_its_source_named(home: Home, directory: Path) -> None:
    (directory / "providers.custom.api_key").write_text("two words")
    with pytest.raises(Misconfigured, match=r"from the credential providers\.custom\.api_key") as caught:
        load(home, directory, "providers")
    assert "two words" not in str(caught.value)


def test_for_a_channel_that_is_not_built_it_is_refused_as_in_the_file(home: Home, directory: Path) -> None:
    (directory / "channels.telegram.token").write_text("1:abc")
    with pytest.raises(Misconfigured, match="not built") as caught:
        load(home, directory, "channels")
    assert caught.value.remedy == "take the credential channels.telegram.token away"


def test_a_directory_that_is_gone_holds_nothing_and_a_file_is_none(home: Home, directory: Path) -> None:
    assert key_of(load(home, directory / "gone", "providers")) == ""
    (directory / "file").write_text("")
    with pytest.raises(Misconfigured, match="CREDENTIALS_DIRECTORY"):
        load(home, directory / "file", "providers")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=80))
def test_any_key_arrives_as_it_was_written(home: Home, directory: Path, text: str) -> None:
    (directory / "providers.custom.api_key").write_text(f"{text}\n")
    assert key_of(load(home, directory, "providers")) == text


def test_the_file_is_read_at_each_load(home: Home, directory: Path) -> None:
    config.save(home, {"providers.custom.api_key": "of-the-file"})
    path = directory / "providers.custom.api_key"
    path.write_text("one")
    assert key_of(load(home, directory, "providers")) == "one"
    path.unlink()
    assert key_of(load(home, directory, "providers")) == "of-the-file"
    assert json.loads(home.config.read_text())["providers"]["custom"]["api_key"] == "of-the-file"


def test_whoever_is_no_unit_looks_where_the_one_of_modeld_has_its_own(home: Home, tmp_path: Path) -> None:
    place = tmp_path / "credentials/bubbles-modeld.service"
    place.mkdir(parents=True)
    (place / "providers.custom.api_key").write_text("handed-over\n")
    assert key_of(config.load(home, "providers", env={"XDG_RUNTIME_DIR": str(tmp_path)})) == "handed-over"
    assert key_of(load(home, tmp_path / "own", "providers", XDG_RUNTIME_DIR=str(tmp_path))) == ""
    assert key_of(config.load(home, "providers", env={})) == ""
