"""agentd's side of modeld: which model answers, and one question after another by reference to what modeld holds.

It does not know providers or keys. A modeld that is being restarted is waited for; asking again under the same
id joins a request that is still running there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from bubbles import log
from bubbles.agentd.request import Prefix, Tools
from bubbles.bus.caller import Caller, Part
from bubbles.errors import BubblesError, Misconfigured, ModelDown, ModelError, NeedBase, Unavailable
from bubbles.kernel.context import Shape
from bubbles.paths import Home

T = TypeVar("T")

_ROUTE_S = 300.0  # a route is believed this long
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


class Models:
    """The models, as agentd asks them."""

    def __init__(self, home: Home) -> None:
        self._caller = Caller(home, "modeld")
        self._routes: dict[tuple[str, str], tuple[float, Route]] = {}
        self._tools_told: set[str] = set()
        self._background: set[asyncio.Task[None]] = set()

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
            return known[1]
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
        )
        self._routes[model, provider] = (time.monotonic(), route)
        return route

    async def ask(
        self, body: dict[str, Any], prefix: Prefix | None, lines: list[bytes], tools: Tools, on_part: Part | None = None
    ) -> dict[str, Any]:
        """One answer. `lines` are all messages of the request; only those modeld lacks are sent. Raises ModelError."""
        def forget() -> None:
            self._tools_told.clear()
            if prefix is not None:
                prefix.lines = []

        async def once() -> dict[str, Any]:
            try:
                return await self._repeating(body, prefix, lines, tools, on_part)
            except Unavailable:
                forget()
                raise
            except NeedBase:
                forget()
                return await self._repeating(body, prefix, lines, tools, on_part)

        return await _patiently(once)

    async def _repeating(
        self, body: dict[str, Any], prefix: Prefix | None, lines: list[bytes], tools: Tools, on_part: Part | None
    ) -> dict[str, Any]:
        repeat = asyncio.create_task(self._repeat(str(body["ask"])))
        try:
            return await self._once(body, prefix, lines, tools, on_part)
        finally:
            repeat.cancel()

    async def _once(
        self, body: dict[str, Any], prefix: Prefix | None, lines: list[bytes], tools: Tools, on_part: Part | None
    ) -> dict[str, Any]:
        keep = prefix.keep(lines) if prefix is not None else 0
        told = not tools.name or tools.name in self._tools_told
        head = {**body, "base": prefix.base if prefix is not None else "", "keep": keep, "tools": tools.name}
        blobs = [b"\n".join(lines[keep:]), b"" if told else tools.body]
        if prefix is not None:
            prefix.lines = list(lines)
        answer, _ = await self._caller.call("model.ask", head, blobs, on_part=on_part)
        if tools.name:
            self._tools_told.add(tools.name)
        return answer

    async def _repeat(self, ask: str) -> None:
        """Tell modeld from time to time that somebody still waits."""
        while True:
            await asyncio.sleep(_REPEAT_S)
            with contextlib.suppress(BubblesError):
                await self._caller.call("model.keep", {"ask": ask})

    def cancel(self, ask: str) -> None:
        """Let modeld drop a request; nobody waits for its answer."""
        task = asyncio.get_running_loop().create_task(self._cancel(ask))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _cancel(self, ask: str) -> None:
        with contextlib.suppress(BubblesError):
            await self._caller.call("model.cancel", {"ask": ask})

    def close(self) -> None:
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
