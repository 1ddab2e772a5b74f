"""Names that are safe as file names, made from names that are not.

It does not know what a name stands for. `safe` never refuses one and is idempotent: what it made stands for itself. Two
names meet only where one is what it made of the other, or where 48 bits of SHA-256 agree.
"""

from __future__ import annotations

import hashlib
import os
import re
import time

_MOST = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def safe(name: str) -> str:
    """`name` as a file name: itself where it is one already, else at most 80 safe bytes of it, "-" and 12 hex of its SHA-256.

    >>> safe("telegram-8841")
    'telegram-8841'
    >>> safe("a/b")
    'a_b-c14cddc033f6'
    >>> safe("../..") != safe("..") and "/" not in safe("../..")
    True
    """
    kept = _UNSAFE.sub("_", name).lstrip(".-")
    if kept == name and 0 < len(kept) <= _MOST + 13:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{kept[:_MOST] or '_'}-{digest}"


def session_key(channel: str, chat: str) -> str:
    """The key of the session that a chat has in session mode `channel`. In the terminal a chat *is* a session's name."""
    return safe(chat) if channel == "cli" else safe(f"{channel}-{chat}")


def fresh(prefix: str) -> str:
    """A new id that sorts by time: `prefix-<13 digits of ms>-<8 hex>`."""
    return f"{prefix}-{time.time_ns() // 1_000_000:013d}-{os.urandom(4).hex()}"
