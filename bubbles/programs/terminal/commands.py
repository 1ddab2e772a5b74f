"""What a person may type that is no message: the slash commands of the interactive terminal, `exit` and `quit`."""

from __future__ import annotations

import os
import re
from typing import Any

from bubbles.errors import Usage
from bubbles.programs.lines import rendered

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
/config workspace add PATH [rw] grants this session a directory; remove PATH undoes it.
Ctrl-C stops the turn, Ctrl-Z suspends, Ctrl-R finds earlier words, Tab completes."""


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
        f"  {name:<14} {value if isinstance(value, str) else rendered(value)}" + ("   (this session)" if name in own else "")
        for name, value in shown["settings"].items()
        if key in ("", name)
    ]
    if shown.get("lent") and key in ("", "workspaces", "lent"):
        lines.append(f"  {'lent':<14} {rendered(shown['lent'])}   (while a terminal with --here is open)")
    return "\n".join(line.rstrip() for line in lines)


def workspaces(shown: dict[str, Any], text: str) -> list[dict[str, str]]:
    """The session's own list after `add PATH [ro|rw]` or `remove PATH`, given what `session.show` answered. Raises Usage.

    It begins empty: the owner's list is not copied, because what the owner takes back there would stay here.
    """
    verb, _, rest = text.strip().partition(" ")
    path, mode = _path(rest)
    own = [dict(grant) for grant in shown["overrides"].get("workspaces") or ()]
    if verb not in ("add", "remove") or not path or (verb == "remove" and mode):
        raise Usage("a workspace is added or removed", remedy="/config workspace add PATH [rw], or /config workspace remove PATH")
    left = [grant for grant in own if _real(grant["path"]) != _real(path)]
    if verb == "add":
        return [*left, {"path": path, "mode": mode or "ro"}]
    if len(left) == len(own):
        owners = any(_real(grant["path"]) == _real(path) for grant in shown["settings"]["workspaces"])
        raise Usage(
            f"{path} is no workspace of this session's own",
            remedy="remove it from tools.workspaces in config.json" if owners else "/config workspaces",
        )
    return left


def set_aside(shown: dict[str, Any]) -> str:
    """What has to be said where a session had no list of its own, and gets one: then the owner's does not count there. "" where nothing."""
    owners = [str(grant["path"]) for grant in shown["settings"]["workspaces"]]
    if "workspaces" in shown["overrides"] or not owners:
        return ""
    return f"  this session has a list of its own now; that of config.json ({', '.join(owners)}) counts here\n  again after: /config workspaces -"


def _path(text: str) -> tuple[str, str]:
    """A path, made absolute, and the mode behind it, "" where none is."""
    found = re.fullmatch(r"(.*?)(?:\s+(ro|rw))?", text.strip(), re.DOTALL)
    path, mode = (found[1], found[2] or "") if found else ("", "")
    return os.path.abspath(os.path.expanduser(path)) if path else "", mode


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def compacted(done: dict[str, Any]) -> str:
    """The text of /compact: what `session.compact` answered."""
    if done.get("how") == "nothing":
        return "  there is nothing to summarise yet"
    return f"  {done['before_tokens']} tokens before, {done['after_tokens']} now"
