"""Starting the real programs: each through the launcher, as a person would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "bin"


def bubbles(*argv: str, stdin: str | bytes = "", timeout_s: float = 60, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `bubbles ARGV...` to its end."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run([BIN / "bubbles", *argv], input=data, capture_output=True, timeout=timeout_s, env={**os.environ, **env}, cwd=cwd)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
