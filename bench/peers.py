"""What others took for the same, measured on a machine of the same kind (2 virtual CPUs, ext4, Python 3.11, a model on loopback without delay).

pi 1.6.0, nanobot 0.3.5, letta 0.34.12, hermes 0.19.0, openclaw 2026.9.6; `least` is a Python daemon that does no more than has to be done.
"""

from __future__ import annotations

PEERS = {
    "help": "openclaw 36 x, nanobot 18 x, pi 10 x, hermes 8 x",
    "one-shot, warm": "no peer has daemons to ask: pi 368 ms, letta 1265, nanobot 1881, hermes 3025",
    "one-shot, cold": "pi 368 ms, letta 1265, nanobot 1881, hermes 3025",
    "turn": "pi 4.8 ms (7.3 CPU), openclaw 191+, nanobot 77, least 1.1",
    "rounds": "pi 127 ms (102 CPU), letta 484 (526), nanobot 653 (482), openclaw 732 (910), hermes 1544 (2298)",
    "sessions": "letta 32 turns/s, nanobot 13, hermes refuses over 10, least 2470",
    "history": "to 1 000 messages: pi 6.8 -> 16 ms, letta 46 -> 78, nanobot 75 -> 280, hermes 208 -> 388",
    "idle memory": "nanobot 97 MiB RSS (109 PSS later), hermes 123 PSS, letta 240, openclaw 883+ RSS",
    "idle wakes": "letta 0.2 /s, hermes 11, nanobot 25, openclaw 46+, least 0",
    "growth": "RSS after a session of 500 turns: nanobot 192 MiB, hermes 212, pi 301, letta 836, openclaw 2465",
}
