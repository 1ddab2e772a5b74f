"""Looks at the namespace from within, again and again, beside strace: who lives there untraced, and which ports are open.

It does not know what is allowed. Whatever lived from one look to the next is seen; what is briefer, only strace sees.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from tests.egress.record import program_of

_LOOK_S = 0.2
_TABLES = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
_LISTENS = "0A"


class Watch:
    """`known`: pids that belong to the watcher and need no trace, with all that they start. `untraced` and `ports` are what was found."""

    def __init__(self) -> None:
        self.known: set[int] = {os.getpid()}
        self.untraced: dict[int, str] = {}
        self.ports: dict[tuple[str, str], dict[str, Any]] = {}
        self.looks = 0
        self._suspects: set[tuple[int, int]] = set()
        self._owners: dict[str, tuple[int, list[str]]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def told(self) -> dict[str, Any]:
        """As JSON: `looks`, `untraced` [[pid, command]], `ports` [{"table", "address", "pid", "program", "command", "first", "last"}]."""
        return {"looks": self.looks, "untraced": sorted(self.untraced.items()), "ports": list(self.ports.values())}

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        people = {pid: one for pid in _pids() if (one := _Person.look(pid)) is not None}
        self._census(people)
        for table in _TABLES:
            for address, inode in _open(table):
                self._port(table, address, inode, people)
        self.looks += 1

    def _census(self, people: dict[int, _Person]) -> None:
        ours = {pid for pid in people if self._is_known(pid, people)}
        suspects = {(pid, thread) for pid, one in people.items() if pid not in ours for thread in one.untraced}
        for pid, thread in suspects & self._suspects:  # a process that is just being born is traced by the next look
            self.untraced.setdefault(thread, people[pid].command)
        self._suspects = suspects

    def _is_known(self, pid: int, people: dict[int, _Person]) -> bool:
        """What a known one has started, unless it is traced, and strace itself."""
        while pid in people:
            if pid in self.known or people[pid].name == "strace":
                return True
            if not people[pid].untraced:
                return False
            pid = people[pid].parent
        return pid in self.known

    def _port(self, table: str, address: str, inode: str, people: dict[int, _Person]) -> None:
        if inode not in self._owners:
            self._owners[inode] = _owner(inode, people)
        pid, argv = self._owners[inode]
        if pid in self.known or pid in people and self._is_known(pid, people):
            return
        now = time.time()
        found = {"table": table, "address": address, "pid": pid, "program": program_of(argv), "command": " ".join(argv), "first": now}
        self.ports.setdefault((table, address), found)["last"] = now


class _Person:
    """One process: its threads that nobody traces are `untraced`."""

    def __init__(self, pid: int, name: str, parent: int, argv: list[str], untraced: list[int]) -> None:
        self.pid, self.name, self.parent, self.argv, self.untraced = pid, name, parent, argv, untraced

    @property
    def command(self) -> str:
        return " ".join(self.argv) or self.name

    @classmethod
    def look(cls, pid: int) -> _Person | None:
        """None where it has ended."""
        try:
            status = _status(f"/proc/{pid}/status")
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
            threads = [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
        except (OSError, KeyError):
            return None
        if status["State"].startswith(("Z", "X")):
            return None
        untraced = []
        for thread in threads:
            with contextlib.suppress(OSError, KeyError):
                found = _status(f"/proc/{pid}/task/{thread}/status")
                untraced += [thread] if found["TracerPid"] == "0" and not found["State"].startswith(("Z", "X")) else []
        return cls(pid, status["Name"], int(status["PPid"]), argv, untraced)


def _status(path: str) -> dict[str, str]:
    lines = (line.partition(":") for line in Path(path).read_text("utf-8", "replace").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _open(table: str) -> list[tuple[str, str]]:
    """(address, inode) of the sockets that wait for others: TCP ones that listen; of the rest all that are bound and not connected."""
    try:
        lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    waits = [row for row in rows if (row[3] == _LISTENS if table.startswith("tcp") else int(row[2].rpartition(":")[2], 16) == 0)]
    return [(_address(row[1]), row[9]) for row in waits]


def _address(text: str) -> str:
    """The kernel's hexadecimal, words in this machine's order of bytes."""
    host, _, port = text.rpartition(":")
    words = [int(host[n : n + 8], 16).to_bytes(4, "little") for n in range(0, len(host), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    shown = socket.inet_ntop(family, b"".join(words))
    return f"{shown}:{int(port, 16)}" if family == socket.AF_INET else f"[{shown}]:{int(port, 16)}"


def _owner(inode: str, people: dict[int, _Person]) -> tuple[int, list[str]]:
    for pid, one in people.items():
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}") == f"socket:[{inode}]":
                        return pid, one.argv
    return 0, []
