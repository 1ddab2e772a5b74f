"""Backend `bwrap`: each command in a jail of its own, which shows the session and nothing else of the owner's.

Where no jail can be made a command is refused, with the reason; it never runs outside one.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bubbles.errors import OutsideWorkspace, Refused
from bubbles.paths import Home
from bubbles.sandboxes import binary, environment, guard, mark, place, probe, public, spawn, tether
from bubbles.sandboxes.bounding import bounding
from bubbles.sandboxes.furniture import DOORWAY, RULES, Furniture, etc, filter_of, identity, python, texts, top
from bubbles.sandboxes.inside.jail import USER, Jail, arguments
from bubbles.sandboxes.namespace import Namespace
from bubbles.sandboxes.proxy import Proxy
from bubbles.sandboxes.sandbox import Bounds, Limits, Outcome
from bubbles.workspace import Grant
from bubbles.workspace.grant import apart

_DOORWAY = Path(__file__).with_name("inside").joinpath("doorway.py").read_bytes()
_NO_PYTHON = "/config network none, or install Bubbles with a Python of its own (pipx install, or /usr/bin/python3)"
_LIMITS = Path(__file__).with_name("limits.sh").read_bytes()
_OWN = ("processes:rlimit", "tmp:size") if os.geteuid() else ("tmp:size",)  # the kernel does not count what root starts


@dataclass(frozen=True, slots=True)
class Made:
    """A jail that can be started: `argv` lacks the command, which comes behind it; `fds` are to be inherited, `info` is read by Namespace."""

    argv: list[str]
    fds: list[int]
    info: int


class Bwrap:
    """Commands of one session, each in a jail."""

    name = "bwrap"
    promise = "a command sees this session's files and nothing else of the owner's; it cannot reach other sessions, settings or services"

    def __init__(
        self,
        session_dir: Path,
        session_home: Path,
        settings: Any,
        *,
        grants: Sequence[Grant] = (),
        path_append: str = "",
        timezone: str = "",
        network: str = "",
    ) -> None:
        environment.check(settings.pass_env)
        self._session, self._home = session_dir, session_home
        self._root = session_dir.parent.parent  # HOME/sessions/KEY
        self._pass_env, self._path_append, self._timezone = tuple(settings.pass_env), path_append, timezone
        self._grants, self._binds, self._debug = tuple(apart(grants)), tuple(settings.binds), settings.allow_debug
        self._bounds = Bounds.of(settings.limits)
        self._domains = tuple(settings.allow_domains)
        self._settings, self._tried_for = settings, settings.model_dump_json()
        self.network = network or "public"

    async def run(self, command: str, limits: Limits, *, cwd: Path | None = None, output: Callable[[bytes], None] | None = None) -> Outcome:
        """As Sandbox.run."""
        start = place.start(cwd, self._session, self._grants)
        if why := guard.destroys(command, self._reach(), start):
            raise Refused(f"the command was not run: {why}")
        shell, own = spawn.inside(command), mark.fresh(self._root)
        with tether.holding(own), bounding(self._bounds, self._written(), own=_OWN) as bounds, self.made(start, {mark.MARK: own}) as made:
            async with self._way() as way:
                argv = spawn.joining([*made.argv, *(_through(way.fd) if way else ()), *shell], bounds.join)
                fds = [*made.fds, *([way.fd] if way else ())]
                more: dict[str, Any] = {"pass_fds": fds, "output": output, "watchers": bounds.watchers}
                outcome = bounds.told(await spawn.run(argv, {}, Path("/"), limits, lambda child: Namespace(child, made.info), **more))
            return _noted(outcome, way.note) if way else outcome

    def _way(self) -> contextlib.AbstractAsyncContextManager[public.Way | None]:
        """The one way to the network that a command has, where it has one and it is not all there is."""
        if self.network != "public":
            return contextlib.nullcontext()
        return public.opened(Proxy(self._domains, public.told))

    def _written(self) -> list[Path]:
        """Where a command can write, each on what may be a disk of its own."""
        lent = [Path(os.path.expanduser(grant.path)) for grant in self._grants if grant.mode == "rw"]
        return [self._session, *lent, *(Path(bind.path) for bind in self._binds if bind.mode == "rw")]

    def _reach(self) -> guard.Reach:
        lent = (Path(os.path.expanduser(grant.path)) for grant in self._grants)
        return guard.Reach.of(self._session, (self._session, *lent), str(self._home), self.environment()["PATH"])

    @contextlib.contextmanager
    def made(self, start: Path, variables: dict[str, str] | None = None, *, terminal: bool = False) -> Iterator[Made]:
        """A jail for one command that starts in `start` and has `variables` besides; nothing is left of it when the block ends.

        Raises Refused where none can be made, OutsideWorkspace for a place that it does not show.
        """
        with Furniture() as furniture:
            shape = self.jail(furniture, start, variables or {}, terminal)
            info = shape.info if shape.info is not None else -1
            yield Made([self._binary(), *arguments(shape)], furniture.fds, info)

    def jail(self, furniture: Furniture, start: Path, variables: dict[str, str], terminal: bool) -> Jail:
        """The shape of one jail, its descriptors held by `furniture`."""
        furniture.session(self._session, self._home)
        furniture.lend(self._grants, self._root)
        for bind in (each for each in self._binds if os.path.lexists(each.path)):  # a disk that is away keeps nobody from working
            furniture.bind(Path(bind.path), Path(bind.to or bind.path), self._root, writable=bind.mode == "rw")
        furniture.python(self._root)
        start = furniture.spelt(start)
        if start != self._session and not furniture.shows(start):
            raise OutsideWorkspace(f"{start} is not seen in the jail", remedy=f"start in {self._session / 'work'}")
        uid, gid = identity()
        files = {**texts(str(self._home), self.network), RULES: _LIMITS}
        if self.network == "public":
            if not (python().startswith("/usr/") or furniture.shows(Path(python()))):
                raise Refused(f"the command was not run: {python()}, which opens its way to the network, cannot be shown there", remedy=_NO_PYTHON)
            files[DOORWAY] = _DOORWAY
        return Jail(
            mounts=tuple(furniture.mounts),
            links=furniture.links,
            shelves=(str(self._root),) if str(self._root).startswith("/tmp/") else (),
            texts=furniture.files() | {path: furniture.text(data) for path, data in files.items()},
            top=top(),
            environment=self.environment() | variables,
            cwd=str(start),
            uid=uid,
            gid=gid,
            network=self.network,
            etc=etc(),
            tmp_bytes=self._bounds.tmp_bytes,
            seccomp=furniture.text(filter_of(platform.machine(), self._debug)),
            info=furniture.blank(),
            terminal=terminal,
        )

    def environment(self) -> dict[str, str]:
        """The variables that a command gets."""
        made = environment.private(os.environ, self._home, self._pass_env, self._path_append, self._timezone)
        own = {"USER": USER, "LOGNAME": USER, "XDG_RUNTIME_DIR": f"/run/user/{identity()[0]}", "BASH_ENV": RULES}
        return made | own | spawn.bounded(self._bounds, processes=self._bounds.processes) | (public.VARIABLES if self.network == "public" else {})

    def describe(self) -> dict[str, Any]:
        """As Sandbox.describe."""
        with Furniture() as furniture:
            shape = self.jail(furniture, self._session / "work", {}, False)
        return {
            "backend": self.name,
            "promise": self.promise,
            "cwd": shape.cwd,
            "home": str(self._home),
            "environment": sorted(shape.environment),
            "workspaces": [{"path": str(grant.path), "mode": grant.mode} for grant in self._grants],
            "network": self.network,
            "shown": [{"path": mount.at, "mode": "rw" if mount.writable else "ro"} for mount in shape.mounts],
        }

    def _binary(self) -> str:
        """The bubblewrap that holds; one real jail is tried first, once for each bubblewrap. Raises Refused where none does."""
        known = _holding.get((self._root, self._tried_for))
        if known and binary.stamp(known[0]) == known[1]:
            return known[0]
        verdict = probe.verdict(Home(self._root), self._settings)
        if not verdict.ok:
            raise Refused(f"the command was not run, because no jail can be made: {verdict.why}", remedy=verdict.remedy)
        _holding[(self._root, self._tried_for)] = verdict.binary, binary.stamp(verdict.binary)
        return verdict.binary


_holding: dict[tuple[Path, str], tuple[str, tuple[int, int]]] = {}  # by home and settings: the bubblewrap that was tried, and what it was then


def _through(fd: int) -> list[str]:
    """The launcher that opens the way to the network, whose other end is `fd`, and becomes the command."""
    return [python(), "-I", "-S", DOORWAY, str(fd), "--"]


def _noted(outcome: Outcome, note: str) -> Outcome:
    return replace(outcome, note="; ".join(filter(None, (outcome.note, note))))
