"""Copilot, driven by OpenAI's own client, which is told to come as an editor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.start import FakeModel, vendor

openai = pytest.importorskip("openai", reason="openai is in the dev extra")

EDITOR = {"Editor-Version": "vscode/1.107.0", "Copilot-Integration-Id": "vscode-chat", "X-Initiator": "user"}
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with vendor("copilot") as fake:
        yield fake


@pytest.fixture
def client(server: FakeModel) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0, timeout=10, default_headers=EDITOR) as made:
        yield made


def test_both_protocols_and_the_list(server: FakeModel, client: Any) -> None:
    server.play({"models": ["gpt-5"], "default": {"reply": "hello", "reasoning": "hm"}})
    chunks = list(client.chat.completions.create(model="gpt-5", messages=HI, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
    assert [seal for chunk in chunks if (seal := getattr(chunk.choices[0].delta, "reasoning_opaque", None))]
    assert client.chat.completions.create(model="gpt-5", messages=HI).choices[0].message.reasoning_text == "hm"
    with client.responses.stream(model="gpt-5", input="hi") as streamed:
        assert streamed.get_final_response().output_text == "hello"
    assert [model.id for model in client.models.list()] == ["gpt-5"]


def test_a_model_answers_at_its_own_endpoint(server: FakeModel, client: Any) -> None:
    server.play({"models": [{"id": "gpt-6", "supported_endpoints": ["/responses"]}]})
    with pytest.raises(openai.BadRequestError, match="not accessible via the /chat/completions endpoint") as caught:
        client.chat.completions.create(model="gpt-6", messages=HI)
    assert caught.value.code == "unsupported_api_for_model"
    assert client.responses.create(model="gpt-6", input="hi").output_text == "ok"


@pytest.mark.parametrize("left_out", list(EDITOR))
def test_who_does_not_come_as_an_editor_is_refused(server: FakeModel, left_out: str) -> None:
    server.play({})
    headers = {name: value for name, value in EDITOR.items() if name != left_out}
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0, default_headers=headers) as client, pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="gpt-5", messages=HI)


def test_images_are_to_be_announced(server: FakeModel, client: Any) -> None:
    server.play({})
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]
    with pytest.raises(openai.BadRequestError, match="Vision"):
        client.chat.completions.create(model="gpt-5", messages=image)
    assert client.chat.completions.create(model="gpt-5", messages=image, extra_headers={"Copilot-Vision-Request": "true"}).choices
