"""What the servers of all vendors do alike: hold a question against the rules, find the rule of the script that answers it, and play it.

It does not know any vendor's protocol: a subclass brings it.
"""

from __future__ import annotations

import copy
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from tests.fakes.script import Refusal, Speech
from tests.fakes.vendors import wordings
from tests.fakes.wire import Asked, Connection

SIZE_MOST = 32 << 20  # bytes of a request


class Vendor(Connection):
    """A connection to a vendor's server. `name` is the vendor's, in wordings."""

    name = ""
    kind = "text/event-stream"  # the content type of a stream

    # -- what a vendor brings ------------------------------------------------------------------------

    @abstractmethod
    def is_question(self, asked: Asked) -> bool:
        """Whether this asks a model for an answer."""

    @abstractmethod
    def key(self, asked: Asked) -> str:
        """The key that the request carries."""

    @abstractmethod
    def complaints(self, asked: Asked) -> Iterator[str]:
        """What the vendor refuses in a question."""

    @abstractmethod
    def said(self, body: Any) -> str:
        """The words of a question's last message."""

    @abstractmethod
    def streamed(self, asked: Asked) -> bool:
        """Whether the answer is to be streamed."""

    @abstractmethod
    def answer(self, speech: Speech, asked: Asked) -> Any:
        """The body of an answer in one piece."""

    @abstractmethod
    def pieces(self, speech: Speech, asked: Asked) -> tuple[list[bytes], list[bytes]]:
        """The pieces of a streamed answer, and what ends it."""

    @abstractmethod
    def failed(self, told: Any) -> bytes:
        """A failure in the midst of a stream."""

    def other(self, asked: Asked) -> Any:
        """The answer to a request that is no question. Raises Refusal."""
        raise Refusal(*self.told("no_model", f"{asked.method} {asked.path} is not known here"))

    # -- what all do alike ---------------------------------------------------------------------------

    async def route(self, asked: Asked) -> None:
        script, question = self.model.script, self.is_question(asked)
        if question:
            self.note(asked)
        if script.key and self.key(asked) != script.key:
            raise Refusal(*self.told("bad_key"))
        if not question:
            return self.whole(200, self.other(asked))
        self._check(asked)
        rule, said = script.choose([{"role": "user", "content": self.said(asked.body)}])
        return await self.play(rule, lambda: self._act(rule, Speech(rule, said, self.model.requests), asked))

    def told(self, fault: str, message: str = "") -> wordings.Told:
        """The status and the body of a fault, with words of its own where they are given."""
        status, body = copy.deepcopy(wordings.of(self.name, fault))
        if message and isinstance(body["error"], dict):
            body["error"]["message"] = message
        elif message:
            body["error"] = message
        return status, body

    def _check(self, asked: Asked) -> None:
        if len(asked.raw) > SIZE_MOST:
            raise Refusal(*self.told("too_long"))
        if not isinstance(asked.body, dict):
            raise Refusal(*self.told("invalid", "the body is no JSON object"))
        for complaint in self.complaints(asked):
            raise Refusal(*self.told("invalid", complaint))
        window = self.model.script.window_tokens
        if window and len(asked.raw) // 4 > window:
            raise Refusal(*self.told("too_long"))

    async def _act(self, rule: dict[str, Any], speech: Speech, asked: Asked) -> None:
        headers, streamed = rule.get("headers"), self.streamed(asked)
        told = self.told(rule["fault"]) if "fault" in rule else (0, None)
        if told[0] and not (streamed and "after" in rule):
            return self.refused(told[0], told[1], headers, streamed=streamed)
        if "status" in rule or "body" in rule:
            return self.whole(rule.get("status", 200), rule.get("body", self.told("server")[1]), headers)
        if not streamed:
            return self.whole(200, self.answer(speech, asked), headers, cut="cut" in rule)
        pieces, ending = self.pieces(speech, asked)
        return await self.stream(rule, pieces, ending, failed=self.failed(told[1]) if told[0] else b"", kind=self.kind)

    def refused(self, status: int, body: Any, headers: dict[str, Any] | None, *, streamed: bool) -> None:
        """Tell of a fault before anything was said."""
        self.whole(status, body, headers)

    def counted(self, speech: Speech, asked: Asked) -> dict[str, int]:
        """The tokens of question and answer: as the rule says, else a token every four bytes."""
        found = {"input": len(asked.raw) // 4, "output": len(json.dumps(speech.message())) // 4, "cached": 0, "cache_write": 0, "reasoning": 0}
        return {**found, **speech.rule.get("tokens", {})}


def value(arguments: Any) -> Any:
    """The arguments of a call as an object."""
    return json.loads(arguments or "{}") if isinstance(arguments, str) else arguments


def unknown(body: dict[str, Any], known: Iterable[str]) -> list[str]:
    """The keys of an object that are none of those known."""
    return [key for key in body if key not in known]
