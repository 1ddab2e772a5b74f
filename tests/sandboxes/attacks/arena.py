"""A Bubbles home with two sessions, and everything around it that an attack may be after: each with random content of its own, a canary.

It does not know what attacks there are. `Arena.places` are the names that attacks may use for what is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from bubbles.paths import Home

OWN, OTHER = "alice", "bob"  # the session whose commands attack, and the one that they must not reach

# Canary files by the names that attacks have for them: {home} is the Bubbles home, {owner} the owner's home directory.
SECRET = {
    "config": "{home}/config.json",
    "jobs": "{home}/cron/jobs.json",
    "chats": "{home}/chats.json",
    "paired": "{home}/channels/telegram/paired.json",
    "turn": "{home}/turns/bob.jsonl",
    "log": "{home}/log/agentd.jsonl",
    "queued": "{home}/spool/inbound/telegram/new/1.json",
    "media": "{home}/spool/media/telegram/photo",
    "other_job": "{home}/jobs/bob/j1.out",
    "own_config": "{home}/sessions/alice/config.json",
    "own_history": "{home}/sessions/alice/session.jsonl",
    "own_heartbeats": "{home}/sessions/alice/HEARTBEATS.md",
    "other_config": "{home}/sessions/bob/config.json",
    "other_history": "{home}/sessions/bob/session.jsonl",
    "other_heartbeats": "{home}/sessions/bob/HEARTBEATS.md",
    "other_memory": "{home}/sessions/bob/MEMORY.md",
    "other_soul": "{home}/sessions/bob/SOUL.md",
    "other_work": "{home}/sessions/bob/work/plan.txt",
    "other_data": "{home}/sessions/bob/data/photo.jpg",
    "other_skill": "{home}/sessions/bob/skills/tax/SKILL.md",
    "other_token": "{home}/session_homes/bob/.gh_token",
    "other_git": "{home}/session_homes/bob/.config/git/credentials",
    "ssh_key": "{owner}/.ssh/id_ed25519",
    "bashrc": "{owner}/.bashrc",
    "gh_token": "{owner}/.config/gh/hosts.yml",
    "aws_key": "{owner}/.aws/credentials",
    "user_unit": "{owner}/.config/systemd/user/backup.service",
    "document": "{owner}/Documents/tax.txt",
}
# What a session may read of its own, but not change.
OPEN = {
    "own_soul": "{home}/sessions/alice/SOUL.md",
    "own_memory": "{home}/sessions/alice/MEMORY.md",
    "own_skill": "{home}/sessions/alice/skills/pdf/SKILL.md",
}
DIRECTORIES = {
    "owner_home": "{owner}",
    "home": "{home}",
    "sessions": "{home}/sessions",
    "spool": "{home}/spool",
    "run": "{home}/run",
    "own_skills": "{home}/sessions/alice/skills",
    "own_session": "{home}/sessions/alice",
    "own_work": "{home}/sessions/alice/work",
    "own_data": "{home}/sessions/alice/data",
    "own_home": "{home}/session_homes/alice",
    "other_session": "{home}/sessions/bob",
    "other_home": "{home}/session_homes/bob",
    "user_units": "{owner}/.config/systemd/user",
    "autostart": "{owner}/.config/autostart",
    "runtime": "{runtime}",
    "tmp": "{tmp}",
    "documents": "{owner}/Documents",
}
SOCKETS = {
    "door": "{sockets}/agentd.sock",
    "feed": "{sockets}/feed.sock",
    "channel_door": "{sockets}/channel-telegram.sock",
    "bus": "{runtime}/bus",
    "systemd_private": "{runtime}/systemd/private",
    "docker": "{runtime}/docker.sock",
    "podman": "{runtime}/podman/podman.sock",
    "tmp_socket": "{tmp}/X0",
}
_LIBC = ctypes.CDLL(None)
_LIBC.shmat.restype = ctypes.c_void_p
_NEIGHBOUR = """import sys, tempfile, time
kept = tempfile.TemporaryFile()
kept.write(sys.stdin.buffer.read())
kept.flush()
print(flush=True)
time.sleep(3600)
"""
_ELSEWHERE = (
    "tmp_secret", "shm_file", "shm_segment", "neighbour_key", "neighbour_argument", "neighbour_file", "gateway_file",
    "tcp4", "tcp6", "udp4", "abstract",
)  # fmt: skip
_WRITABLE = ("own_work", "own_data", "own_home")  # a session's own


class Arena:
    """What is attacked, below `root` and, of what lies in the shared /tmp, below `tmp`; both empty directories of this user's.

    `places` are the values of the names in braces of attacks, `canaries` the random content by name, `heard` what each socket was sent.
    """

    def __init__(self, root: Path, tmp: Path, gateway_key: str) -> None:
        self.root, self.owner, self.runtime, self.tmp = root, root / "owner", root / "runtime", tmp
        self.home = Home(self.owner / ".bubbles")
        self.canaries = {name: _canary() for name in (*SECRET, *SOCKETS, *_ELSEWHERE)} | {"gateway_key": gateway_key}
        self.places: dict[str, str] = {}
        self.heard: dict[str, list[bytes]] = {}

    def environment(self) -> dict[str, str]:
        """What whoever plays the gateway has in its environment."""
        return {"HOME": str(self.owner), "XDG_RUNTIME_DIR": str(self.runtime), "BUBBLES_HOME": str(self.home.root)}

    def build(self) -> None:
        """Make every file and directory as it was at first; to be called with `environment` in force."""
        self.home.prepare()
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        self.tmp.mkdir(mode=0o700, exist_ok=True)
        bases = {
            "home": self.home.root, "owner": self.owner, "runtime": self.runtime, "sockets": self.home.prepare_sockets(), "tmp": self.tmp,
        }  # fmt: skip
        named = {**SECRET, **OPEN, **DIRECTORIES, **SOCKETS, "tmp_secret": "{tmp}/secret", "shm_file": f"/dev/shm/{self.tmp.name}"}
        self.places |= {name: text.format(**bases) for name, text in named.items()}
        self.places |= {"python": _python(), "uid": str(os.getuid()), "gateway": str(os.getpid()), "root": str(self.root)}
        self.places |= {"prefix": sys.prefix}
        self.mend()
        self.places["config_handle"] = _handle(self.home.config)

    def mend(self) -> None:
        """Bring back what an attack has changed or removed: all files, and the session's own directories, emptied."""
        for name in DIRECTORIES:
            self._clear_the_way(Path(self.places[name]))
        for name in (*_WRITABLE, "user_units", "autostart", "own_skills", "spool"):
            _emptied(Path(self.places[name]))
        for name in (*SECRET, *OPEN, "tmp_secret"):
            self._clear_the_way(Path(self.places[name]).parent)
            _written(Path(self.places[name]), self._content(name))

    def _clear_the_way(self, directory: Path) -> None:
        for path in reversed([directory, *directory.parents]):
            if path.is_relative_to(self.root) and path != self.root:
                if path.is_symlink() or path.is_file():
                    path.unlink()
                path.mkdir(mode=0o700, exist_ok=True)
                path.chmod(0o700)

    def _content(self, name: str) -> str:
        if name not in self.canaries:
            return f"# what a session may read: {name}\n"
        if name == "config":
            return json.dumps({"providers": {"anthropic": {"api_key": self.canaries[name]}}})
        if name in ("own_config", "other_config"):
            return json.dumps({"note": self.canaries[name]})
        return f"{self.canaries[name]}\n"

    def state(self) -> dict[str, str]:
        """Every path below the root but the session's own writable ones and the locks, with what it is and holds."""
        left_out = {self.places[name] for name in _WRITABLE} | {str(self.home.run)}
        found: dict[str, str] = {}
        for directory, names, files in os.walk(self.root):
            names[:] = [name for name in names if f"{directory}/{name}" not in left_out]
            for path in (f"{directory}/{name}" for name in (*names, *files)):
                found[path] = _told(path)
        return found

    def state_of(self, place: str) -> dict[str, str]:
        """The same for one place and what is below it."""
        path = self.places[place]
        below = [f"{directory}/{name}" for directory, names, files in os.walk(path) for name in (*names, *files)]
        return {entry: _told(entry) for entry in (path, *below)}

    def holds(self, place: str, word: str) -> bool:
        """Whether `word` stands at or below `place`, in a name or in a file; what the session may write is not looked at."""
        top, own = self.places[place], {self.places[name] for name in _WRITABLE} - {self.places[place]}
        found = [top] if os.path.isfile(top) else []
        for directory, names, files in os.walk(top):
            names[:] = [name for name in names if f"{directory}/{name}" not in own]
            found += [f"{directory}/{name}" for name in (*names, *files)]
        return any(word in os.path.basename(path) or word.encode() in _read(path) for path in found)

    def secrets_in(self, text: str) -> set[str]:
        """The names of the canaries whose content stands in `text`."""
        return {name for name, content in self.canaries.items() if content in text}

    def fill(self, template: str, more: Mapping[str, str]) -> str:
        """`template` with every name in braces that there is a value for replaced."""
        values = self.places | more
        return re.sub(r"\{([a-z0-9_]+)\}", lambda found: values.get(found[1], found[0]), template)

    @contextlib.asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """With every socket listened to, and a process of the owner's own beside, {neighbour}."""
        async with contextlib.AsyncExitStack() as stack:
            for name in SOCKETS:
                await self._listen(stack, name, _unix(self.places[name]))
            abstract = f"bubbles-attack-{secrets.token_hex(6)}"
            await self._listen(stack, "abstract", _unix(f"\0{abstract}"))
            self.places["abstract"] = abstract
            for name, family, address in (("tcp4", socket.AF_INET, "127.0.0.1"), ("tcp6", socket.AF_INET6, "::1")):
                with contextlib.suppress(OSError):  # a machine without IPv6
                    listener = socket.create_server((address, 0), family=family)
                    self.places[name] = str(listener.getsockname()[1])
                    await self._listen(stack, name, listener)
            await self._receive(stack)
            for name in ("neighbour", "victim"):
                self.places[name] = str(stack.enter_context(self._neighbour()))
            stack.enter_context(self._in_memory())
            yield

    async def _listen(self, stack: contextlib.AsyncExitStack, name: str, listener: socket.socket) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                writer.write(f"{self.canaries[name]}\n".encode())
                self.heard.setdefault(name, []).append(await reader.read(4096))
                writer.close()

        kind = asyncio.start_unix_server if listener.family == socket.AF_UNIX else asyncio.start_server
        server = await kind(answer, sock=listener)
        stack.callback(server.close)

    async def _receive(self, stack: contextlib.AsyncExitStack) -> None:
        heard = self.heard

        class Told(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, _: Any) -> None:
                heard.setdefault("udp4", []).append(data)

        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Told, local_addr=("127.0.0.1", 0))
        self.places["udp4"] = str(transport.get_extra_info("sockname")[1])
        stack.callback(transport.close)

    @contextlib.contextmanager
    def _in_memory(self) -> Iterator[None]:
        """A file in /dev/shm, a deleted file that the gateway has open, and a segment of shared memory, {shm_id}."""
        shared = Path(self.places["shm_file"])
        with tempfile.TemporaryFile(dir=self.root) as kept:
            kept.write(self.canaries["gateway_file"].encode())
            kept.flush()
            shared.write_text(self.canaries["shm_file"])
            shared.chmod(0o600)
            segment = _segment(self.canaries["shm_segment"].encode())
            self.places["shm_id"] = str(segment)
            try:
                yield
            finally:
                shared.unlink(missing_ok=True)
                _LIBC.shmctl(segment, 0, None)  # IPC_RMID

    @contextlib.contextmanager
    def _neighbour(self) -> Iterator[int]:
        """A process of the owner's own, with a secret in its environment, in its arguments and in a deleted file that it has open."""
        child = subprocess.Popen(
            [self.places["python"], "-I", "-S", "-c", _NEIGHBOUR, self.canaries["neighbour_argument"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.owner,
            env={"SERVICE_KEY": self.canaries["neighbour_key"], "TMPDIR": str(self.tmp)},
        )
        try:
            assert child.stdin
            assert child.stdout
            child.stdin.write(self.canaries["neighbour_file"].encode())
            child.stdin.close()
            child.stdout.readline()
            yield child.pid
        finally:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe:
                    pipe.close()


def _canary() -> str:
    return f"canary-{secrets.token_hex(12)}"


def _segment(data: bytes) -> int:
    made: int = _LIBC.shmget(0, len(data), 0o600 | 0o1000)  # IPC_PRIVATE, IPC_CREAT
    address = _LIBC.shmat(made, None, 0)
    ctypes.memmove(address, data, len(data))
    _LIBC.shmdt(ctypes.c_void_p(address))
    return made


def _handle(path: Path) -> str:
    """What a file system calls `path`, in hex: its type and number, which whoever may open by it needs no way to; "" where it has none."""
    made = struct.pack("Ii", 128, 0) + bytes(128)
    kept, mount = ctypes.create_string_buffer(made, len(made)), ctypes.c_int()
    if _LIBC.name_to_handle_at(-100, os.fsencode(path), kept, ctypes.byref(mount), 0) != 0:  # AT_FDCWD
        return ""
    return kept.raw[: 8 + struct.unpack_from("I", kept.raw)[0]].hex()


def _unix(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    if not address.startswith("\0"):
        Path(address).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made.bind(address)
    made.listen(64)
    return made


def _emptied(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    for directory, names, _ in os.walk(path):
        for name in names:
            if not os.path.islink(f"{directory}/{name}"):
                os.chmod(f"{directory}/{name}", 0o700)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _written(path: Path, content: str) -> None:
    """A file as it was: as a new one, so that no other name of the old one matters."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if (status.st_mode, status.st_nlink) == (stat.S_IFREG | 0o600, 1) and path.read_text() == content:
            return
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    path.write_text(content)
    path.chmod(0o600)


def _told(path: str) -> str:
    try:
        status = os.lstat(path)
    except OSError as error:
        return f"not there: {error.strerror}"
    kind = f"{status.st_mode:o} {status.st_uid} {status.st_nlink}"
    if os.path.islink(path):
        return f"{kind} -> {os.readlink(path)}"
    return f"{kind} {hashlib.sha256(_read(path)).hexdigest()[:16]}" if os.path.isfile(path) else kind.rsplit(" ", 1)[0]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if os.path.isfile(path) else b""
    except OSError:
        return b""


def _python() -> str:
    """The system's Python where there is one: no jail is without it."""
    return next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(path, os.X_OK)), sys.executable)
