"""What a turn leaves in the log: each step under its session and turn, with what it was about; the table of events is not only a table."""

from __future__ import annotations

from bubbles import log
from bubbles.paths import Home
from bubbles.programs.entries import Entry, Wanted, read
from tests.agentd.test_chain import call
from tests.agentd.world import world


def told(home: Home, *events: str, **wanted: tuple[str, ...]) -> list[Entry]:
    return list(read(home, Wanted(events=events, **wanted)))


def test_a_turn_is_told_step_by_step(home: Home) -> None:
    long = "seq 1 2000"
    script = {
        "rules": [{"when": "go", "times": 1, "calls": [call("exec", command=long), call("read_file", path="/etc/shadow")]}],
        "default": {"reply": "done"},
    }
    with world(home, script) as w:
        w.start()
        id = w.put("go")
        w.ring()
        assert w.wait(id).text == "done"
        w.until(lambda: told(home, "turn.close"))
    found = list(read(home, Wanted(turns=(id,))))
    assert {one.session for one in found if one.program == "agentd"} == {"s"}
    tools = ["tool.start", "tool.start", "tool.finish", "tool.finish", "tool.refuse"]
    steps = ["turn.start", "model.ask", "model.answer", *tools, "model.ask", "model.answer"]
    assert sorted(one.event for one in found if one.program == "agentd") == sorted([*steps, "message.out", "turn.close"])
    by = {(one.event, one.tool): one for one in found}
    assert by["turn.start", ""].channel == "cli"
    assert by["turn.start", ""].fields["message_id"] == id
    assert by["model.ask", ""].fields["ask"] == f"{id}.1"
    assert int(by["model.answer", ""].fields["ms"]) >= 0
    assert by["model.answer", ""].fields["model"]
    assert by["model.answer", ""].message == "done"
    assert long in by["tool.start", "exec"].message
    result = by["tool.finish", "exec"]
    assert result.message.startswith("exec ok: 1\n2\n")
    assert result.message.endswith("more characters)")
    assert "file:rlimit" in result.fields["limits"].split()
    assert "limits" not in by["tool.finish", "read_file"].fields
    assert result.fields["call"] == by["tool.start", "exec"].fields["call"]
    assert "/etc/shadow is outside the workspace" in by["tool.refuse", "read_file"].message
    assert by["tool.refuse", "read_file"].priority == 4
    assert (by["message.out", ""].channel, by["message.out", ""].fields["message_id"]) == ("cli", id)
    (arrived,) = told(home, "message.in")
    assert (arrived.session, arrived.channel, arrived.fields["message_id"]) == ("s", "cli", id)


def test_a_key_that_a_cut_would_go_through_leaves_nothing_in_the_log(home: Home) -> None:
    """Each place that tells only the beginning of what somebody wrote, a model said or a tool found."""
    token = "123456789:AAHk5xabcdefghijklmnopqrstuvwxyz_12"
    script = {
        "rules": [{"when": "go", "times": 1, "calls": [call("exec", command=f"printf '%01960d {token} and so on' 0")]}],
        "default": {"reply": f"{'b' * 170} {token} and so on"},
    }
    with world(home, script) as w:
        w.start()
        id = w.put(f"go {'a' * 160} {token} and so on")
        w.ring()
        assert token in w.wait(id).text
        second = w.put(f"say {'a' * 160} {token} and so on", "42", queue="test")
        w.ring()
        w.until(lambda: told(home, "turn.close", turns=(second,)))
    found = "\n".join(path.read_text() for path in home.log.glob("*.jsonl"))
    assert not [token[n : n + 6] for n in range(9, len(token) - 5) if token[n : n + 6] in found]
    struck = {one.event for one in read(home) if log.STRUCK in one.message}
    assert struck >= {"message.in", "turn.start", "tool.finish", "model.answer", "message.out"}


def test_what_leaves_by_a_queue_is_told_once_under_its_own_id_and_a_failure_with_who_is_told(home: Home) -> None:
    with world(home, {"rules": [{"when": "fail", "status": 500}], "default": {"reply": "hello"}}) as w:
        w.start()
        first = w.put("hi", "42", queue="test")
        w.ring()
        w.until(lambda: told(home, "turn.close", turns=(first,)))
        second = w.put("fail", "42", queue="test")
        w.ring()
        w.until(lambda: told(home, "turn.close", turns=(second,)))
    (reply,) = told(home, "message.out", turns=(first,))
    assert (reply.channel, reply.session, reply.fields["message_id"], reply.fields["origin"]) == ("test", "test-42", f"{first}.0.0", "reply")
    assert reply.message == "test:42 hello"
    (apology,) = told(home, "apology.sent")
    assert (apology.turn, apology.channel, apology.fields["message_id"]) == (second, "test", second)
    (sent,) = told(home, "message.out", turns=(second,))
    assert sent.fields["origin"] == "apology"
    failures = told(home, "model.fail", turns=(second,))
    assert {one.program for one in failures} == {"agentd", "modeld"}
    assert all(one.fields["ask"] == f"{second}.0" for one in failures)
