"""Tool edit_file: one stretch of a text file exchanged for another."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from bubbles.tools import tool
from bubbles.workspace import shown


class EditFile:
    """Edits text files where the session may write."""

    name = "edit_file"
    free = False
    description = (
        "Replace a part of a text file. old must be in the file exactly as given, white space included, and only once, unless replace_all is true; "
        "otherwise nothing is changed and the nearest text is shown. Paths as in write_file."
    )

    class Arguments(tool.Arguments):
        path: str = Field(description="The file")
        old: str = Field(description="The text to replace, copied exactly; one or more lines")
        new: str = Field(description='The text to put in its place ("" removes it)')
        replace_all: bool = Field(False, description="Replace every occurrence")

    def __init__(self, settings: Any = None) -> None:
        pass

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """Where the text was replaced. Raises ToolError, with a hint, where it was not; the file is unchanged then."""
        lines = await asyncio.to_thread(bench.workspace.edit, args.path, args.old, args.new, args.replace_all)
        places = ", ".join(map(str, lines[:20])) + (", …" if len(lines) > 20 else "")
        return f"edited {shown(args.path)} at line{'s' if len(lines) > 1 else ''} {places}"
