"""GitHub Copilot: OpenAI's chat completions and Responses without `/v1`, for who comes as an editor, with the authority that signs people in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fakes.script import Refusal
from tests.fakes.signing import signature
from tests.fakes.vendors.authority import GitHubSigning
from tests.fakes.vendors.openai import OpenAI
from tests.fakes.wire import Asked

_EDITOR = ("editor-version", "copilot-integration-id")
_PATHS = ("/chat/completions", "/responses", "/models")


class Copilot(GitHubSigning, OpenAI):
    """A connection to Copilot. A model whose entry in the script has `supported_endpoints` is refused at the others."""

    async def route(self, asked: Asked) -> None:
        if await self.sign(asked):
            return None
        if asked.path not in _PATHS:
            raise Refusal(404, "<title>404 page not found</title>")
        for name in _EDITOR:
            if name not in asked.headers:
                raise Refusal(400, {"error": {"message": f"bad request: missing {name} header for IDE auth", "code": "bad_request"}})
        if not self.admitted(asked):
            if asked.method == "POST":
                self.note(asked)
            raise Refusal(401, "unauthorized: token expired")
        if asked.path == "/models":
            return self.whole(200, {"object": "list", "data": [_listed(each) for each in self.model.script.listed()]})
        self._check(asked)
        return await super().route(replace(asked, path=f"/v1{asked.path}"))

    def _check(self, asked: Asked) -> None:
        body = asked.body if isinstance(asked.body, dict) else {}
        entry = next((each for each in self.model.script.listed() if each["id"] == body.get("model")), {})
        if asked.path not in entry.get("supported_endpoints", [asked.path]):
            self.note(asked)
            text = f'model "{body.get("model")}" is not accessible via the {asked.path} endpoint'
            raise Refusal(400, {"error": {"message": text, "code": "unsupported_api_for_model"}})
        if asked.headers.get("x-initiator") not in ("user", "agent"):
            raise Refusal(400, {"error": {"message": "bad request: X-Initiator", "code": "bad_request"}})
        if ('"image_url"' in asked.raw or '"input_image"' in asked.raw) and asked.headers.get("copilot-vision-request") != "true":
            raise Refusal(400, {"error": {"message": "missing required Copilot-Vision-Request header for vision requests", "code": "bad_request"}})

    def _voiced(self, message: dict[str, Any], signed: str = "") -> dict[str, Any]:
        if "reasoning_content" not in message:
            return message
        rest, thought = {key: value for key, value in message.items() if key != "reasoning_content"}, message["reasoning_content"]
        return {**rest, "reasoning_text": thought, **({"reasoning_opaque": signed} if signed else {})}

    def _deltas(self, speech: Any) -> list[dict[str, Any]]:
        made = super()._deltas(speech)
        if speech.reasoning:
            last = max(n for n, delta in enumerate(made) if "reasoning_text" in delta)
            made.insert(last + 1, {"content": "", "reasoning_opaque": signature(speech.reasoning)})
        return made


def _listed(entry: dict[str, Any]) -> dict[str, Any]:
    limits = {"max_context_window_tokens": 128000, "max_output_tokens": 16384, "max_prompt_tokens": 111000}
    can = {"type": "chat", "family": "gpt", "limits": limits, "supports": {"tool_calls": True, "streaming": True}}
    return {"capabilities": can, "model_picker_enabled": True, "policy": {"state": "enabled"}, "vendor": "tests", **entry}
