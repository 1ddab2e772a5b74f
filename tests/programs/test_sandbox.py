"""`bubbles sandbox`: what it finds, what it says of a session, and a person inside a jail, at a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bubbles.paths import Home
from bubbles.sandboxes.binary import NEEDED
from bubbles.sandboxes.probe import CHECKS
from bubbles.sessions.lent import lend
from bubbles.workspace import Grant
from tests.programs.run import BIN, bubbles
from tests.programs.terminal_under_test import Terminal
from tests.sandboxes.refusing import broken, needs_a_jail, without_namespaces

# Makes the terminal that it finds as its standard input its own, as a login does, and becomes a program.
LOGIN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


def configure(home: Home, **sandbox: Any) -> None:
    home.config.write_text(json.dumps({"version": 1, "tools": {"sandbox": {"backend": "bwrap", **sandbox}}}))
    home.config.chmod(0o600)


def session(home: Home, name: str = "work", **own: Any) -> Path:
    place = home.session(name)
    for part in ("work", "data", "skills"):
        (place / part).mkdir(parents=True)
    (place / "SOUL.md").write_text("who I am")
    (place / "session.jsonl").write_text("")
    if own:
        (place / "config.json").write_text(json.dumps({"version": 1, **own}))
    return place


@pytest.fixture
def jail(home: Home) -> Path:
    """The directory of the session `work`, whose commands get a jail."""
    needs_a_jail(home)
    configure(home)
    return session(home)


# -- probe and list ------------------------------------------------------------------------------------


def test_a_probe_tells_what_was_tried_of_each(home: Home) -> None:
    needs_a_jail(home)
    done = bubbles("sandbox", "probe")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(re.search(rf"^{name} +holds ", done.stdout, re.M) for name in CHECKS if name not in ("vsock", "namespaces"))
    assert re.search(r"^jails +hold here, by /.*bwrap [\d.]+$", done.stdout, re.M)
    (told,) = map(json.loads, bubbles("sandbox", "probe", "--json").stdout.splitlines())
    assert told["ok"] is True
    assert [check["name"] for check in told["checks"]] == list(CHECKS)
    assert told["tried"][0]["binary"] == told["binary"]


def test_a_probe_that_fails_is_an_answer_of_no_with_why_and_a_remedy(home: Home) -> None:
    done = without_namespaces("sandbox", "probe")
    assert done.returncode == 1
    assert re.search(r"^jails +do not hold here: the number of user namespaces is limited to none", done.stdout, re.M)
    assert "try: sudo sysctl -w user.max_user_namespaces=" in done.stdout
    told = json.loads(without_namespaces("sandbox", "probe", "--json").stdout)
    assert (told["ok"], told["kernel"].get("user.max_user_namespaces")) == (False, "0")
    assert not (home.run / "sandbox.json").exists()


def test_another_bubblewrap_on_the_path_that_fails_is_told_beside_the_one_that_holds(home: Home, tmp_path: Path) -> None:
    needs_a_jail(home)
    broken(tmp_path / "bin", "bwrap: setting up uid map: Permission denied", version="0.9.0", options=tuple(NEEDED))
    told = json.loads(bubbles("sandbox", "probe", "--json", PATH=f"{tmp_path}/bin:{os.environ['PATH']}").stdout)
    (other,) = [each for each in told["tried"] if each["binary"] == str(tmp_path / "bin" / "bwrap")]
    assert (other["ok"], other["version"], told["ok"]) == (False, "0.9.0", True)
    assert "setting up uid map: Permission denied" in other["why"]


def test_the_sandboxes_are_listed_with_what_each_promises_and_whether_it_works(home: Home) -> None:
    configure(home, backend="local")
    session(home, "mine")
    session(home, "jailed", sandbox="bwrap")
    session(home, "broken", sandbox="none of them")
    rows = [json.loads(line) for line in without_namespaces("sandbox", "list", "--json").stdout.splitlines()]
    assert [(row["backend"], row["default"], row["works"]) for row in rows] == [
        ("local", True, True),
        ("local_isolated", False, True),
        ("bwrap", False, False),
    ]
    assert all(row["promise"] for row in rows)
    assert (bool(rows[2]["why"]), bool(rows[2]["remedy"]), rows[0]["why"]) == (True, True, "")
    assert [row["sessions"] for row in rows] == [["mine"], [], ["jailed"]]
    lines = bubbles("sandbox", "list").stdout
    assert re.search(r"^local \(yours\) +yes ", lines, re.M)
    assert re.search(r"^jailed +bwrap$", lines, re.M)
    assert re.search(r"^broken +its settings cannot be used$", lines, re.M)


# -- describe ------------------------------------------------------------------------------------------


def described(name: str = "work") -> dict[str, Any]:
    done = bubbles("sandbox", "describe", "-s", name, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def test_a_jail_in_words_is_the_jail_that_is_made(home: Home, jail: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with lend(home, "work", Grant(project, "rw")):
        told = described()
        writable = [each["path"] for each in told["shown"] if each["mode"] == "rw"]
        seen = bubbles("sandbox", "shell", "-s", "work", "--", f"for p in {' '.join(writable)}; do touch $p/.x && echo $p; done")
        assert seen.stdout.split() == writable
    assert {str(jail / "work"), str(jail / "data"), str(project), told["home"]} <= set(writable)
    assert {str(jail / "skills"), str(jail / "SOUL.md")} <= {each["path"] for each in told["shown"] if each["mode"] == "ro"}
    assert (told["backend"], told["network"], told["unattended_network"], told["holds"]) == ("bwrap", "public", "none", True)
    inside = bubbles("sandbox", "shell", "-s", "work", "--network", "public", "--", "env").stdout
    assert {line.partition("=")[0] for line in inside.splitlines()} - {"PWD", "SHLVL", "_", "OLDPWD"} <= set(told["environment"])
    lines = bubbles("sandbox", "describe", "-s", "work").stdout
    assert re.search(rf"^starts in +{re.escape(str(jail / 'work'))}$", lines, re.M)
    assert re.search(r"^network +public: public addresses alone", lines, re.M)
    assert re.search(r"^not there ", lines, re.M)
    assert str(project) not in lines, "the loan is over"


def test_a_sessions_own_settings_count(home: Home) -> None:
    needs_a_jail(home)
    configure(home, backend="local", allow_domains=["example.org"], limits={"memory_bytes": 100 << 20})
    session(home, sandbox="bwrap", network="none")
    told = described()
    assert (told["backend"], told["network"], told["limits"]["memory_bytes"]) == ("bwrap", "none", 100 << 20)
    assert "100 MiB of memory" in bubbles("sandbox", "describe", "-s", "work").stdout


@pytest.mark.parametrize("backend", ["local", "local_isolated"])
def test_what_hides_nothing_is_said_to_hide_nothing(home: Home, backend: str) -> None:
    configure(home, backend=backend)
    session(home)
    told = described()
    assert (told["backend"], told["network"], told["absent"], "holds" in told) == (backend, "host", [], False)
    assert "nothing is hidden from a command" in bubbles("sandbox", "describe", "-s", "work").stdout


def test_where_commands_are_refused_that_is_said_and_the_rest_too(home: Home) -> None:
    configure(home)
    session(home)
    done = without_namespaces("sandbox", "describe", "-s", "work")
    assert done.returncode == 0
    assert re.search(r"^here +commands are refused: .*max_user_namespaces", done.stdout, re.M)
    assert re.search(r"^can write ", done.stdout, re.M)


@pytest.mark.parametrize("verb", ["describe", "shell"])
def test_a_session_that_is_not_there_is_not_begun_and_near_ones_are_named(home: Home, verb: str) -> None:
    session(home, "telegram-42")
    done = bubbles("sandbox", verb, "-s", "telegram-24")
    assert done.returncode == 1
    assert "there is no session 'telegram-24'" in done.stderr
    assert f"try: bubbles sandbox {verb} -s telegram-42" in done.stderr
    assert [path.name for path in home.sessions.iterdir()] == ["telegram-42"]


# -- shell ---------------------------------------------------------------------------------------------


def test_a_command_runs_in_the_jail_and_its_exit_code_is_ours(home: Home, jail: Path) -> None:
    canary = home.root / "canary"
    canary.write_text("secret")
    done = bubbles("sandbox", "shell", "-s", "work", "--", f"pwd; cat; cat {canary}; touch made; exit 7", stdin="typed\n")
    assert done.returncode == 7
    assert done.stdout == f"{jail / 'work'}\ntyped\n"
    assert "No such file" in done.stderr
    assert (jail / "work" / "made").exists()
    assert bubbles("sandbox", "shell", "-s", "work", "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert bubbles("sandbox", "shell", "-s", "work", "--", "printf", "%s|", "a b", "$HOME").stdout == "a b|$HOME|"


def test_lines_from_a_pipe_are_run_as_a_script_is(jail: Path) -> None:
    done = bubbles("sandbox", "shell", "-s", "work", stdin="echo one\necho two; exit 3\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "one\ntwo\n", "")


def test_the_environment_that_is_described_is_that_of_commands(home: Home, jail: Path) -> None:
    described = set(json.loads(bubbles("sandbox", "describe", "-s", "work", "--json").stdout)["environment"])
    assert "BUBBLES_RUN" in described
    assert not described & {"BASH_ENV", "BUBBLES_FILE_KIB", "BUBBLES_PROCESSES", "BUBBLES_JOIN"}


def test_what_the_network_refused_is_said_at_the_end(jail: Path) -> None:
    done = bubbles("sandbox", "shell", "-s", "work", "--network", "public", "--", "curl -sS -m 9 http://10.9.8.7/ || true")
    if "not found" in done.stderr:
        pytest.skip("no curl here")
    assert re.search(r"^bubbles: .*10\.9\.8\.7", done.stderr.splitlines()[-1])


def test_a_file_that_is_handed_over_is_not_opened_again_inside(jail: Path, tmp_path: Path) -> None:
    given, taken = tmp_path / "given", tmp_path / "taken"
    given.write_text("mine\n")
    taken.write_text("")
    line = "cat; echo evil > /proc/self/fd/0; echo two; : > /proc/self/fd/1; echo three"
    command = [str(BIN / "bubbles"), "sandbox", "shell", "-s", "work", "--", line]
    with given.open() as stdin, taken.open("a") as stdout:
        done = subprocess.run(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=60)
    assert given.read_text() == "mine\n"
    assert taken.read_text() == "mine\ntwo\nthree\n", done.stderr


@pytest.mark.parametrize("backend", ["local", "local_isolated"])
def test_without_a_jail_there_is_no_inside_and_it_is_said_what_to_do(home: Home, backend: str) -> None:
    configure(home, backend=backend)
    place = session(home)
    done = bubbles("sandbox", "shell", "-s", "work")
    assert done.returncode == 78
    assert f"the sandbox {backend}, which has no inside" in done.stderr
    assert f"cd {place / 'work'}" in done.stderr
    assert "/config sandbox bwrap" in done.stderr


def test_where_no_jail_can_be_made_nobody_is_let_in(home: Home) -> None:
    configure(home)
    session(home)
    done = without_namespaces("sandbox", "shell", "-s", "work", "--", "echo in")
    assert (done.returncode, done.stdout) == (78, "")
    assert "no jail can be made" in done.stderr
    assert "try: sudo sysctl" in done.stderr


def at_terminal(*argv: str) -> Terminal:
    return Terminal([], {"TERM": "xterm-256color"}, command=[sys.executable, "-c", LOGIN, str(BIN / "bubbles"), "sandbox", "shell", *argv])


def ran(terminal: Terminal, line: str, wanted: str) -> None:
    """Type a line, and wait for what it prints: the line itself, as the terminal shows it, must not hold that."""
    terminal.expect("$ ")
    terminal.type(line)
    terminal.expect(wanted)


def test_a_person_looks_around_with_a_terminal_of_their_own(jail: Path) -> None:
    with at_terminal("-s", "work", "--network", "none") as terminal:
        terminal.expect("[jail work]")
        ran(terminal, "stty size; echo $((40 + 2))-$TERM", "40 100\n42-xterm-256color")
        ran(terminal, "ulimit -n -c; echo lim$((1))", "lim1")
        terminal.expect("$ ")
        terminal.type("sleep 1000")
        until_it_sleeps(jail)
        interrupted(terminal, "echo after=$?", "after=130")
        terminal.expect("$ ")
        terminal.type("sleep 1000")
        until_it_sleeps(jail)
        terminal.press("z")
        terminal.expect("Stopped")
        terminal.expect("$ ")
        terminal.type("fg")
        terminal.expect("fg\nsleep 1000")
        interrupted(terminal, "echo again=$?", "again=130")
        script = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"
        ran(terminal, f'python3 -c "{script}"; echo typed=$?', "typed=1")
        terminal.type("exit 9")
        assert terminal.end() == 9
    assert "PermissionError" in terminal.text


def interrupted(terminal: Terminal, line: str, wanted: str) -> None:
    """Ctrl-C, again where it came before what runs stood in front and was nobody's; then as `ran`."""
    for _ in range(10):
        terminal.press("c")
        with contextlib.suppress(AssertionError):
            terminal.expect("$ ", 3)
            break
    terminal.type(line)
    terminal.expect(wanted)


def until_it_sleeps(jail: Path) -> None:
    """Wait for a `sleep 1000` of that jail."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes() == b"sleep\x001000\x00" and os.readlink(path.with_name("cwd")) == str(jail / "work"):
                    return
            except OSError:
                continue
        time.sleep(0.02)
    raise AssertionError("it never slept")


def test_one_command_at_a_terminal_is_interrupted_and_ends_as_such(jail: Path) -> None:
    with at_terminal("-s", "work", "--network", "public", "--", "sleep", "1000") as terminal:
        until_it_sleeps(jail)
        terminal.press("c")
        assert terminal.end() == 130


def test_whoever_kills_it_leaves_nothing_inside(jail: Path) -> None:
    with at_terminal("-s", "work", "--network", "none", "--", "sleep", "1000") as terminal:
        until_it_sleeps(jail)
        terminal.process.kill()
        terminal.process.wait()
        deadline = time.monotonic() + 30
        while "sleep\x001000" in " ".join(running(jail)):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def running(jail: Path) -> list[str]:
    """The command lines of what runs in that jail's work/."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.readlink(path.with_name("cwd")) == str(jail / "work"):
                found.append(path.read_text())
        except OSError:
            continue
    return found


def test_completion_knows_the_verbs_and_sessions() -> None:
    script = bubbles("completion", "bash").stdout
    assert "'sandbox shell') words='--help --session --network'" in script
    assert "probe list describe shell" in script
