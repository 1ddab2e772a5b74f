"""What is stored, read without changing it: histories, journals of turns, jobs, chats, queues, and what is held for a person.

It does not know how each is recovered: whoever owns a file does that when it starts. What is torn there is told with what becomes of it.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from bubbles import regular
from bubbles.bus import is_running
from bubbles.errors import BubblesError, DataError, ProtocolError
from bubbles.ids import safe
from bubbles.kernel import events
from bubbles.messages import Inbound, Outbound, from_dict, from_line, migrate
from bubbles.paths import Home, typed
from bubbles.programs.doctoring.alone import alone
from bubbles.programs.doctoring.finding import Finding, Findings, Fix, Patient, fail, note, ok, warn
from bubbles.programs.queue import queues
from bubbles.sessions import history

_BUDGET_S = 30.0  # of reading; what is not read by then is said
_TOLD = 20  # findings of a kind
_NAMED = 5  # files, ids and lines in a sentence
_TYPED = 20  # ids in a command
_FRESH_S = 60.0  # a file that is younger may still be being written
_MOST = 64 << 20  # bytes of a line; nothing that is longer is one
_NOTHING = b"\0"  # stands for such a line
_UPDATE = "update Bubbles; it was left as it is"
_WORSE = ("note", "warn", "fail")


class NoTimeError(Exception):
    """What there was to read could not be read in the time there is."""


def _lines(path: Path, until: float) -> Iterator[tuple[int, bytes]]:
    """(where it begins, line) of a regular file, `_NOTHING` in the place of one that is too long. Raises OSError, and NoTimeError after `until`."""
    with open(path, "rb", opener=regular.opened) as file:
        at = 0
        while line := _piece(file, until):
            if len(line) > _MOST and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = _piece(file, until, 1 << 20)
                line = _NOTHING + line[-1:]
            yield at, line
            at = file.tell()


def _piece(file: BinaryIO, until: float, most: int = _MOST + 1) -> bytes:
    if time.monotonic() > until:
        raise NoTimeError
    return file.readline(most)


Look = Callable[[Path, float], Iterator[Finding]]


def each(paths: list[Path], look: Look, what: str, budget_s: float = _BUDGET_S) -> Findings:
    """What `look`, which is given the time until which it may read, finds in each file; that all is well where nothing is found.

    Of many findings the first are told, and how many more there are.
    """
    until = time.monotonic() + budget_s
    read = 0
    found: list[Finding] = []
    for path in paths:
        try:
            for finding in look(path, until):
                found.append(finding)
                if len(found) <= _TOLD:
                    yield finding
        except NoTimeError:
            break
        except FileNotFoundError:  # gone meanwhile
            pass
        except OSError as error:
            found.append(fail(f"{path} cannot be read: {error.strerror}", f"ls -l {typed(path)}"))
            if len(found) <= _TOLD:
                yield found[-1]
        read += 1
    if more := found[_TOLD:]:
        yield Finding(max((finding.level for finding in more), key=_WORSE.index), f"and {len(more)} more of these", count=len(more))
    if read < len(paths):
        yield warn(f"{len(paths) - read} of {len(paths)} {what} were not read: there was no time", "bubbles doctor, once the machine is less busy")
    elif not found and read:
        yield ok(f"all that there is can be read: {read} {what}")


@dataclass(slots=True)
class Survey:
    """Numbers of lines that cannot be read; where the end begins that was never written whole, -1: nowhere, and whether it is too long to be read;
    what to say of a newer program's file."""

    broken: list[int] = field(default_factory=list)
    torn_at: int = -1
    is_endless: bool = False
    newer: Finding | None = None


def histories(patient: Patient) -> Findings:
    """Can the histories be read?"""
    home = patient.home
    torn: list[Path] = []
    found = each(sorted(home.sessions.glob("*/session.jsonl")), lambda path, until: _history(home, path, until, torn), "histories")
    yield from (finding for finding in found if finding.level != "ok" or not torn)
    if torn:
        yield _torn(home, torn)


def _history(home: Home, path: Path, until: float, torn: list[Path]) -> Findings:
    """What is wrong with a history, but that its end is torn: those are told together, and go into `torn`."""
    survey = surveyed(path, _history_line, until)
    if survey.newer:
        yield survey.newer
    if survey.broken:
        yield warn(f"{path}: {_passed_over(survey.broken)}", f"look at: sed -n {survey.broken[0]}p {typed(path)} | head -c 1000")
    if survey.torn_at < 0 or survey.newer or is_running(home, "agentd") is not None:
        return
    if survey.is_endless:
        yield warn(f"{path}: its last line was never written whole, and is too long to be one", f"truncate -s {survey.torn_at} {typed(path)}")
    else:
        torn.append(path)


def _torn(home: Home, paths: list[Path]) -> Finding:
    one = len(paths) == 1
    which = f"{', '.join(map(str, paths[:_NAMED]))}{f' and {len(paths) - _NAMED} more' if len(paths) > _NAMED else ''}"
    text = f"{which}: {'its last line was' if one else 'their last lines were'} never written whole"
    remedy = f"bubbles doctor --fix, or talk in {'that session' if one else 'those sessions'}: agentd cuts it off"
    what = f"the torn end of {paths[0]}" if one else f"the torn ends of {len(paths)} histories"
    return warn(text, remedy, Fix(f"cut off {what}, as agentd would", partial(_recover, home, paths)), count=len(paths))


def surveyed(path: Path, read: Callable[[bytes], object], until: float) -> Survey:
    """What is wrong with the lines of a file, of which `read` refuses those that are none. Raises OSError and NoTimeError."""
    found = Survey()
    for number, (at, line) in enumerate(_lines(path, until), 1):
        if not line.endswith(b"\n"):
            found.torn_at, found.is_endless = at, line == _NOTHING
            break
        try:
            read(line)
        except DataError:
            found.broken.append(number)
        except ProtocolError as error:
            return Survey(newer=fail(f"{path}: {error.text}; the session cannot be used", _UPDATE))
    return found


def _history_line(line: bytes) -> None:
    body = from_line(line)
    if "format" in body:
        _header(body)


def _header(body: dict[str, Any]) -> None:
    if body["format"] != history.FORMAT:
        raise DataError("not a history")
    migrate(body, history.VERSION, history.MIGRATIONS, "a history")


def _recover(home: Home, paths: list[Path]) -> None:
    """Let the histories' own recovery do it, in agentd's place. Raises TryAgain where agentd runs; of several that fail, what the first said."""
    failed: list[Exception] = []
    with alone(home, "agentd"):
        for path in paths:
            try:
                history.History(path, session=path.parent.name).close()
            except (BubblesError, OSError) as error:
                failed.append(error)
    if failed:
        raise failed[0]


def _numbered(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    return f"{'line' if len(numbers) == 1 else 'lines'} {named}" + (f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else "")


def _passed_over(numbers: list[int]) -> str:
    return f"{_numbered(numbers)} cannot be read, and {'is' if len(numbers) == 1 else 'are'} passed over"


def turns(patient: Patient) -> Findings:
    """Can the journals of running turns be read?"""
    home = patient.home
    yield from each(sorted(home.turns.glob("*.jsonl")), lambda path, until: _journal(home, path, until), "journals of turns")


def _journal(home: Home, path: Path, until: float) -> Findings:
    survey = surveyed(path, _journal_line, until)
    if survey.newer:
        yield survey.newer
    if survey.torn_at >= 0 and is_running(home, "agentd") is None:
        yield note(f"{path}: its last line was never written whole; agentd cuts it off when it starts")
    if survey.broken:
        yield warn(
            f"{path}: {_numbered(survey.broken)} cannot be read; agentd gives such a turn up when it starts, and keeps its words",
            "bubbles agent; then: bubbles queue list turns | bubbles scan",
        )


def _journal_line(line: bytes) -> None:
    events.read_header(line) if line.startswith(b'{"format":') else events.from_line(line)


def lists(patient: Patient) -> Findings:
    """Can the jobs and the bound chats be read?"""
    from bubbles.agentd.chats import Chats
    from bubbles.cron.jobs import JobFile

    home = patient.home
    jobs = JobFile(home.jobs)
    for path, read in ((home.jobs, jobs.load), (home.chats, lambda: Chats(home, SimpleNamespace(session_mode="", people={})))):
        if path.exists() and not path.is_file():
            yield fail(f"{path} is no file", f"mv {typed(path)} {typed(path)}.old")
        elif path.exists():
            yield from _read(path, read)
    if jobs.was_open:
        yield warn(f"{home.jobs} could be read by other users; it is private now")
    yield from _background(home)


def usage(patient: Patient) -> Findings:
    """Can agentd's books be read?"""
    from bubbles.agentd.spending import Pages

    pages, where = Pages(patient.home), patient.home.usage
    try:
        count = sum(1 for _ in pages.entries())
    except BubblesError as error:
        yield fail(error.text, error.remedy)
        return
    for path, why in pages.unread.items():
        yield fail(f"{path} cannot be read: {why}; what its requests cost counts for no budget", f"ls -l {typed(path)}")
    if pages.damaged:
        yield warn(f"{_count(pages.damaged, 'line')} in {where} cannot be read, and {'is' if pages.damaged == 1 else 'are'} in no sum")
    if count and not pages.unread and not pages.damaged:
        yield ok(f"{_count(count, 'request')} to models in {where}")


def _background(home: Home) -> Findings:
    """The records of commands in the background: of one that cannot be read, nobody is told how it ended."""
    from bubbles.agentd.job import Job

    for path in sorted(home.background.glob("*/j*.json")):
        try:
            Job.load(path)
        except FileNotFoundError:
            continue  # tidied away just now
        except (OSError, BubblesError) as error:
            yield warn(f"{path} cannot be read: {error}", f"mv {typed(path)} {typed(path)}.old")


def _read(path: Path, read: Callable[[], object]) -> Findings:
    try:
        read()
        yield ok(f"{path} can be read")
    except BubblesError as error:
        yield fail(error.text, error.remedy)


# -- queues -------------------------------------------------------------------------------------------


def queued(patient: Patient) -> Findings:
    """Is everything in the queues a message?"""
    paths = [path for _, queue in queues(patient.home, "") for state in ("new", "cur") for path in sorted((queue.path / state).glob("*.json"))]
    bad: dict[str, list[tuple[Path, str]]] = {}
    found = each(paths, lambda path, until: _message(path, until, bad), "messages in queues")
    yield from (finding for finding in found if finding.level != "ok" or not bad)
    for queue, those in bad.items():
        yield _no_messages(queue, those)


def _message(path: Path, until: float, bad: dict[str, list[tuple[Path, str]]]) -> Findings:
    """A file of a queue: what is no message is held as soon as its queue's owner gets there, and one that is torn is never taken.

    Those go into `bad`, by their queue, each with why.
    """
    way, name = path.parents[2].name, path.parents[1].name
    try:
        content = b"".join(line for _, line in _lines(path, until))
        if not content.endswith(b"}\n"):
            if time.time() - path.stat().st_mtime > _FRESH_S:
                bad.setdefault(f"{way}/{name}", []).append((path, "it was never written to its end"))
            return
        body = from_line(content)
        if way == "inbound":
            from_dict(Inbound, {"chat": "", "at": time.time(), **body, "id": path.stem, "channel": name})
        else:
            from_dict(Outbound, body)
    except FileNotFoundError:
        return  # it has moved on
    except DataError as error:
        bad.setdefault(f"{way}/{name}", []).append((path, error.text))
    except ProtocolError as error:
        yield fail(f"{path}: {error.text}", _UPDATE)


def _no_messages(queue: str, bad: list[tuple[Path, str]]) -> Finding:
    """What to say of the files of one queue that are no messages. Those that are being handled are held without anybody's help."""
    (path, why), *others = bad
    text = f"{path} is no message: {why}" if not others else f"{len(bad)} files in {queue} are no messages, {path} first: {why}"
    waiting = [path for path, _ in bad if path.parent.name == "new"]
    ids = [path.stem for path in waiting if safe(path.stem) == path.stem]
    remedies = []
    if len(ids) > _TYPED:
        these = shlex.quote(f"select(.queue=={json.dumps(queue)}).ids[]")
        remedies.append(f"bubbles doctor --json queues | jq -r {these} | bubbles queue drop {typed(queue)}")
    elif ids:
        remedies.append(f"bubbles queue drop {typed(queue)} {' '.join(ids)}")
    if len(ids) < len(waiting):  # nobody puts a message there under such a name, and so nobody can drop it by it
        remedies.append(f"rm {' '.join([typed(path) for path in waiting if safe(path.stem) != path.stem][:_TYPED])}")
    remedy = "; ".join(remedies) or f"bubbles queue list --state held {typed(queue)}"
    return warn(text, remedy, count=len(bad), more={"queue": queue, "ids": ids})


def held(patient: Patient) -> Findings:
    """Does anything wait for a person's word?"""
    found = False
    for name, queue in queues(patient.home, ""):
        if count := len(list((queue.path / "held").glob("*.json"))):
            found = True
            yield warn(
                f"{_count(count, 'message')} in {name} {'is' if count == 1 else 'are'} held{_why(queue.path)}",
                f"bubbles queue list --state held {name} | bubbles scan",
            )
    if count := len(list((patient.home.turns / "held").glob("*.jsonl"))):
        found = True
        yield warn(f"{_count(count, 'turn')} {'was' if count == 1 else 'were'} given up", "bubbles queue list turns | bubbles scan")
    if not found:
        yield ok("nothing is held")


def _why(queue: Path) -> str:
    """Why the first one is held, where it is said."""
    with suppress(OSError):
        for path in sorted((queue / "held").glob("*.why")):
            return f": {path.read_text('utf-8', 'replace').strip()[:200]}"
    return ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
