"""Requests that a vendor refuses, each with the rule that it breaks (a part of what is said of it), and requests that it takes."""

from __future__ import annotations

from typing import Any

Body = dict[str, Any]

_TWICE = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
PNG = "iVBORw0KGgo="


# OpenAI


def _chat(*messages: Any, **more: Any) -> Body:
    return {"model": "gpt-5", "messages": list(messages), **more}


def _user(content: Any = "hi", **more: Any) -> Body:
    return {"role": "user", "content": content, **more}


def _said(content: Any = "hello", **more: Any) -> Body:
    return {"role": "assistant", "content": content, **more}


def _asked(*ids: Any, name: Any = "exec", arguments: Any = "{}", content: Any = None) -> Body:
    function = {"name": name, "arguments": arguments}
    return _said(content, tool_calls=[{"id": id, "type": "function", "function": function} for id in ids])


def _result(id: Any = "c1", content: Any = "ok") -> Body:
    return {"role": "tool", "tool_call_id": id, "content": content}


def _declared(name: Any = "exec", **parameters: Any) -> Body:
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {}, **parameters}}}


_IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
_BMP = {"type": "image_url", "image_url": {"url": f"data:image/bmp;base64,{PNG}"}}

OPENAI_REFUSES: list[tuple[str, Any]] = [
    ("parse the JSON", ["hi"]),
    ("parse the JSON", _chat(_user("half \ud83d of a face"))),
    ("too short", _chat()),
    ("model", {"messages": [_user()]}),
    ("Unrecognized request argument", _chat(_user(), base="s")),
    ("is not one of", _chat("hi")),
    ("is not one of", _chat({"role": "wizard", "content": "hi"})),
    ("Unknown parameter: 'at'", _chat(_user(at=7))),
    ("Unknown parameter: 'tool_calls'", _chat(_user(tool_calls=[]))),
    ("got null", _chat(_user(None))),
    ("got null", _chat(_user(), _said(None), _user())),
    ("must not be empty", _chat(_user(""))),
    ("must not be empty", _chat(_user(), _asked("c1"), _result(content=" "))),
    ("empty array", _chat(_user([]))),
    ("Invalid value: 'input_image'", _chat(_user([{"type": "input_image"}]))),
    ("Invalid value: 'image_url'", _chat(_user(), _asked("c1"), _result(content=[_IMAGE]))),
    ("Invalid image URL", _chat(_user([_BMP]))),
    ("Missing parameter 'tool_call_id'", _chat(_user(), _asked("c1"), {"role": "tool", "content": "ok"})),
    ("[] is too short", _chat(_user(), _said(tool_calls=[]), _user())),
    ("a call is", _chat(_user(), _said(tool_calls=[{"id": "c1", "function": {"name": "exec", "arguments": "{}"}}]), _result())),
    ("string too long", _chat(_user(), _asked("c" * 41), _result("c" * 41))),
    ("empty or none", _chat(_user(), _asked(None), _result("c1"))),
    ("Duplicate value for 'id'", _chat(_user(), _asked("c1", "c1"), _result(), _result())),
    ("function.name", _chat(_user(), _asked("c1", name="functions.exec"), _result())),
    ("function.name", _chat(_user(), _asked("c1", name="x" * 65), _result())),
    ("text of a JSON object", _chat(_user(), _asked("c1", arguments={}), _result())),
    ("text of a JSON object", _chat(_user(), _asked("c1", arguments='{"a": NaN}'), _result())),
    ("text of a JSON object", _chat(_user(), _asked("c1", arguments='{"path": "a'), _result())),
    ("responding to each", _chat(_user(), _asked("c1", "c2"), _result("c1"), _user())),
    ("responding to each", _chat(_user(), _asked("c1"))),
    ("must be a response", _chat(_user(), _result())),
    ("must be a response", _chat(_user(), _asked("c1"), _result("c1"), _user(), _result("c2"))),
    ("Duplicate value for 'tool_call_id'", _chat(_user(), _asked("c1"), _result(), _result())),
    ("nothing is asked", _chat(_user(), _said())),
    ("nothing is asked", _chat({"role": "system", "content": "be kind"})),
    ("reasoning_content", _chat(_user(), _said(reasoning_content=""), _user())),
    ("tools[0].function.name", _chat(_user(), tools=[_declared("run it")])),
    ("schema must be", _chat(_user(), tools=[_declared(type="array")])),
    ("an array of 1 to 128", _chat(_user(), tools=[])),
    ("only allowed when 'tools'", _chat(_user(), tool_choice="auto")),
]
OPENAI_TAKES: list[Any] = [
    _chat(_user()),
    _chat({"role": "system", "content": "be kind"}, _user([{"type": "text", "text": "what is this?"}, _IMAGE])),
    _chat(_user(), _asked("c2", "c1"), _result("c1"), _result("c2"), _said("two", reasoning_content="hm"), _user()),
    _chat(_user(), _asked("c1", content=""), _result(), _asked("c1"), _result(), tools=[_declared()], tool_choice="auto"),
]


# Anthropic


def _messages(*messages: Any, **more: Any) -> Body:
    return {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": list(messages), **more}


def _use(id: Any = "t1", **more: Any) -> Body:
    return {"type": "tool_use", "id": id, "name": "exec", "input": {}, **more}


def _used(id: Any = "t1", **more: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": id, "content": "ok", **more}


def _text(text: Any = "hi", **more: Any) -> Body:
    return {"type": "text", "text": text, **more}


_MARKED = _text(cache_control={"type": "ephemeral"})

ANTHROPIC_REFUSES: list[tuple[str, Any]] = [
    ("valid dictionary", None),
    ("not valid JSON", _messages(_user("\udc00"))),
    ("at least one message", _messages()),
    ("max_tokens", {"model": "m", "messages": [_user()]}),
    ("temperature", _messages(_user(), temperature=1.5)),
    ("Extra inputs are not permitted", _messages(_user(), stream_options={})),
    ("Unexpected role", _messages({"role": "system", "content": "be kind"}, _user())),
    ("Extra inputs are not permitted", _messages(_user(name="Ann"))),
    ("non-whitespace", _messages(_user(""))),
    ("non-whitespace", _messages(_user(), _said(" "), _user())),
    ("non-empty content", _messages(_user([]))),
    ("Input tag 'image_url'", _messages(_user([_IMAGE]))),
    ("Input tag 'tool_use'", _messages(_user([_use()]))),
    ("Input tag 'tool_result'", _messages(_user(), _said([_used()]), _user())),
    ("String should match pattern", _messages(_user(), _said([_use("functions.exec:0")]), _user([_used("functions.exec:0")]))),
    ("tool_use.name", _messages(_user(), _said([_use(name="a b")]), _user([_used()]))),
    ("tool_use.input", _messages(_user(), _said([_use(input="{}")]), _user([_used()]))),
    ("Extra inputs are not permitted", _messages(_user(), _said([_use(index=0)]), _user([_used()]))),
    ("without `tool_result`", _messages(_user(), _said([_use()]), _user())),
    ("without `tool_result`", _messages(_user(), _said([_use("t1"), _use("t2")]), _user([_used("t2")]))),
    ("unexpected `tool_use_id`", _messages(_user([_used()]))),
    ("unexpected `tool_use_id`", _messages(_user(), _said([_use("t1")]), _user([_used("t1"), _used("t2")]))),
    ("single result", _messages(_user(), _said([_use()]), _user([_TWICE, _TWICE]))),
    ("come first", _messages(_user(), _said([_use()]), _user([_text(), _used()]))),
    ("ids must be unique", _messages(_user(), _said([_use()]), _user([_used()]), _said([_use()]), _user([_used()]))),
    ("first message", _messages(_said(), _user())),
    ("prefill", _messages(_user(), _said())),
    ("A maximum of 4 blocks", _messages(_user([_MARKED] * 5))),
    ("'ephemeral'", _messages(_user([_text(cache_control={"type": "persistent"})]))),
    ("thinking.cache_control", _messages(_user(), _said([{"type": "thinking", "thinking": "hm", "signature": "s", "cache_control": {}}]), _user())),
    ("thinking.signature", _messages(_user(), _said([{"type": "thinking", "thinking": "hm"}, _text()]), _user())),
    ("neither a URL", _messages(_user([{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": PNG}}]))),
    ("non-whitespace", _messages(_user(), system=[_text("")])),
    ("Tool names must be unique", _messages(_user(), tools=[{"name": "exec", "input_schema": {"type": "object"}}] * 2)),
    ("input_schema.type", _messages(_user(), tools=[{"name": "exec", "input_schema": {}}])),
    ("while providing tools", _messages(_user(), tool_choice={"type": "auto"})),
]
ANTHROPIC_TAKES: list[Any] = [
    _messages(_user()),
    _messages(_user(), _user(), system="be kind"),
    _messages(_user(), _said([_text(), _use("t1"), _use("t2")]), _user([_used("t2"), _used("t1"), _text()]), _said(), _user([_MARKED])),
    _messages(_user([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}, _text()])),
    _messages(_user(), _said([{"type": "thinking", "thinking": "hm", "signature": "s"}, _use()]), _user([_used()]), temperature=1),
]


# Gemini


def _contents(*contents: Any, **more: Any) -> Body:
    return {"contents": list(contents), **more}


def _turn(role: str, *parts: Any) -> Body:
    return {"role": role, "parts": list(parts)}


_HI = _turn("user", {"text": "hi"})
_HELLO = _turn("model", {"text": "hello"})


def _function(name: Any = "exec", args: Any = None) -> Body:
    return {"functionCall": {"name": name, "args": {} if args is None else args}}


def _responded(name: Any = "exec", response: Any = None) -> Body:
    return {"functionResponse": {"name": name, "response": {"content": "ok"} if response is None else response}}


def _functions(**parameters: Any) -> list[Body]:
    return [{"functionDeclarations": [{"name": "exec", "description": "d", "parameters": {"type": "object", **parameters}}]}]


GEMINI_REFUSES: list[tuple[str, Any]] = [
    ("Root element", []),
    ("Parsing terminated", _contents(_turn("user", {"text": "\ud800"}))),
    ("contents is not specified", _contents()),
    ("Cannot find field", _contents(_HI, messages=[])),
    ("valid role", _contents(_turn("assistant", {"text": "hi"}))),
    ("valid role", _contents(_turn("system", {"text": "hi"}), _HI)),
    ("parts must not be empty", _contents(_turn("user"))),
    ("one initialized field", _contents(_turn("user", {"text": ""}))),
    ("one initialized field", _contents(_HI, _turn("model", {"text": ""}, _function()), _turn("user", _responded()))),
    ("one initialized field", _contents(_turn("user", {"text": "hi", "functionResponse": {}}))),
    ("Cannot find field", _contents(_turn("user", {"text": "hi", "type": "text"}))),
    ("Name cannot be empty", _contents(_HI, _turn("model", _function("")), _turn("user", _responded("")))),
    ("args: not a Struct", _contents(_HI, _turn("model", _function(args="{}")), _turn("user", _responded()))),
    ("response: not a Struct", _contents(_HI, _turn("model", _function()), _turn("user", _responded(response="ok")))),
    ("equal to the number", _contents(_HI, _turn("model", _function()), _HI)),
    ("equal to the number", _contents(_HI, _turn("model", _function()), _turn("user", _responded(), _responded()))),
    ("equal to the number", _contents(_HI, _turn("model", _function(), _function()), _turn("user", _responded()))),
    ("equal to the number", _contents(_turn("user", _responded()))),
    ("immediately after a user turn", _contents(_HI, _HELLO, _turn("model", _function()), _turn("user", _responded()))),
    ("alternate", _contents(_HI, _HELLO, _HELLO, _HI)),
    ("a call is the model's", _contents(_turn("user", _function()), _turn("user", _responded()))),
    ("begin with a user", _contents(_HELLO, _HI)),
    ("end with a user", _contents(_HI, _HELLO)),
    ("Unsupported MIME type", _contents(_turn("user", {"inlineData": {"mimeType": "image/bmp", "data": PNG}}, {"text": "hi"}))),
    ("one initialized field", _contents(_HI, systemInstruction={"parts": [{"text": ""}]})),
    ("Cannot find field", _contents(_HI, tools=_functions(additionalProperties=False))),
    ("should be non-empty", _contents(_HI, tools=_functions(properties={}))),
    ("missing field", _contents(_HI, tools=_functions(properties={"a": {"type": "array"}}))),
    ("only allowed for STRING", _contents(_HI, tools=_functions(properties={"a": {"type": "integer", "enum": [1]}}))),
    ("property is not defined", _contents(_HI, tools=_functions(properties={"a": {"type": "string"}}, required=["b"]))),
    ("Duplicate function", _contents(_HI, tools=[{"functionDeclarations": [{"name": "exec"}, {"name": "exec"}]}])),
    ("Invalid function name", _contents(_HI, tools=[{"functionDeclarations": [{"name": "0 exec"}]}])),
]
GEMINI_TAKES: list[Any] = [
    _contents(_HI),
    _contents(_HI, _HELLO, _HI, systemInstruction={"parts": [{"text": "be kind"}]}),
    _contents(_HI, _turn("model", {"text": "I look."}, _function(), _function()), _turn("user", _responded(), _responded()), _HI),
    _contents(_HI, _turn("model", {"function_call": {"name": "f", "args": {}}}), _turn("user", {"function_response": {"name": "f", "response": {}}})),
    _contents(_turn("user", {"inlineData": {"mimeType": "image/png", "data": PNG}}, {"text": "hi"})),
    _contents(_HI, tools=_functions(properties={"a": {"type": "string"}}, required=["a"])),
]
