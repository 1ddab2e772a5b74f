"""What tests/agentd/test_full_disk.py runs on a small disk of its own: `python -m tests.agentd.full_disk DIRECTORY`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from bubbles.errors import TryAgain
from bubbles.paths import Home
from tests.agentd.world import World, world


def fill(root: Path) -> Path:
    """Use up every byte."""
    filler = root / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    return filler


def refused_and_told(w: World, root: Path) -> None:
    filler = fill(root)
    with pytest.raises(TryAgain) as refused:
        w.put("too much")
    assert "df -h" in refused.value.remedy
    filler.unlink()


def waits_in_its_queue(w: World, root: Path) -> None:
    """The message is in its queue and there is no room for the journal."""
    pid = w.running["agentd"].pid
    os.kill(pid, signal.SIGSTOP)
    id = w.put("hello, is there room?")
    filler = fill(root)
    os.kill(pid, signal.SIGCONT)
    w.ring()
    w.until(lambda: any(path.stat().st_mtime > time.time() for path in (w.home.inbound("cli") / "new").iterdir()))
    filler.unlink()
    assert w.wait(id).text == "ok"


def nothing_that_happened_is_forgotten(w: World, root: Path) -> None:
    """The disk fills while the model thinks: its answer waits for room and is not asked for again."""
    w.fake.play({"default": {"reply": "late", "delay_s": 1.0}})
    id = w.put("slowly")
    w.ring()
    w.until(lambda: w.fake.seen()["open"])
    filler = fill(root)
    w.until(lambda: w.fake.seen()["requests"] and not w.fake.seen()["open"])
    w.until(lambda: w.ask("status")["troubles"])
    filler.unlink()
    assert w.wait(id).text == "late"
    assert w.fake.seen()["requests"] == 1


def main() -> None:
    root = Path(sys.argv[1])
    os.environ["BUBBLES_HOME"] = str(root / "home")
    home = Home.find()
    home.prepare()
    with world(home) as w:
        w.start()
        assert w.say("hello").text == "ok"
        for case in (refused_and_told, waits_in_its_queue, nothing_that_happened_is_forgotten):
            case(w, root)
        words = [m["text"] for end in w.ends() for m in end["messages"]]
        assert words == ["hello", "hello, is there room?", "slowly"], words
    print("held its ground")


if __name__ == "__main__":
    main()
