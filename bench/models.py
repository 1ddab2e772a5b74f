"""What modeld itself costs: a request and a streamed chunk through it beside a bare httpx call to the same server, its memory, and whether it grows.

    python bench/models.py [--asks 2000]

Both ways of asking are measured, the own client (custom) and LiteLLM (groq), in rounds interleaved with httpx's. Growth is the slope of modeld's
memory over the asks after the first 2 500 (its last 2 000 answers are kept for a while); LiteLLM gets a fifth of both behind those.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import disk
import httpx
import reading
from chain import chain, model
from row import Row, main, median

from bubbles.bus.dial import Dial

ROUNDS, CALLS, LONG, SHORT = 5, 12, 208, 8
_KEPT = 2500
_NUMBERS = itertools.count()
_WAYS = {"own client": "custom", "LiteLLM": "groq"}


def _message(pieces: int) -> dict[str, str]:
    return {"role": "user", "content": f"pieces={pieces}."}


def _through(dial: Dial, provider: str, pieces: int) -> None:
    line = json.dumps(_message(pieces), separators=(",", ":")).encode()
    head = {"ask": f"b.{next(_NUMBERS)}", "model": "bench", "provider": provider, "stream": True, "base": "", "keep": 0, "tools": ""}
    body, _ = dial.call("model.ask", head, [line, b""], timeout_s=60)
    assert body["text"], body


def _bare(client: httpx.Client, url: str, pieces: int) -> None:
    asked = {"model": "bench", "messages": [_message(pieces)], "stream": True}
    data = json.dumps(asked, separators=(",", ":")).encode()  # the cheap model knows a message by how it begins
    with client.stream("POST", f"{url}/chat/completions", content=data, headers={"Content-Type": "application/json"}) as response:
        told = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    assert len(told) >= pieces


def _ms(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        work()
    return (time.perf_counter() - began) * 1000 / CALLS


def _grown(dial: Dial, provider: str, pid: int, asks: int) -> tuple[float, list[float]]:
    """KiB by which 1 000 asks make modeld larger, and the readings in MiB."""
    step = max(1, asks // 20)
    for _ in range(min(_KEPT, asks)):
        _through(dial, provider, SHORT)
    readings = [reading.rss_mib(pid)]
    for _ in range(20):
        for _ in range(step):
            _through(dial, provider, SHORT)
        readings.append(reading.rss_mib(pid))
    slope = statistics.linear_regression([n * step for n in range(len(readings))], readings).slope
    return slope * 1024 * 1000, readings


def measure() -> list[Row]:
    asks = int(sys.argv[sys.argv.index("--asks") + 1]) if "--asks" in sys.argv else 2_000
    rows, memory = [], {}
    with disk.here() as path, model() as url:
        settings = {f"providers.groq.{name}": value for name, value in {"base_url": url, "api_key": "sk-0123456789"}.items()}
        with chain(path, url, "modeld", settings=settings) as made, Dial(made.home, "modeld") as dial, httpx.Client(trust_env=False) as client:
            pid = made.pids()["modeld"]
            for way, provider in _WAYS.items():
                _through(dial, provider, SHORT)
                memory[way] = reading.rss_mib(pid)
                rows += _beside(way, dial, provider, client, url)
                count = asks if provider == "custom" else asks // 5
                slope, readings = _grown(dial, provider, pid, count)
                beside = f"{readings[0]:.1f} -> {readings[10]:.1f} -> {readings[-1]:.1f} MiB over {count} asks"
                rows.append(Row(f"growth of modeld, 1 000 asks, {way}", slope, "KiB", beside=beside))
    return rows + [Row(f"modeld after its first ask, {way}", mib, "MiB") for way, mib in memory.items()]


def _beside(way: str, dial: Dial, provider: str, client: httpx.Client, url: str) -> list[Row]:
    took: dict[tuple[str, int], list[float]] = {}
    for pieces in [SHORT, LONG] * ROUNDS:
        took.setdefault(("httpx", pieces), []).append(_ms(partial(_bare, client, url, pieces)))
        took.setdefault(("modeld", pieces), []).append(_ms(partial(_through, dial, provider, pieces)))
    middle = {key: median(values) for key, values in took.items()}
    chunk = {who: (middle[who, LONG] - middle[who, SHORT]) / (LONG - SHORT) * 1000 for who in ("httpx", "modeld")}
    ratio = middle["modeld", SHORT] / middle["httpx", SHORT]
    return [
        Row(f"an ask of {SHORT} chunks, {way}", middle["modeld", SHORT], "ms", beside=f"{ratio:.2f} x httpx ({middle['httpx', SHORT]:.2f} ms)"),
        Row(f"a further chunk, {way}", chunk["modeld"], "us", beside=f"{chunk['modeld'] / chunk['httpx']:.2f} x httpx ({chunk['httpx']:.1f} us)"),
    ]


if __name__ == "__main__":
    main(measure)
