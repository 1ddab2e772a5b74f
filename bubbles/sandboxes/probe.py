"""Whether a jail holds here: one real one is made, with the arguments that commands get, and tried from inside.

What came of it is kept in HOME/run/sandbox.json, for as long as nothing changes that it depends on. Only what holds is kept: where a jail is
refused, the next look is a fresh one, so that a remedy takes effect at once. It does not know how a jail is made.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bubbles import __version__, regular, sandboxes
from bubbles.errors import BubblesError, DataError
from bubbles.messages import from_line
from bubbles.paths import Home, typed
from bubbles.sandboxes import binary as binaries
from bubbles.sandboxes import refusal
from bubbles.sandboxes.binary import Binary
from bubbles.sandboxes.furniture import Furniture, identity
from bubbles.sandboxes.inside.jail import arguments

FILE = "sandbox.json"
CHECKS = ("uid", "filter", "environ", "canary", "sockets", "processes", "writes", "work", "namespaces", "network", "vsock")
_SCRIPT = Path(__file__).with_name("probe.sh")
_PATIENCE_S = 20.0  # for one that answers in some 60 ms
_BUSY = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_LINUX = sys.platform.startswith("linux")
_KEPT = 8  # verdicts: a terminal and a unit are confined differently, and have one each
_STATUS = ("NoNewPrivs", "Seccomp", "Seccomp_filters", "CapEff", "CapBnd")  # what a unit or a container adds to a process
_CODE = ("bwrap.py", "furniture.py", "probe.sh", "inside/jail.py", "inside/seccomp.py")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether jails hold (`ok`), by which `binary` of which `version`; else `why` not and what to do about it (`remedy`).

    `checks` are what was tried: {"name", "ok", "detail"}, with "skipped": true where it could not be. `notes` are worth knowing and not wrong.
    """

    ok: bool
    binary: str = ""
    version: str = ""
    why: str = ""
    remedy: str = ""
    checks: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verdict(home: Home, settings: Any, *, fresh: bool = False) -> Verdict:
    """The first bubblewrap of this machine that holds; where none does, why the first of them does not. `settings` is the section tools.sandbox.

    Looked up where it was found before and nothing has changed since, unless `fresh`. It blocks, for less than 0.1 s where it has to try.
    """
    kept = {} if fresh else _kept(home)
    tried = []
    for each in binaries.one_by_one():  # what nobody needs is not even started
        key = _key(each, settings)
        if key in kept:
            return replace(kept[key], binary=each.path)  # of the file's words only the key is believed: others may write beside it
        tried.append(probe(each, home, settings))
        if tried[-1].ok:
            _keep(home, key, tried[-1])
            break
    return summed(tried)


def every(home: Home, settings: Any) -> list[Verdict]:
    """Of each bubblewrap of this machine what a fresh look comes to; `summed` says what that means for commands."""
    return [probe(each, home, settings) for each in binaries.candidates()]


def summed(tried: Sequence[Verdict]) -> Verdict:
    """What holds for commands: the first that holds, with a word on those before it that do not."""
    if not tried:
        return Verdict(False, why="no bubblewrap is installed", remedy=refusal.INSTALL) if _LINUX else Verdict(False, why="only Linux has jails")
    found = next((each for each in tried if each.ok), None)
    if found is None:
        return tried[0]
    passed = [f"{each.binary} was passed over: {each.why}" for each in tried[: tried.index(found)]]
    return replace(found, notes=[*found.notes, *passed])


# -- one look ------------------------------------------------------------------------------------------


def probe(binary: Binary, home: Home, settings: Any, *, alter: Callable[[list[str]], list[str]] | None = None) -> Verdict:
    """Make one real jail by `binary` and try it from inside. `alter` may change bubblewrap's arguments: a jail made weaker has to be found out."""
    about = Verdict(False, binary.path, ".".join(map(str, binary.version)), notes=list(filter(None, [refusal.cve_note(binary.version)])))
    if not binary.options:
        return replace(about, why=f"{binary.path} does not say what it can do", remedy=f"{typed(binary.path)} --help; {refusal.LATER}")
    if binary.missing:
        lacking = f"{binary.path} ({about.version or 'of a version that it does not tell'}) has no {', '.join(binary.missing)}"
        return replace(about, why=lacking, remedy=refusal.NEWER)
    try:
        with _stage(home) as stage:
            done = _tried(binary, stage, home, settings, alter or list)
    except BubblesError as error:
        return replace(about, why=error.text, remedy=error.remedy)
    except OSError as error:
        if error.errno in _BUSY:
            return replace(about, why=f"the machine could start nothing more just now: {error.strerror}", remedy=refusal.LATER)
        where = f": {error.filename}" if error.filename else ""
        return replace(about, why=f"the probe could not be made ready: {error.strerror}{where}", remedy=f"look at: df -h {typed(home.run)}")
    except subprocess.TimeoutExpired:
        late = f"{binary.path} did not answer within {_PATIENCE_S:g} s"
        return replace(about, why=late, remedy=refusal.LATER)
    return _judged(about, done)


def _judged(about: Verdict, done: subprocess.CompletedProcess[str]) -> Verdict:
    rows = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 2]
    checks: list[dict[str, Any]] = [
        {"name": name, "ok": how != "bad", "detail": detail} | ({"skipped": True} if how == "skip" else {})
        for name, how, detail in rows
        if name in CHECKS
    ]
    if not any(name == "end" for name, _, _ in rows):
        refused = refusal.refusal(done.stderr, done.returncode, binary=about.binary)
        return replace(about, why=refused.why, remedy=refused.remedy, checks=checks)
    bad = [check for check in checks if not check["ok"]]
    missing = [name for name in CHECKS if name not in {check["name"] for check in checks}]
    if bad or missing:
        why = "; ".join([*(f"{check['name']}: {check['detail']}" for check in bad), *(f"{name}: not tried" for name in missing)])
        return replace(about, why=f"the jail does not hold: {why}", remedy=refusal.LEAKS, checks=checks)
    return replace(about, ok=True, checks=checks)


@contextlib.contextmanager
def _stage(home: Home) -> Iterator[Path]:
    """A directory of its own below HOME/run, like a home with one session, and a canary beside that no jail may see."""
    home.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    _clear(home.run)
    root = Path(tempfile.mkdtemp(prefix="probe-", dir=home.run))
    try:
        session = root / "sessions" / "probe"
        for name in ("work", "data", "skills"):
            (session / name).mkdir(mode=0o700, parents=True)
        for path in (root / "canary", session / "config.json", session / "SOUL.md", session / "MEMORY.md"):
            path.write_text(secrets.token_hex(16))
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _clear(run: Path) -> None:
    """What probes left that were killed, once no probe can still be at it."""
    for path in run.glob("probe-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > 10 * _PATIENCE_S:
                shutil.rmtree(path, ignore_errors=True)


def _tried(
    binary: Binary, stage: Path, home: Home, settings: Any, alter: Callable[[list[str]], list[str]]
) -> subprocess.CompletedProcess[str]:
    session = stage / "sessions" / "probe"
    box: Any = sandboxes.open("bwrap", session, stage / "session_homes" / "probe", settings, network="none")
    said = map(str, (identity()[0], stage / "canary", home.root, _network(), os.path.realpath(sys.executable)))
    with Furniture() as furniture:
        shape = box.jail(furniture, session / "work", {}, False)
        argv = [binary.path, *alter(arguments(shape)), "/bin/bash", "--noprofile", "--norc", "-c", _SCRIPT.read_text(), "probe", *said]
        return _run(argv, furniture.fds)


def _network() -> str:
    """The name of this process's own network: a jail's is another one."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def _run(argv: Sequence[str], fds: Sequence[int]) -> subprocess.CompletedProcess[str]:
    """As commands are started: without an environment, and in a session of its own."""
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env={}, cwd="/", pass_fds=fds, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = child.communicate(timeout=_PATIENCE_S)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.communicate()
        raise
    return subprocess.CompletedProcess(child.args, child.returncode, out, err)


# -- what was found before -----------------------------------------------------------------------------


def _key(binary: Binary, settings: Any) -> str:
    """What a verdict depends on, as one short word: bubblewrap, kernel, user, confinement, what a jail is made by, and the settings."""
    here = Path(__file__).parent
    code = [(name, found.st_mtime_ns, found.st_size) for name in _CODE if (found := (here / name).stat())]
    parts = (
        binary.signature, platform.release(), os.geteuid(), os.getegid(), _confinement(), refusal.sysctls(), __version__, code,
        sys.executable, settings.model_dump_json(),
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _confinement() -> tuple[str, ...]:
    """What a unit or a container makes of this process: capabilities, filters, its user namespace, its profile."""
    lines = [line for line in _text("/proc/self/status").splitlines() if line.partition(":")[0] in _STATUS]
    return (*lines, _text("/proc/self/uid_map"), _text("/proc/self/attr/current"))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _kept(home: Home) -> dict[str, Verdict]:
    """By their keys. What cannot be read, or is not what we write, is not there."""
    try:
        body = from_line(regular.read(home.run / FILE))
    except (OSError, DataError):
        return {}
    entries = body.get("verdicts")
    found = {key: _parsed(value) for key, value in entries.items()} if isinstance(entries, dict) else {}
    return {key: value for key, value in found.items() if value is not None and value.ok and os.access(value.binary, os.X_OK)}


def _parsed(value: Any) -> Verdict | None:
    """A verdict that was kept, if it is whole and of the right kinds."""
    if not isinstance(value, dict) or value.keys() != {each.name for each in fields(Verdict)}:
        return None
    kinds = {"ok": bool, "checks": list, "notes": list}
    if not all(isinstance(each, kinds.get(name, str)) for name, each in value.items()):
        return None
    if not all(isinstance(check, dict) and {"name", "ok", "detail"} <= check.keys() for check in value["checks"]):
        return None
    return Verdict(**value) if all(isinstance(note, str) for note in value["notes"]) else None


def _keep(home: Home, key: str, found: Verdict) -> None:
    """Put one with the others, the oldest of them left out. That it cannot be kept costs time and nothing else."""
    others = {name: asdict(each) for name, each in _kept(home).items() if name != key}
    newest = dict(list(others.items())[-(_KEPT - 1) :]) | {key: asdict(found)}
    path = home.run / FILE
    begun = path.with_name(f".{FILE}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        begun.write_text(json.dumps({"version": 1, "verdicts": newest}, ensure_ascii=True))
        begun.chmod(0o600)
        begun.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            begun.unlink(missing_ok=True)
