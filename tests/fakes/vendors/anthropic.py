"""Anthropic's messages: `/v1/messages`, whole and by its named events, and `/v1/models`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.fakes.script import Speech, pieces
from tests.fakes.signing import signature
from tests.fakes.vendors.vendor import Vendor, unknown, value
from tests.fakes.wire import Asked, event

_KNOWN = {"model", "messages", "max_tokens", "system", "stream", "temperature", "top_p", "top_k", "stop_sequences", "tools", "tool_choice"}
_KNOWN |= {"thinking", "metadata", "service_tier", "output_config", "context_management", "container", "mcp_servers", "cache_control"}
_BLOCKS = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}
_ID, _NAME = re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"[a-zA-Z0-9_-]{1,128}")
_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_MARKS_MOST = 4

Block = dict[str, Any]


class Anthropic(Vendor):
    """A connection to Anthropic."""

    name = "anthropic"
    signs: ClassVar[dict[str, bytes]] = {**Vendor.signs, "empty": event({"type": "ping"}, "ping")}

    def is_question(self, asked: Asked) -> bool:
        return (asked.method, asked.path) == ("POST", "/v1/messages")

    def key(self, asked: Asked) -> str:
        return asked.headers.get("x-api-key") or asked.headers.get("authorization", "").removeprefix("Bearer ")

    def streamed(self, asked: Asked) -> bool:
        return bool(asked.body.get("stream"))

    def other(self, asked: Asked) -> Any:
        if (asked.method, asked.path) != ("GET", "/v1/models"):
            return super().other(asked)
        listed = [{"type": "model", "id": m["id"], "display_name": m["id"], "created_at": "2026-01-01T00:00:00Z"} for m in self.model.script.listed()]
        return {"data": listed, "has_more": False, "first_id": listed[0]["id"], "last_id": listed[-1]["id"]}

    def said(self, body: Any) -> str:
        blocks = _blocks(body["messages"][-1]["content"])
        results = [one for block in blocks if block["type"] == "tool_result" for one in _blocks(block.get("content") or "")]
        return "\n".join(block["text"] for block in [*results, *blocks] if block["type"] == "text")

    def complaints(self, asked: Asked) -> Iterator[str]:
        if "anthropic-version" not in asked.headers:
            yield "anthropic-version: header is required"
        body = asked.body
        yield from (f"{key}: Extra inputs are not permitted" for key in unknown(body, _KNOWN))
        if not isinstance(body.get("model"), str) or not body["model"]:
            yield "model: Field required"
        most = body.get("max_tokens")
        if type(most) is not int or most < 1:
            yield "max_tokens: Field required, as an integer of at least 1"
        temperature = body.get("temperature", 1)
        if type(temperature) not in (int, float) or not 0 <= temperature <= 1:
            yield "temperature: range: 0..1"
        yield from _tools(body.get("tools"), body.get("tool_choice"))
        yield from _thinking(body)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            yield "messages: at least one message is required"
            return
        yield from _system(body.get("system"))
        yield from (f"messages.{n}{fault}" for n, message in enumerate(messages) for fault in _message(message))
        yield from _marks(body)
        yield from _turns(_combined(messages), needs_thinking=self.model.script.needs_reasoning)

    def answer(self, speech: Speech, asked: Asked) -> Any:
        return {**self._head(asked), "content": _content(speech), **_stop(speech), "usage": self._usage(speech, asked)}

    def pieces(self, speech: Speech, asked: Asked) -> tuple[list[bytes], list[bytes]]:
        usage = self._usage(speech, asked)
        start = {**self._head(asked), "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
        made: list[Block] = [{"type": "message_start", "message": start}, {"type": "ping"}]
        for n, block in enumerate(_content(speech)):
            opening, deltas = _streamed(block, speech.rule.get("chunks", 8))
            made.append({"type": "content_block_start", "index": n, "content_block": opening})
            made += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
            made.append({"type": "content_block_stop", "index": n})
        ending: list[Block] = [{"type": "message_delta", "delta": _stop(speech), "usage": usage}, {"type": "message_stop"}]
        return [event(one, str(one["type"])) for one in made], [event(one, str(one["type"])) for one in ending]

    def failed(self, told: Any) -> bytes:
        return event(told, "error")

    def _head(self, asked: Asked) -> dict[str, Any]:
        return {"id": f"msg_{self.model.requests:04d}", "type": "message", "role": "assistant", "model": asked.body["model"]}

    def _usage(self, speech: Speech, asked: Asked) -> dict[str, Any]:
        """What was read from the cache or written to it is told beside the rest of the input, not in it."""
        found = self.counted(speech, asked)
        rest = found["input"] - found["cached"] - found["cache_write"]
        cache = {"cache_creation_input_tokens": found["cache_write"], "cache_read_input_tokens": found["cached"]}
        return {"input_tokens": rest, **cache, "output_tokens": found["output"], "service_tier": "standard"}


def _content(speech: Speech) -> list[Block]:
    made: list[Block] = []
    if speech.reasoning:
        made.append({"type": "thinking", "thinking": speech.reasoning, "signature": signature(speech.reasoning)})
    if speech.text:
        made.append({"type": "text", "text": speech.text})
    for n, call in enumerate(speech.calls):
        function = call["function"]
        made.append({"type": "tool_use", "id": call.get("id", f"toolu_{n}"), "name": function["name"], "input": value(function["arguments"])})
    return made


def _streamed(block: Block, most: int) -> tuple[Block, list[Block]]:
    """A block as it is opened, and the deltas that fill it."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"], most)]
    if block["type"] == "thinking":
        deltas: list[Block] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"], 4)]
        return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, {"type": "signature_delta", "signature": block["signature"]}]
    written = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(written, 3)]]


def _stop(speech: Speech) -> dict[str, Any]:
    reason = "refusal" if speech.rule.get("blocked") else _STOPS.get(speech.finish, speech.finish)
    return {"stop_reason": reason, "stop_sequence": None}


# -- the rules -----------------------------------------------------------------------------------------


def _blocks(content: Any) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message(message: Any) -> Iterator[str]:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _BLOCKS or unknown(message, {"role", "content"}):
        yield f': Unexpected role "{role}", or a field beside role and content'
        return
    blocks = _blocks(message.get("content"))
    if not isinstance(blocks, list) or not blocks:
        yield f": {role} messages must have non-empty content"
        return
    for n, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in _BLOCKS[role]:
            yield f".content.{n}: Input tag '{kind}' is not among those of the role {role}"
        else:
            yield from (f".content.{n}.{kind}{fault}" for fault in _block(kind, block))


def _block(kind: str, block: Block) -> Iterator[str]:
    if kind == "text":
        if not isinstance(block.get("text"), str) or not block["text"].strip():
            yield ": text content blocks must contain non-whitespace text"
    elif kind == "tool_use":
        if not _ID.fullmatch(str(block.get("id") or "")):
            yield ".id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not _NAME.fullmatch(str(block.get("name") or "")):
            yield ".name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
        if not isinstance(block.get("input"), dict):
            yield ".input: Input should be a valid dictionary"
        yield from (f".{key}: Extra inputs are not permitted" for key in unknown(block, {"type", "id", "name", "input", "cache_control", "caller"}))
    elif kind == "tool_result":
        known = {"type", "tool_use_id", "content", "is_error", "cache_control"}
        yield from (f".{key}: Extra inputs are not permitted" for key in unknown(block, known))
        inner = _blocks(block.get("content") or [])
        if any(one.get("type") not in ("text", "image", "document") for one in inner):
            yield ".content: text, images and documents alone"
        yield from (fault for one in inner if one.get("type") == "text" for fault in _block("text", one))
    elif kind == "image":
        source = block.get("source") or {}
        if source.get("type") not in ("base64", "url") or (source["type"] == "base64" and not str(source.get("media_type")).startswith("image/")):
            yield ".source: not an image"
    elif kind == "thinking" and block.get("signature") != signature(str(block.get("thinking"))):
        yield ": Invalid `signature` in `thinking` block"


def _system(system: Any) -> Iterator[str]:
    for n, block in enumerate(_blocks(system or [])):
        if block.get("type") != "text":
            yield f"system.{n}: text alone"
        else:
            yield from (f"system.{n}{fault}" for fault in _block("text", block))


def _tools(tools: Any, choice: Any) -> Iterator[str]:
    tools = tools or []
    if choice and not tools:
        yield "tool_choice: may only be specified while providing tools"
    for n, tool in enumerate(tools):
        if not isinstance(tool, dict) or not _NAME.fullmatch(str(tool.get("name") or "")):
            yield f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        elif (tool.get("input_schema") or {}).get("type") != "object":
            yield f"tools.{n}.custom.input_schema.type: Field required"
    names = [tool.get("name") for tool in tools]
    if len(names) != len(set(names)):
        yield "tools: Tool names must be unique."


def _thinking(body: dict[str, Any]) -> Iterator[str]:
    thinking = body.get("thinking")
    if not thinking or thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens", 0)
    if budget < 1024 or budget >= body.get("max_tokens", 0):
        yield "thinking.budget_tokens: at least 1024, and less than max_tokens"
    if body.get("temperature", 1) != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled."


def _marks(body: dict[str, Any]) -> Iterator[str]:
    inside = [block for message in body["messages"] for block in _blocks(message["content"])]
    marked = [one for one in [*inside, *_blocks(body.get("system") or []), *(body.get("tools") or [])] if one.get("cache_control")]
    if len(marked) > _MARKS_MOST:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}."
    yield from ("cache_control.type: 'ephemeral' alone" for one in marked if one["cache_control"].get("type") != "ephemeral")
    yield from ("cache_control cannot be set on thinking blocks" for one in marked if one.get("type") in ("thinking", "redacted_thinking"))


def _combined(messages: list[Any]) -> list[tuple[str, list[Block]]]:
    """Messages of one role in a row count as one."""
    made: list[tuple[str, list[Block]]] = []
    for message in messages:
        if not made or made[-1][0] != message["role"]:
            made.append((message["role"], []))
        made[-1][1].extend(_blocks(message["content"]))
    return made


def _turns(turns: list[tuple[str, list[Block]]], *, needs_thinking: bool) -> Iterator[str]:
    if turns[0][0] != "user":
        yield 'messages: first message must use the "user" role'
    if turns[-1][0] != "user":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    used: set[str] = set()
    last = max((n for n, (role, blocks) in enumerate(turns) if role == "user" and all(b["type"] != "tool_result" for b in blocks)), default=0)
    for n, (role, blocks) in enumerate(turns):
        if role == "assistant":
            ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if used & set(ids) or len(ids) != len(set(ids)):
                yield "messages: `tool_use` ids must be unique"
            used.update(ids)
            if needs_thinking and ids and n > last and blocks[0]["type"] not in ("thinking", "redacted_thinking"):
                yield f"messages.{n}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{blocks[0]['type']}`."
            yield from _answered(n, ids, turns[n + 1][1] if n + 1 < len(turns) else [])
        else:
            yield from _results(n, blocks, turns[n - 1][1] if n else [])


def _answered(n: int, ids: list[str], following: list[Block]) -> Iterator[str]:
    answered = [block.get("tool_use_id") for block in following if block["type"] == "tool_result"]
    missing = [id for id in ids if id not in answered]
    if missing:
        yield f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}."


def _results(n: int, blocks: list[Block], before: list[Block]) -> Iterator[str]:
    asked = [block["id"] for block in before if block["type"] == "tool_use"]
    kinds = [block["type"] == "tool_result" for block in blocks]
    if kinds != sorted(kinds, reverse=True):
        yield f"messages.{n}: `tool_result` blocks must come first in the content"
    found = [block.get("tool_use_id") for block in blocks if block["type"] == "tool_result"]
    yield from (f"messages.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {id}." for id in found if id not in asked)
    if len(found) != len(set(found)):
        yield f"messages.{n}: each tool_use must have a single result."
