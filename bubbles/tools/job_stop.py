"""Tool job_stop: the end of a command in the background."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bubbles.tools import tool


class JobStop:
    """Ends a job, with all that it started."""

    name = "job_stop"
    free = False
    description = "End a background job and everything it started. What it printed stays, for job_result."

    class Arguments(tool.Arguments):
        id: str = Field(min_length=1, max_length=20, description="The job's id, such as j1")

    def __init__(self, settings: Any) -> None:
        pass

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """How it ended. Raises ToolError for a job that is not known."""
        return await bench.background.stop(args.id)
