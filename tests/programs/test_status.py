"""What `bubbles status` says of an installation: what is set, what runs and by whom, what waits, what is wrong; and its exit code."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles import __version__, starter
from bubbles.bus import is_running
from bubbles.messages import Inbound, Outbound, to_dict
from bubbles.paths import Home
from bubbles.programs import status
from bubbles.programs.running import CORE, Ran, Running
from bubbles.programs.verdict import Fault, at_rest, changed, of_daemon, of_daemons
from bubbles.spool import Queue
from bubbles.systemd import Unit
from tests.programs.conftest import PYTHON, Place, until
from tests.programs.run import BIN, ROOT, bubbles
from tests.programs.terminal_under_test import Terminal
from tests.sandboxes.refusing import needs_a_jail, without_namespaces


def told(home: Home) -> dict[str, Any]:
    """What `status --json` prints."""
    done = bubbles("status", "--json", BUBBLES_HOME=str(home.root))
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(found["wrong"])
    return found


def wrong(home: Home) -> list[str]:
    return [each["text"] for each in told(home)["wrong"]]


@contextmanager
def by_hand(home: Home, *names: str) -> Iterator[None]:
    """Daemons that stay, as one would start them in a terminal of one's own."""
    started = [starter.start(home, name) for name in names]
    try:
        yield
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()


def put(home: Home, id: str, *, held: bool = False) -> Queue:
    queue = Queue(home.inbound("telegram"))
    queue.put(id, to_dict(Inbound(id, 1.0, "telegram", "42", "hello")), sync=False)
    if held:
        queue.claim(id)
        queue.hold(id, "nobody knows this chat")
    return queue


# -- what is set -----------------------------------------------------------------------------------


def test_it_tells_the_installation_and_only_sessions_that_differ(place: Place) -> None:
    place.model.play({"default": {"reply": "ok"}})
    place.run("agent", "-m", "hi", "-s", "plain")
    place.run("agent", "-m", "hi", "-s", "special")
    place.ask("session.set", session="special", key="temperature", value=0.1)
    found = told(place.home)
    assert (found["model"], found["provider"], found["providers"], found["channels"]) == ("fake", "custom", ["custom"], [])
    assert found["sessions"] == [{"session": "special", "settings": {"temperature": 0.1}, "jobs": []}]
    shown = place.run("status").stdout
    assert "special: temperature 0.1" in shown
    assert "plain" not in shown


def test_of_a_home_that_is_not_there_yet_it_makes_nothing_and_nothing_is_wrong(tmp_path: Path) -> None:
    done = bubbles("status", BUBBLES_HOME=str(tmp_path / "nowhere"))
    assert done.returncode == 0
    assert "bubbles onboard" in done.stdout
    assert not (tmp_path / "nowhere").exists()


def test_a_sandbox_that_refuses_every_command_is_wrong_and_one_that_holds_says_by_what(home: Home) -> None:
    home.config.write_text('{"version": 1, "tools": {"sandbox": {"backend": "bwrap"}}}')
    home.config.chmod(0o600)
    done = without_namespaces("status", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["sandbox"], found["jail"]["ok"]) == (1, "bwrap", False)
    (fault,) = found["wrong"]
    assert fault["text"].startswith("every command is refused, because no jail can be made: the number of user namespaces")
    assert "user.max_user_namespaces" in fault["remedy"]
    assert "bwrap, which does not hold here" in without_namespaces("status").stdout
    needs_a_jail(home)
    assert wrong(home) == []
    assert "bwrap, tried with /" in bubbles("status").stdout
    home.config.write_text("{}")
    assert told(home)["jail"] is None


def test_with_a_broken_configuration_it_still_tells_what_runs(home: Home) -> None:
    home.config.write_text("{")
    put(home, "telegram-1", held=True)
    (home.session("work")).mkdir()
    (home.session("work") / "config.json").write_text("also broken")
    done = bubbles("status")
    assert done.returncode == 78
    assert "1 held in inbound/telegram" in done.stdout
    assert "config.json" in done.stderr
    assert [line.split() for line in done.stdout.splitlines()][1:4] == [[name, "down"] for name in CORE]


@pytest.mark.parametrize(
    ("section", "value"),
    [("agents", 3), ("channels", {"qq": {"secret": "x"}}), ("providers", []), ("gateway", {"port": 1}), ("tools", {"workspaces": ["/"]})],
)
def test_a_fault_in_whichever_section_is_told(home: Home, section: str, value: Any) -> None:
    home.config.write_text(json.dumps({"version": 1, section: value}))
    home.config.chmod(0o600)
    done = bubbles("status")
    assert done.returncode == 78
    assert section in done.stderr
    assert "agentd" in done.stdout


def test_no_key_is_ever_shown(home: Home) -> None:
    home.config.write_text(json.dumps({"version": 1, "providers": {"custom": {"base_url": "http://127.0.0.1:1/v1", "api_key": "very-secret-key"}}}))
    home.config.chmod(0o600)
    for argv in (("status",), ("status", "--json")):
        assert "very-secret-key" not in bubbles(*argv).stdout


# -- what runs, and by whom ------------------------------------------------------------------------


def test_daemons_that_a_terminal_started_are_there_for_its_time_and_one_less_is_no_fault(own_place: Place) -> None:
    own_place.model.play({"default": {"reply": "ok"}})
    own_place.run("ask", "hi")
    until(lambda: is_running(own_place.home, "cron"))
    own_place.kill("cron")
    found = told(own_place.home)["daemons"]
    assert {name: (each["state"], each["by"], each["pid"]) for name, each in found.items()} == {
        "agentd": ("up", "terminal", is_running(own_place.home, "agentd")),
        "modeld": ("up", "terminal", is_running(own_place.home, "modeld")),
        "cron": ("down", None, None),
    }
    assert found["agentd"]["version"] == found["modeld"]["version"] == __version__
    assert 0 <= time.time() - found["agentd"]["since"] < 3600


def test_children_of_a_gateway_are_told_as_such_and_nothing_is_wrong(own_place: Place) -> None:
    argv = [str(BIN / "bubbles"), "gateway"]
    with subprocess.Popen(argv, env={**os.environ, **own_place.env}, stderr=subprocess.DEVNULL) as gateway:
        until(lambda: all(is_running(own_place.home, name) for name in CORE))
        until(lambda: {each["by"] for each in told(own_place.home)["daemons"].values()} == {"gateway"})
        assert own_place.run("status").returncode == 0
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(30) == 0
    assert told(own_place.home)["wrong"] == []  # it was stopped


def test_one_that_is_missing_while_others_stay_is_wrong(own_place: Place) -> None:
    with by_hand(own_place.home, "agentd", "cron"):
        done = own_place.run("status")
        assert done.returncode == 1
        assert "modeld is down, and agentd, cron run" in done.stdout
        assert told(own_place.home)["daemons"]["agentd"]["by"] == "hand"


def test_one_that_does_not_answer_is_told_and_not_waited_for(own_place: Place) -> None:
    with by_hand(own_place.home, *CORE):
        os.kill(stopped := is_running(own_place.home, "modeld") or 0, signal.SIGSTOP)
        done = bubbles("status", timeout_s=12, **own_place.env)  # a door is given up after 15 s
        assert done.returncode == 1
        assert f"modeld runs (pid {stopped}) and does not answer" in done.stdout
        os.kill(stopped, signal.SIGCONT)
        until(lambda: own_place.run("status").returncode == 0)


def test_one_whose_door_is_where_this_shell_does_not_look_is_told_so(own_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # for a socket
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        with by_hand(own_place.home, "agentd"):
            done = bubbles("status", BUBBLES_HOME=str(own_place.home.root), XDG_RUNTIME_DIR="")
    assert done.returncode == 1
    assert "has no door at /tmp/bubbles-" in done.stdout
    assert f"try: export XDG_RUNTIME_DIR=/run/user/{os.geteuid()}" in done.stdout


@contextmanager
def greeted(door: socket.socket, greeting: bytes) -> Iterator[None]:
    """Whoever comes to a door is told that, if it is anything, and nothing else."""
    guests: list[socket.socket] = []

    def stand() -> None:
        with contextlib.suppress(OSError):
            while True:
                guests.append(door.accept()[0])
                guests[-1].sendall(greeting)

    if not greeting:
        yield
        return
    threading.Thread(target=stand, daemon=True).start()
    try:
        yield
    finally:
        door.shutdown(socket.SHUT_RDWR)
        for guest in guests:
            guest.close()


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="nothing here speaks to a service manager")
def test_a_service_manager_that_hangs_is_told_and_not_waited_for(own_place: Place) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as manager:
        place = Path(short) / "systemd" / "private"
        place.parent.mkdir()
        manager.bind(str(place))
        root = str(own_place.home.root)
        assert bubbles("status", BUBBLES_HOME=root, XDG_RUNTIME_DIR=short).returncode == 0  # it left its socket behind
        manager.listen()
        for greeting in (b"", b"OK 0123456789abcdef0123456789abcdef\r\n"):
            with greeted(manager, greeting):  # each question to one that greets has ten seconds
                done = bubbles("status", timeout_s=9, BUBBLES_HOME=root, XDG_RUNTIME_DIR=short)
            assert done.returncode == 1
            assert "your service manager does not answer" in done.stdout
            assert f"try: systemctl status user@{os.geteuid()}" in done.stdout


def test_a_change_of_the_configuration_wants_a_restart_of_those_that_read_it(own_place: Place) -> None:
    with by_hand(own_place.home, *CORE):
        assert told(own_place.home)["notes"] == []
        later = time.time() + 5
        os.utime(own_place.home.config, (later, later))
        (note,) = told(own_place.home)["notes"]
        pids = [str(is_running(own_place.home, name)) for name in ("agentd", "modeld")]
        assert note["text"].startswith("agentd, modeld started before config.json was changed")
        assert note["remedy"] == f"kill {' '.join(pids)}; then start them again"
        assert "restart" in own_place.run("status").stdout
        assert own_place.run("status").returncode == 0
        own_place.home.config.write_text("{")
        os.utime(own_place.home.config, (later, later))
        assert "restart" not in own_place.run("status").stdout  # it would take down what works


def test_one_of_another_version_is_told(own_place: Place) -> None:
    program = "import bubbles; bubbles.__version__ = '0.0.9'; from bubbles.programs.modeld import main; main(['--until-idle', '60'])"
    with subprocess.Popen([PYTHON, "-c", program], cwd=ROOT, env={**os.environ, **own_place.env}, stderr=subprocess.DEVNULL) as old:
        until(lambda: told(own_place.home)["daemons"]["modeld"]["version"] == "0.0.9")
        (note,) = told(own_place.home)["notes"]
        assert note["text"] == f"modeld is 0.0.9, and this program {__version__}"
        old.kill()


# -- what waits ------------------------------------------------------------------------------------


def test_the_depth_of_each_queue_is_told_and_held_messages_are_wrong(home: Home) -> None:
    put(home, "telegram-1")
    queue = put(home, "telegram-2")
    queue.claim("telegram-2")
    assert wrong(home) == []
    put(home, "telegram-3", held=True)
    Queue(home.outbound("cron")).put("x", {"text": "y"}, sync=False)
    found = told(home)
    assert found["queues"] == {"inbound/telegram": {"new": 1, "cur": 1, "held": 1}, "outbound/cron": {"new": 1, "cur": 0, "held": 0}}
    (fault,) = found["wrong"]
    assert fault["text"] == "1 held in inbound/telegram"
    assert fault["remedy"].startswith("bubbles queue list --state held inbound/telegram | bubbles scan; then: bubbles queue release inbound/telegram")
    assert found["held_messages"] == 1
    shown = bubbles("status")
    assert shown.returncode == 1
    assert "inbound/telegram  1 new, 1 cur, 1 held" in shown.stdout


LISTED: list[str] = []
sys.addaudithook(lambda event, args: LISTED.append(str(args[0])) if event in ("os.listdir", "os.scandir") and args else None)


def test_what_is_done_is_never_listed(home: Home) -> None:
    queue = put(home, "telegram-1")
    queue.claim("telegram-1")
    queue.finish("telegram-1")
    Queue(home.outbound("telegram")).put("m", to_dict(Outbound("m", 1e10, "telegram", "42", "hi")), sync=False)
    LISTED.clear()
    status.main([])
    assert any(path.endswith("/new") for path in LISTED)
    assert [path for path in LISTED if path.endswith("/done")] == []


def test_turns_that_were_given_up_are_wrong(home: Home) -> None:
    (home.turns / "held").mkdir()
    (home.turns / "held" / "cli-7.jsonl").write_text("")
    assert told(home)["wrong"] == [{"text": "turns were given up: cli-7", "remedy": "bubbles queue list turns | bubbles scan"}]


def test_a_session_that_cannot_be_used_is_wrong_while_agentd_knows_of_it(own_place: Place) -> None:
    own_place.home.session("bad").mkdir()
    (own_place.home.session("bad") / "config.json").write_text("{")
    assert own_place.run("ask", "-s", "bad", "hi").returncode != 0
    assert [text for text in wrong(own_place.home) if text.startswith("the session bad cannot be used")]


def test_a_session_that_cannot_be_used_is_wrong_also_where_nobody_runs(home: Home) -> None:
    bad = {"json": "{bad", "list": "[]", "newer": '{"version": 99}', "value": '{"temperature": "hot"}', "good": '{"temperature": 0.1}'}
    for name, text in bad.items():
        home.session(name).mkdir()
        (home.session(name) / "config.json").write_text(text)
    home.session("plain").mkdir()
    assert sorted(text.split()[2] for text in wrong(home)) == ["json", "list", "newer", "value"]
    assert [each["session"] for each in told(home)["sessions"]] == ["good"]


@pytest.mark.parametrize("text", ['{"jobs": 5}', "{}", "[]", "{bad", '{"jobs": {"a": {}}}', ""])
def test_jobs_that_cannot_be_used_are_wrong(home: Home, text: str) -> None:
    home.jobs.parent.mkdir(exist_ok=True)
    home.jobs.write_text(text)
    (found,) = wrong(home)
    assert found.startswith(f"the jobs cannot be used: {home.jobs}")
    assert bubbles("cron", "list").returncode != 0


def test_many_things_of_one_kind_are_not_each_told(home: Home) -> None:
    (home.turns / "held").mkdir()
    for n in range(300):
        (home.turns / "held" / f"cli-{n:03}.jsonl").touch()
        home.session(f"s{n:03}").mkdir()
        (home.session(f"s{n:03}") / "config.json").write_text("{")
    home.jobs.parent.mkdir(exist_ok=True)
    home.jobs.write_text(json.dumps({"jobs": [{"id": f"j{n}", "last": "failed"} for n in range(300)]}))
    found = told(home)
    assert len(found["wrong"]) < 10
    assert len(found["notes"]) < 10
    assert found["wrong"][0]["text"] == "turns were given up: cli-000, cli-001, cli-002, cli-003, cli-004 and 295 more"
    assert found["wrong"][-1]["text"].startswith("295 more sessions cannot be used: s005, s006")
    assert len(found["held_turns"]) == 300
    assert max(map(len, bubbles("status").stdout.splitlines())) < 300


PLACES = ["config.json", "cron/jobs.json", "sessions/a/config.json", "run/agentd.lock", "spool/outbound/telegram/receipts/m.jsonl"]


@pytest.mark.parametrize("place", PLACES)
def test_a_pipe_where_a_file_is_expected_holds_it_up_nowhere(home: Home, place: str) -> None:
    Queue(home.outbound("telegram")).put("m", to_dict(Outbound("m", 1e10, "telegram", "42", "hi")), sync=False)
    (home.root / place).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(home.root / place)
    for argv in (("status",), ("channels", "status")):
        assert "telegram" in bubbles(*argv, timeout_s=30).stdout


def test_a_job_that_came_to_nothing_is_worth_knowing(home: Home) -> None:
    run = bubbles("cron", "add", "--every", "1h", "--name", "mail", "--session", "work", "anything new?")
    assert run.returncode == 0
    jobs = json.loads(home.jobs.read_text())
    home.jobs.write_text(json.dumps({**jobs, "jobs": [{**job, "last": "failed", "why": "model down"} for job in jobs["jobs"]]}))
    found = told(home)
    assert [note["text"] for note in found["notes"]] == ["the last turn of the job mail came to nothing: model down"]
    home.session("work").mkdir()
    assert told(home)["sessions"] == [{"session": "work", "settings": {}, "jobs": ["mail"]}]


def test_a_disk_with_little_room_is_wrong(tmp_path: Path) -> None:
    mounted = f"mount -t tmpfs -o size=8m tmpfs {tmp_path} && BUBBLES_HOME={tmp_path} exec {BIN}/bubbles status"
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", mounted], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no mount here: {done.stderr.strip()}")
    assert done.returncode == 1
    assert f"the disk has 8 MiB left for {tmp_path}" in done.stdout


def test_at_a_terminal_it_is_one_calm_screen(place: Place) -> None:
    put(place.home, "x\x1b[2J-1", held=True)
    terminal = Terminal(["status"], {**place.env, "LANG": "C.UTF-8"})
    assert terminal.end() == 1
    assert "✗  wrong" in terminal.text
    assert "\x1b[2J" not in terminal.raw
    assert len(terminal.text.splitlines()) <= 40
    assert all(len(line) <= 100 for line in terminal.text.splitlines())


# -- what is wrong, by what was seen -----------------------------------------------------------------


def unit(name: str = "bubbles-agentd.service", *, ago_s: float = 9999, **more: Any) -> Unit:
    """A unit that runs, or is as `more` says, and last changed so long ago."""
    usual = {"load": "loaded", "active": "active", "sub": "running", "pid": 7, "result": "success", "code": 0, "restarts": 0}
    return Unit(name, **{**usual, "since": time.time() - ago_s, "status": "", "enabled": "static", "path": None, "drop_ins": (), **more})


def daemon(name: str = "agentd", **more: Any) -> Running:
    seen = unit(f"bubbles-{name}.service", **more)
    return Running(name, seen.pid or None, "unit" if seen.pid else "", unit=seen)


def ran(**daemons: Running) -> Ran:
    return Ran({name: daemons.get(name) or Running(name) for name in CORE})


@pytest.mark.parametrize(
    ("how", "state", "said"),
    [
        ({}, "up", ""),
        ({"active": "inactive", "sub": "dead", "pid": 0}, "down", ""),
        ({"active": "activating", "sub": "start", "pid": 7}, "starting", ""),
        ({"active": "deactivating", "sub": "stop-sigterm"}, "stopping", ""),
        ({"active": "failed", "sub": "failed", "pid": 0, "result": "exit-code", "code": 78}, "failed", "the configuration is wrong (exit code 78)"),
        ({"active": "activating", "sub": "auto-restart", "pid": 0, "result": "signal", "code": 9, "restarts": 1}, "restarting", "SIGKILL"),
        ({"active": "activating", "sub": "auto-restart", "pid": 0, "result": "watchdog", "restarts": 1}, "restarting", "it hung"),
        ({"restarts": 3, "ago_s": 3}, "up", "again and again (3 times)"),
        ({"restarts": 2, "ago_s": 3}, "up", ""),
        ({"restarts": 30}, "up", ""),
        ({"active": "activating", "sub": "start", "restarts": 5, "ago_s": 0}, "starting", "again and again"),
        ({"active": "inactive", "sub": "dead", "pid": 0, "job": 7, "restarts": 5, "ago_s": 0}, "starting", "again and again"),
        ({"active": "inactive", "sub": "dead", "pid": 0, "job": 7}, "starting", ""),
    ],
)
def test_a_unit_is_wrong_when_it_failed_or_flaps(how: dict[str, Any], state: str, said: str) -> None:
    seen = daemon(**how)
    faults = list(of_daemon(seen))
    assert seen.state == state
    assert bool(faults) == bool(said)
    assert all(said in fault.text and "journalctl --user -u bubbles-agentd" in fault.remedy for fault in faults)


def test_a_unit_whose_place_another_has_taken_is_told_to_wait_for_it() -> None:
    seen = Running("agentd", 99, "hand", unit=unit(active="activating", sub="auto-restart", pid=0, result="exit-code", code=75, restarts=4))
    assert seen.state == "up"
    (fault,) = of_daemon(seen)
    assert "cannot start: it runs already, started by hand (pid 99)" in fault.text
    assert fault.remedy == "kill 99"


@pytest.mark.parametrize("by", ["terminal", "once", ""])
def test_a_home_where_nothing_stays_is_at_rest(by: str) -> None:
    seen = ran(agentd=Running("agentd", 7 if by else None, by, answer={}))
    assert at_rest(seen)
    assert list(of_daemons(seen)) == []


@pytest.mark.parametrize("by", ["unit", "gateway", "hand"])
def test_where_one_stays_the_others_are_missed(by: str) -> None:
    seen = ran(agentd=Running("agentd", 7, by, answer={}), cron=Running("cron", unit=unit("bubbles-cron.service", active="inactive", pid=0)))
    assert list(of_daemons(seen)) == [
        Fault("modeld is down, and agentd runs", "bubbles gateway, which runs what does not run yet"),
        Fault("cron is down, and agentd runs", "systemctl --user start bubbles-cron"),
    ]


def test_a_restart_is_asked_for_in_the_way_that_the_daemon_runs() -> None:
    seen = ran(agentd=daemon(), modeld=daemon("modeld"), cron=Running("cron", 9, "gateway"))
    for each in seen.daemons.values():
        each.before_config = True
    assert [fault.remedy for fault in changed(seen)] == [
        "systemctl --user restart bubbles-agentd bubbles-modeld",
        "kill 9; the gateway starts them again",
    ]
