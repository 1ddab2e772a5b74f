"""Tool read_file: the lines of a text file, a page at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from bubbles.errors import ToolError
from bubbles.kernel.weight import tokens
from bubbles.tools import tool
from bubbles.workspace import Page, shown

_LINE_MOST = 2000  # characters of one line
_NOTICE_TOKENS = 40
_SNIFFED = 8192  # bytes looked at to tell text from data


class ReadFile:
    """Reads text files of the session and of the workspaces lent to it."""

    name = "read_file"
    free = True
    description = (
        "Read a text file. Returns its lines; where not all fit, the last line of the result says which were shown and how to go on. "
        "A relative path starts at work/, the session's working directory; ../MEMORY.md is the memory. Binary files are refused."
    )

    class Arguments(tool.Arguments):
        path: str = Field(description="The file, e.g. notes.md or ../MEMORY.md")
        offset: int = Field(1, ge=1, description="First line to return, counted from 1")
        limit: int = Field(2000, ge=1, le=5000, description="How many lines at most")
        line_numbers: bool = Field(False, description="Put its number and a tab before each line")

    def __init__(self, settings: Any = None) -> None:
        pass

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """The lines asked for. Raises ToolError where there is no such text file or line."""
        page = await asyncio.to_thread(bench.workspace.read, args.path)
        if b"\0" in page.data[:_SNIFFED]:
            raise ToolError(f"{shown(args.path)} is binary ({page.size} bytes); read_file reads text", remedy="use exec, e.g. file, xxd or strings")
        return _shown_lines(args, page, bench.result_tokens)


def _shown_lines(args: ReadFile.Arguments, page: Page, most_tokens: int) -> str:
    lines = page.data.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()  # the file ends in a newline, or is empty
    whole = page.size == len(page.data)
    if args.offset > max(1, len(lines)):
        raise ToolError(f"{shown(args.path)} has only {len(lines)} lines" if whole else _too_far(args, page))
    if not lines:
        return "(the file is empty)"
    kept = _page(lines, args, most_tokens - _NOTICE_TOKENS)
    last = args.offset + len(kept) - 1
    if args.offset > 1 or last < len(lines) or not whole:
        kept.append(_notice(args.offset, last, len(lines), page, whole))
    return "\n".join(kept)


def _page(lines: list[str], args: ReadFile.Arguments, room: int) -> list[str]:
    """The lines from `offset` on, as many as `limit` and `room` tokens allow, and at least one."""
    kept: list[str] = []
    for number, line in enumerate(lines[args.offset - 1 : args.offset - 1 + args.limit], args.offset):
        text = _cut(line.removesuffix("\r"))
        text = f"{number}\t{text}" if args.line_numbers else text
        room -= tokens(text) + 1
        if room < 0 and kept:
            break
        kept.append(text)
    return kept


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_MOST else f"{line[:_LINE_MOST]} [... {len(line) - _LINE_MOST} more characters in this line]"


def _notice(first: int, last: int, count: int, page: Page, whole: bool) -> str:
    of = f"of {count}" if whole else f"of a file of {page.size} bytes"
    more = f"; go on with offset={last + 1}" if last < count else "" if whole else "; use exec for what comes after"
    return f"[lines {first}-{last} {of}{more}]"


def _too_far(args: ReadFile.Arguments, page: Page) -> str:
    return f"line {args.offset} lies beyond the first {len(page.data)} of {page.size} bytes, which is as far as read_file goes; use exec (sed -n)"
