"""The validators refuse what providers refuse, and take what they take."""

from __future__ import annotations

from typing import Any

import pytest

from bubbles.kernel.context import check
from bubbles.kernel.dialects import DIALECTS


def user(content: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(content: Any = "hello", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def call(id: Any = "c1", name: Any = "exec", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calls(*asked: Any, content: Any = "") -> dict[str, Any]:
    return said(content, tool_calls=list(asked))


def result(id: Any = "c1", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


SYSTEM = {"role": "system", "content": "be kind"}
GOOD: list[list[dict[str, Any]]] = [
    [user()],
    [SYSTEM, user()],
    [user(), said(), user()],
    [user(), calls(call()), result()],
    [user(), calls(call(), content="I look."), result()],
    [user(), calls(call("c1"), call("c2")), result("c1"), result("c2"), said(), user()],
    [user(), calls(call("c1")), result("c1"), calls(call("c2")), result("c2")],
    [user(), said(reasoning_content="hm"), user()],
    [user('{"a":"\\ud83d"}')],
]
AFTER_RESULT: list[dict[str, Any]] = [user(), calls(call()), result(), user()]

EVERYWHERE: dict[str, list[Any]] = {
    "nothing": [],
    "only a system message": [SYSTEM],
    "no message": ["hi"],
    "null": [None],
    "no role": [{"content": "hi"}],
    "a role of its own": [{"role": "wizard", "content": "hi"}],
    "developer": [{"role": "developer", "content": "hi"}, user()],
    "function": [user(), {"role": "function", "name": "f", "content": "x"}],
    "no content": [{"role": "user"}],
    "null content of a user": [user(None)],
    "null content of an assistant": [user(), said(None), user()],
    "null content beside calls": [user(), calls(call(), content=None), result()],
    "content in parts": [user([{"type": "text", "text": "hi"}])],
    "empty user": [user("")],
    "blank user": [user(" \n")],
    "empty assistant": [user(), said(""), user()],
    "blank beside calls": [user(), calls(call(), content=" "), result()],
    "empty result": [user(), calls(call()), result(content="")],
    "empty system": [{"role": "system", "content": ""}, user()],
    "unknown key": [user() | {"name": "Ann"}],
    "meta of ours": [user() | {"at": 7}],
    "lone surrogate": [user("\ud83d")],
    "NUL": [user("a\0b")],
    "surrogate in reasoning": [user(), said(reasoning_content="\udc00"), user()],
    "surrogate in arguments": [user(), calls(call(arguments='{"a":"\ud83d"}')), result()],
    "escaped surrogate in arguments": [user(), calls(call(arguments='{"a":"\\ud83d"}')), result()],
    "escaped NUL in a key of arguments": [user(), calls(call(arguments='{"\\u0000":1}')), result()],
    "empty reasoning": [user(), said(reasoning_content=""), user()],
    "null reasoning": [user(), said(reasoning_content=None), user()],
    "null calls": [user(), said(tool_calls=None), user()],
    "no calls in the list": [user(), said(tool_calls=[]), user()],
    "a call that is text": [user(), said(tool_calls=["exec"]), user()],
    "a call without type": [user(), said("", tool_calls=[{"id": "c1", "function": {"name": "exec", "arguments": "{}"}}]), result()],
    "a call with an index": [user(), calls(call(index=0)), result()],
    "a call without id": [user(), calls(call(id=None)), result(None)],
    "an empty id": [user(), calls(call(id="")), result("")],
    "an id with a colon": [user(), calls(call(id="functions.exec:0")), result("functions.exec:0")],
    "a long id": [user(), calls(call(id="c" * 41)), result("c" * 41)],
    "an id with a line break": [user(), calls(call(id="c1\n")), result("c1\n")],
    "a name with a dot": [user(), calls(call(name="functions.exec")), result()],
    "an empty name": [user(), calls(call(name="")), result()],
    "arguments as an object": [user(), calls(call(arguments={})), result()],
    "arguments cut off": [user(), calls(call(arguments='{"a": "b')), result()],
    "arguments empty": [user(), calls(call(arguments="")), result()],
    "arguments a list": [user(), calls(call(arguments="[]")), result()],
    "arguments NaN": [user(), calls(call(arguments='{"a":NaN}')), result()],
    "arguments infinite": [user(), calls(call(arguments='{"a":1e999}')), result()],
    "no result": [user(), calls(call())],
    "no result before words": [user(), calls(call()), user()],
    "no result before an answer": [user(), calls(call()), said(), user()],
    "one of two results": [user(), calls(call("c1"), call("c2")), result("c1"), user()],
    "a result twice": [user(), calls(call()), result(), result()],
    "a result of no call": [user(), result()],
    "a result first": [result(), user()],
    "a result of another call": [user(), calls(call("c1")), result("c2")],
    "a result after words": [user(), calls(call("c1"), call("c2")), result("c1"), user(), result("c2")],
    "results out of order": [user(), calls(call("c1"), call("c2")), result("c2"), result("c1")],
    "two calls of one id at once": [user(), calls(call("c1"), call("c1")), result("c1"), result("c1")],
    "the assistant has the last word": [user(), said()],
    "a trailing blank in the last word": [user(), said("hello ")],
}
ELSEWHERE: dict[str, tuple[set[str], list[dict[str, Any]]]] = {
    "the assistant first": ({"anthropic", "strict"}, [said(), user()]),
    "the assistant first after a system message": ({"anthropic", "strict"}, [SYSTEM, said(), user()]),
    "two users in a row": ({"anthropic", "strict"}, [user(), user()]),
    "two assistants in a row": ({"anthropic", "strict"}, [user(), said(), said(), user()]),
    "two system messages": ({"anthropic", "strict"}, [SYSTEM, SYSTEM, user()]),
    "a system message in between": ({"anthropic", "strict"}, [user(), said(), SYSTEM, user()]),
    "an id twice in a request": ({"anthropic", "strict"}, [user(), calls(call()), result(), calls(call()), result()]),
    "words right after a result": ({"strict"}, AFTER_RESULT),
    "calls first": ({"anthropic", "strict"}, [calls(call()), result()]),
    "words, calls, words": ({"strict"}, [user(), calls(call()), result(), calls(call("c2")), result("c2"), user()]),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("messages", GOOD)
def test_what_is_well_formed_passes(messages: list[dict[str, Any]], dialect: str) -> None:
    assert check(messages, dialect) == []


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("messages", EVERYWHERE.values(), ids=EVERYWHERE)
def test_what_everybody_refuses_is_refused(messages: list[Any], dialect: str) -> None:
    assert check(messages, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("refusing", "messages"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_some_refuse_is_refused_by_them(refusing: set[str], messages: list[dict[str, Any]], dialect: str) -> None:
    assert bool(check(messages, dialect)) == (dialect in refusing)


def test_an_unknown_dialect_is_a_fault_of_the_caller() -> None:
    with pytest.raises(ValueError, match="klingon"):
        check([], "klingon")
