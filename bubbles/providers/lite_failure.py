"""What went wrong when LiteLLM was asked, in the five kinds: from what came back over HTTP where something did, else from what LiteLLM says. Pure.

It does not know LiteLLM's classes: how they divide errors changes, the vendors' own words count.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from bubbles import log
from bubbles.errors import ModelDown, ModelError, Rejected
from bubbles.providers.failure import from_object, from_response, no_json, too_large
from bubbles.providers.lenient import parsed

# What it puts around a vendor's words.
_ITS_OWN = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?::| -) ?)+|\. Handle with `litellm\.\w+`\.$")
_SAYS_SOMETHING = {400, 401, 402, 403, 404, 413, 422, 429, 529}  # 500 is what it says where it does not know


def failure(error: Exception, seen: Any, where: str, now: float) -> ModelError:
    """The ModelError for what LiteLLM raised. `seen`: as lite_library.Seen; `where`: whom it asked; `now` in epoch seconds."""
    if seen.too_large:
        return too_large()
    if seen.status and seen.status != 200:
        return from_response(seen.status, seen.body, seen.headers, now)
    if seen.body:
        return not_streamed(seen.body, seen.headers)
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return Rejected(f"{where}: {log.struck(str(causes[-1]))}", remedy="look at the provider's base_url")
    if seen.requests and not seen.status:
        return ModelDown(f"{where}: {log.struck(str(causes[-1]) or type(causes[-1]).__name__)}")
    return _of_words(str(getattr(error, "message", "") or error), getattr(error, "status_code", None))


def not_streamed(body: bytes, headers: Mapping[str, str]) -> ModelError:
    """The error in a 200 that is no answer: one that says so itself, or something else altogether."""
    with suppress(ValueError, RecursionError):
        told = parsed(body)
        if isinstance(told, list) and told:  # Gemini wraps it once more
            told = told[0]
        if isinstance(told, dict) and told.get("error"):
            return from_object(told)
    return no_json(body, headers)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _of_words(text: str, status: Any) -> ModelError:
    """From an error that an answer brought in its middle, or that LiteLLM has of its own."""
    words = _ITS_OWN.sub("", text).strip()
    status = int(status) if isinstance(status, int | str) and str(status).isdigit() and int(status) in _SAYS_SOMETHING else 0
    if (told := _object(words)) is not None:
        return from_object(told, status)
    return from_object({"message": words or text}, status)


def _object(words: str) -> Any:
    """The JSON object in a text, which may have been written as bytes are in Python."""
    start, end = words.find("{"), words.rfind("}")
    for text in (words[start : end + 1], words[start : end + 1].replace("\\\\", "\\")):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None
