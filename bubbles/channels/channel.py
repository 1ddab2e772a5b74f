"""What a platform's file has to do: log in, listen, send. All else is done for it (frame.py).

It does not know what a session, a model or a tool is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bubbles.channels.media import Shelf
from bubbles.messages import Address, Inbound, Outbound


class Unconfirmed(Exception):
    """The platform may have got it and may not: the connection ended, or nothing was heard in time, after the request had left."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is sent at once: the `n`-th of `of` parts of a message. `key` is its idempotency key, the same at every try.

    `draft`: the platform's id of a message that has shown this part while it grew (drafts.py). It is to be edited into its final form, and not
    sent once more; its id is what `deliver` gives back. One that has its final form already is no error. NotEver says that it is there no more, or
    can be edited no more: the part is then sent as any other.
    """

    n: int
    of: int
    text: str
    key: str
    draft: str = ""


class Take(Protocol):
    """What `listen` is given."""

    async def __call__(self, inbound: Inbound) -> None:
        """Store a message. When this returns it survives whatever comes, and may be confirmed upstream; what it raises, `listen` raises.

        Who may speak is decided here: give it every message of a person or of another bot (never your own), as the platform says it is.
        `sender.owner` is not yours to say. `mentioned`: the bot itself, by name, reply or command; never all. For an edit, `at` is when its
        original was written.
        """

    def wants(self, inbound: Inbound) -> bool:
        """Whether a message would be stored, asked before its files are fetched: a stranger's are not."""

    def alive(self) -> None:
        """The platform has just proved that it hears us: a poll came back, a pong, a frame of any kind. Taking a message says so too."""


class Channel(Protocol):
    """One platform. A class that inherits this has the methods that say what they do by themselves."""

    name: str  # of the channel: `telegram`
    shelf: Shelf  # where files that come in are written (media.py); the frame sets it before `open`, and
    outbox: Path  # where those lie that go out: `media.opened(one, self.outbox)`
    keyed: bool  # the platform shows one key once, however often it is sent
    stale_s: float = 120.0  # a platform that is there says so (`Take.alive`) at least this often; 30 at least
    shows: bool = False  # whether it wants `show` to be called
    pairs: bool = True  # a stranger in a private chat may be told a code; False where nobody knows that he is who he says
    drafts: bool = False  # a message that was sent can be edited: `draft` and `undraft` do something
    draft_s: float = 1.0  # seconds between two edits of a draft, 1 at least
    typing_s: float = 0.0  # how often `typing` has to be said again while it holds, in seconds; 0: the platform has none
    chat_s: float = 0.0  # what the platform bears, in the long run: one message in so many seconds in a chat; 0: any number
    burst: int = 1  # and so many at once, after a silence
    all_per_s: float = 0.0  # messages a second in all chats together; 0: any number

    async def open(self) -> None:
        """Log in, with a new client; what was open before is closed first.

        Raises Misconfigured where the credentials are rejected, NotNow where the platform cannot be reached.
        """

    async def listen(self, take: Take) -> None:
        """Give each message to `take`, and confirm it upstream when that has returned, never before. Ends by an error, or cancelled.

        NotNow: the connection is lost; Misconfigured: the credentials are no longer good. Ids of messages are `NAME-` and what the
        platform calls the update, so that one that comes again is known.
        """

    async def deliver(self, message: Outbound, part: Part) -> str:
        """Send one part; the platform's id of it, "" where it has none.

        Raises NotNow where it was not sent and may be later, NotEver where it is refused for good, Unconfirmed where nobody can tell.
        An error without a name counts as Unconfirmed, and as a bug.
        """

    def split(self, message: Outbound) -> list[str]:
        """The texts of its parts. The same message has the same parts each time: after a restart the sending goes on in the middle."""
        return [message.text]

    async def draft(self, address: Address, text: str, id: str = "", *, reply_to: str = "") -> str:
        """Show words that are still growing, as a message (`id` "") or in the place of the message `id`; the platform's id of it.

        `reply_to`: the platform's id of the message that they answer, as in Outbound. `text` is the model's, as `deliver` gets it, and no
        longer than a part. Raises as `deliver`; whatever it raises, the next one has more words.
        """
        return id

    async def undraft(self, address: Address, id: str) -> None:
        """Delete a draft that came to nothing. Raises as `deliver`."""

    async def typing(self, address: Address) -> None:
        """Say that an answer is being made. It may be missed, and what it raises is."""

    async def who(self) -> str:
        """Who the bot is at the platform: its name there, and its id. Raises as `open`."""
        return ""

    async def show(self, topic: str, event: dict[str, Any]) -> None:
        """Show progress, where `shows`: an event of the feed below `NAME/` (bus/PROTOCOL.md). It may be missed, and what it raises is."""

    async def find(self, chat: str, query: str) -> list[dict[str, str]]:
        """Those in a chat whose name has `query` in it: `id`, `name`. Raises NotNow."""
        return []

    async def reachable(self) -> bool:
        """Whether a plain TCP connection to the platform succeeds. False where that says nothing."""
        return False

    async def close(self) -> None:
        """Hang up."""
