"""A pipe in the place of a file of the home holds no program up: it is told of, or passed over like any file that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bubbles.messages import Inbound, to_dict
from bubbles.paths import Home
from bubbles.programs.terminal.seen import Seen, exchanges
from bubbles.spool import Queue
from tests.programs.run import bubbles


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


@pytest.fixture
def town(home: Home) -> Home:
    """A home with a message that was handled: whoever asks for it looks through journals and histories."""
    queue = Queue(home.inbound("cli"))
    queue.put("m", to_dict(Inbound("m", 1.0, "cli", "a", "hello", session="a")), sync=False)
    queue.claim("m")
    queue.finish("m")
    return home


@pytest.mark.parametrize(
    ("place", "argv", "code", "said"),
    [
        ("sessions/a/session.jsonl", ["history", "a"], 65, "session.jsonl: not a regular file"),
        ("sessions/a/session.jsonl", ["queue", "show", "m"], 0, '"state":"done"'),
        ("turns/b.jsonl", ["queue", "show", "m"], 0, '"state":"done"'),
        ("turns/held/t.jsonl", ["queue", "list", "turns"], 0, "it cannot be read: not a regular file"),
        ("turns/held/t.jsonl", ["queue", "show", "t"], 1, "not found"),
        ("spool/inbound/cli/new/n.json", ["queue", "list"], 0, ""),
        ("cron/jobs.json", ["cron", "list"], 78, "jobs.json"),
        ("config.json", ["models", "list"], 78, "config.json: not a regular file"),
        ("cron/jobs.json", ["agentd", "--once"], 0, "agentd ends"),
        ("chats.json", ["agentd", "--once"], 78, "chats.json"),
        ("run/tidied", ["tidy"], 0, ""),
        ("turns/held/t.jsonl", ["tidy"], 0, ""),
        ("turns/b.jsonl", ["tidy"], 0, ""),
        ("run/agentd.lock", ["tidy"], 0, ""),
    ],
)
def test_a_program_ends(town: Home, place: str, argv: list[str], code: int, said: str) -> None:
    pipe(town.root / place)
    done = bubbles(*argv, timeout_s=30)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert done.returncode == 0 or "  try: " in done.stderr
    assert "Traceback" not in done.stderr


def test_agentd_holds_the_words_for_a_session_that_cannot_be_used_and_goes_on(home: Home) -> None:
    pipe(home.session("a") / "config.json")
    pipe(home.run / "lent" / "a" / "loan")
    pipe(home.run / "alerts.json")
    queue = Queue(home.inbound("cli"))
    queue.put("n", to_dict(Inbound("n", 1.0, "cli", "a", "hello", session="a")), sync=False)
    done = bubbles("agentd", "--once", timeout_s=30)
    assert done.returncode == 0, done.stderr
    assert queue.find("n") == "held"


def test_a_terminal_that_was_away_has_missed_nothing(home: Home) -> None:
    pipe(home.session("a") / "session.jsonl")
    pipe(home.root / "channels" / "cli" / "a.seen")
    seen = Seen(home, "a")
    assert (seen.mark, seen.missed(), list(exchanges(home.session("a") / "session.jsonl", 0))) == (0, [], [])
