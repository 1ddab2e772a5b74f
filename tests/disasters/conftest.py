"""What the disasters share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A directory whose files cost little: in memory where that can be, for the many states of a disk that are only looked at."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="bubbles-disasters-", dir=_MEMORY))
    yield made
    shutil.rmtree(made, ignore_errors=True)
