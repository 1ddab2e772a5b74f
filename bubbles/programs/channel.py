"""The daemon of one channel: it takes what is said on a platform into its queue, and sends what waits for it there.

There is one for each channel that is switched on in config.json; the unit bubbles-channel@NAME runs it. It knows its
own platform's credentials, and no model, session or tool. With --check it looks at its settings, asks nobody and ends.

Input:
  what people write on the platform; messages in the queue outbound/NAME; the section channels of config.json
Output:
  messages in the queue inbound/NAME, and on the platform; a log on standard error, or in the journal
Exit codes:
  0   asked to stop, or with --once done; with --check, its settings are well
  64  the call is wrong
  70  a bug; the log has the traceback
  75  try again: it is running already, the disk is full, or only a new process may hear the platform
  78  there is no such channel, it is not built or not switched on, or the platform rejects the credentials; with --check,
      a setting is missing or wrong
Examples:
  bubbles channel telegram
  bubbles channel telegram --check
  systemctl --user restart bubbles-channel@telegram
"""

from __future__ import annotations

import sys

from bubbles.daemon import Daemon
from bubbles.daemon import main as run
from bubbles.errors import OK, BubblesError, Usage
from bubbles.paths import Home
from bubbles.programs.platforms import built, check, look


async def serve(daemon: Daemon) -> None:
    """Be the channel's daemon until told to stop."""
    from bubbles import config
    from bubbles.channels.frame import run as be  # a channel that is none has no use for it
    from bubbles.channels.policy import Rules
    from bubbles.channels.settings import Settings

    name = daemon.args[0]
    channel, section = built(daemon.home, name)
    shared = config.load(daemon.home, "channels").channels
    settings = Settings(on_uncertain=section.on_uncertain, progress=shared.send_progress, hints=shared.send_tool_hints)
    await be(daemon, channel, settings, Rules.of(section, pairs=channel.pairs))


def main(argv: list[str] | None = None) -> None:
    """The program."""
    given = sys.argv[1:] if argv is None else argv
    if "--check" in given:
        sys.exit(_checked([word for word in given if word != "--check"]))
    run("channel", serve, argv, about=__doc__ or "", takes="NAME", check=check)


def _checked(names: list[str]) -> int:
    """The exit code of --check."""
    try:
        if len(names) != 1:
            raise Usage("one channel is checked at a time", remedy="bubbles channel NAME --check")
        check(names[0])
        on = look(Home.find(), names[0])
    except BubblesError as error:
        print(f"bubbles: {error.text}" + (f"\n  try: {error.remedy}" if error.remedy else ""), file=sys.stderr)
        return error.exit
    print(f"{names[0]}: its settings are well" + ("" if on else f"; it is switched off (channels.{names[0]}.enabled)"))
    return OK


if __name__ == "__main__":
    main()
