"""What a server may send, by mistake or in malice: no answer is lost for what surrounds it, and nothing takes more than there is room for.

The bytes are a script's own, so that a provider sees what no sound server says; endpoints and hosted ones take it alike.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from bubbles.errors import ModelDown, ModelError, NotAuthorized, RateLimited, Rejected
from bubbles.providers import REGISTRY
from bubbles.providers.custom import Custom
from bubbles.providers.lite import Lite
from bubbles.providers.provider import Answer, Ask

NAMES = ["custom", "openai", "groq"]  # our own client, OpenAI's, and LiteLLM's
MIB = 1 << 20
BODY = b'{"role":"user","content":"hi"}'
Pieces = Iterator[bytes]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
everyone = pytest.mark.parametrize("name", NAMES)
ways = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


class Heard:
    """What came of one ask, and how much of the script's bytes went out."""

    def __init__(self) -> None:
        self.sent = 0
        self.requests: list[bytes] = []
        self.text = ""


def asked(
    name: str, pieces: Callable[[], Pieces], *, streamed: bool = True, kind: str = "text/event-stream", status: int = 200, **more: Any
) -> Answer:
    """The answer to one ask whose response has these bytes. Raises ModelError."""
    return asks(name, pieces, streamed=streamed, kind=kind, status=status, **more)[0]


def asks(
    name: str,
    pieces: Callable[[], Pieces],
    *,
    streamed: bool,
    kind: str,
    status: int,
    heard: Heard | None = None,
    headers: str = "",
    times: int = 1,
    temperature: float = 0.1,
) -> list[Answer]:
    seen = heard or Heard()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            seen.requests.append(await reader.readexactly(length))
            writer.write(f"HTTP/1.1 {status} Told\r\nContent-Type: {kind}\r\n{headers}Connection: close\r\n\r\n".encode())
            for piece in pieces():
                writer.write(piece)
                seen.sent += len(piece)
                await writer.drain()
        writer.close()

    async def run() -> list[Answer]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        provider = Custom("custom", url) if name == "custom" else Lite(REGISTRY[name], url, api_key="sk-0123456789")
        try:
            ask = Ask("t.0", "some-model", [BODY], b"", max_tokens=64, temperature=temperature, timeout_s=60.0)
            return [await provider.ask(ask, take if streamed else None) for _ in range(times)]
        finally:
            await provider.close()
            server.close()

    def take(text: str) -> None:
        seen.text += text

    return asyncio.run(run())


def event(delta: dict[str, Any], stop: str | None = None, **more: Any) -> bytes:
    return b"data: " + json.dumps(chunk(delta, stop, **more)).encode() + b"\n\n"


def chunk(delta: dict[str, Any], stop: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": stop}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def whole(text: str, **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}).encode()


def sent(*parts: bytes) -> Callable[[], Pieces]:
    return lambda: iter(parts)


def good(*, streamed: bool, **more: Any) -> Callable[[], Pieces]:
    """An answer, "hello", that says `more` of itself."""
    if not streamed:
        return sent(whole("hello", **more))
    return sent(event({"role": "assistant", "content": "hello"}), event({}, "stop", **more), b"data: [DONE]\n\n")


# -- size ------------------------------------------------------------------------------------------


@everyone
def test_an_answer_has_no_end_of_calls(name: str) -> None:
    calls = [{"index": n, "id": f"c{n}", "type": "function", "function": {"name": "exec", "arguments": "{}"}} for n in range(501)]
    with pytest.raises(Rejected, match="more than 500 calls"):
        asked(name, sent(*(event({"tool_calls": [call]}) for call in calls), event({}, "tool_calls"), b"data: [DONE]\n\n"))


LINE, EVENT, PING = b"x" * MIB, event({"content": "z" * MIB}), b": ping\n" * (MIB // 7)


def endless(piece: bytes) -> Callable[[], Pieces]:
    def pieces() -> Pieces:
        for _ in range(200 * MIB // len(piece)):
            yield piece

    return pieces


@everyone
@ways
@pytest.mark.parametrize(("status", "piece"), [(200, LINE), (200, EVENT), (200, PING), (400, LINE)], ids=["line", "events", "pings", "error"])
def test_no_answer_is_read_beyond_what_there_is_room_for(name: str, streamed: bool, status: int, piece: bytes) -> None:
    heard = Heard()
    with pytest.raises(Rejected, match="more than 32 MiB"):
        asked(name, endless(piece), streamed=streamed, status=status, heard=heard)
    assert heard.sent < 64 * MIB


@pytest.fixture(scope="module")
def packed() -> bytes:
    return gzip.compress(b" " * (100 * MIB), 1)


@everyone
@ways
@pytest.mark.parametrize("status", [200, 400])
def test_what_is_packed_counts_by_what_it_becomes(name: str, streamed: bool, status: int, packed: bytes) -> None:
    with pytest.raises(Rejected, match="more than 32 MiB"):
        asked(name, sent(packed), streamed=streamed, status=status, headers="Content-Encoding: gzip\r\n")


@everyone
@ways
def test_what_is_packed_though_nobody_asked_for_that_is_read(name: str, streamed: bool) -> None:
    data = gzip.compress(b"".join(good(streamed=streamed)()))
    kind = "text/event-stream" if streamed else "application/json"
    answer = asked(
        name, lambda: (data[n : n + 7] for n in range(0, len(data), 7)), streamed=streamed, kind=kind, headers="Content-Encoding: gzip\r\n"
    )
    assert answer.text == "hello"


# -- usage -----------------------------------------------------------------------------------------

INF = float("inf")
ODD: dict[str, Any] = {
    "infinite": {"prompt_tokens": INF, "completion_tokens": 2},
    "nan": {"prompt_tokens": float("nan"), "completion_tokens": 2},
    "huge": {"prompt_tokens": 10**25, "completion_tokens": 2},
    "beyond": {"prompt_tokens": 2**63, "completion_tokens": 2},
    "negative": {"prompt_tokens": -5, "completion_tokens": -2, "total_tokens": -7},
    "lists": {"prompt_tokens": [1], "completion_tokens": {}},
    "words": {"prompt_tokens": "many", "completion_tokens": "2"},
    "flags": {"prompt_tokens": True, "completion_tokens": 2},
    "a list": [1, 2],
    "a word": "free",
    "a number": 7,
}


@everyone
@ways
@pytest.mark.parametrize("usage", ODD.values(), ids=ODD.keys())
def test_an_answer_is_not_lost_for_its_usage_which_is_not_counted_then(name: str, streamed: bool, usage: Any) -> None:
    kind = "text/event-stream" if streamed else "application/json"
    answer = asked(name, good(streamed=streamed, usage=usage), streamed=streamed, kind=kind)
    assert (answer.text, answer.usage.get("input", 0), answer.usage.get("output", 0)) == ("hello", 0, 0)


@everyone
@ways
def test_odd_details_are_left_out_of_a_usage_that_is_sound(name: str, streamed: bool) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": -1}, "completion_tokens_details": [1]}
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, **details}
    kind = "text/event-stream" if streamed else "application/json"
    answer = asked(name, good(streamed=streamed, usage=usage), streamed=streamed, kind=kind)
    assert (answer.usage["input"], answer.usage["output"], answer.usage.get("cached", 0)) == (10, 2, 0)


@everyone
@ways
def test_a_number_of_ten_thousand_digits_is_a_number(name: str, streamed: bool) -> None:
    data = b"".join(good(streamed=streamed, usage={"prompt_tokens": 111, "completion_tokens": 2})()).replace(b"111", b"1" * 10_000)
    assert asked(name, sent(data), streamed=streamed, kind="text/event-stream" if streamed else "application/json").text == "hello"


# -- the same over and over ------------------------------------------------------------------------


@everyone
def test_an_answer_may_say_the_same_over_and_over(name: str) -> None:
    answer = asked(name, sent(event({"content": "-----"}) * 300, event({}, "stop"), b"data: [DONE]\n\n"))
    assert answer.text == "-----" * 300


# -- refusals --------------------------------------------------------------------------------------


def refusal(message: str, **more: Any) -> Callable[[], Pieces]:
    return sent(json.dumps({"error": {"message": message, "type": "invalid_request_error", **more}}).encode())


QUOTED = [
    refusal("Upstream provider returned: invalid message"),
    refusal("messages: 'the stream of the temperature' is not valid"),
    refusal("questions on temperature and stream are not supported", code="content_policy_violation"),
    refusal("content policy: 'temperature' of bombs", code="content_policy_violation", param="temperature"),
]


@everyone
@pytest.mark.parametrize("pieces", QUOTED)
def test_a_refusal_that_speaks_of_an_option_by_chance_is_a_refusal(name: str, pieces: Callable[[], Pieces]) -> None:
    heard = Heard()
    with pytest.raises(Rejected):
        asked(name, pieces, status=400, kind="application/json", heard=heard)
    assert len(heard.requests) == 1


UNKNOWN = ["Unsupported parameter: '{}'", "{}: Extra inputs are not permitted", "`{}` is not supported with this model", 'unknown field "{}"']


@pytest.mark.parametrize("words", UNKNOWN)
@pytest.mark.parametrize(("name", "option"), [("custom", "stream"), ("openai", "temperature"), ("groq", "temperature")])
def test_an_option_that_is_refused_by_its_name_is_left_out(name: str, option: str, words: str) -> None:
    with pytest.raises(ModelDown, match="does not stream|takes no temperature"):
        asked(name, refusal(words.format(option)), status=400, kind="application/json")


# -- what is not quite a stream ---------------------------------------------------------------------


@everyone
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/event-stream"])
@pytest.mark.parametrize(
    ("error", "found"),
    [
        ({"message": "quota exceeded", "code": 429}, RateLimited),
        ({"message": "wrong key", "code": "invalid_api_key"}, NotAuthorized),
        ({"message": "no", "code": "content_policy_violation"}, Rejected),
    ],
)
def test_an_error_in_the_place_of_a_stream_keeps_its_meaning(name: str, kind: str, error: dict[str, Any], found: type[ModelError]) -> None:
    with pytest.raises(ModelError) as caught:
        asked(name, sent(json.dumps({"error": error}).encode()), kind=kind)
    assert type(caught.value) is found


@everyone
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/event-stream"])
def test_a_whole_answer_in_the_place_of_a_stream_is_one(name: str, kind: str) -> None:
    heard = Heard()
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    answer = asked(name, sent(b"\n \n", whole("hello", usage=usage)), kind=kind, heard=heard)
    assert (answer.text, heard.text, answer.usage["input"]) == ("hello", "hello", 10)


LAST = event({"content": "tail"}, "stop")
ENDS = {
    "no line's end": [LAST.rstrip()],
    "one line's end": [LAST[:-1]],
    "nothing in it": [b"data:\n\n", b"data: \n\n", LAST, b"data: [DONE]\n\n"],
    "a blank behind": [LAST, b"data: [DONE] \n\n"],
    "a tab before": [LAST, b"data:\t[DONE]\n\n"],
}


@everyone
@pytest.mark.parametrize("parts", ENDS.values(), ids=ENDS.keys())
def test_an_end_may_be_spelled_carelessly(name: str, parts: list[bytes]) -> None:
    assert asked(name, sent(*parts)).text == "tail"


@everyone
@ways
def test_a_byte_that_is_none_of_a_text_costs_itself_alone(name: str, streamed: bool) -> None:
    data = b"".join(good(streamed=streamed)()).replace(b"hello", b"he\xff\xfello")
    kind = "text/event-stream" if streamed else "application/json"
    assert asked(name, lambda: (bytes([byte]) for byte in data), streamed=streamed, kind=kind).text == "he\ufffd\ufffdllo"


@everyone
@ways
@pytest.mark.parametrize("model", ["\ud800bad", "M" * 3 * MIB, {"a": 1}], ids=["surrogate", "long", "object"])
def test_the_name_that_a_model_gives_itself_is_a_short_text(name: str, streamed: bool, model: Any) -> None:
    kind = "text/event-stream" if streamed else "application/json"
    answer = asked(name, good(streamed=streamed, model=model), streamed=streamed, kind=kind)
    answer.model.encode()
    assert len(answer.model) <= 200
    assert answer.text == "hello"
