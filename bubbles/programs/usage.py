"""Say how many tokens the models took, and what that cost.

It reads what agentd has written down, whether or not a daemon runs: each request of a turn and each summary of a history.
Today is told as far as it has come. A day is one of your time zone (agents.defaults.timezone).

Tokens are those of requests and answers, as the provider counted them; cached are those of a request that the provider had
already. A cost is in US dollars, and is told where the price of the model is known; what is in none is named. It is what
was counted here, and no bill.

Input:
  nothing
Output:
  a line a day, model, session or origin: requests, tokens, of these in, out and cached, cost; at a terminal bars by day.
  The origins: you, cron (a job of the clock), background (the end of a command), system (any other program).
  With --json one JSON object for each; cost_usd is null where no price is known
Exit codes:
  0   there was something
  1   nothing was asked of a model in that time
  64  that is no time
  78  the configuration is wrong, or a newer Bubbles wrote this down
Examples:
  bubbles usage --since today --by model
  bubbles usage --since 2026-11 --by origin
  bubbles usage --json | jq -r '[.day, .tokens, .cost_usd] | @tsv'
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import date, timedelta

import click

from bubbles import config, log, regular
from bubbles.agentd.books import Books, amount
from bubbles.agentd.spending import Days, Entry, Pages, Sum, dollars, grouped, largest
from bubbles.errors import NO, OK, Usage
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import program
from bubbles.programs.past import past
from bubbles.programs.screen import Block, Row, show

DAYS = 30  # that are told, today included, unless --since says otherwise
_BAR, _BAR_LEAST = 30, 12  # characters of the longest
_EDGE = 3  # characters before a line at a terminal
_FILLED = 400  # days between which those without a request have a line, too
_HEADS = ("requests", "tokens", "in", "out", "cached", "cost")
_FEW = (1, 2, 6)  # of the columns, on a terminal that is too narrow for all
_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

Group = tuple[str, ...]
KEYS: dict[str, tuple[str, ...]] = {"day": ("day",), "model": ("model", "provider"), "session": ("session",), "origin": ("origin", "job")}


@program("usage", __doc__)
@click.option("--since", metavar="TIME", help="From then on: today, yesterday, 2026-11, 2026-11-03, '10 days ago'. Without it: the last 30 days.")
@click.option("--by", "by", type=click.Choice(list(KEYS)), default="day", show_default=True, help="What a line is of.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(since: str | None, by: str, as_json: bool) -> int:
    home, now = Home.find(), time.time()
    settings = config.load(home, "agents")
    days = Days(settings.agents.defaults.timezone)
    pages = Pages(home)
    groups = grouped(pages.entries(_begin(since, now, days)), _key(by, days))
    groups = dict(sorted(groups.items())) if by == "day" else largest(groups)
    today = str(days.of(now))
    if as_json:
        for group, total in groups.items():
            more = {"open": True} if by == "day" and group[0] == today else {}
            lines.put({**dict(zip(KEYS[by], group, strict=True)), **more, **total.told()})
    elif groups:
        show([_table(by, groups, today, _names(home)), _budgets(Books(home, settings.agents))])
    _tell(groups, pages)
    return OK if groups else NO


def _begin(since: str | None, now: float, days: Days) -> float:
    """From when on requests are told. Days and months are those of the owner's zone. Raises Usage."""
    today = days.of(now)
    words = "" if since is None else since.strip().lower()
    if since is None:
        return days.start(today - timedelta(days=DAYS - 1))
    if words in ("today", "yesterday"):
        return days.start(today - timedelta(days=words == "yesterday"))
    try:
        if found := _MONTH.fullmatch(words):
            return days.start(date(int(found[1]), int(found[2]), 1))
        if _DATE.fullmatch(words):
            return days.start(date.fromisoformat(words))
    except (ValueError, OverflowError) as error:
        raise Usage(f"{since!r} is not a time", remedy="bubbles usage --help") from error
    return past(since, now)


def _key(by: str, days: Days) -> Callable[[Entry], Group]:
    def key(entry: Entry) -> Group:
        return (str(days.of(entry.at)),) if by == "day" else tuple(str(getattr(entry, name)) for name in KEYS[by])

    return key


# -- for people ------------------------------------------------------------------------------------


def _table(by: str, groups: dict[Group, Sum], today: str, names: dict[str, str]) -> Block:
    drawn = sys.stdout.isatty()
    with_bars = drawn and by == "day"
    shown = _without_gaps(groups) if with_bars else groups
    rows = [(_name(by, group, today, names), *_cells(total)) for group, total in shown.items()]
    if len(rows) > 1:
        rows.append(("all", *_cells(sum(groups.values(), Sum()))))
    table = [(by, *_HEADS), *rows]
    room = shutil.get_terminal_size().columns - _EDGE
    if drawn and _wide(table) + with_bars * _BAR_LEAST > room:
        table = [(line[0], *(line[n] for n in _FEW)) for line in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    heads, *padded = ([line[0], *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))] for line in table)
    bars = _bars(shown.values(), min(_BAR, room - _wide(table))) if with_bars else []
    block = Block(heads=(*heads, *[""] * with_bars))
    for n, (name, *cells) in enumerate(padded):
        block.rows.append(Row("", log.escaped(name), (*cells, *bars[n : n + 1])))
    return block


def _wide(table: list[tuple[str, ...]]) -> int:
    """How wide a table is, with two blanks behind each column."""
    return sum(max(map(len, column)) + 2 for column in zip(*table, strict=True))


def _cells(total: Sum) -> tuple[str, ...]:
    counts = (total.requests, total.tokens, total.input, total.output, total.cached)
    return *(f"{count:,}" for count in counts), dollars(total.cost_micros) if total.is_priced else "-"


def _without_gaps(groups: dict[Group, Sum]) -> dict[Group, Sum]:
    """The days, those in which nothing was asked as well."""
    first, last = (date.fromisoformat(day) for (day,) in (next(iter(groups)), next(reversed(groups))))
    if (last - first).days > _FILLED:
        return groups
    every = (str(first + timedelta(days=n)) for n in range((last - first).days + 1))
    return {(day,): groups.get((day,), Sum()) for day in every}


def _bars(totals: Collection[Sum], longest: int) -> list[str]:
    """A bar for each, as long as its tokens are of the most; something is never nothing."""
    full = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    most = max((total.tokens for total in totals), default=0) or 1
    return [full * max(round(longest * total.tokens / most), bool(total.tokens)) for total in totals]


def _name(by: str, group: Group, today: str, names: dict[str, str]) -> str:
    if by == "day":
        return f"{group[0]} so far" if group[0] == today else group[0]
    if by == "model":
        return f"{group[0] or 'unknown'} ({group[1]})" if group[1] else group[0] or "unknown"
    if by == "origin":
        origin, job = group
        return "you" if origin == "user" else f"cron {names.get(job, job)}" if origin == "cron" else origin
    return group[0]


def _names(home: Home) -> dict[str, str]:
    """What cron's jobs are called, by their ids; none where that cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return {str(job["id"]): str(job.get("name") or job["id"]) for job in json.loads(regular.read(home.jobs))["jobs"]}
    return {}


def _budgets(books: Books) -> Block:
    block = Block()
    for measure, limit, spent, unattended in books.budgets():
        whose = "budget of today for what nobody began" if unattended else "budget of today"
        used_up = f", used up until {books.ends()}" if spent >= limit else ""
        block.add(whose, f"{amount(measure, spent)} of {amount(measure, limit)}{' tokens' if measure == 'tokens' else ''}{used_up}")
    return block


def _tell(groups: dict[Group, Sum], pages: Pages) -> None:
    """Say on standard error what is in no sum."""
    for words in _missing(sum(groups.values(), Sum()), pages):
        print(f"bubbles: {words}", file=sys.stderr)


def _missing(whole: Sum, pages: Pages) -> Iterator[str]:
    if not whole.requests:
        yield "nothing was asked of a model in that time"
    if whole.unpriced_requests:
        yield f"in no cost, because the price of the model is not known: {whole.unpriced:,} tokens in {_some(whole.unpriced_requests, 'request')}"
    if whole.uncounted:
        yield f"in no count, because they were cut short or the provider does not count: {_some(whole.uncounted, 'request')}"
    if whole.failed:
        yield f"requests that failed midway, and may be on the bill: {whole.failed:,}, of about {whole.guessed:,} tokens; budgets count those"
    if pages.damaged:
        yield f"what cannot be read, and is in no sum: {_some(pages.damaged, 'line')}; see: bubbles doctor usage"
    for path, why in pages.unread.items():
        yield f"{path} cannot be read: {why}"


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
