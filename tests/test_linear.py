"""Much of anything that somebody sends is read in the time that it takes to read it: what goes over it again and again runs out of time here.

Each function has a process of its own. No time is measured: what is not linear takes minutes to days, and nothing that is comes near the limit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SIZE = 300_000  # bytes, of the million that anybody may write at once; once for each of them is 45 thousand million steps
LIMIT_S = 30

UNITS = [
    " ", "\n", "\r", "\r\n", "\t", ".", "-", "_", "@", "/", "<", ">", "[", "]", "(", "*", "`", "'", '"', "\\", "|", "#", "?", "a", "A", "0",
    "。", "\0", "\x1b", "\x1b[", "\x1b]", "\x1b[0", "\x9b", "\x08", "a\x08", "\x85", "\u2028", "\u200b", "\u200d", "\ufeff", "\U000e0041",
    "\ud83d", "\U0001f1e6", "e\u0301", "\u0301", "👩\u200d", "文", "<@", "<@a>", "<@a> ", "/stop ", "/stop@", "\n[", "\n\x1b[0m[", "[Mon ",
    "\n[Mon 2026-", "[ M", "eyJ", "eyJ-", "-eyJaaaaaaaa.", "sk-", "Bearer ", "0:", "12345678:", "M-", " PRIVATE KEY-----", "{", '{"', "[[",
    '"\\', "ro ", "word ", "A a.", "<title",
]  # fmt: skip
FEW = [" ", "\n", ".", "-", "a", "0", "[", "\u200b", "<@a>"]
FRAMES = [
    ("", ""), ("", "#"), ("/stop", "#"), ("/stop@", "#"), ("/stop@b", "#"), ("<@a>", "/x#"), ("<@", "#"), ("/stop ", ""), ("[", "]"),
    ("[Mon", "x"), ("x\n[", "Mon 2026-"), ("\x1b[", "\n"), ("eyJaaaaaaaa", "."), ("/a", "x"),
]  # fmt: skip

# What is done with words, names, quotes and results that come from outside; each is called with every pattern.
READERS = {
    "a command": "from bubbles.agentd.spelling import parse as read",
    "a workspace": "from bubbles.agentd.configuring import _path as read",
    "a language": "from bubbles.agentd.apology import language_of\nread = lambda text: language_of('auto', text)",
    "words": "from bubbles.kernel.prompt import unstamped as read",
    "a quote": "from bubbles.kernel.prompt import line as read",
    "a name": "from bubbles.kernel.prompt import stamp\nread = lambda text: stamp(0.0, None, 'c', text, True, False)",
    "a result": "from bubbles.kernel.clean import clean as read",
    "what is clipped": "from bubbles.kernel.clip import clip\nread = lambda text: clip(text, 200)",
    "what is clipped to much": "from bubbles.kernel.clip import clip\nread = lambda text: clip(text, 9000)",
    "what is weighed": "from bubbles.kernel.weight import tokens as read",
    "a call": "from bubbles.kernel.canonical import arguments, call_name, rare_id\n"
    "read = lambda text: (arguments(text), call_name(text), rare_id(text, '1', 't'))",
    "a user's message": "from bubbles.kernel.canonical import encode, user\nread = lambda text: encode(user(text))",
    "a message": "from bubbles.messages import Inbound, from_dict, from_line, to_dict, to_line\n"
    "body = {'id': '1', 'at': 0, 'channel': 'c', 'chat': '1'}\n"
    "read = lambda text: from_line(to_line(to_dict(from_dict(Inbound, {**body, 'text': text[:250_000], 'sender': {'name': text}}))))",
    "what is logged": "from bubbles.log import struck as read",
    "what is split": "from bubbles.channels.split import split, utf8\nread = lambda text: split(text[:90_000], 2000, utf8)",
    "what mentions": "from bubbles.channels.mentions import escaped, found\nread = lambda text: found(text[:90_000] + escaped(text[:9000]))",
    "an id": "from bubbles.ids import safe as read",
    "a model's refusal": "from bubbles.providers.failure import from_response\n"
    "read = lambda text: from_response(400, text.encode('utf-8', 'replace'), {}, 0.0)",
}

RUN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.test_linear import patterns
{{reader}}
for name, text in patterns():
    print(name, file=sys.stderr, flush=True)  # the last of these is the one that took too long
    read(text)
"""


def patterns() -> list[tuple[str, str]]:
    """Texts of SIZE bytes or a little less, by a name: every unit many times, in a frame that lets a match come near and fail."""
    kept = [(frame, unit) for n, frame in enumerate(FRAMES) for unit in (UNITS if n < 2 else FEW)]
    return [(ascii((head, unit, tail)), head + unit * (SIZE // len(unit.encode("utf-8", "surrogatepass"))) + tail) for (head, tail), unit in kept]


@pytest.mark.parametrize("reader", READERS)
def test_much_of_anything_is_read(reader: str) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUN.format(reader=READERS[reader])], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"{reader}: {(late.stderr or b'').decode().splitlines()[-1]} is not read in {LIMIT_S} s")
    assert done.returncode == 0, done.stderr[-2000:]
