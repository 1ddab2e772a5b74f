"""What a model file says of itself."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bubbles.errors import Rejected
from bubbles.providers.gguf import Traits, traits


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def gguf(*pairs: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)


WINDOW = pair(b"llama.context_length", 4, struct.pack("<I", 8192))
WIDE = pair(b"qwen2.context_length", 10, struct.pack("<Q", 1 << 20))
TEMPLATE = pair(b"tokenizer.chat_template", 8, text(b"{% for message in messages %}{% endfor %}"))
WITH_TOOLS = pair(b"tokenizer.chat_template", 8, text(b"{% if tools %}<tool_call>{% endif %}"))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (gguf(WINDOW, TEMPLATE), Traits(8192, False)),
        (gguf(WITH_TOOLS, WIDE), Traits(1 << 20, True)),
        (gguf(), Traits()),
        (gguf(pair(b"x.context_length", 6, b"\0\0\0\0")), Traits()),
        (gguf(WINDOW)[:-2], Traits()),
        (gguf(WITH_TOOLS)[:-40], Traits()),
    ],
)
def test_traits(tmp_path: Path, data: bytes, found: Traits) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    assert traits(tmp_path / "m.gguf") == found


@pytest.mark.parametrize("data", [None, b"", b"PK\3\4 a zip file"])
def test_what_is_none_is_refused_with_what_to_do(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(Rejected) as refused:
        traits(tmp_path / "m.gguf")
    assert refused.value.remedy == "bubbles models fetch"
    assert refused.value.attempts == 0
    assert str(tmp_path) in refused.value.text
