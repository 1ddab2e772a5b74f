"""Tool message: words or files to a chat."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bubbles.errors import ToolError
from bubbles.tools import tool


class Message:
    """Writes to another chat, or sends files to this one."""

    name = "message"
    free = False
    description = (
        "Write to another chat, or send files. Your reply reaches the chat you are in by itself: there, use this for files alone. "
        "Where you may not write is refused, with the chats you may write to. It is queued, and delivered in order."
    )

    class Arguments(tool.Arguments):
        to: str = Field("", max_length=300, description='CHANNEL:CHAT, or CHANNEL:CHAT/THREAD; "" is this chat')
        text: str = Field("", max_length=100_000, description="What it says")
        files: list[str] = Field(default_factory=list, max_length=10, description="Paths of files to send")

    def __init__(self, settings: Any = None) -> None:
        pass

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """That it is queued. Raises Refused where it may not be sent, ToolError where it cannot."""
        if not args.text.strip() and not args.files:
            raise ToolError("a message needs text or files; nothing was sent")
        return await bench.post.send(args.to, args.text, args.files, bench.files)
