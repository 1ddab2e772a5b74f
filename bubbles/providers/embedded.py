"""A model file run on this machine: llama.cpp in a child process, started by the first ask and ended when nobody asks for a while.

It does not know llama.cpp's library, which only the child loads (bubbles.providers.llama); it speaks to the child's HTTP
server as to any other endpoint, under a key that is made anew for each child.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bubbles import log
from bubbles.errors import ModelDown, Rejected
from bubbles.paths import Home
from bubbles.providers import Entry, gguf
from bubbles.providers.custom import Custom
from bubbles.providers.provider import Answer, Ask, Capabilities

_LOAD_S = 300.0  # a large model from a slow disk
_END_S = 3.0
_DEATH_S = 0.2
_FETCH = "bubbles models fetch"
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES")
_PATIENT = {"OMP_WAIT_POLICY": "passive"}  # its threads else spin for each other: on a busy machine a tenth of the speed
_ANSWER_SHARE = 8  # an answer may take this part of the window: a small model that loses its thread does not find it again


class Embedded:
    """The model of one GGUF file. `idle_s` 0: the child is never ended for idleness."""

    def __init__(self, path: Path | None, *, context_tokens: int = 8192, threads: int = 0, idle_s: float = 600.0) -> None:
        self._path = path
        self._context_tokens = context_tokens
        self._threads = threads
        self._idle_s = idle_s
        self._traits: gguf.Traits | None = None
        self._turn = asyncio.Lock()  # one request at a time: the wait for another's is no silence of the model's
        self._child: Child | None = None
        self._asking = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    def open(cls, entry: Entry, section: Any, home: Home) -> Embedded:
        """The model of a settings section; where it names none, the first in the home's models."""
        found = Path(section.model_path) if section.model_path else next(iter(sorted(home.models.glob("*.gguf"))), None)
        return cls(found, context_tokens=section.context_tokens, threads=section.threads, idle_s=section.idle_s)

    def capabilities(self, model: str) -> Capabilities:
        with contextlib.suppress(Rejected):
            self._look()
        found = self._traits or gguf.Traits()
        window = min(self._context_tokens, found.window_tokens or self._context_tokens)
        return Capabilities(
            tools=found.tools, vision=False, cache=True, window_tokens=window, output_tokens=0, reasoning="drop", after_tool="user_ok"
        )

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        """One request to the child, which is started first where none is running. Raises Rejected where there is no model file."""
        self._asking += 1
        self._stop_timer()
        try:
            async with self._turn:
                return await self._ask(ask, on_text)
        finally:
            self._asking -= 1
            self._idle_later()

    async def _ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        child = await self._running()
        most = max(1, self.capabilities(ask.model)["window_tokens"] // _ANSWER_SHARE)
        asked = replace(ask, model=self._name, max_tokens=min(ask.max_tokens, most))
        try:
            return replace(await child.endpoint.ask(asked, on_text), model=self._name)
        except ModelDown:
            with contextlib.suppress(TimeoutError):  # if it died, let that be known before the next ask
                async with asyncio.timeout(_DEATH_S):
                    await child.process.wait()
            raise

    async def learn(self, model: str) -> None:
        """Nothing: the file tells."""

    async def models(self) -> list[str]:
        self._look()
        return [self._name]

    def state(self) -> dict[str, Any]:
        running = self._child is not None and self._child.process.returncode is None
        return {"model": str(self._path or ""), "pid": self._child.process.pid if running and self._child else 0}

    async def close(self) -> None:
        self._stop_timer()
        child, self._child = self._child, None
        if child:
            await child.end()
        if self._ending:
            await self._ending

    @property
    def _name(self) -> str:
        return self._path.stem if self._path else ""

    def _look(self) -> Path:
        """The model's file. Raises Rejected where it is not there, or not one."""
        if self._path is None:
            raise Rejected("there is no embedded model", remedy=_FETCH, attempts=0)
        if self._traits is None:
            self._traits = gguf.traits(self._path)
        return self._path

    async def _running(self) -> Child:
        """The child, if need be a new one. One that died is not mourned: whoever asked it was told ModelDown and asks again."""
        if self._child is None or self._child.process.returncode is not None:
            if self._child is not None:
                log.event("model.fail", f"the embedded model's process ended ({self._child.process.returncode})", priority="warning")
                await self._child.end()
            self._child = None
            path = self._look()
            if importlib.util.find_spec("xllamacpp") is None:
                raise Rejected("this installation has no llama.cpp", remedy="pip install 'bubbles-assistant[local]'", attempts=0)
            self._child = await Child.start(path, self.capabilities("")["window_tokens"], self._threads)
        return self._child

    def _idle_later(self) -> None:
        if self._idle_s and not self._asking:
            self._stop_timer()
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._idle)

    def _idle(self) -> None:
        child, self._child = self._child, None
        if child:
            log.debug(f"the embedded model is unloaded after {self._idle_s:g} s")
            self._ending = asyncio.get_running_loop().create_task(child.end())

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


class Child:
    """A running llama.cpp server and the endpoint that it is."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.endpoint: Custom
        self._lines: deque[str] = deque(maxlen=10)
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def start(cls, path: Path, context_tokens: int, threads: int) -> Child:
        """A child that has loaded its model and is in good health. Raises Rejected where it cannot load it, ModelDown where it fails otherwise."""
        pipe = asyncio.subprocess.PIPE
        argv = [sys.executable, "-m", "bubbles.providers.llama"]
        environment = _PATIENT | {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        child = cls(process)
        try:
            key = secrets.token_urlsafe(32)
            wanted = {"model": str(path), "context_tokens": context_tokens, "threads": threads, "key": key, "parent": os.getpid()}
            child.endpoint = Custom("embedded", await child._load(wanted) + "/v1", api_key=key)
            await child.endpoint.models()
            return child
        except BaseException:
            await child.end()
            raise

    async def _load(self, wanted: dict[str, Any]) -> str:
        """The address at which the child serves."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(wanted).encode() + b"\n")
        try:
            async with asyncio.timeout(_LOAD_S):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise ModelDown(f"{wanted['model']} was not loaded within {_LOAD_S:g} s") from None
        if not line:
            await self.process.wait()
            raise ModelDown(f"the embedded model's process ended while it loaded ({self.process.returncode}): {self._last}")
        told = json.loads(line)
        if "address" not in told:
            raise Rejected(f"llama.cpp cannot run {wanted['model']}: {told.get('error')}; {self._last}", remedy=_FETCH, attempts=0)
        return str(told["address"])

    async def end(self) -> None:
        """Its standard input ends, and it does; or else it is killed."""
        if self.process.returncode is None:
            assert self.process.stdin
            self.process.stdin.close()
            try:
                async with asyncio.timeout(_END_S):
                    await self.process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()
                await self.process.wait()
        await self._reading
        if hasattr(self, "endpoint"):
            await self.endpoint.close()

    async def _read(self) -> None:
        """llama.cpp's own lines: read always, since a full pipe would stop it; shown at debug."""
        assert self.process.stderr
        while block := await self.process.stderr.read(65536):
            for line in block.decode("utf-8", "replace").splitlines():
                self._lines.append(line)
                log.debug(line, provider="embedded")

    @property
    def _last(self) -> str:
        return next((line.strip() for line in reversed(self._lines) if line.strip()), "it said nothing")
