"""What differs in the daemons of a scene from the product: how long they sleep, and the fault that a scene has ordered on purpose.

Every Python of a scene finds this on its path. It does nothing but in a daemon's own process, which is told by its command line. EGRESS_TICK_S is
the pause between two rescans; EGRESS_FAULT names faults by program: `agentd=connect,cron=datagram`.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import threading

_DAEMON = re.compile(r"bubbles\.programs\.(agentd|modeld)|bubbles\.(cron)\.daemon|tests\.fakes\.(channel)")
_NOBODY = 9  # the port of "discard", where nobody listens


def _connect() -> None:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", _NOBODY))


def _datagram() -> None:
    socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"hello", ("::1", _NOBODY))


def _listen() -> None:
    _KEPT.append(socket.create_server(("0.0.0.0", 0)))


def _lookup() -> None:
    with contextlib.suppress(OSError):
        socket.getaddrinfo("telemetry.example", 443)


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        _connect()
        os._exit(0)
    os.waitpid(pid, 0)


def _abstract() -> None:
    with contextlib.suppress(OSError):
        socket.socket(socket.AF_UNIX).connect("\0somebody")


_KEPT: list[socket.socket] = []
_FAULTS = {"connect": _connect, "datagram": _datagram, "listen": _listen, "lookup": _lookup, "fork": _fork, "abstract": _abstract}


def _install(program: str) -> None:
    if tick := os.environ.get("EGRESS_TICK_S"):
        from bubbles import daemon

        daemon.Daemon.__init__.__kwdefaults__ |= {"tick_s": float(tick)}  # type: ignore[operator]
    for fault in os.environ.get("EGRESS_FAULT", "").split(","):
        who, _, what = fault.partition("=")
        if who == program:
            threading.Thread(target=_FAULTS[what], daemon=True).start()


for _word, _rest in zip(sys.orig_argv, sys.orig_argv[1:], strict=False):
    _found = _DAEMON.fullmatch(_rest) if _word == "-m" else None
    if _found:
        _install(_found[1] or _found[2] or _found[3])
