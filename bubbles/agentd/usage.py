"""What /usage says: the tokens and the cost of today, of this session and of this month, by model, and what is left of a budget.

It reads the books beside everything else that goes on; a session that lasted for years is read in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bubbles.agentd.asked import Asked
from bubbles.agentd.books import amount
from bubbles.agentd.spending import Days, Pages, Sum, dollars, grouped, largest
from bubbles.paths import Home

_NAMED = 6  # models that have a line of their own


@dataclass(frozen=True, slots=True)
class _Month:
    models: dict[tuple[str, str], Sum]  # by name and provider
    session: Sum  # since it began
    is_whole: bool  # whether all could be read


async def usage(ask: Asked) -> str:
    """The text of /usage."""
    books, session = ask.agent.books, ask.actor.session.key
    month = await asyncio.to_thread(_read, ask.agent.home, books.days, time.time(), session)
    today = books.today()
    whole = sum(month.models.values(), Sum())
    lines = [
        ask.told("usage today", sum=_sum(ask, today[False] + today[True])),
        *([ask.told("usage unattended", sum=_sum(ask, today[True]))] if today[True].requests else []),
        ask.told("usage session", sum=_sum(ask, month.session)),
        ask.told("usage month", sum=_sum(ask, whole)),
        *_by_model(ask, month.models),
        *_unknown(ask, whole),
        *_budgets(ask),
    ]
    return "\n".join(lines if month.is_whole else [*lines, ask.told("usage unread")])


def _read(home: Home, days: Days, now: float, session: str) -> _Month:
    pages = Pages(home)
    models = grouped(pages.entries(days.month(now)), lambda entry: (entry.model, entry.provider))
    own = Sum.of(pages.entries(session=session))
    return _Month(largest(models), own, not pages.unread and not pages.damaged)


def _sum(ask: Asked, total: Sum) -> str:
    if not total.requests:
        return ask.told("usage none")
    counts = {"tokens": f"{total.tokens:,}", "requests": _requests(ask, total.requests)}
    return ask.told("usage cost", **counts, cost=dollars(total.cost_micros)) if total.is_priced else ask.told("usage sum", **counts)


def _requests(ask: Asked, count: int) -> str:
    return ask.told("one request") if count == 1 else ask.told("requests", n=f"{count:,}")


def _by_model(ask: Asked, models: dict[tuple[str, str], Sum]) -> Iterator[str]:
    known = list(models.items())
    for (model, provider), total in known[:_NAMED]:
        unknown = ask.told("usage no model")
        yield ask.told("usage model", model=model or unknown, provider=provider or unknown, sum=_sum(ask, total))
    if rest := known[_NAMED:]:
        yield ask.told("usage other models", n=len(rest), sum=_sum(ask, sum((total for _, total in rest), Sum())))


def _unknown(ask: Asked, total: Sum) -> Iterator[str]:
    """What no cost and no count has in it."""
    if total.unpriced_requests:
        yield ask.told("usage unpriced", tokens=f"{total.unpriced:,}", requests=_requests(ask, total.unpriced_requests))
    if total.uncounted:
        yield ask.told("usage uncounted", requests=_requests(ask, total.uncounted))
    if total.failed:
        yield ask.told("usage failed", requests=_requests(ask, total.failed), tokens=f"{total.guessed:,}")


def _budgets(ask: Asked) -> Iterator[str]:
    books = ask.agent.books
    for measure, limit, spent, unattended in books.budgets():
        left = ask.told("usage used up", ends=books.ends()) if spent >= limit else ""
        key = "usage system budget" if unattended else "usage budget"
        yield ask.told(key, spent=amount(measure, spent), limit=amount(measure, limit), left=left)
