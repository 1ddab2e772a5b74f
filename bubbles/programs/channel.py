"""The daemon of one channel: it takes what is said on a platform into its queue, and sends what waits for it there.

There is one for each channel that is switched on in config.json; the unit bubbles-channel@NAME runs it. It knows its
own platform's credentials, and no model, session or tool.

Input:
  what people write on the platform; messages in the queue outbound/NAME; the section channels of config.json
Output:
  messages in the queue inbound/NAME, and on the platform; a log on standard error, or in the journal
Exit codes:
  0   asked to stop, or with --once done
  64  the call is wrong
  70  a bug; the log has the traceback
  75  try again: it is running already, the disk is full, or only a new process may hear the platform
  78  there is no such channel, it is not built or not switched on, or the platform rejects the credentials
Examples:
  bubbles channel telegram
  systemctl --user restart bubbles-channel@telegram
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

from bubbles.channels import CHANNELS
from bubbles.daemon import Daemon
from bubbles.daemon import main as run
from bubbles.errors import Misconfigured, Usage
from bubbles.paths import Home

if TYPE_CHECKING:
    from bubbles.channels.channel import Channel
    from bubbles.config.channels import Platform

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


async def serve(daemon: Daemon) -> None:
    """Be the channel's daemon until told to stop."""
    from bubbles.channels.frame import run as be  # a channel that is none has no use for it
    from bubbles.channels.policy import Rules
    from bubbles.channels.settings import Settings

    name = daemon.args[0]
    channel, section = built(daemon.home, name)
    await be(daemon, channel, Settings(on_uncertain=section.on_uncertain), Rules.of(section, pairs=channel.pairs))


def built(home: Home, name: str) -> tuple[Channel, Platform]:
    """The channel `name` with the settings of its section. Raises Misconfigured where it is not built, and where the owner has not switched it on."""
    from bubbles import config, log

    if name not in CHANNELS:
        raise Misconfigured(f"{name} is not built yet", remedy=f"one that is built ({_named()}); switch {name} off in {home.config}")
    settings = config.load(home, "channels")
    log.redact(settings.secrets())
    for warning in settings.warnings:
        log.event("daemon.warning", warning, priority="warning")
    section: Platform = getattr(settings.channels, name)
    if not section.enabled:
        raise Misconfigured(f"{name} is switched off", remedy=f"set channels.{name}.enabled to true in {home.config}, and start it again")
    module, _, cls = CHANNELS[name].partition(":")
    return getattr(import_module(module), cls)(section), section


def check(name: str) -> None:
    """Raises where there can be no channel of that name: it becomes a part of paths."""
    if not _NAME.fullmatch(name):
        raise Usage(f"{name!r} is no name of a channel", remedy="bubbles channel --help")
    from bubbles.config.channels import Channels, Platform  # not before there is a name to look up

    if name not in Channels.model_fields or not isinstance(Channels.model_fields[name].get_default(call_default_factory=True), Platform):
        raise Misconfigured(f"there is no channel {name!r}", remedy=f"one that is built ({_named()}); the terminal needs no daemon")


def _named() -> str:
    return ", ".join(sorted(CHANNELS)) or "none so far"


def main(argv: list[str] | None = None) -> None:
    """The program."""
    run("channel", serve, argv, about=__doc__ or "", takes="NAME", check=check)


if __name__ == "__main__":
    main()
