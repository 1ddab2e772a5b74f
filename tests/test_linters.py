"""The linters are tests: ruff and mypy over the Python, shellcheck over the shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def check(*command: str) -> None:
    """Run a linter; what it says is the failure."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"{command[0]}:\n{done.stdout}{done.stderr}", pytrace=False)


def tool(name: str) -> str:
    """A program of the environment that runs the tests."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found, f"{name} is missing: install the extra dev"
    return found


def shell_scripts() -> list[str]:
    """Every tracked file that a shell reads: by its name, or by its first line."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [name for name in listed if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink() and _is_shell(ROOT / name)]


def _is_shell(path: Path) -> bool:
    if path.suffix in (".sh", ".bash"):
        return True
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and first.split(b"/")[-1].split()[-1] in (b"sh", b"bash", b"dash")


def test_ruff() -> None:
    check(tool("ruff"), "check", "--no-cache", "bubbles", "tests", *([] if not (ROOT / "bench").is_dir() else ["bench"]))


def test_mypy(tmp_path: Path) -> None:
    check(tool("mypy"), "--cache-dir", str(ROOT / ".mypy_cache"))


def test_shellcheck() -> None:
    scripts = shell_scripts()
    assert scripts, "there is at least .ci/run"
    check(tool("shellcheck"), *scripts)
