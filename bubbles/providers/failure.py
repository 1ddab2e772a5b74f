"""What went wrong, in the five kinds that matter: from an HTTP answer, or from an error object in a stream.

It does not know which provider spoke: endpoints that speak OpenAI's protocol word their errors each in its own way, and
gateways pass on the words of others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bubbles import log
from bubbles.errors import ContextTooLong, ModelDown, ModelError, NotAuthorized, RateLimited, Rejected
from bubbles.providers.lenient import ANSWER_MOST, parsed
from bubbles.providers.retry import retry_after_s

_TEXT_MOST = 400  # characters of a provider's words that an error carries
_BUSY = {408, 409, 425, 498, 529}  # below 500 or beside it, and still worth another try
_TOO_LONG = re.compile(
    r"context[_ ](length|window|size)[_ ]?(exceeded|error)|context_window_exceeded|exceed_context_size"
    r"|maximum (context|model|prompt) length|max_(model|seq)_len"  # OpenAI, vLLM, DeepSeek, OpenRouter, xAI; SiliconFlow
    r"|exceeds? the (available |maximum |model'?s )*(context|maximum (allowed )?number of (input )?tokens)"  # llama.cpp, Gemini, Ollama
    r"|exceeded? (max|maximum|model) (context|token)|context (window|length) exceeds"  # Ollama, Moonshot, Minimax
    r"|exceeds? (the )?context (limit|length|window)|greater than the context length"  # Anthropic, Ollama, LM Studio
    r"|(prompt|input) (is )?too long|prompt exceeds max length"  # Anthropic, Bedrock, vLLM; Zhipu
    r"|input length \d+ exceeds the maximum length|exceed max message tokens"  # VolcEngine
    r"|input length should be|reduce the length of the (messages|prompt)"  # Dashscope; Groq
    r"|inputs.{0,3} tokens \+|length of prompt_tokens|token count.{0,40}exceeds the limit"  # TGI, SiliconFlow, Copilot
)
_POOR = re.compile(r"credit balance is too low")  # Anthropic, which has no code for it
_NO_KEY = re.compile(r"api key not valid")  # Gemini, with status 400
_NO_MONEY = {"insufficient_quota", "billing_hard_limit_reached", "insufficient_balance", "arrearage", "account_deactivated", "1113"}
_NO_MONEY |= {"exceeded_current_quota_error"}  # Moonshot
_FILTERED = {"content_filter", "content_policy_violation", "data_inspection_failed", "datainspectionfailed", "responsibleaipolicyviolation", "1301"}
_NO_MODEL = re.compile(r"model\b.{0,80}\b(does not exist|not found)|model_not_found")  # SiliconFlow, with status 400
_UNKNOWN = re.compile(  # an option that a model does not take, in whatever words
    r"un(supported|known|recogni[sz]ed|expected)|not (be )?(support|recogni[sz]ed|permitted|allowed|accept|available|implemented|compatible)"
    r"|does(n't| not) (support|accept|allow|take)|do(n't| not) support|(is|are)(n't| not) (valid|a valid) (param|arg)|deprecated|extra (input|field)"
    r"|\brange\b|invalid (param|arg|value|field)|only .{0,40}(is|are) (supported|allowed)|must be|cannot be (set|used|specified)|no such"
)
_OF_WORDS = {0, 400, 403, 422}  # what is refused so may be refused for what stands in it
_POLICY = "the provider's content policy refused it: say it otherwise"
_LOOK_AT_URL = "look at the provider's base_url: it usually ends in /v1"


def from_response(status: int, body: bytes, headers: Mapping[str, str], now: float) -> ModelError:
    """The error that an HTTP answer other than 200 tells of. `headers` by lower-case name; `now` in epoch seconds."""
    try:
        told = parsed(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict | list):
        return _of_status(status, _not_json(body, headers), "", retry_after_s(headers, now), json=False)
    return from_object(told, status, retry_after_s(headers, now))


def from_object(told: Any, status: int = 0, after_s: float = 0.0) -> ModelError:
    """The error in a JSON body or an event of a stream; `status` 0 where there is none but what it says itself."""
    if isinstance(told, list):  # Gemini wraps it once more
        told = told[0] if told else {}
    error = told.get("error", told) if isinstance(told, dict) else told
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        error = {}
    text = str(error.get("message") or error.get("msg") or error.get("detail") or "")
    raw = (error.get("metadata") or {}).get("raw") if isinstance(error.get("metadata"), dict) else None  # what OpenRouter passes on
    words = f"{text} {raw or ''}"
    codes = {str(error.get(key)).lower() for key in ("code", "type", "status") if error.get(key)}
    return _of_status(_status(status, error), words.strip() or "no reason given", " ".join(codes), after_s)


def too_large() -> ModelError:
    """An answer that is not read to its end. What has come of it was paid for."""
    error = Rejected(f"an answer of more than {ANSWER_MOST >> 20} MiB")
    error.may_cost = True
    return error


def refuses(error: Rejected, *options: str) -> bool:
    """Whether it is for an option of the request, by one of its names, that it was refused; what is quoted of a conversation may name it as well."""
    if error.remedy == _POLICY:
        return False
    named = rf"(?<![\w-])({'|'.join(map(re.escape, options))})(?![\w-])"
    return any(re.search(named, part) and _UNKNOWN.search(part) for part in re.split(r"[.;\n] ", error.text.lower()))


def no_json(body: bytes, headers: Mapping[str, str]) -> ModelError:
    """A 200 that is no JSON: a page for people (a wrong address), or an answer that broke off."""
    text = _not_json(body, headers)
    if body.lstrip()[:1] == b"<" or "html" in headers.get("content-type", ""):
        return Rejected(f"not a model's answer but {text}", remedy=_LOOK_AT_URL)
    return ModelDown(f"an answer that is not JSON: {text}")


def _status(status: int, error: dict[str, Any]) -> int:
    """The HTTP status, or what the error object says of itself where the status says nothing."""
    if status >= 400:
        return status
    for key in ("status_code", "code", "status"):
        value = error.get(key)
        if isinstance(value, int | str) and re.fullmatch(r"[45]\d\d", str(value)):
            return int(value)
    return 0


def _of_status(status: int, words: str, codes: str, after_s: float, *, json: bool = True) -> ModelError:
    said = _said(status, words)
    lowered, found = f"{codes} {words}".lower(), set(codes.split())
    if status != 429 and (status == 413 or _TOO_LONG.search(lowered)):
        return ContextTooLong(said)
    if status == 402 or found & _NO_MONEY or _POOR.search(lowered):
        return NotAuthorized(said, remedy="look at your account with the provider: it has no credit, or has reached its limit", no_credit=True)
    if status == 429 or found & {"rate_limit_exceeded", "rate_limit_error", "resource_exhausted"}:
        return RateLimited(said, retry_after_s=after_s)
    if found & _FILTERED or (status == 403 and ("moderation" in lowered or "flagged" in lowered)):
        return Rejected(said, remedy=_POLICY, of_words=True)
    if status in (401, 403) or _NO_KEY.search(lowered) or found & {"invalid_api_key", "authentication_error", "permission_error"}:
        return NotAuthorized(said, remedy="look at the provider's api_key, and whether it may use this model")
    if status in _BUSY or status >= 500 or (not status and "invalid_request_error" not in found):
        return ModelDown(said, retry_after_s=after_s)
    if json and (status == 404 or _NO_MODEL.search(lowered)):
        return Rejected(said, remedy="look at the model's name, and at the provider's base_url")
    return Rejected(said, remedy="" if json and status >= 400 else _LOOK_AT_URL, of_words=json and status in _OF_WORDS)


def _said(status: int, words: str) -> str:
    words = log.clipped(" ".join(words.split()), _TEXT_MOST)  # some repeat the key that they refuse
    return f"HTTP {status}: {words}" if status else words


def _not_json(body: bytes, headers: Mapping[str, str]) -> str:
    kind = headers.get("content-type", "").partition(";")[0] or "no type"
    title = re.search(rb"<title[^>]*>([^<]*)", body[:20_000], re.IGNORECASE)
    shown = title.group(1) if title else body[:200]
    return f"{len(body)} bytes of {kind}: {shown.decode('utf-8', 'replace').strip()!r}"
