"""Where everything lies: the home on disk, and the sockets of its daemons.

    $BUBBLES_HOME (~/.bubbles)
    ├─ config.json                 the owner's only configuration file
    ├─ sessions/KEY/               one directory a session: history, persona, memory, work/, data/, skills/
    ├─ session_homes/KEY/          the private HOME of its shell
    ├─ turns/KEY.jsonl             the journal of its running turn; turns/held/ those given up, released/ those decided on
    ├─ spool/inbound/NAME/         a queue a producer      (five states each: see spool/README.md)
    ├─ spool/outbound/NAME/        a queue a consumer
    ├─ spool/media/NAME/           files on their way in
    ├─ channels/NAME/              what a channel keeps for itself
    ├─ cron/jobs.json              the jobs
    ├─ models/                     model files fetched for the embedded provider
    ├─ log/                        logs of daemons that no service manager looks after
    └─ run/                        locks; whoever holds NAME.lock is the daemon NAME; lent/KEY/ what open terminals lend
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from bubbles.errors import Misconfigured, TryAgain

_SOCKET_MOST = 107  # bytes in sockaddr_un


@dataclass(frozen=True, slots=True)
class Home:
    """One installation's directory. Nothing is created by naming a path; `prepare` does that."""

    root: Path

    @classmethod
    def find(cls) -> Home:
        """The home that BUBBLES_HOME names, else `~/.bubbles`."""
        return cls(Path(os.path.abspath(os.path.expanduser(os.environ.get("BUBBLES_HOME") or "~/.bubbles"))))

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def turns(self) -> Path:
        return self.root / "turns"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def sessions(self) -> Path:
        return self.root / "sessions"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def jobs(self) -> Path:
        return self.root / "cron" / "jobs.json"

    def session(self, key: str) -> Path:
        return self.sessions / key

    def session_home(self, key: str) -> Path:
        return self.root / "session_homes" / key

    def inbound(self, name: str) -> Path:
        return self.root / "spool" / "inbound" / name

    def outbound(self, name: str) -> Path:
        return self.root / "spool" / "outbound" / name

    def media(self, name: str) -> Path:
        return self.root / "spool" / "media" / name

    def prepare(self) -> None:
        """Create the home with mode 0700. Raises Misconfigured where it belongs to another user, may be written by others, or cannot be made."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.root.stat()
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError
            if found.st_uid != os.geteuid():
                raise Misconfigured(
                    f"{self.root} belongs to another user (uid {found.st_uid})", remedy="set BUBBLES_HOME to a directory of your own"
                )
            if found.st_mode & 0o022:
                raise Misconfigured(f"{self.root} may be written by other users", remedy=f"chmod 700 {self.root}")
            if found.st_mode & 0o077:
                self.root.chmod(0o700)
            for path in (self.turns, self.run, self.sessions, self.log):
                path.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise Misconfigured(f"{self.root} is not a directory", remedy="set BUBBLES_HOME to a directory of your own") from error
        except PermissionError as error:
            raise Misconfigured(f"no permission for {error.filename}", remedy=f"chown -R $USER {self.root}; chmod -R u+rwX {self.root}") from error
        except OSError as error:
            raise TryAgain(f"cannot prepare {self.root}: {error.strerror}", remedy=f"look at: df -h {self.root}") from error

    @property
    def sockets(self) -> Path:
        """The directory of the doors of this home's daemons: two homes never share one.

        It lies in XDG_RUNTIME_DIR, and in /tmp where that is unset, is not there, or is another user's (after `su`, `sudo -E`).
        """
        real = os.path.realpath(self.root)
        runtime = _runtime()
        own = "-" + hashlib.sha256(os.fsencode(real)).hexdigest()[:8]
        mark = "" if real == os.path.realpath(os.path.expanduser("~/.bubbles")) else own
        if runtime and len(os.fsencode(runtime)) + len(mark) + len("/bubbles/channel-0123456789abcdef.sock") <= _SOCKET_MOST:
            return Path(runtime) / f"bubbles{mark}"
        return Path(f"/tmp/bubbles-{os.geteuid()}{own}")

    def prepare_sockets(self) -> Path:
        """`sockets`, created with mode 0700. Raises Misconfigured where somebody else made it first."""
        path = self.sockets
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
        except OSError as error:
            raise Misconfigured(f"cannot make {path}: {error.strerror}", remedy="look at XDG_RUNTIME_DIR") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise Misconfigured(f"{path} is not a private directory of yours", remedy=f"remove {path}")
        return path

    def door(self, name: str) -> str:
        """The ZeroMQ endpoint of the daemon `name` (or of agentd's `feed`)."""
        return f"ipc://{self.sockets / name}.sock"

    def lock(self, name: str) -> Path:
        return self.run / f"{name}.lock"


def _runtime() -> str:
    """XDG_RUNTIME_DIR, where it names a directory of this user's; else ""."""
    path = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ""
    usable = os.path.isabs(path) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return path if usable else ""
