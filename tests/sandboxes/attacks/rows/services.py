"""Attacks on what listens: the service manager, a container engine, our own daemons, sockets without a name in the file system."""

from __future__ import annotations

from tests.sandboxes.attacks.corpus import HELD, NOT_APPLICABLE, NOT_HELD, Attack, connects, says


def _speaks(*addresses: str, family: str = "AF_UNIX", says: str = "{word}") -> str:
    """A program that says its word to each of `addresses` (expressions), and prints what is answered."""
    return f"""
import os, socket
for address in ({", ".join(addresses)},):
    try:
        s = socket.socket(socket.{family})
        s.settimeout(1)
        s.connect(address)
        s.sendall(b"{says}\\r\\n\\r\\n")
        print(s.recv(400))
    except (OSError, KeyError) as error:
        print(address, error)
"""


_BY_ENVIRONMENT = """
import os, re, socket
said = [os.environ.get("XDG_RUNTIME_DIR", "/nowhere") + "/bus", os.environ.get("XDG_RUNTIME_DIR", "/nowhere") + "/systemd/private"]
said += re.findall("path=([^,;]+)", os.environ.get("DBUS_SESSION_BUS_ADDRESS", ""))
for address in said:
    try:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(1)
        s.connect(address)
        s.sendall(b"{word}")
        print(s.recv(400))
    except OSError as error:
        print(address, error)
"""
# Only connected to, nothing is said: these are the machine's own.
_ANY = """
import os, socket, stat
for top in ("/run", "/var", "/tmp", "/dev", "/etc", "/home", "/root", "/srv", "/mnt", "/opt"):
    for directory, names, files in os.walk(top):
        for file in files:
            path = f"{directory}/{file}"
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    socket.socket(socket.AF_UNIX).connect(path)
                    print(path)
                    print("{word}")
            except OSError:
                continue
"""
_MANAGER = """
export XDG_RUNTIME_DIR={runtime} DBUS_SESSION_BUS_ADDRESS=unix:path={bus}
timeout 1 systemd-run --user --wait --pipe echo {word}
timeout 1 systemd-run --user -M {uid}@.host --wait --pipe echo {word}
timeout 1 systemctl --user list-units > /dev/null && echo {word}
timeout 1 busctl --user list > /dev/null && echo {word}
[ -S {bus} ] && echo {word}
true
"""
_ALL_ABSTRACT = """
import socket
names = {line.split()[-1] for line in open("/proc/net/unix") if "@" in line.split()[-1][:1]}
for name in names:
    try:
        socket.socket(socket.AF_UNIX).connect("\\0" + name[1:])
        print(name)
        print("{word}")
    except OSError:
        continue
"""

ATTACKS = [
    Attack("88", "the user's bus and manager, as the environment says", _BY_ENVIRONMENT, connects("bus", "systemd_private"), HELD, HELD, "",
           python=True, uncontrolled="no command is told of them, in a jail or not"),
    Attack("88m", "have the service manager start something", _MANAGER, says(), NOT_HELD, NOT_HELD, "files"),
    Attack("89", "the user's bus by its path", _speaks("'{bus}'"), connects("bus"), NOT_HELD, NOT_HELD, "files", python=True),
    Attack("90", "any socket of the machine", _ANY, says(), NOT_APPLICABLE, NOT_APPLICABLE, "files", python=True),
    Attack("91", "systemd's private socket", _speaks("'{systemd_private}'"), connects("systemd_private"), NOT_HELD, NOT_HELD, "files", python=True),
    Attack("92", "our own daemons' sockets", _speaks("'{door}'", "'{feed}'", "'{channel_door}'"), connects("door", "feed", "channel_door"),
           NOT_HELD, NOT_HELD, "files", python=True),
    Attack("93", "a container engine's socket", _speaks("'{docker}'", "'{podman}'", says="GET /containers/json?{word} HTTP/1.0"),
           connects("docker", "podman"), NOT_HELD, NOT_HELD, "files", python=True),
    Attack("95", "a display's socket in /tmp", _speaks("'{tmp_socket}'"), connects("tmp_socket"), NOT_HELD, NOT_HELD, "files", python=True),
    Attack("96", "an abstract socket", _speaks("'\\0{abstract}'"), connects("abstract"), NOT_HELD, NOT_HELD, "network", host=NOT_HELD, python=True),
    Attack("96a", "all abstract sockets that are told of", _ALL_ABSTRACT, says(), NOT_HELD, NOT_HELD, "network", host=NOT_HELD, python=True),
]  # fmt: skip
