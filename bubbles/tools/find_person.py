"""Tool find_person: who is in this group."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bubbles.tools import tool


class FindPerson:
    """Finds members of the turn's group by their names."""

    name = "find_person"
    free = True
    description = "Find people of this group by name: lines of `<@ID> name`. <@ID> written in a reply mentions that person."

    class Arguments(tool.Arguments):
        query: str = Field("", max_length=100, description='Part of a name; "": all')

    def __init__(self, settings: Any = None) -> None:
        pass

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """A line for each. Raises ToolError where the channel cannot be asked."""
        return await bench.post.find(args.query)
