"""Write the whole home into one file, while the daemons run.

Nothing is stopped, and nothing has to run. What was accepted when this began is in it, and no turn of it is half there:
restored, the home goes on as after a power cut. Left out are caches and what belongs to this boot: run/, half-written
files and sockets; models/, unless --models is given (bubbles models fetch has them again); log/, unless --logs is.

IT HOLDS YOUR KEYS: config.json as it is, the copies that onboarding kept of it, and what sessions and channels are
logged in with. The file's mode is 0600; whoever can read it can use them. With --no-keys config.json*, channels/, tokens/
and session_homes/ are left out: what was said, and the files in work/, may still hold a secret. To keep it elsewhere,
encrypt it on the way: the second example.

A backup does not go into the home that it is taken of, and one that lies in the home's topmost directory all the same is
left out of the next, and named: with it keys would be in one that is to have none.

Nothing is ever overwritten. The file is written as FILE.part and gets its name when it is whole and on the disk. A name
that ends in .tar.gz, .tar.xz or .tar says how it is compressed; without FILE it is bubbles-DATE-TIME.tar.gz, here.
`-` is standard output, as .tar.gz.

Input:
  the home
Output:
  the file; on standard output its name and size in a line, with --json as an object: file, files, bytes, size, without,
  left_out, unread, busy, and tries: how often a moment was looked for. With `-` the backup itself, and the line on standard
  error
Exit codes:
  0   all of it is there
  1   it is there, but something could not be read, or a session's files may be older than its conversation
  64  the file is there already or would lie in the home, or its name does not say what kind it is to be
  75  no room, or so much went on that no moment could be caught
  78  there is no home, or no permission for it, or none to write the file where it is to be
Examples:
  bubbles backup
  bubbles backup - | gpg --symmetric > bubbles.tar.gz.gpg
  bubbles backup --models - | ssh other bubbles restore -
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import click

from bubbles.archive import form
from bubbles.archive.packing import Pack
from bubbles.archive.saving import Saving
from bubbles.archive.sink import Sink, Unwritten
from bubbles.errors import NO, OK, Misconfigured, TryAgain, Usage
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.meter import Meter, counted, measured
from bubbles.programs.page import program
from bubbles.spool.disk import named
from bubbles.workspace.names import shown

_NICE = 5
_TOLD_MOST = 20  # lines on standard error


@program("backup", __doc__)
@click.option("--models", is_flag=True, help="With the model files that were fetched.")
@click.option("--logs", is_flag=True, help="With log/.")
@click.option("--no-keys", "no_keys", is_flag=True, help="Without config.json, channels/, session_homes/ and tokens/.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.argument("file", required=False)
def main(models: bool, logs: bool, no_keys: bool, as_json: bool, file: str | None) -> int:
    home, now = Home.find(), time.time()
    without = [name for name, left in (("models", not models), ("logs", not logs), ("keys", no_keys)) if left]
    os.nice(_NICE)
    path = None if file == "-" else Path(file or time.strftime("bubbles-%Y-%m-%d-%H%M%S.tar.gz", time.localtime(now)))
    try:
        found = _to_stdout(home, without, now) if path is None else _to_file(home, without, now, path)
    except Unwritten as failed:
        raise _refused(failed.error, path) from failed.error
    except OSError as error:
        raise named(error, Path(error.filename or home.root)) or error from error
    return _tell(found, as_json, sys.stderr if path is None else sys.stdout)


def _to_file(home: Home, without: list[str], now: float, path: Path) -> dict[str, Any]:
    how = form.kind(path.name)
    if _is_inside(home, path):
        raise Usage(f"{path} would lie in the home, and in the backups that are taken of it later", remedy=_elsewhere(path, home.root))
    with _beside(path) as out:
        sink = Sink(out.fileno())
        found = _save(home, without, now, sink, how, os.fstat(out.fileno()))
        sink.sync()
        _name(path)
    return {"file": str(path), **found, "size": path.stat().st_size}


def _to_stdout(home: Home, without: list[str], now: float) -> dict[str, Any]:
    if sys.stdout.isatty():
        raise Usage("a backup is nothing for a terminal", remedy="bubbles backup - | gpg --symmetric > FILE, or bubbles backup FILE")
    sink = Sink(sys.stdout.fileno())
    found = _save(home, without, now, sink, "gz", os.fstat(sys.stdout.fileno()))
    sink.flush()
    return {"file": "-", **found}


def _save(home: Home, without: list[str], now: float, sink: Sink, how: str, target: os.stat_result) -> dict[str, Any]:
    """Write the backup; what is to be told of it."""
    with Meter("saving") as meter:
        stream = form.compressing(sink, how)
        saving = Saving(home, Pack(stream, meter.told), without, own=(target.st_dev, target.st_ino))
        end = saving.run(now)
        if stream is not sink:
            stream.close()
    told = {"files": end.files, "bytes": end.bytes, "without": without, "left_out": saving.left_out}
    return {**told, "tries": saving.tries, "unread": end.unread, "busy": end.busy}


def _is_inside(home: Home, path: Path) -> bool:
    """Whether a file would lie in the home, or in what a topmost link of it leads to."""
    place = Path(os.path.realpath(path.parent))
    with suppress(OSError):
        tops = [home.root, *(top for top in home.root.iterdir() if top.is_symlink())]
        return any(place.is_relative_to(os.path.realpath(top)) for top in tops)
    return False


def _elsewhere(path: Path, but: Path) -> str:
    """Where else a backup might go, and not below `but`."""
    own = Path.home()
    place = own if os.access(own, os.W_OK) and not Path(os.path.realpath(own)).is_relative_to(os.path.realpath(but)) else Path("ELSEWHERE")
    return f"bubbles backup {shown(str(place / path.name))}"


def _refused(error: OSError, path: Path | None) -> Exception:
    """What it means that the target takes no more."""
    if isinstance(error, BrokenPipeError):
        return error
    if path is None:
        return TryAgain(f"standard output takes no more: {error.strerror}", remedy="look at where it leads to, or bubbles backup FILE")
    return named(error, path.parent) or TryAgain(f"{path}.part takes no more: {error.strerror}", remedy=_elsewhere(path, path.parent))


@contextmanager
def _beside(path: Path) -> Iterator[BinaryIO]:
    """The file FILE.part, open and ours. Raises Usage where FILE is there, TryAgain where somebody is writing it, Misconfigured where nobody may."""
    if os.path.lexists(path):
        raise _is_there(path)
    if not path.parent.is_dir():
        raise Usage(f"there is no directory {path.parent}", remedy=f"mkdir -p {path.parent}")
    part = path.with_name(f"{path.name}.part")
    with _opened(part, path) as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TryAgain(f"{path} is being written already", remedy="wait until that is done") from None
        try:
            os.fchmod(out.fileno(), 0o600)
            out.truncate(0)  # what a killed one left
            out.seek(0)
            yield out
        finally:
            part.unlink(missing_ok=True)


def _opened(part: Path, path: Path) -> BinaryIO:
    try:
        return open(part, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        what = f"{part} is not yours to write" if os.path.lexists(part) else f"nothing may be written in {path.parent.absolute()}"
        raise Misconfigured(f"{what}: {error.strerror}", remedy=_elsewhere(path, path.parent)) from error


def _name(path: Path) -> None:
    """Give the whole file its name, if nobody else has it."""
    part = path.with_name(f"{path.name}.part")
    try:
        os.link(part, path)
    except FileExistsError:
        raise _is_there(path) from None
    except OSError:  # a disk without links
        if os.path.lexists(path):
            raise _is_there(path) from None
        os.rename(part, path)
    with suppress(OSError):
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _is_there(path: Path) -> Usage:
    return Usage(f"{path} is there already, and nothing is overwritten", remedy="give another name")


def _tell(found: dict[str, Any], as_json: bool, to: Any) -> int:
    if as_json:
        print(lines.rendered(found, separators=(",", ":")), file=to)
    else:
        size = f", {measured(found['size'])} here" if "size" in found else ""
        left = {"models": "models/ (--models)", "logs": "log/ (--logs)", "keys": "keys"}
        without = f"; without {', '.join(left[name] for name in found['without'])}" if found["without"] else ""
        print(f"{shown(found['file'])}: {counted(found['files'], found['bytes'])}{size}{without}", file=to)
    for name in found["left_out"][:_TOLD_MOST]:
        print(f"bubbles: left out, it is a backup itself: {shown(name)}", file=sys.stderr)
    troubles = [f"not in it: {shown(path)}: {why}" for path, why in found["unread"].items()]
    troubles += [f"{session} never stood still: its files may be older than its conversation" for session in found["busy"]]
    for text in troubles[:_TOLD_MOST]:
        print(f"bubbles: {text}", file=sys.stderr)
    return NO if troubles else OK
