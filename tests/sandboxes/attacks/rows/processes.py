"""Attacks that leave processes behind, or keep whoever started the command waiting."""

from __future__ import annotations

from bubbles.sandboxes import Limits
from tests.sandboxes.attacks.assault import Scene
from tests.sandboxes.attacks.corpus import HELD, NOT_HELD, ONCE, Attack, leaves, says

_DAEMON = "(env -i setsid -f sleep {tag} < /dev/null > /dev/null 2>&1 &) ; (setsid -f sleep {tag}) ; exit 0"
_STUBBORN = """
trap '' TERM HUP INT
(env -i setsid -f bash -c "trap '' TERM HUP INT; sleep {tag}; :" &)
sleep 30
"""


async def outlive_a_timeout(scene: Scene) -> str:
    """Be told to end, and not."""
    return (await scene.script(_STUBBORN, Limits(timeout_s=0.5))).output


async def keep_the_pipe(scene: Scene) -> str:
    """Leave a process that holds the output open."""
    outcome = await scene.run("sleep {tag} & echo started", Limits(timeout_s=5))
    return scene.word if outcome.timed_out or "started" not in outcome.output else outcome.output


async def wait_for_a_person(scene: Scene) -> str:
    """Ask for input that nobody will give."""
    outcome = await scene.run("cat; read x; cat /dev/stdin; {python} -I -S -c 'input()' 2> /dev/null; echo asked", Limits(timeout_s=5))
    return scene.word if outcome.timed_out or "asked" not in outcome.output else outcome.output


_RUNNER = "the runner waits for the shell and gives it no input, in a jail or not"

ATTACKS = [
    Attack("59", "a daemon that outlives the command", _DAEMON, leaves(), NOT_HELD, NOT_HELD, "lasting", alone=True),
    Attack("60", "a daemon that ignores signals outlives a time-out", outlive_a_timeout, leaves(), NOT_HELD, NOT_HELD, "lasting", **ONCE),
    Attack("61", "a background process that keeps the output open", keep_the_pipe, says(), HELD, HELD, "", uncontrolled=_RUNNER, **ONCE),
    Attack("62", "waiting for input", wait_for_a_person, says(), HELD, HELD, "", uncontrolled=_RUNNER, **ONCE),
]
