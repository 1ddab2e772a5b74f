"""What was seen of a session, and what was not."""

from __future__ import annotations

import json
from typing import Any

from bubbles.paths import Home
from bubbles.programs.terminal.seen import Exchange, Seen


def turn(n: int, outcome: str = "replied") -> bytes:
    lines: list[dict[str, Any]] = [
        {"role": "user", "content": f"[header]\nquestion {n}"},
        {"role": "assistant", "content": f"answer {n}"},
        {"meta": "turn", "turn": f"t{n}", "outcome": outcome, "messages": [{"id": f"t{n}", "text": f"question {n}"}], "says": [f"answer {n}"]},
    ]
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def exchange(n: int) -> Exchange:
    return Exchange(f"t{n}", [f"question {n}"], [f"answer {n}"], "")


def test_only_what_came_since_is_missed(home: Home) -> None:
    path = home.session("work") / "session.jsonl"
    path.parent.mkdir()
    seen = Seen(home, "work")
    assert (seen.mark, seen.size, seen.missed()) == (0, 0, [])
    path.write_bytes(b'{"format":"bubbles.history","version":1}\n' + turn(1))
    assert seen.missed() == [exchange(1)]
    seen.up_to(seen.size)
    assert seen.missed() == []
    with path.open("ab") as file:
        file.write(turn(2) + turn(3) + b'{"role":"user","content":"torn')
    assert seen.missed() == [exchange(2), exchange(3)]


def test_a_history_that_became_shorter_is_seen_from_its_beginning(home: Home) -> None:
    path = home.session("work") / "session.jsonl"
    path.parent.mkdir()
    path.write_bytes(turn(1))
    seen = Seen(home, "work")
    seen.up_to(10_000)
    assert seen.missed() == [exchange(1)]


def test_a_mark_that_cannot_be_kept_or_read_is_no_error(home: Home) -> None:
    (home.root / "channels").write_text("not a directory")
    seen = Seen(home, "work")
    seen.up_to(5)
    assert seen.mark == 0


def test_a_damaged_line_is_passed_over(home: Home) -> None:
    path = home.session("work") / "session.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"meta":"turn" broken\n' + turn(1))
    assert Seen(home, "work").missed() == [exchange(1)]
