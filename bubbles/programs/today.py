"""What models cost today and which budget is used up, for `bubbles status`: read from agentd's books, told in a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bubbles.agentd.books import Books, amount
from bubbles.agentd.spending import dollars
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.programs.verdict import Fault

Today = dict[str, Any]


def spent(home: Home, agents: Any) -> Today | None:
    """As JSON: sums of today, of them those of turns that nobody began, and the budgets; None where the books are of a newer program."""
    books = Books(home, agents)
    try:
        by_whom = books.today()
    except Misconfigured:
        return None
    budgets = [dict(zip(("measure", "limit", "spent", "unattended"), each, strict=True)) for each in books.budgets()]
    return {**(by_whom[False] + by_whom[True]).told(), "unattended": by_whom[True].told(), "budgets": budgets, "ends": books.ends()}


def used_up(today: Today | None) -> Iterator[Fault]:
    """The budgets of which nothing is left."""
    for each in today["budgets"] if today else ():
        if each["spent"] >= each["limit"]:
            whose = " for what nobody began" if each["unattended"] else ""
            text = f"today's budget{whose} is used up ({_of(each)}), and no model is asked{whose} until {today['ends']}"  # type: ignore[index]  # of agentd's answer
            yield Fault(text, "bubbles usage --since today --by origin")


def words(today: Today | None) -> str:
    """What there is to say; "" where nothing was asked and no budget is set."""
    return ", ".join(_words(today)) if today and (today["requests"] or today["budgets"]) else ""


def _words(today: Today) -> Iterator[str]:
    yield f"{today['tokens']:,} tokens in {today['requests']:,} request{'' if today['requests'] == 1 else 's'}"
    if today["cost_usd"] is not None:
        yield dollars(round(today["cost_usd"] * 1_000_000))
    if unknown := today["unpriced_tokens"]:
        yield f"{unknown:,} tokens without a known price"
    for each in today["budgets"]:
        yield f"budget{' for what nobody began' if each['unattended'] else ''} {_of(each)}"


def _of(budget: dict[str, Any]) -> str:
    """How much of a budget is spent."""
    spent, limit = (amount(budget["measure"], budget[key]) for key in ("spent", "limit"))
    return f"{spent} of {limit}{' tokens' if budget['measure'] == 'tokens' else ''}"
