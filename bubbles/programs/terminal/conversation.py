"""One session, spoken with from a terminal or a script: a message into the queue `cli`, and `turn.wait` for its answer.

It imports no event loop: everything here blocks, and takes a tenth of a second where the daemons run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bubbles import starter
from bubbles.bus.dial import Dial
from bubbles.errors import Unavailable, Usage
from bubbles.ids import fresh, safe
from bubbles.messages import Inbound, Sender, scrub, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue

DEFAULT_SESSION = "main"
TRIES = 5  # a daemon that dies under us is waited for, or started, this often
_DAEMONS = ["agentd", "modeld", "cron"]
_UNTIL_IDLE_S = 30

Part = Callable[[dict[str, Any]], None]


@contextmanager
def present(home: Home) -> Iterator[None]:
    """Somebody is here: daemons that are down are started, and those started so do not end meanwhile. Raises what kept one from starting."""
    home.prepare()
    with starter.client(home):
        ensure(home)
        yield


def ensure(home: Home) -> None:
    """Start the daemons that are not running."""
    starter.ensure(home, _DAEMONS, until_idle=_UNTIL_IDLE_S)


class Conversation:
    """The session named `session`, spoken with by the owner."""

    def __init__(self, home: Home, session: str) -> None:
        self.home = home
        self.name = scrub(session)
        self.key = safe(self.name)

    def put(self, text: str) -> str:
        """Leave a message for the session and return its id. From here on it is not lost. Raises Usage where it is empty."""
        text = scrub(text).strip("\n")
        if not text.strip():
            raise Usage("there is nothing to say", remedy="bubbles ask 'a question'")
        sender = Sender("owner", owner=True)
        inbound = Inbound(id=fresh("cli"), at=time.time(), channel="cli", chat=self.name, text=text, sender=sender, session=self.key)
        Queue(self.home.inbound("cli")).put(inbound.id, to_dict(inbound), sync=False)
        return inbound.id

    def question(self, message: str, *, stream: bool) -> dict[str, Any]:
        """The body of `turn.wait` for a message."""
        return {"message": message, "session": self.key, "stream": stream}

    def wait(self, message: str, on_part: Part | None = None, *, stream: bool = False) -> dict[str, Any]:
        """How the turn of a message ended: `outcome`, `text` (the reply, or a notice), `turn`. Raises Unavailable where nobody can be asked."""
        for _ in range(TRIES):
            try:
                return self.call("turn.wait", self.question(message, stream=stream), on_part)
            except Unavailable as error:
                why = error.text
                ensure(self.home)
        raise unanswered(self.name, why)

    def call(self, op: str, body: dict[str, Any], on_part: Part | None = None) -> dict[str, Any]:
        """Ask agentd one question."""
        with Dial(self.home, "agentd") as dial:
            return dial.call(op, body, on_part=on_part)[0]


def unanswered(session: str, why: str) -> Unavailable:
    """The error for a message whose answer cannot be waited for any longer."""
    return Unavailable(f"no answer came: {why}", remedy=f"your message is kept, and so will its reply be; see it with: bubbles agent -s {session}")
