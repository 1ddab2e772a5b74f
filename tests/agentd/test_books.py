"""What models cost: each request is booked once, whoever is killed when; days are the owner's; a budget that is used up stops the next request."""

from __future__ import annotations

import json
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.agentd.books import Books
from bubbles.agentd.spending import ORIGINS, Days, Entry, Pages, Sum, dollars, entry, grouped, month
from bubbles.errors import DataError, Misconfigured, OverBudget
from bubbles.kernel.events import ModelAnswered, ModelAsked, ModelFailed, Resumed, Stopped, UserSpoke, header, to_line
from bubbles.kernel.turn import Turn
from bubbles.messages import to_line as line_of
from bubbles.paths import Home

NOON = 1_764_504_000.0  # 2025-11-30 12:00 UTC
DAY_S = 86_400.0


class Clock:
    """A clock that is set by hand."""

    def __init__(self, at: float = NOON) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def agents(zone: str = "UTC", **limits: float) -> Any:
    usual = {"tokens_per_day": 0, "cost_per_day": 0.0, "system_tokens_per_day": 0, "system_cost_per_day": 0.0}
    return SimpleNamespace(defaults=SimpleNamespace(timezone=zone), limits=SimpleNamespace(**{**usual, **limits}))


def turn(id: str = "t1", origin: str = "user", job: str = "") -> Turn:
    made = Turn(id, origin=origin)
    made.apply(UserSpoke(id, "hi", origin=origin, job=job))
    return made


def booked(home: Home) -> list[Entry]:
    return list(Pages(home).entries())


def used(tokens: int, cost: int | None = None) -> dict[str, int]:
    return {"input": tokens, "output": 0} | ({"cost_micros": cost} if cost is not None else {})


# -- what is booked --------------------------------------------------------------------------------


def test_a_request_stands_in_the_file_of_its_month_with_all_that_is_known_of_it(home: Home) -> None:
    books = Books(home, agents(), now=Clock())
    usage = {"input": 900, "output": 40, "cached": 800, "reasoning": 7, "cost_micros": 1234, "strange": 5}
    books.note("t1.0", "main", turn(), usage, model="m", provider="p")
    [path] = home.usage.iterdir()
    assert path.name == "2025-11.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    assert home.usage.stat().st_mode & 0o777 == 0o700
    head, line = path.read_bytes().splitlines()
    assert json.loads(head) == {"format": "bubbles.usage", "version": 1}
    counts = {"input": 900, "output": 40, "cached": 800, "reasoning": 7, "cost_micros": 1234}
    assert json.loads(line) == {"id": "t1.0", "at": NOON, "session": "main", "turn": "t1", "model": "m", "provider": "p", **counts}
    assert booked(home) == [Entry("t1.0", NOON, "main", "t1", "user", "", "answer", "m", "p", "", 900, 40, 800, 0, 7, 1234)]


@pytest.mark.parametrize(
    ("origin", "job", "id", "found"),
    [("user", "", "t", "user"), ("system", "j1", "t", "cron"), ("system", "", "job-s-j1-5-end", "background"), ("system", "", "x", "system")],
)
def test_who_began_it_is_booked_and_a_job_by_its_id(home: Home, origin: str, job: str, id: str, found: str) -> None:
    Books(home, agents(), now=Clock()).note(f"{id}.0", "s", turn(id, origin, job), used(1))
    assert [(each.origin, each.job) for each in booked(home)] == [(found, job)]
    assert found in ORIGINS


def test_a_person_who_speaks_in_a_jobs_turn_makes_it_theirs(home: Home) -> None:
    books, one = Books(home, agents(), now=Clock()), turn("t1", "system", "j1")
    books.note("t1.0", "s", one, used(1))
    one.apply(UserSpoke("p", "and this", origin="user"))
    books.note("t1.1", "s", one, used(2))
    assert [each.origin for each in booked(home)] == ["cron", "user"]


def test_a_summary_and_what_was_given_up_on_the_way_are_booked_as_such(home: Home) -> None:
    books = Books(home, agents(), now=Clock())
    books.note_summary("s.compact.1", "s", None, {"usage": used(70, 3) | {"odd": "x"}, "model": "m", "provider": "p", "text": "so far"})
    books.note("t1.0", "s", turn(), lost="preempted")
    summary, lost = booked(home)
    assert (summary.kind, summary.input, summary.cost_micros, summary.origin) == ("summary", 70, 3, "user")
    assert (lost.kind, lost.lost, lost.is_counted) == ("answer", "preempted", False)
    total = Sum.of([summary, lost])
    assert (total.requests, total.tokens, total.uncounted, total.unpriced_requests) == (2, 70, 1, 0)


def test_a_new_month_is_a_new_file_and_the_old_one_stays(home: Home) -> None:
    clock = Clock()
    books = Books(home, agents(), now=clock)
    books.note("a.0", "s", turn("a"), used(1))
    clock.at += DAY_S
    books.note("b.0", "s", turn("b"), used(2))
    clock.at -= DAY_S  # a clock that is set back
    books.note("c.0", "s", turn("c"), used(3))
    assert sorted(path.name for path in home.usage.iterdir()) == ["2025-11.jsonl", "2025-12.jsonl"]
    assert [each.id for each in booked(home)] == ["a.0", "c.0", "b.0"]
    assert [each.id for each in Pages(home).entries(NOON + 1)] == ["b.0"]
    assert [each.id for each in Pages(home).entries(0, NOON + 1)] == ["a.0", "c.0"]


def test_many_months_are_read_by_those_that_matter_alone(home: Home) -> None:
    clock = Clock()
    books = Books(home, agents(), now=clock)
    for n in range(30):
        clock.at = NOON + n * 31 * DAY_S
        books.note(f"t{n}.0", "even" if n % 2 else "odd", turn(f"t{n}"), used(n + 1))
    (home.usage / "2020-01.jsonl").write_bytes(b"not looked at\n")
    pages = Pages(home)
    assert [each.id for each in pages.entries(clock.at - 40 * DAY_S)] == ["t28.0", "t29.0"]
    assert pages.damaged == 0
    assert Sum.of(pages.entries(session="even")).requests == 15


# -- what breaks -----------------------------------------------------------------------------------


def test_a_torn_last_line_is_not_read_and_is_cut_off_before_the_next(home: Home) -> None:
    Books(home, agents(), now=Clock()).note("a.0", "s", turn("a"), used(1))
    path = home.usage / "2025-11.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id":"b.0","at":17645')
    assert [each.id for each in booked(home)] == ["a.0"]
    Books(home, agents(), now=Clock()).note("c.0", "s", turn("c"), used(2))
    assert path.read_bytes().startswith(whole)
    assert [each.id for each in booked(home)] == ["a.0", "c.0"]


def test_a_file_whose_very_header_is_torn_begins_anew(home: Home) -> None:
    home.usage.mkdir()
    (home.usage / "2025-11.jsonl").write_bytes(b'{"format":"bubb')
    Books(home, agents(), now=Clock()).note("a.0", "s", turn("a"), used(1))
    assert [each.id for each in booked(home)] == ["a.0"]


@given(st.binary(max_size=200), st.sampled_from([b"", b"\n"]))
@settings(max_examples=60)
def test_whatever_stands_in_the_file_what_comes_after_is_booked(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes, end: bytes) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    home.usage.mkdir()
    (home.usage / "2025-11.jsonl").write_bytes(line_of({"format": "bubbles.usage", "version": 1}) + rubbish + end)
    Books(home, agents(), now=Clock()).note("a.0", "s", turn("a"), used(1))
    assert [each.id for each in booked(home)][-1:] == ["a.0"]


@pytest.mark.parametrize("line", [
    {}, {"id": "a"}, {"id": "a", "at": 1.0, "session": 3}, {"id": "a", "at": 1.0, "session": "s", "input": -1},
    {"id": "a", "at": 1.0, "session": "s", "input": True}, {"id": "a", "at": 1.0, "session": "s", "input": 1.5},
    {"id": "a", "at": float("nan"), "session": "s"}, {"id": "a", "at": 1e300, "session": "s"},
    {"id": "a", "at": 1.0, "session": "s", "guessed": 2**64},
])  # fmt: skip
def test_what_is_no_entry_is_refused_and_counted(home: Home, line: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        entry(line)
    home.usage.mkdir()
    (home.usage / "1970-01.jsonl").write_bytes(line_of({"format": "bubbles.usage", "version": 1}) + json.dumps(line).encode() + b"\n")
    pages = Pages(home)
    assert list(pages.entries()) == []
    assert pages.damaged == 1


@pytest.mark.parametrize("input", [10**25, 2**63, 2**62, 10**9 + 1])
def test_more_tokens_than_can_be_are_none_that_somebody_counted(home: Home, input: int) -> None:
    """What is there already is read, what comes is not written, and the budget sees the same before a new start as after it."""
    limits = {"tokens_per_day": 1000}
    odd = {"id": "a.0", "at": NOON, "session": "s", "input": input, "output": 3, "cost_micros": 10**30}
    home.usage.mkdir()
    (home.usage / "2025-11.jsonl").write_bytes(line_of({"format": "bubbles.usage", "version": 1}) + line_of(odd))
    books = Books(home, agents(**limits), now=Clock())
    books.note("b.0", "s", turn("b"), {"input": input, "output": 3, "cached": 1, "cost_micros": 10**30, "guessed": 10**30})
    for each in (books, Books(home, agents(**limits), now=Clock())):
        total = each.today()[False]
        assert (total.requests, total.uncounted, total.tokens, total.cost_micros) == (2, 2, 0, 0)
    pages = Pages(home)
    assert [(each.id, each.is_counted) for each in pages.entries()] == [("a.0", False), ("b.0", False)]
    assert pages.damaged == 0


def test_what_no_budget_sees_is_told_when_a_day_begins(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.usage.mkdir()
    path = home.usage / "2025-11.jsonl"
    path.write_bytes(line_of({"format": "bubbles.usage", "version": 1}) + b'{"id":"a.0","at":%.1f,"session":7}\n' % NOON)
    told: list[str] = []
    monkeypatch.setattr("bubbles.log.event", lambda name, text, **more: told.append(text))
    Books(home, agents(), now=Clock()).today()
    assert "lines that cannot be read: 1" in told.pop()
    path.unlink()
    path.mkdir()
    Books(home, agents(), now=Clock()).today()
    assert str(path) in told.pop()
    path.rmdir()
    Books(home, agents(), now=Clock()).today()
    assert not told


def test_the_books_of_a_newer_program_are_left_alone(home: Home) -> None:
    home.usage.mkdir()
    path = home.usage / "2025-11.jsonl"
    path.write_bytes(line_of({"format": "bubbles.usage", "version": 2}))
    books = Books(home, agents(), now=Clock())
    with pytest.raises(Misconfigured, match="version 2"):
        books.recover()
    with pytest.raises(Misconfigured, match="version 2"):
        list(Pages(home).entries())
    assert path.read_bytes() == line_of({"format": "bubbles.usage", "version": 2})


def test_on_a_full_disk_nothing_is_forgotten_and_nothing_is_written_twice(home: Home) -> None:
    home.usage.mkdir()
    (home.usage / "2025-11.jsonl").symlink_to("/dev/full")  # a link is refused, as a disk would
    books = Books(home, agents(tokens_per_day=100), now=Clock())
    books.note("a.0", "s", turn("a"), used(60))
    books.note("b.0", "s", turn("b"), used(60))
    assert books.refusal(False) is not None
    (home.usage / "2025-11.jsonl").unlink()
    for _ in range(2):
        books.write()
    assert [each.id for each in booked(home)] == ["a.0", "b.0"]
    assert books.today()[False].tokens == 120


# -- a crash between an answer and its entry -------------------------------------------------------


def journal(home: Home, *events: Any, origin: str = "user", name: str = "s", id: str = "t1") -> None:
    lines = [to_line(event, NOON + n) for n, event in enumerate(events)]
    (home.turns / f"{name}.jsonl").write_bytes(header(id, name, origin) + b"".join(lines))


ANSWERED = ModelAnswered("ok", usage=used(50, 9), model="m", provider="p")


def test_what_a_journal_tells_of_and_the_books_do_not_is_booked_once(home: Home) -> None:
    journal(home, UserSpoke("t1", "hi"), ModelAsked("t1.0"), ANSWERED, ModelAsked("t1.1"), ANSWERED, ModelAsked("t1.2"))
    books = Books(home, agents(), now=Clock())
    books.note("t1.0", "s", turn(), ANSWERED.usage, model="m", provider="p")
    for _ in range(3):
        books.recover()
        books = Books(home, agents(), now=Clock(NOON + 5))
    found = booked(home)
    assert [each.id for each in found] == ["t1.0", "t1.1"]
    assert found[1] == Entry("t1.1", NOON + 4, "s", "t1", "user", "", "answer", "m", "p", "", 50, cost_micros=9)
    assert books.today()[False].tokens == 100


def test_a_request_that_was_asked_again_after_a_restart_is_one(home: Home) -> None:
    journal(home, UserSpoke("t1", "hi"), ModelAsked("t1.0"), Resumed(), ModelAsked("t1.0"), ANSWERED)
    Books(home, agents(), now=Clock()).recover()
    assert [each.id for each in booked(home)] == ["t1.0"]


def test_given_up_requests_are_recovered_too_and_failed_ones_cost_nothing(home: Home) -> None:
    job = UserSpoke("t1", "look", origin="system", job="j1")
    journal(home, job, ModelAsked("t1.0"), ModelFailed("preempted"), ModelAsked("t1.1"), ModelFailed("model_down", 3), origin="system")
    journal(home, UserSpoke("t2", "hi"), ModelAsked("t2.0"), Stopped("me"), name="other", id="t2")
    Books(home, agents(), now=Clock()).recover()
    assert sorted((each.id, each.lost, each.origin, each.job) for each in booked(home)) == [
        ("t1.0", "preempted", "cron", "j1"),
        ("t2.0", "stopped", "user", ""),
    ]


@given(st.binary(max_size=300))
@settings(max_examples=50)
def test_a_journal_of_rubbish_hinders_nothing(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    home.turns.mkdir()
    journal(home, UserSpoke("t1", "hi"), ModelAsked("t1.0"), ANSWERED)
    (home.turns / "bad.jsonl").write_bytes(rubbish)
    Books(home, agents(), now=Clock()).recover()
    assert [each.id for each in booked(home)] == ["t1.0"]


# -- days ------------------------------------------------------------------------------------------

ZONES = ["UTC", "Europe/Berlin", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "America/Santiago", "Asia/Beirut"]


@given(st.floats(0, 4e9), st.sampled_from(ZONES))
def test_a_day_holds_its_times_and_the_next_begins_where_it_ends(at: float, zone: str) -> None:
    days = Days(zone)
    begin, end = days.bounds(at)
    assert begin <= at < end
    assert 22 * 3600 <= end - begin <= 26 * 3600
    assert days.of(begin) == days.of(at)
    assert days.of(end) > days.of(at)
    assert days.bounds(end)[0] == end
    assert days.of(end - 0.001) == days.of(at)


@pytest.mark.parametrize(("day", "hours"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 6, 1), 24)])
def test_days_on_which_the_clocks_change_are_as_long_as_they_are(day: date, hours: int) -> None:
    days = Days("Europe/Berlin")
    begin, end = days.bounds(days.start(day))
    assert end - begin == hours * 3600


def test_a_day_whose_midnight_is_left_out_begins_with_what_comes_in_its_place() -> None:
    days = Days("Asia/Beirut")
    begin, _ = days.bounds(days.start(date(2026, 3, 29)) + 3600)
    assert days.clock(begin).startswith("01:00")
    assert days.of(begin - 1) == date(2026, 3, 28)


def test_without_a_zone_the_day_is_that_of_the_system(home: Home) -> None:
    assert Days("").of(NOON) == date.fromtimestamp(NOON)
    begin, end = Days("").bounds(NOON)
    assert begin <= NOON < end


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York", "Europe/Berlin"])
def test_a_budget_is_of_the_owners_day_and_full_again_at_midnight(home: Home, zone: str) -> None:
    clock = Clock()
    books = Books(home, agents(zone, tokens_per_day=100), now=clock)
    _, midnight = Days(zone).bounds(NOON)
    clock.at = midnight - 1
    books.note("a.0", "s", turn("a"), used(100))
    assert books.refusal(False) is not None
    clock.at = midnight
    assert books.refusal(False) is None
    assert books.today()[False].tokens == 0
    books.note("b.0", "s", turn("b"), used(99))
    assert books.refusal(False) is None
    clock.at = midnight - 1
    assert books.refusal(False) is not None, "a clock that is set back is believed"
    assert Books(home, agents(zone, tokens_per_day=100), now=clock).refusal(False) is not None, "a restart forgets nothing"


def test_the_day_on_which_the_clocks_go_back_has_one_budget(home: Home) -> None:
    days = Days("Europe/Berlin")
    begin = days.start(date(2026, 10, 25))
    clock = Clock(begin + 2.5 * 3600)  # 02:30, the first time
    books = Books(home, agents("Europe/Berlin", tokens_per_day=100), now=clock)
    books.note("a.0", "s", turn("a"), used(60))
    clock.at += 3600  # 02:30, the second time
    books.note("b.0", "s", turn("b"), used(60))
    assert books.refusal(False) is not None
    clock.at = begin + 24.5 * 3600  # 23:30
    assert books.refusal(False) is not None
    clock.at = begin + 25 * 3600
    assert books.refusal(False) is None


# -- budgets ---------------------------------------------------------------------------------------


def test_without_a_budget_nothing_is_refused_and_no_file_is_read(home: Home) -> None:
    books = Books(home, agents(), now=Clock())
    books.note("a.0", "s", turn("a"), used(10**9, 10**12))
    assert books.refusal(False) is books.refusal(True) is None
    assert list(books.budgets()) == []


def test_the_refusal_says_how_much_until_when_and_what_to_do(home: Home) -> None:
    books = Books(home, agents("Asia/Shanghai", tokens_per_day=1000), now=Clock())
    books.note("a.0", "s", turn("a"), used(1234))
    with pytest.raises(OverBudget) as caught:
        books.check(turn("b"), "en")
    text = caught.value.text
    assert "1,234 of 1,000 tokens" in text
    assert "00:00 (Asia/Shanghai), in 4 h 0 min" in text
    assert "/retry" in text
    assert "/usage" in text
    assert "agents.limits.tokens_per_day" in text
    assert (caught.value.kind, caught.value.attempts) == ("over_budget", 0)
    chinese = books.refusal(False, "zh")
    assert chinese is not None
    assert "额度" in chinese.text


def test_a_budget_of_money_counts_what_has_a_price(home: Home) -> None:
    books = Books(home, agents(cost_per_day=0.5), now=Clock())
    books.note("a.0", "s", turn("a"), used(10**6))
    books.note("b.0", "s", turn("b"), used(10, 499_999))
    assert books.refusal(False) is None
    books.note("c.0", "s", turn("c"), used(10, 1))
    refusal = books.refusal(False)
    assert refusal is not None
    assert "$0.50 of $0.50" in refusal.text


def test_turns_that_nobody_began_share_the_budget_where_they_have_none(home: Home) -> None:
    books = Books(home, agents(tokens_per_day=100), now=Clock())
    books.note("a.0", "s", turn("a", "system", "j"), used(100))
    assert books.refusal(False) is not None
    assert books.refusal(True) is not None


def test_turns_that_nobody_began_count_apart_where_they_have_a_budget(home: Home) -> None:
    books = Books(home, agents(tokens_per_day=100, system_tokens_per_day=40), now=Clock())
    books.note("a.0", "s", turn("a", "system", "j"), used(90))
    assert books.refusal(False) is None, "what nobody began takes nothing from a person"
    refusal = books.refusal(True)
    assert refusal is not None
    assert "system_tokens_per_day" in refusal.text
    with pytest.raises(OverBudget):
        books.check(turn("b", "system"), "en")
    books.check(turn("c"), "en")
    books.note("c.0", "s", turn("c"), used(100))
    assert books.refusal(False) is not None
    assert list(books.budgets()) == [("tokens", 100.0, 100, False), ("tokens", 40.0, 90, True)]


# -- sums ------------------------------------------------------------------------------------------

ENTRIES = st.lists(
    st.builds(
        Entry,
        id=st.uuids().map(str),
        at=st.floats(NOON, NOON + 40 * DAY_S),
        session=st.sampled_from(["main", "work", "tele-1"]),
        turn=st.sampled_from(["t1", "t2"]),
        origin=st.sampled_from(ORIGINS),
        job=st.sampled_from(["", "j1"]),
        kind=st.sampled_from(["answer", "summary"]),
        model=st.sampled_from(["", "a", "b"]),
        provider=st.sampled_from(["p", "q"]),
        lost=st.sampled_from(["", "stopped"]),
        input=st.integers(0, 10**7),
        output=st.integers(0, 10**6),
        cached=st.integers(0, 10**7),
        cost_micros=st.none() | st.integers(0, 10**9),
    ),
    max_size=30,
)


@given(ENTRIES, st.sampled_from(ZONES))
@settings(max_examples=60)
def test_the_sums_of_every_grouping_are_equal_and_what_is_booked_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry], zone: str
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    home.turns.mkdir()
    clock = Clock()
    books = Books(home, agents(zone), now=clock)
    for each in entries:
        clock.at = each.at
        books.book(each)
    books.close()
    read = booked(home)
    assert sorted(read, key=lambda one: one.id) == sorted(entries, key=lambda one: one.id)
    days, whole = Days(zone), Sum.of(entries)
    for key in (
        lambda one: days.of(one.at), lambda one: one.session, lambda one: (one.model, one.provider), lambda one: (one.origin, one.job),
        lambda one: month(one.at), lambda one: one.turn,
    ):  # fmt: skip
        assert sum(grouped(read, key).values(), Sum()) == whole
    clock.at = NOON + 20 * DAY_S
    begin, end = days.bounds(clock.at)
    today = books.today()
    assert today[False] + today[True] == Sum.of(each for each in entries if begin <= each.at < end)


def test_a_cost_is_told_where_a_price_is_known_and_not_as_nothing_where_none_is() -> None:
    known, unknown = Entry("a", NOON, "s", input=5, cost_micros=0), Entry("b", NOON, "s", input=7)
    assert Sum.of([known]).told()["cost_usd"] == 0
    assert Sum.of([unknown]).told()["cost_usd"] is None
    both = Sum.of([known, unknown]).told()
    assert (both["cost_usd"], both["unpriced_requests"], both["unpriced_tokens"]) == (0, 1, 7)
    assert [dollars(micros) for micros in (0, 99, 12_345, 2_500_000, 1_234_000_000)] == ["$0.00", "$0.000099", "$0.0123", "$2.50", "$1,234.00"]


