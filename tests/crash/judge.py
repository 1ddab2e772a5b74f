"""What became of every word, looked at from outside: what people wrote, what the model was shown, what tools did, what people saw, and
what lies on disk. `judge` names each offender with all its traces, or none.

Kinds of problems:

    lost          a message stands in no history                  doubled      it stands in more than one turn, or in a turn twice
    unshown       a word that no request to the model ever held   disorder     a person's words, or their answers, came in another order
    unanswered    a turn's reply that its people never saw        shown twice  people saw a reply twice, and no receipt says uncertain
    tool twice    a call that ran twice                           malformed    a history, or a request, that a provider would refuse
    stuck         something still waits, or was given up          bug          what a daemon calls one, or an end that it should not have come to
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles.ids import safe
from bubbles.kernel import context
from bubbles.kernel.context import Shape
from tests.crash import doom
from tests.crash.model import TOKEN, WORD
from tests.crash.town import KEYED, Town, Word

_MARGIN_S = 0.5  # a death so long before a word was written may have to do with it
_STRICT = (("openai", Shape()), ("anthropic", Shape()), ("strict", Shape(after_tool="assistant_only")))
Line = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """One offender. `word`: of which message, "" where it is none's; `traces`: all that is known of it."""

    kind: str
    what: str
    word: str = ""
    traces: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.kind}: {self.what}", *self.traces])


@dataclass
class Verdict:
    """What was found. `counts` says how much was looked at; `kills` are all deaths of daemons."""

    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    kills: list[Line] = field(default_factory=list)

    def kinds(self) -> set[str]:
        return {problem.kind for problem in self.problems}

    def of(self, *kinds: str) -> list[Problem]:
        return [problem for problem in self.problems if problem.kind in kinds]

    @property
    def head(self) -> str:
        """In one sentence."""
        c = self.counts
        others = Counter(problem.kind for problem in self.problems if problem.kind not in ("lost", "tool twice", "unshown"))
        return (
            f"{c['words']} messages, {len(self.kills)} kills: {len(self.of('lost'))} lost, {len(self.of('tool twice'))} of {c['tools']} tools twice, "
            f"{len(self.of('unshown'))} words unshown, {c['uncertain']} uncertain sends receipted, {c['again']} replies seen again by such a send, "
            f"{c['given up']} turns given up; {c['requests']} requests, {c['sent']} messages seen on platforms."
            f"{''.join(f' {n} {kind}.' for kind, n in sorted(others.items()))}"
        )

    def __str__(self) -> str:
        return "\n".join([self.head, *map(str, self.problems[:20]), *([f"… {len(self.problems) - 20} more"] if len(self.problems) > 20 else [])])


@dataclass
class Evidence:
    """All that can be seen from outside once a town has come to rest."""

    words: list[Word]
    shown: dict[str, list[int]]
    complaints: list[str]
    requests: int
    histories: dict[str, list[Line]]  # by session
    torn: list[str]
    tokens: Counter[str]
    sent: dict[str, list[Line]]  # by platform
    keyed: set[str]
    receipts: dict[str, list[Line]]  # by outbound id
    outbound: dict[str, str]  # id: the state it is in
    waiting: list[str]
    given_up: list[str]
    bugs: list[str]
    kills: list[Line]


def gather(town: Town) -> Evidence:
    """Look at everything, once."""
    home, seen = town.home, town.seen()
    histories, torn = _histories(home.sessions)
    ran = (path.read_text().split() for path in home.sessions.glob("*/work/ran"))
    outbound = {path.stem: path.parent.name for path in home.root.glob("spool/outbound/*/*/*.json") if path.parent.parent.name != "cron"}
    return Evidence(
        words=list(town.words),
        shown=seen["shown"],
        complaints=seen["complaints"],
        requests=seen["requests"],
        histories=histories,
        torn=torn,
        tokens=Counter(token for tokens in ran for token in tokens),
        sent={name: platform.sent() for name, platform in town.platforms.items()},
        keyed={name for name in town.platforms if KEYED[name]},
        receipts={path.stem: _lines(path) for path in home.root.glob("spool/outbound/*/receipts/*.jsonl")},
        outbound=outbound,
        waiting=_waiting(home.root),
        given_up=[path.stem for path in (home.turns / "held").glob("*.jsonl")],
        bugs=[*town.nursery.look(), *_bugs(home.log)],
        kills=sorted([*town.kills, *doom.deaths(town.orders)], key=lambda kill: kill["at"]),
    )


def judge(seen: Evidence) -> Verdict:
    """Every problem there is."""
    problems = [
        *_custody(seen), *_shown(seen), *_order(seen), *_tools(seen), *_well_formed(seen), *_answers(seen), *_platforms(seen), *_rest(seen),
    ]  # fmt: skip
    counts = Counter(words=len(seen.words), tools=len(seen.tokens), requests=seen.requests, sent=sum(map(len, seen.sent.values())))
    counts["uncertain"] = sum(any("uncertain" in line for line in lines) for lines in seen.receipts.values())
    counts["again"] = sum(n - 1 for name, lines in seen.sent.items() for n in _times(lines).values())
    counts["given up"] = len(seen.given_up)
    return Verdict(problems, counts, seen.kills)


# -- what people wrote -----------------------------------------------------------------------------


def _custody(seen: Evidence) -> Iterator[Problem]:
    """Every message is in exactly one turn that ended."""
    found = Counter(message["id"] for end in _ends(seen) for message in end["messages"])
    for word in seen.words:
        if found[word.id] != 1:
            kind = "doubled" if found[word.id] else "lost"
            yield _problem(seen, kind, f"{word.word} ({word.id}) is in {found[word.id]} turns", word)
    known = {word.id for word in seen.words}
    yield from (Problem("doubled", f"{id} stands in a history, and nobody wrote it") for id in found if id not in known)


def _shown(seen: Evidence) -> Iterator[Problem]:
    for word in seen.words:
        if word.word not in seen.shown:
            yield _problem(seen, "unshown", f"{word.word} was never shown to the model", word)


def _order(seen: Evidence) -> Iterator[Problem]:
    """A person's words come to the model one after the other."""
    places = {word: place for place, word in enumerate(seen.shown)}
    people: dict[str, list[Word]] = defaultdict(list)
    for word in seen.words:
        if word.word in places:
            people[word.person].append(word)
    for said in people.values():
        for before, after in zip(said, said[1:], strict=False):
            if before.way != "cron" and places[before.word] > places[after.word]:
                yield _problem(seen, "disorder", f"{after.word} was shown before {before.word}", after)


# -- what tools did --------------------------------------------------------------------------------


def _tools(seen: Evidence) -> Iterator[Problem]:
    by_name = {word.word: word for word in seen.words}
    for token, times in seen.tokens.items():
        if times > 1:
            yield _problem(seen, "tool twice", f"{token} ran {times} times", by_name.get(token.partition(".")[0]))
    for session, lines in seen.histories.items():
        for call, result in _calls(lines):
            ran = seen.tokens[call]
            if (f"ran-{call}" in result and not ran) or (result.startswith("Not run") and ran):
                yield _problem(seen, "tool twice", f"{session}: the model was told {result[:60]!r} of {call}, which ran {ran} times")


def _calls(lines: list[Line]) -> Iterator[tuple[str, str]]:
    """Each call's token and what the model was told of it."""
    results = {line["tool_call_id"]: str(line["content"]) for line in lines if line.get("role") == "tool"}
    for line in lines:
        for call in line.get("tool_calls") or ():
            for token in TOKEN.findall(call["function"]["arguments"])[:1]:
                yield token, results.get(call["id"], "")


# -- histories and requests ------------------------------------------------------------------------


def _well_formed(seen: Evidence) -> Iterator[Problem]:
    yield from (Problem("malformed", text) for text in (*seen.torn, *seen.complaints))
    for session, lines in seen.histories.items():
        messages = [line for line in lines if "role" in line]
        for dialect, shape in _STRICT:
            request = context.build([{"role": "system", "content": "-"}, *messages, {"role": "user", "content": "-"}], shape)
            if wrong := context.check(request, dialect):
                yield Problem("malformed", f"{session}: {dialect} would refuse it: {wrong[:2]}")
        called = Counter(call["id"] for line in messages for call in line.get("tool_calls") or ())
        if called != Counter(line["tool_call_id"] for line in messages if line["role"] == "tool"):
            yield Problem("malformed", f"{session}: calls and results do not belong together")
        words = Counter(word for line in messages if line["role"] == "user" for word in WORD.findall(str(line["content"])))
        yield from (Problem("doubled", f"{session}: {word} stands {n} times in the history", word) for word, n in words.items() if n > 1)


def _histories(root: Path) -> tuple[dict[str, list[Line]], list[str]]:
    found: dict[str, list[Line]] = {}
    torn: list[str] = []
    for path in root.glob("*/session.jsonl"):
        lines = found[path.parent.name] = _lines(path, torn)
        if lines and "role" in lines[-1]:
            torn.append(f"{path.parent.name}: messages after the last end line")
        torn += [f"{path.parent.name}: {beside.name}" for beside in path.parent.glob("session.jsonl.broken-*")]
    return found, torn


# -- what people saw -------------------------------------------------------------------------------


def _answers(seen: Evidence) -> Iterator[Problem]:
    """Each word is named by exactly one reply of its session, or its turn ended otherwise and says so; each reply got where it belongs."""
    by_id = {word.id: word for word in seen.words}
    texts = {name: {line["text"] for line in lines} for name, lines in seen.sent.items()}
    for end in _ends(seen):
        replied = Counter(word for text in end["says"] for word in WORD.findall(text))
        for message in end["messages"]:
            word = by_id.get(message["id"])
            if word is None:
                continue
            if end["outcome"] == "replied" and replied[word.word] != 1:
                yield _problem(seen, "unanswered", f"{word.word} is answered by {replied[word.word]} replies of its turn {end['turn']}", word)
            elif word.way in texts and not _reached(seen, word, end, texts[word.way]):
                yield _problem(seen, "unanswered", f"{word.person} never saw the answer to {word.word}", word)


def _reached(seen: Evidence, word: Word, end: Line, texts: set[str]) -> bool:
    """Whether the answer was seen, or is held because nobody can tell."""
    said = [text for text in end["says"] if word.word in WORD.findall(text)] or list(filter(None, [end.get("notice")]))
    own = [id for id, state in seen.outbound.items() if state == "held" and id.startswith(f"{safe(end['turn'])}.")]
    held = any(_rightly_held(seen.receipts.get(id, [])) for id in own)
    return not said or held or any(text in texts for text in said)


def _rightly_held(receipt: list[Line]) -> bool:
    """Sent twice, and never confirmed."""
    return sum("uncertain" in line for line in receipt) > 1


def _platforms(seen: Evidence) -> Iterator[Problem]:
    """Nobody sees a reply twice, but where a receipt says that the first sending was uncertain; on a platform that knows keys never."""
    uncertain = {id for id, lines in seen.receipts.items() if any("uncertain" in line for line in lines)}
    for name, lines in seen.sent.items():
        for (text, key), times in _times(lines).items():
            if times > 1 and (name in seen.keyed or _outbound_of(seen, key) not in uncertain):
                yield Problem("shown twice", f"{name}: {text!r} was seen {times} times under {key!r}", _first_word(text), (_receipt(seen, key),))
        places = {word: place for place, word in reversed([*enumerate(word for line in lines for word in WORD.findall(line["text"]))])}
        for before, after in zip(people := [w for w in seen.words if w.way == name and w.word in places], people[1:], strict=False):
            if before.person == after.person and places[before.word] > places[after.word]:
                yield _problem(seen, "disorder", f"{after.person} saw the answer to {after.word} before that to {before.word}", after)


def _times(lines: list[Line]) -> dict[tuple[str, str], int]:
    return Counter((line["text"], line["key"]) for line in lines)


def _outbound_of(seen: Evidence, key: str) -> str:
    """The id of the outbound message that a key was made of."""
    return max((id for id in seen.receipts if key.startswith(id)), key=len, default=key)


def _receipt(seen: Evidence, key: str) -> str:
    id = _outbound_of(seen, key)
    return f"receipt {id}: {seen.receipts.get(id)}"


def _first_word(text: str) -> str:
    return next(iter(WORD.findall(text)), "")


# -- what is left ----------------------------------------------------------------------------------


def _rest(seen: Evidence) -> Iterator[Problem]:
    held = {f"/held/{id}.json": id for id, state in seen.outbound.items() if state == "held" and _rightly_held(seen.receipts.get(id, []))}
    yield from (Problem("stuck", text) for text in seen.waiting if not any(path in text for path in held))
    yield from (Problem("bug", text) for text in seen.bugs)


def _waiting(root: Path) -> list[str]:
    """What still waits, or is held, in any queue; and journals that are open."""
    found = [path for state in ("new", "cur", "held") for path in root.glob(f"spool/*/*/{state}/*.json")]
    found += [path for path in (root / "turns").glob("*.jsonl") if path.stat().st_size]
    return [str(path.relative_to(root)) + _why(path) for path in sorted(found)]


def _why(path: Path) -> str:
    why = path.with_suffix(".why")
    return f" ({why.read_text().strip()})" if why.exists() else ""


def _bugs(log: Path) -> list[str]:
    return [
        f"{path.name}: {line[:300]}"
        for path in sorted([*log.glob("*.log"), *log.glob("*.jsonl*")])
        for line in path.read_text(errors="replace").splitlines()
        if "daemon.bug" in line or "Traceback" in line or "ends by a bug" in line
    ]


# -- traces ----------------------------------------------------------------------------------------


def _problem(seen: Evidence, kind: str, what: str, word: Word | None = None) -> Problem:
    return Problem(kind, what, word.word if word else "", tuple(_traces(seen, word)) if word else ())


def _traces(seen: Evidence, word: Word) -> Iterator[str]:
    """All that is known of a word, in the order of its way."""
    yield f"written at {word.at:.3f} by {word.person} ({word.way}), as {word.id}, for session {word.session}"
    yield f"shown in requests {seen.shown.get(word.word)}"
    yield f"its tools ran: { {token: n for token, n in seen.tokens.items() if token.startswith(f'{word.word}.')} }"
    ends = [end for end in _ends(seen) if any(message["id"] == word.id for message in end["messages"])]
    for end in ends:
        yield f"turn {end['turn']} ended {end['outcome']} at {end['at']:.3f}, saying {end['says']} {end.get('notice', '')}"
        for id in (id for id in {**seen.outbound, **seen.receipts} if id.startswith(safe(end["turn"]))):
            yield f"outbound {id}: {seen.outbound.get(id)}, receipt {seen.receipts.get(id)}"
    yield f"seen by people: {[line for lines in seen.sent.values() for line in lines if word.word in WORD.findall(line['text'])]}"
    until = max((end["at"] for end in ends), default=word.at + 5) + _MARGIN_S
    for kill in seen.kills:
        if word.at - _MARGIN_S <= kill["at"] <= until:
            yield f"killed meanwhile: {kill['name']} {kill['hop']} {kill['side']} at {kill['at']:.3f}"


def _ends(seen: Evidence) -> Iterator[Line]:
    return (line for lines in seen.histories.values() for line in lines if line.get("meta") == "turn")


def _lines(path: Path, torn: list[str] | None = None) -> list[Line]:
    """The JSON lines of a file; what is none is named in `torn`."""
    found = []
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            if not line.endswith(b"\n"):
                raise ValueError
            found.append(json.loads(line))
        except ValueError:
            if torn is not None:
                torn.append(f"{path.parent.name}: a line that was never written whole: {line[:80]!r}")
    return found
