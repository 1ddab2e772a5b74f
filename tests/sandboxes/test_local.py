"""What commands may not do to us under `local` and `local_isolated`, and what they must be able to."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbles import sandboxes
from bubbles.config.tools import Sandbox as Settings
from bubbles.errors import Misconfigured, OutsideWorkspace, ToolError
from bubbles.sandboxes import REGISTRY, Limits, Outcome, Sandbox
from bubbles.workspace import Grant
from tests.sandboxes.processes import alive, tag


@pytest.fixture
def session(tmp_path: Path) -> Path:
    made = tmp_path / "home/sessions/alice"
    made.mkdir(parents=True, mode=0o700)
    return made


@pytest.fixture(params=sorted(REGISTRY))
def sandbox(request: pytest.FixtureRequest, session: Path) -> Sandbox:
    return opened(request.param, session)


@pytest.fixture
def open_stdin() -> Iterator[None]:
    """A standard input of ours that never ends and never has anything, as a daemon's may be."""
    (reader, writer), kept = os.pipe(), os.dup(0)
    os.dup2(reader, 0)
    yield
    os.dup2(kept, 0)
    for fd in (reader, writer, kept):
        os.close(fd)


def opened(name: str, session: Path, **more: Any) -> Sandbox:
    pass_env = more.pop("pass_env", [])
    return sandboxes.open(name, session, session.parents[1] / "session_homes/alice", Settings(pass_env=pass_env), **more)


def run(sandbox: Sandbox, command: str, limits: Limits | None = None, **more: Any) -> Outcome:
    return asyncio.run(sandbox.run(command, limits or Limits(timeout_s=60), **more))


def test_a_command_runs_in_work_and_tells_how_it_ended(sandbox: Sandbox, session: Path) -> None:
    outcome = run(sandbox, "pwd; echo oops >&2; echo done; exit 3")
    assert outcome.output == f"{session}/work\noops\ndone\n"
    assert (outcome.exit, outcome.signal, outcome.timed_out, outcome.truncated, outcome.note) == (3, None, False, False, "")
    killed = run(sandbox, "kill -9 $$")
    assert (killed.exit, killed.signal) == ((137, None) if sandbox.describe()["backend"] == "bwrap" else (None, 9))  # a jail tells as a shell does
    assert run(sandbox, "[[ $BASH_VERSION ]] && echo ${BASH_VERSINFO[0]}").exit == 0


def test_no_start_up_file_is_read(sandbox: Sandbox, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "owner"))
    for home in (tmp_path / "owner", session.parents[1] / "session_homes/alice"):
        home.mkdir(parents=True)
        for name in (".bashrc", ".profile", ".bash_profile", ".env"):
            (home / name).write_text("echo started\n")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "owner/.bashrc"))
    monkeypatch.setenv("ENV", str(tmp_path / "owner/.bashrc"))
    assert run(sandbox, "echo only this").output == "only this\n"


SECRETS = [
    "OPENAI_API_KEY", "github_token", "AWS_SECRET_ACCESS_KEY", "MYSQL_PASSWORD", "GOOGLE_APPLICATION_CREDENTIALS", "BUBBLES_HOME",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "PROMPT_COMMAND", "GIT_CONFIG_GLOBAL",
    "GIT_SSH_COMMAND", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY", "NOTIFY_SOCKET", "LISTEN_FDS",
    "JOURNAL_STREAM", "INVOCATION_ID", "CREDENTIALS_DIRECTORY", "BASH_FUNC_ls%%",
]  # fmt: skip


def test_secrets_and_what_loads_code_are_not_in_the_environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "canary" if name != "LD_PRELOAD" else "/canary.so")
    monkeypatch.setenv("HARMLESS", "seen")
    printed = run(sandbox, "env; tr '\\0' '\\n' < /proc/$$/environ").output
    assert "canary" not in printed
    assert ("HARMLESS=seen" in printed) == (sandbox.describe()["backend"] == "local")


@pytest.mark.parametrize("name", SECRETS)
def test_such_names_are_refused_in_pass_env(session: Path, name: str) -> None:
    class Loose:
        pass_env = (name,)

    for backend in REGISTRY:
        with pytest.raises(Misconfigured) as caught:
            sandboxes.open(backend, session, session / "home", Loose())
        assert name in caught.value.text
        assert "pass_env" in caught.value.remedy


def test_an_isolated_environment_has_what_is_passed_by_name_and_nothing_else(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("UNWANTED", "no")
    isolated = opened("local_isolated", session, pass_env=["WANTED", "MISSING"], path_append="/opt/tool/bin", timezone="Asia/Shanghai")
    seen = dict(line.split("=", 1) for line in run(isolated, "env").output.splitlines())
    home = str(session.parents[1] / "session_homes/alice")
    assert (seen["WANTED"], seen["HOME"], seen["TZ"]) == ("yes", home, "Asia/Shanghai")
    assert seen["PATH"].endswith(":/opt/tool/bin")
    assert not {"UNWANTED", "MISSING"} & set(seen)
    assert all(seen[f"XDG_{kind}_HOME"].startswith(f"{home}/.") for kind in ("CONFIG", "CACHE", "DATA", "STATE"))
    assert set(seen) - {"_", "SHLVL", "PWD", "OLDPWD", "BUBBLES_RUN"} == set(isolated.describe()["environment"])


def test_each_session_has_a_home_of_its_own_and_programs_look_there(session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path / "owner"
    (owner / ".config/gh").mkdir(parents=True)
    (owner / ".gitconfig").write_text("[user]\n\tname = Owner\n")
    (owner / ".config/gh/hosts.yml").write_text("oauth_token: canary\n")
    monkeypatch.setenv("HOME", str(owner))
    isolated = opened("local_isolated", session)
    assert run(isolated, "git config --global user.name").exit == 1
    assert run(isolated, 'cat "${XDG_CONFIG_HOME:-$HOME/.config}/gh/hosts.yml"').exit == 1
    assert run(isolated, "git config --global user.name Alice && git config --global user.name").output == "Alice\n"
    home = session.parents[1] / "session_homes/alice"
    assert "Alice" in (home / ".gitconfig").read_text()
    assert "Owner" in (owner / ".gitconfig").read_text()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    bob = sandboxes.open("local_isolated", session.parent / "bob", session.parents[1] / "session_homes/bob", Settings())
    (session.parent / "bob").mkdir()
    assert run(bob, "git config --global user.name").exit == 1
    assert run(opened("local", session), "git config --global user.name").output == "Owner\n"


def test_a_loosened_home_is_tightened(session: Path) -> None:
    home = session.parents[1] / "session_homes/alice"
    home.mkdir(parents=True)
    home.chmod(0o755)
    run(opened("local_isolated", session), "true")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_only_three_descriptors_are_inherited_and_none_is_a_terminal(sandbox: Sandbox) -> None:
    spare = os.dup(1)
    os.set_inheritable(spare, True)
    try:
        printed = run(sandbox, 'for fd in /proc/$$/fd/*; do echo "${fd##*/} $(readlink "$fd")"; done; tty; ps -o tty= -p $$').output.splitlines()
    finally:
        os.close(spare)
    seen = dict(line.split(" ", 1) for line in printed if line[0].isdigit())
    assert seen["0"] == "/dev/null"
    assert seen["1"] == seen["2"]
    assert seen["1"].startswith("pipe:")
    assert {number for number in seen if "(deleted)" not in seen[number] and seen[number]} <= {"0", "1", "2", "3", "255"}
    assert "not a tty" in printed


@pytest.mark.parametrize(
    "command",
    ["cat", 'read x; echo "[$x]"', f"{sys.executable} -c 'input()'", f"{sys.executable} -c 'import getpass; getpass.getpass()'", "ssh-keygen -f k"],
)
def test_what_waits_for_input_gets_its_end_at_once(sandbox: Sandbox, open_stdin: None, command: str) -> None:
    assert not run(sandbox, command, Limits(timeout_s=20)).timed_out


def test_a_background_process_does_not_hold_the_answer_and_is_ended(sandbox: Sandbox) -> None:
    for background in (
        "sleep {} & echo s",
        "setsid sleep {} & echo s",
        "(setsid sh -c 'sleep {} & sleep {}' &); echo s",
        "nohup sleep {} > /dev/null & echo s",
    ):
        tagged = tag()
        outcome = run(sandbox, background.replace("{}", tagged), Limits(timeout_s=120))
        assert (outcome.output.replace("nohup: ignoring input\n", ""), outcome.exit, outcome.timed_out) == ("s\n", 0, False)
        assert "ended" in outcome.note or sandbox.describe()["backend"] == "bwrap"  # which goes as a whole, uncounted
        assert alive(tagged) == []


def test_output_that_comes_by_a_process_of_its_own_is_not_lost(sandbox: Sandbox) -> None:
    assert run(sandbox, "exec > >(sed s/^/:/); echo one; echo two").output == ":one\n:two\n"


DAEMON = """
import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 9)
os.execvp("sleep", ["sleep", "{}"])
"""
TREES = {
    "plain": "sleep {}",
    "ignores TERM": "trap '' TERM HUP INT; sleep {}; sleep {}",
    "setsid": "setsid sleep {} & setsid -w sleep {}",
    "double fork": "(setsid sh -c 'trap \"\" TERM; sleep {} & sleep {} & wait' &) ; sleep {}",
    "daemon with closed output": f"{sys.executable} -c '{DAEMON}'; sleep {{}}",
    "keeps forking": "while :; do (setsid sleep {} &) ; sleep 0.01; done",
    "clears its environment": "env -i setsid sleep {} & sleep {}",
}


def test_a_time_out_leaves_nothing_behind(sandbox: Sandbox) -> None:
    tags = {tree: tag() for tree in TREES}

    async def scenario() -> list[Outcome]:
        commands = ["echo begun; " + script.replace("{}", tags[tree]) for tree, script in TREES.items()]
        return list(await asyncio.gather(*(sandbox.run(command, Limits(timeout_s=3)) for command in commands)))

    for tree, outcome in zip(TREES, asyncio.run(scenario()), strict=True):
        assert (tree, outcome.timed_out, outcome.output, outcome.exit, outcome.signal) == (tree, True, "begun\n", None, 9)
    assert {tree: alive(tagged) for tree, tagged in tags.items()} == dict.fromkeys(TREES, [])


@pytest.mark.parametrize("tree", TREES)
def test_a_cancelled_command_is_gone_before_the_cancellation_arrives(sandbox: Sandbox, session: Path, tree: str) -> None:
    tagged = tag()

    async def scenario() -> None:
        task = asyncio.create_task(sandbox.run("touch begun; " + TREES[tree].replace("{}", tagged), Limits()))
        while not (session / "work/begun").exists() or not alive(tagged):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert alive(tagged) == []

    asyncio.run(scenario())


def test_commands_run_side_by_side_and_end_only_their_own(sandbox: Sandbox) -> None:
    tagged = tag()

    async def scenario() -> list[Outcome]:
        long = asyncio.create_task(sandbox.run(f"setsid sleep {tagged} & sleep {tagged}", Limits()))
        while len(alive(tagged)) < 2:
            await asyncio.sleep(0.01)
        outcomes = await asyncio.gather(*(sandbox.run(f"echo {n}; setsid true & true", Limits()) for n in range(12)))
        assert len([line for line in alive(tagged) if line.startswith("sleep")]) == 2
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
        return list(outcomes)

    assert [outcome.output for outcome in asyncio.run(scenario())] == [f"{n}\n" for n in range(12)]
    assert alive(tagged) == []


def test_endless_output_is_ended_and_its_two_ends_are_kept(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "echo first; yes", Limits(timeout_s=60, output_bytes=3_000_000, keep_bytes=1000))
    assert outcome.truncated
    assert outcome.signal == 9
    assert not outcome.timed_out
    assert "3000000 bytes" in outcome.note
    assert outcome.output.startswith("first\ny\n")
    assert "bytes left out" in outcome.output
    assert len(outcome.output) < 1200


def test_long_output_keeps_its_end(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "seq 1 100000; echo last", Limits(keep_bytes=1000))
    assert (outcome.exit, outcome.truncated) == (0, True)
    assert outcome.output.startswith("1\n2\n")
    assert outcome.output.endswith("100000\nlast\n")


def test_bytes_that_are_no_text_are_counted_and_not_shown(sandbox: Sandbox) -> None:
    assert run(sandbox, "head -c 3000 /dev/urandom").output == "[binary output, 3000 bytes]"
    assert run(sandbox, "printf 'caf\\xc3\\xa9 and a stray \\xff byte in a line of text'").output == "café and a stray \ufffd byte in a line of text"


def test_one_huge_file_is_stopped_and_no_core_is_dumped(sandbox: Sandbox, session: Path) -> None:
    assert run(sandbox, "ulimit -c; ulimit -f; ulimit -n").output.split() == ["0", "2097152", "4096"]
    assert run(sandbox, "truncate -s 3G huge").exit != 0
    assert (session / "work/huge").stat().st_size == 0


def test_where_memory_runs_out_a_command_goes_first(sandbox: Sandbox) -> None:
    assert run(sandbox, "cat /proc/self/oom_score_adj").output.strip() == "800"
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 800


def test_the_limits_hold_where_bash_would_not_read_them_and_show_nowhere(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolated = opened("local_isolated", session)
    assert "BASH_ENV" not in run(isolated, "env; set").output
    assert run(isolated, "no-such-program").output == "/bin/bash: line 1: no-such-program: command not found\n"
    monkeypatch.setenv("POSIXLY_CORRECT", "1")
    assert run(opened("local", session), "ulimit -c; ulimit -f; ulimit -n").output.split() == ["0", "4194304", "4096"]


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800", "echo " + "x" * 131_072])
def test_a_command_that_no_shell_can_be_given(sandbox: Sandbox, command: str) -> None:
    with pytest.raises(ToolError):
        run(sandbox, command)


def test_it_starts_only_in_the_session_or_a_lent_workspace(session: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "other").mkdir()
    (session / "work/sub").mkdir(parents=True)
    (session / "work/out").symlink_to(tmp_path / "other")
    for name in REGISTRY:
        sandbox = opened(name, session, grants=[Grant(tmp_path / "project", "rw")])
        assert run(sandbox, "pwd", cwd=session / "work/sub").output == f"{session / 'work' / 'sub'}\n"
        assert run(sandbox, "pwd", cwd=tmp_path / "project").output == f"{tmp_path}/project\n"
        for outside in (tmp_path / "other", session.parent, session / "work/out", Path("/")):
            with pytest.raises(OutsideWorkspace):
                run(sandbox, "pwd", cwd=outside)
        with pytest.raises(ToolError):
            run(sandbox, "pwd", cwd=session / "work/missing")


def test_work_comes_back_when_it_was_removed_and_is_not_followed_when_it_is_a_link(session: Path, tmp_path: Path) -> None:
    sandbox = opened("local", session)
    assert run(sandbox, "rmdir ../work && echo gone").output == "gone\n"
    assert run(sandbox, "pwd").output == f"{session}/work\n"
    (session / "work").rmdir()
    (session / "work").symlink_to(tmp_path)
    with pytest.raises(OutsideWorkspace):
        run(sandbox, "pwd")


def test_an_unknown_backend_is_the_owners_to_mend(session: Path) -> None:
    with pytest.raises(Misconfigured) as caught:
        opened("firejail", session)
    assert "local_isolated" in caught.value.remedy


def test_it_describes_itself_as_plain_values(sandbox: Sandbox, session: Path) -> None:
    told = json.loads(json.dumps(sandbox.describe()))
    assert told["backend"] in REGISTRY
    assert told["cwd"] == f"{session}/work"
    assert told["promise"]


UNDUMPABLE = textwrap.dedent(
    """
    import asyncio, ctypes, json, os, pathlib, tempfile
    from bubbles.config.tools import Sandbox as Settings
    from bubbles.sandboxes import Limits, open as opened
    from bubbles.sandboxes import local, local_isolated, spawn  # before the rights to read them are gone
    from bubbles.workspace import Workspace
    import concurrent.futures.thread, difflib, encodings.idna

    async def main():
        root = pathlib.Path(tempfile.mkdtemp())
        session = root / "home/sessions/a"
        session.mkdir(parents=True)
        files = Workspace.open(session)
        await asyncio.to_thread(files.write, "a/b", "one")
        await asyncio.to_thread(files.edit, "a/b", "one", "two")
        told = {"file": files.read("a/b").data.decode(), "where": str(files.directory("a")) == str(session / "work/a")}
        sandbox = opened("local_isolated", session, root / "home/session_homes/a", Settings())
        pid = os.getpid()
        peek = f"p=$(printf /pr%s oc)/{pid}; cat $p/environ $p/maps 2>/dev/null; readlink $p/fd/0"  # as the seat belt does not read it
        told["peek"] = (await sandbox.run(peek, Limits())).output
        told["left"] = (await sandbox.run("setsid sleep 3600 > /dev/null 2>&1 & true", Limits())).note
        print(json.dumps(told))

    if os.geteuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE, as every daemon does
    os.environ["CANARY"] = "canary"
    asyncio.run(main())
    """
)


def test_all_of_it_works_in_a_daemon_whose_memory_nobody_may_read() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", UNDUMPABLE],
        cwd=root,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root), "TMPDIR": "/tmp"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"file": "two", "where": True, "peek": "", "left": "1 background process that it left running was ended"}
