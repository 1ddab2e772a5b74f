"""How agentd starts where something is wrong: a clear word, the right exit code, and nothing touched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bubbles.paths import Home
from tests.agentd.world import world


def start(home: Home, **more: str) -> subprocess.CompletedProcess[str]:
    """agentd in this home, which is expected to end by itself."""
    argv = [sys.executable, "-m", "bubbles.programs.agentd"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


def test_a_second_one_names_the_first(home: Home) -> None:
    with world(home) as w:
        w.start()
        done = start(home)
        assert done.returncode == 75
        assert str(w.running["agentd"].pid) in done.stderr
        assert w.say("still there?").text == "ok"


@pytest.mark.parametrize(
    ("text", "named"),
    [('{"agents": {\n "defaults": {"model": }}}', "line 2"), ('{"agents": {"defaults": {"temperature": "hot"}}}', "agents.defaults.temperature")],
)
def test_a_broken_configuration_is_named_and_left_alone(home: Home, text: str, named: str) -> None:
    home.config.write_text(text)
    done = start(home)
    assert done.returncode == 78
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert home.config.read_text() == text


def test_a_setting_whose_feature_is_not_built_is_refused(home: Home) -> None:
    home.config.write_text('{"channels": {"telegram": {"enabled": true, "token": "1:x"}}}')
    done = start(home)
    assert done.returncode == 78
    assert "channels.telegram" in done.stderr
    assert "not built" in done.stderr


def test_a_home_that_others_may_write_is_refused(home: Home) -> None:
    home.root.chmod(0o777)
    done = start(home)
    assert done.returncode == 78
    assert "chmod 700" in done.stderr


def test_a_home_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    monkeypatch.setenv("BUBBLES_HOME", str(path))
    done = start(Home(path))
    assert done.returncode == 78
    assert path.read_text() == "x"


def newer(home: Home) -> Path:
    path = home.turns / "s.jsonl"
    path.write_text('{"format":"bubbles.journal","version":99,"turn":"t","session":"s","origin":"user"}\n')
    return path


def not_json(home: Home) -> Path:
    path = home.session("s") / "config.json"
    path.write_text('{"model": "x",}')
    return path


def not_allowed(home: Home) -> Path:
    path = home.session("s") / "config.json"
    path.write_text('{"temperature": 9}')
    return path


def a_link(home: Home) -> Path:
    path = home.session("s") / "session.jsonl"
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    return path


def a_directory(home: Home) -> Path:
    path = home.session("s") / "session.jsonl"
    path.rename(path.with_name("elsewhere"))
    path.mkdir()
    return path / "."


def data_is_a_file(home: Home) -> Path:
    path = home.session("s") / "data"
    path.rmdir()
    path.write_text("x")
    return path


def the_journal_is_a_directory(home: Home) -> Path:
    path = home.turns / "s.jsonl"
    path.unlink()
    path.mkdir()
    return path / "."


def the_journal_is_a_dangling_link(home: Home) -> Path:
    path = home.turns / "s.jsonl"
    path.unlink()
    path.symlink_to("nowhere/at/all")
    return path


SPOILS = [newer, not_json, not_allowed, a_link, a_directory, data_is_a_file, the_journal_is_a_directory, the_journal_is_a_dangling_link]


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_session_with_a_broken_file_is_named_and_the_others_go_on(home: Home, spoil: Callable[[Home], Path]) -> None:
    with world(home, {"rules": [{"when": "slow", "endless": True}], "default": {"reply": "fine"}}) as w:
        w.start()
        w.put("slow")
        w.ring()
        w.until(lambda: b"ModelAsked" in w.journal())
        w.kill("agentd")
        path = spoil(home)
        before = path.read_bytes() if path.is_file() else b""
        w.start("agentd")
        assert w.say("hello", "other").text == "fine"
        assert w.ask("status")["broken"]["s"]
        heard = w.say("are you there?")
        assert heard.outcome == "held"
        assert (path.read_bytes() if path.is_file() else b"") == before


def test_two_homes_at_once_never_meet(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(home, {"default": {"reply": "the first"}}) as one:
        one.start()
        monkeypatch.setenv("BUBBLES_HOME", str(tmp_path / "other"))
        second = Home.find()
        second.prepare()
        with world(second, {"default": {"reply": "the second"}}) as two:
            two.start()
            assert two.say("who?").text == "the second"
            assert one.say("who?").text == "the first"
            assert [m["content"].splitlines()[-1] for m in one.history()] == ["who?", "the first"]
