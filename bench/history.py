"""What a long session costs: a turn's CPU and wall with 5 000 messages behind it, against one with 50.

    python bench/history.py

The long history is written before agentd starts; the request that it makes is 1.2 MB. What must still grow is that modeld hands these bytes to the
kernel: that share is measured beside it, as the CPU of writing as many bytes to a socket that is read.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import disk
from chain import Chain, Spent, Terminal, chain, model, model_said
from row import Row, main, median

ROUNDS, TURNS = 7, 20
SIZES = (50, 5000)
WHOLE = {"agents.defaults.context_tokens": 4_000_000}  # or the long one would be summarised
_WORDS = "what was said about the disk, the backup and the garden, once more and at some length; " * 2


def measure() -> list[Row]:
    with disk.here() as path, model() as url:
        home = path / "home"
        for size in SIZES:
            write(home / "sessions" / f"s{size}", size)
        with chain(path, url, settings=WHOLE) as made:
            terminal = Terminal(made.home)
            found: dict[int, list[tuple[float, Spent]]] = {size: [] for size in SIZES}
            for size in SIZES:
                terminal.say("hi", f"s{size}")
            for _ in range(ROUNDS):
                for size in SIZES:
                    found[size].append(_round(made, terminal, f"s{size}"))
        length = model_said(url)["longest"]
    (small_wall, small), (large_wall, large) = (_middle(found[size]) for size in SIZES)
    handing = handed_ms(length)
    over = large.cpu - small.cpu
    told = f"{over:.2f} ms, of which {handing:.2f} hand a request of {length >> 10} KiB over"
    return [
        Row("a turn behind 50 messages", small_wall, "ms", beside=small.told(), peer="history"),
        Row("a turn behind 5 000 messages", large_wall, "ms", beside=large.told()),
        Row("CPU of 5 000 over 50, less handing the bytes over", over - handing, "ms", 0.5, 1, beside=told),
    ]


def write(directory: Path, messages: int) -> None:
    """A session with so many messages behind it."""
    directory.mkdir(parents=True, mode=0o700)
    at = 1764500400.0
    lines: list[dict[str, object]] = [{"format": "bubbles.history", "version": 1, "session": directory.name, "name": directory.name, "at": at}]
    for n in range(messages // 2):
        lines += [{"role": "user", "content": f"{n} {_WORDS}"}, {"role": "assistant", "content": f"{n}: {_WORDS}"}]
        lines.append({"meta": "turn", "turn": f"t{n}", "origin": "user", "outcome": "replied", "messages": [], "says": [], "at": at, "end": True})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (directory / "session.jsonl").write_text(text)


def handed_ms(length: int) -> float:
    """CPU of writing `length` bytes to a TCP socket of this machine, by a thread that does nothing else."""
    door = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(door.getsockname())
    two, _ = door.accept()
    door.close()
    data, took = bytes(length), []

    def read() -> None:
        while two.recv(1 << 18):
            pass

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        began = time.thread_time()
        one.sendall(data)
        took.append((time.thread_time() - began) * 1000)
    one.close()
    reader.join()
    two.close()
    return median(took)


def _round(made: Chain, terminal: Terminal, session: str) -> tuple[float, Spent]:
    with made.counted(TURNS) as spent:
        for _ in range(TURNS):
            terminal.say("hi", session)
    return spent[0].wall, spent[0]


def _middle(rounds: list[tuple[float, Spent]]) -> tuple[float, Spent]:
    return median([wall for wall, _ in rounds]), sorted((spent for _, spent in rounds), key=lambda spent: spent.cpu)[len(rounds) // 2]


if __name__ == "__main__":
    main(measure)
