"""Starting a command where the machine is short of what that takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHORT = """
import asyncio, os, resource, sys
from pathlib import Path
from bubbles.errors import ToolError
from bubbles.sandboxes import spawn
from bubbles.sandboxes.sandbox import Limits

class Killed:
    def __init__(self, child):
        self.child = child

    def end(self):
        self.child.kill()
        self.child.wait()
        return 0

async def run():
    return await spawn.run(["/bin/echo", "hello"], {}, Path("/"), Limits(timeout_s=20), Killed)

async def main():
    await run()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = set()
    for more in range(12):
        before = sorted(os.listdir("/proc/self/fd"))
        probe = os.open("/", os.O_RDONLY)
        os.close(probe)
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe + more, most[1]))
        try:
            told.add((await run()).output)
        except ToolError as error:
            assert error.remedy, error
            assert "could not be started: Too many open files" in error.text, error
            told.add("refused")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
        assert sorted(os.listdir("/proc/self/fd")) == before
        for _ in range(2):  # whose pipe has the number that the last had
            assert (await run()).output == "hello\\n"
    assert told == {"refused", "hello\\n"}, told

asyncio.run(main())
"""


def test_with_no_descriptor_left_a_command_is_refused_or_runs_and_the_next_one_is_heard() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
