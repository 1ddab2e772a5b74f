"""What is typed at a terminal that concerns the terminal alone, and what has to be added to a command before it is sent.

It does not know what commands there are: each goes to agentd as words do, and is answered there as in any chat.
"""

from __future__ import annotations

import os
import re

from bubbles.agentd.spelling import parse

_LEAVE = frozenset({"exit", "quit", "/exit", "/quit"})
_WORKSPACE = re.compile(r"(workspaces?\s+(?:add|remove)\s+)(?![/~])(\S.*)", re.DOTALL | re.IGNORECASE)


def local(text: str) -> tuple[str, str] | None:
    """("exit", "") or ("session", NAME) where a line is for the terminal itself; None where it is to be sent.

    >>> local(" quit "), local("/session work"), local("/session"), local("exit the loop early")
    (('exit', ''), ('session', 'work'), None, None)
    """
    if text.strip().lower() in _LEAVE:
        return "exit", ""
    found = parse(text)
    if found is not None and not found.typed and found.name == "session" and found.arguments:
        return "session", found.arguments
    return None


def sent(text: str) -> str:
    """A line as it is sent: agentd does not know the directory that a path was typed in.

    >>> sent("/config workspace add /srv/site rw"), sent("words about workspace add x")
    ('/config workspace add /srv/site rw', 'words about workspace add x')
    """
    found = parse(text)
    if found is None or found.typed or found.name != "config":
        return text
    relative = _WORKSPACE.fullmatch(found.arguments)
    return f"/config {relative[1]}{os.path.abspath('.')}/{relative[2]}" if relative else text


def is_command(text: str) -> bool:
    """Whether a line is answered at once, and not by a turn."""
    return parse(text) is not None


def is_help(text: str) -> bool:
    found = parse(text)
    return found is not None and not found.typed and found.name == "help"
