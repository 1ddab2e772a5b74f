"""Render JSON lines as lines for people: when, where, what, and the words.

The id stands before the words where something can be done by it: of messages in queues, and of jobs.

It takes what `history`, `queue list`, `tail`, `audit`, `send`, `usage --json` and `cron list` print, and the files in
usage/; of any other object it shows what it can.

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

from bubbles.kernel.clean import clean
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
    what = _first(body, "role", "state", "kind", "event", "last")
    line = f"{_time(at)}  {where:<24} {what:<9} {_words(body, message)}"
    line = " ".join(clean(line).replace("\n", " ⏎ ").splitlines()).rstrip()
    return line if not width or len(line) <= width else line[: width - 1] + "…"


def _first(body: dict[str, Any], *names: str) -> Any:
    return next((body[name] for name in names if isinstance(body.get(name), str | int | float) and body[name] != ""), "")


def _words(body: dict[str, Any], message: dict[str, Any]) -> str:
    kind = body.get(str(body.get("kind")))
    text = _first(message, "text", "name") or (kind if isinstance(kind, str) else _first(body, "message"))
    if isinstance(kind, dict):
        text = _first(kind, "hint", "text", "outcome", "category") or json.dumps(kind, ensure_ascii=False)
    text = text or _counted(body)
    asked = body.get("calls") if isinstance(body.get("calls"), list) else ()
    calls = ", ".join(f"{c.get('name')}({c.get('arguments', '')})" for c in asked or () if isinstance(c, dict))
    by_id = (_first(body, "id"), _first(body, "name")) if "queue" in body or "schedule" in body else ()  # what queue and cron want to be given
    return " · ".join(str(part) for part in (*by_id, text, calls, _first(body, "why")) if part) or str(body.get("id", ""))


def _counted(body: dict[str, Any]) -> str:
    """What models took, of one request or the sum of several."""
    counts = [count for name in ("input", "output") if isinstance(count := body.get(name), int)]
    if not counts:
        return ""
    micros, cost = body.get("cost_micros"), body.get("cost_usd")
    cost = micros / 1_000_000 if isinstance(micros, int) else cost
    requests = f"{body['requests']} requests" if "requests" in body else ""
    told = (str(_first(body, "day", "model")), requests, f"{sum(counts)} tokens", f"${cost:.4f}" if isinstance(cost, float | int) else "")
    return ", ".join(part for part in told if part)


def _time(at: Any) -> str:
    """`12:40:07` today, else `2026-11-30`; both eight to ten columns wide."""
    if not isinstance(at, int | float) or isinstance(at, bool) or not 0 < at < 1e11:
        return " " * 10
    then, now = time.localtime(at), time.localtime()
    return f"{time.strftime('%H:%M:%S' if then[:3] == now[:3] else '%Y-%m-%d', then):<10}"
