"""An endpoint that is asked in a person's own name: each request carries what a login left (bubbles.providers.tokens).

A request that is refused because its token is not good any more is made once more with a new one; more is left to whoever tries again.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from bubbles.errors import ModelDown, ModelError, NotAuthorized, Rejected
from bubbles.paths import Home
from bubbles.providers import Entry, catalogue, revealed
from bubbles.providers.custom import Custom
from bubbles.providers.issuer import Issuer
from bubbles.providers.lite_thoughts import Thoughts
from bubbles.providers.origin import Exchange
from bubbles.providers.provider import Answer, Ask, Capabilities, able
from bubbles.providers.responses import OPTIONAL
from bubbles.providers.tokens import Login, Tokens, remedy

_SEALED = re.compile(r"encrypted.content|thought.signature|reasoning.opaque|invalid.signature")
_REFUSED = re.compile(r"unsupported|not supported|unknown|unrecognized|not allowed", re.IGNORECASE)
_OLD = "HTTP 401"  # how the error begins of a request whose token is not good any more


class Signed(Custom):
    """One endpoint, with the login at it that `issuer` can make new."""

    def __init__(self, entry: Entry, section: Any, home: Home, issuer: Issuer, now: Callable[[], float] = time.time) -> None:
        own = {name: revealed(value) for name, value in section.headers.items()}
        super().__init__(entry.name, section.base_url or entry.base_url, headers={**self.fixed(), **own}, models=section.models)
        self._given, self._usual = section.base_url, entry.base_url
        self._tokens = Tokens(home, entry.name, issuer.renew, now)
        self._thoughts = Thoughts()
        self._without: dict[str, set[str]] = {}  # by model: what it does not take
        self._now = now

    @abstractmethod
    def fixed(self) -> Mapping[str, str]:
        """Headers that are the same in each request, unless the owner has others."""

    def signed(self, login: Login) -> Mapping[str, str]:
        """Headers that a login makes."""
        return {"Authorization": f"Bearer {login.access}"}

    def capabilities(self, model: str) -> Capabilities:
        found = catalogue.known(self.name, model)
        found = replace(found, window_tokens=(self._windows or {}).get(model, 0) or found.window_tokens)
        return able(catalogue.with_own(found, self._models.get(model)))

    async def learn(self, model: str) -> None:
        """Take note, once, of what the endpoint's list of models tells."""
        if self._windows is None:
            with suppress(ModelError):
                await self.models()

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        """As every endpoint's; what it does not take is left out from then on, and whoever tries again asks without."""
        try:
            return await super().ask(ask, on_text)
        except Rejected as error:
            if again := self._left_out(ask, error):
                raise ModelDown(f"{again} ({error.text})") from error
            raise

    def _left_out(self, ask: Ask, error: Rejected) -> str:
        """What is done otherwise the next time because of an error; "" where nothing is."""
        text = error.text.lower()
        if len(self._thoughts) and _SEALED.search(text):
            self._thoughts = Thoughts()
            return "what it thought before is not taken back; asking without"
        without = self._without.setdefault(ask.model, set())
        found = next((name for name in OPTIONAL if name not in without and re.search(rf"\b{name}\b", text) and _REFUSED.search(text)), "")
        if found:
            without.add(found)
            return f"it takes no {found}; asking without from here on"
        return ""

    def state(self) -> dict[str, Any]:
        try:
            login = self._tokens.login()
        except ModelError:
            login = None
        return {**super().state(), "signed_in": login is not None}

    async def close(self) -> None:
        await self._tokens.close()
        await super().close()

    def _refusal(self, status: int, data: bytes, headers: Mapping[str, str]) -> ModelError:
        error = super()._refusal(status, data, headers)
        if isinstance(error, NotAuthorized) and not error.no_credit:
            error.remedy = remedy(self.name) if status == 401 else "see whether your subscription has this model"
        return error

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, data: bytes, silence_s: float, total_s: float, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Exchange]:
        async with AsyncExitStack() as stack:

            async def begun(login: Login) -> Exchange:
                await self._lead_to(self._given or login.api or self._usual)
                signed = {**(headers or {}), **self.signed(login)}
                return await stack.enter_async_context(super(Signed, self)._request(method, path, data, silence_s, total_s, signed))

            login = await self._tokens.fresh()
            try:
                response = await begun(login)
            except NotAuthorized as error:
                if not error.text.startswith(_OLD) or error.no_credit:
                    raise
                response = await begun(await self._tokens.renewed(login))
            yield response

    async def _lead_to(self, url: str) -> None:
        if url != self._url and self._origin is not None:
            origin, self._origin = self._origin, None
            await origin.close()
        self._url = url.rstrip("/")
