"""What strict providers refuse in a request. Written apart from the builder, so that it can find the builder's faults.

"openai"     what OpenAI's interface and those modelled on it refuse
"anthropic"  the same request after the usual conversion to Anthropic's: results in front of the words that follow them, in one message
"strict"     chat templates that want user and assistant in turn and take no words of a user right after a result
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bubbles.kernel.canonical import ID_MOST, parsed

DIALECTS = ("openai", "anthropic", "strict")

_UNFIT = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}\Z")
_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content"},
    "tool": {"role", "tool_call_id", "content"},
}


def check(messages: Sequence[Any], dialect: str = "openai") -> list[str]:
    """What a provider of the dialect would refuse in a request, a sentence each; [] where nothing."""
    if dialect not in DIALECTS:
        raise ValueError(f"no dialect {dialect!r}")
    faults = [f"{place}: {fault}" for place, message in enumerate(messages) for fault in _message(message)]
    if faults:
        return faults
    faults = [*_calls(messages), *_ends(messages)]
    if faults or dialect == "openai":
        return faults
    return [*_system(messages), *_unique(messages), *(_anthropic(messages) if dialect == "anthropic" else _strict(messages))]


def _message(message: Any) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in _KEYS:
        yield "not a message of a known role"
        return
    role = message["role"]
    if extra := message.keys() - _KEYS[role]:
        yield f"unknown keys {sorted(map(str, extra))}"
    if role == "user" and isinstance(message.get("content"), list):
        yield from _content(message["content"])
    elif not isinstance(message.get("content"), str):
        yield "content is not text"
    elif not message["content"].strip() and not (role == "assistant" and message.get("tool_calls") and not message["content"]):
        yield "content is blank"
    if role == "tool" and not _is_id(message.get("tool_call_id")):
        yield "tool_call_id is not a short name"
    if "tool_calls" in message:
        yield from _tool_calls(message["tool_calls"])
    if "reasoning_content" in message and not (isinstance(message["reasoning_content"], str) and message["reasoning_content"].strip()):
        yield "reasoning_content is blank or not text"
    if any(_UNFIT.search(message[key]) for key in ("content", "reasoning_content") if isinstance(message.get(key), str)):
        yield "a NUL or a lone surrogate"


def _content(parts: list[Any]) -> Iterator[str]:
    """Texts and pictures; without a picture it is no list."""
    kinds = {part.get("type") for part in parts if isinstance(part, dict)}
    if not {"text", "image_url"} <= kinds:
        yield "content is a list without a text, or without a picture"
    for part in parts:
        match part:
            case {"type": "text", "text": str(text)} if text.strip() and not _UNFIT.search(text):
                pass
            case {"type": "image_url", "image_url": {"url": str(url)}} if _PICTURE.match(url):
                pass
            case _:
                yield "a part of a content is neither a text nor a picture"


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(_NAME.match(name))


def _is_id(id: Any) -> bool:
    return _is_name(id) and len(id) <= ID_MOST


def _tool_calls(calls: Any) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield "tool_calls is not a filled list"
        return
    for call in calls:
        yield from _tool_call(call)


def _tool_call(call: Any) -> Iterator[str]:
    if not isinstance(call, dict) or call.keys() != {"id", "type", "function"} or call["type"] != "function":
        yield "a call is not {id, type, function}"
        return
    if not _is_id(call["id"]):
        yield "a call's id is not a short name"
    function = call["function"]
    if not isinstance(function, dict) or function.keys() != {"name", "arguments"}:
        yield "a call's function is not {name, arguments}"
        return
    if not _is_name(function["name"]):
        yield "a call's name is not a short name"
    value = parsed(function["arguments"]) if isinstance(function["arguments"], str) else None
    if not isinstance(value, dict):
        yield "a call's arguments are not the JSON text of an object"
    elif _UNFIT.search(function["arguments"]) or ("\\u" in function["arguments"] and any(map(_UNFIT.search, _texts(value)))):
        yield "a call's arguments stand for a NUL or a lone surrogate"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(key)
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _ids(message: dict[str, Any]) -> list[str]:
    return [call["id"] for call in message.get("tool_calls", ())]


def _calls(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Each call is answered once, right after, in call order."""
    open_: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_:
                yield f"{place}: a result of no open call"
            elif message["tool_call_id"] != open_[0]:
                yield f"{place}: a result out of order"
            open_ = [id for id in open_ if id != message["tool_call_id"]]
            continue
        if open_:
            yield f"{place}: calls {open_} have no result"
        open_ = _ids(message)
        yield from (f"{place}: two calls of one id" for _ in range(len(open_) - len(set(open_))))
    if open_:
        yield f"end: calls {open_} have no result"


def _ends(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    roles = [message["role"] for message in messages if message["role"] != "system"]
    if not roles:
        yield "no message to answer"
    elif roles[-1] == "assistant":
        yield "end: the assistant has the last word; nothing is asked"


def _system(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from (f"{place}: a system message that is not the first" for place, message in enumerate(messages) if place and message["role"] == "system")


def _unique(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    ids = [id for message in messages for id in _ids(message)]
    if len(ids) != len(set(ids)):
        yield "two calls of one id"


def _anthropic(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Roles take turns, once a result and the words behind it are one message of the user's."""
    roles = [("user" if message["role"] == "tool" else message["role"], message["role"]) for message in messages]
    together = [(role, kind) for (role, kind), (_, before) in zip(roles[1:], roles, strict=False) if not (before == "tool" and role == "user")]
    yield from _alternate([role for role, _ in roles[:1] + together])


def _strict(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Calls and results apart, user and assistant take turns; and it is the assistant that speaks after a result."""
    for place, message in enumerate(messages):
        if place and message["role"] == "user" and messages[place - 1]["role"] == "tool":
            yield f"{place}: a user speaks right after a result"
    first = [message["role"] for message in messages if message["role"] != "system"][:1]
    rest = [message["role"] for message in messages if message["role"] != "tool" and not message.get("tool_calls")]
    yield from _alternate(rest) if first == ["user"] else ["the first message is not a user's"]


def _alternate(roles: Sequence[str]) -> Iterator[str]:
    turns = [role for role in roles if role != "system"]
    if turns[:1] == ["assistant"]:
        yield "the first message is not a user's"
    for role, before in zip(turns[1:], turns, strict=False):
        if role == before:
            yield f"two {role} messages in a row"
