"""The way out of a jail, from the socket that is handed over to its end; and what is never served."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bubbles import log
from bubbles.sandboxes import public
from bubbles.sandboxes.inside import doorway, jail
from bubbles.sandboxes.proxy import Connection, Proxy
from tests.sandboxes.test_doorway import SPACES, _can_unshare

SCRIPT = Path(doorway.__file__).resolve()
ASK = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT %s HTTP/1.1\\r\\n\\r\\n' $1 >&3; cat <&3"
spaces = pytest.mark.skipif(not _can_unshare(), reason="no network namespaces here")


def test_one_place_is_meant_by_all() -> None:
    assert public.PLACE[1] == doorway.PORT
    assert f"{public.PLACE[0]}:{public.PLACE[1]}" == jail.PROXY


async def launched(way: public.Way, *command: str) -> tuple[int, str, str]:
    child = await asyncio.create_subprocess_exec(
        *SPACES, sys.executable, "-I", "-S", str(SCRIPT), str(way.fd), "--", *command,
        pass_fds=[way.fd], env={**os.environ, **public.VARIABLES}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(child.communicate(), 30)
    return child.returncode or 0, out.decode(), err.decode()


async def nowhere(host: str, _: int) -> Sequence[str]:
    return ["127.0.0.1"]


@spaces
def test_a_command_is_served_while_the_block_lasts() -> None:
    told: list[Connection] = []

    async def play() -> None:
        proxy = Proxy([], told.append, resolve=nowhere)
        async with public.opened(proxy) as way:
            code, out, err = await launched(way, "bash", "-c", ASK, "bash", "example.com:443")
        assert (code, err) == (0, "")
        assert "403 Forbidden" in out
        assert way.note == "the network refused example.com (example.com has the address 127.0.0.1, which is not public: this machine)"
        assert way.why == ""

    asyncio.run(play())
    assert [(one.host, one.status) for one in told] == [("example.com", 403)]


@spaces
def test_many_jails_at_once_each_have_their_own() -> None:
    async def one(n: int) -> None:
        async with public.opened(Proxy([], lambda _: None, resolve=nowhere)) as way:
            assert "403" in (await launched(way, "bash", "-c", ASK, "bash", f"h{n}.example.com:443"))[1]
        assert way.note.startswith(f"the network refused h{n}.example.com (")

    async def play() -> None:
        await asyncio.gather(*(one(n) for n in range(8)))

    before = set(os.listdir("/proc/self/fd"))
    asyncio.run(play())
    assert set(os.listdir("/proc/self/fd")) <= before


@spaces
def test_a_jail_that_dies_first_is_no_trouble() -> None:
    async def play() -> None:
        async with public.opened(Proxy([], lambda _: None)) as way:
            pass
        assert way.note == ""

    asyncio.run(play())


def handed(*fds: int) -> tuple[str, bytes]:
    """Why a jail that hands these over is not served, and what its launcher hears then."""

    async def play() -> tuple[str, bytes]:
        async with public.opened(Proxy([], lambda _: None)) as way:
            theirs = socket.socket(fileno=os.dup(way.fd))
            theirs.setblocking(False)
            with theirs:
                socket.send_fds(theirs, [b"L"], list(fds))
                heard = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(theirs, 1), 30)
            await asyncio.sleep(0)
        return way.why, heard

    return asyncio.run(play())


def test_what_is_no_way_out_is_not_served() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as six,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unix,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as silent,
        socket.create_server(("127.0.0.1", 0)) as elsewhere,
        open(os.devnull) as file,
    ):
        for fds, why in (
            ([], "0 descriptors"),
            ([udp.fileno()], "not TCP"),
            ([six.fileno()], "not TCP"),
            ([unix.fileno()], "not TCP"),
            ([file.fileno()], "no socket"),
            ([silent.fileno()], "does not listen"),
            ([elsewhere.fileno()], "does not listen"),
            ([elsewhere.fileno(), elsewhere.fileno()], "2 descriptors"),
        ):
            before = set(os.listdir("/proc/self/fd"))
            said, heard = handed(*fds)
            assert why in said
            assert heard == b""
            assert set(os.listdir("/proc/self/fd")) <= before


@spaces
def test_a_socket_of_this_machines_own_network_is_not_served(tmp_path: Path) -> None:
    """As it would come out of a jail that was not kept from the network. In a network that is as good as this machine's."""
    program = """import asyncio, socket
from bubbles.sandboxes import public
from bubbles.sandboxes.proxy import Proxy
from tests.sandboxes.test_public import handed
with socket.create_server(public.PLACE) as own:
    print(handed(own.fileno()))
"""
    done = subprocess.run(
        [*SPACES, "sh", "-c", 'ip link set lo up; exec "$@"', "sh", sys.executable, "-c", program],
        capture_output=True, text=True, cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert "the jail has the network of this machine" in done.stdout, done.stderr


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("way", ["opened", "serving"])
def test_whoever_is_cancelled_while_a_way_is_closed_is_cancelled(way: str, turns: int) -> None:
    """Also where the command that had it has just ended, and the cancellation comes in one of the loop's next turns."""

    async def command() -> None:
        proxy = Proxy([], lambda _: None)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with public.opened(proxy) if way == "opened" else proxy.serving(listener):
                await asyncio.sleep(0)

    async def cancelled() -> bool:
        task = asyncio.create_task(command())
        for _ in range(turns):
            await asyncio.sleep(0)
        asked = task.cancel()
        await asyncio.wait([task])
        assert [each for each in asyncio.all_tasks() if each is not asyncio.current_task()] == []
        return asked == task.cancelled()

    assert asyncio.run(cancelled())


def test_each_connection_is_an_entry_of_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    public.told(Connection("example.com", 443, True, "", 12, 34))
    public.told(Connection("localhost", 8080, False, "localhost is a name of a local network", status=403))
    public.told(Connection("example.com", 443, False, "it cannot be reached", status=502))
    public.told(Connection("", 0, False, "no request", status=400))
    lines = capfd.readouterr().err.splitlines()
    assert [re.findall(r"\bnet\.\w+", line)[0] for line in lines] == ["net.open", "net.refuse", "net.fail", "net.refuse"]
    assert "host=example.com port=443 sent=12 received=34" in lines[0]
    assert "localhost:8080: localhost is a name of a local network" in lines[1]
    assert "port=8080" in lines[1]
    assert "example.com:443: it cannot be reached" in lines[2]
    assert {"net.open", "net.fail", "net.refuse"} <= set(log.EVENTS)
