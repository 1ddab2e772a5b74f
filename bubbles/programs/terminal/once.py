"""One question and its answer, without an event loop: what `bubbles agent -m` and `bubbles ask` do."""

from __future__ import annotations

import os
import sys
from typing import Any

from bubbles.errors import CONFIG
from bubbles.kernel.clean import clean
from bubbles.programs.terminal.conversation import Conversation
from bubbles.programs.terminal.seen import Seen

_NOT_SET_UP = "failed:not_set_up"
_ANSWERED = ("replied", "command")


def ask(talk: Conversation, text: str, *, live: bool) -> int:
    """Say `text`, print what is said to it (`live`: as it comes), and return 0. A command's answer is printed likewise.

    Where no answer came, print why and what to do to standard error, and return 78 if that is to set up a model, else 1.
    """
    seen = Seen(talk.home, talk.key)
    nothing_missed = seen.mark == seen.size
    message = talk.put(text)
    try:
        body = _answered(talk, message, live)
        if body["outcome"] == "command" and (again := talk.follow_up(message)):
            body = _answered(talk, again, live)
    except KeyboardInterrupt:
        talk.stop(message)
        raise
    if nothing_missed:
        seen.up_to(seen.size)
    if body["outcome"] in _ANSWERED:
        return 0
    print(f"bubbles: {body.get('text') or _unanswered(body['outcome'])}", file=sys.stderr)
    if body.get("remedy"):
        print(f"  try: {body['remedy']}", file=sys.stderr)
    return CONFIG if body["outcome"] == _NOT_SET_UP else 1


def _unanswered(outcome: str) -> str:
    from bubbles.programs.terminal.stream import unanswered

    return unanswered(outcome)


def _answered(talk: Conversation, message: str, live: bool) -> dict[str, Any]:
    return _shown(talk, message) if live else _printed(talk, message)


def _printed(talk: Conversation, message: str) -> dict[str, Any]:
    """For a pipe: each reply as it was said, and nothing else."""
    body = talk.wait(message, said := _Said(), stream=False)
    if body["outcome"] in _ANSWERED and not said.count and (body["text"] or body["outcome"] == "replied"):
        said({"say": {"text": body["text"]}})
    return body


class _Said:
    """Prints replies. A part is told twice where a daemon was restarted in between; a reply is printed once."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, part: dict[str, Any]) -> None:
        if "waits" in part:
            from bubbles.programs.terminal.stream import no_room  # only for those who have to wait

            print(f"bubbles: {no_room(part['waits'])}", file=sys.stderr, flush=True)
        say = part.get("say")
        if say is not None and say.get("n", self.count) >= self.count:
            self.count = int(say.get("n", self.count)) + 1
            print(clean(str(say["text"])), flush=True)


def _shown(talk: Conversation, message: str) -> dict[str, Any]:
    """For a terminal: text block by block as it comes, and on standard error what is done meanwhile."""
    import shutil

    from bubbles.programs.terminal.markdown import dim, render
    from bubbles.programs.terminal.stream import Piece, Stream

    stream = Stream()
    columns, colour = shutil.get_terminal_size().columns, not os.environ.get("NO_COLOR")

    def show(pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.kind == "answer":
                print(clean(piece.text), flush=True)
            elif piece.kind == "text":
                print(render(piece.text, columns, colour=colour), flush=True)
            else:
                print(dim(piece.text) if colour else clean(piece.text), file=sys.stderr)

    body = talk.wait(message, lambda part: show(stream.take(part)), stream=True)
    show([piece for piece in stream.end(body) if piece.kind in ("text", "answer")])  # the caller tells why there is no answer
    return body
