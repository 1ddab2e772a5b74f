"""How a command is written: which there are, who may give them, and what of a person's text is one. Pure.

It does not know what a command does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """What is to be known of a command before it is given. `everybody`: not the owner's alone; `takes`: what follows it is an argument."""

    everybody: bool = False
    takes: bool = False


COMMANDS = {
    "help": Kind(everybody=True),
    "status": Kind(everybody=True),
    "stop": Kind(everybody=True),  # whatever stands behind it: "jobs" means those, and anything else is haste
    "retry": Kind(everybody=True),
    "new": Kind(),
    "usage": Kind(),
    "model": Kind(takes=True),
    "config": Kind(takes=True),
    "session": Kind(takes=True),
    "prompt": Kind(),
    "compact": Kind(),
    "pair": Kind(takes=True),
}
ALIASES = {"start": "help", "settings": "config", "reset": "new", "cancel": "stop"}  # what other bots have taught people; alone in a message

_WRITTEN = re.compile(  # possessive throughout: a guest's megabyte is read once
    r"""(?: <@[^<>\s]++> [\s,:，：]*+ )*+      # a mention of the bot, or several
        [/／] ([A-Za-z_]++) (?: @[\w.-]++ )?+  # in a group: /stop@bot
        [.!?,。！？，…]*+                       # as phones and hurry add
        (?: \s++ (.*+) )?+""",
    re.VERBOSE | re.DOTALL,
)
_NEAR = 0.75  # of difflib's measure


@dataclass(frozen=True, slots=True)
class Command:
    """A command of COMMANDS and what follows it. `typed`: what was written where that is only near `name`; it is told and not done."""

    name: str
    arguments: str = ""
    typed: str = ""


def parse(text: str) -> Command | None:
    """The command that a text is, None where it is words for the assistant.

    >>> parse("/config model  gpt")
    Command(name='config', arguments='model  gpt', typed='')
    >>> parse("<@bot> ／Stop!") == parse("/cancel") == parse("/stop@my_bot")
    True
    >>> parse("/etc/hosts is odd"), parse("/tmp"), parse("what is /help?"), parse("/cancel my flight")
    (None, None, None, None)
    >>> parse("/stpo")
    Command(name='stop', arguments='', typed='stpo')
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    typed = found[1].lower()
    arguments = (found[2] or "").strip()
    name = typed if arguments else ALIASES.get(typed, typed)
    if name in COMMANDS:
        return Command(name, arguments)
    near = _near(typed)
    return Command(near, arguments, typed) if near else None


def _near(typed: str) -> str:
    """The command that was meant by a word which is none; "" where it is near to none."""
    from difflib import get_close_matches  # only for those who mistype

    swapped = {typed[:n] + typed[n + 1] + typed[n] + typed[n + 2 :] for n in range(min(len(typed), 12) - 1)}
    return next((name for name in COMMANDS if name in swapped), "") or next(iter(get_close_matches(typed[:20], COMMANDS, 1, _NEAR)), "")
