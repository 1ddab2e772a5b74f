"""Changing the file: what was asked for changes, everything else stays, and a refusal changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from bubbles import config
from bubbles.config import file, version
from bubbles.errors import Misconfigured, TryAgain, Usage
from bubbles.paths import Home
from tests.config.test_load import JSON, KEYS, load, put


def raw(home: Home) -> Any:
    return json.loads(home.config.read_text())


def test_a_first_change_makes_a_private_file(home: Home) -> None:
    config.save(home, {"agents.defaults.model": "m", "providers.custom.api_key": SecretStr("sk-1234567")})
    assert raw(home) == {"version": 1, "agents": {"defaults": {"model": "m"}}, "providers": {"custom": {"api_key": "sk-1234567"}}}
    assert home.config.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in home.root.iterdir() if path.name.startswith("config.json")] == ["config.json"]


def test_the_files_own_spelling_stays(home: Home) -> None:
    put(home, '{"Agents": {"defaults": {"maxTokens": 1, "mine": [1]}}, "mine too": null}')
    config.save(home, {"agents.defaults.max_tokens": 2, "agents.defaults.maxToolIterations": 3})
    assert raw(home) == {
        "version": 1,
        "Agents": {"defaults": {"maxTokens": 2, "mine": [1], "max_tool_iterations": 3}},
        "mine too": None,
    }


def test_a_name_with_dots_is_given_as_a_tuple(home: Home) -> None:
    config.save(home, {("providers", "custom", "models", "qwen2.5:7b", "tools"): False})
    assert raw(home)["providers"]["custom"]["models"] == {"qwen2.5:7b": {"tools": False}}
    assert config.load(home, "providers", env={}).providers.custom.models["qwen2.5:7b"].tools is False


def test_none_takes_a_setting_out(home: Home) -> None:
    config.save(home, {"agents.defaults.model": "m", "agents.defaults.api_retries": 1})
    config.save(home, {"agents.defaults.model": None, "tools.exec.timeout_s": None})
    assert raw(home) == {"version": 1, "agents": {"defaults": {"api_retries": 1}}}


def test_nothing_changed_nothing_written(home: Home) -> None:
    config.save(home, {"agents.defaults.model": "m"})
    before = home.config.stat()
    config.save(home, {"agents.defaults.model": "m"})
    assert home.config.stat().st_mtime_ns == before.st_mtime_ns
    assert home.config.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    "changes",
    [
        {"agents.defaults.temperature": 9},
        {"agents.defaults.modle": "x"},
        {"nonsense.x": "y"},
        {"agents": 3},
        {"channels.telegram.enabled": True},
        {"agents.defaults.result_tokens": 24_000},
        {("providers", "custom", "models", "m", "colour"): "red"},
    ],
)
def test_a_refused_change_leaves_the_file_alone(home: Home, changes: dict[Any, Any]) -> None:
    before = put(home, '{"agents": {"defaults": {"model": "m"}}}')
    with pytest.raises(Misconfigured):
        config.save(home, changes)
    assert home.config.read_bytes() == before


def test_a_change_may_mend_what_was_wrong(home: Home) -> None:
    put(home, '{"agents": {"defaults": {"temperature": 9}}}')
    config.save(home, {"agents.defaults.temperature": 1})
    assert config.load(home, "agents", env={}).agents.defaults.temperature == 1


def test_the_environment_does_not_enter_the_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBLES_AGENTS__DEFAULTS__MODEL", "from-the-environment")
    config.save(home, {"agents.defaults.api_retries": 1})
    assert "from-the-environment" not in home.config.read_text()


def test_a_symbolic_link_is_followed(home: Home, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    home.config.symlink_to(real)
    config.save(home, {"agents.defaults.model": "m"})
    assert home.config.is_symlink()
    assert json.loads(real.read_text())["agents"]["defaults"]["model"] == "m"


def test_a_full_disk_is_told_and_the_old_file_stands(tmp_path: Path) -> None:
    """A real small file system, where this machine lets us mount one."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", mounted], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        home = Home(mounted / "home")
        home.prepare()
        config.save(home, {"agents.defaults.model": "m"})
        before = home.config.read_bytes()
        with pytest.raises(TryAgain, match="No space left") as caught:
            config.save(home, {"agents.defaults.system_prompt": "x" * 100_000})
        assert "df -h" in caught.value.remedy
        assert home.config.read_bytes() == before
        assert [path.name for path in home.root.iterdir() if "tmp" in path.name] == []
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_what_a_killed_program_left_is_written_over(home: Home) -> None:
    (home.root / "config.json.tmp").write_text('{"agents": {"defaults": {"model": "half')
    config.save(home, {"agents.defaults.model": "m"})
    assert raw(home)["agents"]["defaults"]["model"] == "m"
    assert [path.name for path in home.root.glob("config.json*")] == ["config.json"]


def test_two_programs_may_change_the_file_at_once(home: Home) -> None:
    code = (
        "import sys; from bubbles import config; from bubbles.paths import Home\n"
        "for n in range(12): config.save(Home.find(), {('providers', 'custom', 'models', f'{sys.argv[1]}-{n}'): {}})"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("a", "b")]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(raw(home)["providers"]["custom"]["models"]) == 24


@settings(max_examples=40)
@given(extra=st.dictionaries(st.text(), JSON, max_size=4), nested=st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_not_understood_survives_every_rewriting(
    tmp_path_factory: pytest.TempPathFactory, extra: dict[str, Any], nested: dict[str, Any]
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    known = {config.section.fold(key) for key in KEYS} | {"version"}
    extra, nested = ({k: v for k, v in part.items() if config.section.fold(k) not in known} for part in (extra, nested))
    put(home, json.dumps({**extra, "agents": {**nested, "defaults": {"model": "a"}}}, allow_nan=True))
    try:
        held = file.read(home.config)
    except Misconfigured:  # NaN and infinity are no JSON
        return
    config.save(home, {"agents.defaults.model": "b"})
    now = file.read(home.config)
    assert {key: now[key] for key in extra} == {key: held[key] for key in extra}
    assert {key: now["agents"][key] for key in nested} == {key: held["agents"][key] for key in nested}
    assert now["agents"]["defaults"]["model"] == "b"
    refreshed = config.refresh(now)
    assert {key: refreshed[key] for key in extra} == {key: held[key] for key in extra}
    assert {key: refreshed["agents"][key] for key in nested} == {key: held["agents"][key] for key in nested}
    assert refreshed["agents"]["defaults"]["model"] == "b"
    assert config.refresh(refreshed) == refreshed


# -- defaults and refresh ----------------------------------------------------------------------------


def test_the_defaults_are_a_whole_file_that_loads(home: Home) -> None:
    settings = load(home, config.defaults())
    assert settings.warnings == ()
    assert settings.tools.sandbox.backend == "local_isolated"
    assert config.refresh({}) == config.defaults()


def test_refresh_keeps_values_and_adds_what_is_new() -> None:
    old = {
        "mine": 1,
        "agents": {"defaults": {"maxTokens": 5, "mine": 2}},
        "channels": {"telegram": {"allowFrom": [42]}},
        "providers": {"custom": {"models": {"M.x": {"contextTokens": 1}}, "headers": {"X-Y": "z"}}},
    }
    new = config.refresh(old)
    assert new["agents"]["defaults"]["max_tokens"] == 5
    assert new["agents"]["defaults"]["api_retries"] == 2
    assert new["agents"]["defaults"]["mine"] == 2
    assert new["mine"] == 1
    assert new["channels"]["telegram"]["allow_from"] == [42]
    assert new["providers"]["custom"]["models"] == {"M.x": {"contextTokens": 1}}
    assert new["providers"]["custom"]["headers"] == {"X-Y": "z"}
    assert list(new) == ["version", *config.SECTIONS, "mine"]
    assert old["agents"] == {"defaults": {"maxTokens": 5, "mine": 2}}


def test_refresh_keeps_even_what_is_wrong() -> None:
    new = config.refresh({"agents": 3, "tools": {"exec": "x", "workspaces": None}})
    assert new["agents"] == 3
    assert new["tools"]["exec"] == "x"
    assert new["tools"]["workspaces"] is None


# -- sessions and typed values -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("model", "qwen3:8b", "qwen3:8b"),
        ("model", "7", "7"),
        ("temperature", "0.25", 0.25),
        ("systemPrompt", "You are terse.\nVery.", "You are terse.\nVery."),
        ("sandbox", "local", "local"),
        ("sandbox", "bwrap", "bwrap"),
        ("network", "none", "none"),
        ("timezone", "Asia/Shanghai", "Asia/Shanghai"),
        ("workspaces", "/srv/x", [{"path": "/srv/x", "mode": "ro"}]),
        ("workspaces", '["/srv/x:rw", "/y"]', [{"path": "/srv/x", "mode": "rw"}, {"path": "/y", "mode": "ro"}]),
        ("agents.defaults.api_retries", "0", 0),
        ("tools.files.writeSoul", "true", True),
        ("providers.custom.headers", '{"A": "b"}', {"A": "b"}),
    ],
)
def test_typed_text_becomes_the_settings_value(key: str, text: str, value: Any) -> None:
    assert config.parse(key, text) == value


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("temperature", "hot", "temperature: found"),
        ("modle", "x", "not a setting"),
        ("agents.defaults.modle", "x", "did you mean agents.defaults.model?"),
        ("agents", "x", "not a setting"),
        ("sandbox", "chroot", "one of"),
        ("network", "some", "one of"),
        ("workspaces", "srv", "absolute path"),
        ("workspaces", "/etc:rw", "may not be lent: it belongs to the system"),
        ("tools.sandbox.pass_env", "API_KEY", "never passed"),
        ("", "x", "not a setting"),
    ],
)
def test_typed_nonsense_is_a_wrong_call(key: str, text: str, said: str) -> None:
    with pytest.raises(Usage, match=said.replace("?", r"\?")):
        config.parse(key, text)


def test_a_session_changes_what_it_may_and_nothing_else(home: Home) -> None:
    settings = load(home, {"agents": {"defaults": {"model": "a", "temperature": 1}}}, "agents", "tools")
    plain = config.session_settings(settings, {})
    assert (plain.model, plain.temperature, plain.sandbox, plain.workspaces) == ("a", 1, "local_isolated", ())
    changed = config.session_settings(
        settings,
        {
            "version": 1,
            "model": "b",
            "systemPrompt": "s",
            "temperature": "0.5",
            "sandbox": "local",
            "workspaces": ["/a:rw"],
            "api_retries": 9,
            "x": 1,
        },
    )
    assert (changed.model, changed.system_prompt, changed.temperature, changed.sandbox) == ("b", "s", 0.5, "local")
    assert [(grant.path, grant.mode) for grant in changed.workspaces] == [("/a", "rw")]
    assert [warning.split(": ")[1].split()[0] for warning in changed.warnings] == ["api_retries", "x"]
    assert settings.agents.defaults.model == "a"
    assert set(config.SESSION_KEYS) == set(type(plain).__slots__) - {"warnings"}


def test_a_sessions_file_says_its_version_and_a_newer_one_is_refused(home: Home) -> None:
    settings = load(home, {}, "agents", "tools")
    assert list(config.session_file({"model": "m", "mine": 1}).items()) == [("version", 1), ("model", "m"), ("mine", 1)]
    newer = {"version": config.SESSION_VERSION + 1, "model": "m"}
    for read in (lambda: config.session_settings(settings, newer, "s/config.json"), lambda: config.session_file(newer, "s/config.json")):
        with pytest.raises(Misconfigured, match=r"s/config\.json is of version 2; this program knows 1") as caught:
            read()
        assert "update Bubbles" in caught.value.remedy
    for wrong in (0, "1", True, None):
        with pytest.raises(Misconfigured, match="version"):
            config.session_settings(settings, {"version": wrong})
    assert sorted(version.SESSION_MIGRATIONS) == list(range(1, config.SESSION_VERSION))


def test_what_is_no_setting_of_a_session_is_told_with_what_was_meant(home: Home) -> None:
    settings = load(home, {}, "agents", "tools")
    raw = {"modle": "x", "systemPromt": "y", "zzz": 1, "workspaces": [{"path": str(home.root.parent / "run"), "x": 1}]}
    near, also, none, inner = config.session_settings(settings, raw, "s/config.json").warnings
    assert near == "s/config.json: modle is not a setting of a session (did you mean model?); it does nothing"
    assert "(did you mean system_prompt?)" in also
    assert "did you mean" not in none
    assert "workspaces[0].x is not a setting" in inner


@pytest.mark.parametrize(
    "raw",
    [
        {"temperature": 9},
        {"temperature": None},
        {"sandbox": "jail"},
        {"network": "public"},
        {"network": "none", "sandbox": "local"},
        {"network": "lan"},
        {"language": "fr"},
        {"workspaces": {}},
        {"workspaces": [1]},
        {"model": []},
        {"provider": "nobody"},
        {"workspaces": ["/"]},
    ],
)
def test_a_wrong_override_is_named(home: Home, raw: dict[str, Any]) -> None:
    settings = config.load(home, "agents", "tools", env={})
    with pytest.raises(Misconfigured, match=f"sessions/x/config.json: {next(iter(raw))}"):
        config.session_settings(settings, raw, "sessions/x/config.json")


def test_a_session_may_not_be_lent_the_home(home: Home) -> None:
    settings = config.load(home, "agents", "tools", env={})
    with pytest.raises(Misconfigured, match=r"workspaces\[0\]\.path: .*Bubbles' own files"):
        config.session_settings(settings, {"workspaces": [str(home.sessions)]})


@given(raw=st.dictionaries(st.sampled_from(sorted(config.SESSION_KEYS)) | st.text(max_size=4), JSON, max_size=4))
def test_whatever_a_session_says_it_holds_or_is_misconfigured(tmp_path_factory: pytest.TempPathFactory, raw: dict[str, Any]) -> None:
    settings = config.load(Home(tmp_path_factory.mktemp("home")), "agents", "tools", env={})
    with contextlib.suppress(Misconfigured):
        config.session_settings(settings, raw)
