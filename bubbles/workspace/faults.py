"""What the system refuses, told to the model: which path, why, and what would be right."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from bubbles.errors import OutsideWorkspace, Refused, ToolError
from bubbles.workspace.names import shown

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TEXTS = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "does not exist: a part of the path is not a directory, or a link that is not followed",
    errno.EISDIR: "is a directory",
    errno.ELOOP: "is a link that leads nowhere, in a circle, or out of the workspace",
    errno.ENXIO: "is not a regular file",
    errno.ENAMETOOLONG: "has too long a name",
    errno.EAGAIN: "is being changed by another program; nothing was done, try again",
    errno.ESTALE: "was changed by another program meanwhile; nothing was done, read it and try again",
}
_DENIED = {errno.EACCES: "no permission", errno.EPERM: "no permission", errno.EROFS: "the file system is read-only"}


@contextlib.contextmanager
def told(path: str, allowed: str) -> Iterator[None]:
    """Turn an OSError about `path` into the ToolError that tells of it; `allowed` says what may be reached."""
    try:
        yield
    except OSError as error:
        raise _fault(shown(path), error, allowed) from error


def _fault(path: str, error: OSError, allowed: str) -> ToolError:
    code = error.errno or 0
    if code == errno.EXDEV:
        return OutsideWorkspace(f"{path} leads outside the workspace", remedy=f"allowed: {allowed}")
    if code in _FULL:
        return ToolError(f"{path} was not written: {os.strerror(code)}; what was there is unchanged", remedy="free some space, then try again")
    if code in _DENIED:
        return Refused(f"{path}: {_DENIED[code]}")
    return ToolError(f"{path} {_TEXTS[code]}" if code in _TEXTS else f"{path}: {error.strerror or error}")
