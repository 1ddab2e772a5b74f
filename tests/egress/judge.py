"""What programs may do on the network, held against what they did.

    python -m tests.egress.judge DIRECTORY      judges what tests/egress/house.py has left there, and says so

It does not know how a record came about. Nothing is allowed but what a law says: who may connect where, ask for which names, listen on loopback.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.egress.record import UNSEEN, Act, Address, Record

# Unix sockets that are none of ours, and which a library may ask all the same. They are files on this machine; nothing leaves it by them.
LOOKUPS = {
    "/var/run/nscd/socket": "glibc looks for a cache of names before it reads /etc/passwd, /etc/hosts or asks a name server",
    "/run/systemd/userdb/": "nss-systemd is asked for users that /etc/passwd does not have",
    "/run/systemd/journal/": "the log goes to journald where standard error does",
    "/dev/log": "syslog(3), which a tool may use",
    "/run/systemd/private": "systemctl asks the manager whether there are units of ours",
    "/run/dbus/system_bus_socket": "systemctl and loginctl ask whether the user's manager lives on after a logout",
}
_FAMILIES = {"UNIX", "INET", "INET6", "NETLINK", "LOCAL"}
_LOOPBACK = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class Law:
    """`connect`: addresses (`host:port`) by program, "" for all programs. `names` that may be asked for, of these `resolvers`. `sockets`: directories
    and files of our Unix sockets. `listen`: the programs that may listen on loopback; `serve`: whose ports others may connect to, by program.
    """

    sockets: tuple[str, ...]
    connect: dict[str, tuple[str, ...]] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    resolvers: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    serve: dict[str, str] = field(default_factory=dict)

    def idle(self) -> Law:
        """The same home, of which nobody wants anything: a channel asks its own platform for words, again and again, and nobody else asks anybody."""
        return Law(self.sockets, connect={"channel": self.connect.get("channel", ())})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Law:
        connect, names = ({who: tuple(what) for who, what in raw[name].items()} for name in ("connect", "names"))
        sockets, resolvers, listen = (tuple(raw[name]) for name in ("sockets", "resolvers", "listen"))
        return cls(sockets, connect, names, resolvers, listen, dict(raw["serve"]))


def breaches(record: Record, law: Law, within: tuple[float, float] | None = None) -> list[str]:
    """Every act that the law does not allow, with the reason; and what makes the record worth less than it seems."""
    found = [f"a line that cannot be read: {line}" for line in record.unreadable]
    found += [f"process {pid} was born and not traced" for pid in record.lost]
    for act in record.acts:
        if within is None or within[0] <= act.at <= within[1]:
            why = breach(act, law, record)
            found += [f"{why}: {act}"] if why else []
    return found


def breach(act: Act, law: Law, record: Record) -> str:
    """Why an act is not allowed; "" where it is."""
    if act.what in UNSEEN:
        return "what it does from here on cannot be seen"
    if act.what == "socket":
        return _socket(act)
    if act.address.family == "UNIX":
        return "" if _ours(act.address.path, law) else "a socket that is neither ours nor on the list"
    if act.address.family in ("NETLINK", "UNSPEC"):  # the kernel's own, which goes nowhere; a connection that is given up
        return "netlink to another process" if act.address.path and act.what != "bind" else ""
    if act.address.family not in ("INET", "INET6"):
        return "a family that nothing of ours speaks"
    return _bound(act, law) if act.what in ("bind", "listen") else _reached(act, law, record)


def _socket(act: Act) -> str:
    if act.address.family not in _FAMILIES:
        return "a family that nothing of ours speaks"
    return "a raw socket" if "SOCK_RAW" in act.kind and act.address.family in ("INET", "INET6") else ""


def _ours(path: str, law: Law) -> bool:
    """An empty path is one that the kernel chooses (or, sent to, the peer that is connected)."""
    own = any(path == place or path.startswith(f"{place}/") for place in law.sockets)
    listed = (place for place in LOOKUPS if path == place or place.endswith("/") and path.startswith(place))
    return not path or own or any(listed)


def _bound(act: Act, law: Law) -> str:
    if act.program not in law.listen or act.kind != "TCP":
        return "it opens a port"
    return "" if act.address.host in _LOOPBACK else "it opens a port that others than this machine reach"


def _reached(act: Act, law: Law, record: Record) -> str:
    if act.kind == "UDP" and str(act.address) in law.resolvers:
        allowed = law.names.get(act.program, ())
        strange = [name for name in act.names if name not in allowed]
        return f"it asks for {', '.join(strange)}" if strange else "" if allowed else "it has no name to ask for"
    if act.kind == "UDP" and act.what == "send":
        return "it sends a datagram"
    # A datagram socket that is only connected sends nothing: so glibc learns which of our addresses would be used, to sort what it found.
    return "" if _may_connect(act.program, act.address, law, record) else "it connects where it should not"


def _may_connect(program: str, to: Address, law: Law, record: Record) -> bool:
    if str(to) in (*law.connect.get(program, ()), *law.connect.get("", ())):
        return True
    server = law.serve.get(program)
    return server is not None and to.host in _LOOPBACK and to.port in record.listening(server)


def summary(acts: Iterable[Act]) -> list[str]:
    """What was done, counted: a line a kind."""
    counted = Counter(f"{act.program} {act.what} {act.kind} {act.address}" for act in acts if act.what != "socket")
    return [f"{count:5d}  {what}" for what, count in sorted(counted.items())]


@dataclass(frozen=True)
class Scene:
    """What tests/egress/house.py has left of one scene: a record, its law, its marks of time, and what its watch has seen beside it."""

    name: str
    record: Record
    law: Law
    told: dict[str, Any]

    @classmethod
    def open(cls, directory: Path) -> Scene:
        told = json.loads((directory / "scene.json").read_text())
        return cls(directory.name, Record(directory / "traces"), Law.of(told["law"]), told)

    def breaches(self) -> list[str]:
        """Those of the whole scene, and those of its idle stretch, where it has one."""
        found = breaches(self.record, self.law)
        if idle := self.told.get("idle"):
            found += [f"idle: {breach}" for breach in breaches(self.record, self.law.idle(), (idle[0], idle[1]))]
        return found


def main() -> int:
    red = 0
    for path in sorted(Path(sys.argv[1]).glob("*/scene.json")):
        scene = Scene.open(path.parent)
        found = scene.breaches()
        red += bool(found)
        print(f"{scene.name}: {len(scene.record.processes)} processes, {scene.record.calls} lines; {'RED' if found else 'green'}")
        if idle := scene.told.get("idle"):
            within = [act for act in scene.record.acts if idle[0] <= act.at <= idle[1]]
            print(f"  idle for {idle[1] - idle[0]:.0f} s, and meanwhile:")
            print("\n".join(summary(within)) or "      nothing at all")
        print("\n".join(f"  {text}" for text in found))
    return red


if __name__ == "__main__":
    sys.exit(main())
