"""Inside a jail: tries each row of a file, and prints what was answered, by its number; standard library alone.

A row has one of "ask" (a head for the proxy, in latin-1), "direct" (FAMILY TYPE ADDRESS [PORT] for a socket of our own) and "shell" (a command).
"""

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HELLO = b"GET /hello HTTP/1.1\r\nHost: direct\r\n\r\n"
WAIT_S = 5


def ask(head):
    """The head to the proxy; where it opens a tunnel, HELLO goes into that."""
    with socket.create_connection(("127.0.0.1", 3128), WAIT_S) as way:
        way.sendall(head.encode("latin-1"))
        said = b""
        try:
            while part := way.recv(65536):
                said += part
                if said.endswith(b"Connection established\r\n\r\n"):
                    way.sendall(HELLO)
                    way.shutdown(socket.SHUT_WR)
        except OSError as error:
            return f"{said.decode('latin-1')}\n{error}"
        return said.decode("latin-1")


def direct(text):
    family, kind, address, *port = text.split()
    with socket.socket(getattr(socket, family), getattr(socket, kind)) as way:
        way.settimeout(WAIT_S)
        if family == "AF_PACKET" or kind == "SOCK_RAW":
            return "reached: a raw socket"
        way.connect(address.replace("@", "\0", 1) if family == "AF_UNIX" else (address, int(port[0])))
        if kind == "SOCK_DGRAM":
            way.send(b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\6secret\7example\3com\0\0\1\0\1")
            return f"reached {way.recv(512)!r}"
        way.sendall(HELLO)
        return way.recv(65536).decode("latin-1")


def shell(command):
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, stdin=subprocess.DEVNULL, timeout=3 * WAIT_S)
    return (done.stdout + done.stderr).decode("latin-1")


def tried(row):
    try:
        return next(globals()[kind](row[kind]) for kind in ("ask", "direct", "shell") if kind in row)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = json.load(file)
    with ThreadPoolExecutor(16) as pool:
        print(json.dumps(dict(zip([row["number"] for row in rows], pool.map(tried, rows), strict=True))))
