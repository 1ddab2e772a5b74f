"""`bubbles agent --here`: the current directory is lent to a session's tools while a terminal is open.

A terminal that was killed leaves a note of what it lent; the next one in that session takes it back.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bubbles.programs.terminal.conversation import Conversation
from bubbles.workspace.grant import Grant


@contextmanager
def granted(talk: Conversation, directory: Path | None) -> Iterator[None]:
    """Lend `directory`, readable and writable; None lends nothing. Raises Misconfigured where it may not be lent."""
    _take_back_forgotten(talk)
    if directory is not None:
        directory = Grant(directory, "rw").check(talk.home.root)
    if directory is None or not _lend(talk, str(directory)):
        yield
        return
    note = _notes(talk) / f"{talk.key}.here-{os.getpid()}"
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    note.write_text(json.dumps(str(directory)))
    try:
        yield
    finally:
        _take_back(talk, str(directory))
        note.unlink(missing_ok=True)


def _notes(talk: Conversation) -> Path:
    return talk.home.root / "channels" / "cli"


def _lend(talk: Conversation, directory: str) -> bool:
    """False where it is the session's already."""
    grant = {"path": directory, "mode": "rw"}
    held = talk.call("session.show", {"session": talk.key})["settings"]["workspaces"]
    if grant in held:
        return False
    _set(talk, [*(g for g in held if g["path"] != directory), grant])
    return True


def _take_back(talk: Conversation, directory: str) -> None:
    shown = talk.call("session.show", {"session": talk.key})
    own = shown["overrides"].get("workspaces")
    if own is not None:
        left = [g for g in own if g["path"] != directory]
        _set(talk, left or None)


def _set(talk: Conversation, grants: list[dict[str, Any]] | None) -> None:
    talk.call("session.set", {"session": talk.key, "key": "workspaces", "value": grants})


def _take_back_forgotten(talk: Conversation) -> None:
    for note in _notes(talk).glob(f"{talk.key}.here-*"):
        if not _alive(int(note.name.rpartition("-")[2])):
            with contextlib.suppress(ValueError):
                _take_back(talk, str(json.loads(note.read_text())))
            note.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
