"""Render JSON lines as lines for people: when, where, what, and the words.

It takes what `history`, `queue list`, `tail`, `send` and `cron list` print; of any other object it shows what it can.

Input:
  one JSON object a line
Output:
  one line an object, cut to --width columns
Exit codes:
  0   done
  65  a line is not a JSON object
Examples:
  bubbles history work | bubbles scan
  bubbles tail | bubbles scan
"""

from __future__ import annotations

import json
import time
from typing import Any

import click

from bubbles.kernel.clip import clean
from bubbles.programs import lines
from bubbles.programs.page import program


@program("scan", __doc__)
@click.option("-w", "--width", default=120, show_default=True, type=click.IntRange(min=0), help="Cut lines to so many characters; 0 for whole ones.")
def main(width: int) -> None:
    for body in lines.get():
        print(rendered(body, width), flush=True)


def rendered(body: dict[str, Any], width: int) -> str:
    """One object as a line."""
    message = body["message"] if isinstance(body.get("message"), dict) else body
    at = _first(body, "at") or _first(message, "at") or _first(body, "next", "fired_at")
    where = _first(body, "topic", "queue", "session", "turn") or _first(message, "session")
    what = _first(body, "role", "state", "kind", "last")
    line = f"{_time(at)}  {where:<24} {what:<9} {_words(body, message)}"
    line = " ".join(clean(line).replace("\n", " ⏎ ").splitlines()).rstrip()
    return line if not width or len(line) <= width else line[: width - 1] + "…"


def _first(body: dict[str, Any], *names: str) -> Any:
    return next((body[name] for name in names if isinstance(body.get(name), str | int | float) and body[name] != ""), "")


def _words(body: dict[str, Any], message: dict[str, Any]) -> str:
    kind = body.get(str(body.get("kind")))
    text = _first(message, "text", "name") or (kind if isinstance(kind, str) else "")
    if isinstance(kind, dict):
        text = _first(kind, "hint", "text", "outcome", "category") or json.dumps(kind, ensure_ascii=False)
    calls = ", ".join(f"{c.get('name')}({c.get('arguments', '')})" for c in body.get("calls", ()) if isinstance(c, dict))
    return " · ".join(part for part in (str(text), calls, _first(body, "why")) if part) or str(body.get("id", ""))


def _time(at: Any) -> str:
    """`12:40:07` today, else `2026-11-30`; both eight to ten columns wide."""
    if not isinstance(at, int | float) or isinstance(at, bool) or not 0 < at < 1e11:
        return " " * 10
    then, now = time.localtime(at), time.localtime()
    return f"{time.strftime('%H:%M:%S' if then[:3] == now[:3] else '%Y-%m-%d', then):<10}"
