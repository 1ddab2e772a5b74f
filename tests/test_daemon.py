"""What daemons do alike, each in a real process: ready, stop, idle, watchdog, exit codes; and who starts them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bubbles import __version__, logfile, starter
from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.bus.lock import Lock
from bubbles.daemon import Daemon
from bubbles.errors import Misconfigured, TryAgain, Unavailable
from bubbles.paths import Home
from tests.logged import logged

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """A daemon is started with / as its directory."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


def argv(story, *args):
    return [sys.executable, "-m", "tests.small_daemon", story, *args]


def run(story, *args, **options):
    return subprocess.run(argv(story, *args), capture_output=True, text=True, cwd=ROOT, timeout=60, **options)


@contextlib.contextmanager
def started(home, story, *args, name="small"):
    found = starter.Started(home, name, argv(story, *args), None)
    try:
        yield found.wait()
    finally:
        found.process.kill()
        found.process.wait()


class Manager:
    """A service manager's ear: what a daemon told it, line by line."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(20)
        self.env = {**os.environ, "NOTIFY_SOCKET": str(path)}

    def next(self):
        return self.socket.recv(4096).decode()


@pytest.fixture
def manager(tmp_path):
    found = Manager(tmp_path / "notify")
    yield found
    found.socket.close()


def test_options_that_end_at_once(home):
    version = run("silent", "--version")
    assert (version.returncode, version.stdout) == (0, f"bubbles small {__version__}\n")
    shown = run("silent", "--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith("Usage: bubbles small [OPTIONS]\n")
    assert "\nOptions:\n  --until-idle SECONDS" in shown.stdout


@pytest.mark.parametrize("args", [["--fly"], ["--until-idle", "soon"], ["--until-idle"], ["extra"], ["--ver"]])
def test_a_wrong_call_is_64(home, args):
    ended = run("silent", *args)
    assert ended.returncode == 64
    assert ended.stderr.startswith("bubbles: ")
    assert "  try: bubbles small --help" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_ready_is_told_to_whoever_started_it_and_sigterm_ends_it_cleanly(home, manager):
    process = subprocess.Popen(argv("until_stopped"), cwd=ROOT, env=manager.env, stderr=subprocess.PIPE, text=True)
    assert manager.next() == "READY=1\nSTATUS=waiting – 等"
    process.send_signal(signal.SIGTERM)
    assert manager.next() == "STOPPING=1\nEXTEND_TIMEOUT_USEC=13000000"
    _, logged = process.communicate(timeout=20)
    assert process.returncode == 0
    assert (home.root / "stopped").read_text() == "cleanly"
    assert [line.split()[2] for line in logged.splitlines()] == ["daemon.start", "daemon.ready", "daemon.stop"]


def test_a_start_that_takes_long_asks_for_time_and_then_no_more(home, manager):
    process = subprocess.Popen(argv("slow_to_start"), cwd=ROOT, env=manager.env, stderr=subprocess.DEVNULL)
    assert [manager.next(), manager.next()] == ["EXTEND_TIMEOUT_USEC=60000000"] * 2
    (home.root / "go").touch()
    while (said := manager.next()).startswith("EXTEND"):
        pass
    assert said.startswith("READY=1")
    process.terminate()
    assert manager.next().startswith("STOPPING=1")
    assert process.wait(20) == 0


def test_whoever_starts_one_that_takes_long_gives_it_the_time_it_asks_for(home):
    starting = starter.Started(home, "small", argv("slow_to_start"), None)
    threading.Timer(1.0, (home.root / "go").touch).start()
    try:
        assert starting.wait(0.5).ready
    finally:
        starting.process.kill()
        starting.process.wait()


def test_one_that_is_here_for_good_takes_the_place_of_one_that_a_terminal_started(home):
    with started(home, "with_door", "--until-idle", "3600") as first, started(home, "with_door") as second:
        assert first.process.wait(20) == 0
        assert is_running(home, "small") == second.pid
        assert is_running(home, "small.idle") is None
        third = run("with_door")
        assert (third.returncode, f"already running (pid {second.pid})" in third.stderr) == (75, True)
        fourth = run("with_door", "--until-idle", "3600")
        assert (fourth.returncode, is_running(home, "small")) == (75, second.pid)


def test_a_number_that_means_somebody_else_here_is_not_asked_to_end(home):
    """Two containers with one home have each a numbering of their own: the lock's is that of a bystander."""
    bystander = Lock(home, "small.idle")
    bystander.acquire()
    with started(home, "with_door"):
        assert is_running(home, "small.idle") == os.getpid()  # we are still here to say so
    bystander.release()


def test_once_takes_nobodys_place(home):
    with started(home, "with_door", "--until-idle", "3600") as first:
        assert run("with_door", "--once").returncode == 75
        assert is_running(home, "small") == first.pid


def test_one_that_does_not_go_keeps_its_place_until_it_does(home, manager):
    with started(home, "deaf_with_door", "--until-idle", "3600") as first:
        second = subprocess.Popen(argv("with_door"), cwd=ROOT, env=manager.env, stderr=subprocess.DEVNULL)
        assert manager.next() == f"STATUS=waiting for the small that a terminal started (pid {first.pid}) to end"
        first.process.kill()
        assert manager.next().startswith("READY=1")
        second.kill()
        second.wait()


def test_ctrl_c_ends_it_as_well(home):
    with started(home, "until_stopped") as daemon:
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(20) == 0


def test_one_that_does_not_listen_is_ended_all_the_same(home):
    with started(home, "deaf") as daemon:
        daemon.process.terminate()
        assert daemon.process.wait(20) == 0
        assert "still at work 0.2 s after" in logged(home, "small")


def test_one_that_will_not_end_is_ended_by_force(home):
    with started(home, "immortal") as daemon:
        daemon.process.terminate()
        assert daemon.process.wait(20) == 70
        assert "daemon.bug small does not end" in logged(home, "small")


def test_once(home):
    assert run("once", "--once").returncode == 0


def test_an_error_with_a_name_is_told_with_its_remedy_and_is_the_exit_code(home):
    ended = run("misconfigured")
    assert ended.returncode == 78
    assert ended.stderr.splitlines()[-2:] == ["bubbles: config.json: line 3 – 错", "  try: edit it"]
    assert "daemon.stop small ends with 78: config.json: line 3 – 错 remedy=edit it" in logged(home, "small")
    assert run("disk_full").returncode == 75


@pytest.mark.parametrize("story", ["bug", "bug_in_the_beat"])
def test_a_bug_is_70_with_its_traceback_in_the_log(home, story):
    ended = run(story, "--until-idle", "0.1")
    assert ended.returncode == 70
    assert "traceback=Traceback" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("bubbles: small ends by a bug: ")


def test_the_watchdog_is_fed_at_half_its_time(home, manager):
    env = {**manager.env, "WATCHDOG_USEC": "200000"}
    process = subprocess.Popen(argv("until_stopped"), cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    try:
        assert manager.next().startswith("READY=1")
        assert [manager.next() for _ in range(5)] == ["WATCHDOG=1"] * 5
    finally:
        process.kill()
        process.wait()


def test_a_manager_that_takes_nothing_any_more_holds_nobody_up(home, manager):
    """As a gateway that a terminal's Ctrl-Z has stopped."""
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(argv("until_stopped"), cwd=ROOT, env=manager.env, stderr=subprocess.DEVNULL)
        stack.callback(process.kill)
        assert manager.next().startswith("READY=1")
        for _ in range(4):  # the queue takes more than one sender may fill it with
            other = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            other.connect(manager.socket.getsockname())
            other.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    other.send(b"STATUS=full")
        process.terminate()
        assert process.wait(20) == 0


def test_a_watchdog_meant_for_another_process_is_not_fed(home, manager):
    env = {**manager.env, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}
    process = subprocess.Popen(argv("until_stopped"), cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    try:
        assert manager.next().startswith("READY=1")
        manager.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            manager.next()
    finally:
        process.kill()
        process.wait()


def test_ticks_come_and_one_that_fails_is_not_the_last(home, capfd):
    ticked = []

    async def story():
        daemon = Daemon(home, "small", tick_s=0.02)
        daemon.on_tick += [lambda: {}["x"], lambda: ticked.append(1)]
        beat = asyncio.create_task(daemon.beat())
        while len(ticked) < 3:
            await asyncio.sleep(0.01)
        beat.cancel()

    asyncio.run(story())
    assert capfd.readouterr().err.count("a tick failed") >= 3


def test_a_daemon_that_runs_for_long_goes_on_in_a_new_log(home):
    path = home.log / "small.jsonl"
    with started(home, "talks") as daemon:
        deadline = time.monotonic() + 30
        while not Path(f"{path}.1").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        daemon.process.terminate()
        daemon.process.wait(20)
    said = [json.loads(line)["message"] for each in (Path(f"{path}.1"), path) for line in each.read_text().splitlines()]
    lines = [int(message.split()[1]) for message in said if message.startswith("line ")]
    assert lines == list(range(len(lines)))
    assert "daemon.stop" in path.read_text()


def test_what_it_makes_is_private_its_memory_too_and_its_children_do_not_speak_for_it(home):
    with started(home, "shows_itself") as daemon:
        daemon.process.wait()
        shown = daemon.log.read_text()
    assert "dumpable=0 mode=600" in shown
    assert "child=['0', '1', '2', '3']" in shown  # 3 is ls reading the directory
    assert "group=True cwd=/" in shown


KEYS = ("BUBBLES_PROVIDERS__CUSTOM__API_KEY", "BUBBLES_Providers__custom__apiKey", "BUBBLES_PROVIDERS__OPENAI__HEADERS__X")
OTHERS = ("BUBBLES_AGENTS__DEFAULTS__MODEL", "BUBBLES_PROVIDERS", "BUBBLES_DEBUG", "PROVIDERS__X")


@pytest.mark.parametrize(("name", "kept"), [("modeld", True), ("agentd", False), ("cron", False), ("channel-telegram", False)])
def test_keys_in_the_environment_are_for_the_daemon_that_asks_models(home, monkeypatch, name, kept):
    for variable in (*KEYS, *OTHERS):
        monkeypatch.setenv(variable, "0")
    monkeypatch.setenv("NAME", name)
    wanted = {variable for variable in ("BUBBLES_HOME", *OTHERS, *(KEYS if kept else ())) if variable.startswith("BUBBLES")}
    with started(home, "tells_its_environment", name=name) as daemon:
        daemon.process.wait()
        shown = daemon.log.read_text()
    assert f"started with: {sorted(wanted)}\nhas: {sorted(wanted)}\n" in shown
    by_hand = run("tells_its_environment")
    assert f"has: {sorted(wanted)}\n" in by_hand.stdout
    assert f"started with: {sorted(wanted | set(KEYS))}\n" in by_hand.stdout


@pytest.mark.parametrize(("name", "has"), [("modeld", True), ("channel-telegram", True), ("agentd", False), ("cron", False), ("tidy", False)])
def test_credentials_are_for_those_that_have_keys(monkeypatch, name, has):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/somewhere")
    assert ("CREDENTIALS_DIRECTORY" in starter.environment(name)) == has


# --- a home that is not as it should be ---------------------------------------------------------------------------


def test_a_home_that_others_may_write_is_78_and_stays_as_it_is(home):
    home.root.chmod(0o777)
    ended = run("until_stopped")
    assert ended.returncode == 78
    assert f"{home.root} may be written by other users" in ended.stderr
    assert f"  try: chmod 700 {home.root}" in ended.stderr
    assert home.root.stat().st_mode & 0o777 == 0o777


def test_a_home_that_is_a_file_is_78(home, tmp_path):
    (tmp_path / "file").write_text("precious")
    ended = run("until_stopped", env={**os.environ, "BUBBLES_HOME": str(tmp_path / "file")})
    assert ended.returncode == 78
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_home_of_another_user_is_78(home):
    os.chown(home.root, 12345, 12345)
    ended = run("until_stopped")
    assert ended.returncode == 78
    assert "belongs to another user (uid 12345)" in ended.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_home_that_may_not_be_entered_is_78(home):
    shutil.rmtree(home.run)
    home.root.chmod(0o500)
    ended = run("until_stopped")
    home.root.chmod(0o700)
    assert ended.returncode == 78, ended.stderr
    assert f"no permission for {home.run}" in ended.stderr


def on_a_full_disk(home, command):
    """Run `command` with a home on a tmpfs that has no byte left."""
    script = f'mount -t tmpfs -o size=16k,mode=700 none {home.root} && (cat /dev/zero > {home.root}/fill; exec "$@")'
    prefix = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    if subprocess.run([*prefix, "sh", "-c", f"mount -t tmpfs -o size=16k none {home.root}"], capture_output=True).returncode:
        pytest.skip("no private mounts here")
    return subprocess.run([*prefix, "sh", "-c", script, "sh", *command], capture_output=True, text=True, cwd=ROOT, timeout=60)


@pytest.mark.parametrize("story", ["with_door", "until_stopped"])
def test_a_full_disk_at_the_start_is_75_with_a_remedy(home, story):
    ended = on_a_full_disk(home, argv(story, "--until-idle", "0.1"))
    assert ended.returncode == 75, ended.stderr
    assert "No space left on device" in ended.stderr or "disk is full" in ended.stderr
    assert "  try: look at: df -h" in ended.stderr
    assert "Traceback" not in ended.stderr


# --- idle ---------------------------------------------------------------------------------------------------------


def test_one_that_nobody_needs_ends(home):
    with started(home, "with_door", "--until-idle", "0.3") as daemon:
        assert daemon.process.wait(20) == 0


def test_one_that_somebody_needs_stays(home):
    with starter.client(home):
        with started(home, "with_door", "--until-idle", "0.15") as daemon:
            time.sleep(0.8)
            assert daemon.process.poll() is None
            assert starter.has_clients(home)
        with started(home, "with_door", "--until-idle", "0.15") as daemon:
            pass
    assert not starter.has_clients(home)


def test_one_that_somebody_needed_ends_after_the_last_has_left(home):
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(started(home, "with_door", "--until-idle", "0.15"))
        with starter.client(home), starter.client(home):
            time.sleep(0.3)
        assert daemon.process.wait(20) == 0


def test_a_killed_client_is_no_client(home):
    code = "import os; from bubbles import starter; from bubbles.paths import Home\n"
    code += "with starter.client(Home.find()): print('in', flush=True); os.read(0, 1)"
    client = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout.readline() == b"in\n"
    assert starter.has_clients(home)
    client.kill()
    client.wait()
    assert not starter.has_clients(home)


def test_one_that_is_busy_stays_until_it_is_not(home):
    with started(home, "busy_for_a_while", "--until-idle", "0.1") as daemon:
        assert daemon.process.wait(20) == 0  # it asserts itself that its work was done


def test_all_but_agentd_stay_while_agentd_does(home):
    agentd = Lock(home, "agentd")
    agentd.acquire()
    with started(home, "with_door", "--until-idle", "0.1") as daemon:
        time.sleep(0.5)
        assert daemon.process.poll() is None
        agentd.release()
        assert daemon.process.wait(20) == 0


# --- who starts them ----------------------------------------------------------------------------------------------


def test_a_start_returns_when_the_daemon_is_ready_and_leaves_nothing_but_it(home):
    with started(home, "until_stopped") as daemon:
        assert daemon.ready
        assert daemon.status == "waiting – 等"
        assert daemon.pid == daemon.process.pid
        assert list(home.sockets.glob("notify-*")) == []


@pytest.mark.parametrize(("story", "error", "text"), [("misconfigured", Misconfigured, "line 3 – 错"), ("disk_full", TryAgain, "the disk is full")])
def test_the_error_of_a_daemon_that_could_not_start_is_told(home, story, error, text):
    with pytest.raises(error, match=text) as caught, started(home, story):
        pass
    assert caught.value.remedy
    assert list(home.sockets.glob("notify-*")) == []


def test_what_a_manager_has_told_us_is_not_told_to_those_we_start(home, monkeypatch, tmp_path):
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.setenv(name, "1000000")
    said = tmp_path / "said"
    script = ["sh", "-c", f'echo "$WATCHDOG_USEC $WATCHDOG_PID" >{said}; exit 78']
    for watchdog_s, told in ((0.0, " \n"), (2.5, "2500000 \n")):
        with pytest.raises(Misconfigured):
            starter.Started(home, "small", script, None, watchdog_s=watchdog_s).wait()
        assert said.read_text() == told
    assert list(home.sockets.glob("notify-*")) == []


def test_one_that_cannot_even_be_aborted_is_killed(home):
    found = starter.Started(home, "small", argv("deaf_to_aborting"), None, watchdog_s=0.2).wait()
    assert (found.stay(), found.hung) == (-signal.SIGKILL, True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how a process was called")
def test_one_that_ends_when_idle_is_known_by_its_call(home):
    for call in (["--until-idle", "3600"], ["--until-idle=3600"]):
        with started(home, "with_door", *call) as daemon:
            assert starter.ends_when_idle(daemon.pid)
        assert not starter.ends_when_idle(daemon.pid)
    with started(home, "with_door") as daemon:
        assert not starter.ends_when_idle(daemon.pid)


def test_a_bug_of_a_daemon_that_could_not_start_is_told_with_where_to_look(home):
    with pytest.raises(Unavailable, match="ends by a bug: KeyError") as caught, started(home, "bug"):
        pass
    assert caught.value.remedy == f"look at {home.log / 'small.log'}"


def test_one_killed_before_it_is_ready_is_told(home):
    found = starter.Started(home, "small", argv("silent"), None)
    found.process.kill()
    with pytest.raises(Unavailable, match="ended with -9 before it was ready"):
        found.wait()


def test_one_that_is_never_ready_is_ended(home):
    found = starter.Started(home, "small", argv("silent"), None)
    with pytest.raises(Unavailable, match="was not ready after 0.5 s"):
        found.wait(0.5)
    assert found.process.poll() is not None


def test_what_it_says_when_nobody_reads_its_standard_error_any_more_is_in_its_log(home, manager):
    with subprocess.Popen(argv("until_stopped"), stderr=subprocess.PIPE, cwd=ROOT, env=manager.env) as daemon:
        assert "READY=1" in manager.next()
        daemon.stderr.close()
        daemon.terminate()
        assert daemon.wait(20) == 0
    assert "daemon.stop small ends" in logged(home, "small")
    assert not (home.log / "small.log").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel tells a child")
def test_one_whose_parent_has_ended_does_not_begin(home):
    done = run("until_stopped", env={**os.environ, starter.WITH_PARENT: "1" if os.getpid() != 1 else "2"})
    assert (done.returncode, done.stderr) == (75, "bubbles: whoever started this has ended\n  try: bubbles status\n")


def test_a_program_that_does_not_exist_is_told(home):
    with pytest.raises(Unavailable, match="ended with 1"):
        starter.start(home, "flying")


def test_a_log_grows_and_is_moved_aside_when_it_is_large(home):
    log = home.log / "small.jsonl"
    for _ in range(2):
        with started(home, "once", "--once") as daemon:
            assert daemon.process.wait(20) == 0
    assert log.read_text().count("daemon.start") == 2
    assert log.stat().st_mode & 0o777 == 0o600
    log.write_bytes(b"x" * logfile.MOST_BYTES)
    with started(home, "once", "--once") as daemon:
        assert daemon.process.wait(20) == 0
    assert 0 < log.stat().st_size < 2000
    assert "daemon.start" in (home.log / "small.jsonl.1").read_text()
    assert (home.log / "small.log").read_text() == ""


@pytest.fixture
def ended(home):
    """The daemons of this home are ended with the test."""
    yield
    for name in ("agentd", "modeld", "cron"):
        if (pid := is_running(home, name)) is not None:
            os.kill(pid, signal.SIGTERM)


def test_ensure_starts_what_is_not_running_and_those_end_by_themselves(home, ended):
    with starter.client(home):
        mine = starter.ensure(home, ["agentd", "modeld"], until_idle=0.3)
        assert {started.name: started.pid for started in mine} == {name: is_running(home, name) for name in ("agentd", "modeld")}
        assert starter.ensure(home, ["agentd", "modeld"], until_idle=0.3) == []
        with Dial(home, "agentd") as dial:
            assert dial.call("ping")[0]["name"] == "agentd"
    for started in mine:
        assert started.process.wait(20) == 0


def test_one_that_nobody_asks_is_started_after_the_others_and_not_waited_for(home, ended):
    with starter.client(home):
        assert [each.name for each in starter.ensure(home, ["agentd"], until_idle=0.3, after=["modeld"])] == ["agentd"]
        deadline = time.monotonic() + 20
        while is_running(home, "modeld") is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert starter.ensure(home, ["agentd", "modeld"], until_idle=0.3) == []
        assert not list(home.sockets.glob("notify-*"))


def test_a_race_to_start_is_nobodys_loss(home, ended):
    code = "from bubbles import starter; from bubbles.paths import Home; from bubbles.bus.dial import Dial\n"
    code += "home = Home.find()\n"
    code += "with starter.client(home):\n    starter.ensure(home, ['agentd', 'modeld'], until_idle=2)\n"
    code += "    print(Dial(home, 'agentd').call('ping')[0]['pid'])"
    racers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(5)]
    said = [racer.communicate(timeout=60) for racer in racers]
    assert [error for _, error in said] == [""] * 5
    assert len({out for out, _ in said}) == 1


def test_two_homes_have_daemons_of_their_own(home, tmp_path, monkeypatch):
    other = Home(tmp_path / "other")
    other.prepare()
    with contextlib.ExitStack() as stack:
        for place in (home, other):
            stack.enter_context(started(place, "with_door"))
        pids = [is_running(place, "small") for place in (home, other)]
        assert len(set(pids)) == 2
        for place, pid in zip((home, other), pids, strict=True):
            assert stack.enter_context(Dial(place, "small")).call("ping")[0]["pid"] == pid


def test_a_wrong_setting_is_told_by_ensure_by_its_name(home, ended):
    home.config.write_text('{"version": 1, "agents": {"defaults": {"temperature": "hot"}}}')
    home.config.chmod(0o600)
    with pytest.raises(Misconfigured, match="temperature"):
        starter.ensure(home, ["modeld", "agentd"], until_idle=0.3)


def test_signals_from_many_threads_do_not_confuse_a_stop(home):
    with started(home, "until_stopped") as daemon:
        threads = [threading.Thread(target=daemon.process.send_signal, args=(signal.SIGTERM,)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert daemon.process.wait(20) == 0
