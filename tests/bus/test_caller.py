"""A caller in a daemon: it has an answer or an error, whatever becomes of its peer; it never hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading

import pytest

from bubbles.bus import zmtp
from bubbles.bus.caller import Caller
from bubbles.bus.door import Door
from bubbles.errors import ProtocolError, Unavailable
from tests.bus.child import running


def test_nobody_there_is_unavailable_with_a_remedy(home):
    async def run():
        with pytest.raises(Unavailable, match="modeld is not running") as caught:
            await Caller(home, "modeld", patience_s=0).call("ping")
        assert caught.value.remedy
        await Caller(home, "modeld").ring()  # a ring that nobody hears is none

    asyncio.run(run())


def test_a_door_that_opens_within_the_patience_is_waited_for(home):
    async def run():
        caller = Caller(home, "modeld", patience_s=10)
        asked = [asyncio.create_task(caller.call("ping")) for _ in range(20)]
        await asyncio.sleep(0.1)
        door = Door("modeld", home, {})
        await door.open()
        for body, _ in await asyncio.gather(*asked):
            assert body["name"] == "modeld"
        caller.close()
        door.close()

    asyncio.run(run())


def test_one_who_gives_up_waiting_for_a_door_does_not_take_the_others_along(home):
    async def run():
        caller = Caller(home, "modeld", patience_s=10)
        first, second = (asyncio.create_task(caller.call("ping")) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        door = Door("modeld", home, {})
        await door.open()
        assert (await second)[0]["name"] == "modeld"
        caller.close()
        door.close()

    asyncio.run(run())


def test_a_peer_killed_in_mid_request_and_not_replaced_is_unavailable(home):
    async def run():
        caller = Caller(home, "modeld", patience_s=0.2)
        with running("modeld"), pytest.raises(Unavailable):
            await asyncio.wait_for(caller.call("die"), 10)

    asyncio.run(run())


def test_a_peer_killed_in_mid_request_is_asked_again_under_the_same_id(home, tmp_path):
    async def run():
        caller = Caller(home, "modeld", patience_s=20)
        with running("modeld") as first:
            asked = asyncio.create_task(caller.call("die.once", {"mark": str(tmp_path / "mark")}, id="q-1"))
            while first.poll() is None:
                await asyncio.sleep(0.01)
        assert not asked.done()
        with running("modeld") as second:
            body, _ = await asyncio.wait_for(asked, 20)
        assert body == {"pid": second.pid, "id": "q-1", "first": "q-1"}
        caller.close()

    asyncio.run(run())


def test_all_questions_in_flight_survive_a_restart(home, tmp_path):
    async def run():
        caller = Caller(home, "modeld", patience_s=20)
        with running("modeld") as first:
            hanging = [asyncio.create_task(caller.call("hang")) for _ in range(20)]
            asked = [asyncio.create_task(caller.call("die.once", {"mark": str(tmp_path / "mark")})) for _ in range(100)]
            while first.poll() is None:
                await asyncio.sleep(0.01)
        with running("modeld") as second:
            answers = await asyncio.wait_for(asyncio.gather(*asked), 20)
            assert {body["pid"] for body, _ in answers} == {second.pid}
            second.kill()
            second.wait()
        caller._patience_s = 0
        for end in await asyncio.wait_for(asyncio.gather(*hanging, return_exceptions=True), 30):
            assert isinstance(end, Unavailable)

    asyncio.run(run())


def test_a_peer_that_dies_of_the_question_twice_is_unavailable(home):
    async def run():
        caller = Caller(home, "modeld", patience_s=20)
        with running("modeld") as first:
            asked = asyncio.create_task(caller.call("die"))
            while first.poll() is None:
                await asyncio.sleep(0.01)
        with running("modeld"), pytest.raises(Unavailable, match="ended twice"):
            await asyncio.wait_for(asked, 20)

    asyncio.run(run())


def test_a_stopped_peer_is_unavailable_after_the_silence(home):
    async def run():
        caller = Caller(home, "modeld")
        with running("modeld") as peer:
            await caller.call("pid")
            peer.send_signal(signal.SIGSTOP)
            with pytest.raises(Unavailable, match="silent for 0.2 s"):
                await caller.call("pid", timeout_s=0.2)
            peer.send_signal(signal.SIGCONT)
            assert (await caller.call("pid"))[0]["pid"] == peer.pid
        caller.close()

    asyncio.run(run())


def test_signs_of_life_keep_a_question_alive(home):
    async def run():
        caller = Caller(home, "modeld")
        with running("modeld"):
            parts = []
            asked = asyncio.create_task(caller.call("hang", timeout_s=0.5, on_part=parts.append))
            await asyncio.sleep(1.2)
            assert not asked.done()
            assert len(parts) == 1
            asked.cancel()
            await asyncio.wait([asked])
        caller.close()

    asyncio.run(run())


def with_door(home, ops, story):
    async def run():
        door = Door("modeld", home, ops)
        await door.open()
        caller = Caller(home, "modeld")
        try:
            await story(caller)
        finally:
            caller.close()
            door.close()

    asyncio.run(run())


async def tell(request):
    for n in range(3):
        request.part({"n": n})
        await asyncio.sleep(0.01)
    return {"id": request.id}


def test_a_part_that_cannot_be_taken_ends_its_call_and_no_other(home):
    def fall(part):
        raise ZeroDivisionError

    async def story(caller):
        other = asyncio.create_task(caller.call("tell"))
        with pytest.raises(ZeroDivisionError):
            await caller.call("tell", on_part=fall)
        await other

    with_door(home, {"tell": tell}, story)


def test_what_comes_for_a_cancelled_call_is_let_go(home):
    async def story(caller):
        asked = asyncio.create_task(caller.call("tell", id="q"))
        await asyncio.sleep(0.005)
        asked.cancel()
        await asyncio.wait([asked])
        await asyncio.sleep(0.05)
        assert (await caller.call("tell", id="q"))[0] == {"id": "q"}

    with_door(home, {"tell": tell}, story)


def test_an_id_is_asked_once_at_a_time(home):
    async def story(caller):
        asked = asyncio.create_task(caller.call("tell", id="q"))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="already"):
            await caller.call("tell", id="q")
        await asked

    with_door(home, {"tell": tell}, story)


def test_a_closed_caller_leaves_nobody_waiting(home):
    async def hang(request):
        await asyncio.Event().wait()

    async def story(caller):
        asked = asyncio.create_task(caller.call("hang"))
        await asyncio.sleep(0.05)
        caller.close()
        with pytest.raises(Unavailable):
            await asked

    with_door(home, {"hang": hang}, story)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ProtocolError),
        (zmtp.hello("ROUTER") + zmtp.encode([b"B2", b"{}"]), ProtocolError),
        (zmtp.hello("ROUTER") + zmtp.encode([b"B1", b"?"]), ProtocolError),
        (zmtp.hello("ROUTER") + zmtp.encode([b"B1", b'{"re":"q","ok":true}']), ProtocolError),
        (zmtp.hello("ROUTER") + b"\x02" + b"\xff" * 8, ProtocolError),
        (zmtp.hello("ROUTER") + zmtp.encode([b"B1", b'{"re":"other","ok":true,"body":{}}']), Unavailable),
        (zmtp.hello("ROUTER") + zmtp.encode([b"B1", b'{"re":"q","part":[]}']), Unavailable),
        (b"", Unavailable),
    ],
)
def test_a_peer_that_answers_nonsense_is_an_error(home, reply, error):
    """An impostor at the door: says `reply` to whoever comes, and hangs up."""
    home.prepare_sockets()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(home.door("modeld").removeprefix("ipc://"))
    listener.listen()
    ready = len(zmtp.hello("ROUTER"))

    def pretend():
        while True:
            try:
                plug, _ = listener.accept()
            except OSError:
                return
            with plug, contextlib.suppress(OSError):
                plug.settimeout(5)
                got = b""
                plug.sendall(reply[:ready])
                while reply and b'"op":"ping"' not in got and (data := plug.recv(4096)):
                    got += data
                plug.sendall(reply[ready:])

    thread = threading.Thread(target=pretend)
    thread.start()

    async def run():
        caller = Caller(home, "modeld", patience_s=0.1)
        with pytest.raises(error):
            await asyncio.wait_for(caller.call("ping", id="q", timeout_s=0.5), 10)
        caller.close()

    asyncio.run(run())
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_caller_of_a_daemon_that_is_down_wakes_nobody(home):
    """No connection is kept or tried for a daemon that ended: nothing is scheduled on the loop."""

    async def run():
        caller = Caller(home, "modeld", patience_s=0)
        with running("modeld"):
            await caller.call("pid")
        await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        assert caller._line is None
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_a_caller_leaves_no_descriptor_behind(home):
    async def story(caller):
        await caller.call("tell")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            caller.close()
            await caller.call("tell")
        await asyncio.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) <= before + 2  # libzmq may still be closing the last

    with_door(home, {"tell": tell}, story)


def test_a_ring_that_finds_nobody_does_not_make_a_question_impatient(home):
    async def run():
        caller = Caller(home, "modeld", patience_s=10)
        rung = caller.ring()
        asked = asyncio.create_task(caller.call("ping"))
        await rung
        door = Door("modeld", home, {})
        await door.open()
        assert (await asked)[0]["name"] == "modeld"
        caller.close()
        door.close()

    asyncio.run(run())


def test_closing_while_it_connects_leaves_nobody_waiting(home):
    async def run():
        caller = Caller(home, "modeld", patience_s=10)
        asked = asyncio.create_task(caller.call("ping"))
        await asyncio.sleep(0.05)
        caller.close()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(asked, 5)

    asyncio.run(run())


def test_a_door_that_opens_and_closes_all_the_time_is_answered_or_unavailable(home):
    async def run():
        caller = Caller(home, "modeld", patience_s=0.5)
        door = Door("modeld", home, {})

        async def flap():
            for _ in range(60):
                await door.open()
                await asyncio.sleep(0.003)
                door.close()
                await asyncio.sleep(0.002)

        flapping = asyncio.create_task(flap())
        ends = []
        while not flapping.done():
            ends += await asyncio.wait_for(asyncio.gather(*[caller.call("ping") for _ in range(5)], return_exceptions=True), 20)
        assert {type(end) for end in ends} <= {tuple, Unavailable}
        assert any(type(end) is tuple for end in ends)
        caller.close()

    asyncio.run(run())


def test_closing_at_any_moment_leaves_nobody_waiting(home):
    async def hang(request):
        await asyncio.Event().wait()

    async def story(_):
        for n in range(300):
            caller = Caller(home, "modeld")
            asked = asyncio.create_task(caller.call("hang"))
            await asyncio.sleep(n * 5e-6)
            caller.close()
            with pytest.raises(Unavailable):
                await asyncio.wait_for(asked, 5)
            assert (await caller.call("ping"))[0]["name"] == "modeld"  # it may be used again at once
            caller.close()

    with_door(home, {"hang": hang}, story)
