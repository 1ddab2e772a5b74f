"""OpenAI's Responses: a question in that form, and an answer out of its events. Pure; it does not know who is asked with it, nor by which way.

Nothing is stored at the provider: what it thought comes along sealed, is kept here (bubbles.providers.lite_thoughts), and goes back with the calls
that it led to.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Any

from bubbles.errors import ModelError
from bubbles.providers.answer import Draft
from bubbles.providers.body import shaped
from bubbles.providers.failure import from_object
from bubbles.providers.lite_thoughts import Thoughts
from bubbles.providers.provider import Answer, Ask, Capabilities

OPTIONAL = ("reasoning", "include", "prompt_cache_key", "parallel_tool_calls", "max_output_tokens")  # what an endpoint may refuse, and does without
_ID_MOST = 64  # characters of a call's id
_OUTPUT_LEAST = 16  # tokens: fewer cannot be asked for
_NO_INSTRUCTIONS = "You are an assistant."  # they must not be empty

Item = dict[str, Any]
Failed = Callable[[Any], ModelError]


def request(ask: Ask, can: Capabilities, thoughts: Thoughts, *, streamed: bool, bounded: bool, without: Collection[str] = ()) -> bytes:
    """The body of a question. `bounded`: with a limit of its answer's length; `without`: names of OPTIONAL that are not taken."""
    messages = [json.loads(message) for message in shaped(list(ask.messages), can)]
    said = next((n for n, message in enumerate(messages) if message["role"] != "system"), len(messages))
    found: dict[str, Any] = {
        "model": ask.model,
        "instructions": "\n\n".join(message["content"] for message in messages[:said]) or _NO_INSTRUCTIONS,
        "input": [item for message in messages[said:] for item in _items(thoughts.given_back(message))],
        "store": False,
        "stream": streamed,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "prompt_cache_key": conversation(ask),
    }
    if ask.tools and can["tools"]:
        found |= {"tools": [_tool(tool) for tool in json.loads(ask.tools)], "tool_choice": "auto", "parallel_tool_calls": True}
    if bounded:
        found["max_output_tokens"] = max(_OUTPUT_LEAST, min(ask.max_tokens, can["output_tokens"] or ask.max_tokens))
    return json.dumps({name: value for name, value in found.items() if name not in without}, ensure_ascii=False).encode()


def conversation(ask: Ask) -> str:
    """What stays the same while a conversation goes on: the provider finds what it has kept of it by that."""
    begin = b"\n".join(list(ask.messages)[:2]) + ask.tools
    return str(uuid.UUID(bytes=hashlib.sha256(begin).digest()[:16], version=4))


def _tool(tool: dict[str, Any]) -> Item:
    function = tool["function"]
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": parameters,
        "strict": False,
    }


def _items(message: dict[str, Any]) -> Iterator[Item]:
    """A canonical message as items."""
    role, content = message["role"], message.get("content")
    if role == "tool":
        yield {"type": "function_call_output", "call_id": _id(message["tool_call_id"]), "output": content}
        return
    yield from message.get("reasoning_items", ())
    if content and role == "assistant":
        yield {"type": "message", "role": role, "content": [{"type": "output_text", "text": content}]}
    elif role != "assistant":
        yield {"type": "message", "role": "developer" if role == "system" else role, "content": [*_parts(content)]}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield {"type": "function_call", "call_id": _id(call["id"]), "name": function["name"], "arguments": function["arguments"]}


def _parts(content: Any) -> Iterator[Item]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts:
        if part["type"] == "image_url":
            yield {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
        else:
            yield {"type": "input_text", "text": part["text"]}


def _id(id: str) -> str:
    """A call's id, in as many characters as there may be."""
    return id if len(id) <= _ID_MOST else f"call_{hashlib.sha256(id.encode()).hexdigest()[:32]}"


class Events(Draft):
    """The answer so far: what its events say is told to the draft of a chat. What was thought is handed to `thoughts` at the end."""

    def __init__(self, id: str, thoughts: Thoughts, failed: Failed = from_object) -> None:
        super().__init__(id)
        self._thoughts, self._failed = thoughts, failed
        self._parts: set[tuple[Any, str]] = set()  # (place, kind) of what has come piece by piece
        self._sealed: list[Item] = []
        self._named: set[Any] = set()  # places of calls

    def fields(self) -> dict[str, Any]:
        """What goes back with this answer."""
        return {"reasoning_items": self._sealed} if self._sealed else {}

    def whole(self, body: Any) -> Answer:
        if not isinstance(body, dict) or "output" not in body:
            return super().whole(body)
        self._ended(body)
        return self.finish()

    def finish(self) -> Answer:
        answer = super().finish()
        self._thoughts.keep(answer, self)
        return answer

    def feed(self, body: Any) -> str:
        kind = body.get("type") if isinstance(body, dict) else None
        if not isinstance(kind, str):
            return super().feed(body)
        place = body.get("output_index")
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            return self._more(place, "text", content=body.get("delta"))
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            return self._more(place, "thought", reasoning_content=body.get("delta"))
        if kind == "response.reasoning_summary_part.added" and (place, "thought") in self._parts:
            return self._more(place, "thought", reasoning_content="\n\n")
        if kind == "response.function_call_arguments.delta":
            return self._arguments(place, body.get("delta"))
        if kind == "response.function_call_arguments.done" and (place, "arguments") not in self._parts:
            return self._arguments(place, body.get("arguments"))
        if kind in ("response.output_item.added", "response.output_item.done"):
            return self._item(place, body.get("item"), done=kind.endswith("done"))
        if kind in ("response.created", "response.completed", "response.incomplete", "response.done"):
            response = body.get("response")
            return self._ended(response) if isinstance(response, dict) else ""
        if kind == "response.failed":
            response = body.get("response")
            raise self._failed({"error": response.get("error") if isinstance(response, dict) else None})
        if kind == "error":
            raise self._failed({"error": body.get("error") or body})
        return ""

    def _more(self, place: Any, kind: str, **delta: Any) -> str:
        self._parts.add((place, kind))
        return super().feed({"choices": [{"delta": delta}]})

    def _arguments(self, place: Any, text: Any) -> str:
        self._parts.add((place, "arguments"))
        return super().feed({"choices": [{"delta": {"tool_calls": [{"index": place, "function": {"arguments": text}}]}}]})

    def _item(self, place: Any, item: Any, *, done: bool) -> str:
        """An item that begins, or one that has come whole: what of it has not come piece by piece is taken from there."""
        item = item if isinstance(item, dict) else {}
        kind = item.get("type")
        if kind == "function_call":
            if place not in self._named:
                self._named.add(place)
                call = {"index": place, "id": item.get("call_id"), "function": {"name": item.get("name"), "arguments": ""}}
                super().feed({"choices": [{"delta": {"tool_calls": [call]}}]})
            if done and (place, "arguments") not in self._parts:
                return self._arguments(place, item.get("arguments"))
        elif kind == "reasoning" and done:
            if (place, "thought") not in self._parts:
                self._more(place, "thought", reasoning_content=_text(item.get("summary")) or _text(item.get("content")))
            if item.get("encrypted_content"):
                self._sealed.append({name: item[name] for name in ("type", "id", "summary", "encrypted_content") if name in item})
        elif kind == "message" and done and (place, "text") not in self._parts:
            return self._more(place, "text", content=_text(item.get("content")))
        if done:
            self._parts.add((place, "done"))
        return ""

    def _ended(self, response: dict[str, Any]) -> str:
        """What a response says of itself, at its beginning and at its end; items that did not come before are taken from there."""
        if response.get("error"):
            raise self._failed({"error": response["error"]})
        told = response.get("output")
        missed = [(n, item) for n, item in enumerate(told if isinstance(told, list) else []) if (n, "done") not in self._parts]
        texts = [self._item(n, item, done=True) for n, item in missed]
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        stop = {"completed": "stop", "incomplete": "content_filter" if reason == "content_filter" else "length"}.get(str(response.get("status")))
        super().feed({"model": response.get("model"), "usage": _usage(response.get("usage")), "choices": [{"finish_reason": stop}]})
        return "".join(texts)


def _text(parts: Any) -> str:
    found = [part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n\n".join(each for each in found if isinstance(each, str))


def _usage(usage: Any) -> dict[str, Any] | None:
    """Tokens as a chat tells them."""
    if not isinstance(usage, dict):
        return None
    asked, said = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    return {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": {"cached_tokens": asked.get("cached_tokens") if isinstance(asked, dict) else 0},
        "completion_tokens_details": {"reasoning_tokens": said.get("reasoning_tokens") if isinstance(said, dict) else 0},
    }
