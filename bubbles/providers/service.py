"""The models' door: asks that are joined, kept and forgotten, and where a model's name leads.

It does not know sockets (bubbles.bus) or any provider's protocol. An ask has an id of its caller's; whoever asks again under
that id joins the request that is running, or is told the answer that is kept. So a caller has one recovery: ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from bubbles import log
from bubbles.errors import BubblesError, Misconfigured, ModelError, NeedBase, ProtocolError, Rejected
from bubbles.paths import Home
from bubbles.providers import OAUTH, REGISTRY, Entry, open
from bubbles.providers.body import MARKS
from bubbles.providers.catalogue import cost_micros
from bubbles.providers.prefix import Messages, Prefixes
from bubbles.providers.provider import Ask, Provider
from bubbles.providers.retry import Clock
from bubbles.providers.route import Route, is_set_up, route
from bubbles.providers.running import Body, Request, Running, turn_of

KEPT_S = 60.0  # a finished ask is told again so long
KEPT_MOST = 2000  # but of so many at most
UNWANTED_S = 60.0  # a running one that nobody repeats so long is dropped
FENCE_S = 30.0  # an ask waits so long for one of the same base that was dropped and does not end
_SWEEP_S = 30.0

T = TypeVar("T", str, int, float, bool)


class Service:
    """What modeld does at its door. `settings` holds the sections agents and providers; `providers` are open already, by name."""

    def __init__(
        self,
        settings: Any,
        home: Home,
        *,
        clock: Clock | None = None,
        kept_most: int = KEPT_MOST,
        providers: Mapping[str, Provider] | None = None,
        fence_s: float = FENCE_S,
    ) -> None:
        self._settings = settings
        self._home = home
        self._clock = clock or Clock()
        self._kept_most = kept_most
        self._fence_s = fence_s
        self._ending: dict[str, list[Running]] = {}  # by base: dropped, and still running
        self._providers: dict[str, Provider] = dict(providers or {})
        self._asks: dict[str, Running] = {}
        self._prefixes = Prefixes(marks=MARKS)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def ops(self) -> dict[str, Callable[[Any], Awaitable[Body]]]:
        """The operations by name."""
        found = {"ask": self.ask, "keep": self.keep, "cancel": self.cancel, "list": self.models, "route": self.where}
        return {"status": self.status, **{f"model.{name}": op for name, op in found.items()}}

    @property
    def busy(self) -> bool:
        """Whether a model is being asked."""
        return any(not running.done for running in self._asks.values())

    def warm(self) -> None:
        """Load what the first ask would wait for: the code of the default route's provider."""
        with contextlib.suppress(BubblesError):
            self._provider(route(self._settings).provider)

    # -- the operations ----------------------------------------------------------------------------

    async def ask(self, request: Request) -> Body:
        """`model.ask`: the answer of a model. Raises ModelError, NeedBase; Unavailable where the ask was dropped."""
        body = request.body
        id = _field(body, "ask", str)
        running = self._asks.get(id)
        if running is None:
            running = self._begin(id, body, request.blobs)
        elif "base" in body:
            with contextlib.suppress(NeedBase):  # what it brings is taken note of; the answer does not wait for it
                self._bring(body, request.blobs)
        running.wanted_at = self._clock.now()
        if not running.done and ("model" in body or running.listener is None):
            running.listen(request, bool(body.get("stream")))
        return await running.answer()

    async def keep(self, request: Request) -> Body:
        """`model.keep`: somebody still waits for this ask."""
        running = self._asks.get(_field(request.body, "ask", str))
        if running:
            running.wanted_at = self._clock.now()
        return {"known": running is not None}

    async def cancel(self, request: Request) -> Body:
        """`model.cancel`: drop an ask; nothing of it is remembered."""
        running = self._asks.pop(_field(request.body, "ask", str), None)
        was_running = running is not None and not running.done
        if running:
            self._drop(running)
        return {"cancelled": was_running}

    async def where(self, request: Request) -> Body:
        """`model.route`: which provider answers for a model's name, why, and what the model can do. Raises Rejected where none does."""
        found, provider = self._find(_field(request.body, "model", str, ""), _field(request.body, "provider", str, ""))
        await provider.learn(found.model)
        return {"provider": found.provider, "model": found.model, "why": found.why, "capabilities": dict(provider.capabilities(found.model))}

    async def models(self, request: Request) -> Body:
        """`model.list`: the models of every provider that is set up, and what kept one from telling."""
        names = [n for n, entry in REGISTRY.items() if is_set_up(entry, self._settings) or self._is_signed_in(entry)]
        listed = await asyncio.gather(*map(self._listed, names))
        models = [model for models, _ in listed for model in models]
        return {"models": models, "failed": [failed for _, failed in listed if failed]}

    async def status(self, request: Request) -> Body:
        """`status`: asks running and kept, dropped ones whose requests still run (`ending`), what is held by reference, providers in use."""
        running = sum(not r.done for r in self._asks.values())
        held = {"count": len(self._prefixes), "bytes": self._prefixes.bytes}
        ending = sum(map(len, self._ending.values()))
        providers = {name: provider.state() for name, provider in self._providers.items()}
        return {"asks": running, "kept": len(self._asks) - running, "ending": ending, "held": held, "providers": providers}

    async def close(self) -> None:
        """Drop every ask and let go of the providers."""
        if self._timer:
            self._timer.cancel()
        for running in self._asks.values():
            self._drop(running)
        await asyncio.gather(*(provider.close() for provider in self._providers.values()))

    # -- asks --------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Forget what was kept long enough; drop what nobody wants any more."""
        now = self._clock.now()
        for id, running in list(self._asks.items()):
            if running.done:
                if now - running.finished_at >= KEPT_S:
                    del self._asks[id]
            elif now - running.wanted_at >= UNWANTED_S:
                log.event("model.fail", f"{id} was dropped: nobody waits for it", priority="warning", turn=turn_of(id), ask=id)
                self._drop(running)
                del self._asks[id]

    def _drop(self, running: Running) -> None:
        """End an ask. Until its request has really ended it stands in the way of the next one of its base."""
        running.drop()
        if not running.ended and running.base:
            self._ending.setdefault(running.base, []).append(running)
            running.when_ended(self._forget)

    def _forget(self, ended: Running) -> None:
        left = [running for running in self._ending.pop(ended.base, ()) if running is not ended]
        if left:
            self._ending[ended.base] = left

    def _make_room(self) -> None:
        if len(self._asks) >= self._kept_most:
            oldest = next((id for id, running in self._asks.items() if running.done), None)
            if oldest is not None:
                del self._asks[oldest]

    def _begin(self, id: str, body: Body, blobs: list[bytes]) -> Running:
        if "base" not in body:
            raise NeedBase(f"the ask {id} is not known")
        messages, tools = self._bring(body, blobs)
        try:
            found, provider = self._find(_field(body, "model", str, ""), _field(body, "provider", str, ""))
        except ModelError as error:
            log.event("model.fail", error.text, priority="warning", turn=turn_of(id), ask=id)
            raise
        defaults = self._settings.agents.defaults
        asked = Ask(
            id=id,
            model=found.model,
            messages=messages,
            tools=tools,
            temperature=_field(body, "temperature", float, defaults.temperature),
            max_tokens=_field(body, "max_tokens", int, defaults.max_tokens),
            timeout_s=defaults.api_timeout_s,
            idle_s=defaults.api_idle_s,
            marks=self._prefixes.marks(_field(body, "base", str)),
        )
        cost = partial(cost_micros, found.provider, found.model, settings=self._settings)
        running = Running(id, found.provider, self._clock, _field(body, "base", str), cost)
        running.start(provider, asked, defaults.api_retries, self._ending.get(running.base, ()), self._fence_s)
        self._make_room()
        self._asks[id] = running
        self._sweep_later()
        return running

    def _bring(self, body: Body, blobs: list[bytes]) -> tuple[Messages, bytes]:
        """The messages and tools of a request, of which a part may be held here. Raises NeedBase."""
        lines, tools = [*blobs, b"", b""][:2]
        name = _field(body, "tools", str, "")
        keep = _field(body, "keep", int, 0)
        if keep < 0:
            raise ProtocolError("'keep' is negative")
        return self._prefixes.messages(_field(body, "base", str), keep, lines.split(b"\n") if lines else []), self._prefixes.tools(name, tools)

    def _sweep_later(self) -> None:
        """A timer only while there is something to forget."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        self.sweep()
        if self._asks:
            self._sweep_later()

    # -- providers ---------------------------------------------------------------------------------

    def _find(self, model: str, provider: str) -> tuple[Route, Provider]:
        """Raises Rejected, after no attempt, where the settings lead nowhere."""
        try:
            found = route(self._settings, model, provider)
            return found, self._provider(found.provider)
        except Misconfigured as error:
            raise Rejected(error.text, remedy=error.remedy, attempts=0) from error

    def _is_signed_in(self, entry: Entry) -> bool:
        return entry.category == OAUTH and (self._home.tokens / f"{entry.name}.json").exists()

    def _provider(self, name: str) -> Provider:
        if name not in self._providers:
            self._providers[name] = open(name, self._settings.providers, self._home)
        return self._providers[name]

    async def _listed(self, name: str) -> tuple[list[Body], Body | None]:
        try:
            provider = self._provider(name)
            models = await provider.models()
        except (Misconfigured, ModelError) as error:
            return [], {"provider": name, "text": error.text, "remedy": error.remedy}
        return [{"model": model, "provider": name, "capabilities": dict(provider.capabilities(model))} for model in models], None


def _field(body: Body, name: str, kind: type[T], otherwise: T | None = None) -> T:
    """A field of a request. Raises ProtocolError where it is missing or of another kind; whole numbers are numbers."""
    value = body.get(name, otherwise)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ProtocolError(f"{name!r} is to be {kind.__name__}")
    return value
