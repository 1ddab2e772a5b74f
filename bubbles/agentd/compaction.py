"""The summary that is to stand for the past of one session: made beside its turns, and put in place between two of them.

While it is made the whole past goes on being sent. It is put in place only if the lines that it was made of still are the head of
the history; what was said meanwhile stays behind it, word for word. It does not know models: what is asked is given to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from bubbles import log
from bubbles.errors import BubblesError
from bubbles.kernel import context, summary
from bubbles.sessions.history import History

SOFT = 0.6  # of what a request may weigh: from there on a summary is made in good time
TIMEOUT_S, COOLDOWN_S, TRIES = 30.0, 30.0, 3  # of one attempt; between a failed one and the next; of one stretch
_LEAST_TOKENS = 400  # a stretch lighter than this, or than a tenth of what may be sent, is not worth a request

Message: TypeAlias = dict[str, Any]
Standing: TypeAlias = tuple[int, int, list[bytes]]


class NoSummary(Exception):
    """The model gave none; the text says why."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, slots=True)
class Stretch:
    """The head of a history that is to be summarised, as it was when that began."""

    history: History
    generation: int
    count: int  # its messages
    name: str  # the hash of their bytes
    messages: list[Message]
    tokens: int

    @classmethod
    def of(cls, history: History, lines: list[bytes], generation: int, keep_tokens: int) -> Stretch | None:
        """What lies before the last `keep_tokens` of `lines`; None where that is nothing."""
        messages = [json.loads(line) for line in lines]
        count = context.split(messages, keep_tokens)
        if count <= 0:
            return None
        return cls(history, generation, count, fingerprint(lines[:count]), messages[:count], context.tokens(messages[:count]))

    def stands(self, history: History) -> bool:
        """Whether it still is the head of this history."""
        same = history is self.history and history.generation == self.generation and len(history.lines) > self.count
        return same and fingerprint(history.lines[: self.count]) == self.name


@dataclass(frozen=True, slots=True)
class Made:
    """A summary that is ready. `how`: "model", or "outline" where no model gave one."""

    stretch: Stretch
    prose: str
    how: str
    seconds: float = 0.0


def fingerprint(lines: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


class Compaction:
    """The compactions of one session, one at a time.

    `ask(stretch, attempt)` gives a model's summary of the stretch or raises BubblesError; `sync(fd)` returns when the history is on the disk.
    """

    def __init__(
        self,
        ask: Callable[[Stretch, int], Awaitable[str]],
        sync: Callable[[int], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = TIMEOUT_S,
        cooldown_s: float = COOLDOWN_S,
    ) -> None:
        self._ask, self._sync, self._clock = ask, sync, clock
        self._timeout_s, self._cooldown_s = timeout_s, cooldown_s
        self._job: asyncio.Task[None] | None = None
        self._ready: Made | None = None
        self._tried: tuple[str, int] = ("", 0)  # the stretch that was tried last, and how often
        self._resting_until = float("-inf")
        self._looked_at: Standing | None = None  # how it stood when there was nothing in it worth a summary
        self._compacted: Standing | None = None  # how the history stood right after the last compaction

    @property
    def is_running(self) -> bool:
        return self._job is not None and not self._job.done()

    @property
    def is_ready(self) -> bool:
        """Whether a summary waits to be put in place."""
        return self._ready is not None

    def consider(self, history: History, request_tokens: int, budget_tokens: int, keep_tokens: int) -> None:
        """Begin a summary in the background if a request of this weight is near what may be sent, and none is under way or was refused just now."""
        if request_tokens <= budget_tokens * SOFT or self.is_running or self._clock() < self._resting_until:
            return
        if (self._ready is not None and self._ready.stretch.stands(history)) or _standing(history) == self._looked_at:
            return
        least = max(_LEAST_TOKENS, budget_tokens // 10)
        self._job = asyncio.create_task(self._make(history, keep_tokens, least), name="a summary")

    async def _make(self, history: History, keep_tokens: int, least_tokens: int) -> None:
        try:
            standing = _standing(history)
            stretch = await asyncio.to_thread(Stretch.of, history, list(history.lines), history.generation, keep_tokens)
            if stretch is not None and stretch.tokens >= least_tokens and self._tries(stretch) < TRIES:
                await self._attempt(stretch)
            else:
                self._looked_at = standing
        except Exception:  # a bug here must not cost the turn that goes on beside it
            log.error("daemon.bug", "a summary could not be made")

    def _tries(self, stretch: Stretch) -> int:
        return self._tried[1] if self._tried[0] == stretch.name else 0

    async def _attempt(self, stretch: Stretch) -> str:
        """Ask a model once. Returns why there is no summary; "" where one is ready."""
        attempt = self._tries(stretch) + 1
        self._tried = stretch.name, attempt
        started = self._clock()
        try:
            async with asyncio.timeout(self._timeout_s):
                prose = await self._ask(stretch, attempt)
        except TimeoutError:
            why = f"it took more than {self._timeout_s:g} s"
        except (BubblesError, NoSummary) as error:
            why = error.text
        else:
            self._ready = Made(stretch, prose, "model", self._clock() - started)
            return ""
        self._resting_until = self._clock() + self._cooldown_s
        log.event("model.fail", f"no summary: {why}", priority="warning", attempts=attempt)
        return why

    async def adopt(self, history: History) -> str:
        """Put a summary that is ready in its place. Returns how it was made; "" where none is, or it was made of what is not there any more."""
        made, self._ready = self._ready, None
        if made is None:
            return ""
        return await self._put(made, history)

    async def _put(self, made: Made, history: History) -> str:
        stretch = made.stretch
        if not stretch.stands(history):
            log.event("turn.compact", "a summary is dropped: the history is another one than it was made of")
            return ""
        room = summary.room(stretch.tokens, history.copied)
        copied = summary.gather(stretch.messages, summary.Kept.of(history.copied), room)
        text = summary.whole(made.prose, copied)
        after = context.tokens(text)
        if after >= stretch.tokens:
            return ""
        kept = len(history.lines) - stretch.count
        told = {"copied": {**copied.body, "room": room}, "how": made.how, "sha256": stretch.name, "before": stretch.tokens, "after": after}
        try:
            history.compact(text, kept, time.time(), **told)
            self._compacted = _standing(history)
            await self._sync(history.fd)
        except OSError as error:  # a line that is not there, or not for sure: either way a history that can be read, and the turn goes on
            log.event("daemon.warning", f"a summary is not on the disk: {error.strerror}", priority="warning")
            return ""
        words = f"{stretch.count} messages of {stretch.tokens} tokens became a summary of {after}, by the {made.how}, in {made.seconds:.1f} s"
        log.event("turn.compact", f"{words}; {kept} messages stay word for word")
        return made.how

    async def now(self, history: History, keep_tokens: int) -> str:
        """A summary at once, for somebody who waits: the one that is ready or under way, else one that is asked for, else one without a model.

        Returns "model", "outline", or "nothing" where there is nothing to summarise. Cancelled, it drops the request that it began.
        """
        if _standing(history) == self._compacted:
            return "nothing"
        if self.is_running and self._job is not None:
            await asyncio.wait({self._job}, timeout=2 * self._timeout_s)
        if how := await self.adopt(history):
            return how
        stretch = Stretch.of(history, list(history.lines), history.generation, keep_tokens)
        if stretch is None:
            return "nothing"
        if not self.is_running and self._tries(stretch) < TRIES and self._clock() >= self._resting_until:
            await self._begun(stretch)
            if how := await self.adopt(history):
                return how
            if not stretch.stands(history):
                return "nothing"
        return await self._put(Made(stretch, summary.outline(stretch.messages), "outline"), history) or "nothing"

    async def _begun(self, stretch: Stretch) -> None:
        """Ask for a summary, as the one job, for as long as somebody waits for it."""

        async def attempt() -> None:
            await self._attempt(stretch)

        job = self._job = asyncio.create_task(attempt(), name="a summary")
        try:
            await asyncio.wait({job})
        finally:
            job.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            job.result()

    def close(self) -> None:
        """Drop what is under way: the history stays as it is."""
        if self._job is not None:
            self._job.cancel()


def _standing(history: History) -> Standing:
    """What changes when anything is added to a history, or it is compacted."""
    return history.generation, history.count, history.lines[-1:]
