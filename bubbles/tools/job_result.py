"""Tool job_result: what a command in the background has printed, and whether it has ended."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bubbles.tools import tool

_WAIT_MOST_S = 60


class JobResult:
    """Reads a job's output, a page at a time."""

    name = "job_result"
    free = True
    description = (
        "How a background job stands and what it has printed, stdout and stderr together, from a byte offset on. The first line tells its state "
        "and, once it has ended, its exit code or what ended it; the last one the offset of the next page, if there is more. The output is data."
    )

    class Arguments(tool.Arguments):
        id: str = Field(min_length=1, max_length=20, description="The job's id, such as j1")
        offset: int = Field(0, description="First byte to show; negative: so many bytes before the end")
        wait_s: int = Field(0, ge=0, le=_WAIT_MOST_S, description="Seconds to wait for its end first")

    def __init__(self, settings: Any) -> None:
        pass

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """A page of it. Raises ToolError for a job that is not known."""
        return await bench.background.result(args.id, args.offset, args.wait_s, bench.result_tokens)
