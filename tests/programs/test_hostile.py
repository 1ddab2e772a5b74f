"""What a chat, a tool or a model wrote reaches a person's terminal as text, by whatever program: nothing of it acts on the screen."""

from __future__ import annotations

import json
import os
import pty
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import log
from bubbles.messages import Outbound, to_dict
from bubbles.paths import Home
from bubbles.programs import facts, lines
from bubbles.programs.scan import rendered
from bubbles.programs.screen import Block, plain
from bubbles.spool import Queue
from tests.programs.run import BIN
from tests.test_log import HOSTILE

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WORDS = st.text(alphabet=HOSTILE, max_size=30)
LEAF = WORDS | st.integers() | st.none()
VALUES = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6)
# All that a terminal acts upon, and sequences of it: clear the screen, name the window, go to the first column.
STEERING = "".join(map(chr, (*range(1, 32), *range(127, 160)))) + "\x1b[2J\x1b]0;t\x07\x9b1G\u061c\u200e\u2028\u202e\u2066\U000e0041 words"


def acts(text: str) -> list[str]:
    """What of `text` a terminal would act upon, blanks and the ends of lines apart."""
    return log._STEERS.findall(re.sub(r"\r?\n|\t", "", COLOUR.sub("", text)))


@given(VALUES)
def test_an_object_that_is_printed(value: Any) -> None:
    assert acts(lines.rendered(value)) == []
    assert "\n" not in lines.rendered(value)


NAMES = st.sampled_from(["at", "topic", "session", "turn", "role", "state", "kind", "event", "text", "message", "calls", "id", "why", "name"])


@given(st.dictionaries(NAMES, VALUES), st.integers(0, 100))
def test_an_object_that_is_rendered(body: dict[str, Any], width: int) -> None:
    line = rendered(body, width)
    assert acts(line) == []
    assert "\n" not in line


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_how_things_stand(cells: list[str]) -> None:
    block = Block()
    block.add_with_remedy(*cells[:1], " ".join(cells), cells[-1], mark="bad")
    assert acts("\n".join(plain([block]))) == []


@given(WORDS, WORDS, WORDS)
def test_what_is_known_of_a_message(id: str, text: str, why: str) -> None:
    line = {"id": id, "queue": "outbound/x", "state": "held", "why": why, "text": text, "accepted": {"at": 1.0}}
    assert acts(facts.table({**line, "answered": {"outcome": why, "turn": id, "session": text}})) == []


@pytest.fixture
def town(home: Home) -> Home:
    """A home in which everything that others wrote is hostile."""
    queue = Queue(home.outbound("telegram"))
    queue.prepare()
    message = Outbound(id="m-1", at=1.0, channel="telegram", chat=STEERING, text=STEERING, session=STEERING, turn=STEERING)
    queue.put("m-1", to_dict(message))
    queue.claim("m-1")
    queue.hold("m-1", STEERING)
    (home.turns / "held").mkdir()
    (home.turns / "held" / "t-1.jsonl").write_text(json.dumps({"turn": STEERING, "session": STEERING}) + "\n")
    path = home.session("work") / "session.jsonl"
    path.parent.mkdir()
    said = [{"id": STEERING, "text": STEERING, "at": 1.0}]
    turn = [
        {"format": "bubbles.history", "version": 1, "session": "work"},
        {"role": "user", "content": STEERING},
        {"role": "assistant", "content": STEERING, "tool_calls": [{"id": STEERING, "function": {"name": STEERING, "arguments": STEERING}}]},
        {"role": "tool", "tool_call_id": STEERING, "content": STEERING},
        {"meta": "turn", "turn": STEERING, "at": 2.0, "messages": said},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in turn))
    (home.session("work") / "config.json").write_text(json.dumps({"model": STEERING}))
    (home.log / "agentd.jsonl").write_text(json.dumps({"at": 5, "priority": 4, "program": STEERING, "event": STEERING, "message": STEERING}) + "\n")
    home.config.write_text(json.dumps({"agents": {"defaults": {"model": "custom/m"}}, STEERING: 1}))
    home.config.chmod(0o600)
    return home


@pytest.mark.parametrize(
    "argv",
    [
        ["history", "work"],
        ["history", STEERING.replace("\0", "")],
        ["queue", "list", "--state", "held"],
        ["queue", "list", "turns"],
        ["queue", "show", "m-1", STEERING],
        ["status"],
        ["status", "--json"],
        ["channels", "status"],
        ["audit"],
        ["audit", "--full"],
        ["audit", "--json"],
        ["audit", "--event", STEERING],
        ["send", f"{STEERING}:1", "hi"],
    ],
    ids=lambda argv: " ".join(argv[:2]) if "words" not in argv[-1] else f"{argv[0]}, called so",
)
def test_a_program_at_a_terminal(town: Home, argv: list[str]) -> None:
    shown = at_terminal(*argv)
    assert shown
    assert acts(shown) == []


def at_terminal(*argv: str) -> str:
    """What a terminal was sent by a program."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(BIN / "bubbles", ["bubbles", *argv], {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"})
    shown = b""
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(fd)
    os.waitpid(pid, 0)
    return shown.decode()
