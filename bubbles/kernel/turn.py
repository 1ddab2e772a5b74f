"""One turn, as a fold over its journal.

`apply(event)` changes the state; `next()` names what to do and changes nothing. A turn whose process died is the
same fold over the lines it left, and then `Resumed`. It does not know files, clocks, chance, tools or platforms.

Between `next()` and the first event of what it named (ModelAsked, ToolStarted, Said, ...) nothing else may be applied:
take the action, apply its first event, then wait. While something is under way `next()` goes on naming it, so an actor
sees a Stopped by asking again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

from bubbles.errors import ProtocolError
from bubbles.kernel import canonical, context, prompt
from bubbles.kernel.actions import Action, AskApproval, AskModel, Close, Compact, RunTools, Say
from bubbles.kernel.events import (
    ApprovalAsked,
    ApprovalGiven,
    Call,
    Compacted,
    Event,
    Heard,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Resumed,
    Said,
    Stopped,
    ToolFinished,
    ToolStarted,
    UserSpoke,
)
from bubbles.messages import Media

Message: TypeAlias = dict[str, Any]

SKIPPED = "Not run: the user spoke before this call began."
INTERRUPTED = "Interrupted by a restart. It may or may not have run; check before repeating it."
STOPPED = "Stopped by the user."
SILENT = "Nothing is sent."
AFTER_SILENCE = "Not run: the turn ended in silence before this call began."
NOT_SILENT = "Refused: a person is waiting for an answer in this turn. Answer in words."
DENIED = "Not run: nobody gave permission for it."
EMPTY = "[Your last answer was empty. Answer in words now; if the work is done, say so.]"


@dataclass(frozen=True, slots=True)
class Rules:
    """What may differ from turn to turn. `base_tokens` is the weight of all that lies before the turn: prompt, tool schemas, history."""

    max_iterations: int = 40
    max_system_iterations: int = 16  # of a turn in which no person has spoken
    max_says: int = 64  # then words that wait open a turn of their own
    free: frozenset[str] = frozenset()  # tools without side effects: these may run side by side
    silent: str = "stay_silent"
    interjection: str = "join"  # or "preempt"
    max_preempts: int = 3
    consent: frozenset[str] = frozenset()  # tools that run only with a person's leave
    window_tokens: int = 0  # of the model; 0: unknown
    answer_tokens: int = 8192  # of the window, kept for the answer; at most a quarter of it
    base_tokens: int = 0
    max_compactions: int = 8
    scale: float = 1.0  # tokens as this model last counted them, for one of our estimate
    shape: context.Shape = context.DEFAULT

    @property
    def budget_tokens(self) -> int:
        """What a request may weigh; 0: unknown."""
        return self.window_tokens - min(self.answer_tokens, self.window_tokens // 4)


DEFAULT = Rules()


class Turn:
    """A turn's state. Read its attributes, change it by `apply` alone."""

    def __init__(self, id: str, origin: str = "user", rules: Rules = DEFAULT) -> None:
        self.id = id
        self.origin = origin  # "user" as soon as a person has spoken
        self.rules = rules
        self.messages: list[Message] = []  # canonical, what the model was shown and what it said
        self.spoken: list[UserSpoke] = []
        self.waiting: list[UserSpoke] = []  # spoken, and not yet shown to the model
        self.heard: list[Heard] = []  # heard, and not yet shown
        self.overheard: list[Heard] = []  # all that was heard
        self.unreplied: list[UserSpoke] = []  # shown since the last saying
        self.says: list[Say] = []
        self.outcome = ""
        self.failure: ModelFailed | None = None  # the one that ended the turn
        self.usage: dict[str, int] = {}  # tokens of all answers, summed by kind
        self.asks = 0  # numbers used up for requests
        self.iterations = 0  # answers of the model
        self.preempts = 0
        self.compactions = 0
        self.too_longs = 0  # requests that a provider found too long
        self.resumed_in_a_row = 0
        self.base_tokens = rules.base_tokens  # estimated, like all weights here
        self.scale = rules.scale
        self.image_tokens = 0  # of the images in its requests, as they are counted, and not by our estimate
        self.fitted_tokens = 0  # what the last request weighed, where it had to be made lighter than this turn is; else 0
        self._ask = ""  # the id of the last request
        self._unanswered = False  # it has neither answer nor failure
        self._thinking = False  # and this very process waits for it
        self._empties = 0
        self._asides: dict[str, None] = {}  # of answers since the last saying
        self._said = 0
        self._calls: dict[str, Call] = {}  # of the last answer, from the first whose result is not in `messages`
        self._results: dict[str, str] = {}  # of those, what is known already
        self._started: set[str] = set()
        self._allowed: set[str] = set()
        self._ids: set[str] = set()  # of all calls of the turn
        self._words: set[str] = set()  # the ids of all words
        self._new: dict[str, tuple[Message, int]] = {}  # of words not yet shown, by id: their message and its weight, worked out once
        self._weight = 0  # tokens of `messages` as they are sent
        self._smaller: list[Message] = []  # stands for as many of the first messages in requests
        self._too_long = ""  # why compaction is due
        self._tried = False  # since the last answer: compacted for a provider that found it too long
        self._fresh = False  # since the last answer: compacted

    # What to do

    def next(self) -> Action:
        """The action that is due, or under way."""
        if self._said < len(self.says):
            return self.says[self._said]
        if self.outcome:
            return Close(self.outcome)
        if self._calls:
            return self._next_call()
        if not self.messages and not self.waiting:
            return Close("silent")
        if self.iterations >= self.steps:
            return Close("limit")
        if self._too_long or self._is_full():
            return Compact(self._too_long or "window")
        return AskModel(self.asks - 1 if self._asks_again() else self.asks)

    def request(self) -> list[Message]:
        """What AskModel sends after the base: the messages shown so far and, unless it repeats an ask, the words that wait."""
        shown = self._smaller + self.messages[len(self._smaller) :]
        new = [] if self._asks_again() else [self._new[word.id][0] for word in self._unshown()]
        nudge = [canonical.user(EMPTY)] if self._empties and (self._asks_again() or not self.waiting) else []
        return shown + new + nudge

    @property
    def steps(self) -> int:
        """How many answers of the model the turn may take."""
        return self.rules.max_iterations if self.origin == "user" else min(self.rules.max_iterations, self.rules.max_system_iterations)

    @property
    def is_awaited(self) -> bool:
        """Whether a person spoke to the assistant in it, and waits."""
        return any(word.origin == "user" and word.mentioned for word in self.spoken)

    @property
    def unsaid(self) -> list[Say]:
        """What was to be said and is not on its way yet."""
        return self.says[self._said :]

    @property
    def running(self) -> list[Call]:
        """The calls that have begun and have no result."""
        return [call for id, call in self._calls.items() if id in self._started and id not in self._results]

    def knows(self, id: str) -> bool:
        """Whether the words of this id, spoken or heard, are in the turn."""
        return id in self._words

    @property
    def preempt(self) -> bool:
        """Whether the request in flight should be cancelled for words that wait: cancel it and apply ModelFailed("preempted")."""
        wanted = self.rules.interjection == "preempt" and self.preempts < self.rules.max_preempts
        return wanted and self._thinking and bool(self.waiting) and not self.outcome

    @property
    def to(self) -> tuple[UserSpoke, ...]:
        """Where a reply, or the notice of a failure, goes now: the last words per address that have none yet."""
        return last_of_each_address(self.unreplied)

    def _next_call(self) -> Action:
        running = [call for id, call in self._calls.items() if id in self._started and id not in self._results]
        together = [*running, *takewhile(self._is_free, self._idle())] if all(map(self._is_free, running)) else running
        if together:
            return RunTools(tuple(together))
        call = self._idle()[0]
        return AskApproval(call) if self._needs_leave(call) else RunTools((call,))

    def _needs_leave(self, call: Call) -> bool:
        return call.name in self.rules.consent and call.id not in self._allowed

    def _is_free(self, call: Call) -> bool:
        return call.name in self.rules.free and call.name != self.rules.silent and not self._needs_leave(call)

    def _idle(self) -> list[Call]:
        return [call for id, call in self._calls.items() if id not in self._results and id not in self._started]

    def _asks_again(self) -> bool:
        """The last request may be joined: nothing was answered, and no words have come that a new one would have to show."""
        return self._unanswered and (self._thinking or not self.waiting)

    def _is_full(self) -> bool:
        budget = self.rules.budget_tokens
        if not budget or self._fresh or self.compactions >= self.rules.max_compactions or self._asks_again():
            return False
        return self.request_tokens > budget

    @property
    def request_tokens(self) -> int:
        """About what the next request weighs, as its model counts: all that lies before the turn, the turn, and the words that wait."""
        new = sum(self._new[word.id][1] for word in self._unshown())
        return int((self.base_tokens + self._weight + new) * self.scale) + self.image_tokens

    def _unshown(self) -> list[UserSpoke | Heard]:
        return [*self.heard, *self.waiting]

    # What has happened

    def apply(self, event: Event) -> None:
        """Take an event in. What comes too late is ignored; raises ProtocolError, and changes nothing, for what no turn could have met."""
        match event:
            case UserSpoke():
                self._spoke(event)
            case Heard():
                self._overheard(event)
            case ModelAsked():
                self._asked(event)
            case ModelAnswered():
                self._answered(event)
            case ModelFailed():
                self._failed(event)
            case ToolStarted():
                self._tool_started(event)
            case ToolFinished():
                self._tool_finished(event)
            case Said():
                self._was_said(event)
            case Compacted():
                self._compacted(event)
            case ApprovalAsked():
                self._known(event.call)
            case ApprovalGiven():
                self._approval(event)
            case Stopped():
                self._stopped()
            case Resumed():
                self._resumed()
        self._settle()
        if isinstance(event, ModelAnswered | ModelFailed | ToolFinished | Said | Compacted | ApprovalGiven | Stopped):
            self.resumed_in_a_row = 0  # something got done; a request or a start alone may be what kills us

    def _spoke(self, event: UserSpoke) -> None:
        if event.id in self._words:
            return  # intake repeats itself after a crash
        self._take_note(event)
        self.spoken.append(event)
        self.waiting.append(event)
        if event.origin == "user":
            self.origin = "user"
        self._answer(self._idle(), SKIPPED)
        if self.outcome == "replied" and not self._is_talked_out:
            self.outcome = ""

    def _overheard(self, event: Heard) -> None:
        if event.id not in self._words:
            self._take_note(event)
            self.heard.append(event)
            self.overheard.append(event)

    def _take_note(self, word: UserSpoke | Heard) -> None:
        message = words(word)
        self._words.add(word.id)
        self._new[word.id] = message, self._weigh([message])

    def _asked(self, event: ModelAsked) -> None:
        if self.outcome:
            return
        if self._calls:
            raise ProtocolError(f"{event.ask}: the model was asked while calls were open")
        if not (self._unanswered and event.ask == self._ask):
            self.asks += 1
            self._show()
        self._ask = event.ask
        self.fitted_tokens = 0
        self._unanswered = self._thinking = True

    def _show(self) -> None:
        if self.waiting:
            self._empties = 0
        for word in self._unshown():
            message, weight = self._new.pop(word.id)
            self.messages.append(message)
            self._weight += weight
        self.unreplied += self.waiting
        self.heard, self.waiting = [], []

    def _answered(self, event: ModelAnswered) -> None:
        if not self._heard_back():
            return
        self.iterations += 1
        self._tried = self._fresh = False
        self._count(event.usage)
        self._asides |= {event.aside: None} if event.aside else {}
        text = canonical.text_of(event.text).lstrip("\r\n").rstrip()
        calls = self._admit(event.calls)
        if not text and not calls:
            self._empty()
            return
        self._empties = 0
        self._append(canonical.assistant(text, calls, event.reasoning))
        self._calls = {call.id: call for call in calls}
        if not calls:
            self._reply(text)
        elif self.waiting:
            self._answer(calls, SKIPPED)

    def _count(self, usage: dict[str, int]) -> None:
        """Add up what the provider counted; "input" is the whole request, cached or not, and shows how far off our estimates are."""
        for kind, count in usage.items():
            self.usage[kind] = self.usage.get(kind, 0) + count
        if self.base_tokens and usage.get("input", 0) > self.image_tokens:
            self.counted(usage["input"])

    def counted(self, tokens: int) -> None:
        """The provider counted so many tokens in the last request: what is added to it is weighed by that measure."""
        estimated = self.fitted_tokens or self.base_tokens + self._weight
        self.scale = min(max((tokens - self.image_tokens) / max(estimated, 1), 0.8), 4.0)

    def _heard_back(self) -> bool:
        """Whether what comes from the model is awaited; it is not after a Stopped."""
        if self.outcome:
            return False
        if not self._thinking:
            raise ProtocolError("the model answered and was not asked")
        self._thinking = self._unanswered = False
        return True

    def _admit(self, calls: Iterable[Call]) -> list[Call]:
        """The calls under ids that are unique in the turn, and as good as surely in the session, whatever the model called them."""
        admitted = []
        for place, call in enumerate(calls):
            id = canonical.call_id(canonical.rare_id(call.id, f"c{self.iterations}_{place}", self.id), "", self._ids)
            self._ids.add(id)
            admitted.append(Call(id, call.name, call.arguments))
        return admitted

    def _reply(self, text: str) -> None:
        self.says.append(Say(len(self.says), "\n\n".join([text, *self._asides]), self.to))
        self._asides = {}
        self.unreplied = []
        self.outcome = "" if self.waiting and not self._is_talked_out else "replied"
        self.iterations = 0 if not self.outcome else self.iterations  # the steps are those of one answer

    @property
    def _is_talked_out(self) -> bool:
        return len(self.says) >= self.rules.max_says

    @property
    def limit(self) -> str:
        """Which limit ended the turn: "steps", "outbound", or ""."""
        if self.outcome == "replied" and self._is_talked_out:
            return "outbound"
        return "steps" if not self.outcome and self.iterations >= self.steps else ""

    def _empty(self) -> None:
        """No words and no calls: ask once more, saying so; the second time it is a failure. Words that wait are answer enough."""
        if self.waiting:
            return
        self._empties += 1
        if self._empties > 1:
            self._fail(ModelFailed("empty", attempts=self._empties))

    def _failed(self, event: ModelFailed) -> None:
        if not self._heard_back():
            return
        self.too_longs += event.category == "context_too_long"
        if event.category == "preempted":
            self.preempts += 1
        elif event.category == "context_too_long" and not self._tried and self.compactions < self.rules.max_compactions:
            self._tried, self._too_long = True, event.category
        else:
            self._fail(event)

    def _fail(self, event: ModelFailed) -> None:
        self.failure = event
        self.outcome = f"failed:{event.category}"

    def _tool_started(self, event: ToolStarted) -> None:
        if self._is_over(event.call):
            if self.outcome:
                return
            raise ProtocolError(f"call {event.call!r} began after it was answered")
        if event.call in self._started:
            raise ProtocolError(f"call {event.call!r} began twice")
        self._started.add(event.call)

    def _tool_finished(self, event: ToolFinished) -> None:
        if self._is_over(event.call):
            return
        if event.call not in self._started:
            raise ProtocolError(f"call {event.call!r} ended and had not begun")
        self._results[event.call] = event.text

    def _is_over(self, id: str) -> bool:
        self._known(id)
        return id not in self._calls or id in self._results

    def _known(self, id: str) -> None:
        if id not in self._ids:
            raise ProtocolError(f"no call {id!r} in this turn")

    def _was_said(self, event: Said) -> None:
        if event.n > self._said or event.n >= len(self.says):
            raise ProtocolError(f"saying {event.n} was sent and is not in this turn")
        self._said = max(self._said, event.n + 1)

    def _approval(self, event: ApprovalGiven) -> None:
        if self._is_over(event.call):
            return
        if event.allowed:
            self._allowed.add(event.call)
        else:
            self._answer([self._calls[event.call]], DENIED)

    def _compacted(self, event: Compacted) -> None:
        before = self.base_tokens + self._weight
        self.base_tokens = event.base_tokens
        self.compactions += 1
        self._too_long, self._fresh = "", True
        self._shrink(min(before, int(self.rules.budget_tokens / self.scale) or before))

    def _shrink(self, limit: int) -> None:
        """Where the turn itself is what fills the window, send its oldest results shortened. `messages` keeps them whole."""
        if self.base_tokens + self._weight > limit * 3 // 4:
            room = max(limit // 2 - self.base_tokens, limit // 8)
            self._smaller = context.shrink(self.request()[: len(self.messages)], room)
            self._weight = self._weigh(self._smaller)

    def _stopped(self) -> None:
        if self.outcome:
            return
        self._answer([call for id, call in self._calls.items() if id not in self._results], STOPPED)
        self.outcome = "stopped"
        self._settle()
        self._show()  # what was said before the stop is stopped with it: it stands in history, and wakes no turn of its own

    def _resumed(self) -> None:
        self.resumed_in_a_row += 1
        self._thinking = False
        self._answer([call for id, call in self._calls.items() if id in self._started and id not in self._results], INTERRUPTED)

    # Messages

    def _answer(self, calls: Iterable[Call], text: str) -> None:
        for call in calls:
            self._results[call.id] = text

    def _settle(self) -> None:
        """Let results enter the messages in call order, as far as they are known."""
        while self._calls:
            id, call = next(iter(self._calls.items()))
            if id not in self._results and call.name and call.name == self.rules.silent:
                self._silence(call)
            if id not in self._results:
                return
            self._append(canonical.result(id, self._results.pop(id)))
            del self._calls[id]

    def _silence(self, call: Call) -> None:
        if self.origin != "system":
            self._answer([call], NOT_SILENT)
            return
        self._answer(self._idle(), AFTER_SILENCE)
        self._answer([call], SILENT)
        self.outcome = "silent"

    def _append(self, message: Message) -> None:
        self.messages.append(message)
        self._weight += self._weigh([message])

    def _weigh(self, messages: list[Message]) -> int:
        """What messages weigh in a request: thoughts that are not sent back weigh nothing."""
        if self.rules.shape.reasoning == "drop":
            messages = [message | {"reasoning_content": ""} for message in messages]
        return context.tokens(messages)


def last_of_each_address(spoken: Iterable[UserSpoke]) -> tuple[UserSpoke, ...]:
    """The last words of each address: there an answer goes, once."""
    return tuple({word.address: word for word in spoken}.values())


def words(word: UserSpoke | Heard) -> Message:
    """The canonical message of words: header, text (no line of which passes for a header), a line for each file that came with them."""
    files = word.media if isinstance(word, UserSpoke) else ()
    lines = [word.header, prompt.unstamped(word.text), *map(_file, files)]
    return canonical.user("\n".join(line for line in lines if line))


def _file(file: Media) -> str:
    return f"[file: {', '.join(filter(None, (prompt.line(file.path), prompt.line(file.type))))}, {file.size} bytes]"
