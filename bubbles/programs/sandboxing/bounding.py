"""What bounds the commands of the agentd that runs: cgroups of its own, or watching.

It is read from outside, by where that process lives: a cgroup that is agentd's to divide has agentd itself in its `main/`.
"""

from __future__ import annotations

from pathlib import Path

from bubbles.bus import is_running
from bubbles.paths import Home
from bubbles.sandboxes.delegation import MAIN, places

WATCHING = "by watching, a few times a second: the agentd that runs has no cgroup of its own, which its unit gives it"
_PROC = Path("/proc")


def controllers(home: Home) -> frozenset[str] | None:
    """Those of memory, pids, cpu that commands have a cgroup for; empty: they are watched. None: agentd does not run, or is somebody else's."""
    pid = is_running(home, "agentd")
    try:
        mounts = (_PROC / "self/mountinfo").read_text(errors="surrogateescape")  # a mount may have any name
        lives = next(places((_PROC / str(pid) / "cgroup").read_text(), mounts), None) if pid else None
        if pid is None or lives is None:
            return None if pid is None else frozenset()
        given = (lives.parent / "cgroup.subtree_control").read_text().split() if lives.name == MAIN else []
    except OSError:
        return frozenset()
    return frozenset(given) & {"memory", "pids", "cpu"}


def of_agentd(home: Home) -> str:
    """In words, as the end of a sentence."""
    given = controllers(home)
    if given is None:
        return "by a cgroup for each command where agentd runs by its unit, else by watching; agentd does not run now"
    if given:
        return f"by a cgroup for each command ({', '.join(sorted(given))})"
    return WATCHING
