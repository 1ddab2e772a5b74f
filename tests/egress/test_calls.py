"""Lines of strace: each of the forms that were met, and any value that strace could write, read back as what it was."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.egress.calls import Call, Descriptor, Macro, Unreadable, name_of, read
from tests.egress.record import Address, address, program_of, question


def args_of(text: str) -> tuple[object, ...]:
    return read(f"1.5 f({text}) = 0").args


def test_a_connect() -> None:
    line = '7.25 connect(3<TCP:[42]>, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("10.0.0.1")}, 16) = -1 ECONNREFUSED (Refused)'
    told = {"sa_family": "AF_INET", "sin_port": Macro("htons", (9,)), "sin_addr": Macro("inet_addr", (b"10.0.0.1",))}
    assert read(line) == Call(7.25, "connect", (Descriptor(3, "TCP", "42"), told, 16), -1, "ECONNREFUSED")
    assert address(told) == Address("INET", "10.0.0.1", 9)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{sa_family=AF_UNIX, sun_path="/run/a b"}', Address("UNIX", path="/run/a b")),
        ('{sa_family=AF_UNIX, sun_path=@"x"}', Address("UNIX", path="\0x")),
        ("{sa_family=AF_UNIX}", Address("UNIX")),
        ('{sa_family=AF_UNSPEC, sa_data="\\0\\0"}', Address("UNSPEC")),
        ("{sa_family=AF_NETLINK, nl_pid=0, nl_groups=00000000}", Address("NETLINK")),
        ("{sa_family=AF_NETLINK, nl_pid=77, nl_groups=00000000}", Address("NETLINK", path="pid 77")),
        ('{sa_family=0x2b /* AF_??? */, sa_data="ab"}', Address("43")),
        (
            '{sa_family=AF_INET6, sin6_port=htons(99), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}',
            Address("INET6", "::1", 99),
        ),
        ("0x7ffe", Address("?", path="32766")),
    ],
)
def test_addresses(text: str, found: Address) -> None:
    assert address(args_of(text)[0]) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3<TCP:[127.0.0.1:1->127.0.0.1:2]>", Descriptor(3, "TCP", "127.0.0.1:1->127.0.0.1:2")),
        ("4<TCPv6:[[::1]:5->[::1]:6]>", Descriptor(4, "TCPv6", "[::1]:5->[::1]:6")),
        ('5<UNIX-STREAM:[41->42, "/odd]>name"]>', Descriptor(5, "UNIX-STREAM", '41->42, "/odd]>name"')),
        ("0</dev/null<char 1:3>>", Descriptor(0)),
        ("9<socket:[77]>", Descriptor(9, "socket", "77")),
        ("8<anon_inode:[eventfd]>", Descriptor(8, "anon_inode", "eventfd")),
    ],
)
def test_descriptors(text: str, found: Descriptor) -> None:
    assert args_of(f"{text}, 1") == (found, 1)


def test_births() -> None:
    line = "1.0 clone3({flags=CLONE_VM|CLONE_THREAD, child_tid=0x7f, exit_signal=0, stack_size=0x2fff00} => {parent_tid=[20180]}, 88) = 20180"
    told = read(line)
    assert told.args[0]["flags"] == "CLONE_VM|CLONE_THREAD"
    assert told.args[0]["parent_tid"] == [20180]
    assert told.result == 20180
    assert read("1.0 vfork()               = 7").result == 7
    assert read("1.0 vfork() = 2 /* 4711 in strace's PID NS */").result == 4711
    told = read("1.0 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7e50) = 8")
    assert told.args[1] == {"flags": "CLONE_CHILD_CLEARTID|SIGCHLD"}


def test_what_was_begun() -> None:
    line = '1.0 execve("/bin/sh", ["sh", "-c", "a\\n\\"b\\""...], 0x7ffc /* 35 vars */) = 0'
    assert read(line).args == (b"/bin/sh", [b"sh", b"-c", b'a\n"b"'], 0x7FFC)
    assert args_of("[{a=1}, ...], NULL, 1<<2") == ([{"a": 1}], "NULL", "1<<2")


def test_messages() -> None:
    line = (
        '1.0 sendmmsg(6<UDP:[127.0.0.1:40->127.0.0.53:53]>, [{msg_hdr={msg_name=NULL, msg_namelen=0, msg_iov=[{iov_base="\\0\\1x", iov_len=3}], '
        "msg_iovlen=1, msg_controllen=0, msg_flags=0}, msg_len=3}], 2, MSG_NOSIGNAL) = 2"
    )
    assert read(line).args[1][0]["msg_hdr"]["msg_iov"] == [{"iov_base": b"\0\1x", "iov_len": 3}]


def test_a_call_that_its_process_did_not_live_to_see_the_end_of() -> None:
    rest = 'connect(3<TCP:[1]>, {sa_family=AF_UNIX, sun_path="/x"}, 4'
    for end in (" <unfinished ...>", ", <unfinished ...>", " <unfinished ...>) = ?", ") = ?", ") = ? ERESTARTSYS (To be restarted)"):
        told = read(f"1.0 {rest}{end}")
        assert (told.result, address(told.args[1])) == (None, Address("UNIX", path="/x"))


def test_lines_that_are_no_calls() -> None:
    for rest in ("+++ exited with 0 +++", "--- SIGCHLD {si_signo=SIGCHLD, si_pid=7} ---", "+++ killed by SIGKILL +++"):
        assert name_of(f"1.0 {rest}") == ""


@pytest.mark.parametrize("line", ["", "hello", *(f"1.0 connect({rest}" for rest in ("", '"x) = 0', "{a=1) = 0", "1) is 0", "3<TCP:[1) = 0"))])
def test_what_is_not_understood_is_said_to_be_so(line: str) -> None:
    with pytest.raises(Unreadable):
        read(line)


# -- any value: written as strace writes it, and read back ------------------------------------------------

_WORDS = st.from_regex(r"[A-Z][A-Z_]{0,8}(\|[A-Z_]{1,8}){0,2}", fullmatch=True)
_NAMES = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
_LEAVES = st.one_of(st.integers(-(10**9), 10**9), st.binary(max_size=20), _WORDS)
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, min_size=1, max_size=4), max_leaves=12)


def written(value: object) -> str:
    if isinstance(value, bytes):
        return '"' + "".join(chr(n) if 32 <= n < 127 and n not in b'"\\' else f"\\{n:03o}" for n in value) + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}={written(inner)}" for name, inner in value.items()) + "}"
    return str(value)


@given(st.lists(_VALUES, max_size=5), st.integers(-1, 2**31))
def test_any_call_is_read_back(values: list[object], result: int) -> None:
    told = read(f"12.000001 sendto({', '.join(map(written, values))}) = {result}")
    assert list(told.args) == values
    assert told.result == result


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=60))
def test_no_line_is_half_understood(text: str) -> None:
    """Whatever it is, it is read or refused: nothing else is raised, and the judge hears of either."""
    with contextlib.suppress(Unreadable):
        read(f"1.0 connect({text}")


# -- what the lines mean ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("python -P -m bubbles.programs ask hi", "ask"),
        ("python -P -m bubbles.programs.agentd --until-idle 30", "agentd"),
        ("python -P -m bubbles.cron.daemon", "cron"),
        ("python -m bubbles.providers.llama", "llama"),
        ("python -m tests.fakes.channel test --url http://127.0.0.1:1", "channel"),
        ("/bin/sh /somewhere/bin/bubbles gateway", "gateway"),
        ("/somewhere/bin/bubbles-ask hi", "ask"),
        ("bash -c 'bubbles ask'", ""),
        ("python -m http.server", ""),
        ("curl bubbles", ""),
        ("", ""),
    ],
)
def test_programs(line: str, program: str) -> None:
    assert program_of(line.split()) == program


@given(st.lists(st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True), min_size=1, max_size=5), st.binary(max_size=10))
def test_questions_to_a_name_server(labels: list[str], rest: bytes) -> None:
    packet = b"\0\1\1\0\0\1" + bytes(6) + b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0\0\1\0\1" + rest
    assert question(packet) == ".".join(labels)
    assert question(packet[:13]) == "?"
    assert question(b"") == "?"
