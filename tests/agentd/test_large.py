"""What is large goes all the way: an answer, a call's argument, a history."""

from __future__ import annotations

import pytest

from bubbles.paths import Home
from tests.agentd.world import world

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
