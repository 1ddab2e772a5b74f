"""Keep Bubbles on by systemd: write its units for your service manager, take them away, see whether they are as they should be.

install writes them, enables the channels that the configuration switches on, and says what to type next; with --now it
types that itself. It may be run again at any time, and has to be when Bubbles has moved, or the configuration grants
another model file. With --strict, agentd may write nothing of yours but the home of Bubbles and the workspaces that are
granted for writing now: a directory that `bubbles agent --here` lends, or that is granted later, can be read, and writing
there fails (for the latter, until install is run again). That stays so until --no-strict.

A unit is changed by a drop-in of yours (`systemctl --user edit bubbles-modeld`), never in its file. remove stops and
deletes what install wrote, and leaves your drop-ins. SECURITY.md says what each unit may see, and how to hand it a key.

Input:
  config.json; the units that are there
Output:
  what was done, and what to do next; of verify, what differs or is wrong
Exit codes:
  0   done; with verify: all is as install would write it, and systemd finds no fault
  1   verify: something differs, is wrong, or is not installed
  64  the call is wrong
  69  no service manager answers, it does not do what it is asked, or a unit does not start
  75  bubbles gateway runs everything, or the directory of units cannot be written
  78  the units of another home are installed, a file in the way is not ours, or the configuration is wrong
Examples:
  bubbles units install
  bubbles units install --now --strict
  bubbles units verify && systemctl --user restart bubbles.target
  bubbles units install --to debian/bubbles/usr/lib/systemd/user --bin /usr/bin
  bubbles units remove
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import click

from bubbles.bus import is_running
from bubbles.errors import NO, OK, Misconfigured, TryAgain, Unavailable, Usage
from bubbles.paths import Home
from bubbles.programs import excerpt, unit_files
from bubbles.programs.page import verbs
from bubbles.programs.unit_files import MARK, STRICT, Granted
from bubbles.systemd import SERVICES, TARGET, TIDY, UserManager, lingers, unit_of

_VERIFIED_S = 60.0


@verbs("units", __doc__)
def main() -> None: ...


@main.command("install")
@click.option("--now", is_flag=True, help="Enable the target and start it; restart what runs by an older text.")
@click.option("--strict/--no-strict", "strict", default=None, help="Keep agentd and all commands from writing elsewhere in your home, or no longer.")
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help="Only write them, into DIR, for any user's usual home: for packagers.")
@click.option("--bin", "installed", type=click.Path(path_type=Path), metavar="DIR", help="With --to: where the executables will be, below /usr.")
def install_verb(now: bool, strict: bool | None, to: Path | None, installed: Path | None) -> int:
    """Write the units, and tell the service manager."""
    if installed and not to:
        raise Usage("--bin is for packagers, who write into a directory of theirs", remedy="bubbles units install --to DIR --bin /usr/bin")
    if to is not None:
        usual = Home(Path(os.path.expanduser("~/.bubbles")))
        for name, text in unit_files.texts(usual, Granted(), strict=bool(strict), installed=installed).items():
            _write(to / name, text)
            click.echo(to / name)
        return OK
    return install(Home.find(), now=now, strict=strict)


@main.command("remove")
def remove_verb() -> None:
    """Stop them, and delete what install wrote."""
    remove(Home.find())


@main.command("verify")
def verify_verb() -> int:
    """Compare what is installed with what install would write, and let systemd check it."""
    return verify(Home.find())


@main.command("excerpt", hidden=True)
@click.argument("program")
@click.argument("to", type=click.Path(path_type=Path))
def excerpt_verb(program: str, to: Path) -> None:
    """Write to TO what the unit of PROGRAM is shown of config.json. The units call it."""
    excerpt.write(Home.find(), program, to)


def install(home: Home, *, now: bool = False, strict: bool | None = None) -> int:
    """Write the units of this home and take them up. Raises Misconfigured where others are in the way, Unavailable where the manager refuses."""
    home.prepare()
    manager = UserManager.reach()
    _only_ours(home, manager)
    wanted = texts(home, strict)
    there = {name: _read(directory() / name) for name in _written()}
    written = [name for name, text in wanted.items() if there.get(name) != text]
    for name in written:
        _write(directory() / name, wanted[name])
    for name in (gone := there.keys() - wanted.keys()):
        _delete(directory() / name)
    click.echo(f"{directory()}: {_counted(len(written), 'file')} written, {len(wanted) - len(written)} as they should be")
    if manager is None:
        if now:
            raise Unavailable("no service manager of yours answers here, so nothing is started", remedy="bubbles gateway")
        click.echo("No service manager of yours answers here. They are taken up when you log in next; then: bubbles units install --now")
        return OK
    manager.call("daemon-reload")
    _seen(manager)
    _enable_channels(home, manager)
    changed = bool(written or gone)
    if now and (pid := is_running(home, "gateway")):
        raise TryAgain(f"bubbles gateway (pid {pid}) runs everything", remedy=f"end it by Ctrl-C, then: systemctl --user enable --now {TARGET}")
    return _start(manager, changed) if now else _say_next(manager, changed)


def directory() -> Path:
    """Where a user's own units lie."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(config if os.path.isabs(config) else os.path.expanduser("~/.config")) / "systemd" / "user"


def texts(home: Home, strict: bool | None = None) -> dict[str, str]:
    """What should be installed for this home. `strict` None: as it is now. Raises Misconfigured."""
    if strict is None:
        strict = _is_ours(directory() / STRICT)
    return unit_files.texts(home, unit_files.granted(home), strict=strict)


def differences(home: Home) -> list[str]:
    """The lines of a diff from what is installed to what should be; none where they are one. Raises Misconfigured."""
    wanted = texts(home)
    lines: list[str] = []
    for name in sorted({*wanted, *_written()}):
        before, after = (_read(directory() / name) or "").splitlines(), wanted.get(name, "").splitlines()
        lines += difflib.unified_diff(before, after, f"installed/{name}", f"wanted/{name}", lineterm="")
    return lines


def faults(names: Iterable[str]) -> list[str]:
    """What systemd says against the installed units. Raises Unavailable where it cannot be asked."""
    command = ["systemd-analyze", "--user", "--man=no", "verify", *(str(directory() / name) for name in names if not name.endswith(".conf"))]
    try:
        with tempfile.TemporaryDirectory() as runtime:  # for who has none: it wants to make a directory there
            env = {**os.environ, "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR") or runtime}
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_VERIFIED_S, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable("systemd-analyze cannot be run", remedy="install systemd") from error
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return said or (["systemd-analyze finds a fault and does not say which"] if done.returncode else [])


def verify(home: Home) -> int:
    """Print what is wrong with the installed units, if anything. The exit status."""
    _only_ours(home, UserManager.reach())
    if not _written():
        print("bubbles: the units are not installed\n  try: bubbles units install", file=sys.stderr)
        return NO
    differing, wrong = differences(home), faults(_written())
    for line in [*differing, *wrong]:
        print(line)
    if differing:
        print("bubbles: what is installed is not what this version and configuration want\n  try: bubbles units install --now", file=sys.stderr)
    return NO if differing or wrong else OK


def remove(home: Home) -> None:
    """Stop the units of this home and delete their files. Raises Misconfigured where they are another home's."""
    manager = UserManager.reach()
    _only_ours(home, manager)
    names = _written()
    if manager is not None and names:
        channels = [unit_of(channel) for channel in manager.channels()]
        units = manager.show(TARGET, *SERVICES, *TIDY, *channels)
        manager.call("stop", *(name for name, unit in units.items() if unit.is_installed))
        manager.call("disable", *(name for name in (TARGET, *channels) if units[name].is_installed))
    for name in names:
        _delete(directory() / name)
    _unlink_all()
    shutil.rmtree(f"{home.sockets}.own", ignore_errors=True)  # what units were shown of config.json
    if manager is not None:
        manager.call("daemon-reload")
        with contextlib.suppress(Unavailable):  # where none has failed
            manager.call("reset-failed", "bubbles*")
    click.echo(f"{directory()}: {_counted(len(names), 'file')} deleted; sessions and configuration stay in {home.root}")
    for path in sorted(directory().glob("bubbles*")):
        click.echo(f"left alone, it is yours: {path}")


# -- files -------------------------------------------------------------------------------------------


def _written() -> list[str]:
    """The names of the files that an install wrote."""
    found = [*directory().glob("bubbles*"), *directory().glob("bubbles*.d/*.conf")]
    return sorted(str(path.relative_to(directory())) for path in found if _is_ours(path))


def _is_ours(path: Path) -> bool:
    return (_read(path) or "").startswith(MARK)


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace") if path.is_file() else None
    except OSError:
        return None


def _write(path: Path, text: str) -> None:
    """Put a file in place in one step."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, "utf-8")
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise TryAgain(f"cannot write {path}: {error.strerror}", remedy=f"look at: ls -ld {path.parent}") from error


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent != directory():
        with contextlib.suppress(OSError):  # a person's drop-ins are in it
            path.parent.rmdir()


def _unlink_all() -> None:
    """Take away what enabled units that are gone."""
    for link in directory().glob("*.wants/bubbles*"):
        if link.is_symlink() and not link.exists():
            _delete(link)


def _only_ours(home: Home, manager: UserManager | None) -> None:
    """Raises Misconfigured where units of another home are installed, or files that no install wrote."""
    for path in sorted(directory().glob("bubbles*")):
        if path.name in _names() and path.is_symlink():
            raise Misconfigured(f"{path} is a link: masked, or kept elsewhere", remedy=f"systemctl --user unmask {path.name}; or remove it")
        if path.name in _names() and not _is_ours(path):
            raise Misconfigured(f"{path} is not one that `bubbles units` wrote", remedy="move it away; what is to differ belongs into a drop-in")
    theirs = manager.home_of_units() if manager is not None else _home_of(_read(directory() / SERVICES[0]) or "")
    if theirs is not None and os.path.realpath(theirs) != os.path.realpath(home.root):
        remedy = f"BUBBLES_HOME={shlex.quote(str(theirs))} bubbles units remove"
        raise Misconfigured(f"the units that are installed are for the home {theirs}", remedy=remedy)


def _home_of(text: str) -> Path | None:
    """The home that the text of one of our units names."""
    found = re.search(r'^Environment="BUBBLES_HOME=(.*)"$', text, re.MULTILINE)
    named = {"%h": os.path.expanduser("~"), "%%": "%", "\\\\": "\\", '\\"': '"'}
    return Path(re.sub(r"%.|\\.", lambda each: named.get(each[0], each[0]), found[1])) if found else None


def _names() -> list[str]:
    return [path.stem for path in unit_files.templates().glob("*.in")]


# -- the service manager -----------------------------------------------------------------------------


def _seen(manager: UserManager) -> None:
    """Raises Misconfigured where the manager does not find what was written: its XDG_CONFIG_HOME may be another than ours."""
    unit = manager.show(TARGET)[TARGET]
    if unit.path is None or os.path.realpath(unit.path) != os.path.realpath(directory() / TARGET):
        remedy = "call it with the XDG_CONFIG_HOME of your service manager: systemctl --user show-environment"
        raise Misconfigured(f"the service manager does not look into {directory()}", remedy=remedy)


def _enable_channels(home: Home, manager: UserManager) -> None:
    """Have the target start the channels that the configuration switches on, and no other that has been built."""
    from bubbles import config
    from bubbles.channels import CHANNELS

    platforms = config.load(home, "channels").channels
    on = [name for name in CHANNELS if getattr(getattr(platforms, name, None), "enabled", False)]
    off = [name for name in manager.channels() if name in CHANNELS and name not in on]
    if on:
        manager.call("enable", *map(unit_of, on))
        click.echo(f"channels: {', '.join(on)}")
    if off:
        manager.call("disable", *map(unit_of, off))


def _say_next(manager: UserManager, changed: bool) -> int:
    unit = manager.show(TARGET)[TARGET]
    if unit.active != "active" or unit.enabled != "enabled":
        click.echo(f"Next:\n  systemctl --user enable --now {TARGET}")
    elif changed:
        click.echo(f"Next, so that what runs is what is written:\n  systemctl --user restart {TARGET}")
    _warn_of_logout()
    return OK


def _start(manager: UserManager, changed: bool) -> int:
    """Enable and start the target. Raises Unavailable naming what does not start."""
    was_up = manager.show(TARGET)[TARGET].active == "active"
    manager.call("enable", TARGET)
    manager.call("restart" if was_up and changed else "start", TARGET)
    units = manager.show(*SERVICES, *(name for channel in manager.channels() if (name := unit_of(channel))))
    _warn_of_logout()
    down = [unit for unit in units.values() if unit.active != "active"]
    if down:
        first = down[0]
        why = f"{first.active}, {first.result}{f' {first.code}' if first.code else ''}"
        raise Unavailable(f"{first.name} is not up ({why})", remedy=f"journalctl --user -n 20 -u {first.name}")
    told = [unit.name.removeprefix("bubbles-").removesuffix(".service") for unit in units.values()]
    click.echo(f"running: {', '.join(told)}")
    return OK


def _warn_of_logout() -> None:
    if not lingers():
        click.echo("Note: they begin with your login and end with the last one. To have them always: loginctl enable-linger")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
