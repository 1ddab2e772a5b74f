"""What a turn's actions do in the world: ask a model, run tools, make history smaller, say something.

Each effect is told to the turn by an event that is in the journal; the first of them (asked, started) is there
before the effect begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bubbles import log
from bubbles.agentd import apology
from bubbles.agentd.compaction import SOFT, Compaction, NoSummary, Stretch
from bubbles.agentd.outgoing import has_queue
from bubbles.agentd.pictures import Pictures
from bubbles.agentd.posting import Post, sent
from bubbles.agentd.request import Request, Tools, compose
from bubbles.agentd.texts import told
from bubbles.errors import BubblesError, ContextTooLong, ModelError, NotAuthorized, OverBudget, Rejected
from bubbles.ids import safe
from bubbles.kernel import context, prompt, summary, window
from bubbles.kernel.actions import Action, AskModel, Compact, RunTools, Say
from bubbles.kernel.events import Call, Compacted, ModelAnswered, ModelAsked, ModelFailed, Said, ToolFinished, ToolStarted, UserSpoke
from bubbles.kernel.turn import Rules, Turn
from bubbles.tools import call as call_tool
from bubbles.tools.tool import Bench, TurnInfo, limits_active
from bubbles.workspace import Workspace

if TYPE_CHECKING:
    from bubbles.agentd.actor import Actor
    from bubbles.agentd.models import Route

_HINT_MOST = 80  # characters of a call's arguments that a tool hint shows
_AGAIN = 50  # places from which on a fallback is asked a second time
_RESULT_MOST = 2000  # characters of a call's result that the log has; the whole is in the history
_TOLD_MOST = 200  # of words


class Perform:
    """The hands of one actor."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._agent = actor.agent
        self._session = actor.session
        self.said: dict[str, int] = {}  # of the open turn: message -> the saying that answers it
        self.remedy = ""  # what the owner can do about the failure that ended it
        self._notice: str | None = None  # what was told of its end, once it was
        self._place = 0  # of the model that answers in this turn: 0 for the one that is set, else which of the fallbacks
        self._why_not = "model_down"  # why the model that is set does not
        self._asking = ""  # the request under way, as modeld knows it
        self._pictures = Pictures(lambda: self._session.workspace(owner_turn=False))
        self.compaction = Compaction(self._summary, lambda fd: self._agent.commit.sync(fd))

    def forget(self) -> None:
        """The open turn is over."""
        self.said.clear()
        self.remedy, self._notice, self._place = "", None, 0

    async def prepare(self, turn: Turn) -> None:
        """Before a turn's first request: how much its model can read, and what lies before the turn. A model that is away is found out by asking."""
        if turn.asks and turn.rules.window_tokens:
            return
        if not turn.asks and self.compaction.is_ready:
            await self._adopt()
        with contextlib.suppress(BubblesError):
            route = await self._route()
            self._bound(turn, route)
            self._session.prompt(tools=route.tools)
            self._session.thoughts = route.shape.reasoning != "drop"
            turn.base_tokens = self._session.base_tokens + self._beside(route)
            turn.scale = self._session.scale_of(route.model, turn.scale)

    def _bound(self, turn: Turn, route: Route) -> None:
        """Tell the turn how much its model can read, and how much of that an answer may take."""
        turn.rules = self._rules(turn, route)
        self._session.window_tokens = turn.rules.window_tokens

    def _rules(self, turn: Turn, route: Route) -> Rules:
        most = self._session.defaults.context_tokens
        within = min(most, route.window_tokens or most)
        return replace(turn.rules, window_tokens=within, answer_tokens=self._answer_tokens(route), shape=route.shape)

    def _beside(self, route: Route) -> int:
        """What a request carries beside prompt and messages: the tools' schemas, and what is told of jobs."""
        return self._agent.tool_schemas.tokens + context.tokens(self._agent.jobs.ledger(self._session.key)) if route.tools else 0

    async def effect(self, turn: Turn, action: Action) -> None:
        """Do one action that takes time, if it is still the one that is due."""
        if turn.next() != action:
            return
        match action:
            case AskModel(n):
                await self._ask(turn, f"{turn.id}.{n}")
            case RunTools(calls):
                await self._tools(turn, calls)
            case Compact(why):
                await self._compact(turn, why)

    async def offers_tools(self) -> bool:
        """Whether the session's model is offered tools."""
        return (await self._route()).tools

    # -- the model -------------------------------------------------------------------------------

    async def _route(self) -> Route:
        effective = self._session.effective
        return await self._agent.models.route(effective.model, effective.provider)

    async def _ask(self, turn: Turn, ask: str) -> None:
        await self._actor.begin(ModelAsked(ask))
        log.event("model.ask", ask, ask=ask, model=self._session.effective.model)
        started = time.monotonic()
        try:
            answer = await self._answer_of_some(turn, ask)
        except ModelError as error:
            log.event("model.fail", f"{error.kind}: {error.text}", priority="warning", ask=ask, attempts=error.attempts)
            self.remedy = self._mended(error)
            if isinstance(error, ContextTooLong):
                await self._learn(turn, error, self._session.effective.model, self._session.effective.provider, 0)
            of_words = isinstance(error, Rejected) and error.of_words
            await self._actor.record(ModelFailed(_category(error), error.attempts, error.text, of_words, error.spent))
            if error.spent:
                self._agent.books.note(ask, self._session.key, turn, error.spent, lost="failed")
            return
        except asyncio.CancelledError:
            preempted = turn.preempt
            if preempted:
                await self._actor.record(ModelFailed("preempted"))
            if preempted or turn.outcome:  # a daemon that ends leaves the request to its successor
                self._agent.models.cancel(self._asking)
                self._agent.books.note(ask, self._session.key, turn, lost="preempted" if preempted else "stopped")
            raise
        ms, who = int((time.monotonic() - started) * 1000), {"model": answer.model, "provider": answer.provider}
        log.event("model.answer", _told(answer), ask=ask, ms=ms, usage=_counted(answer.usage), **who)
        if answer.calls and answer.text:
            self._show("text_end", {})  # what was streamed was progress, not the reply
        await self._actor.record(answer)  # what its calls do is synced before they begin, and this with it
        if answer.calls and answer.text.strip():
            self._tell_progress(turn, ask, answer.text)
        self._agent.books.note(ask, self._session.key, turn, answer.usage, model=answer.model, provider=answer.provider)

    def _tell_progress(self, turn: Turn, ask: str, text: str) -> None:
        """Text beside calls is a message of its own where a person waits in a chat. It may be missed: nothing is held up by it, nor said twice."""
        if turn.origin != "user" or not self._agent.settings.channels.send_progress or sent(turn) >= self._session.limits.outbound:
            return
        id = f"{turn.id}.p{ask.rpartition('.')[2]}"
        for k, spoke in enumerate(turn.to):
            with contextlib.suppress(OSError, BubblesError):
                self._agent.outgoing.progress(f"{id}.{k}", text.strip(), spoke, session=self._session.key, turn=turn.id)

    async def _learn(self, turn: Turn, error: ContextTooLong, model: str, provider: str, place: int) -> None:
        """A request was too long: the model reads less than was believed, or counts more. Where it does not say what, half of it is tried."""
        named, asked = window.told(error.text)
        if asked and not place:
            turn.counted(asked)
        with contextlib.suppress(BubblesError):
            route = await self._agent.models.route(model, provider)
            sent = min(turn.request_tokens, route.window_tokens or turn.request_tokens)
            self._agent.models.learn(route, named or sent * (3 if route.window_tokens else 2) // 4, named=bool(named))
            if not place:
                self._bound(turn, await self._route())

    def _mended(self, error: ModelError) -> str:
        """What the owner can do about it: a session that names a model of its own is mended there."""
        own = self._session.folder.overrides()
        named = [key for key in ("model", "provider") if own.get(key)]
        return f"/config {named[0]} -" if named and _category(error) == "not_set_up" else error.remedy

    async def _answer_of_some(self, turn: Turn, ask: str) -> ModelAnswered:
        """The model's answer or, where it cannot be had for now, that of the first fallback that gives one, which says so.

        Raises ModelError: where none gives one, that of the first that was asked, with the attempts of all.
        """
        failed: ModelError | None = None
        for place, (model, provider) in [*enumerate(self._models())][self._place :]:
            try:
                answer = await self._answer_with_less(turn, ask, model, provider, place)
            except ModelError as error:
                if failed is not None:
                    failed.attempts += error.attempts
                    failed.spent = _sum(failed.spent, error.spent)
                if isinstance(error, OverBudget) or (failed is None and not _is_worth_another(error)):
                    raise
                failed = failed or error
                if place + 1 == len(self._models()):
                    raise failed from error
                log.event("model.retry", f"{model}: {error.kind}; {self._models()[place + 1][0]} is asked", priority="warning", ask=ask)
                self._show("retry", {"category": error.kind, "attempt": failed.attempts + 1, "in_s": 0})
            else:
                self._place, self._why_not = place, _why_not(failed) if failed is not None else self._why_not
                spent = _sum(answer.usage, failed.spent if failed is not None else {})
                return replace(answer, usage=spent, aside=self._aside(model)) if place else answer
        raise AssertionError("unreachable")

    async def _answer_with_less(self, turn: Turn, ask: str, model: str, provider: str, place: int) -> ModelAnswered:
        """The answer of the model at this place. A fallback may read less: it is asked once more with less, and the history stays as it is."""
        try:
            return await self._answer(turn, _numbered(ask, place), model, provider, place)
        except ContextTooLong as error:
            if not place:
                raise
            await self._learn(turn, error, model, provider, place)
        return await self._answer(turn, _numbered(ask, _AGAIN + place), model, provider, place)

    def _models(self) -> list[tuple[str, str]]:
        """The models that may be asked, each with its provider where that is set: the session's own, then the fallbacks."""
        first = self._session.effective.model
        return [(first, self._session.effective.provider), *((name, "") for name in self._session.defaults.fallbacks if name != first)]

    def _aside(self, other: str) -> str:
        """What whoever reads the answer is told of it."""
        language = self._session.language
        return told("fallback", language, model=self._session.effective.model, what=told(self._why_not, language), other=other)

    async def _answer(self, turn: Turn, ask: str, model: str, provider: str, place: int) -> ModelAnswered:
        self._agent.books.check(turn, self._session.language)
        self._asking = ask
        route = await self._agent.models.route(model, provider, wait=True)
        rules = self._rules(turn, route) if place else turn.rules
        tools = self._agent.tool_schemas if route.tools else Tools()
        system = {"role": "system", "content": self._session.prompt(tools=bool(tools.name))}
        budget = int(rules.budget_tokens / turn.scale) - tools.tokens - context.tokens([system]) if rules.window_tokens else 0
        past = self._session.past.within(self._session.defaults.memory_window)
        tail = self._agent.jobs.ledger(self._session.key) if tools.name else ""
        self._consider(turn)
        said = turn.request()
        turn.image_tokens = self._pictures.weight(past.lines, [*map(context.encode, said)]) if route.vision else 0
        budget = max(1, budget - turn.image_tokens) if budget else 0
        request = compose(context.encode(system), past, said, route.shape, budget, tail)
        turn.fitted_tokens = request.fitted_tokens + tools.tokens if request.fitted_tokens else 0
        if turn.image_tokens:
            request = await asyncio.to_thread(self._pictures.shown, request)
        body = {
            "ask": ask,
            "model": route.model,
            "provider": route.provider,
            "temperature": self._session.effective.temperature,
            "max_tokens": self._answer_tokens(route),
            "stream": self._agent.outgoing.streams(self._actor.messages, turn.to),
        }
        answer = await self._agent.models.ask(body, self._session.prefix, request, tools, on_part=lambda part: self._part(turn, part))
        return ModelAnswered(
            text=str(answer.get("text") or ""),
            calls=tuple(Call(str(c["id"]), str(c["name"]), str(c["arguments"])) for c in answer.get("calls") or ()) if tools.name else (),
            reasoning=str(answer.get("reasoning") or ""),
            usage={k: v for k, v in (answer.get("usage") or {}).items() if isinstance(v, int)},
            model=str(answer.get("model") or ""),
            provider=str(answer.get("provider") or ""),
            stop=str(answer.get("stop") or ""),
        )

    def _answer_tokens(self, route: Route) -> int:
        """What the answer may measure: a quarter of a small window at most, as the kernel's budget has it."""
        most: int = self._session.defaults.max_tokens
        return min(most, route.window_tokens // 4) if route.window_tokens else most

    def _part(self, turn: Turn, part: dict[str, Any]) -> None:
        if turn.outcome:
            return
        for kind in ("text", "retry"):
            if kind in part:
                self._show(kind, part[kind])

    # -- tools -----------------------------------------------------------------------------------

    async def _tools(self, turn: Turn, calls: tuple[Call, ...]) -> None:
        await self._actor.begin(*(ToolStarted(call.id) for call in calls), sync=not all(map(self._is_free, calls)))
        owner = any(s.owner for s in turn.spoken)
        before = self._session.notes()
        try:
            results = await self._results(turn, calls, owner)
        except BubblesError as error:  # a workspace or a sandbox that the owner's settings make impossible
            log.event("tool.refuse", error.text, priority="warning", tool=", ".join(call.name for call in calls))
            results = [(f"Error: {error.text}", False)] * len(calls)
        self._session.edited(before)
        for call, (text, ok) in zip(calls, results, strict=True):
            await self._actor.record(ToolFinished(call.id, text, ok))

    async def _results(self, turn: Turn, calls: tuple[Call, ...], owner: bool) -> list[tuple[str, bool]]:
        with contextlib.ExitStack() as opened:

            @functools.cache
            def files() -> Workspace:
                return opened.enter_context(contextlib.closing(self._session.workspace(owner_turn=owner and turn.origin == "user")))

            sandbox = self._session.sandbox(unattended=turn.origin != "user" or any(s.is_group for s in turn.spoken))
            bench = Bench(
                files=files,
                sandbox=sandbox,
                settings=self._agent.settings.tools,
                turn=TurnInfo(self._session.key, turn.id, turn.origin, any(s.is_group for s in turn.spoken), owner),
                progress=lambda text: self._show("progress", {"text": text}),
                jobs=self._agent.jobs.within(self._session.key, turn, sandbox),
                chats=Post(self._agent, self._session.key, turn, calls[0].id),  # what is not free of effects runs alone
                result_tokens=min(self._session.defaults.result_tokens, max(100, self._kept_tokens // 2)),
            )
            return await asyncio.gather(*(self._call(call, bench) for call in calls))

    async def _call(self, call: Call, bench: Bench) -> tuple[str, bool]:
        tool = self._agent.tools.get(call.name)
        self._show("tool", {"name": call.name, "hint": hint(call), "state": "start"})
        log.event("tool.start", f"{call.name} {call.arguments}", tool=call.name, call=call.id)
        started = time.monotonic()
        if tool is None:
            text, ok = f"Error: there is no tool {call.name!r}; there are: {', '.join(self._agent.tools)}", False
        else:
            try:
                text, ok = await call_tool(tool, call.arguments, bench, bench.result_tokens, lambda whole: _spilled(call, bench, whole))
            except OSError as error:
                text, ok = f"Error: {error.strerror or error}", False
            except Exception:
                log.error("daemon.bug", f"a bug in the tool {call.name}", tool=call.name)
                text, ok = "Error: the tool failed inside; the log has the details", False
        ms = int((time.monotonic() - started) * 1000)
        said = f"{call.name} {'ok' if ok else 'failed'}: {log.clipped(text, _RESULT_MOST)}"
        log.event("tool.finish", said, tool=call.name, call=call.id, ms=ms, limits=limits_active.get())
        self._show("tool", {"name": call.name, "hint": hint(call), "state": "finish", "ok": ok, "ms": ms})
        return text, ok

    def _is_free(self, call: Call) -> bool:
        tool = self._agent.tools.get(call.name)
        return tool is None or tool.free

    # -- a history that is too long ----------------------------------------------------------------

    async def _compact(self, turn: Turn, why: str) -> None:
        """Make what lies before the turn lighter. Only a person is made to wait for a summary; else the request is fitted, and one made meanwhile."""
        before = self._session.base_tokens
        how = await self._adopt()
        over = turn.request_tokens + (self._session.base_tokens - before) * turn.scale > turn.rules.budget_tokens
        if (over or not how) and self._is_awaited(turn):
            how = await self.compact() or how
        elif not how:
            self._consider(turn)
        log.event("turn.compact", f"{why}: {before} -> {self._session.base_tokens} tokens")
        await self._actor.record(Compacted(self._session.base_tokens + (turn.base_tokens - before), how))

    def _consider(self, turn: Turn) -> None:
        """Have a summary made in good time, after which there is as much room again as it leaves behind."""
        budget, past = turn.rules.budget_tokens, self._session.past.weight(self._session.defaults.memory_window)
        room = int(budget * SOFT / turn.scale) - (turn.base_tokens - past)
        self.compaction.consider(self._session.history, turn.request_tokens, budget, min(self._kept_tokens, max(room // 2, 0)))

    async def _adopt(self) -> str:
        """Put a summary that is ready in its place; how it was made, "" where there is none."""
        how = await self.compaction.adopt(self._session.history)
        if how:
            self._session.forget_prompt()
        return how

    async def compact(self, *, keep_tokens: int | None = None) -> str:
        """Let a summary stand for all of history but its last stretch.

        Returns who made it: "model", "outline" (no model could be had), or "nothing" where there is no past to summarise.
        """
        how = await self.compaction.now(self._session.history, self._kept_tokens if keep_tokens is None else keep_tokens)
        if how != "nothing":
            self._session.forget_prompt()
        return how

    @property
    def _kept_tokens(self) -> int:
        """What a compaction keeps verbatim: the setting, and of a small window a quarter at most."""
        window = self._session.window_tokens or self._session.defaults.context_tokens
        return int(min(self._session.defaults.keep_tokens, window // 4))

    async def _summary(self, stretch: Stretch, attempt: int) -> str:
        """A model's summary of a stretch of history, or that of a fallback, as for an answer. Raises BubblesError where none gives one."""
        models = self._models()
        for place in range(self._place, len(models)):
            try:
                return await self._summary_of(stretch, attempt, place)
            except ModelError as error:
                if place + 1 == len(models) or not _is_worth_another(error):
                    raise
                log.event("model.retry", f"no summary by {models[place][0]}: {error.kind}; {models[place + 1][0]} is asked", priority="warning")
        raise AssertionError("unreachable")

    async def _summary_of(self, stretch: Stretch, attempt: int, place: int) -> str:
        self._agent.books.check(self._actor.turn, self._session.language)
        route = await self._agent.models.route(*self._models()[place])
        most = (route.window_tokens or self._session.defaults.context_tokens) - 2 * prompt.SUMMARY_TOKENS - 512
        messages = [{**one, "content": summary.retold(one["content"])} if one["role"] == "user" else one for one in stretch.messages]
        asked = [*context.fit(messages, max(512, int(most / self._session.scale))), {"role": "user", "content": prompt.SUMMARY_REQUEST}]
        request = Request.of([context.encode(m) for m in context.build(asked, route.shape)])
        body = {
            "ask": _numbered(f"{self._session.key}.compact.{stretch.name[:12]}.{attempt}", place),
            "model": route.model,
            "provider": route.provider,
            "temperature": 0.2,
            "max_tokens": prompt.SUMMARY_TOKENS,
            "stream": False,
        }
        try:
            answer = await self._agent.models.ask(body, None, request, Tools())
        except asyncio.CancelledError:
            self._agent.models.cancel(str(body["ask"]))
            self._agent.books.note(str(body["ask"]), self._session.key, self._actor.turn, kind="summary", lost="stopped")
            raise
        except ModelError as error:
            if error.spent:
                self._agent.books.note(str(body["ask"]), self._session.key, self._actor.turn, error.spent, kind="summary", lost="failed")
            raise
        self._agent.books.note_summary(str(body["ask"]), self._session.key, self._actor.turn, answer)
        prose = str(answer.get("text") or "").strip()
        if why := summary.fault(prose, answer.get("calls") or (), stretch.tokens):
            raise NoSummary(why)
        return prose

    # -- words out -------------------------------------------------------------------------------

    async def say(self, turn: Turn, say: Say) -> None:
        """Put a saying into the queue of each of its addresses while the turn goes on, then tell the turn."""
        if any(map(has_queue, say.to)):
            await self._actor.durable()  # nobody reads what a power cut would let the model say otherwise
        await self._put(turn, say)
        await self._actor.record(Said(say.n))
        self.show_said(turn, say, self.cover(turn, say.n))

    def cover(self, turn: Turn, n: int) -> list[UserSpoke]:
        """Note that the n-th saying answers all that was shown to the model and has no answer yet: these words."""
        waiting = {spoke.id for spoke in turn.waiting}
        covered = [spoke for spoke in turn.spoken if spoke.id not in waiting and spoke.id not in self.said]
        self.said |= {spoke.id: n for spoke in covered}
        return covered

    async def hand_on(self, turn: Turn, says: list[Say], notice: str) -> None:
        """Put what a turn that is in history said last, and why there is no answer, where their channels find them. May be done again."""
        for say in says:
            await self._put(turn, say)
        for k, spoke in enumerate(turn.to or tuple(turn.spoken[-1:]) if notice else ()):
            await self._agent.outgoing.say(f"{turn.id}.end.{k}", notice, spoke, session=self._session.key, turn=turn.id, origin="apology")

    async def _put(self, turn: Turn, say: Say) -> None:
        for k, spoke in enumerate(say.to):
            await self._agent.outgoing.say(f"{turn.id}.{say.n}.{k}", say.text, spoke, session=self._session.key, turn=turn.id)

    def show_said(self, turn: Turn, say: Say, covered: list[UserSpoke]) -> None:
        """Show a saying that is on its way to whoever waits for it."""
        for spoke in covered:
            if not has_queue(spoke):  # of those that have one, its queue tells
                log.event("message.out", log.clipped(say.text, _TOLD_MOST), message=spoke.id, channel=spoke.address.channel)
        self._agent.outgoing.show(covered, turn.id, "say", {"n": say.n, "text": say.text}, streamed=False)

    def notice(self, turn: Turn, outcome: str) -> str:
        """Why there is no answer, for whoever waits, worked out once a turn; "" for silence."""
        if self._notice is None:
            self._notice = self._told(turn, outcome)
        return self._notice

    def _told(self, turn: Turn, outcome: str) -> str:
        failure = turn.failure
        now = time.time()
        text = apology.notice(
            outcome,
            awaited=self._is_awaited(turn),
            retries=max(0, (failure.attempts if failure else 0) - 1, turn.too_longs - 1),
            steps=turn.steps,
            language=self._session.language,
            last_at=self._session.last_apology_at,
            now=now,
            why=failure.text if failure else "",
        )
        if outcome.startswith("failed:"):
            spoke = next(iter(turn.to or turn.spoken[-1:]), None)
            about = {"message": spoke.id, "channel": spoke.address.channel} if spoke else {}
            log.event("apology.sent" if text else "apology.withheld", outcome, why=self._why_silent(turn, text), **about)
            if text:
                self._session.last_apology_at = now
        return text

    def _is_awaited(self, turn: Turn) -> bool:
        """Whether a person waits: one who spoke in it, or who had a job begun that has ended now."""
        return turn.is_awaited or any(job.awaited for job in self._agent.jobs.began(self._session.key, self._actor.messages))

    def _why_silent(self, turn: Turn, text: str) -> str:
        """Why a failure is not told to anybody."""
        return "" if text else "one was told lately" if self._is_awaited(turn) else "nobody waits"

    def _show(self, kind: str, body: Any, *, streamed: bool = True) -> None:
        turn = self._actor.turn
        if turn is not None:
            self._agent.outgoing.show(turn.spoken, turn.id, kind, body, streamed=streamed, to=turn.to or turn.spoken[-1:])


async def _spilled(call: Call, bench: Bench, text: str) -> str:
    """Keep a result that is too large for a request in the session's data/, and say where; "" where that cannot be."""
    path = f"../data/{safe(call.name)}-{safe(call.id)}.txt"
    try:
        await asyncio.to_thread(bench.workspace.write, path, text)
    except (BubblesError, OSError) as error:
        log.event("daemon.warning", f"a result is not kept whole: {error}", priority="warning", tool=call.name)
        return ""
    lines = text.count("\n") + 1
    return f"[The whole of it is in {path}: {lines} lines. Look at parts of it with read_file, or search it with exec.]"


def _told(answer: ModelAnswered) -> str:
    """An answer in a line: its words, or what it calls."""
    return log.clipped(answer.text, _TOLD_MOST) or ", ".join(call.name for call in answer.calls)


def _counted(usage: dict[str, int]) -> str:
    return " ".join(f"{kind}={count}" for kind, count in usage.items())


def _numbered(ask: str, place: int) -> str:
    """The name of a request to the model at this place: modeld keeps what became of the others.

    >>> _numbered("cli-7.3", 0), _numbered("cli-7.3", 1)
    ('cli-7.3', 'cli-7.0301')
    """
    turn, _, n = ask.rpartition(".")
    return f"{turn}.0{n}{place:02}" if place else ask


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Counts of the same kinds together.

    >>> _sum({"input": 3}, {"failed": 1}), _sum({"failed": 1}, {"failed": 1})
    ({'input': 3, 'failed': 1}, {'failed': 2})
    """
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _is_worth_another(error: ModelError) -> bool:
    """Whether another model may answer where this one did not. One that was never asked is a matter of the settings, or of modeld."""
    return bool(error.attempts) and (error.temporary or (isinstance(error, NotAuthorized) and error.no_credit))


def _why_not(error: ModelError) -> str:
    return "no_credit" if isinstance(error, NotAuthorized) else error.kind


def _category(error: ModelError) -> str:
    """A failure as the turn knows it: a provider that was never asked did not refuse."""
    return "not_set_up" if isinstance(error, Rejected) and not error.attempts else error.kind


def hint(call: Call) -> str:
    """A call as a person reads it: `read_file("notes.md")`."""
    try:
        values = list(json.loads(call.arguments or "{}").values())
    except (ValueError, AttributeError, RecursionError):
        values = []
    shown = ", ".join(json.dumps(v, ensure_ascii=False) for v in values)
    if len(shown) > _HINT_MOST:
        shown = shown[:_HINT_MOST] + "…"
    return f"{call.name}({shown})"
