"""A platform and its section of the configuration, put together: built, looked at, asked who the bot is, logged in to.

It loads a platform's library when it is needed, and no sooner.
"""

from __future__ import annotations

import asyncio
import re
import sys
from getpass import getpass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbles.channels import CHANNELS
from bubbles.errors import Misconfigured, NotNow, TryAgain, Usage
from bubbles.paths import Home

if TYPE_CHECKING:
    from bubbles.channels.channel import Channel
    from bubbles.config.channels import Platform

_LOGIN_S = 60.0
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def built(home: Home, name: str) -> tuple[Channel, Platform]:
    """The channel `name` with the settings of its section. Raises Misconfigured where it is not built, and where the owner has not switched it on."""
    section = _section(home, name)
    if not section.enabled:
        raise Misconfigured(f"{name} is switched off", remedy=f"set channels.{name}.enabled to true in {home.config}, and start it again")
    return _class(home, name)(section), section


def look(home: Home, name: str) -> bool:
    """Look at a channel's section without asking anybody; whether it is switched on. Raises Misconfigured naming what is missing or wrong."""
    from bubbles.config.channels import missing

    cls, section = _class(home, name), _section(home, name)
    if empty := missing(section):
        named = ", ".join(f"channels.{name}.{key}" for key in empty)
        raise Misconfigured(f"{named} {'is' if len(empty) == 1 else 'are'} missing", remedy=f"docs/channels/{name}.md says where to get it")
    if wrong := list(getattr(cls, "check", lambda _: [])(section)):
        raise Misconfigured("; ".join(wrong), remedy=f"docs/channels/{name}.md; mend it in {home.config}")
    return section.enabled


def who(home: Home, name: str) -> str:
    """Who the bot is at its platform, through the daemon where that runs. Raises Misconfigured for rejected credentials, TryAgain."""
    from bubbles.bus.dial import Dial
    from bubbles.bus.lock import Lock, is_running

    if is_running(home, f"channel-{name}"):
        with Dial(home, f"channel-{name}") as dial:
            return str(dial.call("who", timeout_s=_LOGIN_S)[0].get("who", ""))
    check(name)
    look(home, name)
    channel = _class(home, name)(_section(home, name))
    lock = Lock(home, f"channel-{name}")  # two at once under one token disturb each other
    lock.acquire()
    try:
        return asyncio.run(_who(channel))
    except NotNow as error:
        raise TryAgain(f"{name} cannot be reached: {error.text}", remedy="try again later") from error
    finally:
        lock.release()


async def _who(channel: Channel) -> str:
    try:
        async with asyncio.timeout(_LOGIN_S):
            await channel.open()
            return await channel.who()
    except TimeoutError:
        raise NotNow(f"no answer within {_LOGIN_S:g} s") from None
    finally:
        await channel.close()


class Terminal:
    """What a channel's `login(section, terminal)` talks through. `path`: the directory of what it keeps for itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def say(self, text: str) -> None:
        print(text, flush=True)

    def ask(self, question: str, *, hidden: bool = False) -> str:
        """A person's answer on one line. Raises Usage where there is nobody to ask."""
        if not sys.stdin.isatty():
            raise Usage("there are questions, and standard input is no terminal to answer them", remedy="run it in a terminal")
        return (getpass(f"{question}: ") if hidden else input(f"{question}: ")).strip()


def login(home: Home, name: str) -> None:
    """Go through what a platform wants once, and have the channel keep it. Raises Misconfigured, TryAgain."""
    from bubbles.bus.lock import Lock

    check(name)
    section, cls = _section(home, name), _class(home, name)
    way = getattr(cls, "login", None)
    if way is None:
        named = " and ".join(f"channels.{name}.{key}" for key in section.needs)
        print(f"{name} has no login of its own: {named or 'its section'} in {home.config} is all that it needs (docs/channels/{name}.md)")
        return
    lock = Lock(home, f"channel-{name}")
    lock.acquire()
    try:
        path = home.root / "channels" / name
        for directory in (path.parent, path):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        asyncio.run(way(section, Terminal(path)))
    finally:
        lock.release()


def _class(home: Home, name: str) -> Any:
    """A channel's class. Loads its platform's library. Raises Misconfigured where it is not built."""
    _must_be_built(home, name)
    module, _, cls = CHANNELS[name].partition(":")
    try:
        return getattr(import_module(module), cls)
    except ModuleNotFoundError as error:
        if (error.name or "bubbles").split(".")[0] == "bubbles":
            raise
        raise Misconfigured(f"{name} wants {error.name}, which is not installed", remedy=f"pip install 'bubbles-assistant[{name}]'") from error


def _must_be_built(home: Home, name: str) -> None:
    if name not in CHANNELS:
        raise Misconfigured(f"{name} is not built yet", remedy=f"one that is built ({_named()}); switch {name} off in {home.config}")


def _section(home: Home, name: str) -> Platform:
    from bubbles import config, log

    _must_be_built(home, name)
    settings = config.load(home, "channels")
    log.redact(settings.secrets())
    for warning in settings.warnings:
        log.event("daemon.warning", warning, priority="warning")
    section: Platform = getattr(settings.channels, name)
    return section


def check(name: str) -> None:
    """Raises where there can be no channel of that name: it becomes a part of paths."""
    if not _NAME.fullmatch(name):
        raise Usage(f"{name!r} is no name of a channel", remedy="bubbles channel --help")
    from bubbles.config.channels import Channels, Platform  # not before there is a name to look up

    if name not in Channels.model_fields or not isinstance(Channels.model_fields[name].get_default(call_default_factory=True), Platform):
        raise Misconfigured(f"there is no channel {name!r}", remedy=f"one that is built ({_named()}); the terminal needs no daemon")


def _named() -> str:
    return ", ".join(sorted(CHANNELS)) or "none so far"
