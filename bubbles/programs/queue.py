"""Look into the queues; release or drop what is held there for a person.

A queue is inbound/NAME or outbound/NAME; inbound and outbound alone mean all of them. A message is new (it waits),
cur (it is being handled), held (given up: somebody has to decide) or done.

Input:
  release, drop and show take ids as arguments, or from standard input: plain, or as the id of a JSON object
Output:
  one JSON object a message: id, queue, state, due, why, message
Exit codes:
  0   done
  1   a message was not found, or not in a state to be released or dropped
  64  there is no such queue
Examples:
  bubbles queue list | bubbles scan
  bubbles queue list inbound | jq -r 'select(.state=="held").id' | bubbles queue release inbound
  bubbles queue list --state done outbound/telegram
  bubbles queue show telegram-8841
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from bubbles.bus.dial import Dial
from bubbles.errors import Unavailable, Usage
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import verbs
from bubbles.spool import Queue
from bubbles.spool.queue import Item

_STATES = ("new", "cur", "held", "done")


@verbs("queue", __doc__)
def main() -> None: ...


@main.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Only those; done ones are listed only so.")
@click.argument("where", required=False, metavar="[QUEUE]")
def list_(state: str | None, where: str | None) -> None:
    """List what is in the queues."""
    for name, queue in queues(Home.find(), where or ""):
        for each in [state] if state else _STATES[:3]:
            for item in queue.list(each):
                lines.put(told(name, each, item))


@main.command("show")
@click.argument("ids", nargs=-1, metavar="[ID]...")
def show(ids: tuple[str, ...]) -> int:
    """Show messages, wherever they are."""
    found = {id: [line for name, queue in queues(Home.find(), "") for line in _found(name, queue, id)] for id in ids or lines.ids()}
    for line in (line for told_of in found.values() for line in told_of):
        lines.put(line)
    return _missing([id for id, told_of in found.items() if not told_of], "not found")


@main.command("release")
@click.argument("where", metavar="QUEUE")
@click.argument("ids", nargs=-1, metavar="[ID]...")
def release(where: str, ids: tuple[str, ...]) -> int:
    """Let held messages be tried again."""
    return _each(where, ids or lines.ids(), Queue.release, "new", "not held")


@main.command("drop")
@click.argument("where", metavar="QUEUE")
@click.argument("ids", nargs=-1, metavar="[ID]...")
def drop(where: str, ids: tuple[str, ...]) -> int:
    """Let held or waiting messages never be handled."""
    return _each(where, ids or lines.ids(), Queue.drop, "done", "neither held nor waiting")


def _each(where: str, ids: Iterable[str], act: Callable[[Queue, str], bool], state: str, refused: str) -> int:
    home = Home.find()
    known = list(queues(home, where))
    missing = []
    for id in ids:
        name = next((name for name, queue in known if act(queue, id)), None)
        if name is None:
            missing.append(id)
        else:
            lines.put({"id": id, "queue": name, "state": state})
            _ring(home, name)
    return _missing(missing, refused)


def _missing(ids: list[str], why: str) -> int:
    for id in ids:
        print(f"bubbles: {id}: {why}", file=sys.stderr)
    return 1 if ids else 0


def _ring(home: Home, name: str) -> None:
    way, _, channel = name.partition("/")
    with contextlib.suppress(Unavailable), Dial(home, "agentd" if way == "inbound" else f"channel-{channel}") as dial:
        dial.ring()


def queues(home: Home, where: str) -> Iterator[tuple[str, Queue]]:
    """The queues that `where` names ("" for all), by their names. Raises Usage where there can be none of that name."""
    way, _, name = where.partition("/")
    if way not in ("", "inbound", "outbound") or "/" in name or name in (".", ".."):
        raise Usage(f"{where!r} is no queue", remedy="inbound, outbound, inbound/NAME or outbound/NAME")
    for directory in (home.root / "spool" / each for each in (("inbound", "outbound") if not way else (way,))):
        for path in sorted(directory.glob(name or "*")):
            if (path / "new").is_dir():
                yield f"{directory.name}/{path.name}", Queue(path)


def _found(name: str, queue: Queue, id: str) -> Iterator[dict[str, Any]]:
    state = queue.find(id)
    if state is not None:
        yield from (told(name, state, item) for item in queue.list(state) if item.id == id)


def told(name: str, state: str, item: Item) -> dict[str, Any]:
    """A message as a line."""
    line: dict[str, Any] = {"id": item.id, "queue": name, "state": state}
    if state == "new":
        line["due"] = item.at_ns / 1e9
    if item.why:
        line["why"] = item.why
    return {**line, "message": item.body}
