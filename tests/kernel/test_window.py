"""What a refusal says of a window and of a request, in each vendor's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.kernel.window import told

OPENAI = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
DEEPSEEK = "maximum context length is 65536 tokens. However, you requested 70096 tokens (66000 in the messages, 4096 in the completion)."


@pytest.mark.parametrize(
    ("text", "window", "asked"),
    [
        (OPENAI, 8192, 9001),
        (DEEPSEEK, 65536, 66000),
        ("prompt is too long: 208310 tokens > 200000 maximum", 200_000, 208_310),
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length", 200_000, 0),
        ("The input token count (1198000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576, 1_198_000),
        ("request (9210 tokens) exceeds the available context size (4096 tokens), try increasing it", 4096, 9210),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 4096, 5000),
        ("Prompt contains 40000 tokens, too large for model with 32,768 maximum context length", 32_768, 40_000),
        ("Input length 203743 exceeds the maximum length 202752", 202_752, 203_743),
        ("Range of input length should be [1, 30720]", 30_720, 0),
        ("Invalid request: Your request exceeded model token limit: 8192 (requested: 9100)", 8192, 9100),
        ("prompt token count of 70000 exceeds the limit of 64000", 64_000, 70_000),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 1000", 4096, 0),
        ("invalid params, context window exceeds limit (2013)", 0, 0),  # a code of theirs
        ("Please reduce the length of the messages or completion.", 0, 0),
        ("maximum context length is 3 tokens", 0, 0),
    ],
)
def test_refusals(text: str, window: int, asked: int) -> None:
    assert told(text) == (window, asked)


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    window, asked = told(text)
    assert window >= 0
    assert asked == 0 or asked > window
