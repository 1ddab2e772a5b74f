"""Print the messages of one session, oldest first.

It reads the session's file, whether or not a daemon runs. A turn is there once it has ended. Nothing is ever taken
out of a history: what a summary stands for now is printed all the same.

Input:
  nothing
Output:
  one JSON object a message: session, id, turn, at, role (user, assistant, tool, summary), text, and calls or call
  where there are any; at is when it was said, of what the assistant said and did when the turn ended
Exit codes:
  0   printed
  1   there is no such session
  78  the file is of a newer Bubbles
Examples:
  bubbles history work | bubbles scan
  bubbles history work | jq -r 'select(.role=="user").text' | sort | uniq -c
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import click

from bubbles.errors import DataError, Misconfigured
from bubbles.ids import safe
from bubbles.messages import from_line
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import named, program

_VERSION = 1


@program("history", __doc__)
@click.option("-n", "count", type=click.IntRange(min=1), help="Only the last so many messages.")
@click.argument("session", callback=named)
def main(count: int | None, session: str) -> int:
    path = Home.find().session(safe(session)) / "session.jsonl"
    try:
        with path.open("rb") as file:
            for message in deque(messages(file), maxlen=count) if count else messages(file):
                lines.put({"session": safe(session), **message})
    except FileNotFoundError:
        print(f"bubbles: there is no session {session!r}", file=sys.stderr)
        return 1
    return 0


def messages(history: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The messages of a history's lines. A damaged line is left out, as agentd leaves it out."""
    turn: list[dict[str, Any]] = []
    for line in history:
        try:
            body = from_line(line)
        except DataError:
            continue
        if "format" in body and body.get("version", _VERSION) > _VERSION:
            raise Misconfigured("this session was written by a newer Bubbles", remedy="update Bubbles")
        if "role" in body:
            turn.append(body)
        elif body.get("meta") == "turn":
            yield from _told(body, turn)
            turn = []
        elif body.get("meta") == "compaction":
            yield {"role": "summary", "text": body.get("summary", ""), "at": body.get("at")}


def _told(end: dict[str, Any], turn: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    said = deque(end.get("messages", ()))
    for n, message in enumerate(turn):
        content = str(message.get("content") or "")
        about: dict[str, Any] = {"id": f"{end['turn']}.{n}", "turn": end["turn"], "at": end.get("at"), "role": message["role"]}
        if message["role"] == "user" and said and str(said[0].get("text", "")) in content:
            yield from _words(about, said, content)
        else:
            about["text"] = content
            if calls := [{"id": c["id"], **c["function"]} for c in message.get("tool_calls", ())]:
                about["calls"] = calls
            if "tool_call_id" in message:
                about["call"] = message["tool_call_id"]
            yield about


def _words(about: dict[str, Any], said: deque[dict[str, Any]], content: str) -> Iterator[dict[str, Any]]:
    """Each person's words by themselves: the model is shown those that came together as one message, with a header each."""
    at = 0
    while said and (found := content.find(text := str(said[0].get("text", "")), at)) >= 0:
        at = found + len(text)
        message = said.popleft()
        yield {**about, "id": message.get("id"), "text": text, **{k: message[k] for k in ("at", "channel", "chat") if k in message}}
