"""agentd's books: each request to a model is booked once, in an append-only file a month, and a budget that is used up stops the next one.

A request is booked right behind the line of the turn's journal that tells of its answer. Who is killed between the two finds it in the
journal at the next start (`recover`) and books it then; the journal is emptied only after that line is on the disk, because one thread
syncs both in this order. It does not know prices: modeld says what a request cost, where that is known.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbles import log, regular
from bubbles.agentd import ends
from bubbles.agentd.spending import FORMAT, VERSION, Days, Entry, Pages, Sum, check, counted, dollars, grouped, month
from bubbles.agentd.texts import told
from bubbles.errors import DataError, Misconfigured, OverBudget, ProtocolError
from bubbles.kernel.events import UserSpoke, from_line, read_header
from bubbles.messages import from_line as from_json
from bubbles.messages import to_line
from bubbles.paths import Home
from bubbles.sessions.commit import Commit
from bubbles.sessions.journal import append

if TYPE_CHECKING:
    from bubbles.kernel.turn import Turn

_SLACK_S = 86_400.0  # a clock may have been set meanwhile


class Books:
    """The books of one home. `agents` is that section of the configuration; `commit` syncs, where there is one; `now` is the clock."""

    def __init__(self, home: Home, agents: Any, commit: Commit | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._home, self._limits, self._commit, self._now = home, agents.limits, commit, now
        self.days = Days(agents.defaults.timezone)
        self._fd, self._month = -1, ""
        self._closed = False
        self._unwritten: list[Entry] = []  # the disk was full
        self._syncing: set[asyncio.Task[None]] = set()
        self._day = (0.0, 0.0)
        self._spent: dict[bool, Sum] = {}  # today, by whether nobody was there

    # -- booking -----------------------------------------------------------------------------------

    def note(
        self,
        ask: str,
        session: str,
        turn: Turn | None = None,
        usage: dict[str, int] | None = None,
        *,
        model: str = "",
        provider: str = "",
        kind: str = "answer",
        lost: str = "",
    ) -> None:
        """Book a request: what the provider counted (`usage`), or why it was `lost` on the way. `turn`: the one that it was for, if any."""
        origin, job = whose(turn.origin, turn.spoken) if turn is not None else ("user", "")
        counts: dict[str, Any] = counted(usage or {})
        of_turn = turn.id if turn is not None else ""
        self.book(Entry(ask, self._now(), session, of_turn, origin, job, kind, model, provider, lost, **counts))

    def note_summary(self, ask: str, session: str, turn: Turn | None, answer: dict[str, Any]) -> None:
        """Book what a summary of a history cost, by modeld's reply."""
        usage = {name: count for name, count in (answer.get("usage") or {}).items() if isinstance(count, int)}
        self.note(ask, session, turn, usage, model=str(answer.get("model") or ""), provider=str(answer.get("provider") or ""), kind="summary")

    def book(self, entry: Entry) -> None:
        """Book one request; none any more once they are closed, when a successor finds in the journals what there was."""
        if self._closed:
            return
        self._today()
        self._unwritten.append(entry)
        if self._day[0] <= entry.at < self._day[1]:
            self._spent[entry.is_unattended].add(entry)
        self.write()

    def write(self) -> None:
        """Write what a full disk has kept from being written, if it can be now."""
        if not self._unwritten:
            return
        try:
            while self._unwritten:
                entry = self._unwritten[0]
                append(self._file(month(entry.at)), to_line(entry.told()))
                del self._unwritten[0]
        except (OSError, Misconfigured) as error:
            log.event("daemon.warning", f"what a request cost cannot be written down yet: {error}", priority="warning")
        else:
            self._sync()

    def _file(self, name: str) -> int:
        if name != self._month:
            self._let_go()
            self._fd, self._month = _opened(self._home.usage / f"{name}.jsonl"), name
        return self._fd

    def _sync(self) -> None:
        if self._commit is not None and self._fd >= 0:
            task = asyncio.get_running_loop().create_task(self._synced(self._commit, self._fd))
            self._syncing.add(task)
            task.add_done_callback(self._syncing.discard)

    async def _synced(self, commit: Commit, fd: int) -> None:
        try:
            await commit.sync(fd)
        except OSError as error:
            log.event("daemon.warning", f"what a request cost does not reach the disk: {error.strerror}", priority="warning")

    def _let_go(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.fdatasync(self._fd)
            os.close(self._fd)
        self._fd, self._month = -1, ""

    def close(self) -> None:
        self._closed = True
        for task in self._syncing:
            task.cancel()
        self._let_go()

    def recover(self) -> None:
        """Book what a killed agentd had in a journal and not here. Raises Misconfigured for the books of a newer program."""
        journalled = {entry.id: entry for path in sorted(self._home.turns.glob("*.jsonl")) for entry in _journalled(path)}
        self._file(month(self._now()))
        if not journalled:
            return
        since = min(entry.at for entry in journalled.values()) - _SLACK_S
        known = {entry.id for entry in Pages(self._home).entries(since)}
        for id, entry in journalled.items():
            if id not in known:
                self.book(entry)

    # -- budgets -----------------------------------------------------------------------------------

    def today(self) -> dict[bool, Sum]:
        """What was spent today, by whether nobody was there."""
        return dict(self._today())

    def refusal(self, unattended: bool, language: str = "en") -> OverBudget | None:
        """Why no model is asked any more today, in words; None where there is no budget, or something is left of it.

        Turns that nobody began have a budget of their own where one is set, and share the other where none is.
        """
        for measure, limit, spent, key in self._budgets(unattended):
            if spent >= limit:
                return self._refusal(measure, limit, spent, key, language)
        return None

    def check(self, turn: Turn | None, language: str) -> None:
        """Raises OverBudget where no model may be asked for this turn now."""
        refusal = self.refusal(turn is not None and turn.origin != "user", language)
        if refusal is not None:
            raise refusal

    def day(self) -> str:
        """Today, by the owner's calendar."""
        return str(self.days.of(self._now()))

    def ends(self) -> str:
        """When this day ends, as a time of day."""
        self._today()
        return self.days.clock(self._day[1])

    def budgets(self) -> Iterator[tuple[str, float, float, bool]]:
        """Those that are set: the measure ("tokens", "cost": US dollars), the limit, what is spent of it, and whether it is of turns nobody began."""
        for unattended in (False, True):
            for measure, limit, spent, key in self._budgets(unattended):
                if key.startswith("system_") == unattended:
                    yield measure, limit, spent, unattended

    def _budgets(self, unattended: bool) -> Iterator[tuple[str, float, float, str]]:
        limits = self._limits
        if not any((limits.tokens_per_day, limits.cost_per_day, limits.system_tokens_per_day, limits.system_cost_per_day)):
            return
        spent = self._today()
        for measure in ("tokens", "cost"):
            own = f"system_{measure}_per_day"
            apart = bool(getattr(limits, own))
            key = own if unattended and apart else f"{measure}_per_day"
            if limit := getattr(limits, key):
                counts = [spent[unattended]] if apart else list(spent.values())
                yield measure, float(limit), sum(map(_MEASURES[measure], counts)), key

    def _refusal(self, measure: str, limit: float, spent: float, key: str, language: str) -> OverBudget:
        minutes = max(1, round((self._day[1] - self._now()) / 60))
        when = {"ends": self.ends(), "h": minutes // 60, "m": minutes % 60}
        values = {"spent": amount(measure, spent), "limit": amount(measure, limit), "key": f"agents.limits.{key}", **when}
        text = told("over cost" if measure == "cost" else "over tokens", language, **values)
        return OverBudget(text, remedy=f"bubbles usage; raise agents.limits.{key}", attempts=0)

    def _today(self) -> dict[bool, Sum]:
        """What was spent today, read from the file when a day begins, or the clock was set."""
        now = self._now()
        if not self._day[0] <= now < self._day[1]:
            self._day = self.days.bounds(now)
            pending = [entry for entry in self._unwritten if self._day[0] <= entry.at < self._day[1]]
            pages = Pages(self._home)
            found = grouped([*pages.entries(*self._day), *pending], lambda entry: entry.is_unattended)
            _tell_of_gaps(pages)
            self._spent = {False: Sum(), True: Sum()} | found
        return self._spent


def _tell_of_gaps(pages: Pages) -> None:
    """Say what of a day's books no budget sees."""
    gaps = [f"{path}: {why}" for path, why in pages.unread.items()]
    if pages.damaged:
        gaps.append(f"lines that cannot be read: {pages.damaged}")
    if gaps:
        told = f"what these requests of today cost counts for no budget ({'; '.join(gaps)}); see bubbles doctor usage"
        log.event("daemon.warning", told, priority="warning")


_MEASURES: dict[str, Callable[[Sum], float]] = {  # what failed midway counts as well: a budget is not to be got round by failing
    "tokens": lambda spent: spent.tokens + spent.guessed,
    "cost": lambda spent: (spent.cost_micros + spent.guessed_micros) / 1_000_000,
}


def amount(measure: str, value: float) -> str:
    """So many tokens, or US dollars, as a person reads them.

    >>> amount("tokens", 12345.0), amount("cost", 0.5)
    ('12,345', '$0.50')
    """
    return f"{value:,.0f}" if measure == "tokens" else dollars(round(value * 1_000_000))


def whose(origin: str, spoken: Iterable[UserSpoke]) -> tuple[str, str]:
    """The origin of a turn as the books have it, and the id of the clock's job that began it.

    >>> whose("system", [UserSpoke("cron-j1-5", "look", origin="system", job="j1")]), whose("user", [])
    (('cron', 'j1'), ('user', ''))
    """
    if origin == "user":
        return "user", ""
    for spoke in spoken:
        if spoke.job:
            return "cron", spoke.job
        if ends.is_end(spoke):
            return "background", ""
    return "system", ""


# -- files -----------------------------------------------------------------------------------------


def _opened(path: Path) -> int:
    """A file of the books, to be appended to: it is made where there is none, and a last line that was never written whole is cut off.

    Raises Misconfigured where a newer program wrote it.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fd = regular.opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        with open(fd, "rb", closefd=False) as file:
            first = file.readline()
        if first.endswith(b"\n"):
            with suppress(DataError):
                if "format" in (body := from_json(first)):
                    check(body, str(path))
        _cut(fd)
        if not os.fstat(fd).st_size:
            append(fd, to_line({"format": FORMAT, "version": VERSION}))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _cut(fd: int) -> None:
    """Take off what stands behind the last line break."""
    end = os.fstat(fd).st_size
    at = end
    while at:
        start = max(0, at - 65_536)
        found = os.pread(fd, at - start, start).rfind(b"\n")
        if found >= 0:
            at = start + found + 1
            break
        at = start
    if at != end:
        os.ftruncate(fd, at)


def _journalled(path: Path) -> Iterator[Entry]:
    """The requests that a journal tells of, as they would have been booked."""
    try:
        lines = regular.read(path).splitlines(keepends=True)
    except OSError:
        return
    head, spoken, ask = None, list[UserSpoke](), ""
    for line in lines:
        try:
            if line.startswith(b'{"format":'):
                head, spoken, ask = read_header(line), [], ""
                continue
            body, event = from_json(line), from_line(line)
        except (DataError, ProtocolError):
            continue
        if head is None:
            continue
        name, lost = body["event"], ""
        if isinstance(event, UserSpoke):
            spoken.append(event)
        elif name == "ModelAsked":
            ask = event.ask  # type: ignore[union-attr]  # by its name a ModelAsked
        elif ask and (name == "ModelAnswered" or (lost := _lost(body))):
            origin, job = whose("user" if any(spoke.origin == "user" for spoke in spoken) else head.origin, spoken)
            model, provider, at = str(body.get("model", "")), str(body.get("provider", "")), float(body["written"])
            counts: dict[str, Any] = counted(body.get("usage") or {})
            yield Entry(ask, at, head.session, head.turn, origin, job, "answer", model, provider, lost, **counts)
            ask = ""
        elif name in ("ModelFailed", "Stopped"):
            ask = ""


def _lost(body: dict[str, Any]) -> str:
    """Why a request was given up while it was under way; "" where it failed by itself."""
    if body["event"] == "Stopped":
        return "stopped"
    if body.get("usage"):
        return "failed"
    return "preempted" if body.get("category") == "preempted" else ""
