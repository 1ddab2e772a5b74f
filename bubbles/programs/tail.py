"""Follow what the assistant is doing, as it does it.

A topic is CHANNEL/CHAT/KIND; KIND is text, text_end, tool, progress, retry, say or end. A pattern is a topic with * for
any part of it; without a pattern everything is told. What happened before is in `bubbles history`; what is missed
here is only missed.

Input:
  nothing
Output:
  one JSON object an event: topic, turn, kind, and what the kind brings
Exit codes:
  0    as many events as -n asked for
  64   a pattern that no topic can match
  130  interrupted
Examples:
  bubbles tail 'cli/*/tool' | bubbles scan
  bubbles tail '*/say' | jq -r .say.text
"""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase

import click

from bubbles.bus import is_running
from bubbles.bus.listener import Listener
from bubbles.errors import Usage
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import program

_SET = re.compile(r"\[!?\]?[^]]*\]")  # [abc] in a pattern


@program("tail", __doc__)
@click.option("-n", "count", type=click.IntRange(min=1), help="End after so many events.")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
def main(count: int | None, patterns: tuple[str, ...]) -> int:
    for pattern in patterns:
        check(pattern)
    home = Home.find()
    home.prepare()
    if is_running(home, "agentd") is None:
        print("bubbles: agentd is not running; waiting for it", file=sys.stderr)
    for topic, body in Listener(home, *(prefix(pattern) for pattern in patterns)):
        if topic.startswith("out/") or not (not patterns or any(fnmatchcase(topic, pattern) for pattern in patterns)):
            continue
        lines.put({"topic": topic, **body})
        count = count and count - 1
        if count == 0:
            return 0
    return 0


def check(pattern: str) -> None:
    """Raises Usage for a pattern that no topic can match: one would wait for ever."""
    if "[" in _SET.sub("", pattern):
        raise Usage(f"{pattern!r}: there is no ] to its [", remedy="bubbles tail '*/tool', or [[] for a [ itself")
    if "/" not in pattern and "*" not in pattern:
        raise Usage(f"no topic is like {pattern!r}: it is CHANNEL/CHAT/KIND", remedy=f"bubbles tail '*/{pattern}', or '{pattern}/*'")


def prefix(pattern: str) -> str:
    """What every topic that matches a pattern begins with.

    >>> prefix("telegram/*/tool"), prefix("*"), prefix("cli/main/say")
    ('telegram/', '', 'cli/main/say')
    """
    return re.split(r"[*?[]", pattern, maxsplit=1)[0]
