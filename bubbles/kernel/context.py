"""The messages of a request: made well-formed, checked, weighed, and made smaller.

A canonical message has the shape of OpenAI's chat interface; it is the only form in history and on the way to modeld:

    {"role":"user","content":str}
    {"role":"assistant","content":str,"tool_calls":[{"id","type":"function","function":{"name","arguments"}}]?,"reasoning_content":str?}
    {"role":"tool","tool_call_id":str,"content":str}

`build` is total: whatever list it is given, what comes out breaks no provider's rule. It does not know any provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bubbles.kernel.events import Call
from bubbles.messages import scrub

Message: TypeAlias = dict[str, Any]

EMPTY = "(empty)"
MISSING = "Interrupted: no result of this call is known. It may or may not have run; check before repeating it."
LEFT_OUT = "(Earlier messages are left out.)"
GO_ON = "(Go on.)"
SEEN = "(Seen.)"
NO_REASONING = "(No reasoning was kept.)"
UNPARSED = "not_a_json_object"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]+")


# Parts of a message


def clean_text(text: Any) -> str:
    """Text of a message's content: "" for none, the text parts of a list, nothing that no encoding can carry."""
    if isinstance(text, str):
        return scrub(text)
    if isinstance(text, list):
        return "\n".join(filter(None, (clean_text(part.get("text") if isinstance(part, dict) else part) for part in text)))
    return ""


def content(text: Any) -> str:
    """The content of a user's or a tool's message: never blank, since some providers refuse that."""
    cleaned = clean_text(text)
    return cleaned if cleaned.strip() else EMPTY


def call_name(name: Any) -> str:
    """The name of a call as every provider accepts it.

    >>> call_name("functions.exec")
    'functions_exec'
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    return _NOT_NAME.sub("_", name if isinstance(name, str) else "")[:64].strip("_") or "unknown"


def call_id(id: Any, otherwise: str, taken: Collection[str]) -> str:
    """The id of a call as every provider accepts it and nothing in `taken` has it; `otherwise` where it has none."""
    wanted = id if isinstance(id, str) and _NAME.fullmatch(id) else _NOT_NAME.sub("_", id if isinstance(id, str) else "")[:64].strip("_") or otherwise
    found, n = wanted, 1
    while found in taken:
        n += 1
        found = f"{wanted[:56]}_{n}"
    return found


def call_arguments(arguments: Any) -> str:
    """The arguments of a call as JSON text of an object; what is none is kept, in part, as text in one.

    >>> call_arguments('{"path": "a"}'), call_arguments(""), call_arguments('{"path": "a')
    ('{"path": "a"}', '{}', '{"not_a_json_object":"{\\\\"path\\\\": \\\\"a"}')
    """
    if isinstance(arguments, str):
        if not arguments.strip():
            return "{}"
        text, value = scrub(arguments), _parsed(arguments)
    else:
        text, value = "", arguments if arguments is not None else {}
    if not isinstance(value, dict):
        return _dump({UNPARSED: (text or str(value))[:500]})
    cleaned = _scrubbed(value)
    return text if text and cleaned == value else _dump(cleaned)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list | tuple):
        return [_scrubbed(one) for one in value]
    if isinstance(value, dict):
        return {scrub(str(key)): _scrubbed(one) for key, one in value.items()}
    return value if isinstance(value, int | float | None) else str(value)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def encode(message: Message) -> bytes:
    """The bytes of a canonical message, in history and on the wire alike."""
    return _dump(message).encode()


def assistant(text: str, calls: Sequence[Call] = (), reasoning: str = "") -> Message:
    """What a model said, as a canonical message. The calls' ids are taken as they are."""
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [_call(call.id, call.name, call.arguments) for call in calls]
    if thought := clean_text(reasoning):
        message["reasoning_content"] = thought
    return message


def _call(id: str, name: Any, arguments: Any) -> Message:
    return {"id": id, "type": "function", "function": {"name": call_name(name), "arguments": call_arguments(arguments)}}


def result(id: str, text: Any) -> Message:
    """What a call brought, as a canonical message."""
    return {"role": "tool", "tool_call_id": id, "content": content(text)}


# A request that nobody refuses


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model takes. `reasoning` of earlier answers: "drop", "keep" or "require"; `after_tool`: "user_ok" or "assistant_only"."""

    tools: bool = True
    reasoning: str = "drop"
    after_tool: str = "user_ok"
    system: bool = True


DEFAULT = Shape()


def build(messages: Iterable[Any], shape: Shape = DEFAULT) -> list[Message]:
    """A well-formed request from any list: a user first, roles in turn, each call answered once and at once, a user or tool last."""
    return []


def check(messages: Sequence[Any], dialect: str = "openai") -> list[str]:
    """What a strict provider of the dialect ("openai", "anthropic", "strict") would refuse in a request; [] if nothing."""
    return []


# Weight


def tokens(what: Any) -> int:
    """About how many tokens a text, a list of messages or a list of tool schemas is."""
    if isinstance(what, str):
        return (len(what.encode("utf-8", "replace")) + 3) // 4
    return sum(4 + tokens(_dump(one)) for one in what)


def shrink(messages: Sequence[Message], budget_tokens: int) -> list[Message]:
    """As many messages, with the oldest results and arguments shortened until the whole weighs no more than the budget, if that is enough."""
    return list(messages)
