"""`bubbles agent --here`: the current directory is lent to a session's tools while a terminal is open."""

from __future__ import annotations

import contextlib
from pathlib import Path

from bubbles.programs.terminal.conversation import Conversation
from bubbles.sessions.lent import lend
from bubbles.workspace.grant import Grant


def granted(talk: Conversation, directory: Path | None) -> contextlib.AbstractContextManager[None]:
    """Lend `directory`, readable and writable; None lends nothing. Raises Misconfigured where it may not be lent."""
    return contextlib.nullcontext() if directory is None else lend(talk.home, talk.key, Grant(directory, "rw"))
