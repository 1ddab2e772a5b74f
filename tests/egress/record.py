"""What a directory of strace's files tells: which processes there were, which program each is, and what each did with addresses.

It does not know what is allowed. Every file is `PREFIX.TID`, as `strace -ff -o PREFIX` writes them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.egress import calls
from tests.egress.calls import Call, Descriptor, Macro, Unreadable

BIRTHS = {"clone", "clone3", "fork", "vfork"}
SENDS = {"sendto", "sendmsg", "sendmmsg"}
_SPOKEN_TO = {"connect", "bind", "listen", "socket", *SENDS}
UNSEEN = {"io_uring_setup", "setns"}  # calls behind which strace, or the namespace, would not see what goes on
TRACED = ("%network", *sorted(BIRTHS), "execve", "execveat", *sorted(UNSEEN))
_READ = {*_SPOKEN_TO, *BIRTHS, *UNSEEN, "execve", "execveat"}
_MODULE = re.compile(r"bubbles\.(?:programs|providers)\.(\w+)|bubbles\.(cron)\.daemon|tests\.fakes\.(channel)")
_DOMAIN = 53


@dataclass(frozen=True, slots=True)
class Address:
    """`family` is strace's name without AF_; `host` and `port` of INET and INET6; `path` of UNIX, with a leading NUL where it is no file."""

    family: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.family in ("INET", "INET6"):
            return f"{self.host}:{self.port}" if self.family == "INET" else f"[{self.host}]:{self.port}"
        return f"{self.family.lower()} {self.path}".strip()


@dataclass(slots=True)
class Process:
    """`argv` of what it has become last; `parent` 0: nobody's that was seen. Threads are counted as their process."""

    pid: int
    parent: int = 0
    argv: tuple[str, ...] = ()
    threads: set[int] = field(default_factory=set)

    @property
    def command(self) -> str:
        return " ".join(self.argv)[:200]


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a process did: `what` is "connect", "bind", "listen", "send", "socket" or a name in UNSEEN.

    `kind` is "TCP", "UDP", "UNIX-STREAM", …; `names` are those that a send to a name server asks for.
    """

    at: float
    program: str
    process: Process
    what: str
    kind: str
    address: Address
    error: str = ""
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        asked = f" asking for {', '.join(self.names)}" if self.names else ""
        return f"{self.program} ({self.process.pid}: {self.process.command}): {self.what} {self.kind} {self.address}{asked} {self.error}".rstrip()


class Record:
    """`acts` in the order of time; `processes` by pid; `unreadable` lines; `lost` pids that were born and have no file."""

    def __init__(self, directory: Path) -> None:
        self.acts: list[Act] = []
        self.processes: dict[int, Process] = {}
        self.unreadable: list[str] = []
        self.lost: list[int] = []
        self.calls = 0
        self._read({int(path.suffix[1:]): path for path in sorted(directory.glob("*.*")) if path.suffix[1:].isdigit()})

    def program(self, pid: int) -> str:
        """Which of ours a process is: a verb ("agentd", "ask"), "channel", "llama"; "tool" is all below agentd, "?" what nobody of ours started."""
        line = [program_of(process.argv) for process in self._line(pid)]
        if "agentd" in line[1:]:
            return "tool"
        return next((program for program in line if program), "?")

    def _line(self, pid: int) -> Iterator[Process]:
        """A process, its parent, and so on up."""
        while (process := self.processes.get(pid)) is not None:
            yield process
            pid = process.parent

    def listening(self, program: str) -> set[int]:
        """The TCP ports on which a program has listened."""
        return {act.address.port for act in self.acts if act.program == program and act.what == "listen" and act.kind == "TCP"}

    def _read(self, files: dict[int, Path]) -> None:
        found = {tid: list(self._calls(path)) for tid, path in files.items()}
        owner = self._people(found)
        born = {call.result for made in found.values() for call in made if call.name in BIRTHS and call.result and call.result > 0}
        self.lost = sorted(born - set(files))
        for tid, made in found.items():
            for call in made:
                self.acts += self._acts(owner[tid], call)
        self.acts.sort(key=lambda act: act.at)

    def _calls(self, path: Path) -> Iterator[Call]:
        for line in path.read_text("utf-8", "surrogateescape").split("\n"):
            if not line:
                continue
            try:
                self.calls += 1
                if calls.name_of(line) in _READ:
                    yield calls.read(line)
            except Unreadable:
                self.unreadable.append(f"{path.name}: {line}")

    def _people(self, found: dict[int, list[Call]]) -> dict[int, Process]:
        """The process of each thread."""
        births = {call.result: (tid, _is_thread(call)) for tid, made in found.items() for call in made if call.name in BIRTHS and call.result}
        owner: dict[int, Process] = {}

        def of(tid: int) -> Process:
            if tid not in owner:
                parent, is_thread = births.get(tid, (0, False))
                if is_thread and parent:
                    owner[tid] = of(parent)
                else:
                    owner[tid] = self.processes[tid] = Process(tid, of(parent).pid if parent else 0)
                owner[tid].threads.add(tid)
                for call in found.get(tid, ()):
                    if call.name in ("execve", "execveat") and call.result == 0:
                        owner[tid].argv = _argv(call)
            return owner[tid]

        for tid in found:
            of(tid)
        for process in self.processes.values():  # a fork that has become nothing else is what its parent is
            parent = process
            while not process.argv and parent.parent:
                parent = self.processes[parent.parent]
                process.argv = (*parent.argv, "(fork)") if parent.argv else ()
        return owner

    def _acts(self, process: Process, call: Call) -> Iterator[Act]:
        if call.name in UNSEEN:
            yield self._act(process, call, call.name, "", Address("?"))
        elif call.name == "socket":
            yield self._act(process, call, "socket", str(call.args[1]), Address(str(call.args[0]).removeprefix("AF_")))
        elif call.name in ("connect", "bind"):
            yield self._act(process, call, call.name, _what(call), address(call.args[1]))
        elif call.name == "listen":
            yield self._act(process, call, "listen", _what(call), _ends(call)[0])
        elif call.name in SENDS:
            for to, data in _sent(call):
                if isinstance(to, dict) or _what(call).startswith("UDP"):  # any other goes where a connect that is judged has led
                    peer = address(to) if isinstance(to, dict) else _ends(call)[1]
                    names = (question(data),) if peer.port == _DOMAIN else ()
                    yield self._act(process, call, "send", _what(call), peer, names)

    def _act(self, process: Process, call: Call, what: str, kind: str, to: Address, names: tuple[str, ...] = ()) -> Act:
        family = {"TCPv6": "TCP", "UDPv6": "UDP", "UNIX": "UNIX-STREAM"}
        return Act(call.at, self.program(process.pid), process, what, family.get(kind, kind), to, call.error, names)


def program_of(argv: Iterable[str]) -> str:
    """Which of our programs a command line starts; "" where it is none of them."""
    words = list(argv)
    for word, rest in zip(words, words[1:], strict=False):
        if word == "-m" and rest == "bubbles.programs":
            verbs = [each for each in words[words.index(rest) + 1 :] if not each.startswith("-")]
            return verbs[0] if verbs else "bubbles"
        found = _MODULE.fullmatch(rest) if word == "-m" else None
        if found:
            return found[1] or found[2] or found[3]
    name = words[0].rpartition("/")[2] if words else ""
    if name in ("sh", "dash", "bash") and len(words) > 1:  # the launcher, before it becomes Python
        return program_of(words[1:]) if words[1].rpartition("/")[2].startswith("bubbles") else ""
    if name.startswith("bubbles-"):
        return name.removeprefix("bubbles-")
    return words[1] if name == "bubbles" and len(words) > 1 else ""


def address(value: Any) -> Address:
    """The address in a structure of strace's; of family "?" where it is none."""
    if not isinstance(value, dict):
        return Address("?", path=repr(value))
    family = str(value.get("sa_family", "?")).removeprefix("AF_")
    if family == "INET":
        return Address(family, _argument(value["sin_addr"], 0).decode(), _argument(value["sin_port"], 0))
    if family == "INET6":
        return Address(family, _argument(value["sin6_addr"], 1).decode(), _argument(value["sin6_port"], 0))
    if family == "UNIX":
        return Address(family, path=value.get("sun_path", b"").decode("utf-8", "surrogateescape"))
    if family == "NETLINK":
        return Address(family, path=f"pid {value.get('nl_pid', 0)}" if value.get("nl_pid") else "")
    return Address(family)


def question(packet: bytes) -> str:
    """The name that a question to a name server asks for; "?" where it cannot be read."""
    try:
        (count,) = struct.unpack_from("!H", packet, 4)
        labels, at = [], 12
        while count and packet[at]:
            labels.append(packet[at + 1 : at + 1 + packet[at]].decode("ascii"))
            at += 1 + packet[at]
        return ".".join(labels) or "?"
    except (struct.error, IndexError, UnicodeDecodeError):
        return "?"


def _argument(value: Any, which: int) -> Any:
    if not isinstance(value, Macro):
        raise ValueError(value)
    return value.args[which]


def _is_thread(call: Call) -> bool:
    flags = "".join(str(arg.get("flags", "")) for arg in call.args if isinstance(arg, dict))
    return "CLONE_THREAD" in flags


def _argv(call: Call) -> tuple[str, ...]:
    """Of execve(path, [argv], …) and execveat(dir, path, [argv], …)."""
    listed = next((arg for arg in call.args if isinstance(arg, list)), [])
    return tuple(word.decode("utf-8", "replace") for word in listed if isinstance(word, bytes))


def _what(call: Call) -> str:
    return call.args[0].what if isinstance(call.args[0], Descriptor) else "?"


def _ends(call: Call) -> tuple[Address, Address]:
    """(own, peer) as strace found them in the descriptor."""
    found = call.args[0]
    if not isinstance(found, Descriptor):
        return Address("?"), Address("?")
    if found.what.startswith("UNIX"):
        quoted = re.search(r'"((?:[^"\\]|\\.)*)"', found.ends)
        return (Address("UNIX", path=quoted[1] if quoted else ""),) * 2
    if found.what == "NETLINK":
        return (Address("NETLINK"),) * 2
    own, _, peer = found.ends.partition("->")
    return _end(own), _end(peer)


def _end(text: str) -> Address:
    """`127.0.0.1:80` or `[::1]:80`; an inode where it has no address yet."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        return Address("?", path=text)
    return Address("INET6", host.strip("[]"), int(port)) if host.startswith("[") else Address("INET", host, int(port))


def _sent(call: Call) -> Iterator[tuple[Any, bytes]]:
    """(address or not, data) of each packet."""
    if call.name == "sendto":
        yield (call.args[4] if len(call.args) > 4 else None), call.args[1] if isinstance(call.args[1], bytes) else b""
        return
    headers = call.args[1] if isinstance(call.args[1], list) else [call.args[1]]
    for header in headers:
        if isinstance(header, dict):
            header = header.get("msg_hdr", header)
            parts = [part.get("iov_base", b"") for part in header.get("msg_iov", []) if isinstance(part, dict)]
            yield header.get("msg_name"), b"".join(part for part in parts if isinstance(part, bytes))
