"""A model's window and the size of a request, as a provider's refusal names them. It does not know which provider spoke."""

from __future__ import annotations

import re

LEAST, MOST = 512, 100_000_000  # what is believed to be a window
_N = r"\(?(\d[\d,]*)"
_WINDOW = (
    rf"maximum (?:context|model|prompt) length (?:is|of|for this model is) {_N}",  # OpenAI, vLLM, DeepSeek, OpenRouter
    rf"exceeds the maximum length {_N}",  # VolcEngine
    rf"{_N} maximum context length",  # Mistral
    rf"> ?{_N}",  # Anthropic
    rf"tokens allowed {_N}",  # Gemini
    rf"context (?:size|window|length|limit)(?: of| is|:)? {_N} ?tokens",  # llama.cpp
    rf"input length should be \[\d+, ?{_N}",  # Dashscope
    rf"token limit:? {_N}",  # Moonshot
    rf"must be <= ?{_N}",  # TGI
    rf"exceeds the limit of {_N}",  # Copilot
)
_ASKED = (
    rf"{_N} (?:tokens )?in the messages",
    rf"resulted in {_N}",
    rf"requested:? {_N}",
    rf"too long: {_N}",
    rf"input length {_N}",
    rf"token count (?:of )?{_N}",
    rf"(?:request|prompt) (?:contains )?{_N} tokens",
    rf"prompt \(length {_N}",
)


def told(text: str) -> tuple[int, int]:
    """(window, asked): the tokens that fit, and those that were sent, as a refusal says them; 0 where it does not.

    >>> told("prompt is too long: 208310 tokens > 200000 maximum")
    (200000, 208310)
    >>> told("the prompt is too long")
    (0, 0)
    """
    window, asked = _first(_WINDOW, text), _first(_ASKED, text)
    return window, asked if asked > window else 0


def _first(patterns: tuple[str, ...], text: str) -> int:
    for pattern in patterns:
        for found in re.finditer(pattern, text, re.IGNORECASE):
            number = int(found[1].replace(",", ""))
            if LEAST <= number <= MOST:
                return number
    return 0
