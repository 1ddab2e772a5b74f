"""A model's lines: which rule of a script answers a request, and what the API of OpenAI makes of it. It does not know HTTP.

The fakes of other vendors (tests/fakes/vendors) play the same scripts, each in its own protocol.

A script is one JSON object:

    {"rules": [RULE, …],          the first whose "when" fits and whose "times" are not used up answers
     "default": RULE,             else this one (without it: the reply is "ok")
     "models": ["fake"],          what /v1/models lists: names, or whole entries
     "key": "…",                  the API key asked for ("" or absent: none)
     "window_tokens": n,          longer requests are refused as `context_length_exceeded`, and others' usage is told by the same count
     "dialect": "openai",         the rules of bubbles.kernel.context.check that a body is held against
     "vendor": "deepseek",        whose words faults are told in (tests/fakes/vendors/wordings.py)
     "untiered": true,            answers in Groq's words without a `service_tier`
     "needs_reasoning": true}     an assistant message with calls must bring its reasoning_content (elsewhere: its signatures) back

A RULE, every part of it optional:

    when      substring of the last user or tool message (null: fits all)      times     how often it may answer
    anywhere  substring of any message (OpenAI's chat protocol alone)
    reply     the text; null for content null                                  echo      true: the last message's words follow the reply
    calls     [{"name", "arguments": object or text, "id": text or null}]      reasoning text sent before the reply
    huge      a reply of so many characters                                    finish    the finish_reason
    usage     {"prompt_tokens", …} instead of the counted one                  chunks    pieces of the text when streamed (8)
    status    an error of this HTTP status                                     error     its code, e.g. "context_length_exceeded"
    headers   further HTTP headers                                             body      the whole body (object, or text sent as HTML)
    delay_s   before the first byte                                            pause_s   between two chunks
    cut       the connection is cut after so many chunks (0: before a byte)    endless   true: the reply is streamed for ever
    fail      a stream ends in this error object after `after` chunks (1)      object_arguments  true: arguments as an object, not as text
    fault     one of the vendor's own, by name, e.g. "too_long": in place of an answer or, with `after`, in the midst of a stream
    tokens    {"input", "output", "cached", "cache_write", "reasoning"}, told in the vendor's form: input and output count the others in
    never     true: nothing is ever answered                                   stall     after so many chunks nothing more comes
    alive     and of a stream that stalled a sign of life comes for ever: "comment", or "empty" (a piece of the vendor's with nothing in it)
    blocked   true: the vendor's policy takes the answer                       ends      after so many chunks HTTP ends well, the answer not
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from bubbles.kernel import context
from tests.fakes.signing import signature

_KNOWN = {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"}
_KNOWN |= {"temperature", "top_p", "n", "stop", "max_tokens", "max_completion_tokens", "seed", "presence_penalty", "frequency_penalty", "logit_bias"}
_KNOWN |= {"user", "metadata", "store"}
_OWN = {  # what vendors take besides
    "openrouter": {"usage", "provider", "models", "transforms", "reasoning", "plugins", "route"},
    "deepseek": {"thinking"},
    "zhipu": {"thinking", "do_sample"},
    "moonshot": {"thinking"},
    "minimax": {"reasoning_split", "thinking"},
    "dashscope": {"enable_thinking", "thinking_budget"},
    "groq": {"reasoning_format", "include_reasoning"},
    "volcengine": {"thinking"},
    "siliconflow": {"enable_thinking", "thinking_budget"},
}
_MESSAGE_OWN = {"openrouter": {"reasoning", "reasoning_details", "reasoning_content", "cache_control"}}
_ID_MOST = 40  # characters of a call's id, with OpenAI itself
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ERRORS = {  # status: (code, type, message)
    400: (None, "invalid_request_error", "Invalid request."),
    401: ("invalid_api_key", "invalid_request_error", "Incorrect API key provided."),
    403: (None, "invalid_request_error", "Your key does not have access to this model."),
    404: ("model_not_found", "invalid_request_error", "The model does not exist."),
    413: (None, "invalid_request_error", "Request too large."),
    429: ("rate_limit_exceeded", "requests", "Rate limit reached. Please try again later."),
}
_CODES = {  # code: (status, type, message)
    "context_length_exceeded": (400, "invalid_request_error", "This model's maximum context length is 8192 tokens."),
    "insufficient_quota": (429, "insufficient_quota", "You exceeded your current quota, please check your plan and billing details."),
    "content_filter": (400, "invalid_request_error", "The response was filtered due to the prompt triggering the content management policy."),
}


class Refusal(Exception):
    """The request gets this HTTP status and this body."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def error_body(status: int, code: str | None = None, message: str = "") -> tuple[int, dict[str, Any]]:
    """The status and the error object as the API of OpenAI words them."""
    if code in _CODES:
        found, kind, text = _CODES[code]
        status = status or found
    else:
        default, kind, text = _ERRORS.get(status, (None, "server_error", "The server had an error while processing your request."))
        code = code or default
    return status, {"error": {"message": message or text, "type": kind, "param": None, "code": code}}


def text_of(content: Any) -> str:
    """The words of a message's content, be it text or a list of parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


class Script:
    """A script and how often each of its rules has answered."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.rules: list[dict[str, Any]] = list(script.get("rules") or [])
        self.default: dict[str, Any] = script.get("default") or {"reply": "ok"}
        self.models: list[Any] = list(script.get("models") or ["fake"])
        self.key: str = script.get("key") or ""
        self.window_tokens: int = script.get("window_tokens") or 0
        self.dialect: str = script.get("dialect") or "openai"
        self.vendor: str = script.get("vendor") or ""
        self.untiered: bool = bool(script.get("untiered"))
        self.needs_reasoning: bool = bool(script.get("needs_reasoning"))
        self._used = [0] * len(self.rules)

    def listed(self) -> list[dict[str, Any]]:
        """The entries of the list of models."""
        given = (entry if isinstance(entry, dict) else {"id": entry} for entry in self.models)
        return [{"object": "model", "created": 0, "owned_by": "tests", **entry} for entry in given]

    def choose(self, messages: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
        """The rule that answers, and the words it answers to."""
        said = next((text_of(m.get("content")) for m in reversed(messages) if m.get("role") in ("user", "tool")), "")
        for n, rule in enumerate(self.rules):
            there = "anywhere" not in rule or any(rule["anywhere"] in text_of(m.get("content")) for m in messages)
            if there and (rule.get("when") is None or rule["when"] in said) and self._used[n] < rule.get("times", math.inf):
                self._used[n] += 1
                return rule, said
        return self.default, said

    def check(self, body: Any) -> None:
        """Raise Refusal where the API of OpenAI, or this script, would not take the body of a chat completion."""
        for complaint in _complaints(body, _KNOWN | _OWN.get(self.vendor, set())):
            raise Refusal(*error_body(400, message=complaint))
        if self.vendor == "openai":
            for id in (call.get("id", "") for message in body["messages"] for call in message.get("tool_calls") or []):
                if len(id) > _ID_MOST:
                    raise Refusal(*error_body(400, message=f"string too long. Expected a string with maximum length {_ID_MOST}, but got {len(id)}"))
        messages = [_canonical(message, self.vendor) for message in body["messages"]]
        for complaint in context.check(messages, self.dialect):
            raise Refusal(*error_body(400, message=complaint))
        if self.needs_reasoning:
            key = "reasoning_details" if self.vendor == "openrouter" else "reasoning_content"
            for n, message in enumerate(body["messages"]):
                if message.get("tool_calls") and not (_is_signed(message.get(key) or []) if self.vendor == "openrouter" else message.get(key)):
                    raise Refusal(*error_body(400, message=f"messages[{n}]: {key} must be passed back to the API"))
        if self.window_tokens:
            asked = self.weight(body)
            if asked > self.window_tokens:
                text = f"This model's maximum context length is {self.window_tokens} tokens. However, your messages resulted in {asked} tokens."
                raise Refusal(*error_body(400, "context_length_exceeded", text))

    def weight(self, body: dict[str, Any]) -> int:
        """The tokens of a body, by our own estimate."""
        return context.tokens([_canonical(message, self.vendor) for message in body["messages"]]) + context.tokens(body.get("tools") or [])


def _canonical(message: dict[str, Any], vendor: str) -> dict[str, Any]:
    """A message of which what the API takes in several forms has the one that `context.check` knows."""
    made = {key: value for key, value in message.items() if key not in _MESSAGE_OWN.get(vendor, ())}
    content = made.get("content")
    if isinstance(content, list) and content and all(part.get("type") in ("text", "image_url") for part in content):
        made["content"] = text_of(content) or "(an image)"
    elif content is None and made.get("tool_calls"):
        made["content"] = ""
    return made


def _is_signed(details: list[dict[str, Any]]) -> bool:
    """Whether reasoning came back whole and with its signature, be it in one piece or in those that it was streamed in."""
    text = "".join(detail.get("text") or "" for detail in details)
    return [detail["signature"] for detail in details if detail.get("signature")] == [signature(text)]


def _complaints(body: Any, known: set[str]) -> list[str]:
    if not isinstance(body, dict):
        return ["We could not parse the JSON body of your request."]
    found = [f"Unrecognized request argument supplied: {key}" for key in body if key not in known]
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        found.append("'messages' must be a non-empty array of objects")
    if not isinstance(body.get("stream", False), bool):
        found.append("'stream' must be a boolean")
    if "stream_options" in body and not body.get("stream"):
        found.append("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    for key in ("max_tokens", "max_completion_tokens"):
        if key in body and (not isinstance(body[key], int) or body[key] < 1):
            found.append(f"'{key}' must be a positive integer")
    if not isinstance(body.get("temperature", 1), int | float) or not 0 <= body.get("temperature", 1) <= 2:
        found.append("'temperature' must lie between 0 and 2")
    return found + _tool_complaints(body)


def _tool_complaints(body: dict[str, Any]) -> list[str]:
    tools = body.get("tools")
    if tools is None:
        return ["'tool_choice' is only allowed when 'tools' are specified."] if "tool_choice" in body else []
    if not isinstance(tools, list) or not tools:
        return ["'tools' must be a non-empty array"]
    found = []
    for n, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not _NAME.fullmatch(str(function.get("name", ""))):
            found.append(f"tools[{n}]: a function with a name of [A-Za-z0-9_-]{{1,64}} is expected")
        elif not isinstance(function.get("parameters", {}), dict):
            found.append(f"tools[{n}].function.parameters is not an object")
    return found


class Speech:
    """One rule's answer to one request, as a whole or in deltas."""

    def __init__(self, rule: dict[str, Any], said: str, number: int) -> None:
        self.rule = rule
        self.text: str | None = rule.get("reply", None if rule.get("calls") else "ok")
        if rule.get("huge"):
            self.text = ("words and more words " * (rule["huge"] // 21 + 1))[: rule["huge"]]
        if rule.get("echo"):
            self.text = (rule.get("reply") or "") + said
        self.reasoning: str = rule.get("reasoning") or ""
        self.calls = [self._call(n, call, number) for n, call in enumerate(rule.get("calls") or [])]
        self.finish: str = rule.get("finish") or ("content_filter" if rule.get("blocked") else "tool_calls" if self.calls else "stop")

    def _call(self, n: int, call: dict[str, Any], number: int) -> dict[str, Any]:
        arguments = call.get("arguments", {})
        if not isinstance(arguments, str) and not self.rule.get("object_arguments"):
            arguments = json.dumps(arguments, ensure_ascii=False)
        made = {"id": call.get("id", f"call_{number:04d}_{n}"), "type": "function", "function": {"name": call["name"], "arguments": arguments}}
        if made["id"] is None:
            del made["id"]
        return made

    def message(self) -> dict[str, Any]:
        """The message of an answer that is not streamed."""
        made: dict[str, Any] = {"role": "assistant", "content": self.text, "refusal": None}
        if self.reasoning:
            made["reasoning_content"] = self.reasoning
        if self.calls:
            made["tool_calls"] = self.calls
        return made

    def deltas(self) -> list[dict[str, Any]]:
        """The deltas of a streamed answer: role, reasoning, text, then each call and the fragments of its arguments."""
        made: list[dict[str, Any]] = [{"role": "assistant", "content": None if self.text is None else ""}]
        made += [{"reasoning_content": piece} for piece in pieces(self.reasoning, 4)]
        made += [{"content": piece} for piece in pieces(self.text or "", self.rule.get("chunks", 8))]
        for n, call in enumerate(self.calls):
            function = call["function"]
            opening = {**call, "index": n, "function": {"name": function["name"], "arguments": ""}}
            if not isinstance(function["arguments"], str):
                made.append({"tool_calls": [{**opening, "function": function}]})
                continue
            made.append({"tool_calls": [opening]})
            made += [{"tool_calls": [{"index": n, "function": {"arguments": piece}}]} for piece in pieces(function["arguments"], 3)]
        return made

    def usage(self, asked_bytes: int) -> dict[str, Any]:
        """Tokens as counted (four bytes each), or as the script says."""
        if tokens := self.rule.get("tokens"):
            return _told(tokens)
        answered = len(json.dumps(self.message())) // 4
        counted = {"prompt_tokens": asked_bytes // 4, "completion_tokens": answered, "total_tokens": asked_bytes // 4 + answered}
        return self.rule.get("usage") or {**counted, "prompt_tokens_details": {"cached_tokens": 0}}


def _told(tokens: dict[str, int]) -> dict[str, Any]:
    """Tokens as OpenAI tells them: what was cached and what was thought are parts of the whole."""
    found = {"prompt_tokens": tokens["input"], "completion_tokens": tokens["output"], "total_tokens": tokens["input"] + tokens["output"]}
    details = {"prompt_tokens_details": {"cached_tokens": tokens.get("cached", 0)}}
    return {**found, **details, "completion_tokens_details": {"reasoning_tokens": tokens.get("reasoning", 0)}}


def pieces(text: str, most: int) -> list[str]:
    """`text` in at most `most` pieces of one length."""
    size = max(1, math.ceil(len(text) / max(1, most)))
    return [text[at : at + size] for at in range(0, len(text), size)]
