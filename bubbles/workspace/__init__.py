"""Files below one descriptor: what every file tool stands on.

    beneath.py     opening a path that cannot lead out: openat2, or a walk without links
    names.py       which path texts are taken, and how a name is shown
    grant.py       further roots that the owner lends, and those nobody may lend
    replacing.py   a file's content exchanged whole: a new file, synced, renamed over the old
    workspace.py   the session's tree: what is read, written, listed, and what is refused

It does not know which tool asks, nor which sandbox the session's shell has: the rules are the same for all.
"""

from __future__ import annotations

from bubbles.workspace.grant import Grant
from bubbles.workspace.listing import Entry, Listing
from bubbles.workspace.names import shown
from bubbles.workspace.workspace import Page, Workspace, WritePolicy

__all__ = ["Entry", "Grant", "Listing", "Page", "Workspace", "WritePolicy", "shown"]
