"""agentd's side of modeld: which model answers, and one question after another by reference to what modeld holds.

It does not know providers or keys. A modeld that is being restarted is waited for; asking again under the same
id joins a request that is still running there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from bubbles import log
from bubbles.agentd.request import Prefix, Request, Tools
from bubbles.bus.caller import Caller, Part
from bubbles.errors import BubblesError, Misconfigured, ModelDown, ModelError, NeedBase, Unavailable
from bubbles.kernel.context import Shape
from bubbles.paths import Home

T = TypeVar("T")

_ROUTE_S = 300.0  # a route is believed this long
_GUESSED_S = 600.0  # and a window so long that a refusal did not name
_WINDOW_LEAST = 2048  # tokens: less is not guessed
_REPEAT_S = 20.0  # a question is repeated this often while its answer is awaited
_AWAY_S = (0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)  # pauses while modeld is away


@dataclass(frozen=True, slots=True)
class Route:
    """Where a model's name leads, why, and what that model can do. `window_tokens` 0: not known."""

    provider: str
    model: str
    why: str
    shape: Shape
    tools: bool
    window_tokens: int
    vision: bool = False


class Models:
    """The models, as agentd asks them."""

    def __init__(self, home: Home) -> None:
        self._caller = Caller(home, "modeld")
        self._routes: dict[tuple[str, str], tuple[float, Route]] = {}
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}  # of a provider's model: what its refusals taught, and until when it is believed
        self._tools_told: set[str] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._asking: set[str] = set()
        self._reminder: asyncio.TimerHandle | None = None

    async def route(self, model: str, provider: str, *, wait: bool = False) -> Route:
        """The route of a model name as the owner wrote it. Raises ModelError where it leads nowhere.

        Where modeld is away: Unavailable, or with `wait` ModelDown after having waited for its return.
        """
        if not wait:
            return await self._route(model, provider)
        return await _patiently(lambda: self._route(model, provider))

    async def _route(self, model: str, provider: str) -> Route:
        known = self._routes.get((model, provider))
        if known and time.monotonic() - known[0] < _ROUTE_S:
            return self._within(known[1])
        body, _ = await self._caller.call("model.route", {"model": model, "provider": provider})
        can = body.get("capabilities") or {}
        tools = bool(can.get("tools", True))
        route = Route(
            provider=str(body["provider"]),
            model=str(body["model"]),
            why=str(body.get("why", "")),
            shape=Shape(tools=tools, reasoning=str(can.get("reasoning", "drop")), after_tool=str(can.get("after_tool", "user_ok"))),
            tools=tools,
            window_tokens=int(can.get("window_tokens") or 0),
            vision=bool(can.get("vision")),
        )
        self._routes[model, provider] = (time.monotonic(), route)
        return self._within(route)

    def _within(self, route: Route) -> Route:
        until, learned = self._windows.get((route.provider, route.model), (0.0, 0))
        if time.monotonic() > until or (route.window_tokens and learned >= route.window_tokens):
            return route
        return replace(route, window_tokens=learned)

    def learn(self, route: Route, window_tokens: int, *, named: bool) -> None:
        """A request was refused as too long: the model reads no more than this. What was only guessed, not `named`, is tried again later."""
        until = float("inf") if named else time.monotonic() + _GUESSED_S
        self._windows[route.provider, route.model] = until, window_tokens if named else max(window_tokens, _WINDOW_LEAST)
        log.event("model.fail", f"{route.model} reads {window_tokens} tokens{'' if named else ', it seems'}", priority="notice", model=route.model)

    async def ask(self, body: dict[str, Any], prefix: Prefix | None, request: Request, tools: Tools, on_part: Part | None = None) -> dict[str, Any]:
        """One answer. Of the messages of the request only those that modeld lacks are sent. Raises ModelError."""

        def forget() -> None:
            self._tools_told.clear()
            if prefix is not None:
                prefix.sent = None

        async def once() -> dict[str, Any]:
            try:
                return await self._once(body, prefix, request, tools, on_part)
            except Unavailable:
                forget()
                raise
            except NeedBase:
                forget()
                return await self._once(body, prefix, request, tools, on_part)

        with self._wanted(str(body["ask"])):
            return await _patiently(once)

    async def _once(self, body: dict[str, Any], prefix: Prefix | None, request: Request, tools: Tools, on_part: Part | None) -> dict[str, Any]:
        keep = prefix.keep(request) if prefix is not None else 0
        told = not tools.name or tools.name in self._tools_told
        head = {**body, "base": prefix.base if prefix is not None else "", "keep": keep, "tools": tools.name}
        blobs = [b"\n".join(request.after(keep)), b"" if told else tools.body]
        if prefix is not None:
            prefix.sent = request
        answer, _ = await self._caller.call("model.ask", head, blobs, on_part=on_part)
        if tools.name:
            self._tools_told.add(tools.name)
        return answer

    @contextlib.contextmanager
    def _wanted(self, ask: str) -> Iterator[None]:
        """While this lasts, modeld is told from time to time that somebody waits for the answer."""
        self._asking.add(ask)
        if self._reminder is None:
            self._reminder = asyncio.get_running_loop().call_later(_REPEAT_S, self._remind)
        try:
            yield
        finally:
            self._asking.discard(ask)

    def _remind(self) -> None:
        self._reminder = asyncio.get_running_loop().call_later(_REPEAT_S, self._remind) if self._asking else None
        for ask in self._asking:
            self._tell("model.keep", ask)

    def cancel(self, ask: str) -> None:
        """Let modeld drop a request; nobody waits for its answer."""
        self._tell("model.cancel", ask)

    def _tell(self, op: str, ask: str) -> None:
        task = asyncio.get_running_loop().create_task(self._told(op, ask))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _told(self, op: str, ask: str) -> None:
        with contextlib.suppress(BubblesError):
            await self._caller.call(op, {"ask": ask})

    def close(self) -> None:
        if self._reminder is not None:
            self._reminder.cancel()
        for task in self._background:
            task.cancel()


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask, and again while modeld is away. Raises ModelDown when it does not come back, and for what modeld itself could not do."""
    for pause in (*_AWAY_S, 0.0):
        try:
            return await ask()
        except (ModelError, Misconfigured):
            raise
        except Unavailable as error:
            if not pause:
                raise ModelDown(f"modeld does not answer: {error.text}", attempts=0) from error
            log.event("model.retry", f"modeld is away; again in {pause:g} s", priority="warning")
            await asyncio.sleep(pause)
        except BubblesError as error:
            raise ModelDown(error.text, attempts=0) from error
    raise AssertionError("unreachable")
