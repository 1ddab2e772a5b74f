"""Sessions to work on, in homes of their own, with something outside that must never be reached."""

from __future__ import annotations

import os
import stat
from pathlib import Path

SECRET = "the-secret-outside"


def session(root: Path, key: str = "alice") -> Path:
    """A session's directory as Bubbles makes it, beside another's and the installation's configuration, all of which hold SECRET."""
    made = root / "home" / "sessions" / key
    for path in (
        made / "work",
        made / "data",
        made / "skills" / "pdf",
        root / "home/sessions/bob",
        root / "home/session_homes" / key,
        root / "outside",
    ):
        path.mkdir(parents=True, exist_ok=True)
    for name in ("SOUL.md", "MEMORY.md", "HEARTBEATS.md", "skills/pdf/SKILL.md"):
        (made / name).write_text(f"{name} as it was\n")
    hidden = ("home/config.json", f"home/sessions/{key}/config.json", f"home/sessions/{key}/session.jsonl")
    for name in (*hidden, "home/sessions/bob/MEMORY.md", f"home/session_homes/{key}/.token", "outside/file"):
        (root / name).write_text(f"{SECRET}\n")
    return made


def everything(root: Path) -> dict[str, str]:
    """The content of every regular file below `root`, links not followed."""
    return {
        str(path.relative_to(root)): path.read_text("utf-8", "replace")
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def state(root: Path, *left_out: Path) -> dict[str, tuple[object, ...]]:
    """Every path below `root` but `left_out` and what lies below it, with what changes when it is touched: of directories the mode alone."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if Path(directory, name) not in left_out]
        for path in (os.path.join(directory, name) for name in (*names, *files)):
            now = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(now.st_mode) else ""
            same = () if stat.S_ISDIR(now.st_mode) else (now.st_ino, now.st_size, now.st_mtime_ns, target)
            found[path] = now.st_mode, *same
    return found
