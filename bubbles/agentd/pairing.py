"""/pair: a stranger who was given a code by a channel is let in, from a chat that is the owner's.

It does not know who that is: each channel that runs is asked at its door whether the code is one of its own.
"""

from __future__ import annotations

import contextlib
from typing import Any

from bubbles.agentd.asked import Asked
from bubbles.bus.caller import Caller
from bubbles.bus.lock import is_running
from bubbles.errors import BubblesError, TryAgain, Unavailable
from bubbles.paths import Home

_PATIENCE_S, _ANSWER_S = 0.5, 10.0
_ROLES = {"": False, "guest": False, "owner": True, "客人": False, "主人": True}


async def pair(ask: Asked) -> str:
    """The text of /pair CODE [owner]. Raises TryAgain where the disk refuses: nobody was let in then."""
    code, _, role = ask.arguments.partition(" ")
    if ask.inbound.is_group:
        return ask.told("pair not here")
    if not code or role.strip().lower() not in _ROLES:
        return ask.told("pair help")
    owner = _ROLES[role.strip().lower()]
    for name in running(ask.agent.home):
        if person := await _let_in(ask.agent.home, name, code, owner):
            key = "paired owner" if person["owner"] else "paired guest"
            return ask.told(key, name=person["name"] or person["id"], id=person["id"], channel=name)
    return ask.told("no such code")


def running(home: Home) -> list[str]:
    """The channels whose daemons run."""
    found = sorted(path.name for path in (home.root / "channels").glob("*") if path.is_dir())
    return [name for name in found if is_running(home, f"channel-{name}")]


async def _let_in(home: Home, name: str, code: str, owner: bool) -> dict[str, Any] | None:
    caller = Caller(home, f"channel-{name}", patience_s=_PATIENCE_S)
    try:
        with contextlib.suppress(Unavailable):
            answer, _ = await caller.call("pair", {"code": code, "owner": owner}, timeout_s=_ANSWER_S)
            person = answer.get("person")
            return person if isinstance(person, dict) else None
    except TryAgain:
        raise
    except BubblesError:  # of a version that knows no such question
        return None
    finally:
        caller.close()
    return None
