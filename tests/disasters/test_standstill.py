"""agentd stands still (SIGSTOP) while people write, a channel brings words and a job comes due: all of it is answered afterwards, once."""

from __future__ import annotations

import threading
import time

from bubbles.bus.dial import Dial
from bubbles.errors import Unavailable
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.world import World, world
from tests.disasters.soak import SOAK
from tests.disasters.test_modeld import stopped

STILL_S = 30 if SOAK else 2.5


def test_what_comes_meanwhile_is_answered_once(home: Home) -> None:
    with world(home, {"rules": [{"when": "slowly", "reply": "slow", "delay_s": 0.5}], "default": {"reply": "ok"}}) as w:
        w.start("modeld", "agentd", "cron")
        running = w.put("slowly", "a")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        with Dial(home, "cron") as cron:
            job = cron.call("job.add", {"name": "j", "message": "tick", "session": "c", "schedule": {"kind": "at", "at": time.time() + 1}})[0]
        with stopped(w, "agentd"):
            words = [w.put(f"word {n}", "a") for n in range(3)]
            said = [w.put(f"from outside {n}", "42", queue="plat") for n in range(2)]
            caller = Waiter(w, words[0])
            w.until(lambda: Queue(home.inbound("cron")).find(f"cron-{job['id']}-{int(job['next'])}") == "new")
            caller.thread.join(STILL_S)
        assert caller.waits_or_was_told()
        for id in (running, *words):
            assert w.wait(id, "a").outcome == "replied"
        for id in said:
            assert w.wait(id, "plat-42").outcome == "replied"
        w.until(lambda: w.ends("c"))
        assert sorted(m["text"] for end in w.ends("a") for m in end["messages"]) == ["slowly", "word 0", "word 1", "word 2"]
        assert [m["text"] for end in w.ends("c") for m in end["messages"]] == ["tick"]
        replies = list(Queue(home.outbound("plat")).list("new"))
        assert len({item.id for item in replies}) == len(replies) == len(w.ends("plat-42"))
        assert w.ask("status")["open"] == 0


class Waiter:
    """Somebody who asks while agentd stands still."""

    def __init__(self, w: World, message: str) -> None:
        self.told: BaseException | None = None
        self._w = w
        self._message = message
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        try:
            self._w.wait(self._message, "a")
        except Unavailable as error:
            self.told = error

    def waits_or_was_told(self) -> bool:
        """It waits for as long as a silence is borne, and then says what is the matter."""
        if SOAK:
            return isinstance(self.told, Unavailable) and bool(self.told.remedy)
        self.thread.join(30)
        return self.told is None and not self.thread.is_alive()


def test_the_order_of_words_is_kept(home: Home) -> None:
    with world(home, {"default": {"reply": "ok"}}) as w:
        w.start()
        with stopped(w, "agentd"):
            words = [w.put(f"word {n}") for n in range(20)]
        w.ring()
        for id in words:
            w.wait(id)
        assert [m["text"] for end in w.ends() for m in end["messages"]] == [f"word {n}" for n in range(20)]
