"""Who a session is to git, and to programs that look for a login by HOME or XDG_CONFIG_HOME: itself, and in every command the same.

And what lies in work/ as git's own settings is for those who run git there: no daemon does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bubbles import sandboxes
from bubbles.config.tools import Sandbox as Settings
from bubbles.errors import OutsideWorkspace, ToolError
from bubbles.paths import Home
from bubbles.sandboxes import Limits, binary
from bubbles.workspace import Workspace
from tests.agentd.world import world

BIN = Path(__file__).parents[2] / "bin"
NEEDS_GIT = pytest.mark.skipif(not shutil.which("git", path="/usr/local/bin:/usr/bin:/bin"), reason="there is no git")
DAYS_4 = 4 * 24 * 3600

# A program that keeps its login as gh and aws do: `auth KEY` below XDG_CONFIG_HOME, `configure KEY` below HOME.
CLIENT = """#!/bin/sh
set -e
case $1 in
auth) mkdir -p "$XDG_CONFIG_HOME/client"; echo "token: $2" > "$XDG_CONFIG_HOME/client/hosts.yml" ;;
configure) umask 077; mkdir -p "$HOME/.aws"; echo "key = $2" > "$HOME/.aws/credentials" ;;
whoami) cat "$XDG_CONFIG_HOME/client/hosts.yml" "$HOME/.aws/credentials" ;;
esac
"""

Run = Callable[[str, str], str]


@pytest.fixture(params=["local_isolated", "bwrap"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "bwrap" and not [one for one in binary.candidates() if not one.missing]:
        pytest.skip("no bubblewrap here that a jail can be made with")
    return str(request.param)


@pytest.fixture
def run(home: Home, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command of a session; what it printed. Around is an owner with an identity and logins of their own."""
    owner = tmp_path / "owner"
    (owner / ".aws").mkdir(parents=True)
    (owner / ".config/client").mkdir(parents=True)
    (owner / ".gitconfig").write_text("[user]\n\tname = Owner\n\temail = owner@example.org\n")
    (owner / ".aws/credentials").write_text("key = of-the-owner\n")
    (owner / ".config/client/hosts.yml").write_text("token: of-the-owner\n")
    monkeypatch.setenv("HOME", str(owner))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(owner / ".config"))
    for key in ("alice", "bob"):
        (home.session(key) / "work").mkdir(parents=True)
        (home.session(key) / "work/client").write_text(CLIENT)
        (home.session(key) / "work/client").chmod(0o755)

    def ran(key: str, command: str) -> str:
        made = sandboxes.open(backend, home.session(key), home.session_home(key), Settings(), network={"bwrap": "none"}.get(backend, ""))
        return asyncio.run(made.run(command, Limits(timeout_s=60))).output

    return ran


@NEEDS_GIT
def test_each_session_commits_as_itself(run: Run) -> None:
    commit = "git init -q project 2>&1; cd project; echo more >> file; git add file && git commit -qm change && git log -1 --format='%an <%ae> %cn'"
    assert "who you are" in run("alice", commit)
    assert run("alice", "git config --global user.name; echo $?") == "1\n"
    names = {"alice": "Alice Liddell", "bob": "Bob Cratchit"}
    for key, name in names.items():
        run(key, f"git config --global user.name '{name}'; git config --global user.email {key}@example.org")
    for key in ("alice", "bob", "alice"):
        assert run(key, commit) == f"{names[key]} <{key}@example.org> {names[key]}\n"
    assert "Bob" not in run("alice", "git config --list --show-origin; cd project; git log --format='%an %ae'")
    assert "Alice" not in run("bob", "git config --list --show-origin; cd project; git log --format='%an %ae'")


def test_a_login_is_the_session_s_own_and_lasts(run: Run, home: Home, backend: str) -> None:
    assert "of-the-owner" not in run("alice", "./client whoami 2>&1")
    for key in ("alice", "bob"):
        run(key, f"./client auth token-of-{key}; ./client configure key-of-{key}")
    for key in ("alice", "bob"):
        assert run(key, "./client whoami") == f"token: token-of-{key}\nkey = key-of-{key}\n"
    long_ago = time.time() - DAYS_4
    for directory, _, files in os.walk(home.root / "session_homes"):
        for path in (directory, *(os.path.join(directory, name) for name in files)):
            os.utime(path, (long_ago, long_ago))
    (home.session("alice") / "data").mkdir(exist_ok=True)
    (home.session("alice") / "data/old").write_text("")
    os.utime(home.session("alice") / "data/old", (long_ago, long_ago))
    subprocess.run([BIN / "bubbles", "tidy"], check=True, capture_output=True)
    assert not (home.session("alice") / "data/old").exists()  # it did clean
    assert run("alice", "./client whoami") == "token: token-of-alice\nkey = key-of-alice\n"
    for key in ("alice", "bob"):
        assert home.session_home(key).stat().st_mode & 0o777 == 0o700


def test_nobody_else_reaches_it(run: Run, home: Home, backend: str) -> None:
    run("alice", "./client auth token-of-alice; ./client configure key-of-alice")
    own = home.session_home("alice")
    peek = f"cat {own}/.aws/credentials {own}/.config/client/hosts.yml; ls {own.parent} {own.parent.parent}"
    (home.session("bob") / "work/peek").write_text(peek)
    told = run("bob", "sh peek")
    if backend == "bwrap":
        assert "of-alice" not in told
        assert "alice" not in told.replace(str(own), "")
        assert run("bob", "find / -xdev -path /usr -prune -o -name hosts.yml -print") == ""
        assert run("bob", f"ln -s {own}/.aws/credentials l; cat l; echo $?").endswith("\n1\n")
    else:
        assert "key-of-alice" in told  # programs do not find it; a path does
    files = Workspace.open(home.session("alice"))
    (home.session("alice") / "work/link").symlink_to(own)
    for path in (f"{own}/.aws/credentials", "../../../session_homes/alice/.aws/credentials", "~/.aws/credentials", "link/.aws/credentials"):
        for act in (files.read, lambda path: files.write(path, "evil"), lambda path: files.edit(path, "key", "evil"), lambda path: files.list(path)):
            with pytest.raises(ToolError) as caught:
                act(path)
            assert "of-alice" not in str(caught.value)
    with pytest.raises(OutsideWorkspace):
        files.list(str(own))
    files.close()
    assert (own / ".aws/credentials").read_text() == "key = key-of-alice\n"


HOOKS = (
    "pre-commit", "post-checkout", "post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-auto-gc", "post-commit",
)  # fmt: skip
SETTINGS = (
    "core.fsmonitor", "core.sshCommand", "core.editor", "core.pager", "core.gitProxy", "diff.external", "credential.helper", "gpg.program",
    "filter.all.clean", "filter.all.smudge", "alias.status", "uploadpack.packObjectsHook", "core.askPass",
)  # fmt: skip


def _plant(work: Path, trap: Path, fired: Path) -> None:
    """A repository whose every setting and hook starts `trap`, and files that other programs would run where they find them."""
    trap.write_text(f"#!/bin/sh\necho \"$0 $*\" >> {fired}\n")
    trap.chmod(0o755)
    subprocess.run(["git", "init", "-q", work], check=True)
    (work / ".gitattributes").write_text("* filter=all diff=all\n")
    for name in SETTINGS:
        subprocess.run(["git", "-C", work, "config", name, str(trap)], check=True)
    for name in HOOKS:
        (work / ".git/hooks" / name).unlink(missing_ok=True)
        (work / ".git/hooks" / name).symlink_to(trap)
    code = f"import os; os.system('{trap} code')\n"
    for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "bubbles.py", "json.py", "setup.py"):
        (work / name).write_text(code)
    for name in (".envrc", ".bashrc", ".profile", ".bash_profile", "Makefile"):
        (work / name).write_text(f"{trap} {name}\n")


@NEEDS_GIT
def test_what_is_planted_in_work_is_run_by_no_daemon(home: Home, tmp_path: Path) -> None:
    trap, fired = tmp_path / "trap", tmp_path / "fired"
    calls = [
        {"name": "write_file", "arguments": {"path": "file.py", "content": "one\n"}},
        {"name": "edit_file", "arguments": {"path": "file.py", "old": "one", "new": "two"}},
        {"name": "read_file", "arguments": {"path": ".git/config"}},
        {"name": "list_dir", "arguments": {"path": "", "depth": 3}},
        {"name": "exec", "arguments": {"command": "true"}},
    ]
    script = {"rules": [{"when": "go", "times": 1, "calls": calls}], "default": {"reply": "done"}}
    with world(home, script) as w:
        work = home.session("s") / "work"
        work.mkdir(parents=True)
        _plant(work, trap, fired)
        w.start()
        assert w.say("go").text == "done"
        assert len([m for m in w.history() if m["role"] == "tool"]) == len(calls)
        for words in (["history", "s"], ["doctor", "--brief"], ["backup", str(tmp_path / "home.tar.gz")]):
            subprocess.run([BIN / "bubbles", *words], cwd=work, capture_output=True, timeout=120, check=False)
    assert (work / "file.py").read_text() == "two\n"
    assert not fired.exists(), fired.read_text()
    subprocess.run(["git", "-C", work, "status"], capture_output=True, check=False)  # whoever runs git there does set it off
    assert fired.exists()
