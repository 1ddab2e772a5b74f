"""Rings, questions, answers and the live feed between the programs: PROTOCOL.md says what crosses, and why.

    lock.py      who is the daemon of that name          zmtp.py      the bytes of a ZeroMQ connection (pure)
    wire.py      the frames of a message (pure)          caller.py    asks at a door, in a daemon
    door.py      where a daemon is asked                 dial.py      asks at a door, in a small tool
    feed.py      where agentd tells what happens         listener.py  hears it in a tool, follower.py in a daemon
"""

from __future__ import annotations

from bubbles.bus.lock import is_running

__all__ = ["is_running"]
