"""How the frame behaves: what the owner may decide, and the times that a test may shorten."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """`on_uncertain` is the channel's setting of that name: "resend" (once, then hold) or "hold". All times are seconds."""

    on_uncertain: str = "resend"
    progress: bool = True  # `send_progress`: text beside tool calls stays in the chat
    hints: bool = True  # `send_tool_hints`: a draft shows what is called
    pace: float = 1.0  # times the spool's own back-off
    at_once: int = 32  # sends at a time, each in another chat
    deliver_s: float = 120.0  # one send may take this long, then nobody can tell
    open_s: float = 60.0  # logging in
    ready_s: float = 10.0  # a platform that has said neither yes nor no by then is "not reachable yet"
    first_s: float = 1.0  # before a lost connection is made anew; doubled up to
    longest_s: float = 60.0
    disk_s: float = 5.0  # before what the disk refused is tried again
    stop_s: float = 5.0  # sends that are under way at the end have this long to be confirmed
