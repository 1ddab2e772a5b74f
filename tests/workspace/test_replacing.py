"""A file's content exchanged whole, and what happens when somebody else was faster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bubbles.workspace.replacing import replace


def test_what_was_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "file").write_text("as we saw it")
    seen = os.lstat(tmp_path / "file")
    for change in (lambda: (tmp_path / "file").write_text("theirs"), lambda: (tmp_path / "file").unlink()):
        change()
        there = {path.name: path.read_text() for path in tmp_path.iterdir()}
        with pytest.raises(OSError, match=r"(?i)stale"):
            replace(directory, "file", b"ours", 0o600, seen)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == there
    replace(directory, "file", b"ours", 0o640, None)
    with pytest.raises(OSError, match=r"(?i)stale"):
        replace(directory, "file", b"again", 0o600, None)
    assert (tmp_path / "file").read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["file"]
    os.close(directory)
