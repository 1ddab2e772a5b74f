"""What a turn writes to chats beside its replies, and whom it finds in its own: what may be reached from it, and how it gets there once.

A message goes into its channel's queue under `TURN.CALL`. A call that was cut short is looked up there: whoever goes on knows whether it was
queued, and never sends it twice. The session of the chat that was written to gets a note of it, so that an answer makes sense there.
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbles import regular
from bubbles.agentd.outgoing import TERMINAL, has_queue
from bubbles.bus.caller import Caller
from bubbles.errors import BubblesError, DataError, ProtocolError, Refused, ToolError
from bubbles.ids import safe
from bubbles.kernel import prompt
from bubbles.kernel.events import ToolFinished, UserSpoke
from bubbles.kernel.turn import Turn
from bubbles.messages import Address, Inbound, Media, Outbound, Sender, from_dict, from_line, to_dict
from bubbles.spool import Queue
from bubbles.workspace import Workspace

if TYPE_CHECKING:
    from bubbles.agentd.agent import Agent

QUEUE = "posted"  # agentd's own: notes of what was written to a chat, for that chat's session; they wake nobody
TOOL = "message"
NOTED = "assistant"  # the id of their sender
FILE_MOST = 50 << 20  # bytes of a file that is sent
_FREE_LEAST = 256 << 20  # of the disk, beyond what is copied
_LISTED_MOST = 20  # addresses that a refusal names
_FOUND_MOST = 30  # people that an answer names
_FIND_S = 10.0
_ENDING = re.compile(r"\.[A-Za-z0-9]{1,10}")
_NOT_QUEUED = "Error: not sent; a restart came before it was queued. Send it again if it is still wanted."


def is_note(inbound: Inbound) -> bool:
    """Whether it tells a session what was written to its chat. Only what lies in a queue of the system's is of its origin."""
    return inbound.origin == "system" and inbound.sender.id == NOTED


def sent(turn: Turn, before: str = "") -> int:
    """How many messages have left a turn: replies, text beside calls, and what `message` wrote before the call `before`."""
    count = len(turn.says)
    for each in turn.messages:
        calls = each.get("tool_calls") or ()
        count += bool(calls and each.get("content"))
        for call in calls:
            if call["id"] == before:
                return count
            count += call["function"]["name"] == TOOL
    return count


def settled(agent: Agent, session: str, turn: Turn) -> list[ToolFinished]:
    """What became of calls that a killed agentd had begun: whether what they wrote is in a queue. A note that is missing is made up for."""
    found = []
    for call in turn.running:
        if call.name == TOOL:
            message = _queued(agent.home.root / "spool" / "outbound", f"{turn.id}.{call.id}")
            if message is not None:
                _note(agent, message, session)
            found.append(ToolFinished(call.id, _told(message) if message else _NOT_QUEUED, message is not None))
    return found


class Post:
    """The chats, as the tools of one call see them."""

    def __init__(self, agent: Agent, session: str, turn: Turn, call: str) -> None:
        self._agent, self._session, self._turn, self._call = agent, session, turn, call

    async def send(self, to: str, text: str, files: Sequence[str], open_files: Callable[[], Workspace]) -> str:
        """Queue a message; what the model is told of it. Raises ToolError where it may not be sent, or cannot; nothing is sent then."""
        address, answers = self._where(to.strip(), bool(files))
        most = self._agent.settings.agents.limits.outbound
        if sent(self._turn, self._call) >= most:
            raise Refused(f"{most} messages have left this turn, and no more may", remedy="say the rest in your reply")
        id = f"{self._turn.id}.{self._call}"
        try:
            media = await asyncio.to_thread(self._copied, address.channel, id, files, open_files) if files else ()
            at, own = time.time(), self._session
            message = Outbound(id, at, address.channel, address.chat, text, address.thread, answers, media, own, self._turn.id, "tool")
            self._agent.outgoing.send(message, sync=False)
            _note(self._agent, message, self._session)
            await self._agent.outgoing.durable(message)
        except ToolError:
            raise
        except (BubblesError, OSError) as error:
            raise ToolError(f"it could not be queued: {error}") from error
        return _told(message)

    async def find(self, query: str) -> str:
        """Those in the turn's group whose names have `query` in them, a line each. Raises ToolError where the channel cannot be asked."""
        group = next((spoke for spoke in reversed(self._turn.spoken) if spoke.is_group and has_queue(spoke)), None)
        if group is None:
            return "no members: this is no group"
        caller = Caller(self._agent.home, f"channel-{group.address.channel}", patience_s=0.5)
        try:
            async with asyncio.timeout(_FIND_S):
                body, _ = await caller.call("members.find", {"chat": group.address.chat, "query": query}, timeout_s=_FIND_S)
        except TimeoutError as error:
            raise ToolError(f"{group.address.channel} did not answer within {_FIND_S:g} s") from error
        except BubblesError as error:
            raise ToolError(f"{group.address.channel} cannot be asked: {error.text}") from error
        finally:
            caller.close()
        return _people(body.get("members"))

    # Where to.

    def _where(self, to: str, with_files: bool) -> tuple[Address, str]:
        """The address, and the platform's id of the message that it answers there. Raises Refused."""
        own = {_plain(spoke.address): spoke for spoke in self._turn.spoken}
        here = self._here(to, own)
        if here is not None:
            if not has_queue(here):
                raise Refused("nothing can be sent here: a terminal shows words alone", remedy="say in your reply where the file lies")
            if not with_files:
                raise Refused("that is the chat you are in, and your reply goes there by itself", remedy="use this here for files alone")
            return here.address, here.message
        if why := self._bound():
            raise Refused(f"{to or 'no chat'} cannot be written to: {why}", remedy=f"this turn can write to: {', '.join(own)}")
        address = self._among(to, self._agent.chats.reach())
        self._see(address.channel)
        return address, ""

    def _here(self, to: str, own: dict[str, UserSpoke]) -> UserSpoke | None:
        if not to:
            return self._turn.spoken[-1] if self._turn.spoken else None
        return own.get(to) or next((spoke for spoke in own.values() if str(spoke.address) == to), None)

    def _bound(self) -> str:
        """Why the turn reaches its own chats alone; "" where it does not."""
        if self._turn.origin != "user":
            return "no person began this turn"
        if any(spoke.is_group for spoke in self._turn.spoken):
            return "this is a group"
        return "" if all(spoke.owner for spoke in self._turn.spoken) else "somebody else than the owner speaks here"

    def _among(self, to: str, reach: dict[str, str]) -> Address:
        chat, _, thread = to.rpartition("/")
        for plain, within in ((to, ""), (chat, thread)):
            if plain in reach:
                channel, _, rest = plain.partition(":")
                return Address(channel, rest, within)
        listed = [f"{address} ({prompt.line(name, 40)})" if name else address for address, name in [*reach.items()][:_LISTED_MOST]]
        more = f" and {len(reach) - _LISTED_MOST} more" if len(reach) > _LISTED_MOST else ""
        able = f"you may write to: {', '.join(listed)}{more}" if listed else "there is no chat yet that you may write to unasked"
        raise Refused(f"{to!r} is no chat that you may write to", remedy=f"{able}. The owner may add it to channels.NAME.targets")

    def _see(self, channel: str) -> None:
        """Raises Refused for a channel that delivers nothing. One that has no settings is somebody's own, and has made its queue."""
        section = getattr(self._agent.settings.channels, channel, None)
        is_there = getattr(section, "enabled", False) if section is not None else self._agent.home.outbound(channel).is_dir()
        if channel == TERMINAL or not is_there:
            raise Refused(f"the channel {channel} is not switched on")

    # Files.

    def _copied(self, channel: str, id: str, files: Sequence[str], open_files: Callable[[], Workspace]) -> tuple[Media, ...]:
        """The files as they are now, beside the queue: what becomes of them later changes nothing. Raises ToolError or OSError; none stays then."""
        folder = self._agent.home.outbound(channel) / "media"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        workspace, made = open_files(), list[Media]()
        try:
            for n, path in enumerate(files):
                made.append(_copy(workspace, path, folder, f"{safe(id)}.{n}"))
        except BaseException:
            for media in made:
                with contextlib.suppress(OSError):
                    os.unlink(media.path)
            raise
        return tuple(made)


def _copy(workspace: Workspace, path: str, folder: Path, name: str) -> Media:
    shown = os.path.basename(path.rstrip("/"))
    ending = os.path.splitext(shown)[1]
    target = folder / f"{name}{ending.lower() if _ENDING.fullmatch(ending) else ''}"
    room = os.statvfs(folder)
    most = min(FILE_MOST, room.f_bavail * room.f_frsize - _FREE_LEAST)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        size = workspace.copy(path, fd, most)
        os.fsync(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(target)
        raise
    finally:
        os.close(fd)
    return Media(str(target), shown, mimetypes.guess_type(shown)[0] or "", size)


def _note(agent: Agent, message: Outbound, session: str) -> None:
    """Tell the session of the chat that was written to, unless it is the one that wrote. Under an id that is known nothing changes."""
    key = agent.chats.key_to(Address(message.channel, message.chat))
    if key == session:
        return
    files = "".join(f"\n[file: {prompt.line(media.name)}]" for media in message.media)
    note = Inbound(
        id=message.id,
        at=message.at,
        channel=message.channel,
        chat=message.chat,
        thread=message.thread,
        text=message.text + files,
        wakes=False,
        sender=Sender(NOTED, f"you, in session {session}", owner=True),
        origin="system",
        session=key,
    )
    queue = Queue(agent.home.inbound(QUEUE))
    queue.prepare()
    queue.put(note.id, to_dict(note))
    agent.intake.ring()


def _queued(root: Path, id: str) -> Outbound | None:
    """The message of this id, in whichever state of whichever outbound queue."""
    for state in ("new", "cur", "done", "held"):
        for path in root.glob(f"*/{state}/{safe(id)}.json"):
            with contextlib.suppress(OSError, DataError, ProtocolError):
                return from_dict(Outbound, {**from_line(regular.read(path)), "id": id})
    return None


def _told(message: Outbound) -> str:
    files = f", with {len(message.media)} file{'s' * (len(message.media) != 1)}" if message.media else ""
    return f"queued for {Address(message.channel, message.chat, message.thread)}{files}"


def _people(members: Any) -> str:
    lines = [
        f"<@{prompt.line(one['id'], 200)}> {prompt.line(str(one.get('name', '')), 80)}".rstrip()
        for one in (members if isinstance(members, list) else ())
        if isinstance(one, dict) and isinstance(one.get("id"), str) and one["id"]
    ]
    more = [f"and {len(lines) - _FOUND_MOST} more: ask for a longer part of the name"] if len(lines) > _FOUND_MOST else []
    return "\n".join([*lines[:_FOUND_MOST], *more]) or "nobody of that name is known here"


def _plain(address: Address) -> str:
    return f"{address.channel}:{address.chat}"
