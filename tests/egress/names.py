"""A name server that knows a few names: so that it can be seen which are asked for. It speaks UDP, on this machine, in a thread of its own."""

from __future__ import annotations

import socket
import struct
import threading

from tests.egress.record import question

_A, _NO_SUCH_NAME = 1, 3


class Names:
    """`asked` are the names in the order of questions. Those in `known` have an address each, of IPv4."""

    def __init__(self, known: dict[str, str], host: str = "127.0.0.53", port: int = 53) -> None:
        self.asked: list[str] = []
        self._known = known
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            packet, who = self._socket.recvfrom(4096)
            self._socket.sendto(self._answer(packet), who)

    def _answer(self, packet: bytes) -> bytes:
        name = question(packet)
        self.asked.append(name)
        end = packet.index(b"\0", 12) + 5
        (kind,) = struct.unpack_from("!H", packet, end - 4)
        address = self._known.get(name)
        record = b""
        if address and kind == _A:
            record = struct.pack("!HHHIH", 0xC00C, _A, 1, 60, 4) + socket.inet_aton(address)
        head = struct.pack("!HHHHHH", struct.unpack_from("!H", packet)[0], 0x8580 | (0 if address else _NO_SUCH_NAME), 1, bool(record), 0, 0)
        return head + packet[12:end] + record
