"""The test channel: the frame of all channels (bubbles/channels), speaking to the fake platform.

    python -m tests.fakes.channel NAME --url URL [options of a daemon]

It runs as the daemon `channel-NAME`, with the queues inbound/NAME and outbound/NAME. The options of `main` shorten times that a test would
have to wait for.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx

from bubbles import daemon
from bubbles.channels.channel import Channel, Part, Take, Unconfirmed
from bubbles.channels.frame import run
from bubbles.channels.policy import Rules
from bubbles.channels.settings import Settings
from bubbles.daemon import Daemon
from bubbles.errors import Misconfigured, NotEver, NotNow
from bubbles.messages import Address, Inbound, Outbound, Sender


class TestChannel(Channel):
    """The platform at `url`. `most`: characters in a part."""

    __test__ = False  # it is no test, whatever it is called

    def __init__(
        self, name: str, url: str, *, keyed: bool, most: int, stale_s: float, poll_s: float, timeout_s: float, shows: bool, drafts: bool
    ) -> None:
        self.name, self.keyed, self.stale_s, self.shows = name, keyed, stale_s, shows
        self.drafts, self.typing_s = drafts, 4.0 if drafts else 0.0
        self._url, self._most, self._poll_s, self._timeout_s = url, most, poll_s, timeout_s
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        await self.close()
        # No connection is used twice: one that the platform has just closed would make an uncertain send of a sure failure.
        self._client = httpx.AsyncClient(base_url=self._url, timeout=self._timeout_s, limits=httpx.Limits(max_keepalive_connections=0))
        await self._ask("/me")

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def listen(self, take: Take) -> None:
        offset = 0
        while True:
            found = await self._ask("/poll", timeout_s=self._poll_s + self._timeout_s, body={"offset": offset, "timeout_s": self._poll_s})
            take.alive()
            for update in found["updates"]:
                await take(self._inbound(update))
                offset = max(offset, update["id"] + 1)

    def _inbound(self, update: dict[str, Any]) -> Inbound:
        return Inbound(
            id=f"{self.name}-{update['id']}",
            at=update["at"],
            channel=self.name,
            chat=update["chat"],
            text=update["text"],
            message=update["message"],
            is_group=update["is_group"],
            mentioned=update["mentioned"],
            edit_of=update["edit_of"],
            sender=Sender(**update["sender"]),
        )

    def split(self, message: Outbound) -> list[str]:
        step = self._most or len(message.text) or 1
        return [message.text[start : start + step] for start in range(0, len(message.text), step)]

    async def deliver(self, message: Outbound, part: Part) -> str:
        if part.draft:
            await self._ask("/edit", body={"chat": message.chat, "id": part.draft, "text": part.text})
            return part.draft
        body = {"chat": message.chat, "text": part.text, "reply_to": message.reply_to, "key": part.key}
        return str((await self._ask("/send", body=body))["id"])

    async def who(self) -> str:
        return str((await self._ask("/me"))["id"])

    async def draft(self, address: Address, text: str, id: str = "", *, reply_to: str = "") -> str:
        if id:
            await self._ask("/edit", body={"chat": address.chat, "id": id, "text": text})
            return id
        return str((await self._ask("/send", body={"chat": address.chat, "text": text, "reply_to": reply_to, "key": ""}))["id"])

    async def undraft(self, address: Address, id: str) -> None:
        await self._ask("/delete", body={"chat": address.chat, "id": id})

    async def typing(self, address: Address) -> None:
        await self._ask("/show", body={"chat": address.chat, "kind": "typing"})

    async def show(self, topic: str, event: dict[str, Any]) -> None:
        chat, _, kind = topic.removeprefix(f"{self.name}/").rpartition("/")
        await self._ask("/show", body={"chat": chat, "kind": kind})

    async def find(self, chat: str, query: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = (await self._ask("/members", body={"chat": chat, "query": query}))["members"]
        return found

    async def reachable(self) -> bool:
        parts = urlsplit(self._url)
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.close()
        return True

    async def _ask(self, path: str, *, body: dict[str, Any] | None = None, timeout_s: float = 0) -> Any:
        if self._client is None:
            raise NotNow("not connected")
        try:
            response = await self._client.post(path, json=body or {}, timeout=timeout_s or self._timeout_s)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotNow(f"cannot be reached: {type(error).__name__}") from error
        except httpx.HTTPError as error:
            raise (Unconfirmed if path in ("/send", "/edit") else NotNow)(f"the connection ended: {type(error).__name__}") from error
        if response.status_code == 200:
            return response.json()
        raise _refusal(response.status_code, response.json())


def _refusal(status: int, body: dict[str, Any]) -> Exception:
    """What the platform's answer means. A 5xx of this platform says that nothing was stored."""
    text = f"{status} {body.get('error', '')}"
    if status == 401:
        return Misconfigured(f"the platform rejects the token: {text}", remedy="give it another")
    if status == 429 or status >= 500:
        return NotNow(text, until=time.time() + body["retry_after"] if body.get("retry_after") else 0)
    return NotEver(text)


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="tests.fakes.channel", add_help=False)
    parser.add_argument("--url", required=True)
    parser.add_argument("--keyed", action="store_true", help="rely on the platform to show a key once")
    parser.add_argument("--most", type=int, default=0, help="characters in a part")
    parser.add_argument("--shows", action="store_true", help="show progress")
    parser.add_argument("--drafts", action="store_true", help="edit messages while they grow, and say that somebody types")
    parser.add_argument("--on-uncertain", default="resend", choices=["resend", "hold"])
    parser.add_argument("--pace", type=float, default=1.0, help="times the back-off of messages, and of connecting")
    parser.add_argument("--stale-s", type=float, default=120.0)
    parser.add_argument("--poll-s", type=float, default=30.0)
    parser.add_argument("--timeout-s", type=float, default=10.0, help="of a request")
    parser.add_argument("--owner", action="append", default=[], help="an id of the owner; without one, the person of these tests is it")
    parser.add_argument("--allow-from", action="append", default=[])
    parser.add_argument("--strict", action="store_true", help="let in nobody but those; else everybody")
    parser.add_argument("--group-policy", default="open", choices=["mention", "open", "allowlist"])
    parser.add_argument("--group", action="append", default=[], help="a group in which everybody may speak")
    parser.add_argument("--overhear", action="store_true")
    own, rest = parser.parse_known_args()
    settings = Settings(on_uncertain=own.on_uncertain, pace=own.pace, first_s=own.pace, longest_s=60 * own.pace)

    rules = Rules(
        owners=frozenset(own.owner or ([] if own.strict else ["7", "me"])),
        guests=frozenset(own.allow_from),
        everybody=not own.strict,
        group_policy=own.group_policy,
        groups=frozenset(own.group),
        overhear=own.overhear,
    )

    async def serve(self: Daemon) -> None:
        times = {"stale_s": own.stale_s, "poll_s": own.poll_s, "timeout_s": own.timeout_s}
        channel = TestChannel(self.args[0], own.url, keyed=own.keyed, most=own.most, shows=own.shows, drafts=own.drafts, **times)
        await run(self, channel, settings, rules)

    daemon.main("channel", serve, rest, about=__doc__ or "", takes="NAME")


if __name__ == "__main__":
    sys.exit(main())
