"""The machine below: its clock, the room on its disks, and whether locks hold there.

It does not know what is stored. What a machine does not tell (no systemd, no /proc) is not looked at.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bubbles import config
from bubbles.errors import BubblesError
from bubbles.paths import Home, typed
from bubbles.programs.doctoring.finding import Finding, Findings, Patient, fail, note, ok, warn
from bubbles.programs.doctoring.said import fields, said

_AHEAD_S = 300.0  # clocks of two machines that share a disk may differ by so much
_MB = 1_000_000
_ROOM = {"home": (64 * _MB, 1000 * _MB), "temporary files": (16 * _MB, 128 * _MB), "sockets": (1 * _MB, 4 * _MB)}  # (too little, little)
_FILES = (500, 10_000)  # that may still be made: too few, few
_SHARED = re.compile(r"nfs|cifs|smb|9p|afs|ceph|gluster|lustre|gfs2|ocfs|fuse\.(sshfs|s3fs|rclone|davfs)|virtiofs|beegfs")
_CONTAINER = (".dockerenv", "run/.containerenv")  # what Docker and podman leave in the root of one
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


def clock(patient: Patient) -> Findings:
    """Is the clock right?"""
    now = time.time()
    wrong = [*_impossible(patient.home, now), *_unguarded()]
    yield from wrong
    if not any(found.level in ("warn", "fail") for found in wrong):
        yield ok(f"{time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(now))}, {_zone(patient.home)}")


def _impossible(home: Home, now: float) -> Findings:
    """What files say that a clock cannot be right."""
    installed = Path(__file__).stat().st_mtime
    if installed > now + _AHEAD_S:
        yield fail(f"the clock says {_day(now)}, and this program was installed on {_day(installed)}", "sudo timedatectl set-ntp true")
    newest = max(_times(home), default=0.0)
    if newest > now + _AHEAD_S:
        yield warn(
            f"there are files in {home.root} from {_hours(newest - now)} ahead of the clock: it is wrong, or was",
            "set the clock; where it is right now, nothing is lost, and this passes by itself",
        )


def _times(home: Home) -> Iterator[float]:
    for pattern in ("config.json", "run/*.lock", "sessions/*/session.jsonl", "turns/*.jsonl", "log/*"):
        for path in home.root.glob(pattern):
            with contextlib.suppress(OSError):
                yield path.stat().st_mtime


def _unguarded() -> Findings:
    """Whether somebody keeps the clock right, where systemd knows."""
    told = said("timedatectl", "show")
    known = fields(told.out) if told and told.code == 0 else {}
    if known.get("NTPSynchronized") != "no":
        return
    if known.get("CanNTP") == "yes":
        yield warn("the clock is not synchronised", "sudo timedatectl set-ntp true" if known.get("NTP") == "no" else "timedatectl timesync-status")
    else:
        yield note("nothing here keeps the clock right, or nothing that systemd knows of", "install systemd-timesyncd or chrony")


def _zone(home: Home) -> str:
    try:
        own = config.load(home, "agents").agents.defaults.timezone
    except BubblesError:  # `config` tells
        own = ""
    return f"time zone {own}, as set" if own else f"time zone {'/'.join(dict.fromkeys(time.tzname))}, the machine's"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{seconds / 60:.0f} minutes"


# -- disks --------------------------------------------------------------------------------------------


def disk(patient: Patient) -> Findings:
    """Is there room?"""
    wrong = []
    for name, place in _places(patient.home):
        found = os.statvfs(place)
        wrong += [each for each in (_full(name, place, found), _no_files(place, found), _read_only(name, place, found)) if each]
    yield from wrong
    if not wrong:
        yield ok(", ".join(f"{_size(_free(os.statvfs(place)))} for {name}" for name, place in _places(patient.home)))


def _places(home: Home) -> list[tuple[str, Path]]:
    """What needs room, and where that is; what is not there yet is measured where it would be made."""
    wanted = (("home", home.root), ("temporary files", Path(tempfile.gettempdir())), ("sockets", home.sockets))
    return [(name, existing(path)) for name, path in wanted]


def existing(path: Path) -> Path:
    """The path, or the first above it that is there."""
    return next((each for each in (path, *path.parents) if os.path.exists(each)), Path("/"))


def _free(found: os.statvfs_result) -> int:
    return found.f_bavail * found.f_frsize


def _full(name: str, place: Path, found: os.statvfs_result) -> Finding | None:
    least, little = _ROOM[name]
    free = _free(found)
    if free >= little:
        return None
    return (fail if free < least else warn)(f"{_size(free)} are left for {name} ({place})", f"df -h {typed(place)}; bubbles tidy --all")


def _no_files(place: Path, found: os.statvfs_result) -> Finding | None:
    if not found.f_files or found.f_favail >= _FILES[1]:
        return None
    return (fail if found.f_favail < _FILES[0] else warn)(f"{found.f_favail} more files can be made on the disk of {place}", f"df -i {typed(place)}")


def _read_only(name: str, place: Path, found: os.statvfs_result) -> Finding | None:
    if not found.f_flag & os.ST_RDONLY:
        return None
    return fail(f"the disk for {name} ({place}) can only be read", f"findmnt -T {typed(place)}; sudo dmesg | tail")


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def file_system(patient: Patient) -> Findings:
    """Do locks hold on the disk that the home is on, and does it last?"""
    place = existing(patient.home.root)
    kind = kind_of(place, patient.root / "proc/self/mounts")
    if why := _unlockable(place):
        yield fail(f"{place} is on {kind or 'a disk'} where nothing can be locked ({why}): two daemons would not see each other", _move(place))
    elif kind and _SHARED.match(kind):
        yield warn(f"{place} is on {kind}: a lock may not be seen on other machines, so run Bubbles on one alone", _move(place))
    elif kind in ("tmpfs", "ramfs"):
        yield warn(f"{place} is in memory ({kind}) and is gone after a restart", f"move {typed(place)} to a disk, and set BUBBLES_HOME")
    elif kind == "overlay" and any((patient.root / mark).exists() for mark in _CONTAINER):
        yield warn(f"{place} is in the container's own layer and is gone with the container", f"mount a volume at {typed(place)}")
    else:
        yield ok(f"{place} is on {kind}" if kind else f"{place} can be locked")


def kind_of(place: Path, mounts: Path) -> str:
    """What kind of file system a path is on; "" where nobody tells."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    real = os.path.realpath(place)
    best, kind = "", ""
    for line in lines:
        _, at, found, *_ = [*(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), part) for part in line.split(" ")), "", "", ""]
        if (real == at or real.startswith(at.rstrip("/") + "/")) and len(at) >= len(best):
            best, kind = at, found
    return kind


def _unlockable(place: Path) -> str:
    """Why a lock cannot be taken; "" where it can. A directory is locked, so that nothing has to be made."""
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return str(error.strerror) if error.errno in _NO_LOCKS else ""
    finally:
        os.close(fd)
    return ""


def _move(place: Path) -> str:
    return f"move {typed(place)} to a disk of this machine, and set BUBBLES_HOME"
