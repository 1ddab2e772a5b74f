"""What a GGUF file says of its model: the window it was trained for, and whether its chat template knows tools.

It looks for the two keys rather than reading all before them: a vocabulary stands in between.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from bubbles.errors import Rejected

_HEAD = 128 << 20  # bytes in which the keys are looked for
_UINT32, _STRING, _UINT64 = 4, 8, 10
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Traits:
    """`window_tokens` 0: the file does not say."""

    window_tokens: int = 0
    tools: bool = False


def traits(path: Path) -> Traits:
    """The traits of a model file. Raises Rejected, with what to do, where there is none or it is not GGUF."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            if held[:4] != b"GGUF":
                raise Rejected(f"{path} is not a GGUF file", remedy="bubbles models fetch", attempts=0)
            return Traits(_number(held, b".context_length"), b"tool" in _string(held, b"tokenizer.chat_template"))
    except FileNotFoundError:
        raise Rejected(f"there is no model file {path}", remedy="bubbles models fetch", attempts=0) from None
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise Rejected(f"{path} cannot be read: {error}", remedy="bubbles models fetch", attempts=0) from error


def _after(held: mmap.mmap, key: bytes) -> int:
    """Where the type of a key's value stands; -1 if the key is not there."""
    at = held.find(key, 0, _HEAD)
    return at + len(key) if at >= 0 else -1


def _number(held: mmap.mmap, key: bytes) -> int:
    at = _after(held, key)
    head = held[at : at + 12] if at >= 0 else b""
    if len(head) < 12:
        return 0
    kind = struct.unpack_from("<I", head)[0]
    formats = {_UINT32: "<I", _UINT64: "<Q"}
    return int(struct.unpack_from(formats[kind], head, 4)[0]) if kind in formats else 0


def _string(held: mmap.mmap, key: bytes) -> bytes:
    at = _after(held, key)
    head = held[at : at + 12] if at >= 0 else b""
    if len(head) < 12:
        return b""
    kind, size = struct.unpack("<IQ", head)
    return held[at + 12 : at + 12 + min(size, _LONGEST)] if kind == _STRING else b""
