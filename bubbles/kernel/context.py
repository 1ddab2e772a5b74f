"""The one way from messages to a request that no provider refuses.

A canonical message has the shape of OpenAI's chat interface; it is the only form in history and on the way to modeld:

    {"role":"user","content":str}   in a request to a model that sees also [{"type":"text","text":str},{"type":"image_url","image_url":{"url":str}},…]
    {"role":"assistant","content":str,"tool_calls":[{"id","type":"function","function":{"name","arguments"}}]?,"reasoning_content":str?}
    {"role":"tool","tool_call_id":str,"content":str}

`build` is total: whatever list it is given, what comes out passes `check` for every dialect. It does not know any provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bubbles.kernel import canonical
from bubbles.kernel.canonical import Message, encode
from bubbles.kernel.dialects import check
from bubbles.kernel.events import Call
from bubbles.kernel.fit import fit, shrink, split
from bubbles.kernel.weight import tokens

__all__ = ["DEFAULT", "Message", "Request", "Shape", "build", "check", "encode", "fit", "shrink", "split", "tokens"]

MISSING = "Interrupted: no result of this call is known. It may or may not have run; check before repeating it."
LEFT_OUT = "(Earlier messages are left out.)"
GO_ON = "(Go on.)"
SEEN = "(Seen.)"
NO_REASONING = "(No reasoning was kept.)"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model takes. `reasoning` of earlier answers: "drop", "keep" or "require"; `after_tool`: "user_ok" or "assistant_only".

    Without `tools` calls and results are told as text, without `system` the system message opens the first user's.
    """

    tools: bool = True
    reasoning: str = "drop"
    after_tool: str = "user_ok"
    system: bool = True


DEFAULT = Shape()


def build(messages: Iterable[Any], shape: Shape = DEFAULT) -> list[Message]:
    """A well-formed request from any list: a user first, roles in turn, each call answered once and right after, a user or result last.

    What is well-formed passes unchanged. Longer lists give longer requests: where `a` has no open calls and ends with a user or a result,
    `build(a + b)` begins with all of `build(a)` but perhaps its last message.
    """
    return Request(shape).add(messages).ended()


class Request:
    """A request that grows: `build` in steps, for a history that is long and a turn that asks often.

    `Request(shape).add(history)` once, then `fork().add(turn.request()).ended()` for each ask. What a fork leaves as it was is the very
    same object as before, so bytes made of it hold. Between two `add`s no calls may be open.
    """

    def __init__(self, shape: Shape = DEFAULT) -> None:
        self.shape = shape
        self.messages: list[Message] = []  # well-formed, but that an assistant may be last
        self._ids: set[str] = set()

    def fork(self) -> Request:
        """A copy that grows on its own."""
        other = Request(self.shape)
        other.messages, other._ids = self.messages.copy(), self._ids.copy()
        return other

    def add(self, messages: Iterable[Any]) -> Request:
        """Take messages in, each made well-formed; itself."""
        waiting = [message for message in messages if isinstance(message, dict)][::-1]
        while waiting:
            message = waiting.pop()
            if message.get("role") == "assistant":
                results = []
                while waiting and waiting[-1].get("role") == "tool":
                    results.append(waiting.pop())
                self._assistant(message, results)
            elif message.get("role") == "user":
                self._user(canonical.words_of(message.get("content")))
            elif message.get("role") == "system":  # anything else is nobody's words, or a result of no call
                self._system(canonical.text_of(message.get("content")))
        return self

    def ended(self) -> list[Message]:
        """The messages as they are sent: a user or a result has the last word."""
        if self._last() in ("", "system", "assistant"):
            return [*self.messages, canonical.user(GO_ON)]
        return self.messages

    def _system(self, text: str) -> None:
        if not text.strip():
            return
        if self.shape.system and all(message["role"] == "system" for message in self.messages):
            self._put("system", text)
        else:
            self._user(text)

    def _user(self, text: Any) -> None:
        if self.shape.after_tool == "assistant_only" and self._last() == "tool":
            self.messages.append(canonical.assistant(SEEN, (), self._reasoning(None)))
        self._put("user", text)

    def _put(self, role: str, text: Any) -> None:
        """A message of its own, or a further paragraph of the last one where that has the same role."""
        if self._last() == role:
            self.messages[-1] = {"role": role, "content": canonical.behind(self.messages[-1]["content"], text)}
        else:
            self.messages.append({"role": role, "content": text})

    def _last(self) -> str:
        return str(self.messages[-1]["role"]) if self.messages else ""

    def _assistant(self, message: Message, results: Sequence[Message]) -> None:
        text = canonical.text_of(message.get("content"))
        text = text if text.strip() else ""
        asked = _calls(message.get("tool_calls"))
        if not text and not asked:
            return
        if not self.messages or self._last() == "system":
            self._put("user", LEFT_OUT)
        calls = [self._admit(call) for call in asked]
        answers = [*zip(calls, _answers(asked, results), strict=True)]
        reasoning = self._reasoning(message.get("reasoning_content"))
        if self.shape.tools:
            self._said(canonical.assistant(text, calls, reasoning))
            self.messages += [canonical.result(call.id, answer) for call, answer in answers]
        else:
            told = [f"[called {call.name} with {canonical.arguments(call.arguments)}]" for call in calls]
            self._said(canonical.assistant("\n".join(filter(None, (text, *told))), (), reasoning))
            for call, answer in answers:
                self._put("user", f"[result of {call.name}]\n{canonical.content(answer)}")

    def _said(self, message: Message) -> None:
        if self._last() == "assistant":
            message = _joined(self.messages.pop(), message)
        self.messages.append(message)

    def _admit(self, call: Call) -> Call:
        id = canonical.call_id(call.id, f"c{len(self.messages)}", self._ids)
        self._ids.add(id)
        return Call(id, canonical.call_name(call.name), call.arguments)

    def _reasoning(self, reasoning: Any) -> str:
        if self.shape.reasoning == "drop":
            return ""
        kept = canonical.text_of(reasoning).strip()
        return kept or (NO_REASONING if self.shape.reasoning == "require" else "")


def _calls(tool_calls: Any) -> list[Call]:
    """The calls of an assistant's message, raw ids and all; what is no call is passed over."""
    calls = []
    for call in tool_calls if isinstance(tool_calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            calls.append(Call(call.get("id"), function.get("name"), function.get("arguments")))  # type: ignore[arg-type]
    return calls


def _answers(calls: Sequence[Call], results: Sequence[Message]) -> list[Any]:
    """A result for each call: the first that names its id and was not taken yet."""
    left = list(results)
    answers = []
    for call in calls:
        found = next((result for result in left if result.get("tool_call_id") == call.id), None)
        if found is not None:
            left = [result for result in left if result is not found]
        answers.append(MISSING if found is None else found.get("content"))
    return answers


def _joined(first: Message, second: Message) -> Message:
    """Two answers in a row as one. The first has no calls: their results would stand between."""
    text = "\n\n".join(filter(None, (first["content"], second["content"])))
    thoughts = "\n\n".join(filter(None, (message.get("reasoning_content") for message in (first, second))))
    joined = {"role": "assistant", "content": text}
    if "tool_calls" in second:
        joined["tool_calls"] = second["tool_calls"]
    return joined | ({"reasoning_content": thoughts} if thoughts else {})
