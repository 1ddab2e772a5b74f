"""Show what the log holds: each message, question to a model, call of a tool, and what went wrong.

It reads what journald keeps and the files in log/ alike, of this home alone, and tells both in the order of time. The
options with a NAME or an ID may be given more than once; an entry is told where it fits one of each kind. --event takes
a kind as well: tool means tool.start, tool.finish and tool.refuse.

At a terminal it draws a table of the last 100, each on a line; elsewhere it prints all, as JSON.

Input:
  nothing
Output:
  one JSON object an entry: at, priority (0 is worst, 6 ordinary), program, event, message, and where they apply session,
  turn, channel, tool, message_id, ms and others; at a terminal a table, or with --json the same. What journald dropped of
  the time shown, because too many came at once, is told on standard error.
Exit codes:
  0    there was something
  1    there was nothing
  69   what journald keeps cannot be read; the entries of the files are shown
  130  interrupted
Examples:
  bubbles audit -s work --since '10 min ago'
  bubbles audit --turn telegram-8841 --event tool --full
  bubbles audit -f --priority warning
  bubbles audit --since today --tool exec | jq -r .message
"""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from fnmatch import fnmatchcase

import click

from bubbles import log
from bubbles.errors import NO, OK, Unavailable, Usage
from bubbles.paths import Home
from bubbles.programs import journald, lines
from bubbles.programs.entries import Entry, Following, Wanted, read
from bubbles.programs.page import program
from bubbles.programs.past import past

_LAST = 100  # entries that a table has, unless it is told otherwise
_TAIL = 10  # that come before those that are followed
_TOO_MANY = 1_000_000


@program("audit", __doc__)
@click.option("-s", "--session", "sessions", multiple=True, metavar="NAME", help="Of this session.")
@click.option("--turn", "turns", multiple=True, metavar="ID", help="Of this turn.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Of this tool.")
@click.option("--channel", "channels", multiple=True, metavar="NAME", help="Of this channel.")
@click.option("--event", "events", multiple=True, metavar="NAME", help="Of this event, or kind of events.")
@click.option("--priority", type=click.Choice(list(log.PRIORITIES)), default="debug", help="As bad as this, or worse.")
@click.option("--since", metavar="TIME", help="From then on: 2h, '10 min ago', today, 12:40, 2026-11-30T12:40.")
@click.option("--until", metavar="TIME", help="Up to then.")
@click.option("-n", "--limit", type=click.IntRange(0, _TOO_MANY), metavar="COUNT", help="Only the last so many; 0 for all.")
@click.option("-f", "--follow", is_flag=True, help="Go on with those to come.")
@click.option("--full", is_flag=True, help="In a table: whole values, and all of them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON at a terminal, too.")
def main(
    sessions: tuple[str, ...],
    turns: tuple[str, ...],
    tools: tuple[str, ...],
    channels: tuple[str, ...],
    events: tuple[str, ...],
    priority: str,
    since: str | None,
    until: str | None,
    limit: int | None,
    follow: bool,
    full: bool,
    as_json: bool,
) -> int:
    now, table = time.time(), sys.stdout.isatty() and not as_json
    begin, end = (None if text is None else past(text, now) for text in (since, until))
    if follow and until:
        raise Usage("--follow has no end, and --until is one", remedy="bubbles audit --help")
    if begin is not None and end is not None and begin > end:
        raise Usage("--since is a later time than --until", remedy="bubbles audit --help")
    wanted = Wanted(sessions, turns, tools, channels, tuple(_named(events)), (), begin, end, log.PRIORITIES[priority])
    show = _draw if table else _print
    if follow:
        return show(_followed(Home.find(), wanted, _TAIL if limit is None else limit), full, follow).code
    last = (_LAST if table else 0) if limit is None else limit
    shown = show(read(Home.find(), wanted, last=last), full, follow)
    if not shown.missing:
        _tell_of_the_rest(Home.find(), wanted, shown)
    if limit is None and last and shown.count >= last:
        print(f"bubbles: these are the last {last}; -n 0 shows all", file=sys.stderr)
    if shown.missing:
        raise shown.missing
    return shown.code


class Shown:
    """What was shown: how many, and the times of the first and the last; and why there may be more."""

    def __init__(self) -> None:
        self.count, self.first, self.last = 0, 0.0, 0.0
        self.missing: Unavailable | None = None

    def passing(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        try:
            for entry in entries:
                self.count += 1
                self.first, self.last = self.first or entry.at, entry.at
                yield entry
        except Unavailable as error:
            self.missing = error

    @property
    def code(self) -> int:
        return OK if self.count else NO


def _named(patterns: tuple[str, ...]) -> Iterator[str]:
    """The events that are meant. Raises Usage where none is."""
    for pattern in patterns:
        found = [name for name in log.EVENTS if fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")]
        if not found:
            near = difflib.get_close_matches(pattern, [*log.EVENTS, *{name.partition(".")[0] for name in log.EVENTS}], 1)
            raise Usage(f"there is no event {pattern!r}", remedy=f"--event {near[0]}" if near else f"one of: {', '.join(log.EVENTS)}")
        yield from found


def _followed(home: Home, wanted: Wanted, last: int) -> Iterator[Entry]:
    """The last entries, and then those to come: each once, though it may be met in both. What cannot be read is told, and the others go on."""
    with closing(Following(home, wanted)) as following:
        before: list[Entry] = []
        try:
            for entry in read(home, wanted, last=last) if last else ():
                before.append(entry)
                yield entry
            if not last:
                next(journald.lines(home, (), 1), None)
        except Unavailable as error:
            print(f"bubbles: {log.escaped(error.text)}\n  try: {error.remedy}", file=sys.stderr)
        for entry in following:
            if entry not in before:
                yield entry
            if entry.at > following.since + 1:
                before = []


def _print(entries: Iterable[Entry], full: bool, at_once: bool) -> Shown:
    shown = Shown()
    for entry in shown.passing(entries):
        lines.put(entry.body())
    return shown


def _draw(entries: Iterable[Entry], full: bool, at_once: bool) -> Shown:
    from bubbles.programs.ledger import Ledger  # rich, which takes as long to load as all else

    shown, ledger = Shown(), Ledger(full=full)
    ledger.draw(shown.passing(entries), at_once=at_once)
    return shown


def _tell_of_the_rest(home: Home, wanted: Wanted, shown: Shown) -> None:
    """Say on standard error what is not there, or was dropped of the time that is shown."""
    if not shown.count:
        print("bubbles: the log has no such entry", file=sys.stderr)
    begin = shown.first if wanted.since is None else wanted.since
    end = (shown.last if shown.count else time.time()) if wanted.until is None else wanted.until
    if not begin:
        return
    gaps = journald.gaps(home, begin, end)
    for name in sorted({gap.program for gap in gaps}):
        ours = [gap for gap in gaps if gap.program == name]
        count, span = sum(gap.count for gap in ours), "{} and {}".format(*map(_clock, (ours[0].since, ours[-1].until)))
        _tell_dropped(f"{count} entries of {log.escaped(name)} between {span}")
    if not gaps and (count := journald.dropped(home, begin, end)):
        _tell_dropped(f"{count} entries of this user's services; which ones, nobody knows")


def _tell_dropped(what: str) -> None:
    print(f"bubbles: journald dropped {what}: too many came at once\n  try: bubbles doctor", file=sys.stderr)


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
