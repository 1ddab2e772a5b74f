"""What LiteLLM raises, told in the five kinds: by what came back over HTTP, else by the vendor's words in it. Nothing is loaded."""

from __future__ import annotations

import json
import ssl
from types import SimpleNamespace
from typing import Any

import pytest

from bubbles.errors import ContextTooLong, ModelDown, ModelError, NotAuthorized, RateLimited, Rejected
from bubbles.providers.lite_failure import failure

HERE = "api.example.org"


class Raised(Exception):
    """As LiteLLM's: with a message, and a status that may be made up."""

    def __init__(self, message: str, status_code: Any = 500) -> None:
        super().__init__(message)
        self.message, self.status_code = message, status_code


def seen(status: int = 200, body: bytes = b"", requests: int = 1, **headers: str) -> SimpleNamespace:
    return SimpleNamespace(status=status, body=body, requests=requests, headers=headers, too_large=False)


def test_what_came_back_counts_and_not_what_is_made_of_it() -> None:
    told = seen(429, b'{"error":{"type":"rate_limit_error","message":"slow down"}}', **{"retry-after": "7"})
    found = failure(Raised("litellm.BadRequestError: whatever", 400), told, HERE, 0)
    assert (type(found), found.text) == (RateLimited, "HTTP 429: slow down")
    assert isinstance(found, RateLimited)
    assert found.retry_after_s == 7


def test_a_page_is_told_by_its_title() -> None:
    page = seen(200, b"<html><title>Sign in</title></html>", **{"content-type": "text/html"})
    found = failure(Raised("Unable to get json response"), page, HERE, 0)
    assert type(found) is Rejected
    assert "Sign in" in found.text


@pytest.mark.parametrize(
    ("message", "status", "kind", "text"),
    [
        ('litellm.APIError: AnthropicException - {"error":{"type":"overloaded_error","message":"Overloaded"}}', 500, ModelDown, "Overloaded"),
        ('litellm.APIError: GeminiException - {"error":{"code":429,"message":"quota"}}', 500, RateLimited, "HTTP 429: quota"),
        ("litellm.APIError: APIConnectionError: OpenAIException - prompt is too long: 9 tokens", 500, ContextTooLong, "prompt is too long: 9 tokens"),
        ("litellm.BadRequestError: AnthropicException - b'{\"error\":{\"message\":\"nope\"}}'", 400, Rejected, "HTTP 400: nope"),
        ("litellm.AuthenticationError: no", 401, NotAuthorized, "HTTP 401: no"),
        ("something odd", None, ModelDown, "something odd"),
        ("litellm.InternalServerError: odd. Handle with `litellm.InternalServerError`.", 500, ModelDown, "odd"),
        ("", "x", ModelDown, "no reason given"),
    ],
)
def test_in_the_middle_of_an_answer_the_vendors_words_count(message: str, status: Any, kind: type[ModelError], text: str) -> None:
    found = failure(Raised(message, status), seen(), HERE, 0)
    assert (type(found), found.text) == (kind, text)


def _after(cause: Exception) -> Exception:
    """An error that came of another one."""
    try:
        try:
            raise cause
        except Exception as error:
            raise Raised("litellm.InternalServerError: Connection error.") from error
    except Raised as error:
        return error


def test_no_connection_is_told_with_its_cause() -> None:
    found = failure(_after(OSError("All connection attempts failed")), seen(0), HERE, 0)
    assert (type(found), found.text) == (ModelDown, "api.example.org: All connection attempts failed")


def test_a_certificate_that_is_wrong_is_not_tried_again() -> None:
    found = failure(_after(ssl.SSLCertVerificationError(1, "certificate verify failed")), seen(0), HERE, 0)
    assert type(found) is Rejected
    assert "base_url" in found.remedy


def test_what_it_would_not_ask_is_rejected() -> None:
    found = failure(Raised("litellm.UnsupportedParamsError: m does not support temperature=0.7", 400), seen(0, requests=0), HERE, 0)
    assert (type(found), found.text) == (Rejected, "HTTP 400: m does not support temperature=0.7")


def test_an_object_of_another_form_is_no_fault_of_ours() -> None:
    for words in (json.dumps({"error": {"error": 1}}), '{"error": []}', "{]", '{"a": ' * 2000):
        assert isinstance(failure(Raised(words), seen(), HERE, 0), ModelError)
