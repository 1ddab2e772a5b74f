"""What is allowed and what is not, on records of a few lines; who did a thing, and what a record says of itself that is not whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.egress.judge import LOOKUPS, Law, breaches
from tests.egress.record import Record

_DAEMONS: dict[int, list[Any]] = {
    10: ["python -m bubbles.programs gateway", 20, 30],
    20: ["python -P -m bubbles.programs.agentd", 40],
    30: ["python -P -m bubbles.programs.modeld", 50],
    40: ["bash -c something"],
    50: ["python -m bubbles.providers.llama"],
}
LAW = Law(
    ("/run/ours",),
    connect={"modeld": ("10.0.0.1:443",)},
    names={"modeld": ("model.example",)},
    resolvers=("127.0.0.53:53",),
    listen=("llama",),
    serve={"modeld": "llama"},
)


def record(directory: Path, said: dict[int, list[str]]) -> Record:
    """The record of a house in which these processes say these lines as well."""
    for pid, (line, *children) in _DAEMONS.items():
        words = ", ".join(f'"{word}"' for word in line.split())
        lines = [f'1.0 execve("/usr/bin/x", [{words}], 0x7f /* 9 vars */) = 0', *(f"2.0 vfork() = {child}" for child in children)]
        lines += [f"3.{n} {text}" for n, text in enumerate(said.get(pid, []))]
        (directory / f"001.{pid}").write_text("\n".join([*lines, "9.0 +++ exited with 0 +++"]) + "\n")
    return Record(directory)


def inet(host: str, port: int) -> str:
    return f'{{sa_family=AF_INET, sin_port=htons({port}), sin_addr=inet_addr("{host}")}}, 16'


def unix(path: str, mark: str = "") -> str:
    return f'{{sa_family=AF_UNIX, sun_path={mark}"{path}"}}, 110'


_QUESTION = r'"\0\1\1\0\0\1\0\0\0\0\0\0\5{}\7example\0\0\1\0\1", 31, MSG_NOSIGNAL, NULL, 0'
_SERVED = ["bind(3<TCP:[7]>, " + inet("127.0.0.1", 0) + ") = 0", "listen(3<TCP:[127.0.0.1:5000]>, 5) = 0"]


@pytest.mark.parametrize(
    ("pid", "call"),
    [
        (30, f"connect(3<TCP:[7]>, {inet('10.0.0.1', 443)}) = -1 EINPROGRESS (Operation now in progress)"),
        (30, f"connect(3<UDP:[7]>, {inet('10.0.0.1', 443)}) = 0"),
        (30, f"connect(3<UDP:[7]>, {inet('127.0.0.53', 53)}) = 0"),
        (30, "sendto(3<UDP:[127.0.0.1:40000->127.0.0.53:53]>, " + _QUESTION.format("model") + ") = 31"),
        (30, f"connect(3<TCP:[7]>, {inet('127.0.0.1', 5000)}) = 0"),
        (20, f"connect(3<UNIX-STREAM:[7]>, {unix('/run/ours/modeld.sock')}) = 0"),
        (20, f"bind(3<UNIX-STREAM:[7]>, {unix('/run/ours/agentd.sock')}) = 0"),
        (40, f"connect(3<UNIX-STREAM:[7]>, {unix('/var/run/nscd/socket')}) = -1 ENOENT (No such file or directory)"),
        (40, "bind(3<NETLINK:[ROUTE:7]>, {sa_family=AF_NETLINK, nl_pid=40, nl_groups=00000000}, 12) = 0"),
        (20, 'sendto(3<UNIX-STREAM:[7->8]>, "hello", 5, 0, NULL, 0) = 5'),
        (30, 'connect(3<TCP:[7]>, {sa_family=AF_UNSPEC, sa_data="\\0"}, 16) = 0'),
        (20, "socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_IP) = 3<TCP:[7]>"),
    ],
)
def test_what_is_allowed(tmp_path: Path, pid: int, call: str) -> None:
    assert breaches(record(tmp_path, {pid: [call], 50: _SERVED}), LAW) == []


@pytest.mark.parametrize(
    ("pid", "call", "why"),
    [
        (30, f"connect(3<TCP:[7]>, {inet('10.0.0.1', 80)}) = 0", "it connects where it should not: modeld"),
        (30, f"connect(3<TCP:[7]>, {inet('10.0.0.2', 443)} <unfinished ...>", "it connects where it should not: modeld"),
        (20, f"connect(3<TCP:[7]>, {inet('10.0.0.1', 443)}) = 0", "it connects where it should not: agentd"),
        (40, f"connect(3<TCP:[7]>, {inet('10.0.0.1', 443)}) = 0", "it connects where it should not: tool"),
        (50, f"connect(3<TCP:[7]>, {inet('10.0.0.1', 443)}) = 0", "it connects where it should not: llama"),
        (10, f"connect(3<TCP:[7]>, {inet('127.0.0.1', 5000)}) = 0", "it connects where it should not: gateway"),
        (30, f"connect(3<TCP:[7]>, {inet('10.0.0.9', 5000)}) = 0", "it connects where it should not: modeld"),
        (30, f'sendto(3<TCP:[7]>, "x", 1, MSG_FASTOPEN, {inet("10.0.0.2", 443)}) = 1', "it connects where it should not: modeld"),
        (30, f'sendto(3<UDP:[7]>, "x", 1, 0, {inet("10.0.0.1", 443)}) = 1', "it sends a datagram: modeld"),
        (30, 'sendto(3<UDP:[10.0.0.7:9->10.0.0.1:443]>, "x", 1, 0, NULL, 0) = 1', "it sends a datagram: modeld"),
        (30, "sendto(3<UDP:[127.0.0.1:9->127.0.0.53:53]>, " + _QUESTION.format("other") + ") = 31", "it asks for other.example: modeld"),
        (30, 'sendto(3<UDP:[127.0.0.1:9->127.0.0.53:53]>, "secret", 6, 0, NULL, 0) = 6', "it asks for ?: modeld"),
        (20, f"connect(3<UDP:[7]>, {inet('127.0.0.53', 53)}) = 0", "it has no name to ask for: agentd"),
        (50, f"bind(3<TCP:[7]>, {inet('0.0.0.0', 0)}) = 0", "it opens a port that others than this machine reach: llama"),
        (50, f"bind(3<UDP:[7]>, {inet('127.0.0.1', 0)}) = 0", "it opens a port: llama"),
        (20, "listen(3<TCPv6:[[::]:80]>, 5) = 0", "it opens a port: agentd"),
        (20, f"connect(3<UNIX-STREAM:[7]>, {unix('/run/other')}) = 0", "a socket that is neither ours nor on the list: agentd"),
        (20, f"connect(3<UNIX-STREAM:[7]>, {unix('/run/oursbut')}) = 0", "a socket that is neither ours nor on the list: agentd"),
        (20, f"connect(3<UNIX-STREAM:[7]>, {unix('/run/ours/x', '@')}) = 0", "a socket that is neither ours nor on the list: agentd"),
        (20, "connect(3<NETLINK:[ROUTE:7]>, {sa_family=AF_NETLINK, nl_pid=9, nl_groups=0}, 12) = 0", "netlink to another process: agentd"),
        (20, "socket(AF_PACKET, SOCK_DGRAM, 0) = 3<PACKET:[7]>", "a family that nothing of ours speaks: agentd"),
        (20, "socket(AF_INET, SOCK_RAW|SOCK_CLOEXEC, IPPROTO_ICMP) = 3<RAW:[7]>", "a raw socket: agentd"),
        (20, "connect(3<VSOCK:[7]>, {sa_family=AF_VSOCK, svm_cid=2}, 16) = 0", "a family that nothing of ours speaks: agentd"),
        (20, "connect(3<TCP:[7]>, 0x7ffe, 16) = -1 EFAULT (Bad address)", "a family that nothing of ours speaks: agentd"),
        (20, "io_uring_setup(8, {flags=0}) = 5", "what it does from here on cannot be seen: agentd"),
        (20, "setns(3</proc/1/ns/net>, CLONE_NEWNET) = 0", "what it does from here on cannot be seen: agentd"),
    ],
)
def test_what_is_not(tmp_path: Path, pid: int, call: str, why: str) -> None:
    (found,) = breaches(record(tmp_path, {pid: [call], 50: [*_SERVED, call] if pid == 50 else _SERVED}), LAW)
    assert found.startswith(f"{why} (")


def test_in_an_idle_house_only_a_channel_asks_and_only_its_platform(tmp_path: Path) -> None:
    (tmp_path / "001.60").write_text(
        '1.0 execve("/x", ["python", "-m", "tests.fakes.channel"], 0x7f) = 0\n'
        f"3.0 connect(3<TCP:[7]>, {inet('10.0.0.3', 443)}) = 0\n"
        f"4.0 connect(3<TCP:[7]>, {inet('10.0.0.1', 443)}) = 0\n"
    )
    law = replace(LAW, connect={**LAW.connect, "channel": ("10.0.0.3:443",)})
    (found,) = breaches(record(tmp_path, {}), law.idle())
    assert found.startswith("it connects where it should not: channel (60: ")
    assert "10.0.0.1:443" in found


def test_an_idle_house_has_no_law_but_that_of_its_own_sockets(tmp_path: Path) -> None:
    own, model = f"connect(3<UNIX-STREAM:[7]>, {unix('/run/ours/x')}) = 0", f"connect(3<TCP:[7]>, {inet('10.0.0.1', 443)}) = 0"
    found = record(tmp_path, {30: [own, model]})
    assert breaches(found, LAW) == []
    assert len(breaches(found, LAW.idle())) == 1
    assert breaches(found, LAW.idle(), (4.0, 9.0)) == []


def test_a_process_that_nobody_traced_is_a_breach(tmp_path: Path) -> None:
    assert breaches(record(tmp_path, {40: ["vfork() = 41"]}), LAW) == ["process 41 was born and not traced"]


def test_a_line_that_cannot_be_read_is_a_breach(tmp_path: Path) -> None:
    (found,) = breaches(record(tmp_path, {40: ["connect(3<TCP:[7]>, {sa_fam"]}), LAW)
    assert found.startswith("a line that cannot be read: 001.40: 3.0 connect")


def test_what_agentd_starts_is_a_tool_whatever_it_calls_itself(tmp_path: Path) -> None:
    """Else a command could borrow the leave that modeld has."""
    said = ['execve("/x", ["python", "-m", "bubbles.programs.modeld"], 0x7f) = 0', f"connect(3<TCP:[7]>, {inet('10.0.0.1', 443)}) = 0"]
    found = record(tmp_path, {40: said})
    assert [text.partition(" (")[0] for text in breaches(found, LAW)] == ["it connects where it should not: tool"]


def test_a_thread_is_its_process(tmp_path: Path) -> None:
    born = "clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0} => {parent_tid=[31]}, 88) = 31"
    (tmp_path / "001.31").write_text(f"4.0 connect(3<TCP:[7]>, {inet('10.0.0.2', 1)}) = 0\n")
    (found,) = breaches(record(tmp_path, {30: [born]}), LAW)
    assert found.startswith("it connects where it should not: modeld (30: ")


def test_every_socket_on_the_list_has_its_reason() -> None:
    assert all(path.startswith("/") and len(why.split()) > 5 for path, why in LOOKUPS.items())
