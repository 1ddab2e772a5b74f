"""Ask the assistant once, and print its reply.

The words of the command line come first, those on standard input after them. `bubbles agent -m` does the same for
a terminal: it shows text as it comes.

Input:
  plain text on standard input, unless that is a terminal; write `< /dev/null` where it is somebody else's
Output:
  the reply as plain text, and nothing else
Exit codes:
  0    a reply came
  1    no answer came: standard error says why
  69   a daemon cannot be reached
  78   the configuration is wrong, or no model is set up
  130  interrupted; the turn was stopped
Examples:
  git diff | bubbles ask -s work 'review this' | bubbles send telegram:42
  bubbles ask 'what is the capital of Mongolia?' < /dev/null
"""

from __future__ import annotations

import sys

import click

from bubbles.paths import Home
from bubbles.programs.page import named, program
from bubbles.programs.terminal.conversation import DEFAULT_SESSION, Conversation, present
from bubbles.programs.terminal.once import ask


@program("ask", __doc__)
@click.option("-s", "--session", callback=named, default=DEFAULT_SESSION, show_default=True, help="The session; it is made where there is none.")
@click.argument("words", nargs=-1, metavar="[TEXT]...")
def main(session: str, words: tuple[str, ...]) -> int:
    piped = "" if sys.stdin.isatty() else sys.stdin.buffer.read().decode("utf-8", "replace")
    text = "\n\n".join(part for part in (" ".join(words), piped.strip("\n")) if part)
    home = Home.find()
    with present(home):
        return ask(Conversation(home, session), text, live=False)
