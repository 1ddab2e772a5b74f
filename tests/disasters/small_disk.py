"""What test_full_disk.py runs on a small disk of its own: `python -m tests.disasters.small_disk DIRECTORY`.

The disk fills while words wait, while a reply is about to be said and while a turn closes, and agentd is killed and started on
the full disk. tests/agentd/full_disk.py has what a running agentd does about one that fills and empties.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bubbles.errors import BubblesError, TryAgain
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.full_disk import fill
from tests.agentd.world import World, world


def accepted_words_survive_a_restart_on_a_full_disk(w: World, root: Path) -> None:
    """What was accepted before is answered after, though agentd was killed and could not even start meanwhile."""
    w.kill("agentd")
    ids = [w.put(f"accepted {n}") for n in range(3)]
    filler = fill(root)
    error = refused(w)
    filler.unlink()
    if error is not None:
        assert isinstance(error, TryAgain), repr(error)
        assert error.remedy
        w.start("agentd")
    w.ring()
    assert [w.wait(id).outcome for id in ids] == ["replied"] * 3


def refused(w: World) -> BubblesError | None:
    """Try to start agentd: None where it is up, else what it says."""
    try:
        w.start("agentd")
    except BubblesError as error:
        return error
    return None


def a_reply_waits_for_room(w: World, root: Path) -> None:
    """The model answers a channel's words while the disk is full: the answer waits, is put once, and is not asked for again."""
    w.fake.play({"default": {"reply": "for outside", "delay_s": 0.7}})
    w.put("from outside", "42", queue="plat")
    w.ring()
    w.until(lambda: w.fake.seen()["open"])
    filler = fill(root)
    w.until(lambda: w.ask("status")["troubles"])
    filler.unlink()
    w.until(lambda: w.ends("plat-42"))
    w.until(lambda: list(Queue(w.home.outbound("plat")).list("new")))  # what is said stands in the history first
    replies = list(Queue(w.home.outbound("plat")).list("new"))
    assert [item.body["text"] for item in replies] == ["for outside"]
    assert w.fake.seen()["requests"] == 1


def killed_while_an_answer_waits_for_room(w: World, root: Path) -> None:
    """An answer that could not be written anywhere is asked for again; the words are where they were."""
    w.fake.play({"default": {"reply": "again", "delay_s": 0.7}})
    id = w.put("and killed")
    w.ring()
    w.until(lambda: w.fake.seen()["open"])
    filler = fill(root)
    w.until(lambda: not w.fake.seen()["open"])
    w.kill("agentd")
    filler.unlink()
    w.start("agentd")
    assert w.wait(id).text == "again"


def main() -> None:
    root = Path(sys.argv[1])
    os.environ["BUBBLES_HOME"] = str(root / "home")
    home = Home.find()
    home.prepare()
    with world(home) as w:
        w.start()
        assert w.say("hello").text == "ok"
        for case in (accepted_words_survive_a_restart_on_a_full_disk, a_reply_waits_for_room, killed_while_an_answer_waits_for_room):
            case(w, root)
        words = [m["text"] for end in w.ends() for m in end["messages"]]
        assert words == ["hello", "accepted 0", "accepted 1", "accepted 2", "and killed"], words
    print("held its ground")


if __name__ == "__main__":
    main()
