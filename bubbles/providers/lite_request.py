"""A question in the form in which LiteLLM is asked: canonical messages, what a vendor wants back of its own, and marks for its cache. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from bubbles.kernel import canonical
from bubbles.providers.body import shaped
from bubbles.providers.lite_thoughts import Thoughts
from bubbles.providers.provider import Ask, Capabilities

_MARK = {"type": "ephemeral"}


def request(
    ask: Ask, can: Capabilities, thoughts: Thoughts, *, streamed: bool, marked: bool, without: Collection[str] = (), prefix: str = ""
) -> dict[str, Any]:
    """The arguments of LiteLLM's completion. `marked`: with marks for the vendor's cache; `without`: names of those that the model refuses."""
    messages = [_without_blank(thoughts.given_back(json.loads(message))) for message in shaped(list(ask.messages), can)]
    tools = json.loads(ask.tools) if ask.tools and can["tools"] else []
    if prefix == "gemini":
        messages = list(_distinct(messages))
    if marked:
        _mark(messages, tools)
    found: dict[str, Any] = {"messages": messages, "temperature": ask.temperature, "max_tokens": most(ask, can)}
    if tools:
        found["tools"] = tools
    if streamed:
        found |= {"stream": True, "stream_options": {"include_usage": True}}
    return {name: value for name, value in found.items() if name not in without}


def _without_blank(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls stand alone has no words: Gemini refuses blank ones."""
    return message | {"content": None} if message.get("tool_calls") and not message["content"] else message


def _distinct(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of calls in one answer that are the same LiteLLM sends Gemini the first alone, but all results, which it refuses: they become one result."""
    instead: dict[str, str] = {}
    results: dict[str, dict[str, Any]] = {}
    for message in messages:
        if message["role"] == "tool" and (first := results.get(instead.get(message["tool_call_id"], ""))):
            first["content"] = f"{first['content']}\n\n{message['content']}"
            continue
        if message["role"] == "tool":
            results[message["tool_call_id"]] = message
        elif calls := message.get("tool_calls"):
            kept: dict[Any, Any] = {}
            for call in calls:
                same = kept.setdefault((call["function"]["name"], canonical.dump(canonical.parsed(call["function"]["arguments"]))), call)
                instead |= {call["id"]: same["id"]} if same is not call else {}
            message = message | {"tool_calls": list(kept.values())}
        yield message


def most(ask: Ask, can: Mapping[str, Any]) -> int:
    """How long an answer may be: no longer than the model can, nor than half its window."""
    window, output = can["window_tokens"], can.get("output_tokens") or 0
    return min(ask.max_tokens, max(1, window // 2) if window else ask.max_tokens, output or ask.max_tokens)


def _mark(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> None:
    """Marks on the end of the tools, of the system's words, of what was sent last time, and of this request: four is all there may be."""
    if tools:
        tools[-1]["cache_control"] = _MARK
    if messages and messages[0]["role"] == "system":
        _mark_message(messages[0])
    said = [message for message in messages if message["role"] in ("user", "tool")]
    for message in said[-1:] + said[:-1][-1:]:
        _mark_message(message)


def _mark_message(message: dict[str, Any]) -> None:
    if message["role"] == "tool":
        message["cache_control"] = _MARK
        return
    parts = message["content"]
    parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
    message["content"] = [*parts[:-1], {**parts[-1], "cache_control": _MARK}]
