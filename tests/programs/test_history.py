"""`bubbles history --after`: a session polled from any place on is told without gaps and doubles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.kernel.context import encode
from bubbles.paths import Home
from bubbles.programs.cursor import Cursor, after
from bubbles.programs.history import told
from bubbles.sessions.history import History
from tests.programs.run import bubbles

Told = list[tuple[str, dict[str, Any]]]


class Session:
    """A session's file, written by who writes it in the product, and by what happens to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.history = History(path, session="s")

    def turn(self, size: int) -> None:
        self.count += 1
        said = [{"id": f"m{self.count}.{n}", "text": f"question {self.count} {n}", "at": 1.0} for n in range(size)]
        messages: list[dict[str, Any]] = [{"role": "user", "content": "\n\n".join(f"[then]\n{one['text']}" for one in said)}] if said else []
        messages += [{"role": "assistant", "content": f"answer {self.count} 你好"}]
        self.history.add_turn([encode(each) for each in messages], {"turn": f"t{self.count}", "outcome": "replied", "messages": said, "at": 2.0})

    def compaction(self, size: int) -> None:
        self.history.compact(f"summary {self.count}", min(size, len(self.history.lines)), 3.0)

    def heard(self, size: int) -> None:
        self.count += 1
        self.history.overhear(f"h{self.count}", "psst", "[then]", 4.0, {"channel": "telegram", "chat": "-5"})

    def anew(self, size: int) -> None:
        self.history.begin_anew(float(self.count))

    def unknown(self, size: int) -> None:
        self._write(b'{"meta":"of a later version"}\n')

    def damage(self, size: int) -> None:
        """A line that cannot be read, and after it a turn: all of it stays."""
        self._write(b"\xff damaged\n")
        self.turn(size)

    def crash(self, size: int) -> None:
        """agentd is killed while it writes a turn: what it wrote stays for a while, then it is cut off."""
        self._write(encode({"role": "user", "content": "never"}) + b"\n" + b'{"role":"assista'[:size])

    def restart(self, size: int) -> None:
        self.history.close()
        self.history = History(self.path, session="s")

    def _write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def poll(self, cursor: str = "") -> Told:
        with self.path.open("rb") as file:
            return [(str(place), message) for place, message in after(file, Cursor.parse(cursor) if cursor else None, told, remedy="")]


STEPS: list[Callable[[Session, int], None]] = [
    Session.turn, Session.turn, Session.compaction, Session.heard, Session.anew, Session.unknown, Session.damage, Session.crash, Session.restart,
]  # fmt: skip
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3), st.booleans()), max_size=25)


def grown(session: Session, wanted: list[tuple[Callable[[Session, int], None], int, bool]], look: Callable[[], None]) -> None:
    torn = False
    for step, size, looks in wanted:
        if torn and step is not Session.restart:  # whoever comes after a crash cuts off what it left
            session.restart(0)
        step(session, size)
        torn = step is Session.crash
        if looks:
            look()


@given(wanted=steps)
def test_polls_put_together_are_the_whole(tmp_path_factory: pytest.TempPathFactory, wanted: list[Any]) -> None:
    session = Session(tmp_path_factory.mktemp("history") / "session.jsonl")
    polled: Told = []

    def look() -> None:
        polled.extend(session.poll(polled[-1][0] if polled else ""))

    grown(session, wanted, look)
    look()
    assert polled == session.poll()


@settings(max_examples=40)
@given(wanted=steps, mended=st.booleans())
def test_from_every_place_the_rest_is_told(tmp_path_factory: pytest.TempPathFactory, wanted: list[Any], mended: bool) -> None:
    session = Session(tmp_path_factory.mktemp("history") / "session.jsonl")
    grown(session, wanted, lambda: None)
    whole = session.poll()
    if mended:  # by hand, so that nothing is where it was
        first, rest = session.path.read_bytes().split(b"\n", 1)
        session.path.write_bytes(first.replace(b'"name":"s"', b'"name":"another"') + b"\n" + rest)
    told_of = [message for _, message in whole]
    alike = [(c.split(".", 1)[1]) for c, _ in whole]
    for n, (cursor, _) in enumerate(whole):
        if not mended or alike.count(alike[n]) == 1:
            assert [message for _, message in session.poll(cursor)] == told_of[n + 1 :]


def test_a_poll_reads_nothing_that_was_told(tmp_path: Path) -> None:
    session = Session(tmp_path / "session.jsonl")
    for _ in range(50):
        session.turn(1)
    *_, (cursor, _) = session.poll()
    session.turn(1)
    read: list[bytes] = []

    def watched(lines: Any, start: int) -> Any:
        return told((read.append(line) or line for line in lines), start)  # type: ignore[func-returns-value]

    with session.path.open("rb") as file:
        assert len(list(after(file, Cursor.parse(cursor), watched, remedy=""))) == 2
    assert len(read) == 6


def test_a_turn_that_a_power_cut_took_and_that_was_written_again_is_not_told_twice(tmp_path: Path) -> None:
    session = Session(tmp_path / "session.jsonl")
    session.turn(1)
    before = session.path.read_bytes()
    session.turn(1)
    *_, (cursor, _) = session.poll()
    session.path.write_bytes(before)
    session.restart(0)
    session.count -= 1
    session.turn(1)
    assert session.poll(cursor) == []
    session.turn(1)
    assert [message["text"] for _, message in session.poll(cursor)] == ["question 3 0", "answer 3 你好"]


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_script_polls_by_the_last_cursor(home: Home) -> None:
    home.session("work").mkdir()
    session = Session(home.session("work") / "session.jsonl")
    for each in (session.turn, session.heard, session.anew, session.compaction):
        each(1)
    first = objects(bubbles("history", "work", "--after", "").stdout)
    assert [(m["role"], m["text"]) for m in first] == [
        ("user", "question 1 0"),
        ("assistant", "answer 1 你好"),
        ("heard", "psst"),
        ("mark", "new"),
        ("summary", "summary 2"),
    ]
    assert (first[2]["id"], first[2]["chat"], first[2]["at"]) == ("h2", "-5", 4.0)
    assert len({m["cursor"] for m in first}) == 5
    nothing = bubbles("history", "work", "--after", first[-1]["cursor"])
    assert (nothing.returncode, nothing.stdout) == (0, "")
    session.turn(1)
    assert [m["text"] for m in objects(bubbles("history", "work", "--after", first[-1]["cursor"]).stdout)] == ["question 3 0", "answer 3 你好"]
    assert "question 3 0" in bubbles("scan", stdin=bubbles("history", "work").stdout).stdout


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (("--after", "0.0.abcdefabcdef"), 65, "does not hold what the cursor stands for"),
        (("--after", "99999999.0.abcdefabcdef"), 65, "bubbles history work, which begins at the beginning"),
        (("--after", "t1"), 65, "'t1' is no cursor"),
        (("--after", "-1.0.abcdefabcdef"), 65, "is no cursor"),
        (("--after", "", "-n", "1"), 64, "| head -n COUNT"),
    ],
)
def test_what_is_no_place_of_this_history_is_told(home: Home, argv: tuple[str, ...], status: int, said: str) -> None:
    home.session("work").mkdir()
    Session(home.session("work") / "session.jsonl").turn(1)
    done = bubbles("history", "work", *argv)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "  try: " in done.stderr


def test_a_newer_history_is_not_polled_either(home: Home) -> None:
    home.session("work").mkdir()
    session = Session(home.session("work") / "session.jsonl")
    session.turn(1)
    *_, (cursor, _) = session.poll()
    data = session.path.read_bytes()
    session.path.write_bytes(data.replace(b'"version":1', b'"version":9'))
    assert bubbles("history", "work", "--after", cursor).returncode == 78
