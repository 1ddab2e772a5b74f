"""Look into the queues; release, drop or settle what is held there for a person.

A queue is inbound/NAME or outbound/NAME; inbound and outbound alone mean all of them. A message is new (it waits),
cur (it is being handled), held (given up: somebody has to decide) or done.

In turns are the turns that were given up. To release one is to say its words again: what you typed as one message of
yours in its session, what came by a channel in the chat it came from, with the rights of whoever said it. To drop one is
not to. Its journal is kept in turns/released/ either way, for 30 days.

To show a message is to tell what is known of it, too: accepted (in its queue), shown (to the model), answered (its turn
closed), delivered (by the platform's own word), uncertain (begun to be sent, and never confirmed). To settle one that is
uncertain is to say which it was: delivered, and it is finished unsent, or lost, and it is sent again.

Input:
  release, drop and show take ids as arguments, or from standard input: plain, or as the id of a JSON object
Output:
  one JSON object a message: id, queue, state, due, why, message, and of one that is shown its five facts, null where
  there is none; of a turn: id, queue, state, session, at, text, why. To a terminal, show prints lines for people
Exit codes:
  0   done
  1   a message or turn was not found, or not in a state to be released, dropped or settled
  64  that is no name of a queue; one that nobody has used yet is empty
Examples:
  bubbles queue list | bubbles scan
  bubbles queue list inbound | jq -r 'select(.state=="held").id' | bubbles queue release inbound
  bubbles queue list --state done inbound/cli
  bubbles queue list --state held inbound | bubbles queue show
  bubbles queue show telegram-8841 | jq '.answered.outcome, .uncertain'
  bubbles queue settle telegram-8841.0.0 delivered
  bubbles queue list turns | jq -r .id | bubbles queue release turns
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from bubbles.bus.dial import Dial
from bubbles.channels.receipts import Receipts
from bubbles.errors import Unavailable, Usage
from bubbles.ids import safe
from bubbles.paths import Home
from bubbles.programs import facts, given_up, lines
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
    """Show messages, what is known of them, and turns that were given up, wherever they are."""
    home = Home.find()
    missing = []
    for id in ids or lines.ids():
        found = [*_messages(home, id), *_turns(home, id)] or list(_gone(home, id))
        for line in found:
            print(facts.table(line), flush=True) if sys.stdout.isatty() and "accepted" in line else lines.put(line)
        missing += [] if found else [id]
    return _missing(missing, "not found", "bubbles queue list | bubbles scan; with --state done those that were handled")


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


@main.command("settle")
@click.argument("id", metavar="ID")
@click.argument("how", type=click.Choice(["delivered", "lost"]), metavar="delivered|lost")
def settle(id: str, how: str) -> int:
    """Say of a message that may have been delivered, or not, which it was."""
    home = Home.find()
    found = [(name, queue, look[0]) for name, queue in queues(home, "") if (look := facts.look(queue, id))]
    for name, queue, state in sorted(found, key=lambda each: each[2] == "done"):
        if name.startswith("outbound/") and state != "done" and facts.is_undecided(receipts := Receipts(queue.path), id):
            receipts.settle(id, how)  # on disk before it is released: whoever takes it up then knows
            state = "new" if queue.release(id) else state
            lines.put({"id": safe(id), "queue": name, "state": state, "settled": how})
            _ring(home, name)
            return 0
    why, remedy = _not_to_settle(id, *found[0]) if found else ("not found", "bubbles queue list outbound | bubbles scan")
    return _missing([id], why, remedy)


def _not_to_settle(id: str, name: str, queue: Queue, state: str) -> tuple[str, str]:
    """Why a message cannot be settled, and what can be done instead."""
    way, _, channel = name.partition("/")
    if way != "outbound" or channel == "cron":
        return f"it is in {name}, and only what goes out to a platform can be settled", f"bubbles queue show {id}"
    if state == "done":
        settled = Receipts(queue.path).of(id).settled
        return f"{channel} is done with it" + (f": it was settled as {settled}" if settled else ""), f"bubbles queue show {id}"
    instead = f"bubbles queue release {name} {id}, or bubbles queue drop {name} {id}" if state == "held" else f"bubbles queue show {id}"
    return f"nothing of it is uncertain: {channel} has it surely not, or not yet, sent", instead


def _each(where: str, ids: Iterable[str], act: Callable[[Queue, str], bool], state: str, refused: str) -> int:
    home = Home.find()
    known = _queues_for(home, where)
    missing = []
    for id in ids:
        name = next((name for name, queue in known if act(queue, id)), None)
        if name is None:
            missing.append(id)
        else:
            lines.put({"id": id, "queue": name, "state": state})
            _ring(home, name)
    return _missing(missing, refused, f"bubbles queue list {where} | bubbles scan")


def _queues_for(home: Home, where: str) -> list[tuple[str, Queue]]:
    """As `queues`; whoever names a message alone is told where it lies."""
    try:
        return list(queues(home, where))
    except Usage:
        if found := next((name for name, queue in queues(home, "") if facts.look(queue, where)), ""):
            verb = click.get_current_context().info_name
            raise Usage(f"{where!r} is no queue, but a message in {found}", remedy=f"bubbles queue {verb} {found} {shlex.quote(where)}") from None
        raise


def _each_turn(ids: Iterable[str], act: Callable[[Home, str], str], state: str) -> int:
    home, missed = Home.find(), 0
    for id in ids:
        if why := act(home, id):
            missed |= _missing([id], why, f"bubbles queue list {given_up.NAME} | bubbles scan")
        else:
            lines.put({"id": id, "queue": given_up.NAME, "state": state})
            _ring(home, "inbound/cli")
    return missed


def _missing(ids: list[str], why: str, remedy: str) -> int:
    for id in ids:
        print(f"bubbles: {lines.rendered(id)[1:-1]}: {why}", file=sys.stderr)
    if ids:
        print(f"  try: {remedy}", file=sys.stderr)
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
        if found := facts.look(queue, id):
            way, _, channel = name.partition("/")
            known = facts.of_inbound(home, channel, *found) if way == "inbound" else facts.of_outbound(home, queue, found[1])
            yield {**told(name, *found), **known}


def _turns(home: Home, id: str) -> Iterator[dict[str, Any]]:
    for state in given_up.STATES:
        if turn := given_up.find(home, id, state):
            yield turn.told(state, whole=True)


def _gone(home: Home, id: str) -> Iterator[dict[str, Any]]:
    """A message whose file is gone, after a week; a history may know it still."""
    if known := facts.of_gone(home, id):
        yield {"id": safe(id), "queue": None, "state": "gone", **known}


def told(name: str, state: str, item: Item) -> dict[str, Any]:
    """A message as a line."""
    line: dict[str, Any] = {"id": item.id, "queue": name, "state": state}
    if state == "new":
        line["due"] = item.at_ns / 1e9
    if item.why:
        line["why"] = item.why
    return {**line, "message": item.body}
