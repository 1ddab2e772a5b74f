"""What test_storage.py runs in a mount namespace of its own: `python -m tests.pains.read_only DIRECTORY`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bubbles.errors import BubblesError
from bubbles.paths import Home
from tests.agentd.world import World, world


def seal(path: Path) -> None:
    """Let a directory be read only, for root too."""
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)


def unseal(path: Path) -> None:
    subprocess.run(["umount", str(path)], check=True)


def one_session(w: World) -> None:
    """A session that cannot be written is waited for, and named; the others go on."""
    w.kill("agentd")
    seal(w.home.session("s"))
    w.start("agentd")
    id = w.put("while it was sealed")
    w.ring()
    assert w.say("and you?", "other").text == "ok"
    status = w.until(lambda: (found := w.ask("status"))["troubles"] + list(found["broken"]) and found)
    assert any("s" in what for what in [*status["troubles"], *status["broken"]])
    w.kill("agentd")
    unseal(w.home.session("s"))
    w.start("agentd")
    assert w.wait(id).text == "ok"
    assert [m["text"] for end in w.ends() for m in end["messages"]] == ["hello", "while it was sealed"]


def all_of_it(w: World) -> None:
    """A home that cannot be written is no reason to begin a new one: the refusal names it, and says what can be done."""
    w.kill("agentd")
    w.kill("modeld")
    seal(w.home.root)
    try:
        w.start("agentd")
    except BubblesError as error:
        refusal = error
    else:
        raise AssertionError("it started")
    unseal(w.home.root)
    assert str(w.home.root) in f"{refusal.text} {refusal.remedy}", repr(refusal)
    assert refusal.remedy
    w.start()
    assert w.say("and now?").text == "ok"


def main() -> None:
    os.environ["BUBBLES_HOME"] = str(Path(sys.argv[1]) / "home")
    home = Home.find()
    home.prepare()
    with world(home) as w:
        w.start()
        assert w.say("hello").text == "ok"
        for case in (one_session, all_of_it):
            case(w)
    print("held its ground")


if __name__ == "__main__":
    main()
