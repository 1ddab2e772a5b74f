"""What a turn's actions do in the world: ask a model, run tools, make history smaller, say something.

Each effect is told to the turn by an event that is in the journal; the first of them (asked, started) is there
before the effect begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bubbles import log
from bubbles.agentd import apology
from bubbles.agentd.request import Tools, compose, recent
from bubbles.errors import BubblesError, ModelError, Rejected, Unavailable
from bubbles.kernel import context, prompt
from bubbles.kernel.actions import Action, AskModel, Compact, RunTools
from bubbles.kernel.events import Call, Compacted, ModelAnswered, ModelAsked, ModelFailed, Said, ToolFinished, ToolStarted, UserSpoke
from bubbles.kernel.turn import Turn
from bubbles.tools import call as call_tool
from bubbles.tools.tool import Bench, TurnInfo

if TYPE_CHECKING:
    from bubbles.agentd.actor import Actor
    from bubbles.agentd.models import Route

_HINT_MOST = 80  # characters of a call's arguments that a tool hint shows
_SUMMARY_TOKENS = 1500


class Perform:
    """The hands of one actor."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._agent = actor.agent
        self._session = actor.session
        self.said: dict[str, int] = {}  # of the open turn: message -> the saying that answers it
        self.remedy = ""  # what the owner can do about the failure that ended it
        self._notice: str | None = None  # what was told of its end, once it was

    def forget(self) -> None:
        """The open turn is over."""
        self.said.clear()
        self.remedy, self._notice = "", None

    async def prepare(self, turn: Turn) -> None:
        """Before a turn's first request: how much its model can read, and what lies before the turn. A model that is away is found out by asking."""
        if turn.asks and turn.rules.window_tokens:
            return
        with contextlib.suppress(BubblesError):
            route = await self._route()
            tools = self._agent.tool_schemas.tokens if route.tools else 0
            self._session.prompt(tools=route.tools)
            self._session.window_tokens = min(self._session.defaults.context_tokens, route.window_tokens or self._session.defaults.context_tokens)
            turn.base_tokens = self._session.base_tokens + tools
            answer = self._answer_tokens(route)
            turn.rules = replace(turn.rules, window_tokens=self._session.window_tokens, answer_tokens=answer, shape=route.shape)

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
        log.event("model.ask", ask)
        started = time.monotonic()
        try:
            answer = await self._answer(turn, ask)
        except ModelError as error:
            log.event("model.fail", f"{error.kind}: {error.text}", priority="warning")
            self.remedy = self._mended(error)
            await self._actor.record(ModelFailed(_category(error), error.attempts, error.text))
            return
        except asyncio.CancelledError:
            preempted = turn.preempt
            if preempted:
                await self._actor.record(ModelFailed("preempted"))
            if preempted or turn.outcome:  # a daemon that ends leaves the request to its successor
                self._agent.models.cancel(ask)
            raise
        log.event("model.answer", answer.text[:200], ms=int((time.monotonic() - started) * 1000), usage=json.dumps(answer.usage))
        if answer.calls and answer.text:
            self._show("text_end", {})  # what was streamed was progress, not the reply
        await self._actor.record(answer, sync=bool(answer.calls))

    def _mended(self, error: ModelError) -> str:
        """What the owner can do about it: a session that names a model of its own is mended there."""
        own = self._session.folder.overrides()
        named = [key for key in ("model", "provider") if own.get(key)]
        return f"/config {named[0]} -" if named and _category(error) == "not_set_up" else error.remedy

    async def _answer(self, turn: Turn, ask: str) -> ModelAnswered:
        route = await self._route_or_fail()
        tools = self._agent.tool_schemas if route.tools else Tools()
        system = {"role": "system", "content": self._session.prompt(tools=bool(tools.name))}
        budget = int(turn.rules.budget_tokens / turn.scale) - tools.tokens if turn.rules.window_tokens else 0
        past = recent(self._session.history.lines, self._session.defaults.memory_window)
        lines = compose(context.encode(system), past, turn.request(), route.shape, budget)
        body = {
            "ask": ask,
            "model": route.model,
            "provider": route.provider,
            "temperature": self._session.effective.temperature,
            "max_tokens": self._answer_tokens(route),
            "stream": self._agent.outgoing.waiting.streams(self._actor.messages),
        }
        answer = await self._agent.models.ask(body, self._session.prefix, lines, tools, on_part=lambda part: self._part(turn, part))
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

    async def _route_or_fail(self) -> Route:
        effective = self._session.effective
        return await self._agent.models.route(effective.model, effective.provider, wait=True)

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
            log.event("tool.refuse", error.text, priority="warning")
            results = [(f"Error: {error.text}", False)] * len(calls)
        self._session.edited(before)
        for call, (text, ok) in zip(calls, results, strict=True):
            await self._actor.record(ToolFinished(call.id, text, ok))

    async def _results(self, turn: Turn, calls: tuple[Call, ...], owner: bool) -> list[tuple[str, bool]]:
        with contextlib.closing(self._session.workspace(owner_turn=owner and turn.origin == "user")) as workspace:
            bench = Bench(
                workspace=workspace,
                sandbox=self._session.sandbox(),
                settings=self._agent.settings.tools,
                turn=TurnInfo(self._session.key, turn.id, turn.origin, any(s.is_group for s in turn.spoken), owner),
                progress=lambda text: self._show("progress", {"text": text}),
                result_tokens=min(self._session.defaults.result_tokens, max(100, self._kept_tokens // 2)),
            )
            return await asyncio.gather(*(self._call(call, bench) for call in calls))

    async def _call(self, call: Call, bench: Bench) -> tuple[str, bool]:
        tool = self._agent.tools.get(call.name)
        self._show("tool", {"name": call.name, "hint": hint(call), "state": "start"})
        log.event("tool.start", f"{call.name} {call.arguments[:2000]}", tool=call.name)
        started = time.monotonic()
        if tool is None:
            text, ok = f"Error: there is no tool {call.name!r}; there are: {', '.join(self._agent.tools)}", False
        else:
            try:
                text, ok = await call_tool(tool, call.arguments, bench, bench.result_tokens)
            except OSError as error:
                text, ok = f"Error: {error.strerror or error}", False
            except Exception:
                log.error("daemon.bug", f"a bug in the tool {call.name}", tool=call.name)
                text, ok = "Error: the tool failed inside; the log has the details", False
        ms = int((time.monotonic() - started) * 1000)
        log.event("tool.finish", f"{call.name} {'ok' if ok else 'failed'}: {text[:2000]}", tool=call.name, ms=ms)
        self._show("tool", {"name": call.name, "hint": hint(call), "state": "finish", "ok": ok, "ms": ms})
        return text, ok

    def _is_free(self, call: Call) -> bool:
        tool = self._agent.tools.get(call.name)
        return tool is None or tool.free

    # -- a history that is too long ----------------------------------------------------------------

    async def _compact(self, turn: Turn, why: str) -> None:
        before = self._session.base_tokens
        note = await self.compact()
        log.event("turn.compact", f"{why}: {before} -> {self._session.base_tokens} tokens")
        await self._actor.record(Compacted(self._session.base_tokens + (turn.base_tokens - before), note))

    async def compact(self, *, keep_tokens: int | None = None) -> str:
        """Let a summary stand for all of history but its last stretch.

        Returns who made it: "model", "outline" (no model could be had), or "nothing" where there is no past to summarise.
        """
        history = self._session.history
        messages = [json.loads(line) for line in history.lines]
        keep = self._kept_tokens if keep_tokens is None else keep_tokens
        start, generation = context.split(messages, keep), history.generation
        if start <= 0:
            return "nothing"
        old = messages[:start]
        summary, how = await self._summary(old), "model"
        if context.tokens(summary) >= context.tokens(old) or not summary:
            summary, how = prompt.deterministic_summary(old), "outline"
        if history.generation != generation or context.tokens(summary) >= context.tokens(old):
            return "nothing"  # somebody else did it meanwhile, or there is nothing to be gained
        history.compact(summary, len(history.lines) - start, time.time())
        await self._agent.commit.sync(history.fd)
        self._session.forget_prompt()
        return how

    @property
    def _kept_tokens(self) -> int:
        """What a compaction keeps verbatim: the setting, and of a small window a quarter at most."""
        window = self._session.window_tokens or self._session.defaults.context_tokens
        return int(min(self._session.defaults.keep_tokens, window // 4))

    async def _summary(self, messages: list[dict[str, Any]]) -> str:
        try:
            route = await self._route()
            window = route.window_tokens or self._session.defaults.context_tokens
            asked = [*context.fit(messages, max(512, window - 2 * _SUMMARY_TOKENS - 512)), {"role": "user", "content": prompt.SUMMARY_REQUEST}]
            lines = [context.encode(m) for m in context.build(asked, route.shape)]
            body = {
                "ask": f"{self._session.key}.compact.{self._session.history.generation}.{len(messages)}",
                "model": route.model,
                "provider": route.provider,
                "temperature": 0.2,
                "max_tokens": _SUMMARY_TOKENS,
                "stream": False,
            }
            answer = await self._agent.models.ask(body, None, lines, Tools())
        except (ModelError, Unavailable) as error:
            log.event("model.fail", f"no summary: {error.text}", priority="warning")
            return ""
        return str(answer.get("text") or "").strip()

    # -- words out -------------------------------------------------------------------------------

    async def say(self, turn: Turn, n: int, text: str, to: tuple[UserSpoke, ...]) -> None:
        """Put a saying into the queue of each of its addresses, then tell the turn."""
        for k, spoke in enumerate(to):
            self._agent.outgoing.say(f"{turn.id}.{n}.{k}", text, spoke, session=self._session.key, turn=turn.id)
        await self._actor.record(Said(n))
        log.event("message.out", text[:200])
        waiting = {spoke.id for spoke in turn.waiting}
        covered = [spoke for spoke in turn.spoken if spoke.id not in waiting and spoke.id not in self.said]
        self.said |= {spoke.id: n for spoke in covered}
        self._agent.outgoing.show(covered, turn.id, "say", {"n": n, "text": text}, streamed=False)

    async def apologise(self, turn: Turn, outcome: str) -> str:
        """Tell whoever waits why there is no answer, once a turn; the text, or "" for silence."""
        if self._notice is None:
            self._notice = self._told(turn, outcome)
        for k, spoke in enumerate(turn.to or tuple(turn.spoken[-1:]) if self._notice else ()):
            self._agent.outgoing.say(f"{turn.id}.end.{k}", self._notice, spoke, session=self._session.key, turn=turn.id, origin="apology")
        return self._notice

    def _told(self, turn: Turn, outcome: str) -> str:
        failure = turn.failure
        now = time.time()
        text = apology.notice(
            outcome,
            origin=turn.origin,
            retries=max(0, (failure.attempts if failure else 0) - 1),
            steps=turn.rules.max_iterations,
            language=self._session.language,
            last_at=self._session.last_apology_at,
            now=now,
        )
        if outcome.startswith("failed:"):
            log.event("apology.sent" if text else "apology.withheld", outcome)
            if text:
                self._session.last_apology_at = now
        return text

    def _show(self, kind: str, body: Any, *, streamed: bool = True) -> None:
        turn = self._actor.turn
        if turn is not None:
            self._agent.outgoing.show(turn.spoken, turn.id, kind, body, streamed=streamed)


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
