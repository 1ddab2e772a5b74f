"""modeld, or the server behind it, hangs, dies, or never comes to an end: one ask is one run and one answer, or a word that there is none.

Where the product waits for minutes, these daemons wait a twentieth as long (bent.py); the same with the real times is in the soak.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bubbles.paths import Home
from tests.agentd.world import World, world
from tests.disasters import bending
from tests.disasters.soak import SOAK
from tests.logged import logged

HASTY, VERY = (1, 1) if SOAK else (20, 60)


@contextmanager
def hasty(home: Home, script: dict[str, Any], by: int = HASTY, **changes: Any) -> Iterator[World]:
    """A world whose daemons have a twentieth of their patience."""
    with world(home, script, **changes) as w:
        for name in ("modeld", "agentd"):
            w.running[name] = bending.start(home, name, hasty=by)
        yield w


@contextmanager
def stopped(w: World, name: str) -> Iterator[None]:
    """A daemon that does nothing at all, and goes on afterwards."""
    pid = w.running[name].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def once(w: World, *words: str) -> None:
    """Each word stands in history once, each in a turn that was answered."""
    ends = w.ends()
    assert [m["text"] for end in ends for m in end["messages"]] == list(words)
    assert {end["outcome"] for end in ends} == {"replied"}


def test_a_modeld_that_hangs_while_it_asks_is_asked_again_and_runs_once(home: Home) -> None:
    with hasty(home, {"default": {"reply": "at last", "delay_s": 0.3}}) as w:
        id = w.put("well?")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        with stopped(w, "modeld"):
            w.until(lambda: "modeld is away" in logged(home, "agentd"), 60)
        assert w.wait(id).text == "at last"
        assert w.fake.seen()["requests"] == 1
        once(w, "well?")


def test_a_modeld_that_hangs_for_ever_is_told_of_and_the_next_words_are_answered(home: Home) -> None:
    with hasty(home, {"default": {"reply": "here"}}, VERY) as w:
        assert w.say("hello").text == "here"
        with stopped(w, "modeld"):
            id = w.put("anybody?")
            w.ring()
            w.until(lambda: len(w.ends()) == 2, 300 if SOAK else 60)
        heard = w.wait(id)
        assert heard.outcome == "failed:model_down"
        assert heard.text
        assert w.say("and now?").text == "here"
        assert [message["role"] for message in w.history()] == ["user", "assistant", "user", "user", "assistant"]


def test_a_modeld_killed_again_and_again_costs_time_and_no_words(home: Home) -> None:
    script = {"rules": [{"times": 4, "endless": True}], "default": {"reply": "made it"}}
    with world(home, script) as w:
        w.start()
        id = w.put("well?")
        w.ring()
        for n in range(1, 5):
            _until_asked(w, n)
            w.kill("modeld")
            w.start("modeld")
        assert w.wait(id).text == "made it"
        assert w.fake.seen()["requests"] == 5  # asked again each time: money, and nothing done twice
        once(w, "well?")


def _until_asked(w: World, times: int) -> None:
    w.until(lambda: w.fake.seen()["requests"] == times and w.fake.seen()["open"], 60)


def test_a_modeld_that_is_gone_is_told_of_and_one_that_comes_back_answers(home: Home) -> None:
    with hasty(home, {"default": {"reply": "here"}}, VERY) as w:
        w.kill("modeld")
        id = w.put("anybody?")
        w.ring()
        w.until(w.ends, 300)
        assert w.wait(id).outcome == "failed:model_down"
        assert w.ends()[0]["messages"][0]["text"] == "anybody?"
        w.start("modeld")
        assert w.say("and now?").text == "here"


def test_a_server_that_hangs_is_told_of(home: Home) -> None:
    with hasty(
        home, {"rules": [{"when": "hang", "times": 1, "delay_s": 900}], "default": {"reply": "here"}}, agents__defaults__api_timeout_s=0.5
    ) as w:
        heard = w.say("hang")
        assert heard.outcome == "failed:model_down"
        assert heard.text
        assert w.say("and now?").text == "here"
        w.until(lambda: not w.fake.seen()["open"])


def test_a_server_that_streams_for_ever_is_let_go(home: Home) -> None:
    script = {"rules": [{"when": "on and on", "reply": "and on ", "times": 1, "endless": True, "pause_s": 0.05}], "default": {"reply": "here"}}
    with hasty(home, script, agents__defaults__api_timeout_s=0.2) as w:
        heard = w.say("on and on")
        assert heard.outcome == "failed:model_down"
        w.until(lambda: not w.fake.seen()["open"])
        assert w.fake.seen()["requests"] == 1
        assert w.say("and now?").text == "here"
        assert [message["content"] for message in w.history() if message["role"] == "assistant"] == ["here"]


def test_a_task_that_takes_long_runs_once(home: Home) -> None:
    """Far longer than any silence is borne and any ask is kept unrepeated: the one request is waited for, and its answer told once."""
    long_s = 90 if SOAK else 4.5
    with hasty(home, {"rules": [{"when": "long", "reply": "it is done", "delay_s": long_s}]}) as w:
        id = w.put("a long task")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        again = w.put("a long task", id=id)
        assert again == id
        w.ring()
        w.until(lambda: w.ends(), 2 * long_s + 30)
        assert w.wait(id).text == "it is done"
        assert w.fake.seen()["requests"] == 1
        once(w, "a long task")


@pytest.mark.parametrize("name", ["modeld", "agentd"])
def test_a_daemon_that_stood_still_goes_on_as_if_nothing_had_been(home: Home, name: str) -> None:
    with hasty(home, {"default": {"reply": "here", "delay_s": 0.2}}) as w:
        id = w.put("hello")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        with stopped(w, name):
            w.until(lambda: not w.fake.seen()["open"])
        assert w.wait(id).text == "here"
        assert w.fake.seen()["requests"] == 1
        once(w, "hello")
