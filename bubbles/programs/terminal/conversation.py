"""One session, spoken with from a terminal or a script: a message into the queue `cli`, and `turn.wait` for its answer.

It imports no event loop: everything here blocks, and takes a tenth of a second where the daemons run.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bubbles import starter
from bubbles.bus.dial import Dial
from bubbles.bus.lock import is_running
from bubbles.errors import BubblesError, Unavailable, Usage
from bubbles.ids import fresh, safe
from bubbles.messages import Inbound, Sender, scrub, to_dict
from bubbles.paths import Home
from bubbles.programs.words import few
from bubbles.spool import Queue

DEFAULT_SESSION = "main"
_COMMANDS = ("/", "／", "<@")  # what a command begins with
TRIES = 5  # a daemon that dies under us is waited for, or started, this often
_ASKED, _UNASKED = ["agentd", "modeld"], ["cron"]
_DAEMONS = [*_ASKED, *_UNASKED]
_UNTIL_IDLE_S = 30
_STOPS, _STOP_AGAIN_S = 50, 0.1  # a message is in its turn long before
_LOOK_S = 1.0  # between two looks whether all daemons run
_DOWN_S = 2.0  # one that is down for so long is nobody else's to start: a service manager and the gateway take one second

Part = Callable[[dict[str, Any]], None]
Trouble = Callable[[BubblesError], None]


@contextmanager
def present(home: Home) -> Iterator[None]:
    """Somebody is here: daemons that are down are started, and those started so do not end meanwhile. Raises what kept one from starting."""
    home.prepare()
    with starter.client(home):
        starter.ensure(home, _ASKED, until_idle=_UNTIL_IDLE_S, after=_UNASKED)
        yield


def ensure(home: Home) -> None:
    """Start the daemons that are not running."""
    starter.ensure(home, _DAEMONS, until_idle=_UNTIL_IDLE_S)


@contextmanager
def kept(home: Home, tell: Trouble, wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """While this lasts and they are `wanted`, daemons that die are started again, whichever it is. `tell` is told once what keeps one down.

    It looks from a thread of its own, because whoever waits for an answer hears nothing of a daemon behind agentd.
    """
    over = threading.Event()
    thread = threading.Thread(target=_keep, args=(home, over, tell, wanted), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=_DOWN_S)  # one that is being started becomes ready without us, too


def _keep(home: Home, over: threading.Event, tell: Trouble, wanted: Callable[[], bool]) -> None:
    looks: dict[str, int] = {}
    told = ""
    while not over.wait(_LOOK_S):
        down = [name for name in _DAEMONS if is_running(home, name) is None] if wanted() else []
        looks = {name: looks.get(name, 0) + 1 for name in down}
        if max(looks.values(), default=0) * _LOOK_S > _DOWN_S:
            try:
                ensure(home)
            except BubblesError as error:
                if error.text != told:
                    tell(error)
                told = error.text
            looks = {}


class Conversation:
    """The session named `session`, spoken with by the owner."""

    def __init__(self, home: Home, session: str) -> None:
        self.home = home
        self.name = scrub(session)
        self.key = safe(self.name)

    @property
    def instead(self) -> str:
        """What to do with words that are too many for a message."""
        return f"put it in a file, for example in {self.home.session(self.key) / 'data'}, and ask about the file"

    def put(self, text: str) -> str:
        """Leave words for the session and return their message's id; they are not lost any more. Raises Usage for none, DataError for too many."""
        text = few(_sent(scrub(text).strip("\n")), self.instead)
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
        """How the turn of a message ended: `outcome`, `text` (the reply, a notice, a command's answer), `turn`. Raises Unavailable."""
        with kept(self.home, _tell):
            return self._answered("turn.wait", self.question(message, stream=stream), on_part)

    def follow_up(self, message: str) -> str:
        """The message that a command said in our name (`/retry` does); "" for none."""
        again = f"{message}.retry"
        return again if Queue(self.home.inbound("cli")).find(again) else ""

    def stop(self, message: str) -> bool:
        """Stop the turn that runs, or that a message of ours is about to begin; False if there is none.

        Where agentd is down it is waited for, or started: it would take the turn up again. Raises Unavailable where it cannot be.
        """
        queue = Queue(self.home.inbound("cli"))
        for _ in range(_STOPS):
            waits = bool(message) and queue.find(message) in ("new", "cur")  # looked at first: it may begin in between
            if self._answered("turn.stop", {"session": self.key})["stopped"]:
                return True
            if not waits:
                return False
            self._ring()
            time.sleep(_STOP_AGAIN_S)
        return False

    def _answered(self, op: str, body: dict[str, Any], on_part: Part | None = None) -> dict[str, Any]:
        for _ in range(TRIES):
            try:
                return self.call(op, body, on_part)
            except Unavailable as error:
                why = error.text
                ensure(self.home)
        raise unanswered(self.name, why)

    def _ring(self) -> None:
        with suppress(Unavailable), Dial(self.home, "agentd") as dial:
            dial.ring()

    def call(self, op: str, body: dict[str, Any], on_part: Part | None = None) -> dict[str, Any]:
        """Ask agentd one question. What `on_part` raises passes."""
        try:
            with Dial(self.home, "agentd") as dial:
                return dial.call(op, body, on_part=on_part and _raising(on_part))[0]
        except _Raised as raised:
            raise raised.error from None


def _sent(text: str) -> str:
    if not text.lstrip().startswith(_COMMANDS):
        return text
    from bubbles.programs.terminal.commands import sent  # mostly it is none, and then what commands there are need not be loaded

    return sent(text)


class _Raised(Exception):
    """A pipe of ours that broke while a part was shown: to whoever asks, it would look like agentd's."""

    def __init__(self, error: ConnectionError) -> None:
        self.error = error


def _raising(on_part: Part) -> Part:
    def tell(part: dict[str, Any]) -> None:
        try:
            on_part(part)
        except ConnectionError as error:
            raise _Raised(error) from error

    return tell


def _tell(error: BubblesError) -> None:
    print(f"bubbles: {error.text}" + (f"\n  try: {error.remedy}" if error.remedy else ""), file=sys.stderr)


def unanswered(session: str, why: str) -> Unavailable:
    """The error for a message whose answer cannot be waited for any longer."""
    return Unavailable(f"no answer came: {why}", remedy=f"your message is kept, and so will its reply be; see it with: bubbles agent -s {session}")
