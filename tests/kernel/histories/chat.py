"""A session that lives through a history of chance: real session, turns, journal lines, history file and requests; model, tools and people are not.

Each request that would leave is handed to `judge`, as the bytes that modeld puts together. What happened is counted in `told`, by its name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from bubbles.agentd.pictures import Pictures
from bubbles.agentd.request import Prefix, Tools, compose
from bubbles.agentd.session import Session
from bubbles.kernel import canonical, context, prompt
from bubbles.kernel.actions import AskApproval, AskModel, Close, Compact, RunTools, Say
from bubbles.kernel.context import Shape
from bubbles.kernel.events import (
    ApprovalAsked,
    ApprovalGiven,
    Call,
    Compacted,
    Event,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Resumed,
    Said,
    Stopped,
    ToolFinished,
    ToolStarted,
    from_line,
    to_line,
)
from bubbles.kernel.turn import Turn
from bubbles.messages import Inbound, Media, Sender
from tests.kernel.histories import texts

Judge = Callable[[Sequence[bytes], Shape, bytes], None]  # the messages of a request, the shape they are to have, and the tools beside them

# What a turn may be about; what is done between turns.
TURNS: tuple[str, ...] = (
    "plain", "calls", "odd ids", "empty answers", "reasoning", "huge", "interrupted", "killed", "stopped", "retried", "too long", "silent", "group",
)  # fmt: skip
BETWEEN = ("heard", "compacted", "begun anew", "edited", "restarted", "damaged")
_STEPS_MOST = 30
_AT = 1764500400.0


_ODD = re.compile("[\0\x1b\u202e\u2067\ud83d\udc00\U00010000-\U0010ffff]")


class Died(Exception):
    """The process was killed."""


class Chat:
    """One session, from an empty history on."""

    def __init__(self, session: Session, tools: Tools, shape: Shape, window: int, judge: Judge, told: Counter[str], *, sees: bool) -> None:
        self.session, self.tools, self.shape, self.judge, self.told, self.sees = session, tools, shape, judge, told, sees
        self.random = Random(0)
        self._pictures = Pictures(lambda: session.workspace(owner_turn=True))
        (session.folder.path / "data" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n-")
        session.window_tokens, session.thoughts, session.scale = window, shape.reasoning != "drop", 1.0
        session.history.path.unlink(missing_ok=True)
        (session.folder.path / "MEMORY.md").unlink(missing_ok=True)
        session.refresh()
        session.prefix = Prefix(session.key)
        self._held: list[bytes] = []
        self._journal: list[bytes] = []
        self._number = 0
        self._kind = ""
        self._late: list[str] = []

    def happen(self, kind: str, seed: int) -> None:
        """Let something of this kind happen."""
        self.random, self._kind = Random(seed), kind
        if kind in BETWEEN:
            getattr(self, f"_{kind.replace(' ', '_')}")()
        else:
            self._turn()

    def _chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent

    def _id(self) -> str:
        self._number += 1
        return f"m-{self._number}"

    # -- a turn ----------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._journal = []
        turn, deaths = self._opened(), 0
        while True:
            try:
                outcome = self._drive(turn)
                break
            except Died:
                self.told["a process that died in a turn"] += 1
                deaths += 1
                self._kind = self._kind if deaths < 5 else "calls"
                turn = self._refolded(turn)
        self.told[f"a turn that ended: {outcome.partition(':')[0]}"] += 1
        if outcome != "silent":
            self.session.close_turn(turn, outcome, turn.spoken, {}, "", _AT)

    def _opened(self) -> Turn:
        origin = "system" if self._kind == "silent" else "user"
        rules = replace(self.session.rules({}), free=frozenset(("read_file",)), consent=frozenset(("write_file",) if self._chance(15) else ()))
        window = self.session.window_tokens
        base = self.session.base_tokens + self.tools.tokens
        rules = replace(rules, base_tokens=base, window_tokens=window, answer_tokens=min(8192, window // 4), shape=self.shape)
        rules = replace(rules, interjection="preempt" if self._chance(35) else "join", max_iterations=self.random.choice((1, 3, 10)))
        turn = Turn(self._id(), origin, rules)
        for heard in self.session.heard(_AT):
            self._log(turn, heard)
            self.told["words that were only heard"] += 1
        self._speak(turn, origin)
        return turn

    def _log(self, turn: Turn, event: Event) -> None:
        """An event as it is read from its line again."""
        self._journal.append(to_line(event, _AT))
        turn.apply(from_line(self._journal[-1]))

    def _refolded(self, turn: Turn) -> Turn:
        again = Turn(turn.id, self._journal_origin(turn), turn.rules)
        for line in self._journal:
            again.apply(from_line(line))
        self._log(again, Resumed())
        return again

    def _journal_origin(self, turn: Turn) -> str:
        return turn.spoken[0].origin

    def _speak(self, turn: Turn, origin: str = "user") -> None:
        random = self.random
        group = self._kind == "group"
        media = tuple(self._media() for _ in range(random.choice((0, 0, 0, 1, 3))))
        said = random.choice(texts.EMPTY) if self._chance(8) else texts.text(random)
        if self._kind == "huge" and self._chance(60):
            said = texts.huge(random)
        sender = Sender("1", random.choice(("Ann", "Bo]b\n[", "李雷", "\u202eeve", "")), owner=not group or self._chance(30))
        inbound = Inbound(
            id=self._id(), at=_AT, channel="telegram", chat="g" if group else "a", text=said, is_group=group, mentioned=True, sender=sender,
            media=media, quote=texts.text(random) if self._chance(10) else "", origin=origin, job="j" if origin == "system" else "",
        )  # fmt: skip
        self._note_text(said)
        self.told["files beside words"] += bool(media)
        self.told["several people in one turn"] += group
        self._log(turn, self.session.spoke(inbound, fresh=not turn.spoken))

    def _media(self) -> Media:
        kind = self.random.choice(("image/png", "image/jpeg", "image/bmp", "application/pdf", "", "text/plain]\n["))
        name = self.random.choice(("a.png", "b c]\n.jpg", "文.pdf", "x" * 300))
        return Media(f"../data/{name}", "a", kind, self.random.choice((0, 7, 10**12)))

    def _note_text(self, said: str) -> None:
        self.told["texts of more than 5 000 characters"] += len(said) > 5_000
        self.told["texts of more than 20 000 characters"] += len(said) > 20_000
        self.told["texts beyond the BMP, right to left, controls or lone surrogates"] += bool(_ODD.search(said))
        self.told["blank texts"] += not said.strip()

    def _drive(self, turn: Turn) -> str:
        for _ in range(_STEPS_MOST):
            match turn.next():
                case AskModel(n):
                    self._ask(turn, n)
                case RunTools(calls):
                    self._run(turn, calls)
                case Say(n):
                    self._log(turn, Said(n))
                case Compact():
                    self._compact(turn)
                case AskApproval(call):
                    self._log(turn, ApprovalAsked(call.id))
                    self._log(turn, ApprovalGiven(call.id, self._chance(50)))
                    self.told["leave asked for a call"] += 1
                case Close(outcome):
                    return outcome
            self._disturb(turn)
        self._log(turn, Stopped())
        return str(turn.outcome)

    def _disturb(self, turn: Turn) -> None:
        if self._kind == "killed" and self._chance(30):
            raise Died
        if self._kind == "stopped" and self._chance(25) and not turn.outcome:
            self.told["turns stopped by a person"] += 1
            self._log(turn, Stopped("me"))
        if self._kind == "interrupted" and self._chance(30) and len(turn.spoken) < 8:
            self.told["words in the middle of a turn"] += 1
            self._speak(turn)

    # -- the model -------------------------------------------------------------------------------

    def _ask(self, turn: Turn, n: int) -> None:
        self._send(turn)
        self._log(turn, ModelAsked(f"{turn.id}.{n}"))
        self._disturb(turn)
        if turn.preempt:
            self.told["a request that words cancelled"] += 1
            self._log(turn, ModelFailed("preempted"))
        elif not turn.outcome:
            self._log(turn, self._answer(turn))

    def _send(self, turn: Turn) -> None:
        system = {"role": "system", "content": self.session.prompt(tools=self.shape.tools)}
        tools = self.tools if self.shape.tools else Tools()
        past, said = self.session.past.within(self.random.choice((0, 0, 0, 3, 8))), turn.request()
        budget = int(turn.rules.budget_tokens / turn.scale) - tools.tokens - context.tokens([system]) if turn.rules.window_tokens else 0
        turn.image_tokens = self._pictures.weight(past.lines, [*map(context.encode, said)]) if self.sees else 0
        budget = max(1, budget - turn.image_tokens) if budget else 0
        tail = self.random.choice(("", "", "[In the background: j1, make, runs since 4 min]"))
        request = compose(context.encode(system), past, said, self.shape, budget, tail)
        if turn.image_tokens:
            request = self._pictures.shown(request)
            self.told["pictures shown to a model that sees"] += b"data:image/png" in b"".join(request.after(0))
        keep = self.session.prefix.keep(request)
        self.session.prefix.sent = request
        self._held = [*self._held[:keep], *request.after(keep)]
        self.told["a request that was made anew: fitted, or in another shape"] += bool(past.lines) and not request.upto
        self.judge(self._held, self.shape, tools.body)

    def _answer(self, turn: Turn) -> ModelAnswered | ModelFailed:
        random, kind = self.random, self._kind
        if kind == "retried" and self._chance(40):
            self.told["a model that failed"] += 1
            return ModelFailed(random.choice(("rate_limited", "model_down", "rejected", "auth", "policy")), random.randint(1, 3), "why")
        if kind == "too long" and self._chance(50):
            self.told["a model that found it too long"] += 1
            return ModelFailed("context_too_long", 1)
        used = {"input": random.choice((10, 3000, 90_000)), "output": 7} if self._chance(60) else {}
        reasoning = texts.text(random) if kind == "reasoning" or self._chance(15) else ""
        self.told["reasoning beside an answer"] += bool(reasoning.strip())
        if kind == "empty answers" and self._chance(40):
            self.told["an empty answer"] += 1
            return ModelAnswered(random.choice(texts.EMPTY), (), reasoning, used)
        calls = tuple(self._call() for _ in range(self._how_many(turn)))
        self.told["several calls at once"] += len(calls) > 1
        self.told["two calls of one id at once"] += len({call.id for call in calls}) < len(calls)
        self.told["equal calls at once"] += len({(call.name, call.arguments) for call in calls}) < len(calls)
        said = random.choice(texts.EMPTY) if calls and self._chance(50) else texts.text(random)
        self.told["no words beside calls"] += bool(calls) and not said.strip()
        if kind == "huge" and self._chance(35):
            said = texts.huge(random)
        self._note_text(said)
        return ModelAnswered(said, calls, reasoning, used)

    def _how_many(self, turn: Turn) -> int:
        if not self.shape.tools or self._chance(40) or (self._kind == "plain" and self._chance(80)):
            return 0
        return self.random.choice((1, 1, 2, 3, 3, 9))

    def _call(self) -> Call:
        random = self.random
        odd = self._kind == "odd ids" or self._chance(15)
        fresh = f"{random.randrange(16**12):012x}"  # what looks like chance is taken for it
        id = random.choice(texts.IDS).replace("~", fresh) if odd else f"call_{fresh}"
        self.told["ids that are odd or empty"] += odd
        name = "stay_silent" if self._kind == "silent" and self._chance(40) else random.choice(texts.NAMES) if odd else random.choice(texts.NAMES[:3])
        arguments = random.choice(texts.ARGUMENTS) if self._chance(60) else json.dumps({"command": texts.text(random)}, ensure_ascii=self._chance(50))
        if self._kind == "huge" and self._chance(20):
            arguments = json.dumps({"text": texts.huge(random)})
        self.told["arguments that are no JSON object"] += not isinstance(_parsed(arguments), dict)
        return Call(id, name, arguments)

    # -- tools -----------------------------------------------------------------------------------

    def _run(self, turn: Turn, calls: Sequence[Call]) -> None:
        for call in calls:
            self._log(turn, ToolStarted(call.id))
        for call in self.random.sample(calls, len(calls)):
            self._disturb(turn)
            self._finish(turn, call.id)
            if self._chance(10):
                self.told["a result that came twice"] += 1
                self._finish(turn, call.id)
        for id in self._late:
            self.told["a result that came late"] += 1
            self._finish(turn, id)
        self._late = [call.id for call in calls] if self._chance(20) else []

    def _finish(self, turn: Turn, id: str) -> None:
        if id not in turn._ids:  # of the last turn's calls; agentd tells a turn of its own
            return
        result = texts.huge(self.random) if self._kind == "huge" and self._chance(60) else texts.text(self.random)
        self.told["a result of more than 5 000 characters"] += len(result) > 5_000
        self._log(turn, ToolFinished(id, result))

    # -- a history that is made shorter ------------------------------------------------------------

    def _compact(self, turn: Turn) -> None:
        self.told["a compaction within a turn"] += 1
        before = self.session.base_tokens
        self._shorten(max(200, self.session.window_tokens // 4))
        self._log(turn, Compacted(max(0, turn.base_tokens + self.session.base_tokens - before)))

    def _shorten(self, keep_tokens: int) -> None:
        """As agentd does it: the same prefix, or what of it fits, goes out with the wish for a summary, which then stands for it."""
        history = self.session.history
        messages = [json.loads(line) for line in history.lines]
        start = context.split(messages, keep_tokens)
        if start <= 0:
            return
        room = max(512, (self.session.window_tokens or 100_000) - 3512)
        asked = [*context.fit(messages[:start], room), {"role": "user", "content": prompt.SUMMARY_REQUEST}]
        self.judge([context.encode(message) for message in context.build(asked, self.shape)], self.shape, b"")
        summary = prompt.deterministic_summary(messages[:start]) if self._chance(50) else texts.text(self.random).strip() or "(nothing)"
        history.compact(canonical.text_of(summary), len(messages) - start, _AT)
        self.session.forget_prompt()
        self.told["a stretch that became a summary"] += 1

    def _compacted(self) -> None:
        self._shorten(self.random.choice((1, 100, 2000)))

    # -- between turns -----------------------------------------------------------------------------

    def _heard(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            sender = Sender("2", "Cem")
            self.session.overhear(
                Inbound(id=self._id(), at=_AT, channel="telegram", chat="g", text=texts.text(self.random), is_group=True, wakes=False, sender=sender)
            )

    def _begun_anew(self) -> None:
        self.session.history.begin_anew(_AT)
        self.session.forget_prompt()
        self.told["a conversation begun anew"] += 1

    def _edited(self) -> None:
        (self.session.folder.path / "MEMORY.md").write_text(texts.text(self.random), errors="replace")
        self.told["a note that was edited"] += 1

    def _restarted(self) -> None:
        """agentd begins anew: it reads the file, and modeld holds nothing."""
        self.session.reload()
        self.session.prefix, self._held = Prefix(self.session.key), []
        self.told["a restart"] += 1

    def _damaged(self) -> None:
        """Lines that a hand, a disk or an older program has left."""
        path = self.session.history.path
        lines = path.read_bytes().splitlines(keepends=True)
        for _ in range(self.random.randint(1, 4)):
            lines = _DAMAGES[self.random.randrange(len(_DAMAGES))](lines, self.random)
        path.write_bytes(b"".join(lines))
        self._restarted()
        self.told["lines that are damaged, lost, doubled or of another program"] += 1


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# -- damage ----------------------------------------------------------------------------------------

Lines = list[bytes]


def _place(lines: Lines, random: Random) -> int:
    return random.randrange(1, len(lines)) if len(lines) > 1 else 0  # the first is the header


def _lost(lines: Lines, random: Random) -> Lines:
    at = _place(lines, random)
    return lines[:at] + lines[at + 1 :] if at else lines


def _doubled(lines: Lines, random: Random) -> Lines:
    at = _place(lines, random)
    return [*lines[: at + 1], *lines[at:]] if at else lines


def _swapped(lines: Lines, random: Random) -> Lines:
    at, other = _place(lines, random), _place(lines, random)
    lines = list(lines)
    if at and other:
        lines[at], lines[other] = lines[other], lines[at]
    return lines


def _garbled(lines: Lines, random: Random) -> Lines:
    at = _place(lines, random)
    return [*lines[:at], lines[at][: len(lines[at]) // 2] + b"\xff\n", *lines[at + 1 :]] if at else lines


def _torn(lines: Lines, random: Random) -> Lines:
    return [*lines[:-1], lines[-1][: random.randrange(len(lines[-1]))]] if len(lines) > 1 else lines


def _foreign(lines: Lines, random: Random) -> Lines:
    at = _place(lines, random)
    return [*lines[:at], *(json.dumps(one).encode() + b"\n" for one in random.sample(FOREIGN, 3)), *lines[at:]] if at else lines


def _marked(lines: Lines, random: Random) -> Lines:
    """A compaction's marker anywhere, also between a call and its result."""
    at = _place(lines, random)
    marker = {"meta": "compaction", "summary": texts.text(random), "kept": random.choice((0, 1, 2, 3, 50)), "at": _AT}
    return [*lines[:at], json.dumps(marker).encode() + b"\n", *lines[at:]] if at else lines


_DAMAGES = (_lost, _doubled, _swapped, _garbled, _torn, _foreign, _marked)
_FUNCTION = {"name": "exec", "arguments": "{}"}
FOREIGN: tuple[Any, ...] = (
    {"role": "assistant", "content": None, "tool_calls": [{"id": "o1", "type": "function", "function": _FUNCTION}]},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "o2", "function": {"name": "exec", "arguments": {"a": 1}}}]},
    {"role": "assistant", "content": "old", "tool_calls": []},
    {"role": "assistant", "content": "old", "tool_calls": None},
    {"role": "assistant", "content": "old", "tool_calls": ["exec", {"id": 7}]},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "o3", "type": "function", "function": _FUNCTION}] * 2},
    {"role": "assistant", "content": "old", "reasoning_content": None, "name": "bubbles", "at": 3},
    {"role": "assistant", "content": [{"type": "text", "text": "in parts"}]},
    {"role": "tool", "tool_call_id": "o1", "content": "found"},
    {"role": "tool", "tool_call_id": "o3", "content": [{"type": "text", "text": "a picture"}, texts.IMAGE]},
    {"role": "tool", "tool_call_id": "o3", "content": ""},
    {"role": "tool", "content": "whose?"},
    {"role": "user", "content": [{"type": "text", "text": "see"}, texts.IMAGE]},
    {"role": "user", "content": ""},
    {"role": "user", "content": "  \n"},
    {"role": "user", "content": "again", "at": 3},
    {"role": "system", "content": "You are an older program."},
    {"role": "function", "name": "exec", "content": "old"},
    {"meta": "something newer", "x": 1},
    ["no message"],
)
