"""What is opened is a file; whatever else stands in its place is refused, and nobody waits for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bubbles import regular


def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert regular.read(path) == regular.read(path, 10) == b"x" * 10
    with pytest.raises(OSError, match="larger") as found:
        regular.read(path, 9)
    assert found.value.errno == errno.EFBIG
    with pytest.raises(FileNotFoundError):
        regular.read(tmp_path / "none")


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_APPEND | os.O_CREAT, os.O_RDWR])
def test_a_pipe_is_refused_by_whoever_would_read_or_write_it(tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match=r"not a regular file|No such device") as found:
        regular.opened(tmp_path / "pipe", flags)
    assert found.value.errno in (errno.EINVAL, errno.ENXIO)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/"])
def test_neither_a_device_nor_a_directory_is_read(path: str) -> None:
    with pytest.raises(OSError, match=r"not a regular file|No such device|Is a directory"):
        regular.read(path, 1 << 20)


def test_what_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    os.close(regular.opened(tmp_path / "new", os.O_WRONLY | os.O_CREAT))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_what_decides_is_nobody_elses_to_write(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"{}")
    path.chmod(0o644)
    assert regular.trusted(path, 10) == b"{}"
    path.chmod(mode)
    with pytest.raises(OSError, match=f"others may write it \\(mode {mode:04o}\\)") as found:
        regular.trusted(path, 10)
    assert found.value.errno == errno.EPERM


def test_what_decides_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links") as found:
        regular.trusted(tmp_path / "link")
    assert found.value.errno == errno.ELOOP


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_decides_is_no_other_users(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"{}")
    os.chown(path, 12345, -1)
    with pytest.raises(OSError, match="another user"):
        regular.trusted(path)
