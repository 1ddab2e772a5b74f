"""The frames of one message and the limits they keep: a pure translation, specified in PROTOCOL.md.

It does not know sockets, nor which operations there are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bubbles.errors import BubblesError, ProtocolError, from_wire, to_wire

VERSION = b"B1"
HEAD_MOST = 1 << 20  # bytes of the JSON object
LARGE = 256 << 10  # bytes of a head from which on what a door tells goes as a blob
BLOBS_MOST = 64 << 20  # bytes of all blobs of a message together
BLOBS_COUNT = 256
ID_MOST = 200  # characters of a request's id
TOLD = ("body", "part")
TEXT_MOST = 10_000  # characters of an error's text: an error can always be told

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encode(head: dict[str, Any], blobs: Sequence[bytes] = ()) -> list[bytes]:
    """The frames of a message. Raises ProtocolError where it is too large or not JSON."""
    text = _text(head)
    if len(text) > LARGE and (told := _told(head)):
        blobs = [*blobs, _text(head[told])]
        text = _text({**{name: value for name, value in head.items() if name != told}, "large": told})
    _measure(len(text), blobs)
    return [VERSION, text, *blobs]


def _told(head: dict[str, Any]) -> str:
    """The field of a head from a door that holds what the door tells: of these alone the receiver has asked for it, however large it is."""
    return next((name for name in TOLD if "re" in head and isinstance(head.get(name), dict)), "")


def decode(frames: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The object and the blobs of a message. Raises ProtocolError for another version, a size over a limit, or what is not an object."""
    if not frames or frames[0] != VERSION:
        found = bytes(frames[0][:8]) if frames else b""
        raise ProtocolError(f"the peer speaks {found!r}, this program {VERSION!r}", remedy="run the same version of Bubbles everywhere")
    if len(frames) < 2:
        raise ProtocolError("a message without its object")
    blobs = list(frames[2:])
    _measure(len(frames[1]), blobs)
    head = _object(frames[1])
    if "re" in head and (told := head.pop("large", None)) is not None:
        if told not in TOLD or not blobs:
            raise ProtocolError("a large message without what is large in it")
        head[told] = _object(blobs.pop())
    return head, blobs


def sender(frames: Sequence[bytes]) -> str:
    """The `id` of a request that could not be decoded, or "": every version of the protocol keeps it in the second frame."""
    if len(frames) < 2 or len(frames[1]) > HEAD_MOST:
        return ""
    try:
        found = _object(frames[1]).get("id")
    except ProtocolError:
        return ""
    return found if isinstance(found, str) and 0 < len(found) <= ID_MOST else ""


def request(id: str, op: str, body: dict[str, Any]) -> dict[str, Any]:
    """The object that asks for `op`."""
    return {"id": id, "op": op, "body": body}


def ring() -> dict[str, Any]:
    """The object of a ring."""
    return {"op": "ring"}


def event(body: dict[str, Any]) -> list[bytes]:
    """The frames of an event of the feed; none where it is too large to be told. Raises ProtocolError where it is not JSON."""
    text = _text(body)
    return [VERSION, text] if len(text) <= HEAD_MOST else []


def part(re: str, part: dict[str, Any]) -> dict[str, Any]:
    """The object of one part on the way to the reply to `re`."""
    return {"re": re, "part": part}


def reply(re: str, body: dict[str, Any]) -> dict[str, Any]:
    """The object of the reply to `re`."""
    return {"re": re, "ok": True, "body": body}


def failure(re: str, error: BaseException) -> dict[str, Any]:
    """The object of the reply that tells an error."""
    told = to_wire(error)
    return {"re": re, "ok": False, "error": {**told, **{name: told[name][:TEXT_MOST] for name in ("text", "remedy") if name in told}}}


def outcome(head: dict[str, Any]) -> dict[str, Any] | BubblesError:
    """The body of a reply, or the error it tells. Raises ProtocolError where it is neither."""
    from_peer = head.get("body" if head.get("ok") is True else "error")
    if not isinstance(from_peer, dict):
        raise ProtocolError("a reply with neither body nor error")
    return from_peer if head.get("ok") is True else from_wire(from_peer)



def _text(value: Any) -> bytes:
    try:
        return _JSON(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a message: {error}") from error


def _object(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text.decode())  # given bytes, it would look for their encoding first
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a JSON object: {error}") from error
    if not isinstance(head, dict):
        raise ProtocolError("not a JSON object")
    return head


def _measure(head: int, blobs: Sequence[bytes]) -> None:
    if head > HEAD_MOST:
        raise ProtocolError(f"an object of {head} bytes; the most is {HEAD_MOST}")
    if len(blobs) > BLOBS_COUNT or sum(map(len, blobs)) > BLOBS_MOST:
        raise ProtocolError(f"{len(blobs)} blobs of {sum(map(len, blobs))} bytes; the most is {BLOBS_COUNT} of {BLOBS_MOST} together")
