"""One ask from its first request to the end of its being kept: whoever asks under its id joins it, one listener gets its parts.

A provider's library may take no notice of being cancelled. Then the ask is over for everybody all the same, from the moment it
is dropped; that its request still runs is what `ended` says, and the next ask of the same base waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from bubbles import log
from bubbles.errors import ModelError, Unavailable
from bubbles.kernel import context
from bubbles.providers.provider import Answer, Ask, Provider
from bubbles.providers.retry import Again, Clock, persist

PART_S = 0.1  # text parts are joined to ten a second

Body = dict[str, Any]
Cost = Callable[[Mapping[str, int]], int | None]  # millionths of a US dollar for so many tokens; None where the price is not known


class Request(Protocol):
    """A question at the door, as bubbles.bus.door hands it over."""

    body: Body
    blobs: list[bytes]

    def part(self, part: Body) -> None: ...


def turn_of(ask: str) -> str:
    """For the log, the turn that an ask is part of: agentd calls its asks TURN.N. "" for one that is called otherwise.

    >>> turn_of("telegram-8841.0"), turn_of("main.compact.1.40"), turn_of("x")
    ('telegram-8841', '', '')
    """
    turn, _, n = ask.rpartition(".")
    return turn if n.isdigit() and ".compact." not in ask else ""


class Running:
    """One ask, from its first request to the end of its being kept."""

    _task: asyncio.Future[
        Body
    ]  # the task that asks; afterwards a future that has ended, for a task keeps its context and its frames

    def __init__(self, id: str, provider: str, clock: Clock, base: str = "", cost: Cost = lambda usage: None) -> None:
        self.id = id
        self.base = base
        self._about = {"turn": turn_of(id), "ask": id, "provider": provider}  # for the log
        self.wanted_at = clock.now()
        self.finished_at = 0.0
        self.listener: Request | None = None
        self._provider, self._cost = provider, cost
        self._clock = clock
        self._streams = False
        self._said: list[str] = []  # of this attempt
        self._unsent: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last_part_at = -PART_S
        self._dropped = False
        self._spent: dict[str, int] = {}  # guessed, of attempts that failed midway
        self._outcome: asyncio.Future[Body] = asyncio.get_running_loop().create_future()

    @property
    def done(self) -> bool:
        """Whether there is an outcome: an answer, a failure, or that it was dropped."""
        return self._outcome.done()

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._task.done()

    def start(self, provider: Provider, ask: Ask, retries: int, after: Collection[Running] = (), after_s: float = 0.0) -> None:
        """Begin to ask, when those that it comes `after` have ended; they are waited for `after_s` at most."""
        self._task = asyncio.get_running_loop().create_task(self._run(provider, ask, retries, [each._task for each in after], after_s))
        self._task.add_done_callback(self._settle)

    def when_ended(self, tell: Callable[[Running], None]) -> None:
        """Have `tell` called when nothing of it runs any more."""
        self._task.add_done_callback(lambda task: tell(self))

    def listen(self, request: Request, streams: bool) -> None:
        """From here on, parts go to `request`; a new listener first gets the text that has been said."""
        self.listener, self._streams = request, streams
        if streams and self._said:
            self._unsent = list(self._said)
            self._flush()

    async def answer(self) -> Body:
        """The reply. One waiter's end is not the request's."""
        return await asyncio.shield(self._outcome)

    def drop(self) -> None:
        """End the request, if it still runs. Whoever waits is told so at once; what it still says is told to nobody, and it is not made again."""
        self._dropped = True
        self._task.cancel()
        self._stop_timer()
        if not self._outcome.done():
            self._outcome.set_exception(Unavailable(f"the ask {self.id} was dropped"))
            self._outcome.exception()  # there may be nobody whom that concerns

    def _settle(self, task: asyncio.Task[Body]) -> None:
        """The request has ended: so has the ask, if it had not before. What is kept of it is its outcome, and not what was asked."""
        self.listener = None
        error = None if task.cancelled() else task.exception()
        self._task = asyncio.get_running_loop().create_future()
        self._task.cancel()
        if error is not None:
            error.__traceback__ = error.__cause__ = error.__context__ = None
        if self._outcome.done():
            return
        if task.cancelled():
            error = Unavailable(f"the ask {self.id} was dropped")
        if error is None:
            self._outcome.set_result(task.result())
        else:
            self._outcome.set_exception(error)
            self._outcome.exception()  # a failure that nobody came for is no bug

    async def _run(self, provider: Provider, ask: Ask, retries: int, after: Collection[asyncio.Future[Body]], after_s: float) -> Body:
        """Ask until there is an answer, or a failure that another attempt would not mend. Raises ModelError."""
        if after and (await asyncio.wait(after, timeout=after_s))[1]:
            why = f"{self.id} goes beside one that was dropped and has not ended in {after_s:g} s"
            log.event("daemon.warning", why, priority="warning", **self._about)
        started = self._clock.now()
        try:
            answer, attempts = await persist(lambda: self._attempt(provider, ask), retries, self._again, self._clock)
        except ModelError as error:
            error.spent = self._spent
            error.text = log.struck(error.text)  # some providers repeat the key that they refuse
            log.event("model.fail", f"{error.kind}: {error.text}", priority="warning", attempts=error.attempts, **self._about)
            raise
        finally:
            self._stop_timer()
            self.finished_at = self._clock.now()
        self._flush()
        self._said = []
        log.debug("answered", **self._about, ms=round((self.finished_at - started) * 1000), attempts=attempts)
        cost = self._cost(answer.usage)
        return _reply(replace(answer, usage={**answer.usage, **self._spent}), self._provider, ask.model, attempts, cost)

    async def _attempt(self, provider: Provider, ask: Ask) -> Answer:
        try:
            return await provider.ask(ask, self._text)
        except ModelError as error:
            if error.may_cost:
                self._guess(ask)
            raise

    def _guess(self, ask: Ask) -> None:
        """Note of a request that failed midway what it may have taken: all that was asked, and the words that came."""
        asked = context.tokens(b"\n".join([*ask.messages, ask.tools]).decode("utf-8", "replace"))
        said = context.tokens("".join(self._said))
        micros = self._cost({"input": asked, "output": said}) or 0
        for name, count in (("failed", 1), ("guessed", asked + said), ("guessed_micros", micros)):
            self._spent[name] = self._spent.get(name, 0) + count

    def _again(self, again: Again) -> None:
        if self._dropped:
            raise asyncio.CancelledError
        log.event("model.retry", f"{again.category}; again in {again.in_s:.1f} s", priority="notice", **self._about)
        self._said, self._unsent = [], []
        if self.listener:
            self.listener.part({"retry": {"category": again.category, "attempt": again.attempt + 1, "in_s": round(again.in_s, 3)}})

    def _text(self, text: str) -> None:
        if self._dropped:
            return
        self._said.append(text)
        if not self._streams:
            return
        self._unsent.append(text)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._last_part_at + PART_S), self._flush)

    def _flush(self) -> None:
        self._stop_timer()
        if self._unsent and self.listener and self._streams and not self._dropped:
            text, self._unsent = "".join(self._unsent), []
            self._last_part_at = asyncio.get_running_loop().time()
            self.listener.part({"text": text})

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


def _reply(answer: Answer, provider: str, model: str, attempts: int, cost: int | None) -> Body:
    return {
        "text": answer.text,
        "calls": list(answer.calls),
        "reasoning": answer.reasoning,
        "usage": answer.usage if cost is None else {**answer.usage, "cost_micros": cost},
        "stop": answer.stop,
        "model": answer.model or model,
        "provider": provider,
        "attempts": attempts,
    }
