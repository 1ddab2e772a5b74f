"""What journald keeps of a home's log, as `journalctl -o json` prints it, and what it did not keep.

It does not know events. A home's entries are those that say so and that journald itself knows to be of the home's user: nobody
else can put one in, and no program of that user can be kept from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from bubbles import systemd
from bubbles.bus.lock import is_running
from bubbles.errors import Unavailable
from bubbles.paths import Home

_DAEMONS = ("agentd", "modeld", "cron")
_NEEDED = ("MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "_SOURCE_REALTIME_TIMESTAMP")
_COUNTED = ("BUBBLES_N", "_PID", "_BOOT_ID", *_NEEDED[2:])
_NAMES_MOST = 32 << 10  # characters: a system takes no argument longer than 128 KiB
_DROPPED = "MESSAGE_ID=a596d6fe7bfa4994828e72309e95d61e"  # journald's own word for "Suppressed N messages from"


@dataclass(frozen=True, slots=True)
class Line:
    """One entry as journald has it: when (epoch seconds; 0 where it does not say), and its fields."""

    at: float
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class Gap:
    """So many entries of a program that journald did not keep, between two times (epoch seconds)."""

    program: str
    count: int
    since: float
    until: float


def is_here() -> bool:
    """Whether there is a journalctl to ask."""
    return shutil.which("journalctl") is not None


def call(home: Home, options: Sequence[str]) -> list[str]:
    """The call that prints a home's entries, an object a line."""
    ours = [f"_UID={_uid(home)}", f"BUBBLES_HOME={os.path.realpath(home.root)}"]
    return ["journalctl", "--quiet", "--output=json", "--all", "--no-pager", *options, *ours]


def lines(home: Home, options: Sequence[str], last: int = 0) -> Iterator[bytes]:
    """What it prints: oldest first, or of the `last` so many the newest first. Raises Unavailable where there may be some and none can be read."""
    if not is_here():
        if names := elsewhere(home):
            raise Unavailable(
                f"the log of {', '.join(names)} is with journald, and there is no journalctl", remedy="install it, with systemd's tools"
            )
        return
    few = ["--reverse", f"--lines={last}"] if last else _fields()
    yield from _printed(home, call(home, [*options, *few]))


def span(since: float | None, until: float | None) -> list[str]:
    """The options that leave out what is older or newer (epoch seconds). It refuses times before 1970, where it has nothing anyway."""
    return [f"--{name}=@{max(0.0, at):.6f}" for name, at in (("since", since), ("until", until)) if at is not None]


def parsed(line: bytes) -> Line | None:
    """A line of `journalctl -o json`; None where it is none."""
    try:
        body = json.loads(line)
        at = int(_text(body.get("_SOURCE_REALTIME_TIMESTAMP")) or _text(body.get("__REALTIME_TIMESTAMP")) or 0) / 1e6
        return Line(at, {name: _text(value) for name, value in body.items()})
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def gaps(home: Home, since: float, until: float) -> list[Gap]:
    """The entries that journald did not keep in a time, because too many came at once. Each process counts those it logs."""
    if not is_here() or since > until:
        return []
    options = [*span(since, until), f"--output-fields={','.join(_COUNTED)}"]
    before: dict[tuple[str, ...], tuple[int, float]] = {}
    found = []
    for line in filter(None, map(parsed, _printed(home, call(home, options)))):
        who, number = tuple(line.fields.get(name, "") for name in ("SYSLOG_IDENTIFIER", "_PID", "_BOOT_ID")), line.fields.get("BUBBLES_N", "")
        if number.isascii() and number.isdigit() and len(number) < 16:
            n, at = before.get(who, (0, 0.0))
            if at and int(number) > n + 1:
                found.append(Gap(who[0].removeprefix("bubbles-"), int(number) - n - 1, at, line.at))
            before[who] = int(number), line.at
    return found


def dropped(home: Home, since: float, until: float) -> int:
    """How many entries journald says that it dropped of all that the home's user runs. It says so to those who may read the system's log."""
    if not is_here() or since > until:
        return 0
    argv = ["journalctl", "--quiet", "--output=json", "--no-pager", *span(since, until), _DROPPED, "_UID=0"]
    found = subprocess.run([*argv, f"OBJECT_UID={_uid(home)}"], stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout.splitlines()
    counts = [line.fields.get("N_DROPPED", "") for line in filter(None, map(parsed, found))]
    return sum(int(count) for count in counts if count.isascii() and count.isdigit() and len(count) < 16)


def _uid(home: Home) -> int:
    """Whose home it is."""
    try:
        return home.root.stat().st_uid
    except OSError:
        return os.geteuid()


def _printed(home: Home, argv: Sequence[str]) -> Iterator[bytes]:
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        try:
            yield from process.stdout
            if process.wait():
                _tell(home, errors)
        finally:
            process.terminate()
            process.stdout.close()
            process.wait()


def _tell(home: Home, errors: IO[bytes]) -> None:
    """Raises Unavailable with what journalctl said, unless there is nothing of this home that it could have printed."""
    errors.seek(0)
    why = (errors.read(4096).decode("utf-8", "replace").strip().splitlines() or ["journalctl failed"])[-1]
    if "permission" not in why:
        raise Unavailable(f"what journald keeps cannot be read: {why}", remedy="look at: journalctl --user -n 1")
    if elsewhere(home) or not any(home.logs("*.jsonl*")) or _has_units(home):
        raise Unavailable("you may not read what journald keeps", remedy="sudo usermod -aG systemd-journal $USER, and log in anew")


def _has_units(home: Home) -> bool:
    """Whether this home's daemons are started by systemd, and so log to journald."""
    with contextlib.suppress(Unavailable):
        found = systemd.UserManager.reach()
        place = found.home_of_units() if found else None
        return place is not None and os.path.realpath(place) == os.path.realpath(home.root)
    return True  # there is a manager, and it does not tell


def _fields() -> list[str]:
    """The option that names all the fields that entries of ours have: to print the others takes four times as long.

    Anybody may log fields that are called like ours; of so many that no call could hold them, none is named, and all are printed.
    """
    argv = ["journalctl", "--quiet", "--no-pager", "--fields"]
    found = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout.decode("utf-8", "replace").split()
    names = ",".join((*_NEEDED, *(name for name in found if name.startswith("BUBBLES_"))))
    return [f"--output-fields={names}"] if len(names) <= _NAMES_MOST else []


def elsewhere(home: Home) -> list[str]:
    """The daemons that run and whose entries are in no file: one writes the first when it starts, which the time of its lock tells."""
    found = []
    for lock in sorted(home.run.glob("*.lock")):
        if (lock.stem in _DAEMONS or lock.stem.startswith("channel-")) and is_running(home, lock.stem) is not None:
            wrote = max((path.stat().st_mtime for path in home.logs(f"{lock.stem}.jsonl*")), default=0.0)
            if wrote < lock.stat().st_mtime - 1:
                found.append(lock.stem)
    return found


def _text(value: Any) -> str:
    """A value as journalctl prints it: a text; bytes as numbers where it is none; a list where a field was given more than once; null."""
    if isinstance(value, list):
        if value and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
            return bytes(value).decode("utf-8", "replace")
        return _text(value[0]) if value else ""
    return "" if value is None else str(value)
