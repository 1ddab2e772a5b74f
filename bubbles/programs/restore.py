"""Make a backup the home again, whole or not at all.

BUBBLES_HOME (else ~/.bubbles) must not be there, or be empty: nothing is overwritten, and no daemon of that home may run.
The files are put beside it, checked, and get their name when all of them are there. Refused is what no backup has: paths
that lead elsewhere, hard links, devices; links that lead out of the home are left out, unless --links is given. Files are
0600, directories and what is executable 0700.

What happened after the backup was taken is not known here. One that is no older than an hour goes on as a home does after
a power cut: open turns are taken up, what waits is answered and sent. In an older one all that waited has most likely
been done since by the home it was taken of, so nothing goes on by itself: messages that waited, in or out, are held, open
turns are given up and kept, jobs that came due meanwhile go on at their next time, and a job for one time is switched off.
`bubbles queue list` shows what is held, and `queue release` lets it go on. --resume and --hold say which, whatever the
age. So what went out after the backup was taken is sent again only within that hour, or where --resume is given.

Input:
  a file that bubbles backup wrote; `-` for standard input. Whether it is compressed is seen, whatever its name
Output:
  a line on what is there now, and on standard error what to do about it; with --json an object. With --list nothing is
  written: what is in the file, a line a file, or objects
Exit codes:
  0   done; the file was read to its end
  64  something is there that would be overwritten
  65  it is no backup, is damaged or cut short, or holds what it must not
  75  a daemon of this home runs, or there is no room
  76  a newer Bubbles wrote it
  78  the place cannot be used
Examples:
  bubbles restore bubbles-2026-11-30-031500.tar.gz
  gpg --decrypt bubbles.tar.gz.gpg | bubbles restore -
  bubbles restore --list --json FILE | jq -r 'select(.kind=="file").path'
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from bubbles.archive.form import Head
from bubbles.archive.restoring import Restored, Runs, refuse, restore
from bubbles.archive.unpacking import Unpack
from bubbles.bus.lock import is_running
from bubbles.errors import DataError, TryAgain
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.meter import Meter, counted
from bubbles.programs.page import program
from bubbles.programs.standstill import Standstill
from bubbles.starter import UNTIL_IDLE_S
from bubbles.workspace.names import shown

if TYPE_CHECKING:
    from bubbles.programs.running import Running

YOUNG_S = 3600.0  # as long as a message may wait for its next try (spool/backoff.py): after that its home has tried them all
_SLACK_S = 300.0  # by so much two machines' clocks may differ
_TOLD_MOST = 20


@program("restore", __doc__)
@click.option("--list", "listing", is_flag=True, help="Only tell what is in the file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one a line.")
@click.option("--links", is_flag=True, help="With links that lead out of the home: a virtual environment has some.")
@click.option("--resume/--hold", "resume", default=None, help="Go on with what waited, or hold all of it.")
@click.argument("file")
def main(listing: bool, as_json: bool, links: bool, resume: bool | None, file: str) -> None:
    home = Home.find()
    if listing:
        with _opened(file) as stream:
            return _list(stream, as_json)
    still: list[Standstill] = []
    with _opened(file) as stream, _ended(home):
        refuse(home)
        with Meter("restoring") as meter:
            done = restore(home, stream, told=meter.told, links=links, settle=partial(_settle, resume, still))
    _tell(home, done, still[0] if still else None, as_json)
    return None


def _opened(file: str) -> BinaryIO:
    if file == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return open(file, "rb")
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}", remedy="give the path of a backup") from error


@contextmanager
def _ended(home: Home) -> Iterator[None]:
    """Where daemons run, tell how they are ended."""
    try:
        yield
    except Runs as error:
        from bubbles.programs.running import look  # it asks at doors, and a service manager: only where there is somebody to ask

        raise TryAgain(error.text, remedy=ending(look(home).daemons.values(), is_running(home, "gateway")) or error.remedy) from error


def ending(daemons: Iterable[Running], gateway: int | None) -> str:
    """How those that run are ended, by who runs them; "" where none is seen to. `gateway`: its pid."""
    by = {daemon.pid: daemon.by for daemon in daemons if daemon.pid is not None}
    ways = ["systemctl --user stop bubbles.target"] if "unit" in by.values() else []
    if gateway is not None and ("gateway" in by.values() or not by):
        ways.append(f"Ctrl-C where bubbles gateway runs (pid {gateway})")
    if by_hand := [str(pid) for pid, who in by.items() if who == "hand"]:
        ways.append(f"kill {' '.join(by_hand)}")
    if "terminal" in by.values():
        ways.append(f"wait: what a terminal started ends by itself, {UNTIL_IDLE_S:g} s after the last terminal has")
    if "once" in by.values():
        ways.append("wait until what runs once is done")
    return "; ".join(ways)


def _settle(resume: bool | None, still: list[Standstill], home: Home, head: Head) -> None:
    """Decide whether what waited goes on; the files are not at their place yet."""
    if is_young(head) if resume is None else resume:
        return
    found = Standstill(home, head.at)
    found.all()
    still.append(found)


def is_young(head: Head) -> bool:
    """Whether it is likely that nothing has happened since a backup was taken."""
    return -_SLACK_S <= time.time() - head.at <= YOUNG_S


def _tell(home: Home, done: Restored, still: Standstill | None, as_json: bool) -> None:
    told: dict[str, Any] = {"home": str(home.root), "at": done.head.at, "files": done.end.files, "bytes": done.end.bytes}
    told |= {"without": list(done.head.without), "links": done.links, "held": still.told() if still else {}}
    if as_json:
        lines.put(told)
    else:
        print(f"{shown(str(home.root))} is as it was on {_date(done.head.at)}: {counted(done.end.files, done.end.bytes)}")
    notes = [f"left out, it leads out of the home: {shown(path)} (--links)" for path in done.links[:_TOLD_MOST]]
    if still is not None and any(still.told().values()):
        notes.append(f"held, for what became of it since is not known: {still}. bubbles queue list | bubbles scan")
    if "keys" in done.head.without:
        notes.append("there are no keys in it: bubbles onboard")
    for text in notes:
        print(f"bubbles: {text}", file=sys.stderr)


def _list(stream: BinaryIO, as_json: bool) -> None:
    """What a backup holds, read to its end."""
    unpack = Unpack(stream)
    head = unpack.head
    if as_json:
        lines.put(head.body())
    for member, pieces in unpack.members():
        for _ in pieces:
            pass
        if as_json:
            lines.put({"path": member.path, "kind": member.kind, "bytes": member.size, "at": member.at_ns / 1e9, "target": member.target})
        elif member.kind != "directory":
            print(f"{member.size:>12} {_date(member.at_ns / 1e9)} {shown(member.path)}" + (f" -> {shown(member.target)}" if member.target else ""))
    assert unpack.end is not None
    if as_json:
        lines.put({"kind": "end", "files": unpack.end.files, "bytes": unpack.end.bytes, "removed": unpack.end.removed, "busy": unpack.end.busy})
    else:
        without = f", without {', '.join(map(shown, head.without))}" if head.without else ""
        print(f"{shown(head.home)} on {_date(head.at)}, by {shown(head.bubbles)}: {counted(unpack.end.files, unpack.end.bytes)}{without}")


def _date(at: float) -> str:
    with suppress(OSError, OverflowError, ValueError):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return "?"
