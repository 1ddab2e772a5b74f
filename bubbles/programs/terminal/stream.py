"""A turn's parts as they come, turned into finished pieces to print and a piece that is still growing.

It does not know the terminal. Parts may be missed; what the turn *said* is told again by the `say` part and at the
end, so the sum of what is printed is right whichever of them arrive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["text", "tool", "failed", "note", "notice", "answer"]
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)(.*)$")


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to print. `text` is Markdown where the kind is "text", and plain otherwise; "answer": a command's."""

    kind: Kind
    text: str


@dataclass(slots=True)
class Stream:
    """What one turn shows. `growing` is text that has come and is not a finished piece yet; `doing` what is waited for, "" for the model."""

    growing: str = ""
    doing: str = ""
    says: int = 0
    _streamed: str = ""  # since the last boundary, printed or not
    _running: dict[str, int] = field(default_factory=dict)

    def take(self, part: dict[str, Any]) -> list[Piece]:
        """The pieces that this part finishes."""
        if "text" in part:
            return self._text(str(part["text"]))
        if "say" in part:
            return self._say(str(part["say"]["text"]))
        if "tool" in part:
            return self._tool(part["tool"])
        if "retry" in part:
            self.growing = self._streamed = ""
            return [Piece("note", _retrying(part["retry"]))]
        if "waits" in part:
            return [Piece("note", no_room(part["waits"]))]
        if "text_end" in part:
            return self.flush()
        if "progress" in part:
            self.doing = str(part["progress"].get("text", ""))
        return []

    def flush(self) -> list[Piece]:
        """What is growing, as a finished piece: something else follows."""
        rest, self.growing, self._streamed = self.growing.strip("\n"), "", ""
        return [Piece("text", rest)] if rest.strip() else []

    def end(self, body: dict[str, Any]) -> list[Piece]:
        """The last pieces, given the reply of `turn.wait`."""
        text, outcome = str(body.get("text") or ""), str(body.get("outcome"))
        self.doing = ""
        if outcome == "command":
            return [*self.flush(), *([Piece("answer", text)] if text else [])]
        if outcome == "replied":
            return self._say(text) if not self.says else self.flush()
        remedy = f"\n  try: {body['remedy']}" if body.get("remedy") else ""
        return [*self.flush(), Piece("notice", text + remedy) if text else Piece("note", unanswered(outcome) + remedy)]

    def _text(self, delta: str) -> list[Piece]:
        self.growing += delta
        self._streamed += delta
        done, self.growing = split(self.growing)
        return [Piece("text", block) for block in done]

    def _say(self, text: str) -> list[Piece]:
        self.says += 1
        if not self._streamed.strip():
            self.growing = self._streamed = ""
            missing = text
        elif text.strip().startswith(self._streamed.strip()):
            missing = self.growing + text.strip()[len(self._streamed.strip()) :]
        else:  # parts were missed in the middle: say it again, whole
            missing = text
        self.growing = missing
        return self.flush()

    def _tool(self, tool: dict[str, Any]) -> list[Piece]:
        hint = str(tool.get("hint") or tool.get("name") or "a tool")
        if tool.get("state") == "start":
            self._running[hint] = self._running.get(hint, 0) + 1
            self.doing = hint
            return [*self.flush(), Piece("tool", hint)]
        self._running.pop(hint, None)
        self.doing = next(iter(self._running), "")
        return [] if tool.get("ok", True) else [Piece("failed", hint)]


def unanswered(outcome: str) -> str:
    """What is said of a turn that brought neither a reply nor a notice: its notice came a moment ago, or it had nothing to say."""
    return f"no answer ({outcome.replace('failed:', '').replace('_', ' ')})"


def _retrying(retry: dict[str, Any]) -> str:
    why = str(retry.get("category", "failed")).replace("_", " ")
    return f"the model: {why}; asking again in {float(retry.get('in_s') or 0):.0f} s"


def no_room(waits: dict[str, Any]) -> str:
    """Why words wait, in a sentence."""
    return f"{waits.get('most')} messages wait here already; this one is kept, and comes in when there is room"


def split(text: str) -> tuple[list[str], str]:
    """The blocks of Markdown that are whole, and the rest. A block ends at a blank line that is in no fence and not inside a list item.

    >>> split("one\\n\\ntwo")
    (['one'], 'two')
    >>> split("```\\na\\n\\nb\\n```\\n")
    ([], '```\\na\\n\\nb\\n```\\n')
    """
    done: list[str] = []
    start = 0
    for end in _ends(text):
        block = text[start:end].strip("\n")
        if block:
            done.append(block)
        start = end
    return done, text[start:]


def _ends(text: str) -> Iterator[int]:
    """Offsets at which a new block begins."""
    fence = ""
    after_blank = False
    offset = 0
    for line in text.splitlines(keepends=True):
        whole = line.endswith("\n")
        if not fence and after_blank and line.strip() and not line[0].isspace():
            yield offset
        found = _FENCE.match(line) if whole else None
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not found[2].strip():
            fence = ""
        after_blank = whole and not line.strip()
        offset += len(line)
