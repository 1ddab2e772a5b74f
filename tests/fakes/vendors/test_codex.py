"""Codex, driven by OpenAI's own client: its Responses are those of the real one, and its authority keeps the rules of such."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from bubbles.providers.codex_login import challenge
from tests.fakes.start import FakeModel, vendor
from tests.fakes.vendors.authority import BACK, OPENAI_CLIENT

openai = pytest.importorskip("openai", reason="openai is in the dev extra")

INPUT = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
RIGHT = {"model": "gpt-5", "input": INPUT, "instructions": "Be brief.", "store": False}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with vendor("codex") as fake:
        yield fake


@pytest.fixture
def client(server: FakeModel) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0, timeout=10) as made:
        yield made


def test_the_official_client_reads_its_stream(server: FakeModel, client: Any) -> None:
    calls = [{"name": "exec", "arguments": {"a": "ä 木"}, "id": "call_1"}, {"name": "exec", "arguments": "{}", "id": "call_2"}]
    server.play({"default": {"reply": "hello", "reasoning": "a greeting", "calls": calls}})
    with client.responses.stream(**RIGHT, include=["reasoning.encrypted_content"]) as streamed:
        answer = streamed.get_final_response()
    assert answer.output_text == "hello"
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call", "function_call"]
    assert answer.output[0].encrypted_content
    assert [item.call_id for item in answer.output[2:]] == ["call_1", "call_2"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"store": True}, "Store must be set to false"),
        ({"instructions": ""}, "Instructions are required"),
        ({"max_output_tokens": 100}, "Unsupported parameter: max_output_tokens"),
        ({"temperature": 1}, "Unsupported parameter: temperature"),
        ({"input": [{"role": "system", "content": "x"}]}, "System messages are not allowed"),
    ],
)
def test_what_it_refuses_beyond_the_responses(server: FakeModel, client: Any, change: dict[str, Any], said: str) -> None:
    server.play({})
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**RIGHT, **change}, stream=True)
    assert caught.value.response.json() == {"detail": said}
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**RIGHT)
    assert caught.value.response.json() == {"detail": "Stream must be set to true"}


# -- the authority -------------------------------------------------------------------------------------


def call(server: FakeModel, method: str, path: str, body: str = "", kind: str = "application/json") -> tuple[int, Any, str]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    connection.request(method, path, body, {"Content-Type": kind})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, json.loads(data) if "json" in answer.headers["content-type"] else data, answer.headers.get("location", "")


def authorized(server: FakeModel, **change: str) -> tuple[int, Any, str]:
    query = {"response_type": "code", "client_id": OPENAI_CLIENT, "redirect_uri": BACK, "code_challenge_method": "S256"}
    query |= {"scope": "openid offline_access", "state": "s" * 20, "code_challenge": challenge("v" * 50)}
    return call(server, "GET", f"/oauth/authorize?{urlencode({**query, **change})}")


def exchanged(server: FakeModel, code: str, verifier: str = "v" * 50, back: str = BACK) -> tuple[int, Any, str]:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": OPENAI_CLIENT, "code_verifier": verifier}
    return call(server, "POST", "/oauth/token", urlencode(form), "application/x-www-form-urlencoded")


def test_a_code_is_good_once_for_whoever_began_it(server: FakeModel) -> None:
    server.play({})
    query = parse_qs(urlsplit(authorized(server)[2]).query)
    assert query["state"] == ["s" * 20]
    assert exchanged(server, query["code"][0])[0] == 200
    assert exchanged(server, query["code"][0])[0] == 400
    for wrong in ({"verifier": "w" * 50}, {"back": "http://localhost:1/auth/callback"}):
        code = parse_qs(urlsplit(authorized(server)[2]).query)["code"][0]
        assert exchanged(server, code, **wrong)[0] == 400


@pytest.mark.parametrize("change", [{"code_challenge_method": "plain"}, {"redirect_uri": "http://evil"}, {"state": ""}, {"client_id": "x"}])
def test_a_login_that_is_none_is_refused(server: FakeModel, change: dict[str, str]) -> None:
    assert authorized(server, **change)[0] == 400


def test_a_refresh_token_is_good_once(server: FakeModel) -> None:
    server.play({})
    body = json.dumps({"client_id": OPENAI_CLIENT, "grant_type": "refresh_token", "refresh_token": "refresh-0-of-somebody"})
    assert call(server, "POST", "/oauth/token", body)[0] == 200
    status, told, _ = call(server, "POST", "/oauth/token", body)
    assert (status, told["error"]["code"]) == (401, "refresh_token_reused")
