"""Look into the queues; release or drop what is held there for a person.

A queue is inbound/NAME or outbound/NAME; inbound and outbound alone mean all of them. A message is new (it waits),
cur (it is being handled), held (given up: somebody has to decide) or done.

In turns are the turns that were given up. To release one is to say its words again, as one message of yours in its
session; to drop one is not to. Its journal is kept in turns/released/ either way.

Input:
  release, drop and show take ids as arguments, or from standard input: plain, or as the id of a JSON object
Output:
  one JSON object a message: id, queue, state, due, why, message; of a turn: id, queue, state, session, at, text, why
Exit codes:
  0   done
  1   a message or turn was not found, or not in a state to be released or dropped
  64  there is no such queue
Examples:
  bubbles queue list | bubbles scan
  bubbles queue list inbound | jq -r 'select(.state=="held").id' | bubbles queue release inbound
  bubbles queue list --state done inbound/cli
  bubbles queue list --state held inbound | bubbles queue show
  bubbles queue list turns | jq -r .id | bubbles queue release turns
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
from bubbles.programs import given_up, lines
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
    home, wanted = Home.find(), [state] if state else _STATES[:3]
    for name, queue in queues(home, where or "") if where != given_up.NAME else ():
        for each in wanted:
            for item in queue.list(each):
                lines.put(told(name, each, item))
    for each in wanted if where in (None, given_up.NAME) else ():
        for turn in given_up.turns(home, each):
            lines.put(turn.told(each))


@main.command("show")
@click.argument("ids", nargs=-1, metavar="[ID]...")
def show(ids: tuple[str, ...]) -> int:
    """Show messages and turns that were given up, wherever they are."""
    home = Home.find()
    found = {id: [*_messages(home, id), *_turns(home, id)] for id in ids or lines.ids()}
    for line in (line for told_of in found.values() for line in told_of):
        lines.put(line)
    return _missing([id for id, told_of in found.items() if not told_of], "not found")


@main.command("release")
@click.argument("where", metavar="QUEUE")
@click.argument("ids", nargs=-1, metavar="[ID]...")
def release(where: str, ids: tuple[str, ...]) -> int:
    """Let held messages be tried again, or the words of turns be said again."""
    if where == given_up.NAME:
        return _each_turn(ids or lines.ids(), given_up.release, "released")
    return _each(where, ids or lines.ids(), Queue.release, "new", "not held")


@main.command("drop")
@click.argument("where", metavar="QUEUE")
@click.argument("ids", nargs=-1, metavar="[ID]...")
def drop(where: str, ids: tuple[str, ...]) -> int:
    """Let held or waiting messages never be handled, or the words of turns not be said again."""
    if where == given_up.NAME:
        return _each_turn(ids or lines.ids(), given_up.drop, "dropped")
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


def _each_turn(ids: Iterable[str], act: Callable[[Home, str], str], state: str) -> int:
    home, missed = Home.find(), 0
    for id in ids:
        if why := act(home, id):
            missed |= _missing([id], why)
        else:
            lines.put({"id": id, "queue": given_up.NAME, "state": state})
            _ring(home, "inbound/cli")
    return missed


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
        raise Usage(f"{where!r} is no queue", remedy="inbound, outbound, inbound/NAME, outbound/NAME or turns")
    for directory in (home.root / "spool" / each for each in (("inbound", "outbound") if not way else (way,))):
        for path in sorted(directory.glob(name or "*")):
            if (path / "new").is_dir():
                yield f"{directory.name}/{path.name}", Queue(path)


def _messages(home: Home, id: str) -> Iterator[dict[str, Any]]:
    for name, queue in queues(home, ""):
        yield from _found(name, queue, id)


def _turns(home: Home, id: str) -> Iterator[dict[str, Any]]:
    for state in given_up.STATES:
        if turn := given_up.find(home, id, state):
            yield turn.told(state, whole=True)


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
