"""A door: answers whatever is asked, is never brought down by a peer, and is one of its name."""

from __future__ import annotations

import asyncio
import os
import random
import socket

import pytest
import zmq

from bubbles.bus import is_running, wire, zmtp
from bubbles.bus.caller import Caller
from bubbles.bus.door import Door, Request
from bubbles.errors import DataError, ProtocolError, RateLimited, TryAgain, Unavailable
from bubbles.paths import Home


async def echo(request: Request):
    return {"body": request.body, "op": request.op, "id": request.id}, request.blobs


async def parts(request: Request):
    for n in range(request.body["n"]):
        request.part({"n": n})
    return {}


async def bug(request: Request):
    return {}[request.body["secret"]]


async def limited(request: Request):
    raise RateLimited("slow down", attempts=3, retry_after_s=2.5)


async def endless(request: Request):
    await asyncio.Event().wait()


async def slow(request: Request):
    await asyncio.sleep(request.body["s"])
    return {}


async def large(request: Request):
    request.part({"text": "文" * request.body["n"]})
    request.part({"n": 1})
    return {"text": "文" * request.body["n"]}, request.blobs


async def huge(request: Request):
    return {"text": "x" * request.body.get("n", wire.BLOBS_MOST)}


async def not_json(request: Request):
    return {"text": {1, 2}}


OPS = {
    "echo": echo,
    "parts": parts,
    "bug": bug,
    "limited": limited,
    "endless": endless,
    "slow": slow,
    "huge": huge,
    "large": large,
    "not.json": not_json,
}


def with_door(home, story, **options):
    """Run `story(door, caller)` beside an open door."""

    async def run():
        door = Door("agentd", home, OPS, **options)
        await door.open()
        caller = Caller(home, "agentd", patience_s=0)
        try:
            return await story(door, caller)
        finally:
            caller.close()
            door.close()

    return asyncio.run(run())


def dealer(home):
    """A peer that is libzmq's own, for what no caller of ours would send."""
    plug = zmq.Context.instance().socket(zmq.DEALER)
    plug.setsockopt(zmq.LINGER, 0)
    plug.connect(home.door("agentd"))
    return plug


async def reply_to(plug, *frames):
    plug.send_multipart(frames)
    for _ in range(500):
        if plug.poll(0):
            return wire.decode(plug.recv_multipart())[0]
        await asyncio.sleep(0.01)
    raise AssertionError("no reply")


def test_a_question_is_answered_with_its_body_and_blobs(home):
    async def story(door, caller):
        body, blobs = await caller.call("echo", {"a": [1, "ü\ud800"]}, [b"", b"x" * 2_000_000], id="q-7")
        assert body == {"body": {"a": [1, "ü\ud800"]}, "op": "echo", "id": "q-7"}
        assert blobs == [b"", b"x" * 2_000_000]

    with_door(home, story)


def test_unknown_operations_are_answered_with_an_error(home):
    async def story(door, caller):
        with pytest.raises(ProtocolError, match=r"agentd has no operation 'fly'"):
            await caller.call("fly")

    with_door(home, story)


def test_unknown_fields_are_ignored(home):
    async def story(door, caller):
        plug = dealer(home)
        head = b'{"id":"q","op":"echo","body":{"of_2031":1},"priority":9,"op2":[]}'
        answer = await reply_to(plug, b"B1", head)
        assert answer == {"re": "q", "ok": True, "body": {"body": {"of_2031": 1}, "op": "echo", "id": "q"}}
        plug.close()

    with_door(home, story)


@pytest.mark.parametrize(
    "head",
    [b'{"id":"q"}', b'{"id":"q","op":7}', b'{"id":"q","op":"echo","body":[]}', b'{"id":"q","op":"echo","body":null}', b'{"id":"q","op":["ring"]}'],
)
def test_what_is_not_a_request_but_has_an_id_is_answered(home, head):
    async def story(door, caller):
        plug = dealer(home)
        answer = await reply_to(plug, b"B1", head)
        assert answer["re"] == "q"
        assert answer["error"]["kind"] == "protocol"
        plug.close()

    with_door(home, story)


def test_another_version_is_answered_with_a_protocol_error(home):
    async def story(door, caller):
        plug = dealer(home)
        answer = await reply_to(plug, b"B2", b'{"id":"q","op":"echo"}')
        assert answer["re"] == "q"
        assert "b'B2'" in answer["error"]["text"]
        plug.close()

    with_door(home, story)


def test_an_error_of_an_operation_reaches_the_caller_as_it_is(home):
    async def story(door, caller):
        with pytest.raises(RateLimited, match="slow down") as caught:
            await caller.call("limited")
        assert (caught.value.attempts, caught.value.retry_after_s) == (3, 2.5)

    with_door(home, story)


def test_a_bug_is_logged_with_its_traceback_and_told_without_its_text(home, capfd):
    async def story(door, caller):
        with pytest.raises(Exception, match="an internal error") as caught:
            await caller.call("bug", {"secret": "s3cr3t"})
        assert "s3cr3t" not in str(caught.value)
        assert (await caller.call("echo"))[0]["op"] == "echo"

    with_door(home, story)
    logged = capfd.readouterr().err
    assert "daemon.bug" in logged
    assert "KeyError: 's3cr3t'" in logged
    assert len(logged.splitlines()) == 1


@pytest.mark.parametrize("op", ["huge", "not.json"])
def test_an_answer_that_cannot_be_sent_is_an_error_to_the_caller(home, op):
    async def story(door, caller):
        with pytest.raises(ProtocolError):
            await caller.call(op)

    with_door(home, story)


@pytest.mark.parametrize("n", [wire.LARGE - 100, wire.LARGE, wire.HEAD_MOST, 5_000_000])
def test_an_answer_may_be_large(home, n):
    async def story(door, caller):
        parts = []
        body, blobs = await caller.call("large", {"n": n}, [b"mine"], on_part=parts.append)
        assert body == {"text": "文" * n}
        assert blobs == [b"mine"]
        assert parts == [{"text": "文" * n}, {"n": 1}]

    with_door(home, story)


def test_parts_come_in_order_and_before_the_reply(home):
    async def story(door, caller):
        got = []
        await caller.call("parts", {"n": 500}, on_part=got.append)
        assert got == [{"n": n} for n in range(500)]

    with_door(home, story)


def test_a_long_operation_is_never_silent(home):
    """15 s of patience and 5 s between signs of life, each a fiftieth."""

    async def story(door, caller):
        got = []
        await caller.call("slow", {"s": 0.6}, on_part=got.append, timeout_s=0.3)
        assert got == []  # signs of life are not parts of the answer

    with_door(home, story, alive_s=0.1)


def test_signs_of_life_are_parts_on_the_wire(home):
    async def story(door, caller):
        plug = dealer(home)
        assert await reply_to(plug, b"B1", b'{"id":"q","op":"endless"}') == {"re": "q", "part": {"alive": True}}
        plug.close()

    with_door(home, story, alive_s=0.05)


def test_an_operation_that_tells_of_itself_needs_no_signs_of_life(home):
    async def chatty(request):
        for n in range(20):
            request.part({"n": n})
            await asyncio.sleep(0.02)
        return {}

    async def run():
        door = Door("agentd", home, {"chatty": chatty}, alive_s=0.2)
        await door.open()
        plug = dealer(home)
        plug.send_multipart([b"B1", b'{"id":"q","op":"chatty"}'])
        got = []
        while not got or "ok" not in got[-1]:
            while plug.poll(0):
                got.append(wire.decode(plug.recv_multipart())[0])
            await asyncio.sleep(0.01)
        plug.close()
        door.close()
        return [head for head in got if head.get("part") == {"alive": True}]

    assert asyncio.run(run()) == []


def test_work_does_not_hold_up_a_question(home):
    async def story(door, caller):
        work = [asyncio.create_task(caller.call("endless")) for _ in range(50)]
        await asyncio.sleep(0)
        assert (await caller.call("ping"))[0]["pid"] == os.getpid()
        assert door.answering == 50
        for task in work:
            task.cancel()

    with_door(home, story)


def test_a_thousand_questions_at_once(home):
    async def story(door, caller):
        answers = await asyncio.gather(*[caller.call("echo", {"n": n}) for n in range(1000)])
        assert [body["body"]["n"] for body, _ in answers] == list(range(1000))
        assert door.answering == 0

    with_door(home, story)


def test_rings_ring_and_are_not_answered(home):
    rung = []

    async def story(door, caller):
        await caller.ring()
        await caller.call("ping")
        assert len(rung) == 1

    with_door(home, story, on_ring=lambda: rung.append(1))


def test_a_ring_that_fails_and_a_ring_nobody_wants_do_no_harm(home, capfd):
    async def story(door, caller):
        await caller.ring()
        assert (await caller.call("ping"))[0]["name"] == "agentd"

    with_door(home, story)
    with_door(home, story, on_ring=lambda: {}["x"])
    assert capfd.readouterr().err.count("daemon.bug") == 1


def test_ping_names_the_operations(home):
    async def story(door, caller):
        body, _ = await caller.call("ping")
        assert body["ops"] == sorted([*OPS, "ping"])

    with_door(home, story)


def test_the_same_request_twice_is_answered_once(home):
    asked = []

    async def once(request):
        asked.append(request.id)
        await asyncio.sleep(0.05)
        return {}

    async def run():
        door = Door("agentd", home, {"once": once})
        await door.open()
        plug = dealer(home)
        plug.send_multipart([b"B1", b'{"id":"q","op":"once"}'])
        assert (await reply_to(plug, b"B1", b'{"id":"q","op":"once"}'))["ok"]
        assert (await reply_to(plug, b"B1", b'{"id":"q","op":"once"}'))["ok"]
        plug.close()
        door.close()

    asyncio.run(run())
    assert asked == ["q", "q"]


def test_garbage_frames_never_crash_a_door(home, capfd):
    dice = random.Random(7)
    frames = [
        b"", b"B1", b"{}", b"\0", b"\xff" * 300, b'{"op":"ring"}', b'{"op":"ring","id":7}', b'{"id":"q"}', b"[" * 70_000, b'{"re":"q","ok":true}',
        b'{"id":"' + b"x" * 300 + b'","op":"echo"}', b'{"id":"q","op":"echo","body":{}}', b'{"id":"\\ud800","op":"echo","body":{"\\udfff":1}}',
    ]  # fmt: skip

    async def story(door, caller):
        plug = dealer(home)
        for _ in range(2000):
            plug.send_multipart([dice.choice(frames) for _ in range(dice.randint(1, 6))])
        plug.send_multipart([b"B1", b"{}", *[b""] * 1000])
        assert (await caller.call("echo", {"still": "here"}))[0]["body"] == {"still": "here"}
        plug.close()

    with_door(home, story)
    assert "daemon.bug" not in capfd.readouterr().err


def test_garbage_bytes_never_crash_a_door(home):
    dice = random.Random(8)

    async def story(door, caller):
        path = home.door("agentd").removeprefix("ipc://")
        for n in range(60):
            with socket.socket(socket.AF_UNIX) as plug:
                plug.connect(path)
                plug.setblocking(False)
                start = [b"", zmtp.hello("DEALER")[:64], zmtp.hello("DEALER"), zmtp.hello("PUB"), b"GET / HTTP/1.0\r\n\r\n"][n % 5]
                plug.send(start + dice.randbytes(dice.randint(0, 500)))
                await asyncio.sleep(0.001)
        assert (await caller.call("echo"))[0]["op"] == "echo"

    with_door(home, story)


def test_a_frame_over_every_limit_costs_its_sender_the_connection_and_nobody_else(home):
    async def story(door, caller):
        plug = dealer(home)
        plug.send_multipart([b"B1", b"{}", bytes(wire.BLOBS_MOST + 1)])
        assert (await caller.call("echo"))[0]["op"] == "echo"
        with pytest.raises(ProtocolError):
            await caller.call("echo", {}, [bytes(wire.BLOBS_MOST + 1)])
        with pytest.raises(ProtocolError):
            await caller.call("echo", {"text": "x" * wire.HEAD_MOST})
        assert (await caller.call("echo"))[0]["op"] == "echo"
        plug.close()

    with_door(home, story)


def test_a_peer_that_does_not_read_holds_nobody_up(home):
    async def story(door, caller):
        plug = dealer(home)
        plug.setsockopt(zmq.RCVHWM, 1)
        plug.send_multipart([b"B1", b'{"id":"q","op":"parts","body":{"n":30000}}'])
        assert (await caller.call("echo"))[0]["op"] == "echo"
        plug.close()

    with_door(home, story)


def test_a_second_door_of_the_name_is_refused_and_the_first_goes_on(home):
    async def story(door, caller):
        with pytest.raises(TryAgain, match=f"pid {os.getpid()}"):
            await Door("agentd", home, {}).open()
        assert (await caller.call("echo"))[0]["op"] == "echo"

    with_door(home, story)


def test_a_closed_door_leaves_no_lock_and_no_socket(home):
    async def story(door, caller):
        assert is_running(home, "agentd") == os.getpid()
        door.close()
        door.close()
        assert is_running(home, "agentd") is None
        assert list(home.sockets.iterdir()) == []
        with pytest.raises(Unavailable, match="agentd is not running"):
            await caller.call("echo")
        await door.open()
        assert (await caller.call("echo"))[0]["op"] == "echo"

    with_door(home, story)


def test_a_path_that_cannot_be_bound_is_told_and_the_lock_given_back(home):
    async def run():
        (home.prepare_sockets() / "agentd.sock").mkdir()
        with pytest.raises(TryAgain, match=r"cannot bind .*agentd\.sock") as caught:
            await Door("agentd", home, {}).open()
        assert "ls -ld" in caught.value.remedy
        assert is_running(home, "agentd") is None

    asyncio.run(run())


def test_what_a_killed_daemon_left_behind_is_not_in_the_way(home):
    home.prepare_sockets()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(home.door("agentd").removeprefix("ipc://"))

    async def story(door, caller):
        assert (await caller.call("echo"))[0]["op"] == "echo"

    with_door(home, story)


def test_two_homes_at_once_never_meet(home, tmp_path):
    other = Home(tmp_path / "other")
    other.prepare()

    async def who(request):
        return {"who": request.body["name"]}

    async def run():
        doors = [Door("agentd", place, {"who": who, f"only.{n}": who}) for n, place in enumerate((home, other))]
        for door in doors:
            await door.open()
        callers = [Caller(place, "agentd") for place in (home, other)]
        for n, caller in enumerate(callers):
            assert (await caller.call(f"only.{n}", {"name": "x"}))[0] == {"who": "x"}
            with pytest.raises(ProtocolError):
                await caller.call(f"only.{1 - n}", {"name": "x"})
        for each in (*callers, *doors):
            each.close()

    asyncio.run(run())


def test_the_socket_is_private(home):
    async def story(door, caller):
        path = home.sockets / "agentd.sock"
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0

    with_door(home, story)


def test_an_operation_may_raise_what_its_caller_did_wrong(home):
    async def wrong(request):
        raise DataError("no such thing", remedy="look again")

    async def run():
        door = Door("agentd", home, {"wrong": wrong})
        await door.open()
        caller = Caller(home, "agentd")
        with pytest.raises(DataError, match="no such thing") as caught:
            await caller.call("wrong")
        assert caught.value.remedy == "look again"
        caller.close()
        door.close()

    asyncio.run(run())
