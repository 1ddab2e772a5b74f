"""A second life of a town, begun from a backup that was taken in the midst of the first: with what its platforms knew at that moment.

A platform is not saved with a home, and does not go back in time with it; here it does, so that what is judged is the backup alone. It has
confirmed what it had when the backup began, and has shown what it had then, and of what was sent meanwhile that of which the backup knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbles.paths import Home
from tests.crash.judge import Verdict, gather, judge
from tests.crash.runs import roughen
from tests.crash.town import KEYED, Town, Word
from tests.fakes.start import FakePlatform, platform

_ROOT = Path(__file__).resolve().parents[2]
_LIFE = 1000  # words of a person: so far apart are those of two lives
_REST_S = 20.0


@dataclass
class Shot:
    """A backup, and how the town was around it. `words` were written before it began, `later` before it ended."""

    file: Path
    books: dict[str, tuple[bytes, bytes]]  # by platform: its book before and after
    words: list[Word]
    later: list[Word]
    counts: dict[str, int]
    took_s: float
    told: dict[str, Any]


def shoot(town: Town, file: Path, *, fault: str = "") -> Shot:
    """Take a backup by the real program, or by one that is broken on purpose."""
    books = {name: _book(town, name) for name in town.platforms}
    words = list(town.words)
    began = time.monotonic()
    argv = ["tests.crash.backwards", fault] if fault else ["bubbles.programs", "backup"]
    done = subprocess.run([sys.executable, "-m", *argv, "--json", str(file)], cwd=_ROOT, capture_output=True, text=True, env=_env(town.home))
    took_s = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    later = list(town.words)
    after = {name: (book, _book(town, name)) for name, book in books.items()}
    return Shot(file, after, words, later, dict(town._counts), took_s, json.loads(done.stdout))


def _book(town: Town, name: str) -> bytes:
    whole = (town.home.root / f"platform-{name}").read_bytes()
    return whole[: whole.rfind(b"\n") + 1]


def _env(home: Home) -> dict[str, str]:
    return {**os.environ, "BUBBLES_HOME": str(home.root)}


@contextlib.contextmanager
def second_life(first: Town, shot: Shot, home: Home) -> Iterator[Town]:
    """The town as its backup has it, put in place at `home`, its daemons not started yet."""
    argv = [sys.executable, "-m", "bubbles.programs", "restore", str(shot.file)]
    done = subprocess.run(argv, cwd=_ROOT, capture_output=True, text=True, env=_env(home))
    assert (done.returncode, done.stderr) == (0, "")
    shutil.rmtree(home.root / "crash")
    home.log.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        forks = {name: stack.enter_context(_fork(home, name, *books)) for name, books in shot.books.items()}
        town = Town(home, first.model, forks, nursery=first.nursery)
        town._counts = {person: count + _LIFE for person, count in shot.counts.items()}
        town.words = [*shot.words, *(word for word in shot.later if word.way in forks and word not in shot.words)]
        try:
            yield town
        finally:
            town.close()


def relive(first: Town, shot: Shot, home: Home, *, rest_s: float = _REST_S) -> Verdict:
    """What became of everything, once the second life has come to rest."""
    with second_life(first, shot, home) as town:
        town.start()
        roughen(town)
        town.settle(rest_s)
        seen = gather(town)
    own = {word.id for word in seen.words}
    there = {message["id"] for lines in seen.histories.values() for line in lines if line.get("meta") == "turn" for message in line["messages"]}
    seen.words += [word for word in first.words if word.id in there - own]  # written while the backup was taken, and in it
    seen.words.sort(key=lambda word: word.at)
    return judge(seen)


def _fork(home: Home, name: str, before: bytes, after: bytes) -> contextlib.AbstractContextManager[FakePlatform]:
    """A platform that knows what the backup knows of it."""
    old, new = _entries(before), _entries(after[len(before) :])
    assert after.startswith(before)
    offset = [entry for entry in old if "offset" in entry][-1:]
    book = [entry for entry in old if "offset" not in entry]
    shown = Counter(entry["sent"]["key"] for entry in book if "sent" in entry)
    for entry in new:
        key = entry["sent"]["key"] if "sent" in entry else ""
        if key and shown[key] < _tries(home, name, key):
            shown[key] += 1
            book.append(entry)
        elif "said" in entry:
            book.append(entry)
    book += offset
    state = home.root / f"platform-{name}"
    state.write_bytes(b"".join(json.dumps(entry).encode() + b"\n" for entry in book))
    return platform(state=state, keyed=KEYED[name])


def _entries(book: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in book.splitlines()]


def _tries(home: Home, name: str, key: str) -> int:
    """How often, as far as the restored home knows, this part may have reached the platform. What was sent more often, was sent after that."""
    id, _, part = key.rpartition(".")
    receipt = home.outbound(name) / "receipts" / f"{id}.jsonl"
    facts = _entries(_whole(receipt)) if receipt.exists() else []
    return sum(fact.get("begun") == int(part) for fact in facts) - sum(fact.get("refused") == int(part) for fact in facts)


def _whole(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]
