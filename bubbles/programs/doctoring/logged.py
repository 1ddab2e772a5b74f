"""The journal, which is the audit: whether it is kept over a restart, may be read by its owner, and takes as much as may be said.

Facts of journald: without /var/log/journal it keeps everything in memory, and there nobody but root and the group systemd-journal
reads it. What all programs of one user say counts together, as that of the one unit user@UID.service; beyond RateLimitBurst in
RateLimitIntervalSec (the burst times one to six, by how much room there is) the rest of the interval is dropped, and one line says how many.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bubbles.errors import Unavailable
from bubbles.programs import journald
from bubbles.programs.doctoring.finding import Findings, Patient, fail, note, ok, warn
from bubbles.programs.doctoring.said import fields, said

_MOST, _MOST_S = 20_000, 30.0  # entries that a busy installation may write in so many seconds
_BELOW = ("etc", "run", "usr/local/lib", "usr/lib", "lib")  # where settings lie, the first stands over the others
_KEEP = "sudo mkdir -p /var/log/journal && sudo systemd-tmpfiles --create --prefix /var/log/journal && sudo systemctl restart systemd-journald"
_JOIN = "sudo usermod -aG systemd-journal $USER, then log in anew"
_WIDER = (
    "sudo mkdir -p /etc/systemd/journald.conf.d && printf '[Journal]\\nRateLimitBurst=100000\\n'"
    " | sudo tee /etc/systemd/journald.conf.d/bubbles.conf && sudo systemctl restart systemd-journald"
)
_DAY_S = 86400.0
_UNITS_S = {"us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def configured(root: Path) -> dict[str, str]:
    """The settings of journald, by the rules of its files. Those that are not set are missing."""
    places = [root / below / "systemd" for below in _BELOW]
    main = [path for place in places if (path := place / "journald.conf").is_file()][:1]
    drop_ins: dict[str, Path] = {}
    for place in reversed(places):
        drop_ins |= {path.name: path for path in place.glob("journald.conf.d/*.conf")}
    found: dict[str, str] = {}
    for path in (*main, *(drop_ins[name] for name in sorted(drop_ins))):
        found |= _section(path)
    return found


def _section(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    section = ""
    with contextlib.suppress(OSError):
        for line in map(str.strip, path.read_text("utf-8", "replace").splitlines()):
            if line.startswith("["):
                section = line.strip("[]")
            elif section == "Journal" and "=" in line and line[0] not in "#;":
                name, _, value = line.partition("=")
                found[name.strip()] = value.strip()
    return found


def seconds(text: str) -> float:
    """A span of time as systemd writes it; infinite where it is none.

    >>> seconds("1min 30s"), seconds("30"), seconds("0")
    (90.0, 30.0, 0.0)
    """
    parts = re.findall(r"([0-9.]+)\s*([a-z]*)", text)
    try:
        return sum(float(number) * _UNITS_S[unit] for number, unit in parts) if parts else math.inf
    except (KeyError, ValueError):
        return math.inf


def _is_here(root: Path) -> bool:
    return (root / "run/systemd/journal/socket").exists()


def journal(patient: Patient) -> Findings:
    """Is the journal kept, and can you read it?"""
    if not _is_here(patient.root):
        yield note(f"no journal here: the log is in {patient.home.log}")
        return
    lost = list(_kept(patient.root))
    yield from lost
    unread = list(_readable(patient.root, in_memory=bool(lost)))
    yield from unread
    if not lost and not unread:
        yield ok("the journal is kept over a restart, and you can read it")


def _kept(root: Path) -> Findings:
    storage = configured(root).get("Storage", "auto").lower()
    if storage == "none":
        yield fail(
            "journald keeps nothing (Storage=none): there is no audit", "sudo sed -i 's/^Storage=none/#&/' /etc/systemd/journald.conf, and: " + _KEEP
        )
    elif storage == "volatile":
        yield warn(
            "the journal is in memory alone (Storage=volatile) and is gone after a restart", "set Storage=persistent in /etc/systemd/journald.conf"
        )
    elif not (root / "var/log/journal").is_dir():
        yield warn("the journal is in memory alone (there is no /var/log/journal) and is gone after a restart", _KEEP)
    elif _is_unflushed(root):
        yield warn("the journal is still written to memory, not to /var/log/journal", "sudo journalctl --flush")


def _is_unflushed(root: Path) -> bool:
    """Whether entries go to /run although there is a place on disk."""
    with contextlib.suppress(OSError):
        machine = (root / "etc/machine-id").read_text().strip()
        return any((root / "run/log/journal" / machine).glob("*.journal")) and not (root / "var/log/journal" / machine / "system.journal").exists()
    return False


def _readable(root: Path, *, in_memory: bool) -> Findings:
    places = (root / "run/log/journal").glob("*") if in_memory else ()
    told = said("journalctl", "--user", "--no-pager", "-n", "1", "-o", "cat", timeout_s=10)
    if told is None:
        yield note("journalctl is not here, or does not answer: `bubbles audit` cannot read the journal")
    elif "insufficient permissions" in told.err or not all(os.access(path, os.R_OK | os.X_OK) for path in places):
        yield warn("you may not read your own entries in the journal", _JOIN)


# -- how much it takes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """How many entries are taken in how many seconds, of all that one user runs; of nothing more is anything dropped where `burst` is 0."""

    burst: int
    interval_s: float

    @property
    def is_enough(self) -> bool:
        return not self.burst or not self.interval_s or self.burst / self.interval_s >= _MOST / _MOST_S


def rate(patient: Patient) -> Findings:
    """Does the journal take as much as may be said, and has it left anything out?"""
    if not _is_here(patient.root):
        return
    found = limit(patient.root, f"user@{os.geteuid()}.service")
    if not found.is_enough:
        yield warn(
            f"journald takes {found.burst} entries in {found.interval_s:g} s from all that you run together, and drops the rest;"
            f" a busy hour of Bubbles may have {_MOST} in {_MOST_S:g} s",
            _WIDER,
        )
    else:
        yield ok(f"journald takes {found.burst} entries in {found.interval_s:g} s" if found.burst and found.interval_s else "journald drops nothing")
    yield from _dropped(patient)


def limit(root: Path, unit: str) -> Rate:
    """What holds for a system unit: its own limit, else journald's, times what the room on its disk makes of it."""
    settings = configured(root)
    interval_s = seconds(settings.get("RateLimitIntervalSec", settings.get("RateLimitInterval", "30s")))
    burst = int(number) if (number := settings.get("RateLimitBurst", "10000")).isdecimal() else 10000
    told = said("systemctl", "show", "-p", "LogRateLimitIntervalUSec", "-p", "LogRateLimitBurst", unit)
    own = fields(told.out) if told and told.code == 0 else {}
    if own.get("LogRateLimitIntervalUSec", "0") != "0" and seconds(own["LogRateLimitIntervalUSec"]) < math.inf:
        interval_s = seconds(own["LogRateLimitIntervalUSec"])
    if (number := own.get("LogRateLimitBurst", "0")).isdecimal() and number != "0":
        burst = int(number)
    return Rate(modulated(burst, room(root, settings)), interval_s)


def modulated(burst: int, free: int) -> int:
    """The burst that journald allows with so many bytes left to it.

    >>> modulated(10_000, 0), modulated(10_000, 16 << 20), modulated(10_000, 4 << 30)
    (10000, 20000, 40000)
    """
    power = max(free, 1).bit_length() - 1
    return burst if power <= 20 else burst * (power - 16) // 4


def room(root: Path, settings: dict[str, str]) -> int:
    """Bytes that journald may still fill: where nothing is set a tenth of the disk, 15 % of it kept free, and never more than 4 GiB."""
    on_disk = (root / "var/log/journal").is_dir() and settings.get("Storage", "auto") not in ("volatile", "none")
    place, name = (root / "var/log/journal", "System") if on_disk else (root / "run", "Runtime")
    try:
        disk = os.statvfs(place)
    except OSError:
        return 0
    whole, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    most = _bytes(settings.get(f"{name}MaxUse", ""), min(whole // 10, 4 << 30))
    kept = _bytes(settings.get(f"{name}KeepFree", ""), min(whole * 15 // 100, 4 << 30))
    used = sum(_sizes(place if on_disk else root / "run/log/journal"))
    return max(0, min(used + max(0, free - kept), most) - used)


def _sizes(place: Path) -> Iterator[int]:
    for path in place.glob("*/*.journal*"):
        with contextlib.suppress(OSError):
            yield path.stat().st_blocks * 512


def _bytes(text: str, default: int) -> int:
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)", text)
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2]] if found else default


def _dropped(patient: Patient) -> Findings:
    """What was not kept in the last day: by the count that each program of ours keeps of its entries, and by journald's own word."""
    if not patient.home.root.exists():
        return
    until = time.time()
    try:
        gaps = journald.gaps(patient.home, until - _DAY_S, until)
        dropped = journald.dropped(patient.home, until - _DAY_S, until)
    except Unavailable as error:
        yield warn(f"whether any entry was dropped cannot be seen: {error.text}", error.remedy)
        return
    lost: Counter[str] = Counter()
    for gap in gaps:
        lost[gap.program] += gap.count
    for program, count in lost.items():
        last = max(gap.until for gap in gaps if gap.program == program)
        yield warn(f"{count} entries of {program} were not kept in the last day, last at {_clock(last)}: too many came at once", _WIDER)
    if dropped > lost.total():
        yield warn(f"journald dropped {dropped} entries of all that you run in the last day: too many came at once", _WIDER)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
