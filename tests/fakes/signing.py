"""What vendors sign their models' reasoning with, so that nobody gives back another."""

from __future__ import annotations

import base64
import hashlib
from typing import Any


def signature(text: str) -> str:
    """What a vendor signs its reasoning with; as long as real ones are, and known again without the reasoning."""
    return _signed(hashlib.sha256(text.encode()).digest())


def is_signature(found: Any) -> bool:
    """Whether it is one that was made here, in either alphabet of base64."""
    if not isinstance(found, str):
        return False
    found = found.translate(str.maketrans("-_", "+/"))
    try:
        data = base64.b64decode(found, validate=True)
    except ValueError:
        return False
    return bool(found == _signed(data[:32]))


def _signed(digest: bytes) -> str:
    return base64.b64encode(digest + b"".join(hashlib.sha256(bytes([n]) + digest).digest() for n in range(8))).decode()
