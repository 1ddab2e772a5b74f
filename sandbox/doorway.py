"""The launcher of network policy `public`: makes the one way out of a jail, hands it to the outside, and becomes the command.

    python -I -S doorway.py FD -- ARGV…

FD is a stream socket to whoever started the jail. The listening socket of 127.0.0.1:3128 in the jail's own network goes out over it, and the
command begins when a byte comes back: somebody serves it then. The command inherits nothing but standard input, output and error.
Whatever fails is one line on stderr and exit status 125; the command has not begun then.

It does not know what is served there, nor which hosts may be reached.
"""

from __future__ import annotations

# `_signal` and `_socket` are what `signal` and `socket` are made of, without the nine milliseconds that these take to load.
import _signal  # type: ignore[import-not-found]
import _socket
import fcntl
import os
import resource
import sys

TYPE_CHECKING = False  # as typing's, which would have to be loaded
if TYPE_CHECKING:
    from typing import NoReturn

PORT = 3128
WAIT_S = 30.0  # for the other side, which may be starting many
FAILED = 125
_BACKLOG = 128
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


class Failed(Exception):
    """Why the command was not begun."""


def main(argv: list[str]) -> NoReturn:
    """Become the command that `argv` names, or exit with 125."""
    try:
        fd, command = _arguments(argv)
        _hand_over(fd)
        _become(command)
    except Failed as error:
        reason = str(error)
    except OSError as error:
        reason = error.strerror or str(error)
    os.write(2, f"bubbles: the way to the network could not be opened: {reason}\n".encode("utf-8", "backslashreplace"))
    os._exit(FAILED)


def _arguments(argv: list[str]) -> tuple[int, list[str]]:
    if len(argv) < 3 or argv[1] != "--" or not argv[0].isdecimal():
        raise Failed("usage: doorway.py FD -- ARGV…")
    return int(argv[0]), argv[2:]


def _hand_over(fd: int) -> None:
    """Have the other side of `fd` serve the way out."""
    try:
        outside = _socket.socket(fileno=fd)
    except OSError as error:
        raise Failed(f"descriptor {fd} is no socket ({error.strerror})") from None
    outside.settimeout(WAIT_S)
    listener = _listener()
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.fileno().to_bytes(4, sys.byteorder))
    # Sending is refused where the owner's programs, all jails' among them, have more on the way than this one might have open.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        outside.sendmsg([b"L"], [rights])
        served = outside.recv(1)
    except TimeoutError:
        raise Failed(f"nobody served it within {WAIT_S:g} s") from None
    if not served:
        raise Failed("nobody serves it")


def _listener() -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    _raise_loopback(listener.fileno())
    try:
        listener.bind(("127.0.0.1", PORT))
    except OSError as error:
        raise Failed(f"port {PORT} of the jail's loopback: {error.strerror}") from None
    listener.listen(_BACKLOG)
    return listener


def _raise_loopback(any_socket: int) -> None:
    """Bring `lo` up where it is not; bwrap has done so. A socket can be bound there before, and nobody would ever come."""
    name = b"lo".ljust(16, b"\0")
    asked = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, name + bytes(24))
    flags = int.from_bytes(asked[16:18], sys.byteorder)
    if not flags & _IFF_UP:
        try:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, name + (flags | _IFF_UP).to_bytes(2, sys.byteorder) + bytes(22))
        except OSError as error:
            raise Failed(f"the jail's loopback is down and stays so: {error.strerror}") from None


def _become(command: list[str]) -> NoReturn:
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them, and the command would go on doing so
        _signal.signal(ignored, _signal.SIG_DFL)
    os.closerange(3, 1 << 20)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Failed(f"{command[0]} cannot be started: {error.strerror}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
