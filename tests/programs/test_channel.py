"""The program that is one channel's daemon: the one that its name means, with its settings, or the reason why not."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.messages import Outbound, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.fakes.start import FakePlatform, platform
from tests.programs.built_channel import COMMAND, ENV
from tests.programs.conftest import until
from tests.programs.run import BIN, ROOT, bubbles


def configure(home: Home, **channels: Any) -> None:
    home.config.write_text(json.dumps({"version": 1, "channels": channels}))
    home.config.chmod(0o600)


def built(*argv: str) -> subprocess.CompletedProcess[str]:
    """`bubbles ARGV...` of a Bubbles in which telegram is built."""
    return subprocess.run(["env", f"PYTHONPATH={ENV['PYTHONPATH']}", *COMMAND, *argv], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.fixture
def chats() -> Iterator[FakePlatform]:
    with platform() as fake:
        yield fake


@pytest.mark.parametrize(
    ("argv", "code", "said", "remedy"),
    [
        (["telegram"], 78, "telegram is not built yet", "switch telegram off in"),
        (["qq", "--once"], 78, "qq is not built yet", "one that is built"),
        (["nosuch"], 78, "there is no channel 'nosuch'", "the terminal needs no daemon"),
        (["cli"], 78, "there is no channel 'cli'", "the terminal needs no daemon"),
        (["session_mode"], 78, "there is no channel 'session_mode'", "the terminal needs no daemon"),
        ([], 64, "NAME", "bubbles channel --help"),
        (["telegram", "qq"], 64, "qq", "bubbles channel --help"),
        (["../agentd"], 64, "'../agentd' is no name of a channel", "bubbles channel --help"),
        ([""], 64, "'' is no name of a channel", "bubbles channel --help"),
        (["Telegram"], 64, "'Telegram' is no name of a channel", "bubbles channel --help"),
        (["²"], 64, "is no name of a channel", "bubbles channel --help"),
        (["5"], 64, "'5' is no name of a channel", "bubbles channel --help"),
        (["--until-idle", "5", "1.5"], 64, "'1.5' is no name of a channel", "bubbles channel --help"),
        (["--", "-/../../x"], 64, "'-/../../x' is no name of a channel", "bubbles channel --help"),
    ],
)
def test_what_cannot_be_run_is_told_with_what_to_do(home: Home, argv: list[str], code: int, said: str, remedy: str) -> None:
    done = bubbles("channel", *argv)
    *_, text, tried = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (code, "")
    assert text.startswith("bubbles: ")
    assert said in text
    assert tried.startswith("  try: ")
    assert remedy in tried
    made = {path.name for place in (home.log, home.run) if place.is_dir() for path in place.iterdir() if "channel" in path.name}
    assert all(name.startswith(("channel-telegram.", "channel-qq.")) for name in made)


def test_its_page_is_in_the_order_of_all_pages(home: Home) -> None:
    page = bubbles("channel", "--help").stdout
    heads = ["Usage: bubbles channel [OPTIONS] NAME", "Options:", "Input:", "Output:", "Exit codes:", "Examples:"]
    assert [page.index(head) for head in heads] == sorted(page.index(head) for head in heads)
    assert subprocess.run([BIN / "bubbles-channel", "--help"], capture_output=True, text=True).stdout == page


@pytest.mark.parametrize("channels", [{}, {"telegram": {"enabled": False, "token": "secret"}}])
def test_one_that_is_switched_off_does_not_start(home: Home, channels: dict[str, Any]) -> None:
    configure(home, **channels)
    done = built("channel", "telegram")
    assert done.returncode == 78
    assert done.stderr.endswith(
        f"bubbles: telegram is switched off\n  try: set channels.telegram.enabled to true in {home.config}, and start it again\n"
    )
    assert is_running(home, "channel-telegram") is None


def test_a_configuration_that_is_wrong_is_told_by_the_setting(home: Home) -> None:
    configure(home, telegram={"enabled": "perhaps"})
    done = built("channel", "telegram")
    assert done.returncode == 78
    assert "channels.telegram.enabled" in done.stderr


def test_one_that_is_built_and_on_serves_with_its_settings_and_ends_when_asked(home: Home, chats: FakePlatform) -> None:
    configure(home, telegram={"enabled": True, "owners": ["7"], "on_uncertain": "hold", "proxy": chats.url})
    queue = Queue(home.outbound("telegram"))
    queue.put("m", to_dict(Outbound(id="m", at=1e10, channel="telegram", chat="42", text="hello")))
    chats.faults(store_then_cut=1)  # held after one try: as on_uncertain says
    argv = ["env", f"PYTHONPATH={ENV['PYTHONPATH']}", *COMMAND, "channel", "telegram"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        chats.say("good morning")
        until(lambda: queue.find("m") == "held")
        until(lambda: [item.body["text"] for item in Queue(home.inbound("telegram")).list("new")] == ["good morning"])
        with Dial(home, "channel-telegram") as dial:
            told = dial.call("status")[0]
        assert (told["name"], told["state"], told["last_out"]) == ("telegram", "up", None)
        assert told["last_in"] is not None
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
    assert len(chats.sent()) == 1


def test_rejected_credentials_are_78_and_never_shown(home: Home, chats: FakePlatform) -> None:
    configure(home, telegram={"enabled": True, "token": "the-secret-token", "proxy": chats.url})
    chats.faults(status={"code": 401, "path": "/me"})
    done = built("channel", "telegram")
    assert done.returncode == 78
    assert "the platform rejects the token" in done.stderr
    assert "the-secret-token" not in done.stderr


def test_check_says_what_is_missing_and_asks_nobody(home: Home) -> None:
    configure(home, telegram={"enabled": True})
    done = built("channel", "telegram", "--check")
    assert (done.returncode, done.stdout) == (78, "")
    assert "channels.telegram.token is missing" in done.stderr
    assert "try: docs/channels/telegram.md" in done.stderr
    configure(home, telegram={"token": "a-token", "proxy": "http://127.0.0.1:9"})
    done = built("channel", "--check", "telegram")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "telegram: its settings are well; it is switched off (channels.telegram.enabled)\n"
    configure(home, telegram={"token": "a-token", "owners": ["*"]})
    assert built("channel", "telegram", "--check").returncode == 78
    assert built("channel", "--check").returncode == 64
    assert bubbles("channel", "qq", "--check").returncode == 78


def test_test_asks_the_platform_who_the_bot_is_with_the_daemon_down(home: Home, chats: FakePlatform) -> None:
    configure(home, telegram={"token": "a-token", "proxy": chats.url})
    done = built("channels", "test", "telegram")
    assert (done.returncode, done.stdout) == (0, "telegram: connected, as bot\n")
    chats.faults(status={"code": 401, "path": "/me"})
    assert built("channels", "test", "telegram").returncode == 78
    chats.faults(down=True)
    assert built("channels", "test", "telegram").returncode == 75
    told = built("channels", "login", "telegram")
    assert told.returncode == 0
    assert "channels.telegram.token" in told.stdout
