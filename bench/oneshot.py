"""`bubbles agent -m hi` from a shell: with the daemons running, and with none.

    python bench/oneshot.py

Wall over what the model spends; CPU is the client's own. Cold, it starts agentd, modeld and cron; between two rounds they are ended.
"""

from __future__ import annotations

import os
import signal
import time

import disk
from chain import BUBBLES, alone, chain, model, model_ms, passing
from row import Row, main, median

from bubbles.bus.lock import is_running
from bubbles.paths import Home

ROUNDS = 21
_DAEMONS = ("agentd", "modeld", "cron")


def measure() -> list[Row]:
    with disk.here() as path, model() as url:
        with chain(path, url, *_DAEMONS) as made:
            home = made.home
            alone([BUBBLES, "agent", "-m", "hi"], home)
            warm, bare = [], []
            for _ in range(ROUNDS):
                bare.append(passing())
                warm.append(alone([BUBBLES, "agent", "-m", "hi"], home))
        cold = [_cold(home) for _ in range(ROUNDS // 2)]
        own = model_ms(url)
    return [_row("one-shot, warm", warm, bare, own, 80, 150), _row("one-shot, cold", cold, bare, own, 250, 1000)]


def _row(name: str, times: list[tuple[float, float]], bare: list[tuple[float, float]], own: float, goal: float, must: float) -> Row:
    wall, cpu = (median(list(column)) for column in zip(*times, strict=True))
    floor = median([wall for wall, _ in bare])
    beside = f"CPU of the client {cpu:.0f} ms; {wall / floor:.1f} x python -c pass; the model's {own:.2f} ms taken off"
    return Row(name, wall - own, "ms", goal, must, beside=beside, peer=name)


def _cold(home: Home) -> tuple[float, float]:
    taken = alone([BUBBLES, "agent", "-m", "hi"], home)
    for name in _DAEMONS:
        if pid := is_running(home, name):
            os.kill(pid, signal.SIGTERM)
    while any(is_running(home, name) for name in _DAEMONS):
        time.sleep(0.05)
    time.sleep(0.2)
    return taken


if __name__ == "__main__":
    main(measure)
