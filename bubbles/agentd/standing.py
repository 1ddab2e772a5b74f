"""How a session stands: which model answers and by which way, what is running, how full its history is.

Nothing here waits longer than a person would for a glance.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bubbles.agentd.apology import CATEGORIES
from bubbles.agentd.asked import Asked
from bubbles.errors import BubblesError, ModelError, Rejected
from bubbles.kernel.actions import AskModel, Compact, RunTools

if TYPE_CHECKING:
    from bubbles.agentd.models import Route
    from bubbles.kernel.turn import Turn

_PATIENCE_S = 3.0


async def status(ask: Asked, summing_up_since: float | None) -> str:
    """The text of /status: some short lines. A summary that somebody asked for is no turn, and told beside it."""
    route = await routed(ask)
    lines = [
        ask.told("session", name=ask.actor.session.key),
        model_line(ask, route),
        *_running(ask, summing_up_since),
        _history(ask, route),
        _last_failure(ask),
    ]
    return "\n".join(line for line in lines if line)


async def routed(ask: Asked) -> Route | str:
    """Where the session's model leads; else why nowhere, as the key of a text."""
    effective = ask.actor.session.effective
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await ask.agent.models.route(effective.model, effective.provider)
    except ModelError as error:
        return "not_set_up" if isinstance(error, Rejected) and not error.attempts else error.kind
    except (TimeoutError, BubblesError):
        return "model away"


def model_line(ask: Asked, route: Route | str) -> str:
    """The model, and who answers for it."""
    model = ask.actor.session.effective.model or ask.told("default")
    if isinstance(route, str):
        return ask.told("no model", model=model, why=ask.told(route))
    return ask.told("model", model=route.model, provider=route.provider)


def _running(ask: Asked, summing_up_since: float | None) -> list[str]:
    actor = ask.actor
    turn = actor.turn
    lines = []
    if turn is not None:
        began = turn.spoken[0].at if turn.spoken else ask.inbound.at
        lines = [ask.told("working", time=lasted(ask, time.time() - began), what=_doing(ask, turn))]
    if summing_up_since is not None:
        lines.append(ask.told("working", time=lasted(ask, time.time() - summing_up_since), what=ask.told("summarising")))
    lines = lines or [ask.told("idle")]
    now = time.time()
    jobs = ask.agent.jobs.running(actor.session.key)
    lines += [ask.told("job", time=lasted(ask, now - job.started_at), id=job.id, what=job.line) for job in jobs]
    waiting = actor.waiting + ask.agent.intake.waiting(actor.session.key)
    return lines + ([ask.told("waiting", n=waiting)] if waiting else [])


def _doing(ask: Asked, turn: Turn) -> str:
    if turn.outcome:
        return ask.told("stopping")
    match turn.next():
        case RunTools(calls):
            return ask.told("running", tools=", ".join(dict.fromkeys(call.name for call in calls)))
        case AskModel():
            return ask.told("thinking")
        case Compact():
            return ask.told("summarising")
    return ask.told("answering")


def lasted(ask: Asked, s: float) -> str:
    """A stretch of time as a person reads it. A clock that was set back makes it nothing, and not less."""
    whole = max(0, int(s))
    if whole < 60:
        return ask.told("seconds", s=whole)
    if whole < 3600:
        return ask.told("minutes", m=whole // 60, s=whole % 60)
    return ask.told("hours", h=whole // 3600, m=whole % 3600 // 60)


def _history(ask: Asked, route: Route | str) -> str:
    session = ask.actor.session
    most = session.defaults.context_tokens
    known = session.window_tokens if isinstance(route, str) else route.window_tokens
    window = min(most, known or most)
    used = session.base_tokens * session.scale
    return ask.told("history", percent=round(100 * used / window), window=_rounded(window))


def _rounded(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 10_000 else str(tokens)


def _last_failure(ask: Asked) -> str:
    """What the last turn failed of, if it did: a later one that was answered makes it no news."""
    ended = ask.actor.session.history.ended
    outcome = str(ended[-1].get("outcome")) if ended else ""
    if not outcome.startswith("failed:"):
        return ""
    category = outcome.partition(":")[2]
    return ask.told("last failure", what=ask.told(category if category in CATEGORIES else "other"))
