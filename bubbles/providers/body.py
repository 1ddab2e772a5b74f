"""The body of a request, put together from the bytes that history holds: where a model takes them as they are, none is parsed. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bubbles.kernel import context
from bubbles.providers.prefix import Messages
from bubbles.providers.provider import Ask, Capabilities

_REASONING = b'"reasoning_content":'  # inside a text it would stand with a backslash before its second quote
_CALLS = b'"tool_calls":'
_ASSISTANT, _TOOL, _USER = b'{"role":"assistant"', b'{"role":"tool"', b'{"role":"user"'  # a canonical message begins with its role

MARKS = (_REASONING, _CALLS, _TOOL)


def body(ask: Ask, can: Capabilities, *, streamed: bool) -> bytes:
    """The JSON body of a chat completion. The messages, which may be megabytes, are copied once; where that may be, none of them is touched."""
    shape = context.Shape(tools=can["tools"], reasoning=can["reasoning"], after_tool=can["after_tool"])
    head = b'{"model":' + json.dumps(ask.model, ensure_ascii=False).encode() + b',"messages":['
    end = [b"]"]
    if ask.tools and can["tools"]:
        end.append(b',"tools":' + ask.tools)
    end.append(f',"temperature":{json.dumps(ask.temperature)},"max_tokens":{_most(ask, can)}'.encode())
    if streamed:
        end.append(b',"stream":true,"stream_options":{"include_usage":true}')
    end.append(b"}")
    if _stands(ask, shape) and isinstance(ask.messages, Messages):
        return ask.messages.within(head, b"".join(end))
    return b"".join([head, b",".join(shaped(list(ask.messages), can)), *end])


def _stands(ask: Ask, shape: context.Shape) -> bool:
    """Whether it is known that there is nothing in any message that the model would not take."""
    if ask.marks is None or shape.after_tool != "user_ok" or (not shape.tools and ask.marks & {_CALLS, _TOOL}):
        return False
    unwanted = {"drop": _REASONING, "require": _CALLS}.get(shape.reasoning)  # of calls without their reasoning the messages themselves tell
    return unwanted not in ask.marks


def shaped(messages: list[bytes], can: Capabilities) -> Iterable[bytes]:
    """`messages` as the model takes them: themselves, without earlier reasoning, or rebuilt."""
    shape = context.Shape(tools=can["tools"], reasoning=can["reasoning"], after_tool=can["after_tool"])
    if _must_be_built(messages, shape):
        return map(context.encode, context.build(map(json.loads, messages), shape))
    if shape.reasoning == "drop":
        return [_without_reasoning(m) if m.startswith(_ASSISTANT) and _REASONING in m else m for m in messages]
    return messages


def _most(ask: Ask, can: Capabilities) -> int:
    """Some servers refuse a request whose answer could not fit the window beside any question at all."""
    window = can["window_tokens"]
    return min(ask.max_tokens, max(1, window // 2)) if window else ask.max_tokens


def _must_be_built(messages: list[bytes], shape: context.Shape) -> bool:
    if not shape.tools and any(_CALLS in message or message.startswith(_TOOL) for message in messages):
        return True
    if shape.reasoning == "require" and any(_CALLS in message and _REASONING not in message for message in messages):
        return True
    return shape.after_tool != "user_ok" and any(
        one.startswith(_TOOL) and two.startswith(_USER) for one, two in zip(messages, messages[1:], strict=False)
    )


def _without_reasoning(message: bytes) -> bytes:
    kept = json.loads(message)
    kept.pop("reasoning_content", None)
    return context.encode(kept)
