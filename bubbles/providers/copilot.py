"""GitHub Copilot: models of several vendors by one subscription and its login. Some are asked by OpenAI's chat protocol, some by its Responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bubbles.errors import ModelDown, Rejected
from bubbles.kernel.canonical import encode
from bubbles.paths import Home
from bubbles.providers import Entry
from bubbles.providers.answer import Draft
from bubbles.providers.body import body
from bubbles.providers.copilot_login import EDITOR
from bubbles.providers.copilot_login import Copilot as Issuer
from bubbles.providers.custom import read
from bubbles.providers.lite_thoughts import Thoughts
from bubbles.providers.provider import Answer, Ask
from bubbles.providers.responses import Events, request
from bubbles.providers.signed import Signed

_LIST_S = 5.0
_CHAT, _RESPONSES = "/chat/completions", "/responses"
_USER = b'{"role":"user"'
_IMAGE, _CALLS = b'"image_url":', b'"tool_calls":'  # inside a text they would stand with backslashes
_OTHERWISE = ("unsupported_api", "not accessible via the /chat/completions", "only supported in v1/responses")


class Copilot(Signed):
    """The endpoint, and the login at it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._by_responses: set[str] = set()  # models that are asked in no other way

    @classmethod
    def open(cls, entry: Entry, section: Any, home: Home) -> Copilot:
        """By a settings section. Whether somebody is signed in is seen when it is asked."""
        return cls(entry, section, home, Issuer(section.auth_url))

    def fixed(self) -> Mapping[str, str]:
        return {**EDITOR, "Openai-Intent": "conversation-panel"}

    async def models(self) -> list[str]:
        """The models that the account may talk with, and those that the owner gave traits."""
        async with self._request("GET", "/models", b"", _LIST_S, _LIST_S) as response:
            data = await read(response)
        try:
            listed = [item for item in json.loads(data)["data"] if isinstance(item.get("id"), str) and _talks(item)]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ModelDown("its list of models is not one") from error
        self._windows = {item["id"]: window for item in listed if (window := _window(item))}
        self._by_responses |= {item["id"] for item in listed if _CHAT not in (item.get("supported_endpoints") or [_CHAT])}
        return list(dict.fromkeys([*self._models, *(item["id"] for item in listed)]))

    def _asked(self, ask: Ask, *, streamed: bool) -> tuple[str, bytes, Mapping[str, str]]:
        messages = list(ask.messages)
        headers = {"X-Initiator": "user" if messages[-1].startswith(_USER) else "agent"}
        if any(_IMAGE in message for message in messages):
            headers["Copilot-Vision-Request"] = "true"
        can = self.capabilities(ask.model)
        if ask.model in self._by_responses:
            without = self._without.get(ask.model, ())
            return _RESPONSES, request(ask, can, self._thoughts, streamed=streamed, bounded=True, without=without), headers
        if len(self._thoughts):
            ask = replace(ask, messages=[self._with_thoughts(message) for message in messages])
        return _CHAT, body(ask, can, streamed=streamed), headers

    def _with_thoughts(self, message: bytes) -> bytes:
        if _CALLS not in message:
            return message
        known = json.loads(message)
        given = self._thoughts.given_back(known)
        return message if given is known else encode(given)

    def _draft(self, ask: Ask) -> Draft:
        return Events(ask.id, self._thoughts) if ask.model in self._by_responses else Chat(ask.id, self._thoughts)

    def _left_out(self, ask: Ask, error: Rejected) -> str:
        if ask.model not in self._by_responses and any(words in error.text.lower() for words in _OTHERWISE):
            self._by_responses.add(ask.model)
            return "it is asked by the Responses alone; asking so from here on"
        return super()._left_out(ask, error)


class Chat(Draft):
    """A chat's answer, with what Copilot adds: thoughts that are sealed, and, of some vendors' models, an answer spread over several choices."""

    def __init__(self, id: str, thoughts: Thoughts) -> None:
        super().__init__(id)
        self._thoughts = thoughts
        self._sealed: dict[str, Any] = {}

    def fields(self) -> dict[str, Any]:
        """What goes back with this answer."""
        return self._sealed if self._sealed.get("reasoning_opaque") else {}

    def whole(self, body: Any) -> Answer:
        return super().whole(self._plain(body, "message"))

    def feed(self, body: Any) -> str:
        return super().feed(self._plain(body, "delta"))

    def finish(self) -> Answer:
        answer = super().finish()
        self._thoughts.keep(answer, self)
        return answer

    def _plain(self, body: Any, key: str) -> Any:
        """As OpenAI would have sent it."""
        choices = body.get("choices") if isinstance(body, dict) else None
        if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
            return body
        merged: dict[str, Any] = {}
        for choice in choices:
            merged = _merged(merged, choice.get(key))
        if text := merged.pop("reasoning_text", None):
            merged["reasoning_content"] = text
            self._sealed["reasoning_text"] = self._sealed.get("reasoning_text", "") + str(text)
        if opaque := merged.pop("reasoning_opaque", None):
            self._sealed["reasoning_opaque"] = str(opaque)
        finish = next((choice["finish_reason"] for choice in reversed(choices) if choice.get("finish_reason")), None)
        return {**body, "choices": [{**choices[0], key: merged, "finish_reason": finish}]}


def _merged(one: dict[str, Any], other: Any) -> dict[str, Any]:
    if not isinstance(other, dict):
        return one
    calls = [*(one.get("tool_calls") or []), *(other.get("tool_calls") or [])]
    content = "".join(each for each in (one.get("content"), other.get("content")) if isinstance(each, str))
    return {**other, **one, "content": content or one.get("content") or other.get("content"), **({"tool_calls": calls} if calls else {})}


def _talks(item: dict[str, Any]) -> bool:
    """Whether a model of the list is one to talk with, which the account's owner has not been denied."""
    can, policy = item.get("capabilities"), item.get("policy")
    chats = not isinstance(can, dict) or can.get("type", "chat") == "chat"
    return chats and not (isinstance(policy, dict) and policy.get("state") == "disabled")


def _window(item: dict[str, Any]) -> int:
    can = item.get("capabilities")
    limits = can.get("limits") if isinstance(can, dict) else None
    found = [limits.get(name) for name in ("max_prompt_tokens", "max_context_window_tokens")] if isinstance(limits, dict) else []
    return next((each for each in found if isinstance(each, int) and each > 0), 0)
