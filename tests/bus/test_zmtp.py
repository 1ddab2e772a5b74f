"""ZMTP: what libzmq sends is read, what we send it reads, and no bytes of a peer's raise anything but ProtocolError."""

from __future__ import annotations

import contextlib
import socket

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from bubbles.bus import zmtp
from bubbles.errors import ProtocolError

GREETING = zmtp.hello("DEALER")[:64]
READY = zmtp.hello("ROUTER")[64:]
messages = st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=4), max_size=5)


def shaken() -> zmtp.Reader:
    reader = zmtp.Reader()
    assert reader.feed(GREETING + READY) == []
    assert reader.ready
    return reader


@given(messages, st.lists(st.integers(1, 200), max_size=40))
def test_messages_come_whole_however_the_bytes_are_cut(sent, cuts):
    data = GREETING + READY + b"".join(map(zmtp.encode, sent))
    reader, got, at = zmtp.Reader(), [], 0
    for size in [*cuts, len(data)]:
        got += reader.feed(data[at : at + size])
        at += size
    assert got == sent
    assert reader.ready


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(data):
    for reader in (zmtp.Reader(), shaken()):
        with contextlib.suppress(ProtocolError):
            reader.feed(data)


def test_a_frame_of_256_bytes_has_a_long_length():
    for size in (0, 1, 255, 256, 70_000):
        assert shaken().feed(zmtp.encode([b"x" * size])) == [[b"x" * size]]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\xff\0\0\0\0\0\0\0\x01\x7e\x03" + b"\0" * 60,
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x01" + b"\0" * 60,
        GREETING.replace(b"NULL", b"CURV"),
    ],
)
def test_a_peer_that_speaks_something_else_is_refused(data):
    with pytest.raises(ProtocolError):
        zmtp.Reader().feed(data)


def test_a_length_beyond_every_limit_is_refused_before_it_is_read():
    with pytest.raises(ProtocolError, match="more than a message may hold"):
        shaken().feed(b"\x02" + (1 << 62).to_bytes(8, "big"))


def test_endless_frames_of_one_message_are_refused():
    reader = shaken()
    for _ in range(10):
        reader.feed(b"\x01\x00" * 100_000)
    with pytest.raises(ProtocolError, match="more than a message may hold"):
        reader.feed(b"\x01\x00" * 100_000)


def test_a_refusal_is_told():
    with pytest.raises(ProtocolError, match="refused the connection: no room"):
        shaken().feed(b"\x04\x0e\x05ERROR\x07no room")


@pytest.fixture
def bound(tmp_path):
    context = zmq.Context()
    made = []

    def bind(kind):
        path = str(tmp_path / f"{len(made)}.sock")
        made.append(context.socket(kind))
        made[-1].bind(f"ipc://{path}")
        made[-1].setsockopt(zmq.RCVTIMEO, 5000)
        plug = socket.socket(socket.AF_UNIX)
        made.append(plug)
        plug.settimeout(5)
        plug.connect(path)
        return made[-2], plug

    yield bind
    for each in made:
        each.close()
    context.term()


def shake(plug, kind):
    reader = zmtp.Reader()
    plug.sendall(zmtp.hello(kind))
    while not reader.ready:
        reader.feed(plug.recv(4096))
    return reader


def test_a_router_of_libzmq_is_spoken_with(bound):
    router, plug = bound(zmq.ROUTER)
    reader = shake(plug, "DEALER")
    for size in (0, 5, 255, 256, 3_000_000):
        plug.settimeout(5)
        sent = [b"B1", b"x" * size, b""]
        plug.sendall(zmtp.encode(sent))
        peer, *got = router.recv_multipart()
        assert got == sent
        router.send_multipart([peer, *got])
        back = []
        while not back:
            back = reader.feed(plug.recv(1 << 18))
        assert back == [sent]


def test_a_publisher_of_libzmq_is_listened_to(bound):
    publisher, plug = bound(zmq.XPUB)
    reader = shake(plug, "SUB")
    plug.sendall(zmtp.encode([b"\1out/"]))
    assert publisher.recv() == b"\1out/"
    publisher.send_multipart([b"other", b"B1", b"{}"])
    publisher.send_multipart([b"out/telegram", b"B1", b"{}"])
    assert reader.feed(plug.recv(4096)) == [[b"out/telegram", b"B1", b"{}"]]
    plug.close()
    assert publisher.recv() == b"\0out/"
