"""Counts of tokens by real vocabularies that are on this machine: those that LiteLLM brings along, and the embedded model's where it was fetched.

Nothing is fetched here.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import tiktoken
from tokenizers import Tokenizer

Count = Callable[[str], int]

_ROOT = Path(__file__).resolve().parents[2]
OPENAI = ("o200k_base", "cl100k_base")
OTHERS = ("deepseek", "anthropic")  # Anthropic's is that of its older models, the last it has published


def _bundled() -> Path:
    found = importlib.util.find_spec("litellm")
    assert found
    assert found.origin
    return Path(found.origin).parent / "litellm_core_utils" / "tokenizers"


def openai(name: str) -> Count:
    """OpenAI's own."""
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(_bundled())  # else it would be fetched
    try:
        encoding = tiktoken.get_encoding(name)
    finally:
        os.environ.pop("TIKTOKEN_CACHE_DIR")
        if before is not None:
            os.environ["TIKTOKEN_CACHE_DIR"] = before
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def other(name: str) -> Count:
    """One of OTHERS."""
    tokenizer = Tokenizer.from_file(str(_bundled() / f"{name}_tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def model() -> Path | None:
    """The model file that `make test` fetches, or another that is named."""
    named = os.environ.get("BUBBLES_TEST_GGUF")
    return Path(named) if named else next(iter(sorted((_ROOT / ".demo" / "home" / "models").glob("*.gguf"))), None)


@contextmanager
def embedded(model: Path) -> Iterator[Count]:
    """That of a model file, by llama.cpp."""
    argv = [sys.executable, "-m", "bubbles.providers.llama"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            wanted = {"model": str(model), "context_tokens": 256, "threads": 1, "key": "k", "parent": os.getpid()}
            process.stdin.write(json.dumps(wanted) + "\n")
            process.stdin.flush()
            address = urlsplit(json.loads(process.stdout.readline())["address"]).netloc
            yield lambda text: len(_asked(address, text))
        finally:
            process.stdin.close()
            process.wait(timeout=30)


def _asked(address: str, text: str) -> list[int]:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("POST", "/tokenize", json.dumps({"content": text}), {"Authorization": "Bearer k", "Content-Type": "application/json"})
        found: list[int] = json.loads(connection.getresponse().read())["tokens"]
        return found
    finally:
        connection.close()
