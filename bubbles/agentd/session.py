"""A session as its turns see it: directory, history, effective settings, and the prompt that its requests begin with.

The prompt is built once and stays, byte for byte, until a compaction or a restart: a provider's cache lives on
that. What the owner edits meanwhile (SOUL.md, MEMORY.md) is told at the head of the next words.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bubbles import config, log
from bubbles.agentd.apology import language_of
from bubbles.agentd.request import Prefix, Weights
from bubbles.errors import Misconfigured
from bubbles.ids import safe
from bubbles.kernel import context, prompt
from bubbles.kernel.events import UserSpoke
from bubbles.kernel.turn import Rules, Turn
from bubbles.messages import Inbound, Media
from bubbles.paths import Home
from bubbles.sandboxes import open as open_sandbox
from bubbles.sandboxes.sandbox import Sandbox
from bubbles.sessions import skills
from bubbles.sessions.folder import Folder
from bubbles.sessions.history import History, settled
from bubbles.sessions.lent import lent, together
from bubbles.tools.tool import Tool
from bubbles.workspace import Grant, Workspace, WritePolicy

_NOTES = ("SOUL.md", "MEMORY.md")
_PROMPT_MOST = 12_000  # tokens of a system prompt; of a small window a quarter at most


class Session:
    """One session, loaded. Making it makes its directory."""

    def __init__(self, home: Home, key: str, settings: Any, *, name: str = "") -> None:
        self.home = home
        self.key = key
        self._settings = settings
        self.folder = Folder(key, home.session(key))
        self.folder.prepare()
        self.history = History(self.folder.history, session=key, name=name or key)
        self.weights = Weights()
        self.prefix = Prefix(key)
        self.last_apology_at = float("-inf")
        self._last_text = ""
        self.window_tokens = 0  # of the model last routed to; 0: not known yet
        self.scale = 1.0  # this model's tokens for one of our estimate, as it last counted them
        self._prompt: dict[bool, str] = {}
        self._told: dict[str, str] = {}
        self._told_lent = ""
        self._settled: config.Effective | None = None
        self.effective: config.Effective
        self.refresh()

    # -- settings --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the session's overrides again. Raises Misconfigured, and keeps the old ones, where they are broken."""
        if not self.history.is_current():
            self.reload()
        found = config.session_settings(self._settings, self.folder.overrides(), str(self.folder.config))
        if self._settled is not None and found == self._settled:
            return
        for warning in found.warnings:
            log.event("daemon.warning", warning, priority="warning", session=self.key)
        self._settled = self.effective = found
        self.forget_prompt()

    def reload(self) -> None:
        """The history's file is another one than it was, or gone: go on with what is there now. Raises Misconfigured where it cannot be used."""
        log.event("daemon.warning", "the session's directory was replaced; its history is read anew", priority="warning", session=self.key)
        self.folder.prepare()
        fresh = History(self.folder.history, session=self.key)
        self.history.close()
        self.history = fresh
        self.weights, self.prefix = Weights(), Prefix(self.key)
        self.forget_prompt()

    @property
    def defaults(self) -> Any:
        return self._settings.agents.defaults

    @property
    def language(self) -> str:
        """ "en" or "zh" for fixed texts: the setting, else what the person wrote last."""
        return language_of(self.effective.language, self._last_text)

    # -- words -----------------------------------------------------------------------------------

    def hear(self, text: str) -> None:
        """Note what was said last: its language is that of fixed texts, where the setting leaves it open."""
        self._last_text = text or self._last_text

    def spoke(self, inbound: Inbound, *, fresh: bool) -> UserSpoke:
        """The words of a message as the model will see them, its media moved into the session's data/."""
        self.hear(inbound.text)
        owner = inbound.sender.owner or inbound.channel == "cli" or inbound.origin == "system"  # jobs are the owner's
        header = prompt.stamp(inbound.at, self._zone(inbound.at), inbound.channel, inbound.sender.name, inbound.is_group, owner)
        if inbound.quote:
            header += f"\n[in answer to: {inbound.quote}]"
        if told := self._lent():
            header += f"\n{told}"
        if fresh and (edits := self._edits()):
            header += f"\n{edits}"
        return UserSpoke(
            id=inbound.id,
            text=inbound.text,
            header=header,
            address=inbound.address,
            message=inbound.message,
            is_group=inbound.is_group,
            owner=owner,
            origin=inbound.origin,
            media=tuple(self._moved(m, inbound.channel) for m in inbound.media),
            job=inbound.job,
            at=inbound.at,
        )

    def _zone(self, at: float) -> tzinfo | None:
        name = self.effective.timezone
        return ZoneInfo(name) if name else datetime.fromtimestamp(at).astimezone().tzinfo

    def _moved(self, media: Media, channel: str) -> Media:
        """A file that a channel downloaded, now in data/. What does not lie in that channel's own media stays where it is."""
        source = Path(media.path)
        if source.parent != self.home.media(channel):
            return media
        target = self.folder.path / "data" / safe(media.name or source.name)
        if target.exists():
            target = target.with_name(f"{time.time_ns() // 1_000_000}-{target.name}")
        with contextlib.suppress(FileNotFoundError):  # moved before a crash
            os.replace(source, target)
        return replace(media, path=f"../data/{target.name}")

    def notes(self) -> dict[str, str]:
        """SOUL.md and MEMORY.md as they are now."""
        return {name: self.folder.note(name) for name in _NOTES}

    def edited(self, before: dict[str, str]) -> None:
        """What changed since `before` was changed by the model itself: it need not be told."""
        if self._prompt:
            self._told |= {name: text for name, text in self.notes().items() if text != before[name]}

    def _edits(self) -> str:
        """What was edited in SOUL.md or MEMORY.md since the model was last told."""
        if not self._prompt:
            return ""
        changed = {name: text for name, text in self.notes().items() if text != self._told.get(name)}
        self._told |= changed
        return "\n".join(f"[{name} was edited. It now reads:]\n{text or '(empty)'}\n[end of {name}]" for name, text in changed.items())

    def _lent(self) -> str:
        """What an open terminal lends, where the model was last told otherwise. It is no part of the prompt, which stays."""
        now = ", ".join(f"{grant.path} ({grant.mode})" for grant in lent(self.home, self.key))
        if now == self._told_lent:
            return ""
        self._told_lent = now
        return f"[Lent to you for now: {now}]" if now else "[No directory is lent to you any longer.]"

    # -- the turn --------------------------------------------------------------------------------

    def rules(self, tools: dict[str, Tool]) -> Rules:
        """The kernel's rules for a turn that begins now."""
        defaults = self.defaults
        return Rules(
            max_iterations=defaults.max_tool_iterations,
            free=frozenset(name for name, tool in tools.items() if tool.free),
            interjection=defaults.interjection,
            window_tokens=self.window_tokens,
            answer_tokens=defaults.max_tokens,
            base_tokens=self.base_tokens,
            scale=self.scale,
        )

    @property
    def base_tokens(self) -> int:
        """The weight of what lies before a turn: the prompt and the history (tools are added by who knows them)."""
        weights = self.weights.of(self.history)
        return sum(weights[-self.defaults.memory_window :]) + sum(context.tokens(text) for text in list(self._prompt.values())[:1])

    def prompt(self, *, tools: bool) -> str:
        """The system prompt, the same bytes until `forget_prompt`. Without tools it is a shorter one."""
        if tools not in self._prompt:
            notes = self._told = self.notes()
            self._prompt[tools] = prompt.system(
                None,
                self.effective.language,
                notes["SOUL.md"],
                notes["MEMORY.md"],
                skills.index(self.folder.path / "skills"),
                {"session": self.key, "directory": str(self.folder.path), "sandbox": self.effective.sandbox, **self._granted()},
                tools,
                self.effective.system_prompt,
                room_tokens=min(_PROMPT_MOST, self.window_tokens // 4) if self.window_tokens else _PROMPT_MOST,
            )
        return self._prompt[tools]

    def _granted(self) -> dict[str, str]:
        found = ", ".join(f"{grant.path} ({grant.mode})" for grant in self._own_grants())
        return {"further directories": found} if found else {}

    def forget_prompt(self) -> None:
        """Build the prompt anew at its next use."""
        self._prompt.clear()

    def close_turn(self, turn: Turn, outcome: str, shown: list[UserSpoke], said: dict[str, int], notice: str, now: float) -> None:
        """Append the turn to history in one piece. Raises OSError where the disk is full; nothing of it stays then."""
        if not self.history.is_current():
            self.reload()
        unshown = turn.request()[len(turn.messages) :] if outcome == "failed:bug" else []  # a bug came before they were: no turn shall meet it again
        lines = [context.encode(message) for message in settled([*turn.messages, *unshown])]
        end: dict[str, Any] = {
            "turn": turn.id,
            "origin": turn.origin,
            "outcome": outcome,
            "messages": [_told(spoke, said) for spoke in shown],
            "says": [say.text for say in turn.says],
            "at": now,
        }
        if notice:
            end["notice"] = notice
        if turn.usage:
            end["usage"] = turn.usage
        self.history.add_turn(lines, end)
        self.scale = turn.scale

    # -- what tools work with ----------------------------------------------------------------------

    def grants(self) -> list[Grant]:
        """The further directories that may be used now: those of the settings, and what an open terminal lends."""
        return together(self._own_grants(), lent(self.home, self.key))

    def _own_grants(self) -> list[Grant]:
        """Those of the settings; one that may not be lent, or is gone, is left out and logged."""
        found = []
        for wanted in self.effective.workspaces:
            grant = Grant(Path(wanted.path), wanted.mode)
            try:
                grant.check(self.home.root)
            except Misconfigured as error:
                log.event("daemon.warning", f"{error.text}; it is left out", priority="warning", session=self.key)
            else:
                found.append(grant)
        return found

    def workspace(self, *, owner_turn: bool) -> Workspace:
        """The session's files, as one turn may see and write them. The caller closes it."""
        files = self._settings.tools.files
        policy = WritePolicy(soul=files.write_soul, skills=files.write_skills, heartbeats=owner_turn)
        return Workspace.open(self.folder.path, grants=self.grants(), write=policy)

    def sandbox(self) -> Sandbox:
        tools = self._settings.tools
        return open_sandbox(
            self.effective.sandbox,
            self.folder.path,
            self.home.session_home(self.key),
            tools.sandbox,
            self.grants(),
            path_append=tools.exec.path_append,
            timezone=self.effective.timezone,
        )

    def close(self) -> None:
        self.history.close()


def _told(spoke: UserSpoke, said: dict[str, int]) -> dict[str, Any]:
    """A message as an `end` line tells of it; `said`: which of the turn's sayings answers it, the last where it is not told."""
    told = {"id": spoke.id, "channel": spoke.address.channel, "chat": spoke.address.chat, "at": spoke.at, "text": spoke.text}
    return told | ({"said": said[spoke.id]} if spoke.id in said else {})
