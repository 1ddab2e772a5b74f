"""What may go in the queues: messages that were handled a week ago with their receipts, litter, and media that no message names.

A message's age is that of its file, whose mtime is its place in the line. Nothing that waits is ever touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from bubbles.errors import DataError
from bubbles.messages import from_line
from bubbles.tidying.ages import DONE_S, LITTER_S, SILENCE_S, Clock
from bubbles.tidying.spared import Spared
from bubbles.tidying.walk import Old, directories, entered, files, info

_WAYS = ("inbound", "outbound")
_ELSEWHERE = ("new", "cur", "held")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def old_done(root: int, clock: Clock, spared: Spared) -> Iterator[Old]:
    """Messages that are done, each followed by its receipts.

    One whose turn is open, or whose question has still to be taken in, stays: its id is what keeps it from being sent again.
    So does one of which a second copy waits, which its owner knows to be one by the first; and what was put last before a
    queue fell silent: who put it may have been killed before he knew that he had, and tries again when he is back.
    """
    for way, name in _queues(root):
        with entered(root, "spool", way, name) as queue, entered(root, "spool", way, name, "done") as done:
            if queue is None or done is None:
                continue
            last = os.fstat(queue).st_mtime  # of the queue's own directory: the last place that it gave away
            for file, found in files(done):
                is_old = file.endswith(".json") and clock.is_old(found.st_mtime, DONE_S) and found.st_mtime < last - SILENCE_S
                if is_old and not _is_needed(queue, done, file, spared):
                    yield Old("done", f"spool/{way}/{name}/done/{file}", done, file, found)
                    yield from _its_receipts(queue, f"spool/{way}/{name}", file)


def old_receipts(root: int, clock: Clock) -> Iterator[Old]:
    """Receipts of messages that are in no state of their queue any more."""
    for way, name in _queues(root):
        with entered(root, "spool", way, name) as queue, entered(root, "spool", way, name, "receipts") as receipts:
            if queue is None or receipts is None:
                continue
            for file, found in files(receipts):
                message = f"{file.removesuffix('.jsonl')}.json"
                if clock.is_old(found.st_mtime, DONE_S) and not any(_has(queue, state, message) for state in (*_ELSEWHERE, "done")):
                    yield Old("receipts", f"spool/{way}/{name}/receipts/{file}", receipts, file, found)


def old_litter(root: int, clock: Clock) -> Iterator[Old]:
    """What a killed sender was writing, and reasons whose message is not held any more."""
    for way, name in _queues(root):
        for state in ("tmp", "held"):
            with entered(root, "spool", way, name, state) as fd:
                for file, found in files(fd) if fd is not None else ():
                    is_litter = state == "tmp" or (file.endswith(".why") and not _has(fd, ".", f"{file.removesuffix('.why')}.json"))
                    if is_litter and clock.is_old(found.st_mtime, LITTER_S):
                        yield Old("litter", f"spool/{way}/{name}/{state}/{file}", fd, file, found)  # type: ignore[arg-type]


def old_media(root: int, clock: Clock, spared: Spared) -> Iterator[Old]:
    """Files on their way in that no message names."""
    for name in directories(root, "spool", "media"):
        with entered(root, "spool", "media", name) as fd:
            for file, found in files(fd) if fd is not None else ():
                if clock.is_old(found.st_mtime, LITTER_S) and file not in spared.media:
                    yield Old("media", f"spool/media/{name}/{file}", fd, file, found)  # type: ignore[arg-type]


def old_sent(root: int, clock: Clock, spared: Spared) -> Iterator[Old]:
    """Files on their way out whose message has gone, or was never put."""
    for name in directories(root, "spool", "outbound"):
        with entered(root, "spool", "outbound", name, "media") as fd:
            for file, found in files(fd) if fd is not None else ():
                if clock.is_old(found.st_mtime, LITTER_S) and file not in spared.media:
                    yield Old("media", f"spool/outbound/{name}/media/{file}", fd, file, found)  # type: ignore[arg-type]


def _queues(root: int) -> Iterator[tuple[str, str]]:
    for way in _WAYS:
        for name in directories(root, "spool", way):
            yield way, name


def _is_needed(queue: int, done: int, file: str, spared: Spared) -> bool:
    id = file.removesuffix(".json")
    return any(_has(queue, state, file) for state in _ELSEWHERE) or spared.is_known(id, _turn(done, file))


def _turn(done: int, file: str) -> str:
    """The turn that a message names: an id that is long does not tell it."""
    try:
        fd = os.open(file, _READ, dir_fd=done)
    except OSError:
        return ""
    try:
        with os.fdopen(fd, "rb") as opened:
            return str(from_line(opened.read()).get("turn") or "")
    except (OSError, DataError):
        return ""


def _its_receipts(queue: int, path: str, file: str) -> Iterator[Old]:
    receipts = f"{file.removesuffix('.json')}.jsonl"
    with entered(queue, "receipts") as fd:
        if fd is not None and _has(queue, "receipts", receipts):
            yield Old("receipts", f"{path}/receipts/{receipts}", fd, receipts, info(fd, receipts))


def _has(queue: int | None, state: str, file: str) -> bool:
    assert queue is not None
    try:
        info(queue, f"{state}/{file}")
    except OSError:
        return False
    return True
