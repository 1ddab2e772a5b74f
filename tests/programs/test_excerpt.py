"""What a confined unit is shown of config.json: all that its program loads, nothing of others, and the reason where it cannot be used."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import config
from bubbles.config.channels import Channels, Platform
from bubbles.config.section import fold
from bubbles.errors import Misconfigured, TryAgain, Usage
from bubbles.paths import Home
from bubbles.programs import excerpt
from tests.programs.run import bubbles

WHOLE = {
    "version": 1,
    "agents": {"defaults": {"model": "custom/m"}},
    "Providers": {"custom": {"apiKey": "sk-providers", "base_url": "http://127.0.0.1:1/v1"}},
    "channels": {"sessionMode": "user", "people": {"me": ["telegram:1"]}, "Telegram": {"token": "of-telegram"}, "slack": {"botToken": "of-slack"}},
    "tools": {"workspaces": ["/srv/of-tools"]},
    "gateway": {},
    "mine": "of-mine",
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    return made


def written(home: Home, text: str | bytes | dict[str, Any]) -> None:
    data = json.dumps(text) if isinstance(text, dict) else text
    home.config.write_bytes(data.encode() if isinstance(data, str) else data)
    home.config.chmod(0o600)


def shown(home: Home, program: str) -> Home:
    """The home as the unit of `program` sees it."""
    other = Home(home.root.with_name(f"as-{program}"))
    other.prepare()
    excerpt.write(home, program, other.config)
    return other


def told(home: Home, *sections: str) -> tuple[str, str]:
    with pytest.raises(Misconfigured) as caught:
        config.load(home, *sections, env={})
    return caught.value.text, caught.value.remedy


@pytest.mark.parametrize(
    ("program", "keys", "words"),
    [("modeld", {"version", "agents", "Providers"}, {"sk-providers"}), ("channel-telegram", {"version", "channels"}, {"of-telegram"})],
)
def test_each_has_what_it_loads_and_no_other_s_keys(home: Home, program: str, keys: set[str], words: set[str]) -> None:
    written(home, WHOLE)
    text = shown(home, program).config.read_text()
    assert set(json.loads(text)) == keys
    assert {word for word in ("sk-providers", "of-telegram", "of-slack", "of-tools", "of-mine") if word in text} == words


def test_what_is_loaded_from_it_is_what_is_loaded_from_the_whole(home: Home) -> None:
    written(home, {**WHOLE, "channels": {"sessionMode": "user", "people": {"me": ["telegram:1"]}}})
    modeld, channel = shown(home, "modeld"), shown(home, "channel-telegram")
    whole = config.load(home, env={})
    assert config.load(modeld, "agents", "providers", env={}).providers == whole.providers
    assert config.load(modeld, "agents", "providers", env={}).agents == whole.agents
    assert config.load(channel, "channels", env={}).channels == whole.channels


def test_what_is_for_all_channels_is_whatever_is_no_channel() -> None:
    fields = {name: info.get_default(call_default_factory=True) for name, info in Channels.model_fields.items()}
    assert {fold(name) for name, value in fields.items() if not isinstance(value, Platform)} == set(excerpt.FOR_ALL)
    assert excerpt.AS_IT_IS == config.VERSION


def test_only_its_owner_may_read_it_and_it_is_replaced_whole(home: Home) -> None:
    written(home, WHOLE)
    to = shown(home, "modeld").config
    before = to.stat()
    assert stat.S_IMODE(before.st_mode) == 0o600
    shown(home, "modeld")
    assert to.stat().st_ino != before.st_ino
    assert os.listdir(to.parent).count(".config.json.tmp") == 0


def test_no_file_means_defaults(home: Home) -> None:
    assert config.load(shown(home, "modeld"), "agents", env={}).agents == config.load(home, "agents", env={}).agents


UNUSABLE: dict[str, str | bytes] = {
    "comma": '{"version": 1,\n "providers": {"custom": {"api_key": "sk-1" "x"}}}',
    "newer": '{"version": 2}',
    "version": '{"version": true}',
    "list": "[]",
    "quotes": "{'a': 1}",
    "bytes": b'{"a": "\xff"}',
    "twice": '{"a": 1, "a": 2}',
    "large": '{"tools": {"x": 1e999}}',
    "nan": '{"agents": NaN}',
    "deep": '{"agents":' + "[" * 99_999 + "]" * 99_999 + "}",
    "empty": "",
    "long": '{"a": "' + "x" * (4 << 20) + '"}',
}


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE)
@pytest.mark.parametrize("program", ["modeld", "channel-telegram"])
def test_one_that_cannot_be_used_is_refused_with_the_reason_that_the_whole_has(home: Home, program: str, text: str | bytes) -> None:
    written(home, text)
    to = shown(home, program)
    assert told(to, "agents") == told(home, "agents")
    assert set(json.loads(to.config.read_text())) == {"misconfigured"}


def test_a_file_that_cannot_be_opened_is_no_missing_one(home: Home) -> None:
    os.mkfifo(home.config)
    assert told(shown(home, "modeld"), "agents") == told(home, "agents")


def test_a_section_that_is_given_twice_or_is_none_is_refused_by_whoever_loads_it(home: Home) -> None:
    written(home, {"agents": {}, "Agents": {}})
    assert told(shown(home, "modeld"), "agents")[0] == "agents is given twice, once as 'Agents'"
    written(home, {"channels": ["of-slack"]})
    to = shown(home, "channel-telegram")
    assert "of-slack" not in to.config.read_text()
    assert told(to, "channels")[0].startswith(f"{to.config}: channels")


KEYS = st.sampled_from(["telegram", "Tele_gram", "slack", "SLACK", "people", "sessionMode", "session_mode", "token", "x"])


@given(st.dictionaries(KEYS, st.one_of(st.text(), st.dictionaries(KEYS, st.text()))))
def test_no_key_of_another_passes_however_it_is_spelled(channels: dict[str, Any]) -> None:
    kept = excerpt._cut({"channels": channels, "providers": "p", "tools": "t"}, "channel-telegram")
    assert set(kept) == {"channels"}
    assert set(kept["channels"]) == {key for key in channels if fold(key) in ("telegram", *excerpt.FOR_ALL)}
    assert all(kept["channels"][key] == channels[key] for key in kept["channels"])


@given(st.text())
def test_keys_are_folded_as_the_settings_are(key: str) -> None:
    assert excerpt._folded(key) == fold(key)


def test_an_old_one_does_not_stay_where_a_new_one_cannot_be_written(home: Home, tmp_path: Path) -> None:
    written(home, WHOLE)
    to = tmp_path / "to" / "modeld.json"
    to.parent.mkdir()
    to.write_text("old")
    (to.parent / ".modeld.json.tmp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TryAgain, match=r"cannot write .*modeld\.json"):
        excerpt.write(home, "modeld", to)
    assert not to.exists()
    assert not (tmp_path / "elsewhere").exists()


def test_who_has_no_business_with_it_is_shown_nothing(home: Home, tmp_path: Path) -> None:
    with pytest.raises(Usage):
        excerpt.excerpt(home, "cron")
    done = bubbles("units", "excerpt", "cron", str(tmp_path / "x"))
    assert (done.returncode, (tmp_path / "x").exists()) == (64, False)
    assert "excerpt" not in bubbles("units", "--help").stdout
