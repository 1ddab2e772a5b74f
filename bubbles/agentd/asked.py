"""One command as it was given: by whom, in which session, and in which language it is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bubbles.agentd import texts
from bubbles.agentd.apology import language_of
from bubbles.agentd.overrides import Overrides
from bubbles.agentd.spelling import Command
from bubbles.messages import Inbound

if TYPE_CHECKING:
    from bubbles.agentd.actor import Actor
    from bubbles.agentd.agent import Agent


@dataclass(frozen=True, slots=True)
class Asked:
    """A command of a person's. `awake` is None where its session cannot be used."""

    agent: Agent
    inbound: Inbound
    command: Command
    awake: Actor | None
    language: str

    @property
    def owner(self) -> bool:
        """Whether the one person whom this home serves gave it; the terminal is that person's."""
        return self.inbound.sender.owner or self.inbound.channel == "cli"

    @property
    def actor(self) -> Actor:
        assert self.awake is not None, "whoever needs a session asked whether there is one"
        return self.awake

    @property
    def arguments(self) -> str:
        return self.command.arguments

    @property
    def overrides(self) -> Overrides:
        return Overrides(self.agent.home, self.actor.session.key if self.awake else self.inbound.session, self.agent.settings)

    def told(self, key: str, /, **values: object) -> str:
        """The text `key` in the language of this command."""
        return texts.told(key, self.language, **values)


def asked(agent: Agent, inbound: Inbound, command: Command, actor: Actor | None) -> Asked:
    """The command that a message is. It is answered in the language that is set, else that of its own words, else of those said last."""
    setting = actor.session.effective.language if actor is not None else agent.settings.agents.defaults.language
    language = language_of(setting, inbound.text)
    if setting == "auto" and language == "en" and actor is not None:
        language = language_of(setting, _said_last(actor))
    return Asked(agent, inbound, command, actor, language)


def _said_last(actor: Actor) -> str:
    if actor.turn is not None and actor.turn.spoken:
        return actor.turn.spoken[-1].text
    ended = last_of_a_person(actor)
    return str(ended["messages"][-1].get("text", "")) if ended else ""


def last_of_a_person(actor: Actor) -> dict[str, Any] | None:
    """The line that closed the last turn in which a person spoke; None where there was none lately."""
    ended = reversed(actor.session.history.ended)
    return next((end for end in ended if end.get("origin") == "user" and end.get("messages")), None)
