"""The model of the crash tests: it works by what people write, and remembers which words it was shown.

    python -m tests.crash.model [--port 0]

Words look like `ann-0012` (who, and the how-manieth). A message says beside its word what is to be done about it:
`think=0.1` seconds before an answer, `rounds=2` rounds of tools, `calls=1` calls a round, `slow=0.1` seconds a call takes, `fail=1`: an error,
while nobody has written anything after it. Each call appends a token of its own to the file `ran`; asked the same question again, the model
gives the same calls. The last answer names every word that had none: `DONE ann-0012`. Bodies are held against what strict providers refuse.
`GET /_seen` tells what was shown: see `Listening.told`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import re
from typing import Any

from bubbles.kernel import context
from tests.fakes.model import Chat
from tests.fakes.script import Refusal, Script, error_body, text_of
from tests.fakes.wire import Asked, Model

WORD = re.compile(r"\b[a-z]+-\d{4,}\b")
TOKEN = re.compile(r"\b[a-z]+-\d{4,}\.\d+\.[0-9a-f]{8}\b")
_STRICT = ("openai", "anthropic")  # "strict" is for templates that ask for it; histories are held against it by the judge
_DIRECTIVE = re.compile(r"\b(think|rounds|calls|slow|fail)=([\d.]+)")


class Player(Script):
    """What the model does. It knows nothing but the messages of a request."""

    def choose(self, messages: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
        stretch = _stretch(messages)
        words = {word: _directives(line) for line in _lines(stretch) for word in WORD.findall(line)}
        called = [token for m in stretch for c in m.get("tool_calls") or () for token in TOKEN.findall(c["function"]["arguments"])]
        calls = [call for word, wanted in words.items() for call in _calls(word, wanted, words, called)]
        think = max((float(wanted.get("think", 0)) for wanted in words.values()), default=0)
        if "fail" in list(words.values() or [{}])[-1]:
            return {"status": 500, "delay_s": think}, ""
        rule = {"calls": calls} if calls else {"reply": " ".join(["DONE", *words])}
        return {**rule, "delay_s": think}, ""

    def check(self, body: Any) -> None:
        super().check(body)
        for dialect in _STRICT:
            for complaint in context.check(body["messages"], dialect):
                raise Refusal(*error_body(400, message=f"{dialect}: {complaint}"))


def _stretch(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All since the last answer in words alone."""
    last = [n for n, m in enumerate(messages) if m.get("role") == "assistant" and not m.get("tool_calls")]
    return messages[last[-1] + 1 if last else 0 :]


def _lines(messages: list[dict[str, Any]]) -> list[str]:
    """What people wrote, a line each."""
    return [line for m in messages if m.get("role") == "user" for line in text_of(m.get("content")).splitlines()]


def _directives(line: str) -> dict[str, str]:
    return dict(_DIRECTIVE.findall(line))


def _calls(word: str, wanted: dict[str, str], words: dict[str, Any], called: list[str]) -> list[dict[str, Any]]:
    """The next round of calls for a word, if there is one."""
    most = int(wanted.get("calls", 1))
    done = sum(token.startswith(f"{word}.") for token in called)
    if done >= int(wanted.get("rounds", 0)) * most:
        return []
    state = hashlib.sha256(" ".join([*words, *called]).encode()).hexdigest()[:8]
    return [_call(f"{word}.{n}.{state}", wanted.get("slow", "")) for n in range(done, done + most)]


def _call(token: str, slow: str) -> dict[str, Any]:
    command = f"echo {token} >> ran{slow and f'; sleep {slow}'}; echo ran-{token}"
    return {"id": f"call_{hashlib.sha256(token.encode()).hexdigest()[:8]}", "name": "exec", "arguments": {"command": command}}


class _Seen:
    """What requests showed, instead of the requests themselves."""

    def __init__(self) -> None:
        self.requests = 0
        self.shown: dict[str, list[int]] = {}  # word: the first and the last request that showed it, and how many did
        self.complaints: list[str] = []

    def append(self, asked: Asked) -> None:
        self.requests += 1
        try:
            words = [word for line in _lines(json.loads(asked.raw)["messages"]) for word in WORD.findall(line)]
        except (ValueError, LookupError, TypeError) as error:
            self.complaints.append(f"request {self.requests} cannot be read: {error}")
            return
        for word in words:
            if word not in self.shown:
                self.shown[word] = [self.requests, self.requests, 0]
            self.shown[word][1:] = self.requests, self.shown[word][2] + 1
        if len(set(words)) < len(words):
            self.complaints.append(f"request {self.requests} shows a word twice: {sorted({w for w in words if words.count(w) > 1})}")


class Listening(Model):
    """A model that plays no script."""

    def use(self, script: dict[str, Any]) -> None:
        super().use(script)
        self.script = Player(script)
        self.seen: Any = _Seen()

    def told(self) -> dict[str, Any]:
        """`shown`: word → [first request, last, how many], in the order in which they were first shown; `complaints`; `requests`; `open`."""
        return {"requests": self.requests, "open": self.open, "shown": self.seen.shown, "complaints": self.seen.complaints}


class _Line(Chat):
    async def complete(self, asked: Asked) -> None:
        try:
            await super().complete(asked)
        except Refusal as refusal:
            seen: Any = self.model.seen
            seen.complaints.append(f"request {self.model.requests} was refused: {json.dumps(refusal.body)[:300]}")
            raise


async def serve(port: int) -> None:
    """Serve until cancelled."""
    model = Listening({})
    server = await asyncio.get_running_loop().create_server(lambda: _Line(model), "127.0.0.1", port, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.model", description="a model that works by what it is told, and remembers what it was shown")
    parser.add_argument("--port", type=int, default=0)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # whoever asked is dead, and that is no news here
    asyncio.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
