"""`agentd --once`: what there is to do now is done, and then it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.world import World, world


def once(home: Home) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "bubbles.programs.agentd", "--once"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def waiting(w: World, name: str = "cli") -> int:
    queue = Queue(w.home.inbound(name))
    return sum(1 for state in ("new", "cur") for _ in queue.list(state))


def test_with_nothing_to_do_it_ends(home: Home) -> None:
    done = once(home)
    assert (done.returncode, done.stdout) == (0, "")
    assert "daemon.stop" in done.stderr


def test_it_takes_the_queues_and_answers(home: Home) -> None:
    with world(home) as w:
        w.start("modeld")
        w.put("one", "a")
        w.put("two", "b")
        w.put("three", "c", queue="cron", origin="system", job="j")
        done = once(home)
        assert done.returncode == 0, done.stderr
        assert [[m["content"] for m in w.history(s) if m["role"] == "assistant"] for s in "abc"] == [["ok"]] * 3
        assert waiting(w) + waiting(w, "cron") == 0
        assert not any(w.journal(s) for s in "abc")


def test_it_brings_an_open_turn_to_its_end(home: Home) -> None:
    with world(home) as w:
        w.fake.play({"rules": [{"times": 1, "delay_s": 20, "reply": "lost"}], "default": {"reply": "found"}})
        w.start()
        w.put("long")
        w.ring()
        w.until(lambda: w.fake.seen()["requests"])
        w.kill("agentd")
        assert w.journal()
        w.kill("modeld")
        w.start("modeld")
        assert once(home).returncode == 0
        assert w.history()[-1]["content"] == "found"
        assert not w.journal()


def test_it_leaves_what_is_not_due(home: Home) -> None:
    with world(home) as w:
        w.start("modeld")
        id = w.put("later")
        queue = Queue(home.inbound("cli"))
        queue.claim(id)
        queue.defer(id, time.time() + 3600)
        assert once(home).returncode == 0
        assert queue.find(id) == "new"


def test_it_ends_when_it_is_told_to_and_loses_nothing(home: Home) -> None:
    with world(home) as w:
        w.fake.play({"rules": [{"times": 1, "delay_s": 30, "reply": "lost"}], "default": {"reply": "found"}})
        w.start("modeld")
        w.put("long")
        process = subprocess.Popen([sys.executable, "-m", "bubbles.programs.agentd", "--once"], stderr=subprocess.DEVNULL)
        w.until(lambda: w.fake.seen()["requests"])
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(8) == 0
        assert w.journal()
