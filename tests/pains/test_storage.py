"""Files that are old, odd, broken or sealed, and words that have to be there after all of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bubbles import starter
from bubbles.bus.dial import Dial
from bubbles.errors import BubblesError
from bubbles.paths import Home
from tests.agentd.test_chain import call
from tests.agentd.world import world
from tests.logged import logged

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]


def test_a_home_of_an_older_version_is_taken_over_with_all_that_is_in_it(home: Home) -> None:
    """`homes/1` was written by the first version that kept these files, its running turn cut short; nothing in it is lost or emptied.

    It also has what a newer or another program may have added: keys that are not known here.
    """
    shutil.copytree(HERE / "homes" / "1", home.root, dirs_exist_ok=True)
    home.root.chmod(0o700)
    for path in home.root.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    before = (home.session("s") / "session.jsonl").read_bytes()
    with world(home) as w:
        w.start("modeld", "agentd", "cron")
        w.until(lambda: sum(len(end["messages"]) for end in w.ends()) == 3)
        assert (home.session("s") / "session.jsonl").read_bytes().startswith(before)
        assert [m["text"] for end in w.ends() for m in end["messages"]] == ["hello", "how large is it?", "and in MB?"]
        assert "42 MB" in json.dumps(w.fake.seen()["bodies"][-1]["messages"], ensure_ascii=False)
        with Dial(home, "cron") as dial:
            assert [job["message"] for job in dial.call("job.list")[0]["jobs"]] == ["look at the disk"]
        assert json.loads(home.config.read_text())["future"] == {"key": 1}
        assert "future" in logged(home, "agentd"), "an unknown key is warned of"


def garbage(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(b"\x00\xff{not json at all\n" * 3)
    path.chmod(0o600)
    return path.read_bytes()


# Which file is broken; whether the daemons can do without it. Where they cannot, they say so and touch nothing.
BROKEN: dict[str, tuple[Callable[[Home], Path], bool]] = {
    "a message": (lambda home: home.inbound("cli") / "new" / "cli-x.json", True),
    "a journal": (lambda home: home.turns / "other.jsonl", True),
    "a history": (lambda home: home.session("other") / "session.jsonl", True),
    "a session's settings": (lambda home: home.session("other") / "config.json", True),
    "an outbound message": (lambda home: home.outbound("cron") / "new" / "x.json", True),
    "the configuration": (lambda home: home.config, False),
}


@pytest.mark.parametrize("what", BROKEN)
def test_one_broken_file_stops_nothing_that_can_do_without_it(home: Home, what: str) -> None:
    place, can = BROKEN[what]
    with world(home) as w:
        w.start()
        assert w.say("hello").text == "ok"
        w.say("hello", "other")
        for name in ("agentd", "modeld"):
            w.kill(name)
        kept = home.config.read_bytes()
        path = place(home)
        content = garbage(path)
        if can:
            w.start("modeld", "agentd", "cron")
            assert w.say("still there?").text == "ok"
            return
        for name in ("modeld", "agentd"):
            with pytest.raises(BubblesError) as refused:
                w.start(name)
            assert str(path) in refused.value.text
            assert refused.value.remedy
        assert path.read_bytes() == content
        path.write_bytes(kept)
        w.start()
        assert w.say("and now?").text == "ok"
        assert [m["text"] for end in w.ends() for m in end["messages"]] == ["hello", "and now?"]


def test_words_behind_a_damaged_header_of_a_journal_are_not_lost(home: Home) -> None:
    with world(home, {"rules": [{"when": "go", "endless": True, "times": 1}], "default": {"reply": "ok"}}) as w:
        w.start()
        w.put("go on for long")
        w.ring()
        w.until(lambda: b"ModelAsked" in w.journal() and w.fake.seen()["requests"])
        w.kill("agentd")
        journal = home.turns / "s.jsonl"
        journal.write_bytes(journal.read_bytes().replace(b'"format"', b'"f\0rmat"', 1))
        w.start("agentd")
        w.say("hello")
        kept = [*home.turns.rglob("*.jsonl"), home.session("s") / "session.jsonl"]
        assert any(b"go on for long" in path.read_bytes() for path in kept)


def test_a_damaged_line_of_a_history_is_told_of(home: Home) -> None:
    with world(home) as w:
        w.start()
        w.say("one")
        w.kill("agentd")
        path = home.session("s") / "session.jsonl"
        head, *rest = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([head, b'{"role":"user","con\0\0\n', *rest]))
        w.start("agentd")
        w.say("two")
        assert "session.jsonl" in logged(home, "agentd")


def test_broken_jobs_are_named_and_left_alone_and_only_cron_stays_away(home: Home) -> None:
    with world(home) as w:
        content = garbage(home.jobs)
        w.start()
        with pytest.raises(BubblesError) as refused:
            starter.start(home, "cron")
        assert str(home.jobs) in refused.value.text
        assert refused.value.remedy
        assert home.jobs.read_bytes() == content
        assert w.say("hello").text == "ok"


def test_what_a_tool_found_out_is_there_after_a_restart(home: Home) -> None:
    """The model times out after a command has run; agentd is killed meanwhile. The result is known, and the command is not run again."""
    script = {
        "rules": [{"when": "go", "times": 1, "calls": [call("exec", command="echo x >> ran; echo the answer is 42")]}, {"times": 1, "delay_s": 60}],
        "default": {"reply": "forty-two"},
    }
    with world(home, script, agents__defaults__api_timeout_s=1.0, agents__defaults__api_retries=3) as w:
        w.start()
        id = w.put("go")
        w.ring()
        w.until(lambda: b"ToolFinished" in w.journal())
        w.until(lambda: w.fake.seen()["open"])
        w.kill("agentd")
        assert b"the answer is 42" in w.journal()
        w.start("agentd")
        assert w.wait(id).text == "forty-two"
        assert "the answer is 42" in json.dumps(w.fake.seen()["bodies"][-1]["messages"])
        assert (home.session("s") / "work" / "ran").read_text() == "x\n"


def test_after_a_time_out_the_session_is_the_same(home: Home) -> None:
    with world(home, {"rules": [{"when": "two", "times": 1, "delay_s": 60}], "default": {"reply": "ok"}}, agents__defaults__api_timeout_s=0.5) as w:
        w.start()
        w.say("one")
        assert w.say("two").outcome == "failed:model_down"
        w.kill("agentd")
        w.start("agentd")
        w.say("three")
        told = json.dumps(w.fake.seen()["bodies"][-1]["messages"])
        assert all(word in told for word in ("one", "two", "three"))
        assert [m["text"] for end in w.ends() for m in end["messages"]] == ["one", "two", "three"]


def test_a_directory_that_may_only_be_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    shell = 'exec "$2" -m tests.pains.read_only "$1"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", shell, "sh", str(tmp_path), sys.executable]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, env=env)
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if "held its ground" not in done.stdout and ("unshare:" in done.stderr or "mount:" in done.stderr):
        pytest.skip("no mount namespaces for this user here")
    assert done.stdout.endswith("held its ground\n"), done.stdout + done.stderr
