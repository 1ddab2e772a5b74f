"""What a person may type that is no message: the slash commands of the interactive terminal, `exit` and `quit`."""

from __future__ import annotations

import json
import re
from typing import Any

# name: (arguments, what it does)
COMMANDS = {
    "session": ("[NAME]", "speak in the session NAME, or say which one this is"),
    "config": ("[KEY [VALUE]]", "this session's settings; VALUE - takes one back"),
    "prompt": ("", "print the system prompt and the tools as the model gets them"),
    "compact": ("", "let a summary stand for what was said so far"),
    "stop": ("", "stop the running turn (Ctrl-C does, too)"),
    "help": ("", "print this"),
    "exit": ("", "leave (so do exit, quit and Ctrl-D)"),
}
_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)
_KEYS = """\
Enter sends, Alt-Enter begins a new line. What you type while a turn runs joins it.
Ctrl-C stops the turn, Ctrl-R looks for earlier words, Tab completes a command."""


def parse(text: str) -> tuple[str, str] | None:
    """The command that a line is, and its arguments; None where it is a message.

    >>> parse("/config model  gpt")
    ('config', 'model  gpt')
    >>> parse("quit"), parse("/etc/passwd: what is it?"), parse("exit the loop early")
    (('exit', ''), None, None)
    """
    text = text.strip()
    if text in ("exit", "quit", "/quit"):
        return "exit", ""
    found = _COMMAND.fullmatch(text)
    return (found[1], (found[2] or "").strip()) if found else None


def overview() -> str:
    """The text of /help."""
    return "\n".join([*(f"  {f'/{name} {arguments}':<23} {what}" for name, (arguments, what) in COMMANDS.items()), "", _KEYS])


def settings(shown: dict[str, Any], key: str = "") -> str:
    """The text of /config: what `session.show` answered, one setting a line, those marked that are this session's own."""
    own = shown["overrides"]
    lines = [
        f"  {name:<14} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" + ("   (this session)" if name in own else "")
        for name, value in shown["settings"].items()
        if key in ("", name)
    ]
    if shown.get("lent") and key in ("", "workspaces", "lent"):
        lines.append(f"  {'lent':<14} {json.dumps(shown['lent'], ensure_ascii=False)}   (while a terminal with --here is open)")
    return "\n".join(line.rstrip() for line in lines)


def compacted(done: dict[str, Any]) -> str:
    """The text of /compact: what `session.compact` answered."""
    if done.get("how") == "nothing":
        return "  there is nothing to summarise yet"
    return f"  {done['before_tokens']} tokens before, {done['after_tokens']} now"
