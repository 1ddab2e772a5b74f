"""Put a message into the queue of a chat; its channel delivers it.

Words on the command line are one message; without any, all of standard input is one. It returns when the message
is safe on disk, whether or not the channel runs just now. No channel but the terminal is built yet, and a terminal has
no queue: until one is, or a program of yours keeps outbound/CHANNEL, every message is refused. `bubbles ask` works today.

Input:
  plain text on standard input where no words are given; with --json one object a line: text, and id, thread, reply_to
Output:
  one JSON object a message: id, queue, state
Exit codes:
  0   every message is in its queue
  64  the address is wrong
  65  a line is no message or one of more than 1 MB, or its id is known with another content
  75  the disk is full
  78  its channel is not built, or not enabled
Examples:
  bubbles ask -s work 'the backup is done' < /dev/null
  make 2>&1 | tail -5 | bubbles ask -s work 'what went wrong?'
  bubbles send --id backup-$(date +%F) CHANNEL:CHAT 'the backup is done'
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from bubbles import ids
from bubbles.bus.dial import Dial
from bubbles.errors import DataError, Misconfigured, Unavailable, Usage
from bubbles.messages import Address, Outbound, scrub, to_dict
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import program
from bubbles.programs.words import few, piped
from bubbles.spool import Queue

PLATFORMS = ("dingtalk", "discord", "email", "feishu", "matrix", "mochat", "qq", "slack", "telegram", "wechat", "whatsapp")
_INSTEAD = "put it in a file, and send the part that matters: tail -c 2000 FILE | bubbles send CHANNEL:CHAT"


@program("send", __doc__)
@click.option("--id", "id_", metavar="ID", help="The message's id: sent again under the same id, it is not sent twice.")
@click.option("--json", "as_json", is_flag=True, help="Read messages as JSON objects, one a line.")
@click.argument("address", metavar="CHANNEL:CHAT")
@click.argument("words", nargs=-1, metavar="[TEXT]...")
def main(id_: str | None, as_json: bool, address: str, words: tuple[str, ...]) -> int:
    to = _address(address)
    if as_json and (words or id_):
        raise Usage("with --json, text and id stand in the lines", remedy="bubbles send --help")
    home = Home.find()
    _see_that_it_is_there(home, to)
    home.prepare()
    queue = Queue(home.outbound(to.channel))
    queue.prepare()
    for body in lines.get() if as_json else _words(id_, words):
        message = _message(to, body)
        queue.put(message.id, to_dict(message), strict=True)
        lines.put({"id": ids.safe(message.id), "queue": f"outbound/{to.channel}", "state": queue.find(message.id)})
    try:
        with Dial(home, f"channel-{to.channel}") as dial:
            dial.ring()
    except Unavailable:
        print(f"bubbles: {to.channel} is not running; its queue keeps what was put there", file=sys.stderr)
    return 0


def _address(text: str) -> Address:
    """The address, a thread after its last slash where the chat has one."""
    try:
        to = Address.parse(text)
    except DataError as error:
        raise Usage(error.text, remedy=error.remedy) from error
    if to.channel == "cli":
        raise Usage("a terminal has no queue: whoever sits there asks", remedy=f"bubbles ask -s {to.chat} TEXT")
    if to.channel not in PLATFORMS:
        raise Usage(f"there is no channel {to.channel!r}", remedy=f"one of: {', '.join(PLATFORMS)}")
    return to


def _see_that_it_is_there(home: Home, to: Address) -> None:
    """Raises Misconfigured for a channel that delivers nothing. One whose queue is there has a program that looks after it."""
    if home.outbound(to.channel).is_dir():
        return
    from bubbles import config  # takes long, and is seldom needed

    platform = getattr(config.load(home, "channels").channels, to.channel)
    if platform.not_built:
        raise Misconfigured(f"the channel {to.channel} is not built yet", remedy="the terminal is what works today: bubbles ask -s NAME TEXT")
    if not platform.enabled:
        raise Misconfigured(f"the channel {to.channel} is not enabled", remedy=f"set channels.{to.channel}.enabled in {home.config}")


def _words(id_: str | None, words: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    text = " ".join(words) if words else piped(_INSTEAD).strip("\n")
    yield {"text": text} | ({"id": id_} if id_ else {})


def _message(to: Address, body: dict[str, Any]) -> Outbound:
    known: dict[str, str] = {}
    for name in ("id", "text", "thread", "reply_to"):
        with contextlib.suppress(KeyError):
            if not isinstance(body[name], str):
                raise DataError(f"{name!r} is not text", remedy="bubbles send --help")
            known[name] = few(scrub(body[name]), _INSTEAD)
    if not known.get("text", "").strip():
        raise DataError("a message without words", remedy="bubbles send --help")
    known.setdefault("id", ids.fresh("shell"))
    return Outbound(at=time.time(), channel=to.channel, chat=to.chat, origin="shell", **known)  # type: ignore[arg-type]
