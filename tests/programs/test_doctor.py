"""`bubbles doctor`: each finding is provoked for real, and gone once its remedy is followed."""

from __future__ import annotations

import contextlib
import doctest
import http.server
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbles.agentd.job import Job
from bubbles.bus import is_running
from bubbles.cron.jobs import JobFile
from bubbles.messages import Address, Inbound, to_dict
from bubbles.paths import Home
from bubbles.programs.doctoring import CHECKS, finding, installed, logged, machine, rounds, said, stored, told
from bubbles.programs.doctoring.finding import Check, Finding, Findings, Patient
from bubbles.sandboxes import binary, refusal
from bubbles.spool import Queue
from bubbles.systemd import is_hung
from tests.programs.conftest import DAEMONS, PYTHON, Place, configure, until
from tests.programs.run import BIN, bubbles
from tests.sandboxes.refusing import apart, broken, needs_a_jail, without_namespaces

Lines = list[dict[str, Any]]
OURS = [check.name for check in CHECKS if check.group in ("Program", "Home", "Configuration", "Data")]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def doctor(*argv: str, status: int | None = None, **env: str) -> Lines:
    """What `bubbles doctor --json ARGV` finds. It says nothing else, and ends with `status`: 1 where something is wrong, if that is not said."""
    done = bubbles("doctor", "--json", *argv, **env)
    assert done.stderr == ""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == (int(any(line["level"] == "fail" for line in found)) if status is None else status)
    return found


def wrong(*argv: str, **env: str) -> Lines:
    """The findings that are warnings or worse."""
    return [line for line in doctor(*argv, **env) if line["level"] in ("warn", "fail")]


def only(lines: Lines) -> dict[str, Any]:
    assert len(lines) == 1, lines
    return lines[0]


def start(place: Place) -> None:
    """Have a question answered, and all daemons at their doors."""
    place.run("ask", "-s", "s", "hello")
    until(lambda: all((place.home.sockets / f"{name}.sock").exists() for name in DAEMONS))


@pytest.fixture
def talk(own_place: Place) -> Path:
    """A history with a question and its answer in it; no daemon runs any more."""
    start(own_place)
    for name in reversed(DAEMONS):
        own_place.kill(name, signal.SIGTERM)
    return own_place.home.session("s") / "session.jsonl"


# -- all is well --------------------------------------------------------------------------------------


def test_an_installation_that_works_is_well(own_place: Place) -> None:
    start(own_place)
    before = own_place.model.seen()["requests"]
    found = doctor(*OURS, status=0)
    assert [line for line in found if line["level"] not in ("ok", "note")] == []
    assert {line["check"] for line in found} >= {
        "python",
        "packages",
        "daemons",
        "home",
        "modes",
        "sockets",
        "config",
        "model",
        "providers",
        "histories",
    }
    assert own_place.model.seen()["requests"] == before  # no question was put to it
    for name in DAEMONS:
        assert any(line["text"].startswith(f"{name} answers (pid {is_running(own_place.home, name)}") for line in found)


def test_for_a_person_it_is_grouped_and_summed_up(home: Home) -> None:
    done = bubbles("doctor")
    lines = done.stdout.splitlines()
    assert lines[0] == "Program"
    assert {"", "Home", "Configuration", "Machine", "Sandbox"} <= set(lines)
    assert "  fail  model      no model can be asked: no model is set up" in lines
    assert lines[lines.index("  fail  model      no model can be asked: no model is set up") + 1].strip() == "try: bubbles onboard"
    assert lines[-1].startswith("1 wrong, ")
    assert "\x1b" not in done.stdout
    assert (done.returncode, done.stderr) == (1, "")
    brief = bubbles("doctor", "--brief", "python", "model").stdout
    assert brief.splitlines()[0] == "Configuration"
    assert bubbles("doctor", "--brief", "python").stdout == "all is well\n"


def test_the_same_words_of_two_checks_are_both_told_unless_they_are_of_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    page = told.Page()
    for check in CHECKS[:2]:
        page.tell(check, [finding.fail("it cannot be read"), finding.fail("the home is closed", once=True)])
    page.end()
    lines = capsys.readouterr().out.splitlines()
    assert sum("it cannot be read" in line for line in lines) == 2
    assert sum("the home is closed" in line for line in lines) == 1
    assert lines[-1] == "3 wrong"


def test_there_is_colour_at_a_terminal_alone(home: Home) -> None:
    assert b"\x1b[32mok" in on_a_terminal("doctor", "python")
    assert b"\x1b" not in on_a_terminal("doctor", "python", NO_COLOR="1")


def on_a_terminal(*argv: str, **env: str) -> bytes:
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [BIN / "bubbles", *argv], stdout=theirs, stdin=subprocess.DEVNULL, timeout=30, env={**os.environ, "TERM": "xterm", **env}, check=True
        )
        return os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)


def test_its_checks_can_be_listed_and_chosen(home: Home) -> None:
    listed = [json.loads(line) for line in bubbles("doctor", "--list", "--json").stdout.splitlines()]
    assert [line["check"] for line in listed] == [check.name for check in CHECKS]
    assert all(line["asks"].endswith(("?", ")")) for line in listed)
    assert {line["check"] for line in doctor("home", "python")} == {"home", "python"}
    done = bubbles("doctor", "hom")
    assert (done.returncode, done.stdout) == (64, "")
    assert "bubbles doctor --list" in done.stderr


# -- the home -----------------------------------------------------------------------------------------


def test_modes_are_seen_told_and_tightened(home: Home) -> None:
    soul = home.session("s") / "SOUL.md"
    soul.parent.mkdir(mode=0o700)
    soul.write_text("be kind")
    soul.chmod(0o644)
    home.log.chmod(0o755)
    commands = soul.parent / "work" / "run.sh"  # what commands make is theirs
    commands.parent.mkdir(mode=0o700)
    commands.write_text("")
    commands.chmod(0o755)
    found = only(wrong("modes"))
    assert (found["level"], found["text"]) == ("warn", "log, sessions/s/SOUL.md belong to others as well")
    assert only(wrong("modes", "--dry-run"))["done"].startswith("would make private: ")
    assert soul.stat().st_mode & 0o777 == 0o644
    mended = only(doctor("modes", "--fix", status=0))
    assert mended["level"] == "fixed"
    assert mended["done"].startswith("did make private: ")
    assert (soul.stat().st_mode & 0o777, home.log.stat().st_mode & 0o777, commands.stat().st_mode & 0o777) == (0o600, 0o700, 0o755)
    assert wrong("modes") == []


def test_files_that_the_owner_cannot_use_are_opened(home: Home) -> None:
    home.run.chmod(0o500)
    assert only(wrong("modes"))["level"] == "fail"
    doctor("modes", "--fix", status=0)
    assert wrong("modes") == []


@AS_ROOT
def test_files_of_another_user_are_named(home: Home) -> None:
    (home.turns / "s.jsonl").write_text("")
    os.chown(home.turns / "s.jsonl", 4242, 4242)
    found = only(wrong("modes"))
    assert "turns/s.jsonl belongs to another user" in found["text"]
    assert found["remedy"] == f"chown -R 0 {home.turns}"
    subprocess.run(found["remedy"], shell=True, check=True)
    (home.turns / "s.jsonl").chmod(0o600)
    assert wrong("modes") == []


@pytest.mark.parametrize(("mode", "level"), [(0o777, "fail"), (0o755, "warn"), (0o500, "fail")])
def test_the_home_is_made_private(home: Home, mode: int, level: str) -> None:
    home.root.chmod(mode)
    assert only(wrong("home"))["level"] == level
    doctor("home", "--fix", status=0)
    assert wrong("home") == []
    assert home.root.stat().st_mode & 0o777 == 0o700


def test_what_is_no_home_is_told(home: Home, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    assert "is not a directory" in only(wrong("home", BUBBLES_HOME=str(tmp_path / "file")))["text"]
    assert "leads nowhere" in only(wrong("home", BUBBLES_HOME=str(tmp_path / "link")))["text"]
    assert only(doctor("home", BUBBLES_HOME=str(tmp_path / "none")))["level"] == "note"
    assert not (tmp_path / "none").exists()


def test_what_is_no_home_is_left_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "some one's"
    (place / ".ssh").mkdir(parents=True)
    (place / "run").mkdir()
    (place / "config.json").write_text("{}")
    (place / "run" / "script").write_text("")
    for path in (place, *place.rglob("*")):
        path.chmod(0o755)
    before = {path: path.stat().st_mode for path in place.rglob("*")}
    found = only(wrong("home", "modes", "--fix", BUBBLES_HOME=str(place)))
    assert "is no home of Bubbles" in found["text"]
    assert "chmod" not in json.dumps(found)
    assert {path: path.stat().st_mode for path in before} == before
    assert place.stat().st_mode & 0o777 == 0o755
    for name in ("sessions", "turns"):
        (place / name).mkdir()
        (place / name).chmod(0o755)
    found = only(wrong("home", "modes", "--fix", BUBBLES_HOME=str(place), HOME=str(place)))
    assert (found["level"], "no daemon starts in it" in found["text"]) == ("fail", True)
    assert (place / "sessions").stat().st_mode & 0o777 == 0o755


def test_what_lies_in_a_home_and_is_not_its_own_is_left_as_it_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "my home")
    home.prepare()
    (home.root / "photos").mkdir()
    (home.root / "photos").chmod(0o755)
    home.log.chmod(0o755)
    found = only(wrong("home", "modes", BUBBLES_HOME=str(home.root)))
    subprocess.run(found["remedy"], shell=True, check=True)
    assert wrong("home", "modes", "--fix", BUBBLES_HOME=str(home.root)) == []
    assert (home.log.stat().st_mode & 0o777, (home.root / "photos").stat().st_mode & 0o777) == (0o700, 0o755)


def test_the_sockets_of_programs_that_are_just_starting_are_left_to_them(home: Home) -> None:
    place = home.prepare_sockets()
    gone = subprocess.Popen(["true"])
    gone.wait()
    ours, left, other = place / f"notify-{os.getpid()}-ab12.sock", place / f"notify-{gone.pid}-ab12.sock", place / "other.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(ours))
        for path in (left, other):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
                deaf.bind(str(path))
        assert only(wrong("sockets"))["text"] == f"{left} was left by a program that is gone"
        assert [line["level"] for line in doctor("sockets", "--fix", status=0) if line["level"] != "note"] == ["fixed"]
        assert sorted(place.iterdir()) == [ours, other]
        assert list(home.run.iterdir()) == []
        assert wrong("sockets") == []


def test_a_daemon_that_has_only_just_been_started_is_not_wrong(home: Home) -> None:
    code = "from bubbles.bus.lock import Lock; from bubbles.paths import Home; Lock(Home.find(), 'cron').acquire(); print(flush=True); input()"
    with subprocess.Popen([PYTHON, "-c", code, "--until-idle"], cwd=BIN.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cron:
        assert cron.stdout
        cron.stdout.readline()
        found = doctor("daemons", "sockets", status=0)
        assert [line["check"] for line in found if line["text"] == f"cron is starting (pid {cron.pid})"] == ["daemons", "sockets"]
        os.utime(home.lock("cron"), (time.time() - 60, time.time() - 60))
        assert {line["check"] for line in wrong("daemons", "sockets") if line["level"] == "fail"} == {"daemons", "sockets"}
        cron.communicate(b"\n")


def test_a_socket_that_a_dead_daemon_left_is_removed_and_one_that_is_used_is_not(own_place: Place) -> None:
    start(own_place)
    own_place.kill("modeld", signal.SIGKILL)
    place = own_place.home.sockets
    found = only(wrong("sockets"))
    assert found["text"] == f"{place / 'modeld.sock'} is the socket of a dead modeld"
    assert (place / "modeld.sock").exists()
    doctor("sockets", "--fix", status=0)
    assert not (place / "modeld.sock").exists()
    assert (place / "agentd.sock").exists()
    assert wrong("sockets") == []


def test_a_daemon_that_is_elsewhere_is_found(own_place: Place) -> None:
    start(own_place)
    with tempfile.TemporaryDirectory(dir="/tmp") as other:
        found = wrong("sockets", XDG_RUNTIME_DIR=other)
    assert {line["text"].split()[0] for line in found} == set(DAEMONS)
    assert all("another XDG_RUNTIME_DIR" in line["text"] for line in found)


@AS_ROOT
def test_a_home_that_cannot_be_entered_is_told_once(home: Home, tmp_path: Path) -> None:
    (tmp_path / "closed" / "home").mkdir(parents=True, mode=0o700)
    (tmp_path / "closed").chmod(0o700)
    os.chown(tmp_path / "closed", 4242, 4242)
    env = {**os.environ, "BUBBLES_HOME": str(tmp_path / "closed" / "home")}
    powerless = ["setpriv", "--bounding-set=-all", BIN / "bubbles", "doctor", "--brief"]  # root, to whom closed doors are closed
    done = subprocess.run(powerless, capture_output=True, text=True, timeout=60, env=env)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("cannot be entered: Permission denied") == 1
    assert done.stdout.splitlines()[-1].startswith("1 wrong")


def test_a_runtime_directory_that_cannot_be_used_is_told(home: Home, tmp_path: Path) -> None:
    open_one = tmp_path / "open"
    open_one.mkdir()
    open_one.chmod(0o777)
    assert "no directory of yours alone" in only(wrong("sockets", XDG_RUNTIME_DIR=str(open_one)))["text"]
    assert "XDG_RUNTIME_DIR is not set" in doctor("sockets", XDG_RUNTIME_DIR="")[0]["text"]
    long = tmp_path / ("x" * 90)
    long.mkdir(mode=0o700)
    assert "too long" in doctor("sockets", XDG_RUNTIME_DIR=str(long))[0]["text"]


def test_the_directory_of_the_sockets_is_made_private(home: Home) -> None:
    home.prepare_sockets().chmod(0o755)
    assert only(wrong("sockets"))["level"] == "fail"
    doctor("sockets", "--fix", status=0)
    assert wrong("sockets") == []


# -- the configuration --------------------------------------------------------------------------------


def test_a_configuration_that_does_not_load_is_told_once_and_nothing_else_falls(own_place: Place) -> None:
    whole = own_place.home.config.read_text()
    own_place.home.config.write_text(whole[:-3])
    found = wrong(*OURS)
    assert only(found)["check"] == "config"
    assert "line 1, column" in found[0]["text"]
    own_place.home.config.write_text(whole)
    assert wrong(*OURS) == []


def test_keys_that_are_no_settings_and_open_files_are_warned_of(own_place: Place) -> None:
    raw = json.loads(own_place.home.config.read_text())
    own_place.home.config.write_text(json.dumps({**raw, "agent": {}}))
    own_place.home.config.chmod(0o644)
    found = wrong("config")
    assert [line["level"] for line in found] == ["warn", "warn"]
    assert "agent is not a setting (did you mean agents?)" in found[0]["text"]
    assert "could be read by other users" in found[1]["text"]
    own_place.home.config.write_text(json.dumps(raw))
    assert wrong("config") == []


def test_a_session_with_a_broken_configuration_is_named(own_place: Place) -> None:
    own = own_place.home.session("s") / "config.json"
    own.parent.mkdir()
    own.write_text('{"version": 99}')
    assert "the session s cannot be used" in only(wrong("config"))["text"]
    own.write_text('{"version": 1, "temperature": 0.5}')
    assert wrong("config") == []


def test_that_no_model_is_set_up_is_told_apart_from_one_that_does_not_answer(own_place: Place) -> None:
    own_place.home.config.write_text("{}")
    assert [line["check"] for line in wrong("model", "providers")] == ["model"]
    configure(own_place.home, "http://127.0.0.1:9/v1")
    found = only(wrong("model", "providers"))
    assert (found["check"], found["level"]) == ("providers", "fail")
    assert "127.0.0.1:9" in found["text"]
    configure(own_place.home, own_place.model.url)
    own_place.model.play({"models": ["fake"]})
    assert wrong("model", "providers") == []


@pytest.mark.parametrize(
    ("provider", "check", "remedy"),
    [
        ("custom", "model", "set providers.custom.base_url"),
        ("vllm", "providers", "see that the server runs"),
        ("embedded", "providers", "bubbles models"),
    ],
)
def test_a_provider_that_is_named_and_cannot_be_asked_is_wrong(home: Home, provider: str, check: str, remedy: str) -> None:
    sections = {"custom": {"api_base": "http://127.0.0.1:9/v1"}, "vllm": {"base_url": ""}}
    home.config.write_text(json.dumps({"version": 1, "agents": {"defaults": {"provider": provider, "model": "m"}}, "providers": sections}))
    home.config.chmod(0o600)
    found = only(wrong("model", "providers"))
    assert (found["check"], found["level"]) == (check, "fail")
    assert remedy in found["remedy"]


def test_a_key_that_is_refused_is_told_apart_and_not_shown(own_place: Place) -> None:
    own_place.model.play({"key": "right-key-1234", "models": ["fake"]})
    raw = json.loads(own_place.home.config.read_text())
    raw["providers"]["custom"]["api_key"] = "wrong-key-1234"
    own_place.home.config.write_text(json.dumps(raw))
    found = only(wrong("providers"))
    assert "not authorized" in found["text"]
    assert "HTTP 401" in found["text"]
    assert "wrong-key" not in json.dumps(found)
    raw["providers"]["custom"]["api_key"] = "right-key-1234"
    own_place.home.config.write_text(json.dumps(raw))
    assert wrong("providers") == []


def test_a_server_that_never_answers_is_not_waited_for(own_place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        configure(own_place.home, f"http://127.0.0.1:{deaf.getsockname()[1]}/v1")
        assert "no answer" in only(wrong("providers"))["text"]


class Slow(http.server.BaseHTTPRequestHandler):
    """A server that is too slow for the first who ask, and not for the next."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.asked == 1:
            time.sleep(6)
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "fake"}]}')

    def log_message(self, format: str, *args: Any) -> None: ...


def test_a_server_that_is_slow_once_is_asked_again(own_place: Place) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configure(own_place.home, f"http://127.0.0.1:{server.server_port}/v1")
        assert wrong("providers") == []
        server.shutdown()
    assert Slow.asked > 1


def test_a_model_that_the_server_does_not_have_is_told(own_place: Place) -> None:
    own_place.model.play({"models": ["other"]})
    found = only(wrong("providers"))
    assert (found["level"], "'fake': it has other" in found["text"]) == ("warn", True)


def test_the_running_modeld_is_asked_who_lets_it_in(own_place: Place) -> None:
    own_place.model.play({"key": "right-key-1234", "models": ["fake"]})
    raw = json.loads(own_place.home.config.read_text())
    raw["providers"]["custom"]["api_key"] = "right-key-1234"
    own_place.home.config.write_text(json.dumps(raw))
    start(own_place)
    del raw["providers"]["custom"]["api_key"]  # it has the key, as if its service manager had handed it over
    own_place.home.config.write_text(json.dumps(raw))
    assert "as modeld asks it" in only(doctor("providers", status=0))["text"]


def test_a_question_is_put_only_where_that_is_asked_for(own_place: Place) -> None:
    own_place.model.play({"default": {"reply": "ready"}})
    assert doctor("answer", status=0) == []
    assert own_place.model.seen()["requests"] == 0
    assert only(doctor("answer", "--ask", status=0))["text"].endswith("answered: ready")
    assert own_place.model.seen()["requests"] == 1
    own_place.model.play({"default": {"status": 500}})
    assert only(wrong("answer", "--ask"))["level"] == "fail"


# -- daemons ------------------------------------------------------------------------------------------


def test_a_daemon_that_hangs_is_found(own_place: Place) -> None:
    start(own_place)
    pid = is_running(own_place.home, "modeld")
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        found = only(wrong("daemons"))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "does not answer" in found["text"]
    assert str(pid) in found["remedy"]
    assert wrong("daemons") == []


def test_a_daemon_that_is_silent_for_a_moment_is_not_wrong(own_place: Place) -> None:
    start(own_place)
    pid = is_running(own_place.home, "modeld")
    assert pid
    os.kill(pid, signal.SIGSTOP)
    later = threading.Timer(3.5, os.kill, (pid, signal.SIGCONT))
    later.start()
    assert wrong("daemons") == []
    later.join()


def test_a_daemon_of_another_version_is_found(own_place: Place) -> None:
    launcher = "import bubbles; bubbles.__version__ = '9.9.9'; from bubbles.programs.modeld import main; main([])"
    with subprocess.Popen([PYTHON, "-c", launcher], cwd=BIN.parent, stderr=subprocess.DEVNULL, env={**os.environ, **own_place.env}) as other:
        until(lambda: (own_place.home.sockets / "modeld.sock").exists())
        found = wrong("daemons")
        other.terminate()
    assert any(line["level"] == "fail" and "9.9.9" in line["text"] for line in found)
    assert wrong("daemons") == []


def test_daemons_that_started_before_the_configuration_was_changed_are_told(own_place: Place) -> None:
    start(own_place)
    assert wrong("restart") == []
    later = time.time() + 1
    os.utime(own_place.home.config, (later, later))
    found = only(wrong("restart"))
    assert found["level"] == "warn"
    for name in ("agentd", "modeld"):
        assert str(is_running(own_place.home, name)) in found["remedy"]
        own_place.kill(name, signal.SIGTERM)
    assert wrong("restart") == []


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="needs systemctl")
@pytest.mark.parametrize("waiting", [0, 2])  # the queue at its door takes one more than it was made for
def test_a_service_manager_that_hangs_is_told_and_one_that_is_gone_is_not(own_place: Place, waiting: int) -> None:
    door = own_place.home.root.parent / "run" / "systemd" / "private"
    door.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as hung, contextlib.ExitStack() as stack:
        hung.bind(str(door))
        hung.listen(0 if waiting else 9)
        for _ in range(waiting):
            caller = stack.enter_context(socket.socket(socket.AF_UNIX))
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(str(door))
        found = only(wrong("units"))
        assert found["text"].startswith("your service manager does not answer")
        assert is_hung()
    assert wrong("units") == []  # its socket is there, and nobody listens
    assert not is_hung()


# -- what is stored -----------------------------------------------------------------------------------


def test_a_torn_history_is_mended_as_agentd_would(talk: Path) -> None:
    whole = talk.read_bytes()
    talk.write_bytes(whole + b'{"role":"user","content":"and th')
    assert "never written whole" in only(wrong("histories"))["text"]
    assert talk.read_bytes() != whole
    assert "would cut off" in only(wrong("histories", "--dry-run"))["done"]
    assert only(doctor("histories", "--fix", status=0))["level"] == "fixed"
    assert talk.read_bytes() == whole
    assert wrong("histories") == []


def test_all_torn_histories_are_mended_at_once_also_where_no_daemon_has_run_yet(talk: Path, own_place: Place) -> None:
    home, whole = own_place.home, talk.read_bytes()
    torn = [home.session(f"s{number}") / "session.jsonl" for number in range(30)]
    for path in torn:
        path.parent.mkdir(mode=0o700)
        path.write_bytes(whole + b"\0\0")
    shutil.rmtree(home.run)
    done = bubbles("doctor", "histories", "--fix", "--brief")
    assert (done.returncode, done.stderr) == (0, "")
    assert "did cut off the torn ends of 30 histories" in done.stdout
    assert done.stdout.splitlines()[-1] == "30 mended"
    assert {path.read_bytes() for path in torn} == {whole}
    assert wrong("histories") == []


def test_many_faults_of_a_kind_are_counted(home: Home) -> None:
    for number in range(25):
        path = home.session(f"s{number}") / "session.jsonl"
        path.parent.mkdir(mode=0o700)
        path.write_text("no\n")
    done = bubbles("doctor", "histories", "--brief")
    assert "and 5 more of these" in done.stdout
    assert done.stdout.splitlines()[-1] == "25 warnings"


def test_a_line_without_an_end_does_not_fill_the_memory(talk: Path) -> None:
    whole = talk.read_bytes()
    with open(talk, "r+b") as file:
        file.truncate(len(whole) + (1 << 30))
    small = f"ulimit -v {700 << 10}; exec {BIN / 'bubbles'} doctor --json histories"
    done = subprocess.run(["sh", "-c", small], capture_output=True, text=True, timeout=60)
    found = only([json.loads(line) for line in done.stdout.splitlines()])
    assert "never written whole, and is too long to be one" in found["text"]
    with open(talk, "ab") as file:
        file.write(b"\n" + whole.splitlines(keepends=True)[-1])
    done = subprocess.run(["sh", "-c", small], capture_output=True, text=True, timeout=60)
    assert "cannot be read, and is passed over" in only([json.loads(line) for line in done.stdout.splitlines()])["text"]
    with open(talk, "r+b") as file:
        file.truncate(len(whole) + (1 << 30))
    subprocess.run(found["remedy"], shell=True, check=True)
    assert talk.read_bytes() == whole


def test_what_there_was_no_time_to_read_is_not_claimed_to_be_well_or_wrong(talk: Path, own_place: Place) -> None:
    def read(path: Path, until: float) -> Iterator[Finding]:
        assert stored.surveyed(path, len, until).broken
        yield finding.fail("it was read")

    found = list(stored.each([talk], read, "histories", budget_s=0))
    assert [(each.level, each.text) for each in found] == [("warn", "1 of 1 histories were not read: there was no time")]


def test_lines_of_a_history_that_are_none_are_counted(talk: Path) -> None:
    first, *rest = talk.read_bytes().splitlines(keepends=True)
    talk.write_bytes(b"".join([first, b"\x00\xff\n", *rest]))
    found = only(wrong("histories"))
    assert "line 2 cannot be read, and is passed over" in found["text"]
    assert found["remedy"] == f"look at: sed -n 2p {talk} | head -c 1000"
    talk.write_bytes(b"".join([first, *rest]))
    assert wrong("histories") == []


def test_what_a_newer_bubbles_wrote_is_left_alone(talk: Path, own_place: Place) -> None:
    home = own_place.home
    talk.write_bytes(talk.read_bytes().replace(b'"version":1', b'"version":7', 1))
    (home.turns / "t.jsonl").write_text('{"format":"bubbles.journal","version":7,"turn":"a","session":"t","origin":"user"}\n')
    inbound(home, "new-one", version=7)
    before = {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}
    found = wrong("histories", "turns", "queues", "--fix")
    assert [(line["check"], line["level"]) for line in found] == [("histories", "fail"), ("turns", "fail"), ("queues", "fail")]
    assert all("update Bubbles" in line["remedy"] for line in found)
    assert {path: path.read_bytes() for path in before} == before


def inbound(home: Home, id: str, **more: Any) -> Path:
    Queue(home.inbound("telegram")).put(id, {**to_dict(Inbound(id=id, at=time.time(), channel="telegram", chat="1", text="hi")), **more})
    return home.inbound("telegram") / "new" / f"{id}.json"


def test_a_journal_that_cannot_be_read_is_told_and_a_torn_one_noted(home: Home) -> None:
    journal = home.turns / "s.jsonl"
    header = '{"format":"bubbles.journal","version":1,"turn":"a","session":"s","origin":"user"}\n'
    journal.write_text(f'{header}{{"event":"UserSpoke"}}\n')
    assert "line 2 cannot be read" in only(wrong("turns"))["text"]
    journal.write_text(f'{header}{{"event":"UserSp')
    assert only(doctor("turns", status=0))["level"] == "note"
    journal.write_text("")
    assert only(doctor("turns", status=0))["level"] == "ok"


def test_a_record_of_a_background_job_that_cannot_be_read_is_told(home: Home) -> None:
    path = home.background / "s" / "j1.json"
    Job("s", 1, "true", 1.0, 1.0, Address("cli", "s"), told=True).store(path)
    assert wrong("lists") == []
    path.write_text("{")
    found = only(wrong("lists"))
    assert str(path) in found["text"]
    assert found["remedy"] == f"mv {path} {path}.old"


@pytest.mark.parametrize("name", ["jobs", "chats"])
def test_lists_that_cannot_be_read_are_told(home: Home, name: str) -> None:
    path: Path = getattr(home, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"version": 1, "jobs": [{}')
    path.chmod(0o600)
    assert str(path) in only(wrong("lists"))["text"]
    path.rename(path.with_suffix(".old"))
    assert wrong("lists") == []
    JobFile(home.jobs).load()


def test_files_in_queues_that_are_no_messages_are_told(home: Home) -> None:
    good = inbound(home, "good")
    assert wrong("queues") == []
    bad = good.with_name("bad.json")
    bad.write_text('{"id": "bad", "text": 5}\n')
    found = only(wrong("queues"))
    assert "no message" in found["text"]
    assert bubbles(*found["remedy"].split()[1:]).returncode == 0
    assert wrong("queues") == []
    torn = good.with_name("torn.json")
    torn.write_text('{"id": "to')
    assert wrong("queues") == []  # it may still be being written
    os.utime(torn, (time.time() - 120, time.time() - 120))
    assert "never written to its end" in only(wrong("queues"))["text"]


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize("count", [3, 25])
def test_many_files_that_are_no_messages_are_one_fault_with_one_remedy(home: Home, count: int) -> None:
    good = inbound(home, "good")
    for number in range(count):
        good.with_name(f"bad-{number}.json").write_text('{"text": 5}\n')
    found = only(wrong("queues"))
    assert f"{count} files in inbound/telegram are no messages" in found["text"]
    subprocess.run(found["remedy"], shell=True, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
    assert wrong("queues") == []
    assert [path.name for path in good.parent.glob("*.json")] == ["good.json"]


def test_what_is_held_waits_for_a_person(home: Home) -> None:
    inbound(home, "one")
    queue = Queue(home.inbound("telegram"))
    queue.claim("one")
    queue.hold("one", "it was refused")
    (home.turns / "held").mkdir()
    (home.turns / "held" / "t1.jsonl").write_text("")
    found = wrong("held")
    assert [line["text"] for line in found] == ["1 message in inbound/telegram is held: it was refused", "1 turn was given up"]
    assert '"one"' in bubbles(*found[0]["remedy"].partition(" | ")[0].split()[1:]).stdout
    queue.drop("one")
    (home.turns / "held" / "t1.jsonl").unlink()
    assert wrong("held") == []


# -- the machine --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [("size=3m", "3 MB are left for home"), ("size=2g,nr_inodes=100", "more files can be made"), ("size=2g,ro", "can only be read"), ("size=2g", "")],
)
def test_a_disk_without_room_is_told(home: Home, options: str, text: str) -> None:
    script = 'mount -t tmpfs -o "$1" tmpfs "$2" && exec "$3" doctor --json disk'
    done = apart(script, options, str(home.root), str(BIN / "bubbles"))
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(text in line["text"] for line in found if line["level"] == "fail") == bool(text), found


def test_files_from_the_future_tell_of_a_wrong_clock(talk: Path) -> None:
    later = time.time() + 86400
    os.utime(talk, (later, later))
    assert "24.0 hours ahead of the clock" in only(wrong("clock"))["text"]
    os.utime(talk)
    assert not any("ahead" in line["text"] for line in wrong("clock"))


def test_the_kind_of_a_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path}/a\\040b nfs4 rw 0 0\n\nodd\n")
    assert machine.kind_of(tmp_path / "a b" / "c", mounts) == "nfs4"
    assert machine.kind_of(tmp_path / "a", mounts) == "ext4"
    assert machine.kind_of(tmp_path, tmp_path / "none") == ""
    assert doctor("files", status=0)[0]["level"] in ("ok", "warn")


@pytest.mark.parametrize(
    ("kind", "mark", "text"),
    [
        ("ext4", ".dockerenv", ""),
        ("overlay", "", ""),
        ("overlay", ".dockerenv", "gone with the container"),
        ("overlay", "run/.containerenv", "gone with the container"),
        ("tmpfs", "", "gone after a restart"),
        ("nfs4", "", "run Bubbles on one alone"),
        ("fuse.sshfs", "", "run Bubbles on one alone"),
    ],
)
def test_a_home_on_a_disk_that_does_not_last_or_is_shared_is_told(tmp_path: Path, kind: str, mark: str, text: str) -> None:
    for path in ("proc/self/mounts", mark):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/self/mounts").write_text(f"disk / {kind} rw 0 0\n")
    if mark:
        (tmp_path / mark).touch()
    found = list(machine.file_system(Patient(Home(tmp_path / "home"), root=tmp_path)))
    assert [each.level for each in found] == [finding.WARN if text else finding.OK]
    assert text in found[0].text


def test_that_no_jail_can_be_made_is_told_and_wrong_only_where_commands_are_to_have_one(home: Home) -> None:
    def look(backend: str) -> tuple[int, dict[str, Any]]:
        home.config.write_text(json.dumps({"version": 1, "tools": {"sandbox": {"backend": backend}}}))
        home.config.chmod(0o600)
        done = without_namespaces("doctor", "--json", "namespaces")
        return done.returncode, next(json.loads(line) for line in done.stdout.splitlines())

    status, found = look("local_isolated")
    assert (status, found["level"], "no jail can be made" in found["text"]) == (0, "note", True)
    status, found = look("bwrap")
    assert (status, found["level"]) == (1, "fail")
    assert found["text"].startswith("every command is refused, because no jail can be made: the number of user namespaces")
    assert "max_user_namespaces" in found["remedy"]
    assert "bubbles onboard --sandbox local_isolated" in found["remedy"]


def test_each_bubblewrap_is_tried_and_what_is_known_of_it_is_told(home: Home, tmp_path: Path) -> None:
    needs_a_jail(home)
    broken(tmp_path / "bin", "bwrap: Unknown option --bind-fd", version="0.4.0")
    found = doctor("namespaces", status=0, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert "a jail could be made: it was tried from inside" in found[0]["text"]
    assert [each["remedy"] for each in found if "which hides no file" in each["text"]] == ["bubbles onboard --sandbox bwrap"]
    assert any(f"{tmp_path}/bin/bwrap" in each["text"] and each["level"] == "note" for each in found)
    old = any(each.version < refusal.CVE_FIXED for each in binary.candidates())
    assert any(refusal.CVE in each["text"] for each in found) == old


# -- the journal --------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a machine with a journal that is kept."""
    for path in ("run/systemd/journal", "var/log/journal", "etc/systemd/journald.conf.d", "usr/lib/systemd/journald.conf.d"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "run/systemd/journal/socket").touch()
    return tmp_path


def kept(root: Path) -> list[str]:
    found = [each for each in logged.journal(Patient(Home(root), root=root)) if "read" not in each.text]
    return [each.text for each in found if each.level in (finding.WARN, finding.FAIL)]


def test_a_journal_that_is_not_kept_is_told(root: Path) -> None:
    assert kept(root) == []
    for storage, text in (("volatile", "Storage=volatile"), ("none", "keeps nothing")):
        (root / "etc/systemd/journald.conf").write_text(f"[Journal]\n#Storage=auto\nStorage={storage}\n")
        assert text in kept(root)[0]
    (root / "etc/systemd/journald.conf.d/50-keep.conf").write_text("[Journal]\nStorage=persistent\n")
    assert kept(root) == []
    (root / "etc/systemd/journald.conf.d/50-keep.conf").unlink()
    (root / "etc/systemd/journald.conf").unlink()
    (root / "var/log/journal").rmdir()
    assert "there is no /var/log/journal" in kept(root)[0]


def test_drop_ins_stand_over_the_file_and_those_of_etc_over_others(root: Path) -> None:
    (root / "etc/systemd/journald.conf").write_text("[Journal]\nRateLimitBurst=5\nRateLimitIntervalSec=1min 30s\n[Other]\nRateLimitBurst=6\n")
    (root / "usr/lib/systemd/journald.conf.d/90.conf").write_text("[Journal]\nRateLimitBurst=7\n")
    assert logged.configured(root)["RateLimitBurst"] == "7"
    (root / "etc/systemd/journald.conf.d/90.conf").write_text("; masks the other\n")
    assert logged.configured(root)["RateLimitBurst"] == "5"
    assert logged.limit(root, "no-such-unit.service").interval_s == 90


def test_doctests() -> None:
    assert doctest.testmod(logged) == (0, 2)
    assert doctest.testmod(installed) == (0, 1)


@pytest.mark.parametrize(
    ("settings", "enough"), [("", True), ("RateLimitBurst=100", False), ("RateLimitBurst=0", True), ("RateLimitIntervalSec=0", True)]
)
def test_a_limit_below_what_is_said_is_told(root: Path, settings: str, enough: bool) -> None:
    (root / "etc/systemd/journald.conf").write_text(f"[Journal]\nSystemMaxUse=4G\nSystemKeepFree=0\n{settings}\n")
    found = logged.limit(root, "no-such-unit.service")
    assert found.is_enough == enough


# -- it never falls, and never hangs ------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        {"BUBBLES_HOME": "/dev/null/home", "XDG_RUNTIME_DIR": "/nowhere"},
        {"BUBBLES_HOME": "/proc/1", "HOME": "/nowhere"},
        {"BUBBLES_HOME": "", "HOME": "", "XDG_RUNTIME_DIR": ""},
        {"BUBBLES_HOME": "/nowhere/\udce9\n\x1b[31m"},
        {"PATH": "/nowhere"},
    ],
)
def test_it_runs_wherever_it_is(home: Home, env: dict[str, str]) -> None:
    command = [sys.executable, "-P", "-m", "bubbles.programs", "doctor"]
    done = subprocess.run(command, capture_output=True, timeout=60, cwd=BIN.parent, env={**os.environ, "PYTHONPATH": str(BIN.parent), **env})
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == b""
    assert b"fault of ours" not in done.stdout
    assert b"\x1b" not in done.stdout
    assert done.stdout.decode().splitlines()[-1]


def test_it_runs_without_proc(home: Home) -> None:
    done = apart('mount -t tmpfs tmpfs /proc && exec "$1" doctor', str(BIN / "bubbles"))
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stdout + done.stderr
    assert "fault of ours" not in done.stdout


def test_files_that_are_none_do_not_hang_it(home: Home) -> None:
    home.session("s").mkdir()
    os.mkfifo(home.session("s") / "session.jsonl")
    os.mkfifo(home.session("s") / "config.json")
    os.mkfifo(home.turns / "s.jsonl")
    os.mkfifo(home.chats)
    home.jobs.parent.mkdir()
    os.mkfifo(home.jobs)
    Queue(home.inbound("cli")).prepare()
    os.mkfifo(home.inbound("cli") / "new" / "a.json")
    found = wrong("config", "histories", "turns", "queues", "lists")
    assert {line["check"] for line in found} >= {"config", "histories", "turns", "queues", "lists"}
    assert not any("fault of ours" in line["text"] for line in found)


class Given(Check):
    """A check whose findings a test gives."""

    def findings(self, patient: Patient) -> Findings:
        return GIVEN[self.name]()


GIVEN: dict[str, Callable[[], Iterator[Finding]]] = {}


def test_a_check_that_hangs_or_falls_keeps_no_other_from_being_told(home: Home) -> None:
    for_ever = threading.Event()

    def hangs() -> Iterator[Finding]:
        yield finding.ok("so far")
        for_ever.wait()

    def falls() -> Iterator[Finding]:
        yield finding.ok("so far")
        raise ZeroDivisionError("by zero")

    GIVEN.update(hangs=hangs, falls=falls, works=lambda: iter([finding.ok("well")]))
    checks = [Given(name, "G", "does it?", "", limit_s=0.2) for name in GIVEN]
    found = {check.name: [(each.level, each.text) for each in told] for check, told in rounds.visits(checks, Patient(home))}
    for_ever.set()
    assert found["works"] == [("ok", "well")]
    assert found["hangs"] == [("ok", "so far"), ("warn", "this could not be looked at within 0.2 s: does it?")]
    assert found["falls"][0] == ("ok", "so far")
    assert "a fault of ours (ZeroDivisionError: by zero)" in found["falls"][1][1]


def test_a_program_that_hangs_is_ended() -> None:
    assert said.said("sleep", "60", timeout_s=0.1) is None
    assert said.said("no-such-program") is None
    assert said.said("echo", "a=b") == said.Said(0, "a=b\n", "")


def test_a_fix_that_fails_is_told_and_what_was_found_stays() -> None:
    def deed() -> None:
        raise OSError(13, "Permission denied", "/x")

    found = rounds.mended(finding.warn("it is open", "close it", finding.Fix("close /x", deed)), dry=False)
    assert (found.level, found.done) == ("warn", "cannot close /x: Permission denied: /x")


def test_a_reader_that_leaves_does_not_break_it(home: Home) -> None:
    with subprocess.Popen([BIN / "bubbles", "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            assert b"Traceback" not in process.stderr.read()
        assert process.wait(30) in (1, 141)


def test_of_a_vendor_it_is_said_that_its_key_was_not_tried(home: Home) -> None:
    providers = {"anthropic": {"api_key": "sk-0123456789", "base_url": "http://127.0.0.1:9"}, "openai": {"api_key": "sk-0123456789"}}
    raw = {"version": 1, "agents": {"defaults": {"model": "anthropic/claude-sonnet-4-5"}}, "providers": providers}
    home.config.write_text(json.dumps(raw))
    home.config.chmod(0o600)
    said = [line["text"] for line in doctor("providers", status=0)]
    assert said == [
        "anthropic has a key; whether it is let in is seen by: bubbles models test",
        "openai has a key; whether it is let in is seen by: bubbles models test openai/MODEL",
    ]
