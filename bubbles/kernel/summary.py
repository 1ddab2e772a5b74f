"""What stands for a stretch of history: a model's summary, and beside it what wears away when a summary is summarised again.

What people laid down, which files were touched, and names and numbers are copied by rule from the messages themselves, and merged
from one compaction into the next; no model can lose or invent them. It does not know who asks the model, nor files.

The model's part is plain text under headings (`prompt.SUMMARY_REQUEST`), not JSON: all that must be exact is copied here, so there is no field that
a program would read; a small model breaks JSON often, cut off at its limit any model does, and what is broken would be a summary lost,
where text without a heading is still one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bubbles.kernel import prompt
from bubbles.kernel.canonical import Message, parsed
from bubbles.kernel.clip import clip
from bubbles.kernel.weight import tokens

HEAD = "[Summary of the conversation before this point]\n"
MARK = "[Copied from the messages themselves, not summarised. It tells what was said, and is no new request:]"
END = "[end of what was copied]"
KEPT_TOKENS = 2400  # of all that is copied
_SHARES = (("read", 0.1), ("changed", 0.15), ("names", 0.3), ("wishes", 0.45))  # what one leaves is the next one's
_TITLES = {
    "wishes": "What people laid down, in their words:",
    "changed": "Files changed:",
    "read": "Files read:",
    "names": "Names, addresses and numbers that came up:",
}
_OVER = 2  # times what a summary may measure: from there on it is none
_SENTENCE_MOST, _NAME_MOST, _PATH_MOST = 300, 160, 300  # characters
_READS, _CHANGES = frozenset({"read_file", "list_dir"}), frozenset({"write_file", "edit_file"})

_STAMP = re.compile(r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (\d{4}-\d\d-\d\d) [^·]*· [^·]*(?:· (.*))?\]")  # its day, and who
_EDITED = re.compile(r"\[(\S+) was edited\. It now reads:\]")
_NOTES = re.compile(r"\[((?:SOUL|MEMORY)\.md) was edited\. It now reads:\]\n.*?\n\[end of \1\]\n", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])")
_LAID_DOWN = re.compile(
    r"\b(always|never|from now on|do(?:n't| not)|must(?:n't)?|make sure|remember|whenever|every time|by default|prefer|no longer|only use|please use"
    r"|call me|my name is|i (?:want|need|like|hate)|the rule|rules?:|immer|nie|niemals|ab jetzt|bitte|siempre|nunca|toujours|jamais)\b"
    r"|以后|总是|永远|不要|别再|必须|务必|记住|记得|请用|一律|每次|禁止|只能|叫我|我叫|不许|千万|从现在起",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"https?://[^\s<>\"'`）)\]，。]+"
    r"|[\w.+-]+@[\w-]+\.[\w.-]*\w"
    r"|(?:~|\.{1,2})?/[\w.@%+-]+(?:/[\w.@%+-]+)*"
    r"|\b[\w-]{2,}(?:/[\w.-]+)*\.[A-Za-z]{1,5}\d?\b"
    r"|\b(?=[\w-]*[A-Za-z])(?=[\w-]*\d)[\w-]{5,}\b"
    r"|\b\d[\d.:/-]{3,}\d\b",
    re.ASCII,
)
_ERROR = re.compile(r"\s*(\{\s*\"error\"|<!doctype|<html|(api )?error\b[: ])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is copied, the newest last: sentences in which people laid something down, paths, and names. All are texts of one line."""

    wishes: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, body: Any) -> Kept:
        """From what `body` gave; what a hand has made of it is passed over."""
        found = body if isinstance(body, dict) else {}
        return cls(**{name: tuple(one for one in _list(found.get(name)) if isinstance(one, str)) for name in cls.__slots__})

    @property
    def body(self) -> dict[str, list[str]]:
        """As it stands in a history."""
        return {name: list(values) for name, values in asdict(self).items() if values}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def room(source_tokens: int, before: Any = None) -> int:
    """The tokens that may be copied beside a summary of a source of so many: a third, and no less than there were for what was copied `before`.

    Else a short stretch that is summarised would push out what a long one had kept.
    """
    had = before.get("room") if isinstance(before, dict) else 0
    return min(KEPT_TOKENS, max(source_tokens // 3, had if isinstance(had, int) else 0))


def gather(messages: Sequence[Message], before: Kept = Kept(), room_tokens: int = KEPT_TOKENS) -> Kept:
    """What is to be copied from canonical messages, after what was copied `before`: of each kind the newest, within its share of the room."""
    found: dict[str, dict[str, None]] = {name: dict.fromkeys(getattr(before, name)) for name in Kept.__slots__}
    for message in messages:
        if message["role"] == "user":
            _words(str(message["content"]), found)
        elif message["role"] == "assistant":
            _note(found["names"], _names(str(message["content"])))
            for call in message.get("tool_calls", ()):
                _touched(call["function"], found)
    for path in found["changed"]:
        found["read"].pop(path, None)
    kept: dict[str, tuple[str, ...]] = {}
    left = 0.0
    for name, share in _SHARES:
        left += room_tokens * share
        kept[name] = _newest(found[name], int(left))
        left -= sum(_weight(value) for value in kept[name])
    return Kept(**kept)


def _words(content: str, found: dict[str, dict[str, None]]) -> None:
    who, skipped = "", ""
    for line in own_words(content).split("\n"):
        if skipped:
            skipped = "" if line == skipped else skipped
        elif stamp := _STAMP.fullmatch(line):
            who = ", ".join(filter(None, (stamp[1], stamp[2])))
        elif edit := _EDITED.fullmatch(line):
            skipped = f"[end of {edit[1]}]"  # SOUL.md and MEMORY.md are told from their files
        elif not line.startswith(("[", "| ")):  # the second is what a command printed, quoted in the message of its end
            _note(found["names"], _names(line))
            for sentence in _SENTENCE.split(line):
                if _LAID_DOWN.search(sentence):
                    _wish(found["wishes"], who, prompt.line(sentence, _SENTENCE_MOST))


def own_words(content: str) -> str:
    """What people said in a user's message: without the summary, and what was copied beside it, that may stand at its head."""
    return content[len(_summary_of(content)) :]


def _summary_of(content: str) -> str:
    """Of a user's message the summary at its head, with what was copied beside it; "" where there is none.

    No line of it is a stamp, so it ends before the first one at the latest: what people write below theirs ends it nowhere else.
    """
    if not content.startswith(HEAD):
        return ""
    stamp = re.search(rf"^{_STAMP.pattern}$", content, re.MULTILINE)
    before = content[: stamp.start()] if stamp else content
    own, end, _ = before.partition(f"\n{END}")
    return own + end if end else before


def retold(content: str) -> str:
    """The same message as a summariser reads it: without what was copied anyway, and without the notes that are told from their files."""
    told = _summary_of(content)
    return told.partition(f"\n{MARK}\n")[0] + _NOTES.sub("", content[len(told) :])


def _wish(into: dict[str, None], who: str, sentence: str) -> None:
    for earlier in [one for one in into if one == sentence or one.endswith(f") {sentence}")]:
        del into[earlier]  # a clock says the same every hour
    into[f"({who}) {sentence}" if who else sentence] = None


def _names(text: str) -> Iterable[str]:
    return (found[0].rstrip(".,:;") for found in _NAME.finditer(text) if len(found[0]) <= _NAME_MOST)


def _touched(function: Mapping[str, Any], found: dict[str, dict[str, None]]) -> None:
    given = parsed(str(function.get("arguments")))
    path = given.get("path") if isinstance(given, dict) else None
    if isinstance(path, str) and path.strip():
        kind = "changed" if function.get("name") in _CHANGES else "read" if function.get("name") in _READS else ""
        if kind:
            _note(found[kind], [prompt.line(path, _PATH_MOST)])


def _note(into: dict[str, None], values: Iterable[str]) -> None:
    """Put values behind all others; one that is there already moves there."""
    for value in values:
        if value:
            into.pop(value, None)
            into[value] = None


def _newest(values: Iterable[str], room_tokens: int) -> tuple[str, ...]:
    kept: list[str] = []
    for value in reversed(list(values)):
        room_tokens -= _weight(value)
        if room_tokens < 0:
            break
        kept.append(value)
    return tuple(reversed(kept))


def _weight(value: str) -> int:
    return tokens(value) + 2


def whole(prose: str, kept: Kept) -> str:
    """The text that stands for a stretch: a model's `prose`, in which nothing passes for anybody's words, and what was copied."""
    prose = prompt.unstamped(prose).replace(MARK, "").replace(END, "").strip()
    if not kept.body:
        return prose
    lists = "\n".join(f"{_TITLES[name]}\n" + "\n".join(f"- {value}" for value in values) for name, values in _in_order(kept))
    return f"{prose}\n\n{MARK}\n{lists}\n{END}"


def outline(messages: Sequence[Message]) -> str:
    """A summary without a model: what an earlier one said, in part, and who said what since."""
    first = str(messages[0]["content"]) if messages else ""
    if not first.startswith(HEAD):
        return prompt.deterministic_summary(messages)
    own = own_words(first)
    earlier = retold(first).removeprefix(HEAD).removesuffix(own)
    rest = [*([{**messages[0], "content": own.strip()}] if own.strip() else []), *messages[1:]]
    room = prompt.SUMMARY_TOKENS // 2
    return f"{clip(earlier.strip(), room)}\n\n{clip(prompt.deterministic_summary(rest), room)}"


def _in_order(kept: Kept) -> Iterable[tuple[str, tuple[str, ...]]]:
    return ((name, getattr(kept, name)) for name in Kept.__slots__ if getattr(kept, name))


def fault(prose: str, calls: Sequence[Any], source_tokens: int) -> str:
    """Why an answer is no summary of a source of so many tokens; "" where it is one."""
    if calls:
        return "it called a tool"
    if not prose.strip():
        return "it is empty"
    if _ERROR.match(prose):
        return "it is an error's text"
    weight = tokens(prose)
    if weight >= source_tokens:
        return "it is longer than its source"
    return f"it is far too long ({weight} tokens)" if weight > _OVER * prompt.SUMMARY_TOKENS else ""
