"""What is large goes all the way: an answer, a call's argument, a history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbles.errors import Usage
from bubbles.paths import Home
from tests.agentd.world import World, world

POEM = "这个目录有多大呢？" * 20_000  # 180 000 characters: more than a head may hold once they are escaped
BIG = "line of a file\n" * 333_334  # 5 MB


@pytest.mark.parametrize("stream", [True, False])
def test_a_long_answer_reaches_the_terminal(home: Home, stream: bool) -> None:
    with world(home, {"default": {"reply": POEM}}) as w:
        w.start()
        heard = w.say("recite", stream=stream)
        assert heard.outcome == "replied"
        assert heard.text == POEM
        assert heard.says() == [POEM]
        if stream:
            assert "".join(part["text"] for part in heard.parts if "text" in part) == POEM
        assert w.history()[-1] == {"role": "assistant", "content": POEM}
        assert w.fake.seen()["requests"] == 1
        assert w.say("again").text == POEM


def test_a_large_argument_reaches_its_tool(home: Home) -> None:
    calls = [{"name": "write_file", "arguments": {"path": "big.txt", "content": BIG}}]
    with world(home, {"rules": [{"when": "write", "times": 1, "calls": calls}], "default": {"reply": "written"}}) as w:
        w.start()
        heard = w.say("write it")
        assert (heard.outcome, heard.text) == ("replied", "written")
        assert (home.session("s") / "work" / "big.txt").read_text() == BIG
        assert w.fake.seen()["requests"] == 2


def write(w: World, sizes: list[int]) -> None:
    """A session of turns whose closing lines are of these sizes, and a damaged one among them."""
    w.start()
    w.say("hello")
    w.until(lambda: not w.journal())  # or what is appended by hand would stand between that turn's end and the end of the file
    w.kill("agentd")
    with (w.home.session("s") / "session.jsonl").open("a") as file:
        for n, size in enumerate(sizes):
            end = {"meta": "turn", "turn": f"t{n}", "outcome": "replied", "messages": [], "says": ["文" * (size // 3)], "at": 1.0, "end": True}
            file.write('{"role":"user","content":"q"}\n{"role":"assistant","content":"a"}\n')
            file.write(json.dumps(end, ensure_ascii=False, separators=(",", ":")) + "\n")
        file.write('{"meta":"turn","turn":"damaged\n')
        file.write('{"meta":"turn","turn":"last","outcome":"silent","messages":[],"says":[],"at":1.0,"end":true}\n')
    w.start("agentd")


def read(w: World, **body: Any) -> list[list[str]]:
    """The ids of the turns, page by page."""
    pages, after = [], body.pop("after", "")
    while True:
        reply = w.ask("session.history", session="s", after=after, **body)
        pages.append([turn["turn"] for turn in reply["turns"]])
        if not reply["more"]:
            return pages
        after = pages[-1][-1]


def test_a_long_history_comes_in_pages(home: Home) -> None:
    with world(home) as w:
        write(w, [1000] * 2000 + [3_000_000, 100, 600_000, 600_000])
        first, *_ = (pages := read(w))
        ids = [id for page in pages for id in page]
        assert ids[1:] == [*(f"t{n}" for n in range(2004)), "last"]
        assert 300 < len(first) < 525
        assert all(pages)
        assert ["t2000"] in pages  # too large for any page, and told all the same
        assert [id for page in read(w, limit=900) for id in page] == ids[-900:]
        assert [id for page in read(w, after="t1500") for id in page] == ids[ids.index("t1501") :]
        assert read(w, after="t2000", limit=2) == [["t2003"], ["last"]]
        assert read(w, after="last") == [[]]
        assert w.ask("session.history", session="never") == {"turns": [], "more": False}
        for wrong in ({"limit": "x"}, {"limit": -1}, {"limit": True}, {"after": 7}):
            with pytest.raises(Usage):
                w.ask("session.history", session="s", **wrong)
