"""Tool write_file: a file made, or its content replaced whole."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from bubbles.tools import tool
from bubbles.workspace import shown


class WriteFile:
    """Writes text files where the session may write."""

    name = "write_file"
    free = False
    description = (
        "Write a text file (UTF-8, at most 16 MiB): make it, or replace all that is in it. Missing directories are made. "
        "A relative path starts at work/; ../data/ and ../MEMORY.md may be written too. To change a part of a file use edit_file."
    )

    class Arguments(tool.Arguments):
        path: str = Field(description="The file, e.g. report/summary.md")
        content: str = Field(description="Everything that the file shall hold")

    def __init__(self, settings: Any = None) -> None:
        pass

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """What was written. Raises Refused where it may not be written, ToolError where it cannot; what was there is intact then."""
        new = await asyncio.to_thread(bench.workspace.write, args.path, args.content)
        lines = args.content.count("\n") + (not args.content.endswith("\n") and bool(args.content))
        return f"{'made' if new else 'replaced'} {shown(args.path)}: {lines} line{'s' * (lines != 1)}, {len(args.content.encode())} bytes"
