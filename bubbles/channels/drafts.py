"""Words that grow before a reader's eyes: a message that is edited while its turn goes on, and becomes the reply in the end.

It does not know what a turn is, nor whether one runs: it is told by the feed (bus/PROTOCOL.md), whose events may be missed. So a draft is worth
nothing: what counts is in the queues, and delivery.py sends it whether there was a draft or not. Which drafts a chat shows is in
HOME/channels/NAME/drafts.json, so that the reply of a turn that was killed in between still takes their place:

    {"version": 1, "drafts": [{"chat", "thread", "turn", "id", "at"}]}    `id`: the platform's, `at`: epoch seconds

| killed | leaves | and then |
|---|---|---|
| before a draft's id is in the file | a message that stays as it is | the reply comes as a message of its own |
| before the reply has taken it | a line in the file | the reply takes it, or the next turn of that chat removes it, or an hour |
| between the receipt `draft` and the line's removal | both | the receipt counts, and the line goes with it |
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles import log, regular
from bubbles.channels.channel import Channel, Unconfirmed
from bubbles.channels.pace import Pace
from bubbles.errors import DataError, NotEver, NotNow
from bubbles.messages import Address, Outbound, from_line, migrate

VERSION = 1
MARK = " …"  # more is to come
_HINTS_MOST, _WORDS_MOST, _CHATS_MOST = 5, 100_000, 1000
_CALL_S = 20.0  # one edit
_LATEST_S = 600.0  # what is not shown by then is not shown
_FORGOTTEN_S = 3600.0  # a draft that nothing was heard of


@dataclass(slots=True)
class Draft:
    """One message that grows. `state`: growing, said (the reply is in the queue), ended (calls follow), remove, gone."""

    address: Address
    turn: str
    id: str = ""
    at: float = 0.0
    reply_to: str = ""
    state: str = "growing"
    words: str = ""
    hints: list[str] = field(default_factory=list)
    shown: str = ""
    is_full: bool = False
    since: float = 0.0  # of the state, monotonic
    next: float = 0.0  # not before
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, ["\n".join(self.hints), self.words.strip()]))


class Drafts:
    """The drafts of a channel. `progress`: text beside tool calls stays in the chat; `hints`: calls are shown while they run. `now`: monotonic."""

    def __init__(self, channel: Channel, path: Path, pace: Pace, now: Callable[[], float], *, progress: bool = True, hints: bool = True) -> None:
        self._channel, self._path, self._pace, self._now = channel, path, pace, now
        self._progress, self._hints = progress, hints
        self._drafts: list[Draft] = []
        self._closing = False
        if channel.drafts:
            self._load()

    # what the feed tells

    def tell(self, address: Address, event: dict[str, Any]) -> None:
        """An event of a turn in which somebody has spoken at `address`."""
        turn, kind = event.get("turn"), event.get("kind")
        if not self._channel.drafts or self._closing or not isinstance(turn, str) or not isinstance(kind, str):
            return
        body = event.get(kind)
        match kind, body:
            case "state", {"now": "begin"}:
                self._begin(address, turn)
            case ("state", {"now": "end"}) | ("end", _):
                self._leave(address, lambda draft: draft.turn == turn)
            case "text", str():
                draft = self._growing(address, turn)
                draft.reply_to = str(event.get("message") or "")
                draft.words = (draft.words + body)[:_WORDS_MOST]
                self._touch(draft)
            case "retry", _:
                self._growing(address, turn).words = ""
            case "text_end", _:
                self._end_progress(self._growing(address, turn))
            case "tool", {"state": "start", "hint": str(hint)} if self._hints:
                draft = self._growing(address, turn)
                draft.hints = [*draft.hints, "▸ `" + hint.replace("`", "'").replace("\n", " ") + "`"][-_HINTS_MOST:]
                self._touch(draft)
            case "say", _:
                for draft in self._at(address):
                    if draft.turn == turn and draft.state == "growing":
                        self._turn_to(draft, "said")

    def _begin(self, address: Address, turn: str) -> None:
        """A turn begins, or goes on in a new agentd, which asks the model anew. What is left of another one came to nothing."""
        self._leave(address, lambda draft: draft.turn != turn)
        for draft in self._at(address):
            if draft.turn == turn and draft.state == "growing":
                draft.words, draft.is_full = "", False

    def _leave(self, address: Address, which: Callable[[Draft], bool]) -> None:
        for draft in self._at(address):
            if draft.state in ("growing", "ended") and which(draft):
                self._turn_to(draft, "remove")

    def _end_progress(self, draft: Draft) -> None:
        if self._progress and draft.words.strip():
            self._turn_to(draft, "ended")
        else:
            draft.words, draft.is_full = "", False

    def _growing(self, address: Address, turn: str) -> Draft:
        for draft in reversed(self._at(address)):
            if draft.turn == turn and draft.state == "growing":
                return draft
        draft = Draft(address, turn, at=time.time(), since=self._now())
        if len(self._drafts) < _CHATS_MOST:
            self._drafts.append(draft)
        else:
            draft.state = "gone"
        return draft

    def _at(self, address: Address) -> list[Draft]:
        return [draft for draft in self._drafts if draft.address == address]

    def _turn_to(self, draft: Draft, state: str) -> None:
        draft.state, draft.since = state, self._now()
        self._touch(draft)

    # what the reply asks

    async def claim(self, message: Outbound) -> str:
        """The id of the draft whose place a reply or text beside calls takes, "" where there is none. Nobody edits it any more; `drop` forgets it."""
        states = {"reply": ("growing", "said"), "progress": ("ended",)}.get(message.origin, ())
        for draft in self._at(Address(message.channel, message.chat, message.thread)):
            if draft.turn == message.turn and draft.state in states:
                async with draft.lock:  # an edit that is under way would come after the reply
                    if draft.state not in states:
                        continue
                    draft.state = "gone"
                    if draft.id:
                        return draft.id
                    self._forget(draft)
        return ""

    def drop(self, id: str) -> None:
        """The message `id` is a draft no more."""
        for draft in [draft for draft in self._drafts if draft.id == id]:
            draft.state = "gone"
            self._forget(draft)

    async def close(self) -> None:
        """Edit nothing any more."""
        self._closing = True
        tasks = [draft.task for draft in self._drafts if draft.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # what the chat sees

    def _touch(self, draft: Draft) -> None:
        if draft.state != "gone" and (draft.task is None or draft.task.done()):
            draft.task = asyncio.get_running_loop().create_task(self._keep(draft))

    async def _keep(self, draft: Draft) -> None:
        """Until the chat shows what it should. Never raises but when cancelled."""
        while draft.state != "gone" and not self._is_shown(draft):
            if (wait_s := draft.next - self._now()) > 0:
                await asyncio.sleep(wait_s)
            async with draft.lock:
                draft.next = self._now() + max(1.0, self._channel.draft_s)
                try:
                    async with asyncio.timeout(_CALL_S):
                        await self._advance(draft)
                except NotNow as error:
                    draft.next = max(draft.next, self._now() + min(error.until - time.time(), _LATEST_S))
                except NotEver:
                    self._refused(draft)
                except Exception as error:  # what is shown on the way may be missed, whatever a library raises
                    log.debug(f"a draft was not shown: {type(error).__name__}: {error}", channel=self._channel.name)
                    if isinstance(error, Unconfirmed | TimeoutError) and not draft.id:
                        self._refused(draft)  # another one might stand beside it
                    draft.next += max(1.0, self._channel.draft_s)
            if draft.state == "remove" and self._now() - draft.since > _LATEST_S:
                self._forget(draft)

    def _is_shown(self, draft: Draft) -> bool:
        return draft.state in ("said", "ended") or (draft.state == "growing" and (not draft.text or draft.is_full or draft.shown == draft.text))

    async def _advance(self, draft: Draft) -> None:
        match draft.state:
            case "growing" if not self._is_shown(draft) and self._pace.spare(draft.address.chat):
                text, whole = self._fitted(draft), draft.text
                await self._show(draft, text)
                draft.shown = whole
            case "remove":
                if draft.id:
                    await self._channel.undraft(draft.address, draft.id)
                self._forget(draft)

    async def _show(self, draft: Draft, text: str) -> None:
        before = draft.id
        draft.id = await self._channel.draft(draft.address, text, draft.id, reply_to=draft.reply_to)
        if draft.id != before:
            self._save()

    def _fitted(self, draft: Draft) -> str:
        """What the draft is to show: all that fits into one message. From then on it does not grow."""
        parts = self._parts(draft, draft.text + MARK)
        if len(parts) == 1:
            return parts[0]
        draft.is_full = True
        for tenths in (10, 9, 8, 5):
            cut = parts[0][: len(parts[0]) * tenths // 10]
            shorter = self._parts(draft, (cut if tenths == 10 else cut.rstrip()) + MARK)
            if len(shorter) == 1:
                return shorter[0]
        return parts[0]

    def _parts(self, draft: Draft, text: str) -> list[str]:
        where = draft.address
        whole = Outbound("", 0.0, where.channel, where.chat, text, where.thread, turn=draft.turn)
        return [part for part in self._channel.split(whole) if part.strip()]

    def _refused(self, draft: Draft) -> None:
        """The platform has it no more, or shows none here: the reply is sent as a message of its own."""
        self._forget(draft)

    def _forget(self, draft: Draft) -> None:
        draft.state = "gone"
        with contextlib.suppress(ValueError):
            self._drafts.remove(draft)
        if draft.id:
            self._save()

    # the file

    def _save(self) -> None:
        kept = [draft for draft in self._drafts if draft.id]
        lines = [{"chat": one.address.chat, "thread": one.address.thread, "turn": one.turn, "id": one.id, "at": one.at} for one in kept]
        part = self._path.with_name(f"{self._path.name}.part")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(part, "w", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as file:
                json.dump({"version": VERSION, "drafts": lines}, file)
            os.replace(part, self._path)
        except OSError as error:  # then a draft may stay in its chat
            log.event("daemon.warning", f"drafts are not noted: {error}", priority="warning", channel=self._channel.name)

    def _load(self) -> None:
        try:
            body = migrate(from_line(regular.read(self._path, 10_000_000)), VERSION, {}, str(self._path))
            found = [
                Draft(Address(self._channel.name, one["chat"], one["thread"]), one["turn"], one["id"], one["at"]) for one in body.get("drafts", [])
            ]
        except FileNotFoundError:
            return
        except (OSError, DataError, KeyError, TypeError) as error:
            log.event("daemon.warning", f"{self._path} cannot be read: {error}; drafts may stay", priority="warning", channel=self._channel.name)
            return
        self._drafts = found[:_CHATS_MOST]

    def tidy(self) -> None:
        """Remove what nothing was heard of for an hour: its turn ended while nobody listened, or its reply was given up."""
        for draft in list(self._drafts):
            if time.time() - draft.at > _FORGOTTEN_S and (draft.task is None or draft.task.done()):
                self._turn_to(draft, "remove") if draft.state == "growing" else self._forget(draft)
