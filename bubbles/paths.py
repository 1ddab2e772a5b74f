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
    ├─ chats.json                  which chats the owner bound to which session
    ├─ cron/jobs.json              the jobs
    ├─ jobs/KEY/                   what its commands in the background are (jN.json) and print (jN.out)
    ├─ usage/YYYY-MM.jsonl         agentd's books: each request to a model, and what it cost
    ├─ tokens/NAME.json            the login at the provider NAME, of those that one signs in to
    ├─ models/                     model files fetched for the embedded provider
    ├─ log/                        NAME.jsonl: the entries of the daemon NAME that no journal takes; NAME.log: what it said beside;
    │                              units/UNIT/: the same of a confined unit, which sees that as its log/
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
    def tokens(self) -> Path:
        """Logins, of the providers that one signs in to."""
        return self.root / "tokens"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def chats(self) -> Path:
        return self.root / "chats.json"

    @property
    def jobs(self) -> Path:
        """cron's: what is to be said at which time."""
        return self.root / "cron" / "jobs.json"

    @property
    def background(self) -> Path:
        """Where the jobs of sessions are: commands that run in the background."""
        return self.root / "jobs"

    @property
    def usage(self) -> Path:
        """agentd's books: what each request to a model cost."""
        return self.root / "usage"

    def logs(self, pattern: str) -> list[Path]:
        """The files in `log`, and in what confined units have in its place, whose names match."""
        return sorted(path for place in ("", "units/*/") for path in self.log.glob(f"{place}{pattern}"))

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
        """Create the home with mode 0700. Raises Misconfigured where it belongs to another user, may be written by others, or cannot be made,
        and where it is a place for other things: a user's home directory, or the root.
        """
        try:
            if os.path.realpath(self.root) in ("/", os.path.realpath(os.path.expanduser("~"))):
                raise Misconfigured(f"{self.root} is a place for other things, too", remedy="set BUBBLES_HOME to a directory of its own")
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.root.stat()
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError
            if found.st_uid != os.geteuid():
                raise Misconfigured(
                    f"{self.root} belongs to another user (uid {found.st_uid})", remedy="set BUBBLES_HOME to a directory of your own"
                )
            if found.st_mode & 0o022:
                raise Misconfigured(f"{self.root} may be written by other users", remedy=f"chmod 700 {typed(self.root)}")
            if found.st_mode & 0o077:
                self.root.chmod(0o700)
            for path in (self.turns, self.run, self.sessions, self.log):
                path.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise Misconfigured(f"{self.root} is not a directory", remedy="set BUBBLES_HOME to a directory of your own") from error
        except PermissionError as error:
            root = typed(self.root)
            raise Misconfigured(f"no permission for {error.filename}", remedy=f"chown -R $USER {root}; chmod -R u+rwX {root}") from error
        except OSError as error:
            raise TryAgain(f"cannot prepare {self.root}: {error.strerror}", remedy=f"look at: df -h {typed(self.root)}") from error

    @property
    def sockets(self) -> Path:
        """The directory of the doors of this home's daemons: two homes never share one.

        It lies in XDG_RUNTIME_DIR, and in /tmp where that is unset, is not there, or is another user's (after `su`, `sudo -E`).
        """
        runtime, mark = _runtime(), self.mark
        if runtime and len(os.fsencode(runtime)) + len(mark) + len("/bubbles/channel-0123456789abcdef.sock") <= _SOCKET_MOST:
            return Path(runtime) / f"bubbles{mark}"
        return Path(f"/tmp/bubbles-{os.geteuid()}{self._own}")

    @property
    def mark(self) -> str:
        """What the name of its sockets' directory, in a runtime directory, ends with: "" for the usual home, `-` and 8 hex digits for any other."""
        return "" if os.path.realpath(self.root) == os.path.realpath(os.path.expanduser("~/.bubbles")) else self._own

    @property
    def _own(self) -> str:
        return "-" + hashlib.sha256(os.fsencode(os.path.realpath(self.root))).hexdigest()[:8]

    def prepare_sockets(self) -> Path:
        """`sockets`, created with mode 0700. Raises Misconfigured where somebody else made it first."""
        path = self.sockets
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
        except OSError as error:
            raise Misconfigured(f"cannot make {path}: {error.strerror}", remedy="look at XDG_RUNTIME_DIR") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise Misconfigured(f"{path} is not a private directory of yours", remedy=f"remove {typed(path)}")
        return path

    def door(self, name: str) -> str:
        """The ZeroMQ endpoint of the daemon `name` (or of agentd's `feed`)."""
        return f"ipc://{self.sockets / name}.sock"

    def lock(self, name: str) -> Path:
        return self.run / f"{name}.lock"


def typed(path: str | os.PathLike[str]) -> str:
    """A path as it is typed in a shell, for a remedy.

    >>> typed("/home/a b"), typed("/home/b")
    ("'/home/a b'", '/home/b')
    """
    import shlex  # here, because every small tool passes this module, and only what went wrong is told with it

    return shlex.quote(os.fspath(path))


def _runtime() -> str:
    """XDG_RUNTIME_DIR, where it names a directory of this user's; else ""."""
    path = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ""
    usable = os.path.isabs(path) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return path if usable else ""
