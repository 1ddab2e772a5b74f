"""The space that stays free: what is too full is told before a command starts, and while it runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bubbles.errors import ToolError
from bubbles.sandboxes import disk
from bubbles.sandboxes.sandbox import Bounds

ROOT = Path(__file__).parents[2]
# Runs in a mount namespace of its own with 64 MiB, or 2000 files, at the place that is handed over.
FILLED = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from bubbles.errors import ToolError
    from bubbles.sandboxes import disk
    from bubbles.sandboxes.sandbox import Bounds

    place = Path(sys.argv[1])

    async def told():
        said = asyncio.Event()
        watching = asyncio.ensure_future(disk.watch([Path("/"), place, place], Bounds(free_bytes=4 << 20), said.set))
        await asyncio.sleep(0)
        fill()
        await said.wait()
        await watching

    def fill():
        if sys.argv[2] == "bytes":
            (place / "big").write_bytes(bytes(9 << 20))
        else:
            for n in range(1985):
                (place / str(n)).touch()

    assert disk.apart([place.parent, place, place, Path("/absent"), place.parent]) == [place.parent, place]
    print(disk.shortage(place, Bounds(free_bytes=4 << 20)) or "enough")
    (place / "half").write_bytes(bytes(52 << 20))  # near enough to look more often
    asyncio.run(told())
    try:
        disk.check([place.parent, place], Bounds(free_bytes=4 << 20))
    except ToolError:
        print(disk.shortage(place, Bounds(free_bytes=4 << 20)))
    print(disk.shortage(place, Bounds(free_bytes=2 << 20)) or "enough")
    print(disk.shortage(place, Bounds(free_bytes=0)) or "enough")
    """
)


def in_a_small_file_system(what: str, tmp_path: Path) -> list[str]:
    """What FILLED prints."""
    script = 'mount -t tmpfs -o size=64M,nr_inodes=2000 small "$0" && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(tmp_path), sys.executable, "-c", FILLED, str(tmp_path), what]
    done = subprocess.run(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are no mount namespaces")
def test_a_disk_that_fills_is_told_once_it_is_too_full(tmp_path: Path) -> None:
    before, after, less, nothing = in_a_small_file_system("bytes", tmp_path)
    assert before == less == nothing == "enough"
    assert after == f"the disk with {tmp_path} is nearly full: 3 MiB are free, and 4 MiB have to stay free"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are no mount namespaces")
def test_so_is_one_that_can_hold_no_more_files(tmp_path: Path) -> None:
    before, after, less, nothing = in_a_small_file_system("files", tmp_path)
    assert before == nothing == "enough"
    assert after == less
    assert "can hold hardly any more files" in after


def test_a_command_is_not_started_where_too_little_is_free(tmp_path: Path) -> None:
    has = os.statvfs(tmp_path)
    size = has.f_blocks * has.f_frsize
    disk.check([tmp_path], Bounds(free_bytes=1))
    disk.check([], Bounds(free_bytes=size))
    if has.f_bavail * has.f_frsize >= size // 10:
        disk.check([tmp_path], Bounds(free_bytes=size))  # a tenth has to stay, and does
    else:
        with pytest.raises(ToolError, match="nearly full") as raised:
            disk.check([tmp_path], Bounds(free_bytes=size))
        assert "free_bytes" in raised.value.remedy


def test_what_cannot_be_asked_is_not_full(tmp_path: Path) -> None:
    assert disk.shortage(tmp_path / "absent", Bounds()) == ""


def test_a_watch_over_room_enough_says_nothing(tmp_path: Path) -> None:
    async def look() -> None:
        watching = asyncio.ensure_future(disk.watch([tmp_path], Bounds(free_bytes=1), lambda: pytest.fail("it said so")))
        await asyncio.sleep(0)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    asyncio.run(look())
