"""Talk with the assistant in this terminal.

Without -m it is interactive: type, and /help says what else. With -m, or with words on standard input, it asks
once and ends. Where no daemon is running it starts them; they end 30 s after the last terminal.

Input:
  what is typed; with `-m -`, or where standard input is no terminal, plain text from there
Output:
  the reply; tool calls and notices go to standard error
Exit codes:
  0    a reply came, or a command (/help names them) was answered; or the interactive terminal was left
  1    no answer came: standard error says why
  65   more than 1 MB: put it in a file, and ask about the file
  69   a daemon cannot be reached
  78   the configuration is wrong, or no model is set up
  130  interrupted; the turn was stopped
Examples:
  bubbles agent
  bubbles agent -s work --here
  bubbles agent -s work -m 'what changed since yesterday?'
  bubbles agent -m - < question.txt
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bubbles.errors import Usage
from bubbles.kernel.clean import clean
from bubbles.paths import Home
from bubbles.programs.page import named, program
from bubbles.programs.terminal.conversation import DEFAULT_SESSION, Conversation, present
from bubbles.programs.terminal.once import ask
from bubbles.programs.words import few, piped


@program("agent", __doc__)
@click.option("-m", "--message", help="Ask this once and end; - for standard input.")
@click.option("-s", "--session", callback=named, default=DEFAULT_SESSION, show_default=True, help="The session; it is made where there is none.")
@click.option("--here", is_flag=True, help="Let the session's tools read and write this directory meanwhile.")
@click.option("--logs", is_flag=True, help="Show the log beside: each tool call with its arguments and result.")
@click.option("--debug", is_flag=True, help="As --logs, with the system prompt, and details of daemons that this starts.")
def main(message: str | None, session: str, here: bool, logs: bool, debug: bool) -> int:
    home = Home.find()
    instead = Conversation(home, session).instead
    if message == "-" or (message is None and not sys.stdin.isatty()):
        message = piped(instead)
    if message is not None:
        few(message, instead)
    if debug:
        os.environ["BUBBLES_DEBUG"] = "1"
    directory = Path.cwd() if here else None
    with present(home):
        if message is None:
            return _interactive(home, session, directory, logs or debug, debug)
        return _once(Conversation(home, session), message, directory, logs or debug, debug)


def _once(talk: Conversation, text: str, here: Path | None, logs: bool, debug: bool) -> int:
    with contextlib.ExitStack() as stack:
        if here is not None:
            from bubbles.programs.terminal.here import granted

            stack.enter_context(granted(talk, here))
        if debug:
            print(clean(talk.call("session.prompt", {"session": talk.key})["text"]), file=sys.stderr)
        if logs:
            stack.enter_context(_log(talk, debug, lambda line: print(line, file=sys.stderr)))
        return ask(talk, text, live=sys.stdout.isatty())


def _log(talk: Conversation, everything: bool, tell: Callable[[str], None]) -> contextlib.AbstractContextManager[Any]:
    from bubbles.programs.terminal.logs import followed

    return followed(talk.home, talk.key, tell, everything=everything)


def _interactive(home: Home, session: str, here: Path | None, logs: bool, debug: bool) -> int:
    if not sys.stdout.isatty():
        raise Usage("the interactive terminal needs a terminal to write to", remedy="bubbles agent -m TEXT, or bubbles ask TEXT")
    from bubbles.programs.terminal.screen import talk

    talk(home, session, here=here, logs=logs, debug=debug)
    return 0
