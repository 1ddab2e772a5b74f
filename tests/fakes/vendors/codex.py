"""OpenAI Codex: the Responses as a ChatGPT subscription has them, with the authority that signs people in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fakes.script import Refusal
from tests.fakes.vendors.authority import OpenAISigning
from tests.fakes.vendors.openai import Responses
from tests.fakes.wire import Asked

ROOT = "/backend-api/codex"
_NOT_TAKEN = ("max_output_tokens", "temperature", "top_p", "metadata", "user", "previous_response_id", "truncation")


class Codex(OpenAISigning, Responses):
    """A connection to Codex. What it refuses beyond the Responses it tells by `detail`."""

    def is_question(self, asked: Asked) -> bool:
        return (asked.method, asked.path) == ("POST", f"{ROOT}/responses")

    async def route(self, asked: Asked) -> None:
        if await self.sign(asked):
            return None
        if not self.admitted(asked):
            if self.is_question(asked):
                self.note(asked)
            raise Refusal(
                401, {"error": {"message": "Your authentication token has expired.", "type": "invalid_request_error", "code": "token_expired"}}
            )
        return await super().route(asked)

    def other(self, asked: Asked) -> Any:
        if (asked.method, asked.path) == ("GET", f"{ROOT}/models") and "client_version=" in asked.query:
            return {"models": [{"slug": each["id"], "visibility": "list", "context_window": 272000, **each} for each in self.model.script.listed()]}
        return super().other(asked)

    def complaints(self, asked: Asked) -> Iterator[str]:
        for detail in self._details(asked.body):
            raise Refusal(400, {"detail": detail})
        yield from super().complaints(asked)

    def _details(self, body: dict[str, Any]) -> Iterator[str]:
        yield from (f"Unsupported parameter: {name}" for name in _NOT_TAKEN if name in body)
        if not body.get("instructions"):
            yield "Instructions are required"
        if body.get("store") is not False:
            yield "Store must be set to false"
        if body.get("stream") is not True:
            yield "Stream must be set to true"
        if isinstance(body.get("input"), str):
            yield "Input must be a list"
        elif any(item.get("role") == "system" for item in body.get("input") or []):
            yield "System messages are not allowed"
