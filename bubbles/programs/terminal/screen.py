"""The interactive terminal: a line to type on, and above it what the assistant says while it says it.

It does not know sessions or models; it sends words and shows what comes back. What is finished scrolls away as
ordinary output; the piece that is still growing, the spinner and the line being typed are redrawn in place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import ConditionalContainer, Float, FloatContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.widgets import SearchToolbar, TextArea

from bubbles import __version__, regular
from bubbles.agentd.apology import language_of
from bubbles.agentd.texts import told
from bubbles.bus.caller import Caller
from bubbles.errors import BubblesError, Unavailable
from bubbles.kernel.clean import clean
from bubbles.paths import Home
from bubbles.programs.terminal import commands
from bubbles.programs.terminal.completion import offers
from bubbles.programs.terminal.conversation import TRIES, Conversation, ensure, kept, unanswered
from bubbles.programs.terminal.here import granted
from bubbles.programs.terminal.markdown import dim, plain, render
from bubbles.programs.terminal.seen import Exchange, Seen
from bubbles.programs.terminal.stream import Piece, Stream

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TICK_S = 0.1
_AWAY_MOST = 5  # exchanges shown of those that were missed


class Screen:
    """One terminal. `here`: a directory to lend to the session it is in; `logs`, `debug`: show the log, too, or all of it and the prompt."""

    def __init__(self, home: Home, session: str, *, here: Path | None = None, logs: bool = False, debug: bool = False) -> None:
        self.home = home
        self._here, self._logs, self._debug = here, logs, debug
        self._talk = Conversation(home, session)
        self._first = session
        self._session = contextlib.ExitStack()  # what holds while we are in a session
        self._agentd = Caller(home, "agentd")
        self._typed: asyncio.Queue[str] = asyncio.Queue()
        self._output: asyncio.Queue[str] = asyncio.Queue()
        self._pending: deque[str] = deque()  # messages whose turn has not ended
        self._commands: dict[str, str] = {}  # commands that are not answered yet: message -> what was typed
        self._answering: set[asyncio.Task[None]] = set()
        self._shown: set[str] = set()  # turns
        self._stream = Stream()
        self._since = 0.0
        self._follower: asyncio.Task[None] | None = None
        self._stopping = False  # the turn that is waited for was asked to stop
        self.input, self.app = self._layout()

    async def run(self) -> None:
        """Until the person leaves."""
        print(dim(f"bubbles {__version__} · /help"))
        self._loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(name, self._leave)
        tasks = [asyncio.create_task(self._guarded(work)) for work in (self._read(), self._print(), self._spin())]
        try:
            with kept(self.home, self._trouble_from_thread, lambda: self._waiting):
                await self.app.run_async()
        finally:
            for task in filter(None, [*tasks, *self._answering, self._follower]):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._agentd.close()
            await asyncio.to_thread(self._session.close)
        self._send_the_rest()
        while not self._output.empty():
            print(self._output.get_nowait(), end="")
        if self._pending:
            print(dim(f"the turn goes on; see its reply with: bubbles agent -s {self._talk.name}"))

    # -- what is typed ---------------------------------------------------------------------------

    async def _read(self) -> None:
        """One line after the other, in order."""
        await self._take(self._enter())
        while True:
            text = await self._typed.get()
            self._say(f"\x1b[1m›\x1b[22m {_indented(text)}")
            command = commands.local(text)
            await self._take(self._send(text) if command is None else self._do(*command))

    async def _take(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BubblesError as error:
            self._trouble(error)

    def _send_the_rest(self) -> None:
        """Words that were entered and not taken up yet are sent all the same: whoever pressed Enter has sent them."""
        while not self._typed.empty():
            text = self._typed.get_nowait()
            if commands.local(text) is None:
                message = self._talk.put(text)
                self._pending.extend([] if commands.is_command(text) else [message])

    async def _send(self, text: str) -> None:
        message = self._talk.put(text)
        if commands.is_command(text):
            self._commands[message] = text
            task = asyncio.create_task(self._guarded(self._take(self._answer(message, text))))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        self._pending.append(message)
        if not self._follow():  # else `turn.wait` rings, and is there before the model is asked: text is streamed to those who wait
            self._agentd.ring()

    async def _do(self, name: str, arguments: str) -> None:
        if name == "exit":
            self._leave()
            return
        self._talk = Conversation(self.home, self._first if arguments == "-" else arguments)
        await self._enter()

    async def _answer(self, message: str, text: str) -> None:
        """Show what a command is answered, beside whatever turn runs."""
        talk = self._talk
        try:
            body = await self._wait(talk.question(message, stream=False), lambda part: None)
        finally:
            del self._commands[message]
            self.app.invalidate()
        self._show(Stream().end(body))
        if commands.is_help(text) and body.get("text"):
            self._say(dim(told("help terminal", language_of("auto", str(body["text"])))))
        if talk is self._talk and (again := talk.follow_up(message)):
            self._pending.append(again)
            self._follow()

    async def _stop(self) -> None:
        """Once a turn: what is typed at it meanwhile changes nothing. It waits for an agentd that is down."""
        if self._stopping:
            return
        self._stopping = True
        stopped = False
        try:
            stopped = await asyncio.to_thread(self._talk.stop, self._pending[0] if self._pending else "")
        finally:
            self._stopping = stopped and bool(self._pending)

    async def _call(self, op: str, **body: Any) -> dict[str, Any]:
        return (await self._agentd.call(op, {"session": self._talk.key, **body}))[0]

    # -- a session and its turns -----------------------------------------------------------------

    async def _enter(self) -> None:
        """Be in `_talk`'s session: show what was missed, and take up the turn that runs there."""
        if self._follower is not None:
            self._follower.cancel()
        self._pending.clear()
        await asyncio.to_thread(self._begin)
        shown = await self._call("session.show")
        model = shown["settings"]["model"] or "the default model"
        self._say(dim(f"session {self._talk.name} · {shown['messages']} messages · {model}"))
        self._catch_up("while you were away:")
        if self._debug:
            self._say(dim((await self._call("session.prompt"))["text"]))
        running = [s["turn"] for s in (await self._call("status"))["sessions"] if s["session"] == self._talk.key and s["turn"]]
        if running:
            self._pending.extend(running)
            self._follow()

    def _begin(self) -> None:
        self._session.close()
        self._session.enter_context(granted(self._talk, self._here))
        if self._logs or self._debug:
            from bubbles.programs.terminal.logs import followed

            self._session.enter_context(followed(self.home, self._talk.key, self._say_from_thread, everything=self._debug))

    def _follow(self) -> bool:
        """Begin to wait for what is pending; False if that is being done."""
        if self._follower is not None and not self._follower.done():
            return False
        self._follower = asyncio.create_task(self._guarded(self._follow_all()))
        return True

    async def _follow_all(self) -> None:
        """Show each turn from its first part to its end. A message that joined a turn ends with it."""
        while self._pending:
            self._stream, self._since, self._stopping = Stream(), time.monotonic(), False
            try:
                question = self._talk.question(self._pending[0], stream=True)
                body = await self._wait(question, lambda part: self._show(self._stream.take(part)))
            except BubblesError as error:
                self._pending.clear()
                self._trouble(error)
                return
            self._pending.popleft()
            if str(body.get("turn")) not in self._shown:
                self._show(self._stream.end(body))
            self._shown.add(str(body.get("turn")))
        self._catch_up("meanwhile:")
        self.app.invalidate()  # a turn may be shorter than a tick of the spinner

    async def _wait(self, question: dict[str, Any], on_part: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        for _ in range(TRIES):
            try:
                return (await self._agentd.call("turn.wait", question, on_part=on_part))[0]
            except Unavailable as error:
                why = error.text
                await asyncio.to_thread(ensure, self.home)
        raise unanswered(self._talk.name, why)

    def _catch_up(self, heading: str) -> None:
        """Show the turns that ended unseen, and remember that all were seen."""
        seen = Seen(self.home, self._talk.key)
        size = seen.size
        missed = [exchange for exchange in seen.missed() if exchange.turn not in self._shown]
        if missed:
            self._say(dim(heading if len(missed) <= _AWAY_MOST else f"{heading} ({len(missed)} turns, the last {_AWAY_MOST} of them)"))
        for exchange in missed[-_AWAY_MOST:]:
            self._exchange(exchange)
        self._shown |= {exchange.turn for exchange in missed}
        seen.up_to(size)

    # -- what is shown ---------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._output.put_nowait(f"{plain(text) if os.environ.get('NO_COLOR') else text}\n")

    def _say_from_thread(self, line: str) -> None:
        self._loop.call_soon_threadsafe(self._say, dim(line))

    def _show(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._say(printed(piece, self._columns))

    def _exchange(self, exchange: Exchange) -> None:
        for words in exchange.words:
            self._say(dim(f"› {_indented(words)}"))
        for reply in exchange.replies:
            self._show([Piece("text", reply)])
        if exchange.notice:
            self._show([Piece("notice", exchange.notice)])

    def _trouble(self, error: BubblesError) -> None:
        self._say(f"\x1b[31m{error.text}\x1b[39m" + (f"\n  try: {error.remedy}" if error.remedy else ""))

    def _trouble_from_thread(self, error: BubblesError) -> None:
        self._loop.call_soon_threadsafe(self._trouble, error)

    async def _print(self) -> None:
        """What is finished goes above the line being typed, all that is there at once."""
        while True:
            text = await self._output.get()
            while not self._output.empty():
                text += self._output.get_nowait()
            # Not `in_terminal`: what is typed while that has the terminal out of raw mode would be echoed, and Enter misread.
            self.app.renderer.erase()
            self.app.output.write_raw(text.replace("\n", "\r\n"))
            self.app.output.flush()
            self.app.invalidate()

    async def _spin(self) -> None:
        """Redraw while something is waited for, and once after."""
        was_waiting = False
        while True:
            await asyncio.sleep(_TICK_S)
            if self._waiting or was_waiting:
                self.app.invalidate()
            was_waiting = self._waiting

    @property
    def _waiting(self) -> bool:
        return bool(self._pending or self._commands)

    @property
    def _columns(self) -> int:
        return self.app.output.get_size().columns

    def _growing(self) -> ANSI:
        lines = render(self._stream.growing, self._columns).splitlines()
        return ANSI("\n".join(lines[-max(3, self.app.output.get_size().rows // 2) :]))

    def _status(self) -> StyleAndTextTuples:
        seconds = int(time.monotonic() - self._since) if self._pending else 0
        frame = _SPINNER[int(time.monotonic() / _TICK_S) % len(_SPINNER)]
        doing = self._stream.doing or ("writing" if self._stream.growing else "thinking")
        if not self._pending:
            doing = next((text.split()[0] for text in self._commands.values()), "")
        return [("fg:ansicyan", f"{frame} "), ("fg:ansibrightblack", f"{doing}" + (f" · {seconds} s · Ctrl-C stops" if seconds else ""))]

    def _prompt(self) -> StyleAndTextTuples:
        return [("bold fg:ansicyan", f"{_short(self._talk.name)} › ")]

    # -- the line --------------------------------------------------------------------------------

    def _layout(self) -> tuple[TextArea, Application[None]]:
        search = SearchToolbar()
        line = TextArea(
            prompt=self._prompt, multiline=True, wrap_lines=True, dont_extend_height=True, history=_history(self.home), completer=_Words(self.home),
            complete_while_typing=False, search_field=search,
        )  # fmt: skip
        growing = Window(FormattedTextControl(self._growing), wrap_lines=False, dont_extend_height=True)
        status = Window(FormattedTextControl(self._status), height=1)
        body = HSplit(
            [
                ConditionalContainer(growing, Condition(lambda: bool(self._stream.growing.strip()))),
                ConditionalContainer(status, Condition(lambda: self._waiting)),
                line,
                search,
            ]
        )
        root = FloatContainer(body, [Float(CompletionsMenu(max_height=8), xcursor=True, ycursor=True)])
        return line, Application(Layout(root, line), key_bindings=self._keys(), erase_when_done=True)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        typing = Condition(lambda: self.app.layout.has_focus(self.input))

        @keys.add("enter", filter=typing)
        @keys.add("c-j", filter=typing)  # Enter, typed before the terminal was ours
        def _(event: KeyPressEvent) -> None:
            text = self.input.text
            if text.strip():
                self.input.buffer.reset(append_to_history=True)
                self._typed.put_nowait(text)

        @keys.add("escape", "enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            self.input.buffer.insert_text("\n")

        @keys.add("c-d", filter=typing & Condition(lambda: not self.input.text))
        def _(event: KeyPressEvent) -> None:
            self._leave()

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        @keys.add("c-c", filter=typing)
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            self._interrupt(self.input.buffer)

        return keys

    def _interrupt(self, buffer: Buffer) -> None:
        if self._pending:
            event = self._take(self._stop())
            self.app.create_background_task(event)
        elif buffer.text:
            buffer.reset()
        else:
            self._say(dim("Ctrl-D or exit leaves"))

    def _leave(self) -> None:
        with contextlib.suppress(Exception):  # a second signal finds it ended
            self.app.exit()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A bug in a task ends the program and is told as one, instead of leaving a screen that shows nothing any more."""
        try:
            await work
        except Exception as error:
            self.app.exit(exception=error)


def printed(piece: Piece, columns: int) -> str:
    """A finished piece as it is printed."""
    match piece.kind:
        case "text":
            return render(piece.text, columns)
        case "answer":
            return clean(piece.text)
        case "tool":
            return dim(f"· {piece.text}")
        case "failed":
            return dim(f"✗ {piece.text}")
        case "note":
            return dim(piece.text)
    return f"\x1b[33m{render(piece.text, columns, colour=False)}\x1b[39m".replace("\n\x1b", "\x1b")


def _indented(text: str) -> str:
    return clean(text).replace("\n", "\n  ")


def _short(name: str) -> str:
    name = name.replace("\n", " ")
    return name if len(name) <= 24 else name[:23] + "…"


def _history(home: Home) -> History:
    """What was typed before, in `channels/cli/typed`."""
    path = home.root / "channels" / "cli" / "typed"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(regular.opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class _Words(Completer):
    """Completes commands and what follows them."""

    def __init__(self, home: Home) -> None:
        self._sessions = home.sessions

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        return (Completion(word, -length) for word, length in offers(document.text_before_cursor, self._sessions))


def talk(home: Home, session: str, *, here: Path | None = None, logs: bool = False, debug: bool = False) -> None:
    """Run the interactive terminal until the person leaves. Lines of the log, if wanted, scroll by between the words."""
    asyncio.run(Screen(home, session, here=here, logs=logs, debug=debug).run())
