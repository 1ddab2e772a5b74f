"""Attacks by way of the network, under each policy, in a network of their own (town.py); each succeeds where what keeps it is taken away."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bubbles.sandboxes import binary
from tests.sandboxes.attacks import town
from tests.sandboxes.attacks.conftest import ORDINARY, ROOT, users

POLICIES = ("none", "public", "few", "host")
_MOST_S = 120
pytestmark = pytest.mark.skipif(
    not [one for one in binary.candidates() if not one.missing] or not shutil.which("unshare") or not shutil.which("ip"),
    reason="no bubblewrap here that a jail can be made with, or no network namespaces",
)


@dataclass(frozen=True, slots=True)
class Row:
    """`kind` and `text` as in reaching.py; `needle` in the output is success, which comes in the arrangements `reached` and in no other.

    `control` names an arrangement where it has to succeed; where none can be made, `uncontrolled` says why.
    """

    number: str
    title: str
    kind: str
    text: str
    needle: str
    reached: tuple[str, ...] = ()
    control: str = "unchecked"
    uncontrolled: str = ""


def get(url: str, *more: str) -> str:
    return "\r\n".join([f"GET {url} HTTP/1.1", "Host: example.com", *more, "", ""])


def tunnel(place: str) -> str:
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"


def direct(number: str, title: str, text: str, needle: str = "reached", **more: Any) -> Row:
    return Row(number, title, "direct", text, needle, **{"reached": ("host",), "control": "host", **more})


def asked(number: str, title: str, text: str, needle: str, **more: Any) -> Row:
    return Row(number, title, "ask", text, needle, **more)


LOOPBACK = "reached 127.0.0.1"
PATH_SOCKET = "{run}/town.sock"
_OWN_SERVER = """cd $(mktemp -d) && echo served by itself > page && { {python} -m http.server -b 127.0.0.1 8123 & } 2>/dev/null
for n in $(seq 50); do curl -sf http://localhost:8123/page && break; sleep 0.1; done; kill %1"""
ROWS = [
    # What every public way has to let through, so that what is held is not held by a wall around everything.
    asked("p1", "a public host", get("http://example.com/a"), f"reached {town.PUBLIC}:80 as example.com for /a", reached=("public", "few")),
    asked("p2", "a tunnel to it", tunnel("example.com:443"), f"reached {town.PUBLIC}:443", reached=("public", "few")),
    asked("p3", "a public host by IPv6", get("http://six.example.com/"), f"reached {town.PUBLIC6}:80", reached=("public", "few")),
    asked("p4", "a public address", get(f"http://{town.OTHER}/"), f"reached {town.OTHER}:80", reached=("public",)),
    asked("p5", "below an allowed domain", get("http://sub.example.com/"), f"reached {town.PUBLIC}:80", reached=("public", "few")),
    asked("p6", "spelt otherwise", get("HTTP://EXAMPLE.com.:80/"), f"reached {town.PUBLIC}:80 as example.com", reached=("public", "few")),
    Row("p7", "by curl", "shell", "curl -sS http://example.com/b", f"reached {town.PUBLIC}:80", reached=("public", "few", "host")),
    Row("p8", "its own server", "shell", _OWN_SERVER, "served by itself", reached=POLICIES, control="", uncontrolled="it is its own"),
    # Private places
    asked("97", "loopback by the proxy", get("http://127.0.0.1/"), LOOPBACK),
    asked("97b", "a service on loopback", get("http://127.0.0.1:6379/"), LOOPBACK),
    asked("97c", "loopback by a tunnel", tunnel("127.0.0.1:443"), LOOPBACK),
    asked("97d", "loopback of IPv6", get("http://[::1]/"), "reached ::1"),
    asked("97e", "localhost", get("http://localhost/"), "reached "),
    asked("97f", "no address at all", get("http://0.0.0.0/"), LOOPBACK),
    asked("99", "a cloud's metadata", get(f"http://{town.METADATA}/latest/"), f"reached {town.METADATA}"),
    asked("99b", "the local network", get(f"http://{town.LAN}/"), f"reached {town.LAN}"),
    asked("99c", "the local network by a tunnel", tunnel(f"{town.LAN}:443"), f"reached {town.LAN}"),
    # Odd spellings
    asked("103", "a number", get("http://2130706433/"), LOOPBACK),
    asked("103b", "a short one in hex", get("http://0x7f.1/"), LOOPBACK),
    asked("103c", "octal", tunnel("0177.0.0.1:80"), LOOPBACK),
    asked("103d", "circled digits", get("http://①②⑦.0.0.1/").encode().decode("latin-1"), LOOPBACK),
    asked("103e", "an IPv4 address in an IPv6 one", get("http://[::ffff:7f00:1]/"), LOOPBACK),
    asked("103f", "through a translator", get("http://[64:ff9b::a9fe:a9fe]/"), "reached", control="", uncontrolled="there is no translator here"),
    asked("103g", "with a zone", get("http://[::1%25lo]/"), "reached ::1", control="", uncontrolled="what takes URLs apart here knows no zones"),
    # Names
    asked("104", "a public name of loopback", get("http://inside.example.com/"), LOOPBACK),
    asked("104b", "a public name of the local network", tunnel("lan.example.com:443"), f"reached {town.LAN}"),
    asked("104c", "a public name of the metadata", get("http://metadata.example.com/"), f"reached {town.METADATA}"),
    asked("104d", "a name of both kinds", get("http://mixed.example.com/"), "reached"),
    Row("104e", "a name that changes", "shell", "for n in 1 2 3; do curl -sS http://rebind.example.com/; done", LOOPBACK, reached=("host",)),
    Row("104f", "sent on to loopback", "shell", "curl -sSL 'http://example.com/to?http://inside.example.com/'", LOOPBACK, reached=("host",)),
    Row("104h", "sent on to the local network", "shell", f"curl -sSL 'http://example.com/to?http://{town.LAN}/'", f"d {town.LAN}", reached=("host",)),
    Row("104g", "sent on to another port", "shell", "curl -sSL 'http://example.com/to?http://example.com:6379/'", ":6379 as", reached=("host",)),
    # Requests that say two things
    asked("105", "another scheme", get("gopher://127.0.0.1:6379/_INFO"), LOOPBACK, control="", uncontrolled="the proxy speaks no other"),
    asked("105b", "a file", get("file:///etc/hostname"), "\r\n\r\nbubbles\n", control="", uncontrolled="the proxy speaks no other"),
    asked("105c", "a name before the host", get("http://example.com@127.0.0.1/"), LOOPBACK),
    asked("105d", "a backslash", get("http://127.0.0.1\\.example.com/"), LOOPBACK),
    asked("105e", "a NUL", tunnel("127.0.0.1\0.example.com:80"), LOOPBACK, control="", uncontrolled="heads with control characters are never read"),
    asked("105f", "a Host field of its own", get("http://example.com/", "Host: 127.0.0.1"), "as 127.0.0.1", control="", uncontrolled="it goes"),
    asked(
        "105g", "a second request behind the first", get("http://example.com/") + get("/hidden"), "reached again",
        control="", uncontrolled="what follows a request is never read",
    ),
    asked(
        "105h", "a request in a body", get("http://example.com/", "Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\n" + get("/hidden"),
        "reached", control="", uncontrolled="such a head is never passed on",
    ),
    asked("105i", "mail", tunnel("example.com:25"), f"reached {town.PUBLIC}:25"),
    asked("105j", "the proxy by itself", tunnel("127.0.0.1:3128"), "Connection established\r\n\r\nHTTP/1.1 200", control="", uncontrolled="no such"),
    # Allowed domains, by their labels
    asked("few", "another domain", get("http://www.example.net/"), f"reached {town.OTHER}", reached=("public",), control="public"),
    asked("few2", "one that ends alike", get("http://notexample.com/"), f"reached {town.OTHER}", reached=("public",), control="public"),
    asked("few3", "one that begins alike", get("http://example.com.evil.net/"), f"reached {town.OTHER}", reached=("public",), control="public"),
    asked("few4", "an address", tunnel(f"{town.OTHER}:443"), f"reached {town.OTHER}", reached=("public",), control="public"),
    # Past the proxy
    direct("97g", "a public address, directly", f"AF_INET SOCK_STREAM {town.PUBLIC} 80"),
    direct("97h", "loopback, directly", "AF_INET SOCK_STREAM 127.0.0.1 80"),
    direct("97i", "loopback of IPv6, directly", "AF_INET6 SOCK_STREAM ::1 80"),
    direct("97j", "no address, directly", "AF_INET SOCK_STREAM 0.0.0.0 80"),
    direct("97k", "an address of IPv6, directly", f"AF_INET6 SOCK_STREAM {town.PUBLIC6} 80"),
    direct("99d", "the metadata, directly", f"AF_INET SOCK_STREAM {town.METADATA} 80"),
    direct("99e", "the local network, directly", f"AF_INET SOCK_STREAM {town.LAN} 80"),
    direct("96", "an abstract socket", f"AF_UNIX SOCK_STREAM @{town.ABSTRACT}"),
    direct("92", "a socket of the home", f"AF_UNIX SOCK_STREAM {PATH_SOCKET}", reached=(), control="", uncontrolled="row 92 of the corpus has it"),
    direct("98", "a raw socket", "AF_INET SOCK_RAW 0", reached=(), control="", uncontrolled="no jail has the capability"),
    direct("98b", "a packet socket", "AF_PACKET SOCK_RAW 0", reached=(), control="", uncontrolled="no jail has the capability"),
    direct("102", "the name server, directly", f"AF_INET SOCK_DGRAM {town.SERVER} 53"),
    Row("102b", "names, by the resolver", "shell", "getent hosts example.com && echo reached", "reached", reached=("host",), control="host"),
    Row(
        "100", "a route of its own", "shell", f"ip route add {town.LAN} dev lo && echo reached; ip link add x type dummy && echo reached", "reached",
        control="", uncontrolled="no jail has the capability",
    ),
    Row(
        "100b", "without the variables", "shell", f"env -u http_proxy -u HTTP_PROXY -u ALL_PROXY -u all_proxy curl -sS -m 5 http://{town.PUBLIC}/",
        "reached", reached=("host",), control="host",
    ),
    Row(
        "100c", "the way's own socket", "shell",
        'for fd in /proc/self/fd/*; do readlink $fd; done | grep socket: && echo reached; ls /proc/1/fd -l | grep socket: && echo reached',
        "reached", control="", uncontrolled="the launcher closes it before the command begins",
    ),
]  # fmt: skip
NUMBERED = {row.number: row for row in ROWS}
Results = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What came of all rows for a user; run now, where no other process has."""
    kept = tmp_path_factory.getbasetemp()
    kept = kept.parent if os.environ.get("PYTEST_XDIST_WORKER") else kept

    def found(user: str) -> dict[str, Any]:
        path = kept / f"town-{user}.json"
        with open(f"{path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_text(json.dumps(_played(user)))
        told: dict[str, Any] = json.loads(path.read_text())
        if "skip" in told:
            pytest.skip(told["skip"])
        return told

    return found


def _played(user: str) -> dict[str, Any]:
    command = _as(user)
    if isinstance(command, str):
        return {"skip": command}
    root = Path(tempfile.mkdtemp(prefix="bn-", dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None))
    try:
        (root / "rows").write_text(json.dumps([{"number": row.number, row.kind: row.text} for row in ROWS]))
        if user != "root" and os.geteuid() == 0:
            for each in (root, root / "rows"):
                os.chown(each, ORDINARY, ORDINARY)
        done = _run([*command, "-m", "tests.sandboxes.attacks.town", str(root), str(root / "rows")])
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if done.returncode:
        pytest.fail(done.stderr[-4000:])
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _as(user: str) -> list[str] | str:
    """A Python of `user` in namespaces of its own; a text is why there can be none."""
    prefix = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"] if user != "root" and os.geteuid() == 0 else []
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"  # where ours is root's alone
    pythons = [[sys.executable], ["env", f"PYTHONPATH={':'.join(site.getsitepackages())}", system]]
    said = ""
    for python in pythons:
        command = [*prefix, *town.spaces(as_root=user == "root"), *python]
        done = _run([*command, "-c", "import tests.sandboxes.attacks.town"])
        if done.returncode == 0:
            return command
        said = said or done.stderr
    return f"no network of its own: {said.strip()}"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.defpath} | {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_MOST_S)


def _output(found: dict[str, Any], arrangement: str, number: str) -> str:
    told = found[arrangement]
    assert "failed" not in told, told["failed"]
    output: str = told[number]
    return output


@pytest.mark.parametrize("number", NUMBERED)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("user", users())
def test_a_command_reaches_what_its_policy_allows(results: Results, user: str, policy: str, number: str) -> None:
    row, output = NUMBERED[number], _output(results(user), policy, number)
    assert (row.needle in output) == (policy in row.reached), f"{row.title}: {output!r}"


@pytest.mark.parametrize("number", [row.number for row in ROWS if row.control and row.control not in row.reached])
@pytest.mark.parametrize("user", users())
def test_an_attack_succeeds_without_the_checks(results: Results, user: str, number: str) -> None:
    row = NUMBERED[number]
    output = _output(results(user), row.control, number)
    assert row.needle in output, f"{row.title}: {output!r}"


@pytest.mark.parametrize("user", users())
def test_a_name_that_is_not_allowed_is_not_even_looked_up(results: Results, user: str) -> None:
    heard = results(user)["heard"]
    assert set(heard["few"]) <= {name for name in town.NAMES if name == "example.com" or name.endswith(".example.com")}
    assert "www.example.net" in heard["public"]
    assert heard["none"] == []


@pytest.mark.parametrize("user", users())
def test_the_note_names_what_was_refused(results: Results, user: str) -> None:
    note = results(user)["note"]
    for policy in ("few", "public"):
        first, more, why = note[policy].removeprefix("the network refused ").partition(" and more (")
        assert len(set(first.split(", "))) == 5  # of commands side by side, whichever came first
        assert why.endswith(")")
        assert more
    assert note["none"] == note["host"] == ""


def test_the_rows_are_in_order() -> None:
    assert len(NUMBERED) == len(ROWS), "a number stands twice"
    for row in ROWS:
        assert bool(row.control) != bool(row.uncontrolled), f"{row.number}: where it succeeds, or why it cannot be shown to"
