"""The launcher of network `public`, in a network of its own: what it hands over, what the command inherits, and how it fails."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbles.sandboxes.inside import doorway

SCRIPT = Path(doorway.__file__).resolve()
SPACES = ["unshare", "--user", "--map-root-user", "--net", "--kill-child", "--fork"]


def _can_unshare() -> bool:
    return bool(shutil.which("unshare")) and subprocess.run([*SPACES, "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not _can_unshare(), reason="no network namespaces here")


class Launched:
    """The launcher with the other end of its socket, `outside`."""

    def __init__(self, *command: str, within: str = 'exec "$@"', arguments: list[str] | None = None) -> None:
        self.outside, theirs = socket.socketpair()
        self.outside.settimeout(20)
        with theirs:
            argv = arguments if arguments is not None else [str(theirs.fileno()), "--", *command]
            self.process = subprocess.Popen(
                [*SPACES, "sh", "-c", within, "sh", sys.executable, "-I", "-S", SCRIPT, *argv],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                pass_fds=[theirs.fileno()], env={**os.environ, "WORD": "kept"},
            )  # fmt: skip

    def handed(self) -> socket.socket:
        said, fds, _, _ = socket.recv_fds(self.outside, 8, 4)
        assert said == b"L"
        [fd] = fds
        return socket.socket(fileno=fd)

    def serve(self) -> None:
        self.outside.send(b"S")

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.outside.close()


@pytest.fixture
def launch() -> Iterator[type[Launched]]:
    made: list[Launched] = []

    class Kept(Launched):
        def __init__(self, *command: str, **more: object) -> None:
            super().__init__(*command, **more)  # type: ignore[arg-type]
            made.append(self)

    yield Kept
    for one in made:
        one.close()


def test_the_command_begins_when_it_is_served_and_reaches_whoever_serves_it(launch: type[Launched]) -> None:
    one = launch("bash", "-c", "echo begun; exec 3<>/dev/tcp/127.0.0.1/3128; echo hello >&3; head -1 <&3; echo $WORD; exit 7")
    with one.handed() as listener:
        assert listener.getsockname() == ("127.0.0.1", doorway.PORT)
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert one.process.poll() is None
        one.serve()
        client, _ = listener.accept()
        with client:
            assert client.recv(20) == b"hello\n"
            client.sendall(b"answer\n")
        assert one.end() == (7, "begun\nanswer\nkept\n", "")


def test_it_hands_over_also_where_much_of_the_owners_is_on_the_way(launch: type[Launched]) -> None:
    """Descriptors that were sent and not received yet are counted over all programs of a user, and held against each one's own limit."""
    one, other = socket.socketpair()
    with one, other:
        for _ in range(2):
            socket.send_fds(one, [b"x"], [0] * 100)
        waiting = launch("true", within='ulimit -S -n 100; exec "$@"')
        with waiting.handed():
            waiting.serve()
            assert waiting.end() == (0, "", "")


def test_the_command_inherits_nothing_of_the_launcher(launch: type[Launched]) -> None:
    look = "ls /proc/$$/fd; grep SigIgn /proc/$$/status"
    one = launch("sh", "-c", look)
    with one.handed():
        one.serve()
        code, out, _ = one.end()
    *fds, ignored = out.splitlines()
    assert code == 0
    assert fds == ["0", "1", "2"]
    mask = int(ignored.split()[1], 16)
    assert not mask >> (signal.SIGPIPE - 1) & 1
    assert not mask >> (signal.SIGXFSZ - 1) & 1


def test_where_nobody_serves_it_the_command_does_not_begin(launch: type[Launched]) -> None:
    one = launch("echo", "begun")
    with one.handed():
        one.outside.close()
        assert one.end() == (125, "", "bubbles: the way to the network could not be opened: nobody serves it\n")


def test_whoever_closed_before_it_came(launch: type[Launched]) -> None:
    one = launch("echo", "begun")
    one.outside.close()
    code, out, err = one.end()
    assert (code, out) == (125, "")
    assert err.startswith("bubbles: the way to the network could not be opened: ")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "usage: doorway.py FD -- ARGV…"),
        (["3", "--"], "usage"),
        (["3", "true"], "usage"),
        (["x", "--", "true"], "usage"),
        (["-1", "--", "true"], "usage"),
        (["0", "--", "true"], "descriptor 0 is no socket"),
        (["77", "--", "true"], "descriptor 77 is no socket"),
    ],
)
def test_a_wrong_call_is_told_in_a_line(launch: type[Launched], arguments: list[str], why: str) -> None:
    code, out, err = launch(arguments=arguments).end()
    assert (code, out) == (125, "")
    assert why in err
    assert err.count("\n") == 1


def test_a_port_that_is_taken_is_told(launch: type[Launched]) -> None:
    taken = f"""ip link set lo up && {sys.executable} -I -c 'import socket,os,sys
s = socket.create_server(("127.0.0.1", {doorway.PORT}))
os.set_inheritable(s.fileno(), True)
os.execvp(sys.argv[1], sys.argv[1:])' "$@" """
    code, _, err = launch("true", within=taken).end()
    assert code == 125
    assert "Address already in use" in err


def test_a_command_that_is_not_there_is_told(launch: type[Launched]) -> None:
    one = launch("/nowhere/at\u00e4ll")
    with one.handed():
        one.serve()
        code, _, err = one.end()
    assert code == 125
    assert "cannot be started: No such file or directory" in err


def test_without_the_right_to_raise_it_a_loopback_that_is_down_is_told(launch: type[Launched]) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("there is no setpriv")
    code, _, err = launch("true", within='exec setpriv --bounding-set=-net_admin --inh-caps=-net_admin --no-new-privs "$@"').end()
    assert code == 125
    assert "the jail's loopback is down and stays so" in err


def test_it_loads_next_to_nothing() -> None:
    """It stands before every command."""
    done = subprocess.run([sys.executable, "-I", "-S", "-X", "importtime", SCRIPT], capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "_socket" in loaded
    assert loaded & {"socket", "signal", "enum", "re", "typing", "collections", "selectors", "subprocess"} == set()
