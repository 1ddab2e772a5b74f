"""What requests that failed midway are in the books: known as such, exactly once, and no way round a budget."""

from __future__ import annotations

from typing import Any

from bubbles.agentd.books import Books
from bubbles.agentd.spending import Entry, Pages, Sum
from bubbles.bus.dial import Dial
from bubbles.config import load
from bubbles.errors import ModelDown, from_wire, to_wire
from bubbles.kernel.events import Event, ModelAsked, ModelFailed, UserSpoke, header, to_line
from bubbles.paths import Home
from tests.agentd.world import world

CUT = {"reply": "half of an answer", "chunks": 8, "cut": 4}


def booked(home: Home) -> list[Entry]:
    return list(Pages(home).entries())


def test_an_answer_after_one_that_broke_off_is_one_request_and_tells_of_it(home: Home) -> None:
    with world(home, {"rules": [{**CUT, "times": 1}], "default": {"reply": "ok"}}, agents__defaults__api_retries=1) as w:
        w.start()
        assert w.say("hello").text == "ok"
        (entry,) = booked(home)
        assert (entry.lost, entry.failed, entry.is_counted) == ("", 1, True)
        assert entry.guessed > 0
        assert entry.guessed != entry.input + entry.output, "what was counted and what is guessed stand apart"


def test_what_failed_for_good_is_in_the_books_exactly_once(home: Home) -> None:
    with world(home, {"default": CUT}, agents__defaults__api_retries=1) as w:
        w.start()
        assert w.say("hello").outcome == "failed:model_down"
        (entry,) = booked(home)
        assert (entry.lost, entry.failed, entry.is_counted, entry.origin) == ("failed", 2, False, "user")
        w.kill("agentd")
        w.start("agentd")
        w.until(lambda: Dial(home, "agentd"))
        assert booked(home) == [entry]


def test_a_refusal_before_any_answer_is_not_booked(home: Home) -> None:
    with world(home, {"default": {"status": 503}}) as w:
        w.start()
        assert w.say("hello").outcome == "failed:model_down"
        assert booked(home) == []


def test_one_killed_before_it_was_booked_is_booked_at_the_next_start(home: Home) -> None:
    home.prepare()
    spent = {"failed": 3, "guessed": 900, "guessed_micros": 50}
    events: list[Event] = [UserSpoke("t1", "hi"), ModelAsked("t1.0"), ModelFailed("model_down", 3, "cut", usage=spent)]
    home.turns.mkdir(exist_ok=True)
    (home.turns / "s.jsonl").write_bytes(b"".join([header("t1", "s"), *(to_line(event, 1764500400.0) for event in events)]))
    for _ in range(2):
        books = Books(home, load(home, "agents").agents)
        books.recover()
        books.close()
    (entry,) = booked(home)
    assert (entry.id, entry.lost, entry.failed, entry.guessed, entry.guessed_micros) == ("t1.0", "failed", 3, 900, 50)


def test_a_loop_of_failures_ends_at_the_budget(home: Home) -> None:
    with world(home, {"default": CUT}, agents__limits__tokens_per_day=4000) as w:
        w.start()
        outcomes: list[str] = []
        while "failed:over_budget" not in outcomes:
            outcomes.append(w.say("hello").outcome)
            assert len(outcomes) < 20, "it never ends"
        assert w.fake.seen()["requests"] == len(outcomes) - 1 > 0
        assert Sum.of(booked(home)).tokens == 0


def test_what_is_guessed_crosses_the_wire() -> None:
    error = ModelDown("cut", attempts=2)
    error.spent = {"failed": 2, "guessed": 7}
    found: Any = from_wire(to_wire(error))
    assert (type(found), found.attempts, found.spent, found.retry_after_s) == (ModelDown, 2, error.spent, 0.0)
