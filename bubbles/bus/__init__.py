"""Rings, questions, answers and the live feed between the programs: PROTOCOL.md says what crosses, and why.

    lock.py      who is the daemon of that name          zmtp.py      the bytes of a ZeroMQ connection (pure)
    wire.py      the frames of a message (pure)          caller.py    asks at a door, in a daemon
    bound.py     a socket that a daemon binds            dial.py      asks at a door, in a small tool
    door.py      where a daemon is asked                 listener.py  hears the feed, in a small tool
    feed.py      where agentd tells what happens         follower.py  hears it, in a daemon
    pulse.py     a timer that fires upon silence
"""

from __future__ import annotations

from bubbles.bus.lock import is_running

__all__ = ["is_running"]
