"""One message on its way out: claimed once, sent part by part, and tried again until it is delivered or given up.

It does not know of any other message. Each step is on disk before the next: `begun` before a part is sent, `delivered` when the platform has said so,
the queue's `finish` when all parts are. So whoever comes after a crash knows what is surely delivered, and what nobody can tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bubbles import log
from bubbles.channels.channel import Channel, Part, Unconfirmed
from bubbles.channels.drafts import Drafts
from bubbles.channels.pace import Pace
from bubbles.channels.receipts import Receipt, Receipts
from bubbles.channels.settings import Settings
from bubbles.errors import BubblesError, DataError, Misconfigured, NotEver, NotNow, ProtocolError
from bubbles.messages import Outbound, from_dict
from bubbles.spool import Queue
from bubbles.spool.backoff import GIVE_UP_S, LONGEST_S, delay, given_up

_LEAST_S = 0.5  # between two tries, whatever a platform asks for


@dataclass(slots=True)
class Desk:
    """What all deliveries of a channel share. `now`: epoch seconds."""

    channel: Channel
    queue: Queue
    receipts: Receipts
    settings: Settings
    now: Callable[[], float] = time.time
    drafts: Drafts | None = None
    slots: asyncio.Semaphore = field(init=False)
    pace: Pace = field(init=False)
    closing: bool = False  # nothing is begun any more
    sending: int = 0
    last: float | None = None  # when the platform last took a part

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.settings.at_once)
        channel = self.channel
        self.pace = Pace(channel.chat_s, channel.burst, channel.all_per_s, lambda: asyncio.get_running_loop().time())


class Delivery:
    """The delivery of the message `id`."""

    def __init__(self, desk: Desk, id: str) -> None:
        self.id = id
        self.sending = False  # just now: the platform may have it
        self._desk = desk
        self._message: Outbound | None = None
        self._delivered: dict[int, str] = {}  # here too, should the disk have no room for a receipt

    async def attempt(self) -> float | None:
        """Go on as far as can be: in how many seconds to try again, or None when the message has left our hands."""
        try:
            return await self._advance() if self._claimed() else None
        except FileNotFoundError:  # a person dropped it, or it is done
            return None
        except (BubblesError, OSError) as error:
            log.event("daemon.warning", f"messages wait: {error}", priority="error", message=self.id, channel=self._desk.channel.name)
            return self._desk.settings.disk_s
        except Exception as error:  # a bug in a platform's code costs a try, not the loop
            log.error("daemon.bug", f"{self.id} could not be sent", error=error, message=self.id, channel=self._desk.channel.name)
            return self._desk.settings.disk_s if self._message is None else self._again(f"a bug: {type(error).__name__}")

    def _claimed(self) -> bool:
        """Whether it is ours. One that cannot be read is held."""
        if self._message is not None:
            return True
        try:
            body = self._desk.queue.claim(self.id).body
        except DataError as error:
            self._tell_held(error.text)
            return False
        try:
            self._message = from_dict(Outbound, {"at": self._desk.now(), **body, "id": self.id, "channel": self._desk.channel.name})
        except (DataError, ProtocolError) as error:
            self._hold(error.text)
            return False
        return True

    @property
    def message(self) -> Outbound:
        assert self._message is not None
        return self._message

    async def _advance(self) -> float | None:
        desk, receipt = self._desk, self._receipt()
        if receipt.settled == "delivered":
            return self._finish()
        if (wait_s := receipt.until - desk.now()) > 0 and wait_s <= LONGEST_S:  # further ahead, it was written by a clock that was wrong
            return wait_s
        texts = [text for text in desk.channel.split(self.message) if text.strip()]
        while (n := receipt.first(len(texts))) is not None:
            if not desk.channel.keyed and receipt.doubts.get(n, 0) > self._allowed:
                return self._hold(f"it is uncertain whether {_which(n, len(texts))} was delivered")
            await desk.pace.wait(self.message.chat)  # no slot is held meanwhile
            draft = await self._draft(receipt) if n == 0 else ""
            async with desk.slots:
                if desk.closing:
                    return LONGEST_S
                pause_s = await self._send(Part(n, len(texts), texts[n], f"{self.id}.{n}", draft))
            if n not in self._delivered:
                return pause_s
            receipt = self._receipt()
        return self._finish()

    @property
    def _allowed(self) -> int:
        """How often a part may be sent again though nobody knows whether the platform has it."""
        return 1 if self._desk.settings.on_uncertain == "resend" else 0

    async def _draft(self, receipt: Receipt) -> str:
        """The draft that the first part takes the place of. Its id is in the receipt before it is forgotten elsewhere."""
        drafts = self._desk.drafts
        if drafts is None or (receipt.draft is None and (receipt.begun is not None or receipt.uncertain)):
            return receipt.draft or ""
        if receipt.draft is None and (draft := await drafts.claim(self.message)):
            self._desk.receipts.note(self.id, draft=draft)
            receipt = replace(receipt, draft=draft)
        if receipt.draft:
            drafts.drop(receipt.draft)
        return receipt.draft or ""

    def _receipt(self) -> Receipt:
        """What is known. What was begun and is not known to have ended is noted as uncertain, unless doing it twice shows it once: the platform tells
        two from one by the key, or a draft is edited.
        """
        desk = self._desk
        receipt = desk.receipts.of(self.id)
        once = desk.channel.keyed or (receipt.begun == 0 and receipt.draft)
        if receipt.begun is not None and receipt.begun not in self._delivered and not once and receipt.settled != "delivered":
            self._doubt(receipt.begun)
            receipt = desk.receipts.of(self.id)
        receipt.delivered.update(self._delivered)
        return receipt

    async def _send(self, part: Part) -> float | None:
        """Send a part. Where it is not delivered then: what `attempt` returns."""
        desk = self._desk
        desk.receipts.note(self.id, begun=part.n, key=part.key, sync=not desk.channel.keyed)
        try:
            platform_id = await self._handed_over(part)
        except NotNow as error:
            self._note(refused=part.n, why=error.text, until=error.until)
            return self._again(error.text, error.until)
        except NotEver as error:
            self._note(refused=part.n, why=error.text, until=0)
            if part.draft:  # it is there no more
                desk.receipts.note(self.id, draft="")
                return await self._send(replace(part, draft=""))
            return self._hold(f"refused: {error.text}")
        except Unconfirmed as error:
            return self._doubtful(part, str(error))
        self._delivered[part.n] = platform_id
        desk.last = desk.now()
        self._note(delivered=part.n, id=platform_id, sync=True)
        return None

    async def _handed_over(self, part: Part) -> str:
        """The platform's id of the part. Raises NotNow, NotEver, or Unconfirmed for all else."""
        desk, seconds = self._desk, self._desk.settings.deliver_s
        self.sending = True
        desk.sending += 1
        try:
            async with asyncio.timeout(seconds):
                return str(await desk.channel.deliver(self.message, part) or "")
        except TimeoutError:
            raise Unconfirmed(f"no answer within {seconds:g} s") from None
        except (NotNow, NotEver, Unconfirmed):
            raise
        except Misconfigured as error:  # credentials that were good before: the connection will find out, and end us
            raise NotNow(error.text) from error
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise Unconfirmed("the channel cancelled it") from None  # a library that cancels what it was asked
        except Exception as error:  # nobody knows what a platform's code did before it failed
            log.error("daemon.bug", f"{self.id} failed by a bug", error=error, message=self.id, channel=desk.channel.name)
            raise Unconfirmed(f"a bug: {type(error).__name__}") from error
        finally:
            self.sending = False
            desk.sending -= 1

    def _doubtful(self, part: Part, why: str) -> float | None:
        """The platform may have it. Where it tells two from one by the key, and where a draft is edited, that is no more than not now."""
        if self._desk.channel.keyed or part.draft:
            return self._again(f"not confirmed: {why}")
        self._doubt(part.n)
        if self._desk.receipts.of(self.id).doubts.get(part.n, 0) > self._allowed:
            return self._hold(f"it is uncertain whether {_which(part.n, part.of)} was delivered: {why}")
        return self._again(f"not confirmed: {why}")

    def _doubt(self, part: int) -> None:
        log.event("daemon.warning", f"part {part} of {self.id} may have been delivered", priority="warning", message=self.id)
        self._desk.receipts.note(self.id, uncertain=part)

    def _again(self, why: str, until: float = 0.0) -> float | None:
        """Seconds until the next try: as the platform asks, else by the message's age. One that is too old is held."""
        desk = self._desk
        age_s = desk.now() - self.message.at
        if given_up(age_s):
            return self._hold(f"not delivered within {GIVE_UP_S / 3600:g} hours: {why}")
        wait_s = until - desk.now() if until > desk.now() else delay(age_s) * desk.settings.pace
        log.event("daemon.warning", f"{self.id} waits {wait_s:.1f} s: {why}", priority="notice", message=self.id, channel=desk.channel.name)
        return min(max(wait_s, _LEAST_S * desk.settings.pace), LONGEST_S)

    def _note(self, *, sync: bool = False, **fact: object) -> None:
        """A fact that is known by now anyway: where the disk has no room for it, a crash makes an uncertain send of it, and nothing worse."""
        try:
            self._desk.receipts.note(self.id, sync=sync, **fact)
        except (BubblesError, OSError) as error:
            log.event("daemon.warning", f"a receipt of {self.id} is missing: {error}", priority="error", message=self.id)

    def _finish(self) -> float | None:
        self._desk.queue.finish(self.id)
        address = f"{self._desk.channel.name}:{self.message.chat}"
        log.event("message.out", f"{address} has {self.id}", message=self.id, channel=self._desk.channel.name)
        return None

    def _hold(self, why: str) -> float | None:
        """Given up. The receipt comes after: killed between the two, one that a person releases is held once more, and not sent unasked."""
        self._desk.queue.hold(self.id, why)
        with contextlib.suppress(BubblesError, OSError):
            self._desk.receipts.note(self.id, held=why)
        self._tell_held(why)
        return None

    def _tell_held(self, why: str) -> None:
        log.event("message.held", f"{self.id}: {why}", priority="warning", message=self.id, channel=self._desk.channel.name)


def _which(part: int, parts: int) -> str:
    return "it" if parts == 1 else f"part {part + 1} of {parts}"
