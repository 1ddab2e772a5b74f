"""A program of its own: builds sessions out of links, hard links, mounts and odd names, uses the file tools there, and asks a jail what is what.

    unshare --mount python -m tests.workspace.landscape BASE

reads plans of landscapes, a line of JSON each, and answers each with a line that says what was wrong. BASE is a directory that it mounts
over. The truth is what a command in this session's jail sees: where a path leads there, and which file that is.
What a file tool tells or does has to be the same, or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bubbles import sandboxes
from bubbles.config.tools import Sandbox as Settings
from bubbles.errors import ToolError
from bubbles.sandboxes import Limits
from bubbles.workspace import Entry, Workspace, shown
from bubbles.workspace.names import is_litter
from tests.workspace.trees import session, state

MARK = "GIF89a"  # so that what is read as a picture is one
_BIND, _DETACH = 4096, 2
_TRIES = 20
_ASKED = 200  # bytes of a file that are compared
_LIBC = ctypes.CDLL(None, use_errno=True)

LOOK = """import json, os, stat, sys
def look(path):
    try:
        real = os.path.realpath(path, strict=True)
        found = os.stat(real)
    except (OSError, ValueError):
        return None
    told = {"real": real, "id": [found.st_dev, found.st_ino], "mode": found.st_mode, "size": found.st_size}
    if stat.S_ISREG(found.st_mode):
        with open(real, "rb") as file:
            told["head"] = file.read(%d).hex()
    if stat.S_ISDIR(found.st_mode):
        told["names"] = sorted(os.listdir(real))
    return told
print(json.dumps([look(path) for path in json.loads(sys.argv[1])]))
""" % _ASKED  # noqa: UP031 - braces all over it


def main(base: Path) -> None:
    for line in sys.stdin:
        _mounted(base, "tmpfs")
        try:
            print(json.dumps(Landscape(base, json.loads(line)).judged()), flush=True)
        finally:
            _LIBC.umount2(os.fsencode(base), _DETACH)


def _mounted(at: str | Path, source: str | Path) -> None:
    kind = b"tmpfs" if source == "tmpfs" else None
    if _LIBC.mount(os.fsencode(source), os.fsencode(at), kind, 0 if kind else _BIND, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(at))


class Landscape:
    """A session below `root`, furnished with the "nodes" of `plan`, and its "paths", for a tool to be tried with."""

    def __init__(self, root: Path, plan: dict[str, Any]) -> None:
        self._root, self._alice = root, session(root)
        self._home = root / "home/session_homes/alice"
        self._jail = sandboxes.open("bwrap", self._alice, self._home, Settings(), network="none")
        for number, node in enumerate(plan["nodes"]):
            self._build(number, *node)
        self._paths = list(dict.fromkeys(map(self._filled, plan["paths"])))
        self._usual = plan.get("usual", False)
        self._wrong: list[str] = []
        self._used = 0

    def judged(self) -> dict[str, Any]:
        """What was "wrong" and how often tools were "used" with success."""
        truth = dict(zip(self._paths, self._seen(self._paths), strict=True))
        for kernel in (True, False):
            files = _Usual(self._alice) if self._usual else Workspace.open(self._alice, kernel=kernel)
            for path in self._paths:
                self._read(files, path, truth[path])
            files.close()
        self._written()
        return {"wrong": self._wrong, "used": self._used}

    # -- what is built -----------------------------------------------------------------------------

    def _filled(self, text: str) -> str:
        return text.replace("{root}", str(self._root)).replace("{alice}", str(self._alice))

    def _build(self, number: int, kind: str, place: str, other: str) -> None:
        """One node, unless its place lies elsewhere by now: what is outside stays as it is."""
        with contextlib.suppress(OSError, ValueError):
            parent = Path(os.path.realpath((self._alice / place).parent))
            if any(parent.is_relative_to(self._alice / tree) for tree in ("work", "data")):
                parent.mkdir(parents=True, exist_ok=True)
                self._made(kind, parent / Path(place).name, self._filled(other), number)

    def _made(self, kind: str, at: Path, other: str, number: int) -> None:
        if kind in ("tmpfs", "bind") and at.is_symlink():
            return  # what is mounted there would hide something outside
        match kind:
            case "directory":
                at.mkdir()
            case "file":
                with open(at, "x") as file:
                    file.write(f"{MARK} file {number}\n")
            case "fifo":
                os.mkfifo(at)
            case "link":
                at.symlink_to(other)
            case "chain":
                for step in range(45):
                    at.with_name(f"chain{step}").symlink_to(f"chain{step - 1}" if step else other)
            case "hard":
                os.link(self._alice / other, at, follow_symlinks=False)
            case "tmpfs":
                at.mkdir(exist_ok=True)
                _mounted(at, "tmpfs")
                (at / "a").write_text(f"{MARK} in memory {number}\n")
            case "bind":
                at.mkdir(exist_ok=True)
                _mounted(at, os.path.realpath(self._alice / other))

    # -- what is true ------------------------------------------------------------------------------

    def _seen(self, paths: list[str]) -> list[dict[str, Any] | None]:
        """What a command in the jail, started in work/, sees of each path; None where there is nothing."""
        words = [os.path.realpath(sys.executable), "-I", "-S", "-c", LOOK, json.dumps(paths)]
        for _ in range(_TRIES):
            outcome = asyncio.run(self._jail.run(shlex.join(words), Limits(timeout_s=60)))
            if "Resource temporarily unavailable" not in outcome.output:
                break
            time.sleep(1)  # the machine has no process left for anybody just now
        if outcome.exit != 0:
            raise RuntimeError(f"the jail says: {outcome}")
        found: list[dict[str, Any] | None] = json.loads(outcome.output)
        return found

    def _is_inside(self, real: str) -> bool:
        return real == str(self._alice) or real.startswith(f"{self._alice}/")

    def _read(self, files: Any, path: str, truth: dict[str, Any] | None) -> None:
        checks: dict[str, Callable[[dict[str, Any]], bool]] = {
            "read": lambda t: files.read(path).data[:_ASKED].hex() == t.get("head"),
            "open_media": lambda t: files.open_media(path)[:_ASKED].hex() == t.get("head"),
            "stat": lambda t: _same(files.stat(path), t),
            "directory": lambda t: str(files.directory(path)) == t["real"],
            "list": lambda t: t["real"] == str(self._alice) or [e.path for e in files.list(path).entries] == [shown(n) for n in t.get("names", ())],
        }
        for name, check in checks.items():
            try:
                right = check(truth or {"real": ""})
            except ToolError:
                continue
            self._used += 1
            if not right or truth is None or not self._is_inside(truth["real"]):
                self._wrong.append(f"{name} {path!r} is not what the jail sees: {truth}")

    # -- what is changed ---------------------------------------------------------------------------

    def _written(self) -> None:
        before = self._state()
        written = list(self._write())
        paths = list(dict(written))
        told = dict(zip(paths, self._seen(paths), strict=True))
        now = self._state()
        last = {tuple(truth["id"]): text for path, text in written if (truth := told[path])}
        for path, truth in told.items():
            if truth is None or not self._may_be_written(truth["real"]):
                self._wrong.append(f"written by {path!r}, which in the jail is {truth}")
            elif not bytes.fromhex(truth.get("head", "")).decode().startswith(last[tuple(truth["id"])]):
                self._wrong.append(f"{path!r} does not hold in the jail what was written: {truth}")
        allowed = {one for truth in told.values() if truth for one in self._way(truth["real"])}
        changed = [path for path in now if now[path] != before.get(path)]
        self._wrong += [f"changed besides: {path!r}" for path in changed if _identity(path) not in allowed]
        self._wrong += [f"gone: {path!r}" for path in before.keys() - now.keys()]
        self._wrong += [f"left behind: {path!r}" for path in now if is_litter(os.path.basename(path))]

    def _write(self) -> Iterator[tuple[str, str]]:
        """What was written by which path, each text once."""
        both = [Workspace.open(self._alice, kernel=kernel) for kernel in (True, False)]
        for number, path in enumerate(self._paths):
            for at, files in ((path, both[number % 2]), (f"{path}/new", both[0]), (f"{path}.new", both[1])):
                text = f"{MARK} written {number} "
                try:
                    files.edit(at, MARK, text)
                    yield at, text
                    files.write(at, f"{text}\n")
                except ToolError:
                    pass
                else:
                    self._used += 1
                    continue
                try:
                    files.write(at, text)
                except ToolError:
                    continue
                self._used += 1
                yield at, text
        for files in both:
            files.close()

    def _may_be_written(self, real: str) -> bool:
        return real.startswith((f"{self._alice}/work/", f"{self._alice}/data/")) or real == f"{self._alice}/MEMORY.md"

    def _way(self, real: str) -> Iterator[tuple[int, int]]:
        """What a write to `real` may change: that file, and directories on the way to it that were made."""
        yield _identity(real)
        for parent in Path(real).parents:
            if parent != self._alice and parent.is_relative_to(self._alice):
                yield _identity(str(parent))

    def _state(self) -> dict[str, tuple[object, ...]]:
        return state(self._root, self._root / "home/run")


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _same(entry: Entry, truth: dict[str, Any]) -> bool:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory"}
    mode = truth.get("mode", 0)
    return entry.kind == kinds.get(stat.S_IFMT(mode), "other") and (entry.kind != "file" or entry.size == truth["size"])


class _Usual:
    """File tools that compare the text of a path with the workspace's, then open it: what this program has to find out."""

    def __init__(self, alice: Path) -> None:
        self._alice = alice

    def read(self, path: str) -> Any:
        if not os.path.normpath(self._alice / "work" / path).startswith(f"{self._alice}/"):
            raise ToolError("outside")
        try:
            data = (self._alice / "work" / path).read_bytes()
        except OSError as error:
            raise ToolError("not there") from error
        return type("Page", (), {"data": data})

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise ToolError(f"there is no {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
