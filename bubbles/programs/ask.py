"""Ask the assistant once, and print its reply.

The words of the command line come first, those on standard input after them. `bubbles agent -m` does the same for
a terminal: it shows text as it comes.

Ctrl-C stops the turn. Ended in any other way (SIGTERM, a closed terminal) it leaves the turn running: words are
never lost, and neither is the reply; `bubbles history SESSION` has it.

Input:
  plain text on standard input, unless that is a terminal; write `< /dev/null` where it is somebody else's
Output:
  the reply as plain text, and nothing else
Exit codes:
  0    a reply came, or a command such as /status was answered
  1    no answer came: standard error says why
  65   more than 1 MB: put it in a file, and ask about the file
  69   a daemon cannot be reached
  75   the reply cannot be written, or the disk is full
  78   the configuration is wrong, or no model is set up
  130  interrupted; the turn was stopped
Examples:
  git log -3 -p | bubbles ask -s work 'review this' > review.txt
  bubbles ask 'what is the capital of Mongolia?' < /dev/null
"""

from __future__ import annotations

import sys

import click

from bubbles.paths import Home
from bubbles.programs.page import named, program
from bubbles.programs.terminal.conversation import DEFAULT_SESSION, Conversation, present
from bubbles.programs.terminal.once import ask
from bubbles.programs.words import few, piped


@program("ask", __doc__)
@click.option("-s", "--session", callback=named, default=DEFAULT_SESSION, show_default=True, help="The session; it is made where there is none.")
@click.argument("words", nargs=-1, metavar="[TEXT]...")
def main(session: str, words: tuple[str, ...]) -> int:
    talk = Conversation(Home.find(), session)
    rest = "" if sys.stdin.isatty() else piped(talk.instead)
    text = few("\n\n".join(part for part in (" ".join(words), rest.strip("\n")) if part), talk.instead)
    with present(talk.home):
        return ask(talk, text, live=False)
