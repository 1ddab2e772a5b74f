"""Run everything in the foreground, say what becomes of it, and show the log.

Where this user's service manager runs the daemons (`bubbles units install`), it starts bubbles.target and follows its
log. Elsewhere, in a container or on macOS, and with --children, it runs them itself, as children, by the rules of the
units: each is started again when it ends, after half a second (a channel after five), and not after a wrong call (64) or a
wrong configuration (78); one that hangs for 30 seconds is ended. A daemon that was there before is left alone; one that a
terminal started for its own time is replaced. Once a day it tidies then, as the timer of the units does.

Ctrl-C, SIGTERM and a closed terminal end what it started, and nothing else: a target that was active before goes on.

Input:
  nothing
Output:
  nothing; standard error says what starts, waits, ends and comes back, and has the daemons' log
Exit codes:
  0   stopped, by Ctrl-C or SIGTERM or with its terminal; or somebody else has stopped the target
  1   units have failed by something else than an exit code, and none is left
  64  it, or a daemon, was called wrongly, and no daemon is left
  69  the service manager does not do what it was asked
  70  a bug; standard error says where
  75  another gateway, the target or somebody else keeps the daemons already; the home cannot be written
  78  the configuration is wrong, and no daemon is left
Examples:
  bubbles gateway
  bubbles gateway --children
  bubbles gateway 2>&1 | grep tool.start
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, BinaryIO

import click

from bubbles import log, logfile
from bubbles.errors import TryAgain, Unavailable
from bubbles.paths import Home
from bubbles.programs.page import program

if TYPE_CHECKING:
    from bubbles.programs.entries import Entry
    from bubbles.systemd import UserManager

_PRIORITY = re.compile(rb"<([0-7])>")
_COLOURS = {b"3": "31", b"4": "33", b"7": "2"}


@program("gateway", __doc__)
@click.option("--children", is_flag=True, help="Run the daemons as children of this program, also where the service manager would.")
def main(children: bool) -> int:
    home = Home.find()
    home.prepare()
    manager, why = manager_of(home)
    return followed(home, manager) if manager is not None and not children else kept(home, manager, why)


def manager_of(home: Home) -> tuple[UserManager | None, str]:
    """This user's service manager, where the units for this home are installed; else None, and why."""
    from bubbles.systemd import UserManager

    manager = UserManager.reach()
    if manager is None:
        return None, "no service manager answers here"
    try:
        theirs = manager.home_of_units()
    except Unavailable as error:
        return None, error.text
    if theirs is None:
        return None, "no units are installed (to install them: bubbles units install)"
    if os.path.realpath(theirs) != os.path.realpath(home.root):
        return None, f"the units are those of {theirs}"
    return manager, ""


def followed(home: Home, manager: UserManager) -> int:
    """Have the service manager run them, and look on."""
    from bubbles.programs.entries import text
    from bubbles.programs.following import Following

    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")

    def show(entry: Entry) -> None:
        say(text(entry, colour))

    following = Following(home, manager, say=say, show=show)
    following.wake.listen()
    return following.run()


def kept(home: Home, manager: UserManager | None, why: str) -> int:
    """Run them here. `manager`: the one that would."""
    from bubbles.programs.children import Children, daemons
    from bubbles.systemd import TARGET

    if manager is not None and manager.show(TARGET)[TARGET].active in ("active", "activating"):
        raise TryAgain(f"{TARGET} is active, and keeps the daemons", remedy=f"systemctl --user stop {TARGET}; or without --children")
    children = Children(home, daemons(home), say=say, show=forward, why=why)
    children.wake.listen()
    return children.run()


def forward(home: Home, name: str, lines: BinaryIO) -> None:
    """Show what a daemon says. Its log keeps its entries; what is none (an error's last words, a traceback) is kept here, in `log/NAME.log`."""
    with lines, contextlib.closing(logfile.Lines(home.log / f"{name}.log")) as file:
        for line in lines:
            found = _PRIORITY.match(line)
            if found is None:
                file.write(line if line.endswith(b"\n") else line + b"\n")
            text = line[found.end() if found else 0 :].decode("utf-8", "replace").rstrip("\n")
            say(log.escaped(text), _COLOURS.get(found[1], "") if found else "")


def say(text: str, colour: str = "") -> None:
    """A line to standard error, whole: the daemons' lines do not run into each other."""
    if colour and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{colour}m{text}\x1b[0m"
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
