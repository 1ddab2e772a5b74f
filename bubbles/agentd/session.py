"""A session as its turns see it: directory, history, effective settings, and the prompt that its requests begin with.

The prompt is built once and stays, byte for byte, until a compaction or a restart: a provider's cache lives on
that. What the owner edits meanwhile (SOUL.md, MEMORY.md) is told at the head of the next words.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bubbles import config, log, sandboxes
from bubbles.agentd import ends, posting
from bubbles.agentd.apology import language_of
from bubbles.agentd.request import Past, Prefix
from bubbles.errors import Misconfigured
from bubbles.ids import safe
from bubbles.kernel import context, prompt
from bubbles.kernel.clip import clip
from bubbles.kernel.events import Heard, UserSpoke
from bubbles.kernel.turn import Rules, Turn
from bubbles.messages import Address, Inbound, Media
from bubbles.paths import Home
from bubbles.sandboxes.sandbox import Sandbox
from bubbles.sessions import skills
from bubbles.sessions.folder import Folder, Signature
from bubbles.sessions.history import History, settled
from bubbles.sessions.lent import lent, together
from bubbles.tools.tool import Tool
from bubbles.workspace import Grant, Workspace, WritePolicy

_NOTES = ("SOUL.md", "MEMORY.md")
_HEARD_S, _HEARD_TOKENS = 6 * 3600.0, 200  # how long overheard words are worth showing, and how much of each
_NOT_A_NAME = re.compile(r"[\s/\\,\"'`$&|;<>\[\]*?!~]+")
_EDITED = "[edited: this is what an earlier message of theirs says now]"
_OWN_S, _OWN_TOKENS = 30 * 86_400.0, 1000  # the same of what the assistant wrote there itself: an answer may come late
_PROMPT_MOST = 12_000  # tokens of a system prompt; of a small window a quarter at most


class Session:
    """One session, loaded. Making it makes its directory."""

    def __init__(self, home: Home, key: str, settings: Any, *, name: str = "") -> None:
        self.home = home
        self.key = key
        self._settings = settings
        self.folder = Folder(key, home.session(key))
        self.folder.prepare()
        self.history = self._opened(name)
        self.thoughts = False  # whether the model wants earlier thoughts back
        self._past = Past()
        self.prefix = Prefix(key)
        self.last_apology_at = _last_failure(self.history)
        self._last_text = ""
        self.window_tokens = 0  # of the model last routed to; 0: not known yet
        self.scale = 1.0  # this model's tokens for one of our estimate, as it last counted them
        self._counted_by = ""  # the model that did
        self._prompt: dict[bool, str] = {}
        self._prompt_window = 0  # the window that it was made for
        self._prompt_tokens: dict[bool, int] = {}
        self._told: dict[str, str] = {}
        self._told_lent = ""
        self._settled: config.Effective | None = None
        self._config_seen: Signature | None = None
        self._sandboxes: dict[tuple[Any, ...], Sandbox] = {}
        self._notes: dict[str, tuple[Signature | None, str]] = {}
        self.effective: config.Effective
        self.refresh()

    # -- settings --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the session's overrides again. Raises Misconfigured, and keeps the old ones, where they are broken."""
        if not self.history.is_current():
            self.reload()
        signature = self.folder.signature("config.json")
        if self._settled is not None and signature == self._config_seen:
            return
        found = config.session_settings(self._settings, self.folder.overrides(), str(self.folder.config))
        self._config_seen = signature
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
        fresh = self._opened()
        self.history.close()
        self.history = fresh
        self._past, self.prefix = Past(), Prefix(self.key)
        self.forget_prompt()

    def _opened(self, name: str = "") -> History:
        history = History(self.folder.history, session=self.key, name=name or self.key)
        if history.damaged or history.cut_aside:
            beside = f"; what followed is kept in {history.cut_aside}" if history.cut_aside else ""
            what = f"{history.path}: {history.damaged} lines cannot be read{beside}"
            log.event("daemon.warning", what, priority="error", session=self.key)
        return history

    @property
    def defaults(self) -> Any:
        return self._settings.agents.defaults

    @property
    def limits(self) -> Any:
        return self._settings.agents.limits

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
        is_end = ends.is_end(inbound)  # of a command in the background, which has the rights of those it was begun for
        if not is_end:
            self.hear(inbound.text)
        owner = inbound.sender.owner or inbound.channel == "cli" or (inbound.origin == "system" and not is_end)  # cron's jobs are the owner's
        header = self._stamp(inbound, owner)
        if inbound.edit_of:
            header += f"\n{_EDITED}"
        if inbound.quote:
            header += f"\n[in answer to: {prompt.line(inbound.quote)}]"
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
            mentioned=inbound.mentioned or not inbound.is_group,
            origin=inbound.origin,
            media=tuple(self._moved(m, inbound.channel) for m in inbound.media),
            job=inbound.job,
            at=inbound.at,
        )

    def overhear(self, inbound: Inbound) -> None:
        """Keep words that were said near the assistant and not to it, for when it is spoken to. The caller syncs the history."""
        header = self._stamp(inbound, inbound.sender.owner) + (f"\n{_EDITED}" if inbound.edit_of else "")
        where: dict[str, Any] = {"channel": inbound.channel, "chat": inbound.chat, "thread": inbound.thread}
        own = posting.is_note(inbound)
        if own:
            where["own"] = True
        self.history.overhear(inbound.id, clip(inbound.text, _OWN_TOKENS if own else _HEARD_TOKENS), header, inbound.at, where)

    def heard(self, now: float) -> list[Heard]:
        """The words that were overheard lately and not shown yet."""
        return [
            Heard(one["id"], one["text"], one["header"], Address(str(one.get("channel")), str(one.get("chat")), str(one.get("thread"))), one["at"])
            for one in self.history.heard
            if one["at"] > now - (_OWN_S if one.get("own") else _HEARD_S)
        ]

    def _stamp(self, inbound: Inbound, owner: bool) -> str:
        sender, zone = inbound.sender, self._zone(inbound.at)
        return prompt.stamp(inbound.at, zone, inbound.channel, sender.name, inbound.is_group, owner, sender.id if inbound.origin == "user" else "")

    def _zone(self, at: float) -> tzinfo | None:
        name = self.effective.timezone
        return ZoneInfo(name) if name else datetime.fromtimestamp(min(at, prompt.LAST)).astimezone().tzinfo

    def _moved(self, media: Media, channel: str) -> Media:
        """A file that a channel downloaded, now in data/. What does not lie in that channel's own media stays where it is."""
        source = Path(media.path)
        if source.parent != self.home.media(channel):
            return media
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(source).st_mode):  # a link would lead somebody's tools elsewhere
                return media
        target = self.folder.path / "data" / _kept_name(media.name or source.name)
        other = target.with_name(f"{safe(source.stem)}-{target.name}")  # a channel gives each file that it downloads a name of its own
        if os.path.lexists(other) or (os.path.lexists(target) and os.path.lexists(source)):
            target = other
        with contextlib.suppress(FileNotFoundError):  # moved before a crash
            os.replace(source, target)
        return replace(media, path=f"../data/{target.name}")

    def notes(self) -> dict[str, str]:
        """SOUL.md and MEMORY.md as they are now."""
        for name in _NOTES:
            signature = self.folder.signature(name)
            if name not in self._notes or self._notes[name][0] != signature:
                self._notes[name] = signature, self.folder.note(name)
        return {name: text for name, (_, text) in self._notes.items()}

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
            max_system_iterations=self.limits.system_iterations,
            max_says=self.limits.outbound,
            free=frozenset(name for name, tool in tools.items() if tool.free),
            interjection=defaults.interjection,
            window_tokens=self.window_tokens,
            answer_tokens=defaults.max_tokens,
            base_tokens=self.base_tokens,
            scale=self.scale,
        )

    def scale_of(self, model: str, scale: float) -> float:
        """`scale`, if it was this model that counted so; of another one nothing is known yet."""
        if model != self._counted_by:
            self.scale = scale = scale if not self._counted_by else 1.0
            self._counted_by = model
        return scale

    @property
    def base_tokens(self) -> int:
        """The weight of what lies before a turn: the prompt and the history (tools are added by who knows them)."""
        return self.past.weight(self.defaults.memory_window) + next(iter(self._prompt_tokens.values()), 0)

    @property
    def past(self) -> Past:
        """The history, as the model gets it."""
        return self._past.of(self.history, thoughts=self.thoughts)

    def prompt(self, *, tools: bool) -> str:
        """The system prompt, the same bytes until `forget_prompt` or another window. Without tools, and for a small window, it is a shorter one."""
        if self._prompt_window != self.window_tokens:
            self.forget_prompt()
            self._prompt_window = self.window_tokens
        if tools not in self._prompt:
            small = tools and 0 < self.window_tokens <= prompt.SMALL_TOKENS
            notes = self._told = self.notes()
            self._prompt[tools] = prompt.system(
                prompt.BASE_SMALL if small else None,
                self.effective.language,
                notes["SOUL.md"],
                notes["MEMORY.md"],
                skills.index(self.folder.path / "skills"),
                {"session": self.key, "directory": str(self.folder.path), "sandbox": self._held(tools), **self._granted()},
                tools,
                self.effective.system_prompt,
                room_tokens=min(_PROMPT_MOST, self.window_tokens // 4) if self.window_tokens else _PROMPT_MOST,
            )
            self._prompt_tokens[tools] = context.tokens(self._prompt[tools])
        return self._prompt[tools]

    def _held(self, tools: bool) -> str:
        """What holds its commands, for the prompt; the network of a turn may change and the prompt may not, so both are in it."""
        name, network = self.effective.sandbox, self.effective.network
        both = (sandboxes.narrower(name, network, most) for most in ("host", self._settings.tools.sandbox.unattended_network))
        return prompt.sandbox(name, *both) if tools else name

    def _granted(self) -> dict[str, str]:
        found = ", ".join(f"{grant.path} ({grant.mode})" for grant in self._own_grants())
        return {"further directories": found} if found else {}

    def forget_prompt(self) -> None:
        """Build the prompt anew at its next use."""
        self._prompt.clear()
        self._prompt_tokens.clear()

    def close_turn(self, turn: Turn, outcome: str, shown: list[UserSpoke], said: dict[str, int], notice: str, now: float) -> None:
        """Append the turn to history in one piece. Raises OSError where the disk is full; nothing of it stays then."""
        if not self.history.is_current():
            self.reload()
        unshown = turn.request()[len(turn.messages) :] if outcome == "failed:bug" else []  # a bug came before they were: no turn shall meet it again
        messages = [*turn.messages, *unshown]
        lines = [context.encode(message) for message in (messages if _is_plain(messages) else settled(messages))]
        end: dict[str, Any] = {
            "turn": turn.id,
            "origin": turn.origin,
            "outcome": outcome,
            "messages": [_told(spoke, said) for spoke in shown],
            "says": [say.text for say in turn.says],
            "at": now,
        }
        if turn.limit:
            end["limit"] = turn.limit
        waiting = {heard.id for heard in turn.heard}
        if shown_too := [heard.id for heard in turn.overheard if heard.id not in waiting]:
            end["heard"] = shown_too
        if turn.failure is not None and turn.failure.of_words:
            end["refused"] = True
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

    def sandbox(self, *, unattended: bool = False) -> Sandbox:
        """Where its commands run: the same one as long as the settings and what is lent are the same.

        `unattended`: no person alone with the assistant asked for it, so that the network is at most what the owner allows there.
        """
        tools, grants = self._settings.tools, self.grants()
        network = self.effective.network
        if unattended:
            network = sandboxes.narrower(self.effective.sandbox, network, tools.sandbox.unattended_network)
        made_for = self.effective.sandbox, network, self.effective.timezone, tuple(grants)
        if made_for not in self._sandboxes:
            where = self.folder.path, self.home.session_home(self.key)
            more = {"path_append": tools.exec.path_append, "timezone": self.effective.timezone, "network": network}
            self._sandboxes = {key: made for key, made in self._sandboxes.items() if key[2:] == made_for[2:]}
            self._sandboxes[made_for] = sandboxes.open(self.effective.sandbox, *where, tools.sandbox, grants, **more)
        return self._sandboxes[made_for]

    def close(self) -> None:
        self.history.close()


def _kept_name(name: str) -> str:
    """What a file that came along is called: as its sender called it, as far as that is one plain word of at most 120 bytes with its ending.

    >>> _kept_name("报告 (1).pdf"), _kept_name("../../.bashrc"), _kept_name("a.txt")
    ('报告_(1).pdf', 'bashrc', 'a.txt')
    """
    if name.isascii() and safe(name) == name:
        return name
    plain = "".join(sign if sign.isprintable() else "" for sign in name.rpartition("/")[2])
    stem, ending = os.path.splitext(_NOT_A_NAME.sub("_", plain).lstrip("._-"))
    ending = ending if len(ending.encode()) <= 16 else ""
    kept = stem.encode()[: 120 - len(ending.encode())].decode("utf-8", "ignore") + ending
    return kept if kept.strip("._-") else safe(name)


def _is_plain(messages: list[dict[str, Any]]) -> bool:
    """A question and its answer: nothing of it needs settling."""
    return [message["role"] for message in messages] == ["user", "assistant"] and not messages[1].get("tool_calls")


def _last_failure(history: History) -> float:
    """When a failure was told here last, epoch seconds: a restart is no reason to tell another at once."""
    told = (end["at"] for end in reversed(history.ended) if end.get("notice") and str(end.get("outcome")).startswith("failed:"))
    return float(next(told, float("-inf")))


def _told(spoke: UserSpoke, said: dict[str, int]) -> dict[str, Any]:
    """A message as an `end` line tells of it; `said`: which of the turn's sayings answers it, the last where it is not told."""
    told = {"id": spoke.id, "channel": spoke.address.channel, "chat": spoke.address.chat, "at": spoke.at, "text": spoke.text}
    where = {"thread": spoke.address.thread, "message": spoke.message, "is_group": spoke.is_group}
    told |= {name: value for name, value in where.items() if value}
    return told | ({"said": said[spoke.id]} if spoke.id in said else {})
