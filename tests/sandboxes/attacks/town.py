"""A network of its own with public hosts, private ones and a name server, and jails in it whose commands try to reach them; what came of it.

    python -m tests.sandboxes.attacks.town ROOT ROWS

To be started behind `spaces`. ROOT is an empty directory, ROWS a file with a list of {"number", "ask" | "direct" | "shell"} (see reaching.py). Prints
{arrangement: {number: output}, "heard": {arrangement: [names that were looked up]}, "note": {arrangement: the outcome's note}}. Every host
answers "reached ADDRESS:PORT as HOST".
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bubbles import sandboxes
from bubbles.config.tools import Sandbox as Settings
from bubbles.paths import Home
from bubbles.sandboxes import Limits, Sandbox, public
from bubbles.sandboxes.bwrap import Bwrap
from bubbles.sandboxes.furniture import python
from bubbles.sandboxes.proxy import Proxy, Rules

PUBLIC, OTHER, PUBLIC6 = "93.184.216.34", "93.184.216.35", "2606:2800:220:1:248:1893:25c8:1946"
LAN, METADATA, SERVER = "10.9.8.7", "169.254.169.254", "127.0.0.53"
ADDRESSES = (PUBLIC, OTHER, PUBLIC6, LAN, METADATA)
# Each name with what it means, one question after the other.
NAMES = {
    "example.com": [PUBLIC],
    "sub.example.com": [PUBLIC],
    "www.example.net": [OTHER],
    "notexample.com": [OTHER],
    "example.com.evil.net": [OTHER],
    "six.example.com": [PUBLIC6],
    "inside.example.com": ["127.0.0.1"],
    "lan.example.com": [LAN],
    "metadata.example.com": [METADATA],
    "mixed.example.com": [f"{PUBLIC} 127.0.0.1"],
    "rebind.example.com": [PUBLIC, "127.0.0.1"],
}
PORTS = (25, 80, 443, 6379)
ABSTRACT = "bubbles-town"


def spaces(*, as_root: bool) -> list[str]:
    """The words before a command line that start it in namespaces of its own, which end with it; where not `as_root`, as the root of these alone."""
    whose = [] if as_root else ["--user", "--map-root-user"]
    return ["unshare", *whose, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Names(asyncio.DatagramProtocol):
    """A name server for NAMES; `asked` are the names that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._times: dict[str, int] = {}

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: Any) -> None:
        at, labels = 12, []
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += data[at] + 1
        question, kind = data[12 : at + 5], struct.unpack(">H", data[at + 1 : at + 3])[0]
        name = ".".join(labels).lower()
        self.asked.append(name)
        found = [ipaddress.ip_address(text) for text in self._meaning(name, kind)]
        answers = [b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(one.packed)) + one.packed for one in found if _kind(one) == kind]
        flags = 0x8180 if name in NAMES else 0x8183
        head = data[:2] + struct.pack(">HHHHH", flags, 1, len(answers), 0, 0)
        self._transport.sendto(head + question + b"".join(answers), sender)

    def _meaning(self, name: str, kind: int) -> list[str]:
        """What a name means now; where it changes, each question for an IPv4 address is another step."""
        meanings = NAMES.get(name, [""])
        step = self._times.get(name, 0)
        self._times[name] = step + (kind == 1)
        return meanings[min(step, len(meanings) - 1)].split()


def _kind(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    return 1 if address.version == 4 else 28


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Any host: says who it is and what it was called, or sends on to /to?URL."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        name = writer.get_extra_info("sockname")
        path = head.split(" ")[1]
        called = next((line[5:].strip() for line in head.split("\r\n") if line.lower().startswith("host:")), "")
        where = name if isinstance(name, str | bytes) else f"{name[0]}:{name[1]}"
        body = f"reached {where} as {called} for {path}\n".encode()
        more = f"HTTP/1.1 302 Found\r\nLocation: {path[4:]}\r\n" if path.startswith("/to?") else "HTTP/1.1 200 OK\r\n"
        writer.write(f"{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        # A server that does not mind being asked again.
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\nreached again {len(head) % 10}\n".encode())
        await writer.drain()
    writer.close()


def build(root: Path) -> None:
    """Addresses, and /etc as this namespace of mounts alone sees it."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES:
        subprocess.run(["ip", "addr", "add", address, "dev", "lo"], check=True)
    files = {"resolv.conf": f"nameserver {SERVER}\noptions attempts:1 timeout:2\n", "hosts": "127.0.0.1 localhost\n"}
    files["nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files dns\n"
    for name, text in files.items():
        path = root / name
        path.write_text(text)
        subprocess.run(["mount", "--bind", path, os.path.realpath(Path("/etc", name))], check=True)


class Unchecked(Bwrap):
    """The jail of network `public` whose proxy lets everything pass: what the checks are good for."""

    def _way(self) -> contextlib.AbstractAsyncContextManager[public.Way | None]:
        return public.opened(Proxy([], public.told, rules=Rules(_as_it_stands, lambda _, found: list(found)), ports=range(1 << 16)))


def _as_it_stands(url: str, _: Any) -> tuple[str, str, int]:
    """A URL taken apart as many programs do."""
    parts = urlsplit(url)
    host = (parts.hostname or "").partition("\0")[0].partition("\\")[0]
    with contextlib.suppress(UnicodeError):
        host = host.encode("idna").decode()
    return parts.scheme, host, parts.port or {"https": 443}.get(parts.scheme, 80)


def arrangements(home: Home) -> dict[str, Sandbox]:
    """The jails by the names that rows.must has for them."""

    def jail(name: str, network: str, **more: Any) -> Sandbox:
        settings = Settings(backend="bwrap", limits={"free_bytes": 0}, **more)
        return sandboxes.open("bwrap", home.session(name), home.session_home(name), settings, network=network)

    return {
        "none": jail("none", "none"),
        "public": jail("public", "public"),
        "few": jail("few", "public", allow_domains=["Example.com"]),
        "host": jail("host", "host"),
        "unchecked": Unchecked(home.session("unchecked"), home.session_home("unchecked"), Settings(backend="bwrap", limits={"free_bytes": 0})),
    }


async def play(home: Home, rows: list[dict[str, Any]]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    servers = [await asyncio.start_server(answer, host, port) for host in ("0.0.0.0", "::") for port in PORTS]
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{ABSTRACT}")
    servers.append(await asyncio.start_unix_server(answer, sock=abstract))
    servers.append(await asyncio.start_unix_server(answer, str(home.run / "town.sock")))
    transport, names = await loop.create_datagram_endpoint(Names, local_addr=(SERVER, 53))
    told: dict[str, Any] = {"heard": {}, "note": {}}
    for name, sandbox in arrangements(home).items():
        work = home.session(name) / "work"
        work.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("reaching.py"), work)
        text = json.dumps([{key: value.replace("{run}", str(home.run)).replace("{python}", python()) for key, value in row.items()} for row in rows])
        (work / "rows.json").write_text(text)
        names.asked.clear()
        names._times.clear()
        outcome = await sandbox.run(f"{python()} -I -S reaching.py rows.json", Limits(timeout_s=60))
        told[name] = json.loads(outcome.output) if outcome.exit == 0 else {"failed": str(outcome)}
        told["heard"][name], told["note"][name] = sorted(set(names.asked)), outcome.note
    transport.close()
    for server in servers:
        server.close()
    return told


def main() -> None:
    root, rows = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    build(root)
    os.environ |= {"BUBBLES_HOME": str(root / "home"), "XDG_RUNTIME_DIR": str(root)}
    home = Home.find()
    home.prepare()
    print(json.dumps(asyncio.run(play(home, rows))))


if __name__ == "__main__":
    main()
