"""The jail as data: what a command sees, and the arguments of bubblewrap that make it so.

Nothing here looks at a file or starts a process: whoever builds a jail opens what is bound and hands over descriptors, so that
between the look and the mount nothing can be exchanged. Three rules are kept by the order of the arguments:

1. Nothing is mounted below a directory that a jail can write. bubblewrap before 0.12 follows a link `x -> /oldroot/…` that an earlier
   command left there, and makes files outside (CVE-2026-87766). So a session's *children* are bound one by one, under a skeleton in memory
   that becomes read-only at the end.
2. What is writable is named; everything else is read-only, or not there.
3. The command comes behind `--`, so no text of it is ever an option.

It imports nothing of Bubbles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROXY = "127.0.0.1:3128"  # where the way out listens inside, under the policy `public`
HOSTNAME = "bubbles"
USER = "agent"

# What a program needs of /etc to find its libraries, certificates, time zone and fonts: directories and files. Nothing of it is a key, or about
# people. A directory costs a mount, of which there had better be few; a file is copied.
ETC = (
    "alternatives", "crypto-policies", "fonts", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "java-25-openjdk", "pki/ca-trust/extracted",
    "pki/tls/certs", "ssl/certs",
)  # fmt: skip
FILES = ("ld.so.cache", "localtime", "mime.types", "pki/tls/cert.pem", "ssl/cert.pem", "ssl/openssl.cnf")
TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr on most systems, directories of their own on some


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of the machine, open as `fd`, that is seen at `at`; read-only unless `writable`."""

    at: str
    fd: int
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Jail:
    """One jail.

    `mounts` in the order in which they are made, none below another that is writable; `links` are other spellings of them, each a path and its
    target; `shelves` are directories below /tmp that hold some of them, and are not to be
    written although that is. `texts` are small files by their paths, each a
    descriptor to read from. `top` says for each name in TOP what it is on this machine: the target of its link, or "" for a directory; a name that
    is missing there is not there. `etc` are those of ETC that are there. `network`: "none", "public" (a way out listens at PROXY) or "host".
    `uid`, `gid`: who the command seems to be. Sizes are bytes of memory that a temporary file system may take.
    """

    mounts: tuple[Mount, ...]
    texts: Mapping[str, int]
    top: Mapping[str, str]
    environment: Mapping[str, str]
    cwd: str
    uid: int
    gid: int
    network: str = "none"
    links: Mapping[str, str] = field(default_factory=dict)
    shelves: tuple[str, ...] = ()
    etc: tuple[str, ...] = ETC
    tmp_bytes: int = 256 << 20
    shm_bytes: int = 64 << 20
    seccomp: int | None = None  # a descriptor to read the filter from
    info: int | None = None  # one to write the number of the jail's first process to
    terminal: bool = False  # a person sits at it: it stays in the terminal's session; the filter forbids to type there
    namespaces: tuple[str, ...] = ("user", "pid", "ipc", "uts", "cgroup-try")
    extra: tuple[str, ...] = field(default=())  # further arguments before the last ones; for what no setting has


def arguments(jail: Jail) -> list[str]:
    """The arguments of bubblewrap, `--` the last of them: what follows is the command."""
    return [*_walls(jail), *_environment(jail), *_system(jail), *_memory(jail), *_session(jail), *jail.extra, *_end(jail)]


def _walls(jail: Jail) -> list[str]:
    words = [f"--unshare-{name}" for name in jail.namespaces]
    words += [] if jail.network == "host" else ["--unshare-net"]
    if "user" in jail.namespaces:
        words += ["--disable-userns"] if "pid" in jail.namespaces else []  # no further user namespaces, should the filter fail
        words += ["--uid", str(jail.uid), "--gid", str(jail.gid)]
    words += ["--hostname", HOSTNAME] if "uts" in jail.namespaces else []
    words += ["--cap-drop", "ALL"]  # nothing for a user's bubblewrap; for root's, everything
    words += ["--die-with-parent"]  # of the thread that starts it: that has to live as long
    return words if jail.terminal else [*words, "--new-session"]


def _environment(jail: Jail) -> list[str]:
    # Clearing hides nothing: /proc/1/environ goes on showing what bubblewrap itself was started with, and that has to be empty.
    words = ["--clearenv"]
    for name, value in jail.environment.items():
        words += ["--setenv", name, value]
    return words


def _system(jail: Jail) -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    for name in TOP:
        if name in jail.top:
            target = jail.top[name]
            words += ["--symlink", target, f"/{name}"] if target else ["--ro-bind", f"/{name}", f"/{name}"]
    for name in jail.etc:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path, fd in jail.texts.items():
        words += ["--perms", "0444", "--file", str(fd), path]  # part of the root, which becomes read-only
    if jail.network == "host":
        words += ["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
    return words


def _memory(jail: Jail) -> list[str]:
    return [
        # Read-only: the kernel lets whoever is root outside write most of /proc/sys, core_pattern among it, whatever capabilities are gone, and
        # bubblewrap covers that directory only where the directory itself could be written, which it never can.
        *("--proc", "/proc", "--remount-ro", "/proc"),
        *("--dev", "/dev"),
        *("--size", str(jail.shm_bytes), "--tmpfs", "/dev/shm"),
        *("--remount-ro", "/dev"),
        *("--size", str(jail.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"),
        *("--size", str(1 << 20), "--perms", "0700", "--tmpfs", f"/run/user/{jail.uid}"),
    ]


def _session(jail: Jail) -> list[str]:
    words = []
    for path in jail.shelves:
        words += ["--size", str(1 << 20), "--perms", "0700", "--tmpfs", path]
    for mount in jail.mounts:
        words += ["--bind-fd" if mount.writable else "--ro-bind-fd", str(mount.fd), mount.at]
    for path, target in jail.links.items():
        words += ["--symlink", target, path]
    return words


def _end(jail: Jail) -> list[str]:
    words = [word for path in (*jail.shelves, "/") for word in ("--remount-ro", path)]
    words += ["--chdir", jail.cwd]
    words += ["--info-fd", str(jail.info)] if jail.info is not None else []
    words += ["--seccomp", str(jail.seccomp)] if jail.seccomp is not None else []
    return [*words, "--"]
