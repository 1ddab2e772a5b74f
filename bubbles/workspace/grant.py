"""Further roots that the owner lends to a session.

It does not know who the owner is: whoever sets a grant asks `check` first, and the rules are `bubbles.lending`'s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bubbles import lending
from bubbles.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Grant:
    """A directory outside the session that its tools may use: `mode` is "ro" or "rw"."""

    path: Path
    mode: str = "ro"

    def check(self, home: Path) -> Path:
        """The real path of what is lent; `home` is the root of this Bubbles. Raises Misconfigured where it may not be lent."""
        if self.mode not in ("ro", "rw"):
            raise Misconfigured(f"a workspace's mode is {self.mode!r}", remedy='write "ro" or "rw"')
        path = Path(os.path.expanduser(self.path))
        if why := lending.refused(path, home):
            raise Misconfigured(f"{path} cannot be a workspace: {why}", remedy="grant a project's own directory")
        if self.mode == "rw" and lending.holds_program(path):
            raise Misconfigured(f"{path} cannot be a workspace to write in: {lending.HOLDS_PROGRAM}", remedy="grant it to be read")
        real = Path(os.path.realpath(path))
        if not os.path.isdir(real):
            raise Misconfigured(f"the workspace {path} is not there", remedy=f"mkdir -p {path}")
        return real


def apart(grants: Sequence[Grant]) -> list[Grant]:
    """Those of `grants` that stand by themselves.

    One that lies, as it is spelt, in truth or by a link on the way, within another that may be written is seen as a part of that one, with its
    rights: whoever writes there could have it lead anywhere by the next time.
    """
    ways = [lending.ways(Path(os.path.expanduser(grant.path))) for grant in grants]
    places = range(len(grants))
    return [grants[place] for place in places if not any(_covers(grants, ways, other, place) for other in places if other != place)]


def _covers(grants: Sequence[Grant], ways: Sequence[set[Path]], other: int, place: int) -> bool:
    if grants[other].mode != "rw":
        return False
    top = Path(os.path.realpath(os.path.expanduser(grants[other].path)))
    if not any(way.is_relative_to(top) for way in ways[place]):
        return False
    same = top == Path(os.path.realpath(os.path.expanduser(grants[place].path)))
    return not same or grants[place].mode != "rw" or other < place
