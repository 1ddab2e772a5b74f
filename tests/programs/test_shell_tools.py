"""The tools of a shell, alone and in the pipelines that the documentation promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bubbles import bus
from bubbles.bus import is_running
from bubbles.messages import Inbound, Outbound, to_dict
from bubbles.paths import Home
from bubbles.programs import lines as lines_
from bubbles.programs import tail
from bubbles.programs.history import messages
from bubbles.programs.scan import rendered
from bubbles.programs.tail import prefix
from bubbles.spool import Queue
from tests.programs.conftest import Place
from tests.programs.run import BIN, bubbles


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def shell(pipeline: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a pipeline in which `bubbles` is ours."""
    path = f"{BIN}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {pipeline}"], env={**os.environ, **env, "PATH": path}, capture_output=True, text=True, timeout=60
    )


def inbound(home: Home, id: str, text: str = "hello", at: float = 1.0) -> Queue:
    queue = Queue(home.inbound("telegram"))
    queue.prepare()
    queue.put(id, to_dict(Inbound(id, at, "telegram", "42", text)), sync=False)
    return queue


def looked_after(home: Home, channel: str = "telegram") -> None:
    """Make its queue, as the program does that delivers what is put there."""
    Queue(home.outbound(channel)).prepare()


def held(home: Home, *names: str) -> Queue:
    for name in names:
        queue = inbound(home, name)
        queue.claim(name)
        queue.hold(name, "nobody knows this chat")
    return queue


# -- send ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["telegram:42", "slack:C1/7"])
def test_send_refuses_what_no_channel_would_deliver(home: Home, address: str) -> None:
    done = bubbles("send", address, "hello")
    channel = address.partition(":")[0]
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == f"bubbles: the channel {channel} is not built yet\n  try: the terminal is what works today: bubbles ask -s NAME TEXT\n"
    assert not home.outbound(channel).exists()


def test_send_puts_a_message_where_its_channel_finds_it(home: Home) -> None:
    looked_after(home)
    done = bubbles("send", "telegram:42", "the", "backup is done")
    (told,) = objects(done.stdout)
    assert (done.returncode, told["queue"], told["state"]) == (0, "outbound/telegram", "new")
    assert done.stderr == "bubbles: telegram is not running; its queue keeps what was put there\n"
    (item,) = Queue(home.outbound("telegram")).list("new")
    assert (item.id, item.body["text"], item.body["chat"], item.body["origin"]) == (told["id"], "the backup is done", "42", "shell")


def test_send_takes_text_and_lines_from_standard_input(home: Home) -> None:
    looked_after(home, "slack")
    bubbles("send", "slack:C1", stdin="two\nlines\n")
    lines = '{"text":"first","id":"a","thread":"7"}\n\n{"text":"second","other":1}\n'
    assert [told["id"] for told in objects(bubbles("send", "--json", "slack:C1", stdin=lines).stdout)][0] == "a"
    found = [(item.body["text"], item.body["thread"]) for item in Queue(home.outbound("slack")).list("new")]
    assert found == [("two\nlines", ""), ("first", "7"), ("second", "")]


def test_send_under_one_id_sends_once_and_never_something_else(home: Home) -> None:
    looked_after(home)
    assert bubbles("send", "--id", "backup-1", "telegram:42", "done").returncode == 0
    again = bubbles("send", "--id", "backup-1", "telegram:42", "done")
    assert (again.returncode, objects(again.stdout)[0]["id"]) == (0, "backup-1")
    other = bubbles("send", "--id", "backup-1", "telegram:42", "failed")
    assert other.returncode == 65
    assert "another content" in other.stderr
    assert len(list(Queue(home.outbound("telegram")).list("new"))) == 1


@pytest.mark.parametrize(
    ("argv", "stdin", "status"),
    [
        (["nowhere"], "", 64),
        (["fax:42", "hi"], "", 64),
        (["cli:work", "hi"], "", 64),
        (["telegram:42"], "  \n", 65),
        (["--json", "telegram:42"], "{}\n", 65),
        (["--json", "telegram:42"], "[]\n", 65),
        (["--json", "telegram:42"], '{"text":7}\n', 65),
        (["--json", "telegram:42", "hi"], "", 64),
    ],
)
def test_send_refuses_what_is_no_message(argv: list[str], stdin: str, status: int, home: Home) -> None:
    looked_after(home)
    done = bubbles("send", *argv, stdin=stdin)
    assert (done.returncode, done.stdout) == (status, "")
    assert "Traceback" not in done.stderr


def test_send_knows_the_platforms_that_the_configuration_knows() -> None:
    from bubbles.config.channels import Channels, Platform
    from bubbles.programs.send import PLATFORMS

    known = [name for name, field in Channels.model_fields.items() if isinstance(field.annotation, type) and issubclass(field.annotation, Platform)]
    assert sorted(PLATFORMS) == sorted(known)


# -- queue -----------------------------------------------------------------------------------------


def test_queue_lists_what_waits_and_what_is_held(home: Home) -> None:
    inbound(home, "telegram-1")
    held(home, "telegram-2")
    Queue(home.outbound("slack")).put("turn.0.0", to_dict(Outbound("turn.0.0", 1.0, "slack", "C1", "hi")), sync=False)
    found = objects(bubbles("queue", "list").stdout)
    assert [(line["id"], line["queue"], line["state"]) for line in found] == [
        ("telegram-1", "inbound/telegram", "new"),
        ("telegram-2", "inbound/telegram", "held"),
        ("turn.0.0", "outbound/slack", "new"),
    ]
    assert found[1]["why"] == "nobody knows this chat"
    assert found[0]["message"]["text"] == "hello"
    assert [line["id"] for line in objects(bubbles("queue", "list", "outbound").stdout)] == ["turn.0.0"]
    assert [line["id"] for line in objects(bubbles("queue", "list", "--state", "held", "inbound/telegram").stdout)] == ["telegram-2"]
    assert bubbles("queue", "list", "inbound/slack").stdout == ""
    assert bubbles("queue", "list", "../x").returncode == 64
    assert bubbles("queue", "list", "inbound/..").returncode == 64


def test_queue_shows_a_message_wherever_it_is(home: Home) -> None:
    queue = inbound(home, "telegram-1")
    queue.claim("telegram-1")
    queue.finish("telegram-1")
    (line,) = objects(bubbles("queue", "show", "telegram-1").stdout)
    assert (line["state"], line["message"]["text"]) == ("done", "hello")
    missing = bubbles("queue", "show", "telegram-1", "nothing")
    assert (missing.returncode, missing.stderr) == (
        1,
        "bubbles: nothing: not found\n  try: bubbles queue list | bubbles scan; with --state done those that were handled\n",
    )


@pytest.mark.parametrize("verb", ["release", "drop"])
def test_whoever_names_a_message_and_no_queue_is_told_where_it_lies(home: Home, verb: str) -> None:
    held(home, "telegram-1")
    done = bubbles("queue", verb, "telegram-1")
    assert done.returncode == 64
    assert f"bubbles queue {verb} inbound/telegram telegram-1" in done.stderr
    assert bubbles("queue", verb, "inbound/telegram", "telegram-1").returncode == 0


def test_held_messages_are_released_by_a_pipeline(home: Home) -> None:
    queue = held(home, "telegram-1", "telegram-2")
    inbound(home, "telegram-3")
    done = shell("bubbles queue list inbound | jq -r 'select(.state==\"held\").id' | bubbles queue release inbound")
    if "jq: command not found" in done.stderr:
        done = shell("bubbles queue list --state held inbound | bubbles queue release inbound")
    assert [(line["id"], line["state"]) for line in objects(done.stdout)] == [("telegram-1", "new"), ("telegram-2", "new")]
    assert [item.id for item in queue.list("new")] == ["telegram-3", "telegram-1", "telegram-2"]


def test_drop_keeps_a_message_from_being_handled_and_from_coming_back(home: Home) -> None:
    queue = held(home, "telegram-1")
    done = bubbles("queue", "drop", "inbound", stdin='{"id":"telegram-1"}\nunknown\n')
    assert done.returncode == 1
    assert objects(done.stdout) == [{"id": "telegram-1", "queue": "inbound/telegram", "state": "done"}]
    assert done.stderr == "bubbles: unknown: neither held nor waiting\n  try: bubbles queue list inbound | bubbles scan\n"
    assert queue.find("telegram-1") == "done"
    assert bubbles("queue", "release", "inbound", "telegram-1").returncode == 1


@pytest.mark.parametrize("call", [("ask", "-s", "s"), ("agent", "-s", "s"), ("agent", "-s", "s", "-m", "-"), ("send", "telegram:42")])
def test_more_than_a_megabyte_is_no_message(home: Home, call: tuple[str, ...]) -> None:
    looked_after(home)
    done = bubbles(*call, stdin=b"x" * 1_000_001)
    assert (done.returncode, done.stdout) == (65, "")
    assert done.stderr.startswith("bubbles: a message has 1 MB at most\n  try: put it in a file")
    assert call[0] == "send" or str(home.session("s") / "data") in done.stderr
    assert is_running(home, "agentd") is None
    assert bubbles("queue", "list").stdout == ""


def test_a_megabyte_is_a_message_and_bytes_count(home: Home) -> None:
    looked_after(home)
    assert bubbles("send", "telegram:42", stdin=b"x" * 1_000_000).returncode == 0
    wide = json.dumps({"text": "\u00e9" * 500_001})
    assert bubbles("send", "--json", "telegram:42", stdin=wide).returncode == 65
    assert len(list(Queue(home.outbound("telegram")).list("new"))) == 1


STEERING = "\x7f\x9b2J\u202egnp.exe\u2066\u2028\u200f\U000e0041"


def test_no_object_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines_.put({"text": f"caf\u00e9 \U0001f600 {STEERING}\ud800"})
    (line,) = capsys.readouterr().out.split("\n")[:-1]
    assert line.startswith('{"text":"caf\u00e9 \U0001f600 \\u007f\\u009b2J\\u202egnp')
    assert not set(line) & (set(STEERING) - set("2Jgnp.exe"))
    assert json.loads(line)["text"].endswith(f"{STEERING}\ud800")


# -- history and scan ------------------------------------------------------------------------------


def line(**body: Any) -> bytes:
    return json.dumps(body).encode() + b"\n"


def test_history_tells_each_persons_words_by_themselves() -> None:
    history = [
        line(format="bubbles.history", version=1, session="work"),
        line(role="user", content="[Mon · cli]\nhello\n\n[Mon · cli]\nand this"),
        line(role="assistant", content="", tool_calls=[{"id": "c1", "type": "function", "function": {"name": "exec", "arguments": "{}"}}]),
        line(role="tool", tool_call_id="c1", content="ok"),
        line(role="user", content="[Tue · cli]\nlater"),
        line(role="assistant", content="done"),
        b"damaged\n",
        line(meta="turn", turn="t1", at=2.0, messages=[{"id": f"m{n}", "text": t, "at": 1.0} for n, t in enumerate(["hello", "and this", "later"])]),
        line(meta="compaction", summary="they said hello", kept=2, at=3.0),
        line(role="user", content="of a turn that never ended"),
    ]
    found = list(messages(history))
    assert [(m["role"], m["text"]) for m in found] == [
        ("user", "hello"),
        ("user", "and this"),
        ("assistant", ""),
        ("tool", "ok"),
        ("user", "later"),
        ("assistant", "done"),
        ("summary", "they said hello"),
    ]
    assert [m["id"] for m in found[:3]] == ["m0", "m1", "t1.1"]
    assert found[2]["calls"] == [{"id": "c1", "name": "exec", "arguments": "{}"}]
    assert found[3]["call"] == "c1"


def test_history_counts_and_refuses(home: Home) -> None:
    path = home.session("work") / "session.jsonl"
    path.parent.mkdir()
    turns = [line(role="user", content=f"q{n}") + line(meta="turn", turn=f"t{n}", messages=[]) for n in range(5)]
    path.write_bytes(line(format="bubbles.history", version=1) + b"".join(turns))
    assert [m["text"] for m in objects(bubbles("history", "-n", "2", "work").stdout)] == ["q3", "q4"]
    for name, instead in (("play", "bubbles history work"), ("wrok", "bubbles history work")):
        missing = bubbles("history", name)
        assert (missing.returncode, missing.stderr) == (1, f"bubbles: there is no session {name!r}\n  try: {instead}\n")
    path.write_bytes(line(format="bubbles.history", version=99))
    assert bubbles("history", "work").returncode == 78


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"role": "user", "session": "work", "text": "hi\nyou"}, "work                     user      hi ⏎ you"),
        ({"topic": "cli/main/tool", "kind": "tool", "tool": {"hint": "exec()", "state": "start"}}, "cli/main/tool            tool      exec()"),
        ({"topic": "cli/main/text", "kind": "text", "text": "abc"}, "cli/main/text            text      abc"),
        (
            {"id": "m", "queue": "inbound/x", "state": "held", "why": "bad", "message": {"text": "t"}},
            "inbound/x                held      m · t · bad",
        ),
        ({"id": "4a", "name": "mail", "session": "s", "schedule": {}, "text": "look"}, "s                                  4a · mail · look"),
        ({"id": "4a", "name": "", "session": "s", "schedule": {}, "last": "silent", "text": "look"}, "s                        silent    4a · look"),
        ({"id": "only"}, "                                   only"),
        ({"role": "assistant", "calls": [{"name": "exec", "arguments": "{}"}], "text": ""}, "                         assistant exec({})"),
        ({"text": "\x1b[31mred\x1b[0m"}, "                                   red"),
    ],
)
def test_scan_renders(body: dict[str, Any], wanted: str) -> None:
    assert rendered(body, 0) == " " * 12 + wanted


def test_scan_shows_when_and_cuts() -> None:
    now = time.time()
    assert rendered({"at": now, "text": "x"}, 0).startswith(time.strftime("%H:%M:%S", time.localtime(now)))
    assert rendered({"at": 0.5 + 86400 * 365, "text": "x"}, 0).startswith("197")
    assert len(rendered({"text": "x" * 500}, 100)) == 100
    assert rendered({"next": now, "fired_at": 7.0, "text": "x"}, 0).startswith(time.strftime("%H:%M:%S", time.localtime(now)))
    assert rendered({"next": None, "fired_at": 86400 * 365.5, "text": "a job that is over"}, 0).startswith("197")


def test_scan_names_the_line_that_is_no_object() -> None:
    done = bubbles("scan", stdin='{"text":"good"}\nnot json\n')
    assert (done.returncode, done.stdout.split()) == (65, ["good"])
    assert done.stderr.startswith("bubbles: line 2: ")


# -- tail ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "wanted"), [("telegram/*/tool", "telegram/"), ("*", ""), ("cli/a?/x", "cli/a"), ("cli/main/say", "cli/main/say")]
)
def test_a_pattern_begins_with_its_prefix(pattern: str, wanted: str) -> None:
    assert prefix(pattern) == wanted


@pytest.mark.parametrize(("pattern", "remedy"), [("[", "[[]"), ("cli/[ab/x", "[[]"), ("tool", "'*/tool'")])
def test_a_pattern_that_nothing_matches_is_refused(home: Home, pattern: str, remedy: str) -> None:
    done = bubbles("tail", pattern, timeout_s=20)
    assert (done.returncode, done.stdout) == (64, "")
    assert remedy in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("pattern", ["*", "cli/*/tool", "cli/[ab]/say", "cli/[]]*/say", "cli/[!a]/[[]"])
def test_a_pattern_that_something_may_match_is_none_of_those(pattern: str) -> None:
    tail.check(pattern)


def test_the_kinds_that_tail_names_are_the_parts_that_there_are() -> None:
    named = re.search(r"KIND is ([\w, ]+)\.", tail.__doc__ or "")
    assert named
    waited = (Path(bus.__file__).with_name("PROTOCOL.md")).read_text().split("#### `turn.wait`")[1].split("####")[0]
    parts = set(re.findall(r"^\| part \| \*`(\w+)", waited, re.MULTILINE))
    assert set(re.split(r", | or ", named[1])) == parts - {"waits"}, "of words that wait, only who wrote them is told"


def test_tail_follows_a_turn_into_scan(place: Place) -> None:
    looks = {"rules": [{"when": "look", "calls": [{"name": "list_dir", "arguments": {"path": "."}}], "times": 1}], "default": {"reply": "seen"}}
    assert place.run("ask", "hello", "-s", "tailed").returncode == 0  # the daemons are there
    env = {**os.environ, **place.env, "PATH": f"{BIN}:{os.environ['PATH']}"}
    argv = ["bash", "-c", "timeout 40 bubbles tail -n 2 'cli/tailed/tool' | bubbles scan"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as following:
        while following.poll() is None:  # what happened before it listened is not told
            place.model.play(looks)
            assert place.run("ask", "look", "-s", "tailed").returncode == 0
        assert following.stdout
        assert following.stdout.read().count('list_dir(".")') == 2


# -- ask, and the pipelines of the documentation ----------------------------------------------------


def test_a_diff_is_reviewed_and_the_review_sent(place: Place, tmp_path: Path) -> None:
    looked_after(place.home)
    place.model.play({"default": {"reply": "Looks good."}})
    (tmp_path / "diff").write_text("-old\n+new\n")
    done = shell(f"cat {tmp_path}/diff | bubbles ask -s work 'review this' | bubbles send telegram:42", **place.env)
    assert done.returncode == 0, done.stderr
    assert place.history("work")[0]["text"] == "review this\n\n-old\n+new"
    assert [item.body["text"] for item in Queue(place.home.outbound("telegram")).list("new")] == ["Looks good."]


def test_what_was_asked_most(place: Place) -> None:
    place.model.play({"default": {"reply": "yes"}})
    for text in ("tea?", "coffee?", "tea?"):
        place.run("ask", "-s", "counted", text)
    done = shell('bubbles history counted | grep \'"role":"user"\' | grep -o \'"text":"[^"]*"\' | sort | uniq -c | sort -rn', **place.env)
    assert done.stdout.split() == ["2", '"text":"tea?"', "1", '"text":"coffee?"']


def test_questions_at_once_in_one_session_all_get_an_answer(place: Place) -> None:
    place.model.play({"default": {"reply": "an answer"}})
    place.run("ask", "warm", "-s", "crowd")
    env = {**os.environ, **place.env}
    argv = [str(BIN / "bubbles"), "ask", "-s", "crowd"]
    asking = [subprocess.Popen([*argv, f"question {n}"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) for n in range(6)]
    assert {line for one in asking for line in one.communicate(timeout=60)[0].splitlines()} == {"an answer"}
    assert all(one.returncode == 0 for one in asking)
    assert sorted(m["text"] for m in place.history("crowd") if m["role"] == "user") == [*(f"question {n}" for n in range(6)), "warm"]
