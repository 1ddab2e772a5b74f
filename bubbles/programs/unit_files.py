"""The texts of our units for one home: the files of `units/`, filled in with where the program, the home and its sockets lie.

    @BIN@         the directory of the executables
    @HOME@        the home; `%h/.bubbles` where it is the usual one, so that one text serves everybody
    @SOCKETS@     the name of the sockets' directory in the runtime directory
    @PROGRAM@     a line for each place of the program and its interpreter that confinement would hide
    @MODEL@       a line for the embedded model's file, where it lies outside the home
    @WORKSPACES@  a line for each granted directory that may be written
    @TMP@         a line for each place, of the program, the home and these directories, that lies where a private /tmp would hide it

It does not know where units are installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bubbles
from bubbles import regular
from bubbles.errors import Misconfigured
from bubbles.paths import Home

MARK = "# Written by `bubbles units install`, and again by the next one."
STRICT = "bubbles-agentd.service.d/strict.conf"
_SEEN = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix", "/gnu")  # no unit hides what lies below
_TMP = ("/tmp", "/var/tmp")


def templates() -> Path:
    """The directory of the units: in an installed package beside its modules, in a checkout at the top level."""
    inside = Path(bubbles.__file__).parent / "units"
    return inside if inside.is_dir() else inside.parents[1] / "units"


@dataclass(frozen=True, slots=True)
class Granted:
    """What the configuration adds to what units may see: the embedded model's file, and directories that tools may write."""

    model: Path | None = None
    workspaces: tuple[Path, ...] = ()


def texts(home: Home, granted: Granted, *, strict: bool = False, installed: Path | None = None) -> dict[str, str]:
    """The text of each file, by its name below systemd/user. Raises Misconfigured where a path cannot stand in a unit.

    `installed`: where a package will have put the executables, with all that they need below /usr; None: this program, where it is.
    """
    filled = {
        "BIN": _escaped(installed or executables()),
        "HOME": _home(home),
        "SOCKETS": f"bubbles{home.mark}",
        "PROGRAM": _lines("BindReadOnlyPaths", [] if installed else places()),
        "MODEL": _lines("BindReadOnlyPaths", [granted.model] if granted.model else [], absent="-"),
        "WORKSPACES": _lines("ReadWritePaths", granted.workspaces, absent="-"),
        "TMP": _hidden_by_tmp(home, granted, [] if installed else places()),
    }
    found = {}
    for path in sorted(templates().rglob("*.in")):
        name = str(path.relative_to(templates()).with_suffix(""))
        if strict or name != STRICT:
            found[name] = _filled(path.read_text("utf-8"), filled)
    return found


def _filled(template: str, values: dict[str, str]) -> str:
    text = re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], template)
    return f"{MARK}\n# What is to differ belongs into a drop-in: systemctl --user edit UNIT\n\n{text}"


def _hidden_by_tmp(home: Home, granted: Granted, program: list[Path]) -> str:
    kinds = (("BindReadOnlyPaths", program, ""), ("BindPaths", [home.root], ""), ("BindPaths", granted.workspaces, "-"))
    hidden = [(kind, [path for path in paths if _is_below(path, map(Path, _TMP))], absent) for kind, paths, absent in kinds]
    return "\n".join(_lines(kind, paths, absent=absent) for kind, paths, absent in hidden if paths) or _lines("", [])


def _home(home: Home) -> str:
    return "%h/.bubbles" if str(home.root) == os.path.expanduser("~/.bubbles") else _escaped(home.root)


def executables() -> Path:
    """The directory of `bubbles-agentd` and its like. Raises Misconfigured where there is none."""
    checkout = Path(bubbles.__file__).parents[1] / "bin"
    for place in (checkout, Path(sysconfig.get_path("scripts")), Path(site.getuserbase()) / "bin"):
        if os.access(place / "bubbles-agentd", os.X_OK):
            return place
    if found := shutil.which("bubbles-agentd"):
        return Path(found).parent
    raise Misconfigured("bubbles-agentd is nowhere to be found", remedy="install Bubbles so that its executables are there: pipx, pip, or a checkout")


def places() -> list[Path]:
    """The directories that hold the program, its interpreter and their libraries, none within another, but those that every unit sees."""
    package = Path(bubbles.__file__).parent
    checkout = package.parent if (package.parent / "bin" / "bubbles").exists() else None
    own = [checkout / "bin", package, checkout / "sandbox", checkout / "units", checkout / "templates"] if checkout else [package.parent, *_scripts()]
    interpreter = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_prefix).resolve(), Path(sys.executable).resolve().parent]
    wanted = sorted({path for path in (*own, *interpreter) if path.exists() and not _is_below(path, map(Path, _SEEN))})
    return [path for path in wanted if not _is_below(path, [other for other in wanted if other != path])]


def _scripts() -> list[Path]:
    """Executables that lie in a directory of many others: the files one by one."""
    place = executables()
    return [] if _is_below(place, [Path(sys.prefix)]) else sorted(place.glob("bubbles*"))


def _is_below(path: Path, others: Any) -> bool:
    return any(path.is_relative_to(other) for other in others)


def _lines(directive: str, paths: Any, *, absent: str = "") -> str:
    """A line for each path; "" is a comment's end. One that may be `absent` is marked so."""
    return "\n".join(f'{directive}="{absent}{_escaped(path)}"' for path in paths) or "# (none)"


def _escaped(path: Path) -> str:
    """A path as it stands within double quotes in a unit. Raises Misconfigured for what no unit can name."""
    text = str(path)
    if ":" in text or not text.isprintable():
        raise Misconfigured(f"systemd cannot be told of the path {text!r}", remedy="one without colons and control characters")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def granted(home: Home) -> Granted:
    """What the home's configuration, and that of its sessions, grant. Raises Misconfigured."""
    from bubbles import config

    settings = config.load(home, "providers", "tools", env={})
    model = Path(settings.providers.embedded.model_path) if settings.providers.embedded.model_path else None
    if model is not None and (model.is_relative_to(home.models) or _is_below(model, map(Path, _SEEN))):
        model = None
    wanted = [*settings.tools.workspaces, *_of_sessions(home)]
    return Granted(model, tuple(sorted({Path(grant.path) for grant in wanted if grant.mode == "rw"})))


def _of_sessions(home: Home) -> Iterator[Any]:
    """What sessions are granted by their own files; one that cannot be read is told of by `bubbles status`."""
    from bubbles.config.tools import Grant

    for path in sorted(home.sessions.glob("*/config.json")):
        try:
            own = json.loads(regular.read(path)).get("workspaces", [])
            yield from (Grant.model_validate(each) for each in own)
        except (OSError, ValueError, AttributeError, TypeError):
            continue
