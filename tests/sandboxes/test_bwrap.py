"""The backend `bwrap`: what a jail shows, by which names, and when it is not made. What it keeps from a command is in attacks/."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bubbles import sandboxes
from bubbles.config.tools import Bind, Sandbox
from bubbles.config.tools import Limits as Bounding
from bubbles.errors import BubblesError, Misconfigured, OutsideWorkspace, Refused
from bubbles.paths import Home
from bubbles.sandboxes import probe
from bubbles.sandboxes.furniture import Furniture
from bubbles.sandboxes.namespace import Namespace
from bubbles.sandboxes.sandbox import Limits, Outcome
from bubbles.workspace import Grant, Workspace
from tests.sandboxes.processes import alive, tag


@pytest.fixture
def root(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name in ("work", "data", "skills"):
        (home / "sessions" / "alice" / name).mkdir(parents=True)
    (home / "sessions" / "alice" / "SOUL.md").write_text("a soul")
    return home


def opened(root: Path, grants: list[Grant] | None = None, *, network: str = "none", **settings: Any) -> Any:
    session = root / "sessions" / "alice"
    return sandboxes.open("bwrap", session, root / "session_homes" / "alice", Sandbox(**settings), grants or [], network=network)


def run(box: Any, command: str, **more: Any) -> Outcome:
    return asyncio.run(box.run(command, more.pop("limits", Limits(timeout_s=60)), **more))


def test_what_is_written_stays_where_it_may_be_written(root: Path) -> None:
    box = opened(root)
    assert run(box, "touch ../x").exit == 1
    places = "touch a ../data/b ~/c /tmp/d; for file in ../x ../SOUL.md ../skills/y /usr/z; do touch $file 2>/dev/null && echo $file; done; ls /tmp"
    assert "d" in run(box, places).output.splitlines()
    assert "../x" not in run(box, places).output
    assert [path.name for path in (root / "sessions/alice/work").iterdir()] == ["a"]
    assert [path.name for path in (root / "sessions/alice/data").iterdir()] == ["b"]
    assert [path.name for path in (root / "session_homes/alice").iterdir()] == ["c"]
    assert run(box, "cat ../SOUL.md; ls /tmp/d 2>/dev/null").output == "a soul"  # each jail has a /tmp of its own


def test_directories_and_a_home_that_are_missing_are_made(root: Path) -> None:
    (root / "sessions/alice/data").rmdir()
    assert run(opened(root), "ls -d ~ ../data ../SOUL.md").exit == 0
    (root / "sessions/alice/SOUL.md").unlink()
    assert run(opened(root), "ls ..").output == "data\nskills\nwork\n"


@pytest.mark.parametrize("name", ["data", "skills"])
def test_a_link_in_place_of_a_directory_is_not_followed(root: Path, name: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "sessions/alice" / name).rmdir()
    (root / "sessions/alice" / name).symlink_to(outside)
    with pytest.raises(Refused, match=f"{name} is no directory"):
        run(opened(root), "true")


def test_a_home_or_a_session_that_is_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    (root / "session_homes").mkdir()
    (root / "session_homes/alice").symlink_to(tmp_path)
    with pytest.raises(Refused):
        run(opened(root), "true")
    (root / "session_homes/alice").unlink()
    (root / "session_homes/alice").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Refused):
        run(opened(root), "true")
    (root / "session_homes/alice").unlink()
    (root / "sessions/alice").rename(root / "sessions/bob")
    (root / "sessions/alice").symlink_to("bob")
    with pytest.raises(Refused):
        run(opened(root), "true", cwd=root / "sessions/alice/work")


def test_what_was_lent_and_is_gone_is_not_there(root: Path, tmp_path: Path) -> None:
    assert run(opened(root, [Grant(tmp_path / "gone", "rw")]), f"ls -d {tmp_path}/gone 2>/dev/null || echo gone").output == "gone\n"


def test_work_in_place_of_which_is_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    (root / "sessions/alice/work").rmdir()
    (root / "sessions/alice/work").symlink_to(tmp_path)
    with pytest.raises(BubblesError):
        run(opened(root), "true")


def test_a_note_that_is_a_link_is_not_there(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    (root / "sessions/alice/MEMORY.md").symlink_to(tmp_path / "secret")
    assert run(opened(root), "ls ..; cat ../MEMORY.md 2>/dev/null").output == "SOUL.md\ndata\nskills\nwork\n"


def test_both_spellings_of_a_home_behind_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    box = opened(tmp_path / "link")
    spelt, real = tmp_path / "link/sessions/alice/work", root / "sessions/alice/work"
    assert run(box, f"pwd; touch {spelt}/a; ls {real}").output == f"{spelt}\na\n"
    assert run(box, "pwd", cwd=root / "sessions/alice/data").output == f"{tmp_path}/link/sessions/alice/data\n"


def test_what_is_lent_is_at_its_place_with_its_rights(root: Path, tmp_path: Path) -> None:
    for name in ("read", "write", "write/below"):
        (tmp_path / "lent" / name).mkdir(parents=True)
    (tmp_path / "other").symlink_to(tmp_path / "lent/write")
    grants = [Grant(tmp_path / "lent/read"), Grant(tmp_path / "other", "rw"), Grant(tmp_path / "lent/write/below")]
    box = opened(root, grants)
    told = run(box, f"cd {tmp_path}; touch lent/read/a 2>/dev/null || echo no; touch lent/write/b other/c && ls other")
    assert told.output == "no\nb\nbelow\nc\n"
    assert run(box, "pwd", cwd=tmp_path / "other/below").output == f"{tmp_path}/lent/write/below\n"


def test_a_start_that_the_jail_does_not_show_is_refused(root: Path) -> None:
    (root / "sessions/alice/more").mkdir()
    with pytest.raises(OutsideWorkspace, match="is not seen in the jail"):
        run(opened(root), "true", cwd=root / "sessions/alice/more")
    assert run(opened(root), "pwd", cwd=root / "sessions/alice").output == f"{root}/sessions/alice\n"


def test_what_the_owner_binds_is_seen_and_a_place_that_is_taken_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/hello").write_text("hi")
    seen = opened(root, binds=[Bind(path=str(tmp_path / "tools"), to="/mnt/tools")])
    assert run(seen, "cat /mnt/tools/hello; touch /mnt/tools/x 2>/dev/null || echo ' no'").output == "hi no\n"
    with Furniture() as furniture:
        furniture.bind(tmp_path / "tools", Path("/mnt/tools"), root, writable=False)
        with pytest.raises(Misconfigured, match="in what is there already, or holds it"):
            furniture.bind(tmp_path / "tools", Path("/mnt"), root, writable=False)


def test_the_environment_is_the_jail_s_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary")
    monkeypatch.setenv("WANTED", "wanted")
    told = run(opened(root, pass_env=["WANTED"]), "env; tr '\\0' '\\n' </proc/1/environ; ulimit -c -n; cat /proc/self/oom_score_adj").output
    assert "canary" not in told
    assert {"WANTED=wanted", "USER=agent", f"HOME={root}/session_homes/alice", "TMPDIR=/tmp"} <= set(told.splitlines())
    assert not [name for name in ("BASH_ENV", "BUBBLES_JOIN", "BUBBLES_PROCESSES", "proxy") if name in told]
    assert told.splitlines()[-1] == "800"


def test_its_parts_bound_it(root: Path) -> None:
    box = opened(root, limits=Bounding(file_bytes=1 << 20, tmp_bytes=1 << 20, processes=50))
    assert run(box, "head -c 2000000 /dev/zero >big").exit == 128 + signal.SIGXFSZ
    assert (root / "sessions/alice/work/big").stat().st_size == 1 << 20
    assert run(box, "head -c 600000 /dev/zero >/tmp/a; head -c 600000 /dev/zero >/tmp/b").exit == 1  # no space left on device
    outcome = run(box, "for i in $(seq 80); do sleep 20 & done; wait", limits=Limits(timeout_s=30))
    assert not outcome.timed_out  # by the kernel for an ordinary user; root's are counted from outside
    assert {"time", "output", "file:rlimit", "tmp:size"} <= set(outcome.limits_active)
    assert ("processes:rlimit" in outcome.limits_active) == bool(os.geteuid())


def test_memory_is_bounded_and_that_is_told(root: Path) -> None:
    box = opened(root, limits=Bounding(memory_bytes=100 << 20))
    outcome = run(box, "exec python3 -c 'import time; hog = bytearray(300 << 20); time.sleep(60)'")
    assert (outcome.oom, outcome.timed_out) == (True, False)
    assert "more memory than it may" in outcome.note


def test_a_command_that_destroys_is_refused_there_too(root: Path) -> None:
    with pytest.raises(Refused, match="rm would change"):
        run(opened(root), "rm -rf /usr")
    assert run(opened(root), "cat /home/somebody/x 2>/dev/null || echo gone").output == "gone\n"  # what strays only finds nothing


def test_it_is_ended_before_it_has_begun(root: Path) -> None:
    tagged = tag()
    for after in (0.0, 0.001, 0.003, 0.005, 0.01):
        outcome = run(opened(root), f"sleep {tagged} & setsid sleep {tagged}", limits=Limits(timeout_s=after))
        assert outcome.timed_out
    assert alive(tagged) == []


def test_nothing_is_left_when_it_returns(root: Path) -> None:
    box = opened(root)
    for command in ("(setsid sleep {} &) & echo x", "setsid sleep {} & disown; exit 3", "trap '' TERM HUP; sleep {} & kill -9 $$"):
        tagged = tag()
        run(box, command.replace("{}", tagged))
        assert alive(tagged) == []


def test_output_is_handed_on_as_it_comes(root: Path) -> None:
    parts: list[bytes] = []
    outcome = run(opened(root), "echo one; sleep 0.1; echo two", output=parts.append)
    assert (b"".join(parts), outcome.output, len(parts)) == (b"one\ntwo\n", "one\ntwo\n", 2)


def test_without_a_jail_nothing_runs(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("bubbles.sandboxes.binary.SYSTEM", str(broken))  # where the machine has it: the seam of the jail
    monkeypatch.setattr("bubbles.sandboxes.binary.bundled", lambda: "")
    monkeypatch.setenv("PATH", f"{broken.parent}:/nowhere")
    with pytest.raises(Refused, match="no jail can be made") as refused:
        run(opened(root), "touch ran")
    assert refused.value.remedy
    assert list((root / "sessions/alice/work").iterdir()) == []


class Monitor:
    """As a bubblewrap that has ended, and whose number nobody else has."""

    pid = 2**22 + 1

    def wait(self, timeout: float) -> int:
        return 0

    def poll(self) -> int:
        return 0


@pytest.fixture
def info() -> Iterator[int]:
    fd = os.memfd_create("info")
    yield fd
    os.close(fd)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"child-pid": OURS, "pid-namespace": 1}', '{"child-pid": 0}'])
def test_a_number_that_has_become_another_s_is_not_killed(info: int, text: str) -> None:
    os.pwrite(info, text.replace("OURS", str(os.getpid())).encode(), 0)
    assert Namespace(Monitor(), info).end() == 0  # type: ignore[arg-type]


def test_what_lies_in_a_lent_directory_that_may_be_written_is_a_part_of_it(root: Path, tmp_path: Path) -> None:
    """Whoever writes there could have the name lead anywhere by the next command."""
    secret, project = tmp_path / "secret", tmp_path / "project"
    for path in (secret, project / "vendor", project / "deep", tmp_path / "b-outside"):
        path.mkdir(parents=True)
    (secret / "key").write_text("canary")
    (project / "deep/link").symlink_to(tmp_path / "b-outside")
    (tmp_path / "a-link").symlink_to(project / "deep/link")  # passes through what may be written
    grants = [Grant(project, "rw"), Grant(project / "vendor"), Grant(project / "deep/link", "rw"), Grant(tmp_path / "a-link", "rw")]
    box = opened(root, grants)
    exchange = f"cd {project} && mv vendor v2 && ln -s {secret} vendor && rm deep/link && ln -s {secret} deep/link && echo exchanged"
    assert run(box, exchange).output == "exchanged\n"
    for look in (f"cat {project}/vendor/key", f"cat {secret}/key", f"cat {tmp_path}/a-link/key", f"echo x >{secret}/planted"):
        assert run(opened(root, grants), f"{{ {look}; }} 2>/dev/null || echo no").output == "no\n"
    assert [path.name for path in secret.iterdir()] == ["key"]
    with closing(Workspace.open(root / "sessions/alice", grants=grants)) as files, pytest.raises(BubblesError):
        files.read(str(project / "vendor/key"))


def test_rights_within_what_is_lent(root: Path, tmp_path: Path) -> None:
    for name in ("read/write", "write/read"):
        (tmp_path / name).mkdir(parents=True)
    grants = [Grant(tmp_path / "read"), Grant(tmp_path / "read/write", "rw"), Grant(tmp_path / "write", "rw"), Grant(tmp_path / "write/read")]
    told = run(opened(root, grants), f"cd {tmp_path}; for at in read read/write write write/read; do touch $at/x 2>/dev/null && echo $at; done")
    assert told.output == "read/write\nwrite\nwrite/read\n"
    with closing(Workspace.open(root / "sessions/alice", grants=grants)) as files:
        files.write(str(tmp_path / "write/read/y"), "as by the shell")
        with pytest.raises(BubblesError):
            files.write(str(tmp_path / "read/y"), "no")


@pytest.mark.parametrize("path", ["p/sub", "way"])
def test_a_bind_of_what_commands_can_exchange_is_refused(root: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "p/sub").mkdir(parents=True)
    (tmp_path / "p/link").symlink_to("sub")
    (tmp_path / "way").symlink_to(tmp_path / "p/link")
    binds = [Bind(path=str(tmp_path / path), to="/mnt/x")]
    with pytest.raises(Misconfigured, match="cannot be bound in a jail: commands can write where it lies"):
        run(opened(root, [Grant(tmp_path / "p", "rw")], binds=binds), "true")


def test_a_disk_that_is_away_is_not_bound(root: Path, tmp_path: Path) -> None:
    assert run(opened(root, binds=[Bind(path=str(tmp_path / "away"), to="/mnt/x")]), "ls /mnt 2>/dev/null || echo no").output == "no\n"


def test_a_link_is_made_neither_in_nor_around_what_is_mounted(root: Path, tmp_path: Path) -> None:
    for name in ("a", "q/d", "z"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "q/d/lnk").symlink_to(tmp_path / "a")
    (tmp_path / "z/lnk").symlink_to(tmp_path / "a")
    for grants in ([Grant(tmp_path / "q/d/lnk"), Grant(tmp_path / "q", "rw")], [Grant(tmp_path / "z/lnk"), Grant(tmp_path / "z")]):
        outcome = run(opened(root, grants), "echo made")
        assert (outcome.output, outcome.exit) == ("made\n", 0)


def test_what_others_wrote_into_the_verdict_names_no_program(root: Path, tmp_path: Path) -> None:
    """Units that are confined may write in run/: what they put there is not run outside a jail."""
    assert run(opened(root), "true").exit == 0
    kept = root / "run/sandbox.json"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    body = json.loads(kept.read_text())
    for verdict in body["verdicts"].values():
        verdict["binary"] = str(evil)
    kept.write_text(json.dumps(body))
    found = probe.verdict(Home(root), Sandbox())
    assert found.ok
    assert found.binary != str(evil)
    assert not (tmp_path / "ran").exists()


def test_a_bwrap_of_path_is_not_even_asked_where_another_holds(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "bin/bwrap"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}:{os.environ['PATH']}")
    assert probe.verdict(Home(root), Sandbox(), fresh=True).ok
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["主目录", "sp ace", "new\nline", "\udcff\udcfe"])
def test_a_home_of_any_name(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    for each in ("work", "data", "skills"):
        (home / "sessions" / "alice" / each).mkdir(parents=True)
    assert run(opened(home), "touch a && [ ~ -ef \"$HOME\" ] && echo x > ~/b && cd && ls").output == "b\n"


def test_an_interpreter_behind_a_link(root: Path, tmp_path: Path) -> None:
    """A virtual environment is often a link, or made from one."""
    (tmp_path / "venv").symlink_to(sys.prefix)
    script = "import pathlib, sys; from tests.sandboxes.test_bwrap import opened, run; "
    script += "print(run(opened(pathlib.Path(sys.argv[1])), 'ls -d ' + sys.argv[2]).output)"
    argv = [tmp_path / "venv/bin/python", "-c", script, root, tmp_path / "venv"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path / "venv"), "")


def test_the_program_that_runs_us_is_not_lent_for_writing() -> None:
    with pytest.raises(Misconfigured, match="holds the program"):
        Grant(Path(sys.prefix), "rw").check(Path("/nowhere"))
