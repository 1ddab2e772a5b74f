"""What Anthropic's messages interface refuses in a request. Written from what it says, apart from the fakes, so that it can find their faults too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

Block = dict[str, Any]

MARKS_MOST = 4
_NAME, _ID = re.compile(r"[a-zA-Z0-9_-]{1,128}"), re.compile(r"[a-zA-Z0-9_-]+")
_BODY = {"model", "messages", "max_tokens", "system", "tools", "tool_choice", "temperature", "stream", "thinking", "metadata", "stop_sequences"}
_FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
_KINDS = {"user": {"text", "image", "tool_result"}, "assistant": {"text", "tool_use", "thinking", "redacted_thinking"}}
_IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


def faults(body: Any) -> list[str]:
    """What would be refused, a sentence each; [] where nothing."""
    if not isinstance(body, dict):
        return ["Input should be a valid dictionary"]
    return [*_carried(body), *_body(body)] or [*_marks(body), *_turns(_together(body["messages"]))]


def _carried(body: Any) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        yield "The request body is not valid JSON: no low surrogate in string, or a number that is none"


def _body(body: dict[str, Any]) -> Iterator[str]:
    yield from (f"{key}: Extra inputs are not permitted" for key in body.keys() - _BODY)
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    most = body.get("max_tokens")
    if not isinstance(most, int) or most < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    if not 0 <= (body.get("temperature") or 0) <= 1:
        yield "temperature: range: 0..1"
    yield from (f"system.{n}: {fault}" for n, block in enumerate(_blocks(body.get("system", []))) for fault in _block(block, {"text"}))
    yield from _tools(body.get("tools", []), body.get("tool_choice"))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    yield from (f"messages.{n}: {fault}" for n, message in enumerate(messages) for fault in _message(message))


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content if isinstance(content, list) else [content]


def _tools(tools: Any, choice: Any) -> Iterator[str]:
    if choice is not None and not tools:
        yield "tool_choice: may only be specified while providing tools"
    for n, tool in enumerate(tools):
        if not isinstance(tool, dict) or not _NAME.fullmatch(str(tool.get("name"))):
            yield f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        elif (tool.get("input_schema") or {}).get("type") != "object":
            yield f"tools.{n}.custom.input_schema.type: Input should be 'object'"
    names = [tool.get("name") for tool in tools if isinstance(tool, dict)]
    if len(names) != len(set(map(str, names))):
        yield "tools: Tool names must be unique."


def _message(message: Any) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in _KINDS:
        yield 'Unexpected role: "user" and "assistant" are the allowed ones'
        return
    yield from (f"{key}: Extra inputs are not permitted" for key in message.keys() - {"role", "content"})
    blocks = _blocks(message.get("content"))
    if not blocks:
        yield "all messages must have non-empty content"
    yield from (f"content.{n}.{fault}" for n, block in enumerate(blocks) for fault in _block(block, _KINDS[message["role"]]))


def _block(block: Any, kinds: set[str]) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in kinds:
        yield f"type: Input tag '{kind}' does not match any of {sorted(kinds)}"
        return
    yield from (f"{kind}.{key}: Extra inputs are not permitted" for key in block.keys() - _FIELDS[kind])
    if kind == "text":
        if not isinstance(block.get("text"), str) or not block["text"].strip():
            yield "text: text content blocks must contain non-whitespace text"
    elif kind == "tool_use":
        yield from _tool_use(block)
    elif kind == "tool_result":
        yield from _tool_result(block)
    elif kind == "image":
        yield from _image(block.get("source") or {})
    elif kind == "thinking" and not (block.get("signature") and isinstance(block.get("thinking"), str)):
        yield "thinking.signature: Field required"


def _tool_use(block: Block) -> Iterator[str]:
    if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
        yield "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not isinstance(block.get("name"), str) or not _NAME.fullmatch(block["name"]):
        yield "tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    if not isinstance(block.get("input"), dict):
        yield "tool_use.input: Input should be a valid dictionary"


def _tool_result(block: Block) -> Iterator[str]:
    if not isinstance(block.get("tool_use_id"), str):
        yield "tool_result.tool_use_id: Field required"
    for n, one in enumerate(_blocks(block.get("content", []))):
        yield from (f"tool_result.content.{n}.{fault}" for fault in _block(one, {"text", "image"}))


def _image(source: dict[str, Any]) -> Iterator[str]:
    is_inline = source.get("type") == "base64" and source.get("media_type") in _IMAGES and bool(source.get("data"))
    if not is_inline and not (source.get("type") == "url" and str(source.get("url")).startswith("https://")):
        yield f"image.source: neither a URL, nor data of {sorted(_IMAGES)}"


def _marks(body: dict[str, Any]) -> Iterator[str]:
    inside = [block for message in body["messages"] for block in _blocks(message["content"])]
    marked = [one for one in [*_blocks(body.get("system", [])), *body.get("tools", []), *inside] if one.get("cache_control")]
    if len(marked) > MARKS_MOST:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}."
    yield from ("cache_control.type: Input should be 'ephemeral'" for one in marked if one["cache_control"].get("type") != "ephemeral")


def _together(messages: Sequence[dict[str, Any]]) -> list[tuple[str, list[Block]]]:
    """Messages of one role in a row count as one."""
    made: list[tuple[str, list[Block]]] = []
    for message in messages:
        if not made or made[-1][0] != message["role"]:
            made.append((message["role"], []))
        made[-1][1].extend(_blocks(message["content"]))
    return made


def _turns(turns: Sequence[tuple[str, list[Block]]]) -> Iterator[str]:
    if turns[0][0] != "user":
        yield 'messages: first message must use the "user" role'
    if turns[-1][0] != "user":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    used: set[str] = set()
    for n, (role, blocks) in enumerate(turns):
        asked = [block["id"] for block in turns[n - 1][1] if block["type"] == "tool_use"] if n else []
        if role == "user":
            yield from _answers(n, asked, blocks)
        for block in blocks:
            if block["type"] == "tool_use":
                if block["id"] in used:
                    yield f"messages.{n}: `tool_use` ids must be unique"
                used.add(block["id"])


def _answers(n: int, asked: Sequence[str], blocks: Sequence[Block]) -> Iterator[str]:
    found = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if missing := [id for id in asked if id not in found]:
        yield f"messages.{n - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}."
    yield from (f"messages.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {id}." for id in found if id not in asked)
    if len(found) != len(set(found)):
        yield f"messages.{n}: each tool_use must have a single result. Found multiple `tool_result` blocks with one id."
    if any(block["type"] != "tool_result" for block in blocks[: len(found)]):
        yield f"messages.{n}: `tool_result` blocks come first in the content"
