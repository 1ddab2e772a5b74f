"""At the way in: who is heard by the rules of the channel (policy.py), who is told a code, and who is let in by one (pairing.py).

It does not know a platform.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from bubbles import log
from bubbles.channels.pairing import Asking, Book, Person
from bubbles.channels.policy import Rules, Verdict, judge
from bubbles.channels.texts import is_chinese, told
from bubbles.messages import Inbound, Outbound, to_dict
from bubbles.spool import Queue


class Gate:
    """The gate of the channel `name`. `rules` are those of its settings alone; `queue`: what goes out; `ring` says that something does."""

    def __init__(self, name: str, rules: Rules, book: Book, queue: Queue, ring: Callable[[], object], now: Callable[[], float] = time.time) -> None:
        self._name, self._rules, self._book, self._queue, self._ring, self._now = name, rules, book, queue, ring, now
        self.dropped = 0  # messages, since the start
        self._people: dict[str, Person] | None = None
        self._with_people = rules

    @property
    def rules(self) -> Rules:
        """The rules with those who were paired."""
        if self._people is not self._book.people:
            self._people = self._book.people
            self._with_people = with_people(self._rules, self._book)
        return self._with_people

    def verdict(self, inbound: Inbound) -> Verdict:
        """What becomes of a message."""
        return judge(inbound, self.rules, self._now(), known=inbound.chat in self._book.groups)

    def admit(self, inbound: Inbound) -> Inbound | None:
        """The message as it is to be stored, with what is ours to say of it; None where it is not. A stranger is told his code on the way.

        Raises TryAgain where the disk refuses: it was not decided then, and has to come again.
        """
        found = self.verdict(inbound)
        if found is Verdict.PAIR:
            self._tell_code(inbound)
        if found in (Verdict.PAIR, Verdict.DROP):
            self.dropped += 1
            log.debug(f"{inbound.id} was not taken: {found.value}", channel=self._name)
            return None
        rules, sender = self.rules, inbound.sender
        if inbound.is_group and rules.overhear and rules.is_trusted(sender.id):
            self._book.met(inbound.chat)
        taken = replace(inbound, sender=replace(sender, owner=rules.is_owner(sender.id) and not sender.bot))
        return taken if found is Verdict.TAKE else replace(taken, wakes=False, mentioned=False)

    def let_in(self, code: str, owner: bool | None) -> Person | None:
        """Let in whose code that is, and tell him. `owner` None: as the owner where the channel has none yet. None where it is nobody's code."""
        return let_in(self._name, self.rules, self._book, self._queue, code, owner, self._now(), self._ring)

    def _tell_code(self, inbound: Inbound) -> None:
        """Told again, it is the same message: a code has one."""
        asking = self._book.asked(inbound, is_chinese(inbound.text))
        if asking is None:
            return
        text = told("pair", inbound.text, code=asking.code)
        if put(self._queue, _notice(self._name, "pair", asking, text, self._now(), inbound.message)):
            log.event("person.asked", f"{asking.name or asking.id} asks to be let into {self._name}", channel=self._name, person=asking.id)
        self._ring()


def let_in(
    name: str, rules: Rules, book: Book, queue: Queue, code: str, owner: bool | None, now: float, ring: Callable[[], object] = lambda: None
) -> Person | None:
    """As `Gate.let_in`, for whoever holds the lock of the channel `name`. `rules`: with those who were paired."""
    found = book.let_in(code, not rules.owners if owner is None else owner)
    if found is None:
        return None
    person, asking = found
    put(queue, _notice(name, "paired", asking, told("owner" if person.owner else "guest", "你" if asking.zh else ""), now))
    log.event("person.paired", f"{person.name or person.id} was let into {name}, as {role(person)}", channel=name, person=person.id)
    ring()
    return person


def with_people(rules: Rules, book: Book) -> Rules:
    """`rules`, for those who were paired as well."""
    people = book.people.values()
    return rules.with_people([one.id for one in people if one.owner], [one.id for one in people if not one.owner])


def role(person: Person) -> str:
    """ "owner" or "guest"."""
    return "owner" if person.owner else "guest"


def put(queue: Queue, message: Outbound) -> bool:
    """Have a message sent; whether it is new."""
    return queue.put(message.id, to_dict(message))


def _notice(name: str, kind: str, asking: Asking, text: str, now: float, reply_to: str = "") -> Outbound:
    id = f"{name}-{kind}-{asking.code}"
    return Outbound(id, now, name, asking.chat, text, asking.thread, reply_to, origin="notice")
