"""A caller in a small tool: the same questions, without an event loop, and quick to load."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from bubbles.bus.dial import Dial
from bubbles.errors import ProtocolError, Unavailable
from tests.bus.child import running


def test_nobody_there_is_unavailable_at_once(home):
    with Dial(home, "agentd") as dial:
        with pytest.raises(Unavailable, match="agentd is not running") as caught:
            dial.call("ping")
        assert caught.value.remedy
        assert caught.value.exit == 69
        with pytest.raises(Unavailable):
            dial.ring()


def test_questions_are_answered_one_after_another_on_one_connection(home):
    with running("agentd") as peer, Dial(home, "agentd") as dial:
        for n in range(50):
            body, blobs = dial.call("pid", id=f"q-{n}")
            assert (body, blobs) == ({"pid": peer.pid, "id": f"q-{n}"}, [])
        dial.ring()
        with pytest.raises(ProtocolError):
            dial.call("fly")
        assert dial.call("ping")[0]["name"] == "agentd"


def test_a_daemon_restarted_between_two_questions_is_not_noticed(home):
    with Dial(home, "agentd") as dial:
        for _ in range(2):
            with running("agentd") as peer:
                assert dial.call("pid")[0]["pid"] == peer.pid
        with running("agentd"):
            dial.ring()


def test_a_daemon_killed_in_mid_question_and_not_replaced_is_unavailable(home):
    with running("agentd"), Dial(home, "agentd", restart_s=0.2) as dial, pytest.raises(Unavailable):
        dial.call("die")


def test_a_daemon_killed_in_mid_question_is_asked_again_under_the_same_id(home, tmp_path):
    got = []
    with Dial(home, "agentd", restart_s=30) as dial:
        with running("agentd") as first:
            asker = threading.Thread(target=lambda: got.append(dial.call("die.once", {"mark": str(tmp_path / "mark")}, id="q-1")))
            asker.start()
            first.wait()
        with running("agentd") as second:
            asker.join()
            assert got == [({"pid": second.pid, "id": "q-1", "first": "q-1"}, [])]


def test_a_stopped_daemon_is_unavailable_after_the_silence(home):
    with running("agentd") as peer, Dial(home, "agentd") as dial:
        dial.call("pid")
        peer.send_signal(signal.SIGSTOP)
        with pytest.raises(Unavailable, match=r"silent for 0.2 s"):
            dial.call("pid", timeout_s=0.2)


def test_signs_of_life_are_not_parts_and_do_not_end(home):
    with running("agentd") as peer, Dial(home, "agentd", restart_s=0.2) as dial:
        parts = []
        threading.Timer(1.0, peer.kill).start()
        with pytest.raises(Unavailable) as caught:
            dial.call("hang", timeout_s=0.4, on_part=parts.append)
        assert "silent" not in caught.value.text
        assert len(parts) == 1


def test_after_an_interrupt_it_goes_on(home):
    def interrupt(part):
        raise KeyboardInterrupt

    with running("agentd"), Dial(home, "agentd") as dial:
        with pytest.raises(KeyboardInterrupt):
            dial.call("hang", on_part=interrupt)
        assert dial.call("ping")[0]["name"] == "agentd"


def test_what_a_tool_loads_to_ask_is_small():
    code = "import sys, bubbles.bus.dial, bubbles.bus.listener, bubbles.starter; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {"asyncio", "zmq", "pydantic", "ssl", "logging", "typing_extensions"}
