"""Tool list_dir: what lies in a directory."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from bubbles.tools import tool
from bubbles.workspace import Entry, Listing

_MOST = 500  # entries of one answer


class ListDir:
    """Lists directories of the session and of the workspaces lent to it."""

    name = "list_dir"
    free = True
    description = (
        f"List a directory, sorted: a line for each entry, with its size in bytes; directories end in /, links show where they point. "
        f"At most {_MOST} entries; what is left out is counted. Odd characters in names are shown escaped (\\n, \\x1b)."
    )

    class Arguments(tool.Arguments):
        path: str = Field("", description='The directory; "" is work/, ".." is the session\'s directory')
        depth: int = Field(1, ge=1, le=3, description="How many levels deep, 1 to 3")

    def __init__(self, settings: Any = None) -> None:
        pass

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """The entries as lines. Raises ToolError where there is no such directory."""
        return _lines(await asyncio.to_thread(bench.workspace.list, args.path, args.depth, _MOST))


def _lines(listing: Listing) -> str:
    lines = [_line(entry) for entry in listing.entries] or ["(the directory is empty)"]
    if listing.left_out or listing.more:
        count = f"{'more than ' if listing.more else ''}{listing.left_out}"
        lines.append(f"[{len(listing.entries)} entries shown, {count} left out; list a directory below, or use exec]")
    return "\n".join(lines)


def _line(entry: Entry) -> str:
    match entry.kind:
        case "directory":
            return f"{entry.path}/"
        case "link":
            return f"{entry.path} -> {entry.target}"
        case "file":
            return f"{entry.path}  {entry.size}"
    return f"{entry.path}  (not a file)"
