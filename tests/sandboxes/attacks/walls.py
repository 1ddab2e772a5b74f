"""Jails that lack one wall, to show that an attack is kept by that wall and not by a mistake in the attack.

WALLS says what is taken away. It does not know which attack needs what: an attack names its wall.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bubbles.config.tools import Sandbox as Settings
from bubbles.sandboxes import Limits, Outcome, spawn
from bubbles.sandboxes.bwrap import Bwrap, Made
from bubbles.sandboxes.furniture import Furniture
from bubbles.sandboxes.inside.jail import Jail
from bubbles.sandboxes.namespace import Namespace
from tests.sandboxes.attacks.arena import OWN, Arena
from tests.sandboxes.attacks.assault import LIMITS


def _same(jail: Jail, _: Arena) -> Jail:
    return jail


def _all_words(words: list[str]) -> list[str]:
    return words


def _as_is(command: str, _: Arena) -> str:
    return command


@dataclasses.dataclass(frozen=True, slots=True)
class Wall:
    """What is taken away: `jail` changes the data, `words` bubblewrap's arguments, `before` what the command is.

    `inherits`: bubblewrap is started with the gateway's environment. `descriptor`: it inherits a directory that the gateway has open.
    `shell`: the words before the command. `unbounded`: it may take much.
    """

    jail: Callable[[Jail, Arena], Jail] = _same
    words: Callable[[list[str]], list[str]] = _all_words
    before: Callable[[str, Arena], str] = _as_is
    inherits: bool = False
    descriptor: bool = False
    unbounded: bool = False
    shell: tuple[str, ...] = ("/bin/bash", "--noprofile", "--norc", "-c")


def _bound(*names: str) -> Callable[[Jail, Arena], Jail]:
    """Further places of the arena, writable."""

    def jail(jail: Jail, arena: Arena) -> Jail:
        return dataclasses.replace(jail, extra=tuple(word for name in names for word in ("--bind", arena.places[name], arena.places[name])))

    return jail


def _without(*names: str) -> Callable[[Jail, Arena], Jail]:
    def jail(jail: Jail, _: Arena) -> Jail:
        return dataclasses.replace(jail, namespaces=tuple(name for name in jail.namespaces if name not in names))

    return jail


def _unfiltered(jail: Jail, _: Arena) -> Jail:
    return dataclasses.replace(jail, seccomp=None)


def _on_the_host_network(jail: Jail, _: Arena) -> Jail:
    return dataclasses.replace(jail, network="host")


def _old_root(jail: Jail, arena: Arena) -> Jail:
    return dataclasses.replace(jail, extra=("--ro-bind", str(arena.root), f"/oldroot{arena.root}"))


def _below_writable(jail: Jail, arena: Arena) -> Jail:
    """As a jail is made that covers a part of what it has bound writable, where that is there."""
    if not os.path.lexists(f"{arena.places['own_work']}/skills"):
        return jail
    return dataclasses.replace(jail, extra=("--ro-bind", "/dev/null", f"{arena.places['own_work']}/skills/PWNED.md"))


def _lacking(*dropped: str) -> Callable[[list[str]], list[str]]:
    """Without these arguments, each one word or several that follow each other."""

    def words(words: list[str]) -> list[str]:
        for text in dropped:
            gone = text.split()
            words = next((words[:at] + words[at + len(gone) :] for at in range(len(words)) if words[at : at + len(gone)] == gone), words)
        return words

    return words


def _bound_as_it_is(path: str, made: str) -> Callable[[list[str]], list[str]]:
    """`path` is the machine's own, where the argument `made` makes a new one."""

    def words(words: list[str]) -> list[str]:
        at = next(at for at in range(len(words)) if words[at : at + 2] == [made, path])
        return [*words[:at], "--dev-bind", path, path, *words[at + 2 :]]

    return words


def _beside_a_neighbour(command: str, arena: Arena) -> str:
    """The jail has a process in it that is somebody else's."""
    keys = f"SERVICE_KEY={arena.canaries['neighbour_key']} GATEWAY_API_KEY={arena.canaries['gateway_key']}"
    kept = f"{arena.places['own_home']}/.kept"
    Path(kept).write_text(arena.canaries["gateway_file"])
    return f"env -i {keys} sleep 3600 9< {kept} & sleep 0.05; rm {kept}; {command}"


def _capable(words: list[str]) -> list[str]:
    at = words.index("--cap-drop")
    return [*words[:at], "--cap-add", *words[at + 1 :]]


WALLS = {
    "files": Wall(_bound("root", "tmp")),  # the owner's files are there
    "other home": Wall(_bound("other_home")),
    "old root": Wall(_old_root),
    "above what is writable": Wall(_below_writable),  # no mount lies below a place that the session may write
    "read-only": Wall(words=_lacking("--remount-ro /")),
    "processes": Wall(_without("pid"), _bound_as_it_is("/proc", "--proc")),
    "lasting": Wall(_without("pid"), lambda words: _bound_as_it_is("/proc", "--proc")(_lacking("--die-with-parent")(words))),
    "alone": Wall(before=_beside_a_neighbour),
    "alone, filter": Wall(_unfiltered, before=_beside_a_neighbour),
    "environment": Wall(words=_lacking("--clearenv"), inherits=True),
    "descriptors": Wall(descriptor=True),
    "no start-up files": Wall(shell=("/bin/bash", "-l", "-c")),
    "filter": Wall(_unfiltered, _lacking("--disable-userns", "--remount-ro /proc")),
    "proc": Wall(words=_lacking("--remount-ro /proc")),
    "capabilities": Wall(_unfiltered, lambda words: _capable(_lacking("--disable-userns", "--remount-ro /proc")(words))),
    "bounds": Wall(unbounded=True),
    "network": Wall(_on_the_host_network),
    "ipc": Wall(_without("ipc")),
    "devices": Wall(words=lambda words: _bound_as_it_is("/dev", "--dev")(_lacking("--size 67108864 --tmpfs /dev/shm", "--remount-ro /dev")(words))),
}


class Weakened(Bwrap):
    """The jail of the attacking session without one wall."""

    def __init__(self, arena: Arena, wall: Wall) -> None:
        much = {"processes": 4096, "file_bytes": 1 << 30, "tmp_bytes": 1 << 30}
        settings = Settings.model_validate({"backend": "bwrap", "limits": much if wall.unbounded else LIMITS})
        super().__init__(arena.home.session(OWN), arena.home.session_home(OWN), settings, network="none")
        self._arena, self._wall = arena, wall

    def jail(self, furniture: Furniture, start: Path, variables: dict[str, str], terminal: bool) -> Jail:
        """As Bwrap.jail, less the wall."""
        return self._wall.jail(super().jail(furniture, start, variables, terminal), self._arena)

    @contextlib.contextmanager
    def made(self, start: Path, variables: dict[str, str] | None = None, *, terminal: bool = False) -> Iterator[Made]:
        """As Bwrap.made, less the wall."""
        with super().made(start, variables, terminal=terminal) as made:
            yield dataclasses.replace(made, argv=[made.argv[0], *self._wall.words(made.argv[1:])])

    async def run(self, command: str, limits: Limits, *, cwd: Path | None = None, output: Any = None) -> Outcome:
        """As Sandbox.run."""
        start = cwd or Path(self._arena.places["own_work"])
        environment = dict(os.environ) if self._wall.inherits else {}
        words = [*self._wall.shell, self._wall.before(command, self._arena)]
        with self.made(start) as made, self._descriptor() as more:
            return await spawn.run(
                [*made.argv, *words], environment, Path("/"), limits, lambda child: Namespace(child, made.info), pass_fds=[*made.fds, *more],
                output=output,
            )  # fmt: skip

    @contextlib.contextmanager
    def _descriptor(self) -> Iterator[list[int]]:
        fd = os.open(self._arena.owner, os.O_RDONLY)
        try:
            yield [fd] if self._wall.descriptor else []
        finally:
            os.close(fd)


def weakened(arena: Arena, wall: str) -> Weakened:
    """The jail without `wall`."""
    return Weakened(arena, WALLS[wall])
