"""Where a command starts: in the session's work/, or where it was asked to, inside what the session has.

It does not know which backend asks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from bubbles.errors import OutsideWorkspace, ToolError
from bubbles.workspace import Grant


def start(cwd: Path | None, session: Path, grants: Sequence[Grant]) -> Path:
    """The directory that a command starts in; None: work/. Raises ToolError where it is none, OutsideWorkspace where the session does not have it."""
    work = session / "work"
    if cwd is None and _is_directory(work):
        return work  # nothing that could lead out of the session
    try:
        if cwd is None and not work.is_symlink():
            work.mkdir(mode=0o700, exist_ok=True)
        real = Path(os.path.realpath(cwd or work, strict=True))
    except OSError as error:
        raise ToolError(f"{cwd or work} is not a directory: {error.strerror}") from error
    roots = [Path(os.path.realpath(root)) for root in (str(session), *(os.path.expanduser(str(grant.path)) for grant in grants))]
    if not any(real.is_relative_to(root) for root in roots):
        raise OutsideWorkspace(f"{cwd or work} is outside the workspace", remedy=f"allowed: {', '.join(map(str, roots))}")
    return real


def _is_directory(path: Path) -> bool:
    """Whether `path` is a directory and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
