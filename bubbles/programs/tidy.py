"""Delete what has served its time, a bounded number of files, and end.

Kept are: files in a session's data/ for 3 days since they were written, messages that were handled and their receipts for
7 days, turns that were given up and decided on for 30; for a day half-written files, media that no message names, and
sockets and loans of processes that are gone. Nothing else is ever touched: histories, notes, work/, what waits or is held.
What an open turn works with is spared, however old. No link is followed and no other disk entered. A clock that was set
ahead makes nothing old before it has stayed so for as long as the file is kept.

`bubbles gateway` runs this once a day.

Input:
  nothing
Output:
  a line for people; with --json one JSON object for each file: path, kind, bytes, at (its mtime); and a last one: deleted,
  bytes, kinds, left (path: why it was left alone), more (whether the limit left something), dry_run
Exit codes:
  0   done, also where something had to be left alone, or another run is under way
  78  the home belongs to somebody else
Examples:
  bubbles tidy --dry-run
  bubbles tidy --all --json | jq -r 'select(.kind=="data").path'
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from bubbles.errors import TryAgain
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import program
from bubbles.tidying.sweep import MOST, Swept, sweep
from bubbles.tidying.walk import Old
from bubbles.workspace.names import shown

_NICE = 10
_LEFT_MOST = 20  # lines on standard error about what was left alone
_NAMES = {
    "data": "of data/",
    "done": "handled messages",
    "receipts": "receipts",
    "media": "media that no message names",
    "released": "turns decided on",
    "job": "of ended background jobs",
    "litter": "half-written",
    "socket": "sockets",
    "loan": "loans",
}


@program("tidy", __doc__)
@click.option("--dry-run", "dry", is_flag=True, help="Only tell what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one a line.")
@click.option("--all", "everything", is_flag=True, help=f"Delete all of it at once, not the first {MOST} files alone.")
def main(dry: bool, as_json: bool, everything: bool) -> None:
    home = Home.find()
    swept = Swept()
    if home.root.exists():
        home.prepare()
        os.nice(_NICE)
        try:
            swept = sweep(home, most=None if everything else MOST, dry=dry, told=_teller(dry, as_json))
        except TryAgain as error:
            print(f"bubbles: {error.text}", file=sys.stderr)
            return
    if as_json:
        lines.put(summary(swept) | {"dry_run": dry})
    else:
        print(said(swept, dry))
    for path, why in list(swept.left.items())[: 0 if as_json else _LEFT_MOST]:
        print(f"bubbles: left alone: {shown(path)}: {why}", file=sys.stderr)


def _teller(dry: bool, as_json: bool) -> Any:
    def tell(old: Old) -> None:
        if as_json:
            lines.put({"path": old.path, "kind": old.kind, "bytes": old.size, "at": old.info.st_mtime})
        elif dry:
            print(shown(old.path))

    return tell


def summary(swept: Swept) -> dict[str, Any]:
    """A run as an object."""
    return {"deleted": swept.deleted, "bytes": swept.bytes, "kinds": dict(swept.kinds), "left": swept.left, "more": swept.more}


def said(swept: Swept, dry: bool) -> str:
    """A run as a line."""
    if not swept.deleted:
        return "nothing to tidy"
    kinds = ", ".join(f"{count} {_NAMES[kind]}" for kind, count in swept.kinds.most_common())
    more = "; there is more: bubbles tidy --all" if swept.more else ""
    return f"{'would delete' if dry else 'deleted'} {swept.deleted} files ({swept.bytes / 1e6:.1f} MB): {kinds}{more}"
