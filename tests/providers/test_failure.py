"""Errors of many endpoints in their own words, and the kind that each of them is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import log
from bubbles.errors import ContextTooLong, ModelDown, ModelError, NotAuthorized, RateLimited, Rejected
from bubbles.providers.failure import from_object, from_response, no_json

JSON = {"content-type": "application/json"}


def told(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


CASES: list[tuple[int, Any, type[ModelError]]] = [
    (400, told("This model's maximum context length is 128000 tokens.", code="context_length_exceeded"), ContextTooLong),
    (400, told("too long", code="context_length_exceeded"), ContextTooLong),
    (400, told("request (9031 tokens) exceeds the available context size (4096 tokens)", code=400, type="exceed_context_size_error"), ContextTooLong),
    (500, told("the request exceeds the available context size", code=500), ContextTooLong),
    (
        400,
        {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000", "code": 400},
        ContextTooLong,
    ),
    (400, told("The decoder prompt (length 9000) is longer than the maximum model length of 8192."), ContextTooLong),
    (400, told("prompt too long; exceeded max context length by 12 tokens", type="invalid_request_error"), ContextTooLong),
    (400, {"error": "input length exceeds the context length"}, ContextTooLong),
    (400, told("Trying to keep the first 9000 tokens; it is greater than the context length"), ContextTooLong),
    (400, told("prompt is too long: 213462 tokens > 200000 maximum", type="invalid_request_error"), ContextTooLong),
    (400, told("input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000"), ContextTooLong),
    (
        400,
        [told("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)", status="INVALID_ARGUMENT")],
        ContextTooLong,
    ),
    (400, told("Invalid request: Your request exceeded model token limit: 8192"), ContextTooLong),
    (400, told("Prompt exceeds max length", code="1261"), ContextTooLong),
    (400, told("Range of input length should be [1, 30720]", code="invalid_parameter_error"), ContextTooLong),
    (400, told("This endpoint's maximum context length is 32768 tokens. However, you requested about 40000"), ContextTooLong),
    (422, told("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"), ContextTooLong),
    (400, told("prompt token count of 130000 exceeds the limit of 128000", code="model_max_prompt_tokens_exceeded"), ContextTooLong),
    (413, told("Request too large for model"), ContextTooLong),
    (400, told("max_tokens is too large: 100000. This model supports at most 16384 completion tokens", code="invalid_value"), Rejected),
    (429, told("Rate limit reached for tokens per min", code="rate_limit_exceeded", type="tokens"), RateLimited),
    (429, [told("You exceeded your current quota", code=429, status="RESOURCE_EXHAUSTED")], RateLimited),
    (429, told("maximum context length tokens per minute reached"), RateLimited),
    (429, told("You exceeded your current quota", code="insufficient_quota", type="insufficient_quota"), NotAuthorized),
    (429, told("余额不足或无可用资源包,请充值。", code="1113"), NotAuthorized),
    (402, told("Insufficient Balance"), NotAuthorized),
    (400, told("Access denied, please make sure your account is in good standing.", code="Arrearage"), NotAuthorized),
    (401, told("Incorrect API key provided", code="invalid_api_key"), NotAuthorized),
    (401, told("Invalid API Key", type="authentication_error", code=401), NotAuthorized),
    (403, told("Your key does not have access"), NotAuthorized),
    (403, told("Your chosen model requires moderation and your input was flagged", code=403), Rejected),
    (400, told("The response was filtered", code="content_filter"), Rejected),
    (400, told("Output data may contain inappropriate content.", code="data_inspection_failed"), Rejected),
    (400, told("Invalid request."), Rejected),
    (404, told("The model `x` does not exist", code="model_not_found"), Rejected),
    (422, {"detail": [{"loc": ["body"], "msg": "extra fields not permitted"}]}, Rejected),
    (500, told("The server had an error"), ModelDown),
    (503, told("Loading model", type="unavailable_error", code=503), ModelDown),
    (529, told("Overloaded", type="overloaded_error"), ModelDown),
    (408, told("Timeout"), ModelDown),
]


@pytest.mark.parametrize(("status", "body", "kind"), CASES)
def test_what_an_endpoint_means(status: int, body: Any, kind: type[ModelError]) -> None:
    error = from_response(status, json.dumps(body).encode(), JSON, 0)
    assert type(error) is kind
    assert str(status) in error.text


IN_A_STREAM: list[tuple[Any, type[ModelError]]] = [
    (told("Rate limit", code=429), RateLimited),
    (told("Rate limit", code="rate_limit_exceeded"), RateLimited),
    (told("overloaded", type="server_error"), ModelDown),
    (told("exceeds the available context size", code=400, type="exceed_context_size_error"), ContextTooLong),
    (told("bad", type="invalid_request_error"), Rejected),
    (told("bad key", type="authentication_error"), NotAuthorized),
    (told("Provider returned error", code=502, metadata={"raw": "upstream is down"}), ModelDown),
    (told("Provider returned error", code=400, metadata={"raw": "maximum context length is 8192 tokens"}), ContextTooLong),
    ({"error": None}, ModelDown),
    ({"error": {"metadata": 3}}, ModelDown),
]


@pytest.mark.parametrize(("body", "kind"), IN_A_STREAM)
def test_what_an_error_without_a_status_means(body: Any, kind: type[ModelError]) -> None:
    assert type(from_object(body)) is kind


@pytest.mark.parametrize(("status", "kind"), [(404, Rejected), (401, NotAuthorized), (502, ModelDown), (302, Rejected), (429, RateLimited)])
def test_a_page_for_people(status: int, kind: type[ModelError]) -> None:
    page = b"<html><head><title>nginx says no</title></head><body>...</body></html>"
    error = from_response(status, page, {"content-type": "text/html"}, 0)
    assert type(error) is kind
    assert "nginx says no" in error.text
    if kind is Rejected:
        assert "base_url" in error.remedy


def test_a_page_where_an_answer_should_be() -> None:
    error = no_json(b"<!doctype html><title>Welcome</title>", {"content-type": "text/html"})
    assert isinstance(error, Rejected)
    assert "base_url" in error.remedy
    assert isinstance(no_json(b'{"choices": [', JSON), ModelDown)


def test_the_pause_asked_for_is_kept() -> None:
    error = from_response(429, b'{"error": {"message": "slow"}}', {**JSON, "retry-after": "12"}, 0)
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 12


def test_long_words_are_clipped() -> None:
    assert len(from_response(400, json.dumps(told("x " * 10_000)).encode(), JSON, 0).text) < 500


@given(
    st.integers(300, 599),
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "metadata", "raw", "status"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode()),
)
def test_no_body_is_a_crash(status: int, body: bytes) -> None:
    assert isinstance(from_response(status, body, JSON, 0), ModelError)


def test_a_key_that_is_repeated_at_the_cut_is_struck_first() -> None:
    log.redact(["secret-key-of-forty-characters-0123456789"])
    try:
        said = json.dumps(told(f"{'x' * 380} secret-key-of-forty-characters-0123456789")).encode()
        error = from_response(401, said, JSON, 0.0)
        assert "secret" not in error.text
    finally:
        log.redact([])
