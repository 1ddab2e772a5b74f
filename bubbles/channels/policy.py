"""Who may speak to the assistant, and when it is spoken to: what becomes of one message, by the rules of its channel. Pure.

It does not know a platform, nor a file: who has been paired is told to it.

The sender of a message is known by the platform's own id of him and by nothing else; a message without one is a stranger's. For an edit, `at`
says when its original was written, where the platform tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bubbles.messages import Inbound

EVERYBODY = "*"
EDIT_S = 300.0  # an edit of what is older than this corrects what was said, and asks for nothing


class Verdict(Enum):
    """What becomes of a message: it is taken; kept as context; its sender is told how to be let in; or nothing, and nobody is told."""

    TAKE = "take"
    OVERHEAR = "overhear"
    PAIR = "pair"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Rules:
    """One channel's rules. All ids are the platform's. Without any, nobody is heard, and strangers are told how to be let in."""

    owners: frozenset[str] = frozenset()
    guests: frozenset[str] = frozenset()
    everybody: bool = False  # whoever writes is a guest
    direct: str = "allowlist"  # private chats: "open" to everybody, "allowlist": to owners and guests, "off"
    group_policy: str = "mention"  # "open": all words are for it; "allowlist": groups of `groups` alone are heard, where it is mentioned
    groups: frozenset[str] = frozenset()  # those in which everybody may speak
    overhear: bool = False
    pairs: bool = True

    @classmethod
    def of(cls, section: Any, *, pairs: bool = True) -> Rules:
        """The rules of a channel's section of the configuration (config/channels.py)."""
        mention = getattr(section, "mention", None)
        return cls(
            owners=frozenset(section.owners),
            guests=frozenset(section.allow_from) - {EVERYBODY},
            everybody=EVERYBODY in section.allow_from,
            direct=section.dm.policy if hasattr(section, "dm") else "allowlist",
            group_policy="open" if mention is not None and not mention.require_in_groups else getattr(section, "group_policy", "mention"),
            groups=frozenset(getattr(section, "group_allow_from", ())),
            overhear=getattr(section, "overhear", False),
            pairs=pairs,
        )

    def with_people(self, owners: Iterable[str], guests: Iterable[str]) -> Rules:
        """These rules, for those who were paired as well."""
        return Rules(
            self.owners.union(owners),
            self.guests.union(guests),
            self.everybody,
            self.direct,
            self.group_policy,
            self.groups,
            self.overhear,
            self.pairs,
        )

    def is_owner(self, id: str) -> bool:
        """Whether somebody is the one whom this home serves."""
        return bool(id) and id in self.owners

    def is_trusted(self, id: str) -> bool:
        """Whether somebody may speak."""
        return self.everybody or (bool(id) and (id in self.owners or id in self.guests))

    def told(self) -> dict[str, Any]:
        """As JSON, for the status: no ids, only how many."""
        return {
            "owners": len(self.owners),
            "guests": len(self.guests - self.owners),
            "everybody": self.everybody or self.direct == "open",
            "direct": self.direct,
            "group_policy": self.group_policy,
            "groups": len(self.groups),
            "overhear": self.overhear,
        }


def judge(inbound: Inbound, rules: Rules, now: float, *, known: bool = True) -> Verdict:
    """What becomes of a message at `now` (epoch seconds). `known`: it is of a group in which somebody who may speak has spoken before.

    >>> stranger = Inbound("t-1", 0.0, "telegram", "42", "hi")
    >>> judge(stranger, Rules(), 0.0), judge(stranger, Rules(everybody=True), 0.0)
    (<Verdict.DROP: 'drop'>, <Verdict.TAKE: 'take'>)
    """
    return _in_group(inbound, rules, now, known) if inbound.is_group else _in_private(inbound, rules, now)


def _in_private(inbound: Inbound, rules: Rules, now: float) -> Verdict:
    sender = inbound.sender
    if rules.direct == "off" or sender.bot:
        return Verdict.DROP
    if rules.direct == "open" or rules.is_trusted(sender.id):
        return Verdict.OVERHEAR if _is_late(inbound, now) else Verdict.TAKE
    return Verdict.PAIR if rules.pairs and sender.id and not inbound.edit_of else Verdict.DROP


def _in_group(inbound: Inbound, rules: Rules, now: float, known: bool) -> Verdict:
    if rules.group_policy == "allowlist" and inbound.chat not in rules.groups:
        return Verdict.DROP
    may_speak = inbound.chat in rules.groups or rules.is_trusted(inbound.sender.id)
    meant = inbound.mentioned or rules.group_policy == "open"
    if may_speak and meant and not inbound.sender.bot and not _is_late(inbound, now):
        return Verdict.TAKE
    return Verdict.OVERHEAR if rules.overhear and (may_speak or known) else Verdict.DROP


def _is_late(inbound: Inbound, now: float) -> bool:
    return bool(inbound.edit_of) and now - inbound.at > EDIT_S
