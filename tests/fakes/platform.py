"""The fake platform: a chat service like Telegram's bot API, in a process of its own, with the faults that real ones have.

    python -m tests.fakes.platform [--port 0] [--control-port 0] [--state FILE] [--keyed] [--with-parent]

It prints its URL, then the URL of its controls on a second line. HTTP, JSON both ways. For bots:

    POST /me       {}                                  → {"id": "bot"}; a channel logs in with it
    POST /poll     {"offset": n, "timeout_s": t}       → {"updates": [{"id", "chat", "sender", "text", "is_group", "mentioned", "all", "message",
                   "edit_of", "at"}]}, with "sender" {"id", "name", "bot"}, and "all": it has @all in it; it waits up to t seconds for the first
                   one; asking with an offset confirms all lower ids for ever
    POST /send     {"chat", "text", "reply_to", "key"} → {"id"}; where it is keyed, a known key gets the same id and shows nothing new
    POST /edit     {"chat", "id", "text"}              → {}; the message `id` says this now; 404 where there is none
    POST /delete   {"chat", "id"}                      → {}; it is there no more; 404 where there is none
    POST /members  {"chat", "query"}                   → {"members": [{"id", "name"}]} of those who have written there
    POST /show     {"chat", "kind"}                    → {}; something like "is typing"

For tests, at both URLs (at the first only while it is up):

    POST /_say     {"chat", "text", "sender", …}       → {"id"}: a person writes; what is left out is filled in
    POST /_faults  {…}                                 → {}: these faults and no others, from now on (below)
    GET  /_sent                                        → [{"chat", "id", "text", "key", "reply_to", "at", "edits"}], what people see, in order;
                                                         "edits": what the message said before, "deleted" where it is there no more
    GET  /_shown                                       → [{"chat", "kind"}]
    GET  /_state                                       → {"offset", "pending", "said", "sent", "polls", "sends", "logins", "open"}

Faults. A *chance* is a probability (0.2, or true for always), or a whole number of times:

    drop_send          chance: the connection is cut before the message is stored
    store_then_cut     chance: it is stored, then the connection is cut without an answer
    store_then_silent  chance: it is stored, then nothing is answered on that connection ever
    duplicate_updates  chance: a poll gets each update twice, and the last ones that were confirmed before them
    delay_s            seconds (or [least, most]) before each answer
    status             {"code", "retry_after", "times", "path", "chat"}, or a list of them: answered instead, nothing stored; "path" (/send unless
                       it is given; "" all), "chat" and "times" (else for ever) narrow it down
    silent             it accepts connections and what was sent on them vanishes, as do the answers to come; what came meanwhile is never answered
    deaf               as `silent`, for polls alone
    down               connections are refused, and those that are open are cut
    keyed              as the option
    seed               of the chances

With --state, what was said, sent and confirmed is kept in FILE, a line each, before it is answered: killed at any moment and started again on the
same port it goes on where it was, with no faults. With --with-parent it ends when its standard input does. It cannot prove how a real platform
behaves, only that ours bears one which behaves so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

_AGAIN = 3  # confirmed updates that come again with a duplicating poll
_REASONS = {code.value: code.phrase for code in HTTPStatus}

Body = dict[str, Any]


class Cut(Exception):
    """The connection ends here."""


class Silence(Exception):
    """Nothing is answered here any more."""


class Refused(Exception):
    """Answered with `status` and `body`."""

    def __init__(self, status: int, body: Body) -> None:
        super().__init__(status)
        self.status, self.body = status, body


class Book:
    """What the platform knows, and keeps: a line in the file for each change, written before anybody is answered."""

    def __init__(self, path: Path | None) -> None:
        self.said: list[Body] = []
        self.sent: list[Body] = []
        self.offset = 0
        self.by_key: dict[tuple[str, str], str] = {}
        self._file: BinaryIO | None = None
        if path is not None:
            whole = path.read_bytes() if path.exists() else b""
            for line in whole.splitlines(keepends=True):
                if line.endswith(b"\n"):
                    self._apply(json.loads(line))
            self._file = open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: SIM115
            self._file.truncate(whole.rfind(b"\n") + 1)
            self._file.seek(0, 2)

    def note(self, entry: Body) -> None:
        if self._file is not None:
            self._file.write(json.dumps(entry).encode() + b"\n")
        self._apply(entry)

    def _apply(self, entry: Body) -> None:
        if "said" in entry:
            self.said.append(entry["said"])
        elif "edited" in entry:
            message = self.message(entry["edited"]["chat"], entry["edited"]["id"])
            message["edits"] = [*message.get("edits", []), message["text"]]
            message["text"] = entry["edited"]["text"]
        elif "deleted" in entry:
            self.message(entry["deleted"]["chat"], entry["deleted"]["id"])["deleted"] = True
        elif "sent" in entry:
            self.sent.append(entry["sent"])
            self.by_key.setdefault((entry["sent"]["chat"], entry["sent"]["key"]), entry["sent"]["id"])
        else:
            self.offset = entry["offset"]

    def message(self, chat: str, id: str) -> Body:
        """What was sent there under that id. Raises Refused where it is not there."""
        for one in self.sent:
            if (one["chat"], one["id"]) == (chat, id) and not one.get("deleted"):
                return one
        raise Refused(404, {"error": "no such message"})

    def pending(self) -> list[Body]:
        return self.said[max(0, self.offset - 1) :]  # ids are 1, 2, 3 …

    def confirmed(self) -> list[Body]:
        return self.said[: max(0, self.offset - 1)]


class Faults:
    """The faults that are in force."""

    def __init__(self, wanted: Body, keyed: bool) -> None:
        self.wanted = dict(wanted)
        self.keyed = bool(self.wanted.get("keyed", keyed))
        self._random = random.Random(self.wanted.get("seed"))
        status = self.wanted.get("status") or []
        self._refusals = [dict(one) for one in (status if isinstance(status, list) else [status])]

    def on(self, name: str) -> bool:
        return bool(self.wanted.get(name))

    def strikes(self, name: str) -> bool:
        chance = self.wanted.get(name, 0)
        if isinstance(chance, bool):
            return chance
        if isinstance(chance, int):
            self.wanted[name] = max(0, chance - 1)
            return chance > 0
        return self._random.random() < chance

    def delay_s(self) -> float:
        wanted = self.wanted.get("delay_s", 0)
        return self._random.uniform(*wanted) if isinstance(wanted, list) else wanted

    def refusal(self, path: str, chat: str) -> Refused | None:
        for one in self._refusals:
            if one.get("path", "/send") in ("", path) and one.get("chat") in (None, chat) and one.get("times", 1) > 0:
                if "times" in one:
                    one["times"] -= 1
                body = {"error": _REASONS.get(one["code"], "unknown")}
                return Refused(one["code"], {**body, **({"retry_after": one["retry_after"]} if "retry_after" in one else {})})
        return None


class Platform:
    """What all connections share."""

    def __init__(self, state: Path | None, keyed: bool) -> None:
        self.book = Book(state)
        self.keyed = keyed
        self.faults = Faults({}, keyed)
        self.shown: list[Body] = []
        self.counts = dict.fromkeys(("polls", "sends", "logins"), 0)
        self.connections: set[Connection] = set()
        self.changed = asyncio.Event()
        self.bound: tuple[str, int] = ("127.0.0.1", 0)
        self.server: asyncio.Server | None = None

    async def up(self) -> None:
        if self.server is None:
            self.server = await asyncio.get_running_loop().create_server(lambda: Connection(self, False), *self.bound, backlog=1024)
            self.bound = self.server.sockets[0].getsockname()[:2]

    def down(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None
        for connection in [one for one in self.connections if not one.control]:
            connection.transport.abort()

    async def use(self, wanted: Body) -> None:
        self.faults = Faults(wanted, self.keyed)
        if self.faults.on("down"):
            self.down()
        else:
            await self.up()
        for connection in self.connections:  # what is on its way when the packets stop is gone
            connection.lost = connection.lost or self._vanishes(connection.path)

    def _vanishes(self, path: str) -> bool:
        return not path.startswith("/_") and bool(path) and (self.faults.on("silent") or (path == "/poll" and self.faults.on("deaf")))

    async def answer(self, connection: Connection, path: str, asked: Body) -> Any:
        if control := _CONTROLS.get(path):
            return await control(self, asked)
        act = _ACTS.get(path)
        if act is None:
            raise Refused(404, {"error": "no such method"})
        if self._vanishes(path):
            raise Silence
        faults = self.faults
        if (refusal := faults.refusal(path, str(asked.get("chat")))) is not None:
            raise refusal
        try:
            answer = await act(self, asked)
        finally:
            await asyncio.sleep(faults.delay_s())
        if connection.lost:
            raise Silence
        return answer

    async def me(self, asked: Body) -> Body:
        self.counts["logins"] += 1
        return {"id": "bot"}

    async def poll(self, asked: Body) -> Body:
        self.counts["polls"] += 1
        offset = int(asked["offset"])
        if offset > self.book.offset:
            self.book.note({"offset": min(offset, len(self.book.said) + 1)})
        again = self.book.confirmed()[-_AGAIN:] if self.faults.strikes("duplicate_updates") else []
        deadline = time.monotonic() + min(float(asked.get("timeout_s", 0)), 50.0)
        while not (self.book.pending() or again) and (left := deadline - time.monotonic()) > 0:
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), left)
            except TimeoutError:
                break
            again = self.book.confirmed()[-_AGAIN:] if self.faults.strikes("duplicate_updates") else []
        updates = self.book.pending()[:100]
        return {"updates": [*again, *updates, *updates] if again else updates}

    async def send(self, asked: Body) -> Body:
        self.counts["sends"] += 1
        chat, key = str(asked["chat"]), str(asked.get("key") or "")
        if self.faults.strikes("drop_send"):
            raise Cut
        id = self.book.by_key.get((chat, key)) if self.faults.keyed and key else None
        if id is None:
            id = str(len(self.book.sent) + 1)
            self.book.note(
                {"sent": {"chat": chat, "id": id, "text": asked["text"], "key": key, "reply_to": asked.get("reply_to", ""), "at": time.time()}}
            )
        if self.faults.strikes("store_then_cut"):
            raise Cut
        if self.faults.strikes("store_then_silent"):
            raise Silence
        return {"id": id}

    async def edit(self, asked: Body) -> Body:
        self.book.message(str(asked["chat"]), str(asked["id"]))
        self.book.note({"edited": {"chat": str(asked["chat"]), "id": str(asked["id"]), "text": asked["text"]}})
        return {}

    async def delete(self, asked: Body) -> Body:
        self.book.message(str(asked["chat"]), str(asked["id"]))
        self.book.note({"deleted": {"chat": str(asked["chat"]), "id": str(asked["id"])}})
        return {}

    async def members(self, asked: Body) -> Body:
        people = {one["sender"]["id"]: one["sender"]["name"] for one in self.book.said if one["chat"] == asked["chat"]}
        query = str(asked.get("query", "")).lower()
        return {"members": [{"id": id, "name": name} for id, name in people.items() if query in name.lower()]}

    async def show(self, asked: Body) -> Body:
        self.shown.append({"chat": asked["chat"], "kind": asked["kind"]})
        return {}

    # For tests.

    async def say(self, asked: Body) -> Body:
        id = len(self.book.said) + 1
        sender = {"id": "7", "name": "Ann", "bot": False, **asked.pop("sender", {})}
        usual = {"chat": "42", "text": "", "is_group": False, "mentioned": False, "message": f"m{id}", "edit_of": "", "at": time.time()}
        usual["all"] = "@all" in asked.get("text", "")  # told to a bot as to everybody
        self.book.note({"said": {**usual, **asked, "id": id, "sender": sender}})
        self.changed.set()
        return {"id": id}

    async def set_faults(self, asked: Body) -> Body:
        await self.use(asked)
        self.changed.set()
        return {}

    async def tell_sent(self, asked: Body) -> list[Body]:
        return self.book.sent

    async def tell_shown(self, asked: Body) -> list[Body]:
        return self.shown

    async def tell_state(self, asked: Body) -> Body:
        book = self.book
        waiting = len(book.pending())
        open_now = sum(not one.control for one in self.connections)
        return {"offset": book.offset, "pending": waiting, "said": len(book.said), "sent": len(book.sent), **self.counts, "open": open_now}


_ACTS = {"/me": Platform.me, "/poll": Platform.poll, "/send": Platform.send, "/members": Platform.members, "/show": Platform.show}
_ACTS |= {"/edit": Platform.edit, "/delete": Platform.delete}
_CONTROLS = {
    "/_say": Platform.say,
    "/_faults": Platform.set_faults,
    "/_sent": Platform.tell_sent,
    "/_shown": Platform.tell_shown,
    "/_state": Platform.tell_state,
}


class Connection(asyncio.Protocol):
    """One keep-alive connection: a request at a time."""

    transport: asyncio.Transport

    def __init__(self, platform: Platform, control: bool) -> None:
        self.platform, self.control = platform, control
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.path = ""  # of the request that is being answered
        self.lost = False  # its answer will never arrive

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.platform.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.platform.connections.discard(self)
        if self.task and self.path == "/poll":  # what is being sent is stored all the same
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._serve()

    def _serve(self) -> None:
        """Begin the next request that lies in the buffer whole, if none is being answered."""
        end = self.buffer.find(b"\r\n\r\n")
        if self.task or self.lost or end < 0:
            return
        first, *lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        if len(self.buffer) < end + 4 + size:
            return
        body = bytes(self.buffer[end + 4 : end + 4 + size])
        del self.buffer[: end + 4 + size]
        self.path = first.split(" ")[1]
        self.task = asyncio.get_running_loop().create_task(self._answer(body))

    async def _answer(self, body: bytes) -> None:
        try:
            asked = json.loads(body or b"{}")
            self._write(200, await self.platform.answer(self, self.path, asked))
        except Refused as refused:
            self._write(refused.status, refused.body)
        except Cut:
            self.transport.abort()
        except Silence:
            self.lost = True
        except (ValueError, KeyError, TypeError) as error:
            self._write(400, {"error": f"not a request: {type(error).__name__} {error}"})
        finally:
            self.task, self.path = None, ""
        self._serve()

    def _write(self, status: int, body: Any) -> None:
        if self.transport.is_closing():
            return
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self.transport.write(head.encode() + data)


async def serve(chosen: argparse.Namespace) -> None:
    """Serve until cancelled or, with `with_parent`, until standard input ends."""
    loop = asyncio.get_running_loop()
    platform = Platform(chosen.state, chosen.keyed)
    platform.bound = ("127.0.0.1", chosen.port)
    await platform.up()
    control = await loop.create_server(lambda: Connection(platform, True), "127.0.0.1", chosen.control_port, backlog=1024)
    print(f"http://127.0.0.1:{platform.bound[1]}", f"http://127.0.0.1:{control.sockets[0].getsockname()[1]}", sep="\n", flush=True)
    ended = asyncio.Event()
    if chosen.with_parent:
        loop.add_reader(sys.stdin.fileno(), lambda: sys.stdin.buffer.read1(4096) or ended.set())
    await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.fakes.platform", description="a chat platform with faults")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--control-port", type=int, default=0)
    parser.add_argument("--state", type=Path, help="keep what was said, sent and confirmed in this file")
    parser.add_argument("--keyed", action="store_true", help="show a key once")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
