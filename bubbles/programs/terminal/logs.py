"""The log of the daemons beside a conversation: `bubbles agent --logs` and `--debug`.

A call is told with its arguments and its result, line by line and not whole; a question to a model in one line. It does not know
where the log is kept.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from bubbles import log
from bubbles.paths import Home
from bubbles.programs import journald
from bubbles.programs.entries import Entry, Following

_ON_THEIR_WAY_S = 0.4  # from a daemon through journald to us
_LINES_MOST, _WIDTH_MOST = 24, 400  # of an argument, a result, a traceback
_SHORT = 100  # characters of what is told in a line
Tell = Callable[[str], None]


@contextmanager
def followed(home: Home, key: str, tell: Tell, *, everything: bool) -> Iterator[None]:
    """Tell each entry that concerns the session `key` (with `everything`, each at all) until the block ends."""
    with closing(Following(home)) as following:
        thread = threading.Thread(target=_told, args=(following, key, tell, everything), daemon=True)
        thread.start()
        try:
            yield
        finally:
            if journald.elsewhere(home):
                time.sleep(_ON_THEIR_WAY_S)
            following.close()
            thread.join(timeout=2)


def _told(following: Following, key: str, tell: Tell, everything: bool) -> None:
    turns: set[str] = set()  # modeld knows turns, and no sessions
    for entry in following:
        ours = entry.session == key
        if ours and entry.turn:
            turns.add(entry.turn)
        if everything or ours or entry.turn in turns or (entry.program == "modeld" and not entry.turn):
            tell("\n".join(shown(entry, whose=everything)))


def shown(entry: Entry, *, whose: bool = False) -> Iterator[str]:
    """An entry as lines for a terminal, whatever it holds; only the first begins at the margin. `whose`: with its program and session."""
    who = f" {entry.program}{f' [{entry.session}]' if entry.session else ''}" if whose else ""
    stamp = f"{time.strftime('%H:%M:%S', time.localtime(entry.at))}.{int(entry.at % 1 * 1000):03d}{who} {entry.event}"
    head, body = _parts(entry)
    yield log.escaped(f"{stamp} {head}".rstrip())
    yield from (f"  │ {log.escaped(line)}" for line in body)


def _parts(entry: Entry) -> tuple[str, list[str]]:
    """What an entry says in its first line, and what below it."""
    ms = f" ({entry.fields['ms']} ms)" if "ms" in entry.fields else ""
    match entry.event:
        case "tool.start":
            return entry.tool, _arguments(entry.message.removeprefix(f"{entry.tool} "))
        case "tool.finish":
            outcome, _, result = entry.message.partition(": ")
            return f"{outcome}{ms}", _clipped(result)
        case "model.ask":
            return " ".join(filter(None, (entry.fields.get("ask"), entry.fields.get("model")))), []
        case "model.answer":
            return log.cut(" ".join(filter(None, (entry.message, entry.fields.get("usage")))), _SHORT) + ms, []
    return log.cut(entry.message, 2 * _SHORT) + ms, _clipped(entry.fields.get("traceback", ""))


def _arguments(text: str) -> list[str]:
    """A call's arguments, each with its name: texts as they are, not as JSON."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _clipped(text)
    if not isinstance(found, dict):
        return _clipped(text)
    lines = []
    for name, value in found.items():
        first, *others = _clipped(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) or [""]
        lines += [f"{name}: {first}", *(f"  {line}" for line in others)]
    return lines


def _clipped(text: str) -> list[str]:
    """The first lines of a text, and how many more there are."""
    lines = text.split("\n") if text else []
    left = len(lines) - _LINES_MOST
    told = [log.cut(line, _WIDTH_MOST) for line in lines[:_LINES_MOST]]
    return [*told, f"… ({left} more lines in the log: bubbles audit --full)"] if left > 0 else told
