"""The whole installation in a network namespace of its own, scene by scene, every call to the network of every process written down.

    python -m tests.egress.house DIRECTORY [--idle-s 15] [--tick-s 2] [--gguf FILE] [--only SCENE]

To be started by `inside`: in namespaces of network, mounts and processes, as root. It does not judge: tests/egress/judge.py does. The scenes:

    town      gateway, a channel, one-shot asks, tools, a job, a server that fails, one that is away, the small programs; then nothing for --idle-s
    named     a model at a name that a name server has to be asked for; the daemons are started by the first ask
    onboard   a first set-up in a terminal, with a model server on one of the ports where they usually are
    embedded  a model that Bubbles runs itself
    broken    daemons that do on purpose what no daemon does
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.egress.names import Names
from tests.egress.scene import BUBBLES, PYTHON, ROOT, Scene, until
from tests.egress.watch import Watch
from tests.fakes.start import FakeModel, FakePlatform, model, platform
from tests.programs.terminal_under_test import Terminal

NAME = "model.example"
REACHED = {"thread": 11, "child": 12, "fork": 13}  # ports that a tool tries, and how it does
_SETTLE_S = 0.5  # what was begun is ended by then
PLACES = (8000, 8080, 11434)  # where model servers usually are: bubbles/programs/servers.py, README.md
FAULTS = "agentd=connect,agentd=lookup,modeld=listen,cron=datagram,modeld=fork,cron=abstract"
_REACH = f"""python3 - <<'EOF'
import os, socket, subprocess, sys, threading
def reach(port):
    try:
        socket.create_connection(("127.0.0.1", port))
    except OSError:
        pass
thread = threading.Thread(target=reach, args=({REACHED["thread"]},))
thread.start()
thread.join()
subprocess.run([sys.executable, "-c", "import socket; socket.socket().connect_ex(('127.0.0.1', {REACHED["child"]}))"])
if os.fork() == 0:
    os.setsid()
    reach({REACHED["fork"]})
    os._exit(0)
os.wait()
print("tried")
EOF"""
_SCRIPT = {
    "rules": [
        {"when": "use a tool", "calls": [{"name": "exec", "arguments": {"command": "id; echo hi | tr a-z A-Z"}}]},
        {"when": "reach out", "calls": [{"name": "exec", "arguments": {"command": _REACH}}]},
        {"when": "fail first", "times": 1, "status": 429, "headers": {"retry-after-ms": "200"}},
        {"when": "fail first", "times": 1, "cut": 2},
        {"when": "slowly", "reply": "word by word by word", "chunks": 5, "pause_s": 0.1},
    ],
    "default": {"reply": "ok"},
}


_SMALL = (["tidy"], ["models", "list"], ["queue", "list"], ["history", "main"], ["backup", "home.tar.gz"])
_LOOKING = (["status"], ["channels", "status"], ["doctor", "--ask"], ["units", "verify"])


def inside(*argv: str) -> list[str]:
    """The command line that starts this module with `argv` in namespaces of its own, which end with it. The first process there buries the dead."""
    first = 'ip link set lo up && "$@" & wait $!'
    spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*spaces, "sh", "-c", first, "sh", sys.executable, "-m", "tests.egress.house", *argv]


class House:
    """All scenes in one `directory`."""

    def __init__(self, directory: Path, options: argparse.Namespace, watch: Watch) -> None:
        self.directory, self.options, self.watch = directory, options, watch
        self.names = Names({NAME: "127.0.0.1"})
        watch.known.add(1)

    def play(self) -> None:
        others = {"named": self.named, "onboard": self.onboard, "embedded": self.embedded, "broken": self.broken}
        wanted = self.options.only or ["town", *others]
        with self.town() if "town" in wanted else _nothing():  # they pass while it is idle
            for name, scene in others.items():
                if name in wanted:
                    scene()

    @contextmanager
    def town(self) -> Iterator[None]:
        state = self.directory / "platform.jsonl"
        with platform(state=state) as people:
            with model(_SCRIPT) as fake:
                town = self._town(people, fake)
            began = time.time()
            town.bubbles("ask", "is anybody there?", code=1)
            town.told["away"] = [began, time.time()]
            with model(_SCRIPT, port=_port(fake.url)):
                assert town.bubbles("ask", "hi again") == "ok\n"
                began, before = time.time() + _SETTLE_S, town.wakes()
                yield
                time.sleep(max(0.0, began + self.options.idle_s - time.time()))
                town.told["idle"] = [began, time.time()]
                town.told["woke"] = {name: count - before[name] for name, count in town.wakes().items()}
                assert town.bubbles("ask", "still there?") == "ok\n"
                town.end()
            endpoint, place = _netloc(fake.url), _netloc(people.url)
            reached = tuple(f"127.0.0.1:{port}" for port in REACHED.values())
            town.leave(connect={"modeld": (endpoint,), "models": (endpoint,), "doctor": (endpoint,), "channel": (place,), "tool": reached})

    def _town(self, people: FakePlatform, fake: FakeModel) -> Scene:
        """Set up, awake, and every kind of thing done once."""
        town = Scene(self.directory / "town", _custom(fake.url) | {"agents.defaults.api_retries": 2}, tick_s=self.options.tick_s)
        town.start(BUBBLES, "gateway")
        until(lambda: {"agentd", "modeld", "cron"} <= town.running())
        # Polls are as long as the platform lets them be, so that a channel of which nobody wants anything seldom asks.
        town.start(PYTHON, "-m", "tests.fakes.channel", "test", "--url", people.url, "--poll-s", "7200", "--stale-s", "7200", "--pace", "0.05")
        until(lambda: people.state()["polls"])
        for words in ("hi", "slowly, please", "use a tool", "reach out", "fail first"):
            town.bubbles("ask", words)
        town.bubbles("agent", "-m", "hi")
        people.say("from a platform")
        until(people.sent)
        town.bubbles("cron", "add", "--at", "in 1s", "--name", "bell", "ring")
        for argv in _SMALL:
            town.bubbles(*argv)
        for argv in _LOOKING:
            town.bubbles(*argv, code=None)  # whatever they find to be wrong on this machine
        until(lambda: json.loads(town.bubbles("cron", "list").splitlines()[0])["last"], 30)
        return town

    def named(self) -> None:
        with model(_SCRIPT) as fake:
            port = _port(fake.url)
            named = Scene(self.directory / "named", _custom(f"http://{NAME}:{port}/v1"))
            for words in ("hi", "use a tool"):
                named.bubbles("ask", words)
            named.end()
        named.told["asked"] = list(self.names.asked)
        # Which address the name has is the name server's to say; the port stays the configured one.
        named.leave(connect={"modeld": (f"127.0.0.1:{port}",)}, names={"modeld": (NAME,)}, resolvers=("127.0.0.53:53",))

    def onboard(self) -> None:
        onboard = Scene(self.directory / "onboard")
        onboard.bubbles("onboard", "--yes")
        with model(_SCRIPT, port=PLACES[0]), Terminal([], onboard.env, command=onboard.traced(BUBBLES, "onboard"), cwd=onboard.directory) as terminal:
            terminal.expect("Which")
            terminal.type("refresh")
            terminal.expect("Number")
            terminal.type("1")
            terminal.expect("Its key")
            terminal.type("")
            terminal.expect("Model, by number")
            terminal.type("1")
            terminal.expect("It answers: ok")
            assert terminal.end() == 0
        onboard.end()
        onboard.leave(connect={"onboard": tuple(f"127.0.0.1:{port}" for port in PLACES)})

    def embedded(self) -> None:
        if self.options.gguf is None:
            return
        settings = {"providers.embedded.model_path": str(self.options.gguf), "agents.defaults.max_tokens": 8}
        embedded = Scene(self.directory / "embedded", settings)
        embedded.bubbles("ask", "hi")
        embedded.end()
        embedded.leave(listen=("llama",), serve={"modeld": "llama"})

    def broken(self) -> None:
        with model(_SCRIPT) as fake:
            broken = Scene(self.directory / "broken", _custom(fake.url))
            broken.bubbles("ask", "hi", code=None, EGRESS_FAULT=FAULTS)  # whether it answers is not what is looked at
            until(lambda: {"agentd", "modeld", "cron"} <= broken.running())
            until(lambda: any(port["address"].startswith("0.0.0.0:") for port in list(self.watch.ports.values())))
            broken.end()
            broken.leave(connect={"modeld": (_netloc(fake.url),)})


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _custom(url: str) -> dict[str, Any]:
    return {"providers.custom.base_url": url, "agents.defaults.model": "custom/fake"}


def _netloc(url: str) -> str:
    return urlsplit(url).netloc


def _port(url: str) -> int:
    return int(_netloc(url).rpartition(":")[2])


def _files(directory: Path) -> None:
    """Names are found as on any plain machine, but by our name server: in /etc as this namespace of mounts alone sees it."""
    wanted = {"resolv.conf": "nameserver 127.0.0.53\n", "hosts": "127.0.0.1 localhost\n"}
    wanted["nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files dns\n"
    for name, text in wanted.items():
        path = directory / name
        path.write_text(text)
        subprocess.run(["mount", "--bind", path, os.path.realpath(Path("/etc", name))], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.egress.house")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--idle-s", type=float, default=15.0)
    parser.add_argument("--tick-s", type=float, default=2.0)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    assert shutil.which("strace")
    os.chdir(ROOT)
    _files(options.directory)
    with Watch() as watch:
        House(options.directory, options, watch).play()
    (options.directory / "watch.json").write_text(json.dumps(watch.told(), indent=1))


if __name__ == "__main__":
    main()
