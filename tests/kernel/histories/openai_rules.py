"""What servers of OpenAI's chat interface refuse in a request: OpenAI's own, and those that are stricter about what it lets pass.

Written from what the servers say, apart from bubbles.kernel.dialects and from the fakes, so that it can find the faults of both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

ID_MOST = 40  # characters of a call's id
TOOLS_MOST = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEYS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "tool_calls", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id"},
}
_BODY = {"model", "messages", "tools", "tool_choice", "temperature", "max_tokens", "stream", "stream_options"}


def faults(body: Any) -> list[str]:
    """What would be refused, a sentence each, as far as one finds it before what is wrong hides the rest; [] where nothing."""
    if not isinstance(body, dict):
        return ["We could not parse the JSON body of your request."]
    return [*_carried(body), *_body(body)] or [*_turns(body["messages"])]


def _carried(body: Any) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        yield "We could not parse the JSON body of your request: a lone surrogate, a number that is none, or no JSON."


def _body(body: dict[str, Any]) -> Iterator[str]:
    yield from (f"Unrecognized request argument supplied: {key}" for key in body.keys() - _BODY)
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "you must provide a model parameter"
    yield from _tools(body.get("tools"), body.get("tool_choice"))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "[] is too short - 'messages'"
        return
    yield from (f"messages[{n}]{fault}" for n, message in enumerate(messages) for fault in _message(message))


def _tools(tools: Any, choice: Any) -> Iterator[str]:
    if tools is None:
        if choice is not None:
            yield "'tool_choice' is only allowed when 'tools' are specified."
        return
    if not isinstance(tools, list) or not 0 < len(tools) <= TOOLS_MOST:
        yield "'tools': an array of 1 to 128"
        return
    for n, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not _is_name(function.get("name")):
            yield f"Invalid 'tools[{n}].function.name': string does not match pattern."
        elif function.get("parameters", {"type": "object"}).get("type") != "object":
            yield f"Invalid schema for function '{function['name']}': schema must be a JSON Schema of 'type: \"object\"'."


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(_NAME.fullmatch(name))


def _message(message: Any) -> Iterator[str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in _KEYS:
        yield f".role: '{role}' is not one of {sorted(_KEYS)}"
        return
    yield from (f": Unknown parameter: '{key}'." for key in message.keys() - _KEYS[role])
    yield from _content(role, message)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield ": Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
    if "tool_calls" in message:
        yield from _calls(message["tool_calls"])
    reasoning = message.get("reasoning_content", "-")
    if not isinstance(reasoning, str) or not reasoning.strip():
        yield ".reasoning_content: to be passed back as it was, or left out"


def _content(role: str, message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if role == "assistant" and message.get("tool_calls") and content in (None, ""):
        return
    if content is None:
        yield ".content: expected a string, got null."
    elif isinstance(content, str):
        if not content.strip():
            yield ".content: must not be empty"  # OpenAI takes it; Moonshot, Groq's templates and others do not
    elif not isinstance(content, list) or not content:
        yield ".content: Invalid type, or an empty array"
    else:
        yield from (f".content[{n}]{fault}" for n, part in enumerate(content) for fault in _part(role, part))


def _part(role: str, part: Any) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        if not isinstance(part.get("text"), str) or not part["text"].strip():
            yield ".text: must not be empty"
    elif kind == "image_url" and role == "user":
        url = (part.get("image_url") or {}).get("url")
        if not isinstance(url, str) or not re.match(r"https?://|data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*\Z", url):
            yield ".image_url: Invalid image URL, or a media type that is none of png, jpeg, gif, webp"
    else:
        yield f".type: Invalid value: '{kind}'."


def _calls(calls: Any) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield ".tool_calls: [] is too short"
        return
    for n, call in enumerate(calls):
        if not isinstance(call, dict) or call.get("type") != "function" or call.keys() - {"id", "type", "function"}:
            yield f".tool_calls[{n}]: a call is {{id, type: function, function}}"
            continue
        id, function = call.get("id"), call.get("function")
        if not isinstance(id, str) or not id or len(id) > ID_MOST:
            yield f".tool_calls[{n}].id: string too long (at most {ID_MOST}), empty or none"
        if not isinstance(function, dict) or not _is_name(function.get("name")):
            yield f".tool_calls[{n}].function.name: string does not match pattern '^[a-zA-Z0-9_-]+$', or is longer than 64"
        elif not _is_object(function.get("arguments")):
            yield f".tool_calls[{n}].function.arguments: the text of a JSON object"  # OpenAI takes any text; vLLM, Groq and DeepSeek parse it
    ids = [call.get("id") for call in calls if isinstance(call, dict)]
    yield from (f".tool_calls: Duplicate value for 'id': {id}" for n, id in enumerate(ids) if id in ids[:n])


def _is_object(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(text: str) -> None:
    raise ValueError(text)


def _turns(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Each call is answered right after, once, and there is something to answer at the end."""
    awaited: list[str] = []
    answered: set[str] = set()
    for n, message in enumerate(messages):
        if message["role"] == "tool":
            id = message["tool_call_id"]
            if id in answered:
                yield f"Duplicate value for 'tool_call_id' of '{id}' in message[{n}]."
            elif id not in awaited:
                yield f"messages[{n}]: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
            awaited = [one for one in awaited if one != id]
            answered.add(id)
            continue
        if awaited:
            yield f"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id': {awaited}"
        awaited, answered = [call["id"] for call in message.get("tool_calls", ())], set()
    if awaited:
        yield f"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id': {awaited}"
    roles = [message["role"] for message in messages if message["role"] not in ("system", "developer")]
    if not roles or roles[-1] == "assistant":
        yield "nothing is asked: a user or a tool has the last word"  # OpenAI takes it; DeepSeek and chat templates do not
