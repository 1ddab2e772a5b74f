"""The front door: it finds the program that a call means, runs it, and is the only place where an exception becomes an exit status.

It imports nothing but `sys` and `os` until it knows what to run.
"""

from __future__ import annotations

import os
import sys

from bubbles import __version__
from bubbles.programs import PROGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` would take as long as all the rest
    from collections.abc import Callable
    from typing import NoReturn

_EXITS = """\
Exit codes of all programs:
  0 done   1 asked, and the answer is no   64 wrong call   65 bad input   69 nobody answers at a door
  70 a bug of ours   75 try again later   76 another protocol version   78 the configuration is wrong"""

_MORE = "`bubbles VERB --help` says what VERB reads, writes and answers. `bubbles VERB` and `bubbles-VERB` are the same."


def main() -> None:
    """The entry point of every installed executable: the name it is called by says which program to run."""
    name = os.path.basename(sys.argv[0])
    front([name.removeprefix("bubbles-"), *sys.argv[1:]] if name.startswith("bubbles-") else sys.argv[1:])


def front(argv: list[str] | None = None) -> NoReturn:
    """`bubbles ...`: an option of its own, or a verb and its arguments.

    The process ends at once: to take the interpreter apart takes as long as some programs run, and what is not in a file by now is flushed here.
    """
    status = run(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib takes longer to load than this page
            stream.flush()
        except (OSError, ValueError):  # nobody reads, and `run` has told what there was to tell
            pass
    os._exit(status)


def run(argv: list[str]) -> int:
    """Run what `argv` asks for, tell on standard error what went wrong, and return the exit status."""
    _have_all_streams()
    try:
        status = _answer(argv)
        sys.stdout.flush()
        return int(status or 0)
    except SystemExit:
        raise
    except BaseException as error:
        return _status(" ".join(argv[:1]), error)


def _answer(argv: list[str]) -> int | None:
    verb = argv[0] if argv else ""
    if verb in ("-h", "--help") or argv == ["help"]:
        print(overview())
        return 0
    if verb in ("-V", "--version"):
        print(f"bubbles {__version__}")
        return 0
    if not verb:
        print(overview(), file=sys.stderr)
        return 64
    if verb == "help":
        return _load(argv[1], ["--help"])(["--help"])
    return _load(verb, argv[1:])(argv[1:])


def overview() -> str:
    """The page of `bubbles --help`: every program, by groups."""
    lines = ["Bubbles: a local-first personal assistant made of small programs.", "", "Usage: bubbles VERB [ARGUMENTS]..."]
    group = ""
    for name, (_, its_group, synopsis, summary) in PROGRAMS.items():
        if its_group != group:
            group = its_group
            lines += ["", f"{group}:"]
        lines.append(f"  {name + ' ' + synopsis:<44} {summary}")
    return "\n".join([*lines, "", _EXITS, "", _MORE])


def _load(name: str, argv: list[str]) -> Callable[[list[str]], int | None]:
    import importlib

    if name in PROGRAMS:
        os.umask(0o077)  # what a program of ours makes is its owner's alone, the directories on the way to it included
        program: Callable[[list[str]], int | None] = importlib.import_module(PROGRAMS[name][0]).main
        return program
    import difflib
    import shutil

    found = shutil.which(f"bubbles-{name}")  # a program of the owner's own
    if found and os.path.basename(os.path.realpath(found)) != "bubbles":
        os.execv(found, [found, *argv])
    from bubbles.errors import Usage

    near = difflib.get_close_matches(name, PROGRAMS, n=1)
    what = f"no option {name}" if name.startswith("-") else f"no program {name!r}"
    raise Usage(what, remedy=f"bubbles {near[0]}" if near else "bubbles --help")


def _have_all_streams() -> None:
    """A standard stream that was closed: the input is empty, to the output nothing can be written, what is told is told to nobody.

    Left closed, its number would be the next file's that is opened.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY if fd == 2 else os.O_RDONLY)
            os.dup2(nowhere, fd) if nowhere != fd else os.set_inheritable(fd, True)
            if nowhere != fd:
                os.close(nowhere)
            setattr(sys, name, open(fd, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def _unwritten(error: OSError) -> str:
    """Why what was printed could not be written; "" where the error is another's. A file of ours that is not written has a name."""
    import errno

    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return error.strerror or str(error)
    try:
        os.write(1, b"")
        sys.stdout.flush()
    except OSError as found:
        return found.strerror or str(found)
    return ""


def _status(name: str, error: BaseException) -> int:
    from bubbles.errors import SOFTWARE, TEMPFAIL, BubblesError

    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains when it flushes
        return 141
    if isinstance(error, BubblesError):
        print(f"bubbles: {_shown(error.text)}", file=sys.stderr)
        if error.remedy:
            print(f"  try: {_shown(error.remedy)}", file=sys.stderr)
        return error.exit
    if isinstance(error, OSError) and (why := _unwritten(error)):
        print(f"bubbles: cannot write: {why}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return TEMPFAIL
    print(f"bubbles: an internal error in {name} ({type(error).__name__}); {_keep(name, error)}", file=sys.stderr)
    return SOFTWARE


def _shown(text: str) -> str:
    """`text` without what would steer a terminal: it may quote a file, a platform or a provider."""
    if text.isprintable():
        return text
    from bubbles.log import escaped

    return "\n".join(map(escaped, text.split("\n")))


def _keep(name: str, error: BaseException) -> str:
    """Write the traceback where logs go, and say where that is."""
    import time
    import traceback

    from bubbles import logfile
    from bubbles.paths import Home

    text = "".join(traceback.format_exception(error))
    if os.environ.get("BUBBLES_DEBUG") == "1":
        return f"this is where:\n{text}"
    path = Home.find().log / "bubbles.log"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(logfile.opened(path), "a") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {name}\n{text}\n")
    except OSError:
        return f"no log can be written, so this is where:\n{text}"
    return f"the traceback is in {path}"
