"""kill -9 of agentd at every step of a compaction: what is sent afterwards is the past before it or after it, never anything between."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

from bubbles.errors import BubblesError
from bubbles.kernel import context
from bubbles.kernel.summary import HEAD
from bubbles.paths import Home
from bubbles.sessions.history import History
from tests.agentd.world import World, world
from tests.crash import doom
from tests.crash.hops import COMPACTION_HOPS
from tests.crash.test_jobs import Life

STEPS = [(hop, side) for hop, (_, sides) in COMPACTION_HOPS.items() for side in sides]
SCRIPT: dict[str, Any] = {"rules": [{"when": "replaced by a summary", "reply": "They counted."}], "default": {"reply": "a number, and more of it"}}
AFTER = {("compaction.mark", "after"), ("compaction.put", "after")}
_TURNS = 6


def _compact(w: World, session: str) -> None:
    """Ask for it, and lose whom one asked."""
    with contextlib.suppress(BubblesError):
        w.ask("session.compact", session=session)


def test_killed_at_any_step_the_past_is_the_one_before_or_the_one_after(home: Home, tmp_path: Path, record_property: Any) -> None:
    with world(home, SCRIPT) as w:
        life = Life(w, tmp_path / "orders")
        w.start("modeld")
        life.start()
        after = 0
        for n, (hop, side) in enumerate(STEPS):
            session = f"s{n}"
            for k in range(_TURNS):
                w.say(f"Never forget AB-{n}-{k}. " + "word " * 60, session)
            doom.order(life.orders, "agentd", hop, side)
            asking = threading.Thread(target=_compact, args=(w, session), daemon=True)
            asking.start()
            w.running["agentd"].process.wait(60)
            left = tmp_path / f"{session}.jsonl"
            left.write_bytes((home.session(session) / "session.jsonl").read_bytes())
            past = History(left, session=session)
            is_after = HEAD.strip() in json.loads(past.lines[0])["content"]
            assert is_after == ((hop, side) in AFTER), (hop, side)
            assert len(past.lines) == 2 * _TURNS or is_after
            past.close()
            life.dies(hop, side)
            asking.join(60)  # it asks the successor once more
            assert w.say("go on", session).outcome == "replied"
            asked = next(b["messages"] for b in reversed(w.fake.seen()["bodies"]) if "go on" in b["messages"][-1]["content"])
            assert not context.check(asked)
            assert all(f"AB-{n}-{k}" in json.dumps(asked) for k in range(_TURNS)), (hop, side, "nothing is lost")
            assert sum("Never forget" in message["content"] for message in w.history(session) if message["role"] == "user") == _TURNS
            after += is_after
    record_property("told", f"{len(STEPS)} deaths in a compaction: {after} times the past after it, else the one before.")
