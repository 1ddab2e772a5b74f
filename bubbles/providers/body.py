"""The body of a request, put together from the bytes that history holds: where a model takes them as they are, none is parsed. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bubbles.kernel import context
from bubbles.providers.provider import Ask, Capabilities

_REASONING = b'"reasoning_content":'  # inside a text it would stand with a backslash before its second quote
_CALLS = b'"tool_calls":'


def body(ask: Ask, can: Capabilities, *, streamed: bool) -> bytes:
    """The JSON body of a chat completion."""
    head = json.dumps(ask.model, ensure_ascii=False).encode()
    parts = [b'{"model":', head, b',"messages":[', b",".join(shaped(ask.messages, can)), b"]"]
    if ask.tools and can["tools"]:
        parts += [b',"tools":', ask.tools]
    parts.append(f',"temperature":{json.dumps(ask.temperature)},"max_tokens":{_most(ask, can)}'.encode())
    if streamed:
        parts.append(b',"stream":true,"stream_options":{"include_usage":true}')
    return b"".join([*parts, b"}"])


def shaped(messages: list[bytes], can: Capabilities) -> Iterable[bytes]:
    """`messages` as the model takes them: themselves, without earlier reasoning, or rebuilt."""
    shape = context.Shape(tools=can["tools"], reasoning=can["reasoning"], after_tool=can["after_tool"])
    if _must_be_built(messages, shape):
        return map(context.encode, context.build(map(json.loads, messages), shape))
    if shape.reasoning == "drop":
        return (_without_reasoning(message) if _REASONING in message else message for message in messages)
    return messages


def _most(ask: Ask, can: Capabilities) -> int:
    """Some servers refuse a request whose answer could not fit the window beside any question at all."""
    window = can["window_tokens"]
    return min(ask.max_tokens, max(1, window // 2)) if window else ask.max_tokens


def _must_be_built(messages: list[bytes], shape: context.Shape) -> bool:
    if not shape.tools and any(_CALLS in message or message.startswith(b'{"role":"tool"') for message in messages):
        return True
    if shape.reasoning == "require" and any(_CALLS in message and _REASONING not in message for message in messages):
        return True
    return shape.after_tool != "user_ok" and any(
        one.startswith(b'{"role":"tool"') and two.startswith(b'{"role":"user"') for one, two in zip(messages, messages[1:], strict=False)
    )


def _without_reasoning(message: bytes) -> bytes:
    kept = json.loads(message)
    kept.pop("reasoning_content", None)
    return context.encode(kept)
