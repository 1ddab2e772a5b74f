"""`bubbles audit` over a real journald: what anybody may have put there, and what comes while it looks."""

from __future__ import annotations

import json
import subprocess

from tests.systemd.machine import CHECKOUT, Machine
from tests.systemd.person import Person

PYTHON = CHECKOUT / ".venv/bin/python"
LOG = """
import sys
from bubbles import log
from bubbles.paths import Home
home = Home.find()
home.prepare()
log.setup("agentd", home=home, journal=log.JOURNAL)
for words in sys.argv[1:]:
    log.event("tool.finish", words * 500 if words == "long" else words, session="main", turn="t-1", tool="exec", ms=12)
"""
# Any program of a user may write to journald, and any fields but those that begin with an underscore.
FORGE = """
import socket, struct, sys
def field(name, value):
    return name + b"\\n" + struct.pack("<Q", len(value)) + value + b"\\n"
home, text = sys.argv[1].encode(), b"\\xff\\xfe\\x1b[2J\\nsecond line \\x9b \\xe4\\xb8\\xad"
entry = field(b"MESSAGE", text) + b"PRIORITY=6\\nSYSLOG_IDENTIFIER=bubbles-agentd\\nBUBBLES_EVENT=tool.start\\nBUBBLES_HOME=" + home + b"\\n"
entry += field(b"BUBBLES_SESSION", b"a\\x1b]0;x\\x07") + field(b"BUBBLES_SESSION", b"b") + b"_UID=" + sys.argv[2].encode() + b"\\nBUBBLES_N=x\\n"
to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
to.connect("/run/systemd/journal/socket")
to.send(entry)
"""


def run(person: Person, code: str, *argv: str) -> None:
    person.run([PYTHON, "-c", code, *argv], env={"PYTHONPATH": str(CHECKOUT)})
    person.machine.run(["journalctl", "--sync"])


def audited(person: Person, *argv: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in person.run(["bubbles", "audit", *argv]).stdout.splitlines()]


def test_what_others_put_there_is_shown_safely_or_not_at_all(machine: Machine, person: Person) -> None:
    other = machine.person()
    home = str(person.home / ".bubbles")
    run(person, LOG, "mine 中文", "long")
    run(person, FORGE, home, "0")
    run(other, FORGE, home, str(person.uid))
    mine, long, forged = audited(person)
    assert (mine["message"], mine["ms"], mine["program"], mine["tool"]) == ("mine 中文", "12", "agentd", "exec")
    assert long["message"].startswith("long" * 500), "values that journalctl leaves out unless it is asked for all"
    assert forged["message"] == "\ufffd\ufffd\x1b[2J\nsecond line \ufffd 中"
    assert forged["session"] == "a\x1b]0;x\x07"
    script = ["script", "-qec", "bubbles audit --full", "/dev/null"]
    shown = person.run(script, env={"TERM": "xterm-256color", "COLUMNS": "100"}).stdout
    assert "\\x1b[2J" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown
    assert audited(person, "-s", "main", "--since", "1h", "-n", "1")[0]["message"].startswith("long")


def test_what_comes_is_told(person: Person) -> None:
    run(person, LOG, "before")
    command = person.machine.command(["bubbles", "audit", "-f", "--turn", "t-1"], user=person.name)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout
        assert json.loads(following.stdout.readline())["message"] == "before"
        run(person, LOG, "after")
        assert json.loads(following.stdout.readline())["message"] == "after"
        person.machine.run(["pkill", "-INT", "-u", person.name, "-f", "audit"], check=False)
        assert following.wait(20) == 130
