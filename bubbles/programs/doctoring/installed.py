"""The program itself: the Python it runs on, and the packages it needs.

It does not know the packages' names: the metadata of the installation tells them, so that none has to be imported to be missed.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from bubbles.paths import typed
from bubbles.programs.doctoring.finding import Finding, Findings, Patient, fail, note, ok, warn

DISTRIBUTION = "bubbles-assistant"
_NEED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?")


def python(patient: Patient) -> Findings:
    """Is this Python new enough?"""
    try:
        wanted = (metadata.metadata(DISTRIBUTION)["Requires-Python"] or "").removeprefix(">=")
    except metadata.PackageNotFoundError:
        yield warn(f"Bubbles is not installed in {sys.prefix}, it only lies there", _install("bubbles-assistant"))
        return
    here = platform.python_version()
    if _number(here) < _number(wanted):
        yield fail(f"Python {here} is too old: {wanted} is needed", "install a newer Python, and Bubbles into it")
    else:
        yield ok(f"Python {here} ({sys.executable})")


def packages(patient: Patient) -> Findings:
    """Is every package here that is needed, and new enough?"""
    needs = list(needed())
    wrong = [found for name, least in needs if (found := lacking(name, least))]
    yield from wrong
    if not wrong:
        yield ok(f"all {len(needs)} packages are here") if needs else note("no list of packages is here to compare with")


def needed(extra: str = "") -> Iterator[tuple[str, str]]:
    """(name, least version or "") of every package that an installation needs; with `extra`, of those which that one adds."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        need, _, marker = line.partition(";")
        named = re.search(r"""extra == ["']([^"']+)["']""", marker)
        if (named[1] if named else "") == extra and _is_for_here(marker) and (found := _NEED.match(need.strip())):
            yield found[1], found[2] or ""


def _is_for_here(marker: str) -> bool:
    """Whether a need that names systems or machines means this one.

    >>> _is_for_here(' sys_platform == "win32"'), _is_for_here("")
    (False, True)
    """
    here = {"sys_platform": sys.platform, "platform_machine": platform.machine()}
    named = {name: re.findall(rf"""{name} == ["']([^"']+)["']""", marker) for name in here}
    return all(here[name] in values for name, values in named.items() if values)


def lacking(name: str, least: str) -> Finding | None:
    """What is wrong with a package; None where nothing is."""
    wanted = f"{name}>={least}" if least else name
    try:
        here = metadata.version(name)
    except metadata.PackageNotFoundError:
        return fail(f"the package {name} is not installed", _install(wanted))
    return fail(f"the package {name} is {here}; {least} is needed", _install(wanted)) if _number(here) < _number(least) else None


def _install(wanted: str) -> str:
    source = Path(__file__).parents[3]
    here = f"-e {typed(source)}" if (source / "pyproject.toml").is_file() else f"--upgrade '{wanted}'"
    return f"{typed(sys.executable)} -m pip install {here}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
