"""OpenAI Codex: models of a ChatGPT subscription, by its login. The Responses as this endpoint has them: streamed always, and nothing stored."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from bubbles.errors import ModelDown, ModelError, NotAuthorized, RateLimited
from bubbles.paths import Home
from bubbles.providers import Entry
from bubbles.providers.answer import Draft
from bubbles.providers.codex_login import Codex as Issuer
from bubbles.providers.custom import nobody, read
from bubbles.providers.failure import from_object
from bubbles.providers.provider import Answer, Ask
from bubbles.providers.responses import Events, conversation, request
from bubbles.providers.retry import LONGEST_S
from bubbles.providers.signed import Signed
from bubbles.providers.tokens import Login

_CLIENT = "0.144.0"  # of which client's models it is asked
_LIST_S = 5.0
_NOT_PAID = {"usage_not_included"}
_USED_UP = {"usage_limit_reached"}
_WAIT = re.compile(r"try again in ([0-9]+(?:\.[0-9]+)?) ?(ms|s)", re.IGNORECASE)


class Codex(Signed):
    """The endpoint, and the login at it."""

    @classmethod
    def open(cls, entry: Entry, section: Any, home: Home) -> Codex:
        """By a settings section. Whether somebody is signed in is seen when it is asked."""
        return cls(entry, section, home, Issuer(section.auth_url))

    def fixed(self) -> Mapping[str, str]:
        return {"originator": "codex_cli_rs", "OpenAI-Beta": "responses=experimental", "Accept": "text/event-stream"}

    def signed(self, login: Login) -> Mapping[str, str]:
        account = {"ChatGPT-Account-Id": login.account_id} if login.account_id else {}
        return {**super().signed(login), **account}

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        """One request, streamed whoever listens: it answers in no other way."""
        return await super().ask(ask, on_text or nobody)

    async def models(self) -> list[str]:
        """The models that the account may use, and those that the owner gave traits."""
        async with self._request("GET", f"/models?client_version={_CLIENT}", b"", _LIST_S, _LIST_S) as response:
            data = await read(response)
        try:
            listed = [item for item in json.loads(data)["models"] if isinstance(item.get("slug"), str) and item.get("visibility") != "hide"]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ModelDown("its list of models is not one") from error
        self._windows = {item["slug"]: item["context_window"] for item in listed if isinstance(item.get("context_window"), int)}
        return list(dict.fromkeys([*self._models, *(item["slug"] for item in listed)]))

    def _asked(self, ask: Ask, *, streamed: bool) -> tuple[str, bytes, Mapping[str, str]]:
        without = self._without.get(ask.model, ())
        data = request(ask, self.capabilities(ask.model), self._thoughts, streamed=True, bounded=False, without=without)
        return "/responses", data, {"session_id": conversation(ask)}

    def _draft(self, ask: Ask) -> Draft:
        return Events(ask.id, self._thoughts, lambda told: failed(told, self._now()))

    def _refusal(self, status: int, data: bytes, headers: Mapping[str, str]) -> ModelError:
        try:
            told = json.loads(data)
        except (ValueError, RecursionError):
            told = None
        return _of_subscription(told, self._now(), status) or super()._refusal(status, data, headers)


def failed(told: Any, now: float, status: int = 0) -> ModelError:
    """The failure that an error object tells of."""
    return _of_subscription(told, now, status) or from_object(told, status)


def _of_subscription(told: Any, now: float, status: int) -> ModelError | None:
    """The failures that other endpoints do not have. What is used up of a subscription comes back at a time that is told."""
    error = told.get("error") if isinstance(told, dict) else None
    error = error if isinstance(error, dict) else {}
    codes = {str(error.get(name)) for name in ("type", "code")}
    text = str(error.get("message") or "")
    if codes & _NOT_PAID:
        return NotAuthorized(text or "this subscription has no Codex", remedy="look at your subscription of ChatGPT", no_credit=True)
    if codes & _USED_UP:
        left_s = _left_s(error, now)
        when = f" It is free again at {time.strftime('%Y-%m-%d %H:%M', time.localtime(now + left_s))}." if left_s else ""
        return RateLimited(f"the subscription's allowance is used up: {text}{when}", retry_after_s=left_s or LONGEST_S + 1)
    if found := _WAIT.search(text):
        wait_s = float(found[1]) / (1000 if found[2].lower() == "ms" else 1)
        return from_object(told, status, wait_s)
    return None


def _left_s(error: dict[str, Any], now: float) -> float:
    """In how many seconds an allowance comes back; 0 where that is not told."""
    for name, since in (("resets_in_seconds", 0.0), ("resets_at", now)):
        value = error.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value - since < 1e8:
            return float(value - since)
    return 0.0
