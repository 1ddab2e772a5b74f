"""Which path texts are taken, and how a name is shown so that it cannot forge a line.

It does not know what exists on disk.
"""

from __future__ import annotations

import re
import unicodedata

from bubbles.errors import ToolError

PATH_MOST = 4096  # bytes, as Linux has it
NAME_MOST = 255
_HIDDEN = re.compile(r"\.bubbles-[0-9a-f]{16}\.tmp")


def taken(path: str) -> str:
    """`path`, if it can name a file. Raises ToolError for NUL, lone surrogates, the empty text and lengths that no kernel takes."""
    if not path:
        raise ToolError("the path is empty", remedy="give a path such as notes.md (it starts at work/)")
    if "\0" in path:
        raise ToolError("the path holds a NUL character")
    try:
        encoded = path.encode()
    except UnicodeEncodeError as error:
        raise ToolError("the path is not valid Unicode text") from error
    if len(encoded) > PATH_MOST or any(len(part) > NAME_MOST for part in encoded.split(b"/")):
        raise ToolError(f"the path is too long (at most {NAME_MOST} bytes a name and {PATH_MOST} in all)")
    return path


def is_litter(name: str) -> bool:
    """Whether `name` is that of a half-written file of ours."""
    return _HIDDEN.fullmatch(name) is not None


def shown(name: str) -> str:
    r"""`name` with everything escaped that could end a line, move a cursor, or hide.

    >>> shown("a\n[ok]\x1b[2J")
    'a\\n[ok]\\x1b[2J'
    >>> shown("caf\u00e9 \u4e2d\u6587 \u202etxt \udcff")
    'café 中文 \\u202etxt \\xff'
    """
    if name.isascii() and name.isprintable() and "\\" not in name:
        return name
    return "".join(map(_shown, name))


def _shown(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8, as os.fsdecode tells it
        return f"\\x{ord(char) - 0xDC00:02x}"
    if char == "\\" or not char.isprintable() or unicodedata.category(char) in ("Cf", "Zl", "Zp"):
        return char.encode("unicode_escape").decode()
    return char
