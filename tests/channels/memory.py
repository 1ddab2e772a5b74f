"""A platform in memory, at the seam of Channel: each send meets the next fate of a plan, and what people then see is in `shown`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from bubbles.channels.channel import Channel, Part, Take, Unconfirmed
from bubbles.errors import NotEver, NotNow
from bubbles.messages import Outbound
from tests.channels.clock import Clock

# What may become of a send. *kept*: the platform has it; *lost*: it has not. What is sure, and `never`, is told as it is.
SURE = ("ok", "refuse", "wait")
FATES = (*SURE, "lost", "kept", *(f"{end}_{stored}" for end in ("bug", "hang", "cancel", "die") for stored in ("lost", "kept")))
_PUT_OFF_S = 300.0


@dataclass(frozen=True)
class Shown:
    """A part as people see it."""

    chat: str
    message: str
    n: int
    key: str
    text: str
    at: float


class Memory(Channel):
    """`most`: characters in a part. `died` is set when this process is to be thought dead; `stuck` chats get no answer, ever."""

    name = "memory"

    def __init__(self, clock: Clock, plan: Iterable[str] = (), *, keyed: bool = False, most: int = 4) -> None:
        self.clock, self.plan, self.keyed, self.most = clock, deque(plan), keyed, most
        self.shown: list[Shown] = []
        self.tries: list[tuple[str, int, float]] = []
        self.put_off: dict[str, float] = {}
        self.died = asyncio.Event()
        self.stuck: set[str] = set()
        self.for_chat: dict[str, str] = {}  # a fate that is always met there

    async def open(self) -> None: ...

    async def listen(self, take: Take) -> None:
        await asyncio.Event().wait()

    def split(self, message: Outbound) -> list[str]:
        return [message.text[start : start + self.most] for start in range(0, len(message.text), self.most)]

    async def deliver(self, message: Outbound, part: Part) -> str:
        assert not self.died.is_set(), "a dead process sends"
        assert self.put_off.get(part.key, 0) <= self.clock.now, "before the platform allowed it"
        self.tries.append((message.id, part.n, self.clock.now))
        fate = self.for_chat.get(message.chat) or (self.plan.popleft() if self.plan else "ok")
        await asyncio.sleep(0.05)
        if fate == "ok" or fate.endswith("_kept") or fate == "kept":
            self._show(message, part)
        if fate.startswith("die"):
            self.died.set()
        if message.chat in self.stuck or fate.startswith(("hang", "die")):
            await asyncio.Event().wait()
        return self._answer(fate, part)

    def _show(self, message: Outbound, part: Part) -> None:
        if not (self.keyed and any(one.key == part.key for one in self.shown)):
            self.shown.append(Shown(message.chat, message.id, part.n, part.key, part.text, self.clock.now))

    def _answer(self, fate: str, part: Part) -> str:
        match fate.partition("_")[0]:
            case "ok":
                return f"id-{part.key}"
            case "refuse":
                raise NotNow("503")
            case "wait":
                self.put_off[part.key] = self.clock.now + _PUT_OFF_S
                raise NotNow("429", until=self.put_off[part.key])
            case "never":
                raise NotEver("blocked by the user")
            case "lost" | "kept":
                raise Unconfirmed("the connection ended")
            case "bug":
                raise KeyError("ok")
        raise asyncio.CancelledError
