"""Print the messages of one session, oldest first.

It reads the session's file, whether or not a daemon runs. A turn is there once it has ended. Nothing is ever taken
out of a history: what a summary stands for now is printed all the same.

Every line has a cursor. --after prints what came after the line with that cursor: who asks again and again, each time
with the last cursor that was printed, gets everything once. An empty cursor is the beginning.

Input:
  nothing
Output:
  one JSON object a message: session, id, turn, at, role, text, calls or call where there are any, and cursor; role is
  user, assistant, tool, summary, heard (said near the assistant, not to it) or mark (where a person began anew); at is
  when it was said, of what the assistant said and did when the turn ended
Exit codes:
  0   printed, if there was anything
  1   there is no such session
  65  the history does not hold what the cursor stands for, or cannot be read
  78  the file is of a newer Bubbles
Examples:
  bubbles history work | bubbles scan
  bubbles history work | jq -r 'select(.role=="user").text' | sort | uniq -c
  bubbles history work --after "$cursor" > new && cursor=$(tail -n 1 new | jq -r .cursor)
"""

from __future__ import annotations

import shlex
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import click

from bubbles import regular
from bubbles.errors import DataError, Misconfigured, Usage
from bubbles.ids import safe
from bubbles.messages import from_line
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.cursor import Cursor, after
from bubbles.programs.page import named, program

_VERSION = 1
_READ_AT_ONCE = 1 << 20  # bytes: a tail that agentd cuts off meanwhile has been read whole, or is not seen


@program("history", __doc__)
@click.option("-n", "count", type=click.IntRange(min=1), help="Only the last so many messages.")
@click.option("--after", "cursor", metavar="CURSOR", help="Only what came after the line with this cursor.")
@click.argument("session", callback=named)
def main(count: int | None, cursor: str | None, session: str) -> int:
    if count and cursor is not None:
        raise Usage("-n would leave out what --after is to tell", remedy="bubbles history SESSION --after CURSOR | head -n COUNT")
    wanted = Cursor.parse(cursor) if cursor else None
    path = Home.find().session(safe(session)) / "session.jsonl"
    try:
        with open(path, "rb", buffering=_READ_AT_ONCE, opener=regular.opened) as file:
            _check(file.readline())
            found = after(file, wanted, told, remedy=f"bubbles history {session}, which begins at the beginning")
            for place, message in deque(found, maxlen=count) if count else found:
                lines.put({"session": safe(session), **message, "cursor": str(place)})
    except FileNotFoundError:
        print(f"bubbles: there is no session {session!r}\n  try: {_instead(Home.find(), session)}", file=sys.stderr)
        return 1
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", remedy=shlex.join(["ls", "-l", str(path)])) from error
    return 0


def _instead(home: Home, session: str) -> str:
    """What to call for: the session that was meant, or else the last one."""
    import difflib  # only for those who mistype

    names = [path.parent.name for path in sorted(home.sessions.glob("*/session.jsonl"), key=lambda path: path.stat().st_mtime)]
    meant = difflib.get_close_matches(safe(session), names, 1) or names[-1:]
    return f"bubbles history {meant[0]}" if meant else "bubbles agent, which begins one"


def _check(header: bytes) -> None:
    """Raises Misconfigured where the first line of a history says that it is a newer one."""
    body = _parsed(header) or {}
    version = body.get("version")
    if "format" in body and isinstance(version, int) and version > _VERSION:
        raise Misconfigured("this session was written by a newer Bubbles", remedy="update Bubbles")


def messages(history: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The messages of a history's lines."""
    return (message for _, message in told(history))


def told(history: Iterable[bytes], start: int = 0) -> Iterator[tuple[Cursor, dict[str, Any]]]:
    """The messages of a history's lines, which begin at byte `start`, with their places.

    A damaged line is left out, as agentd leaves it out. A turn whose end line is not written whole is not there yet.
    """
    turn: list[dict[str, Any]] = []
    at, n = start, 0
    for line in history:
        if not line.endswith(b"\n"):
            break
        at += len(line)
        body = _parsed(line)
        if body and "role" in body:
            turn.append(body)
        elif body:
            for message in _of(body, turn):
                yield Cursor.of(start, n, body, line), message
                n += 1
            if body.get("meta") == "turn":
                turn = []
        if not turn:
            start, n = at, 0


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        return from_line(line)
    except DataError:
        return None


def _of(meta: dict[str, Any], turn: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a line that is no message tells of: those of the turn that it ends, or one of its own, or none."""
    match meta.get("meta"):
        case "turn":
            yield from _ended(meta, turn)
        case "compaction":
            yield {"role": "summary", "text": meta.get("summary", ""), "at": meta.get("at")}
        case "heard":
            yield {"role": "heard", **{k: meta[k] for k in ("id", "text", "at", "channel", "chat") if k in meta}}
        case "new":
            yield {"role": "mark", "text": "new", "at": meta.get("at")}


def _ended(end: dict[str, Any], turn: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
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
