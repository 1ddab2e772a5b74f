"""What those who started this process forbid every command of it, whatever the sandbox: told to an owner who asks for a weaker one.

It sees what the kernel tells of this process. What it cannot tell from inside (address families, single system calls) it leaves out.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROCESS = Path("/proc/self")


def forbidden(home: Path | None = None, process: Path = _PROCESS) -> list[str]:
    """The keys of texts that say what is forbidden. `home` is the owner's (None: as the password file has it); `process` is a directory of /proc.

    Empty where nothing is, and on systems without /proc.
    """
    mounts = [line.split(" ")[3:5] for line in _lines(process / "mountinfo")]
    found = {
        "forbids rights": "NoNewPrivs:\t1" in _lines(process / "status"),
        "forbids home": _is_read_only(home or Path(os.path.expanduser("~"))),
        "forbids system": _is_read_only(Path("/usr")),
        "forbids tmp": any(at == "/tmp" and "/systemd-private-" in root for root, at in mounts),
        "forbids manager": any(at.endswith(("/bus", "/systemd/private")) and "/inaccessible/" in root for root, at in mounts),
    }
    return [key for key, holds in found.items() if holds]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _is_read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False
