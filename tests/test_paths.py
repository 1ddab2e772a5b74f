"""Where the sockets lie: one answer for every program of a home, whatever became of XDG_RUNTIME_DIR."""

from __future__ import annotations

import doctest
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bubbles import paths, starter
from bubbles.bus.dial import Dial
from bubbles.bus.lock import Lock, is_running
from bubbles.config import file
from bubbles.errors import Misconfigured, TryAgain
from bubbles.paths import Home

ROOT = Path(__file__).parents[1]


def unusable(tmp_path: Path) -> dict[str, str | None]:
    """What XDG_RUNTIME_DIR may be that is no runtime directory of ours."""
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "loop").symlink_to("loop")
    others = tmp_path / "others"
    others.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(others, 12345, 12345)
    else:
        others = Path("/")
    missing = tmp_path / "missing"
    found = {"unset": None, "empty": "", "relative": ".", "missing": str(missing), "missing below": str(missing / "deep" / "er")}
    return found | {name: str(tmp_path / name) for name in ("file", "open", "loop")} | {"others": str(others)}


@pytest.fixture(params=["unset", "empty", "relative", "missing", "missing below", "file", "open", "loop", "others"])
def runtime(request, tmp_path, monkeypatch):
    value = unusable(tmp_path)[request.param]
    monkeypatch.delenv("XDG_RUNTIME_DIR") if value is None else monkeypatch.setenv("XDG_RUNTIME_DIR", value)


def test_without_a_runtime_directory_of_ours_they_lie_in_tmp(home, runtime):
    assert home.sockets.parent == Path("/tmp")
    assert home.sockets.name.startswith(f"bubbles-{os.geteuid()}-")


def test_all_meet(home, tmp_path, monkeypatch):
    found = set()
    for value in unusable(tmp_path).values():
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        if value is not None:
            monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        found.add(home.sockets)
    assert len(found) == 1
    runtime = Path(tempfile.mkdtemp(prefix="b"))  # short enough for a socket, whatever the tests' own directory is called
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert home.sockets.parent == runtime
    runtime.rmdir()
    assert Home(tmp_path / "other").sockets not in {*found, home.sockets}


def test_a_daemon_with_a_lost_runtime_directory_and_a_caller_without_any_meet(home, tmp_path, monkeypatch):
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "lost"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", "tests.small_daemon", "with_door"], env=env, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        while "daemon.ready" not in process.stderr.readline():
            assert process.poll() is None
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert is_running(home, "small") == process.pid
        with Dial(home, "small") as dial:
            assert dial.call("ping")[0]["pid"] == process.pid
    finally:
        process.terminate()
        process.communicate(timeout=20)
        for path in home.sockets.iterdir():
            path.unlink()
        home.sockets.rmdir()


def test_a_daemon_can_be_started_where_a_door_just_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above = tempfile.mkdtemp()
    runtime = Path(above) / ("r" * (107 - len("/bubbles-12345678/channel-0123456789abcdef.sock") - len(above) - 1))
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("BUBBLES_HOME", str(tmp_path / "home"))
    home = Home.find()
    home.prepare()
    assert home.sockets.parent == runtime
    started = starter.start(home, "agentd", "--until-idle", "0")
    assert started.process.wait(60) == 0
    shutil.rmtree(above)


def test_doctests() -> None:
    assert doctest.testmod(paths) == (0, 1)


def test_what_is_to_be_typed_is_right_for_a_home_with_a_space_in_its_name(tmp_path: Path) -> None:
    home = Home(tmp_path / "my $(home)")
    home.root.mkdir(mode=0o777)
    home.root.chmod(0o777)
    with pytest.raises(Misconfigured) as opened:
        home.prepare()
    with pytest.raises(TryAgain) as unlocked:
        Lock(home, "agentd").acquire()
    with pytest.raises(TryAgain) as unwritten:
        file.write(home.root / "none" / "config.json", {})
    with pytest.raises(TryAgain) as unseen:
        starter.has_clients(home)
    for caught in (opened, unlocked, unwritten, unseen):
        assert str(home.root) in " ".join(shlex.split(caught.value.remedy))
    subprocess.run(opened.value.remedy, shell=True, check=True)
    home.prepare()


def test_a_place_for_other_things_is_no_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path)
    for place in (tmp_path, tmp_path / "link", Path("/")):
        before = place.stat().st_mode
        with pytest.raises(Misconfigured, match="other things"):
            Home(place).prepare()
        assert (place.stat().st_mode, list(place.glob("sessions"))) == (before, [])
    Home(tmp_path / ".bubbles").prepare()
