"""Which session a chat's words enter: its own, its speaker's, or the one that all share; or the one that the owner bound it to.

It does not know channels beyond their names. Words from a group never enter a session that a person bound, or, in mode
`user`, a person's: what is private stays out of it, and what is said in it stays there.
"""

from __future__ import annotations

from typing import Any

from bubbles import regular
from bubbles.config import file
from bubbles.errors import DataError, Misconfigured, ProtocolError
from bubbles.ids import safe, session_key
from bubbles.messages import Address, Inbound, Sender, from_line, migrate
from bubbles.paths import Home

VERSION = 1
_NAME_MOST = 60  # characters
OWN = "main"  # the session that the owner's terminal is in, if it names none


class Chats:
    """The bindings of one home, in `chats.json`, which agentd alone writes. `channels` is that section of the settings."""

    def __init__(self, home: Home, channels: Any) -> None:
        self._path = home.chats
        self._mode: str = channels.session_mode
        self._people = {address: name for name, addresses in channels.people.items() for address in addresses}
        self._channels = channels
        self._owned: dict[str, str] = {}  # the owner's private chats, and the name that he has there
        self._bound: dict[str, str] = self._load()

    def session_of(self, address: Address) -> str | None:
        """The name of the session that a chat was bound to; None where it was not."""
        return self._bound.get(_chat(address))

    def bind(self, address: Address, name: str | None) -> None:
        """Let a private chat's words enter the session `name` from now on; None: as the mode says. Raises TryAgain, and changes nothing then."""
        bound = {key: value for key, value in self._bound.items() if key != _chat(address)} | ({_chat(address): name} if name else {})
        self._write(bound, self._owned)
        self._bound = bound

    def meet(self, inbound: Inbound) -> None:
        """Note a private chat as the owner's where he speaks, and as his no longer where somebody else does. Raises TryAgain."""
        chat = _chat(inbound.address)
        name = inbound.sender.name[:_NAME_MOST] if inbound.sender.owner else None
        if inbound.is_group or name == self._owned.get(chat):
            return
        owned = {key: value for key, value in self._owned.items() if key != chat} | ({} if name is None else {chat: name})
        self._write(self._bound, owned)
        self._owned = owned

    def reach(self) -> dict[str, str]:
        """The chats that the assistant may write to unasked, and who is there as far as that is known: the owner's, and those of the settings."""
        sections = {name: getattr(self._channels, name) for name in type(self._channels).model_fields}
        targets = [(name, chat) for name, section in sections.items() for chat in getattr(section, "targets", ())]
        listed = {chat if chat.startswith(f"{name}:") else f"{name}:{chat}": "" for name, chat in targets}
        return {**listed, **self._people, **self._owned}

    def key_to(self, address: Address) -> str:
        """The key of the session that answers to what is written to a chat enter, as far as it can be told."""
        chat = _chat(address)
        is_private = chat in self._owned or chat in self._people or chat in self._bound
        sender = Sender(owner=chat in self._owned)
        return self.key(Inbound(id="", at=0.0, channel=address.channel, chat=address.chat, is_group=not is_private, sender=sender))

    def _write(self, bound: dict[str, str], owned: dict[str, str]) -> None:
        file.write(self._path, {"version": VERSION, "chats": bound, "owned": owned})

    def key(self, inbound: Inbound) -> str:
        """The key of the session that a platform's message enters."""
        if not inbound.is_group and (name := self.session_of(inbound.address)):
            return safe(name)
        if self._mode == "global":
            return OWN
        if self._mode == "user" and not inbound.is_group and (name := self._person(inbound)):
            return safe(name)
        return session_key(inbound.channel, inbound.chat)

    def _person(self, inbound: Inbound) -> str:
        """Who speaks in a private chat, by the owner's list; the owner needs no place in it. "" for a stranger."""
        known = self._people.get(f"{inbound.channel}:{inbound.sender.id}") or self._people.get(f"{inbound.channel}:{inbound.chat}")
        return known or (OWN if inbound.sender.owner else "")

    def _load(self) -> dict[str, str]:
        try:
            body = migrate(from_line(regular.read(self._path)), VERSION, {}, str(self._path))
        except FileNotFoundError:
            return {}
        except (DataError, ProtocolError, OSError) as error:
            raise Misconfigured(f"{self._path} cannot be used: {error}", remedy=f"mend it or move it away: {self._path}") from error
        bound = body.get("chats")
        if not isinstance(bound, dict) or not all(isinstance(value, str) and value for value in bound.values()):
            raise Misconfigured(f"{self._path} cannot be used: 'chats' is no list of names", remedy=f"mend it or move it away: {self._path}")
        owned = body.get("owned")
        self._owned = {key: value for key, value in owned.items() if isinstance(value, str)} if isinstance(owned, dict) else {}
        return bound


def _chat(address: Address) -> str:
    return f"{address.channel}:{address.chat}"
