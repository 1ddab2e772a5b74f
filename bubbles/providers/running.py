"""One ask from its first request to the end of its being kept: whoever asks under its id joins it, one listener gets its parts."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from bubbles import log
from bubbles.errors import ModelError, Unavailable
from bubbles.providers.provider import Answer, Ask, Provider
from bubbles.providers.retry import Again, Clock, persist

PART_S = 0.1  # text parts are joined to ten a second

Body = dict[str, Any]


class Request(Protocol):
    """A question at the door, as bubbles.bus.door hands it over."""

    body: Body
    blobs: list[bytes]

    def part(self, part: Body) -> None: ...


class Running:
    """One ask, from its first request to the end of its being kept."""

    _task: asyncio.Task[Body]

    def __init__(self, id: str, provider: str, clock: Clock) -> None:
        self.id = id
        self.wanted_at = clock.now()
        self.finished_at = 0.0
        self.listener: Request | None = None
        self._provider = provider
        self._clock = clock
        self._streams = False
        self._said: list[str] = []  # of this attempt
        self._unsent: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last_part_at = -PART_S

    @property
    def done(self) -> bool:
        return self._task.done()

    def start(self, provider: Provider, ask: Ask, retries: int) -> None:
        """Begin to ask."""
        self._task = asyncio.get_running_loop().create_task(self._run(provider, ask, retries))
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # a failure that nobody came for is no bug

    def listen(self, request: Request, streams: bool) -> None:
        """From here on, parts go to `request`; a new listener first gets the text that has been said."""
        self.listener, self._streams = request, streams
        if streams and self._said:
            self._unsent = list(self._said)
            self._flush()

    async def answer(self) -> Body:
        """The reply. One waiter's end is not the request's."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._task.cancelled():
                raise Unavailable(f"the ask {self.id} was dropped") from None
            raise

    def drop(self) -> None:
        """End the request, if it still runs."""
        self._task.cancel()
        self._stop_timer()

    async def _run(self, provider: Provider, ask: Ask, retries: int) -> Body:
        """Ask until there is an answer, or a failure that another attempt would not mend. Raises ModelError."""
        started = self._clock.now()
        try:
            answer, attempts = await persist(lambda: provider.ask(ask, self._text), retries, self._again, self._clock)
        except ModelError as error:
            error.text = log.struck(error.text)  # some providers repeat the key that they refuse
            log.event("model.fail", f"{error.kind}: {error.text}", priority="warning", ask=ask.id, provider=self._provider, attempts=error.attempts)
            raise
        finally:
            self._stop_timer()
            self.finished_at = self._clock.now()
        self._flush()
        self._said = []
        log.debug("answered", ask=ask.id, provider=self._provider, ms=round((self.finished_at - started) * 1000), attempts=attempts)
        return _reply(answer, self._provider, ask.model, attempts)

    def _again(self, again: Again) -> None:
        log.event("model.retry", f"{again.category}; again in {again.in_s:.1f} s", priority="notice", ask=self.id, provider=self._provider)
        self._said, self._unsent = [], []
        if self.listener:
            self.listener.part({"retry": {"category": again.category, "attempt": again.attempt + 1, "in_s": round(again.in_s, 3)}})

    def _text(self, text: str) -> None:
        self._said.append(text)
        if not self._streams:
            return
        self._unsent.append(text)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._last_part_at + PART_S), self._flush)

    def _flush(self) -> None:
        self._stop_timer()
        if self._unsent and self.listener and self._streams:
            text, self._unsent = "".join(self._unsent), []
            self._last_part_at = asyncio.get_running_loop().time()
            self.listener.part({"text": text})

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


def _reply(answer: Answer, provider: str, model: str, attempts: int) -> Body:
    return {
        "text": answer.text,
        "calls": list(answer.calls),
        "reasoning": answer.reasoning,
        "usage": answer.usage,
        "stop": answer.stop,
        "model": answer.model or model,
        "provider": provider,
        "attempts": attempts,
    }
