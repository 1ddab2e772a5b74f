"""A channel's token: the credential that a service manager hands over stands over the environment, and that over the file of settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bubbles.config.channels import Telegram
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.fakes.channel import TestChannel
from tests.fakes.start import platform
from tests.programs.built_channel import ENV
from tests.programs.conftest import until
from tests.programs.run import ROOT

_NOBODY = "http://127.0.0.1:1/{}"  # no platform is there
_CREDENTIAL, _VARIABLE = "channels.telegram.token", "BUBBLES_CHANNELS__TELEGRAM__TOKEN"
_LAUNCHER = """
from tests.programs import built_channel
from tests.programs.test_channel_credentials import Built
built_channel.Built = Built
built_channel.main()
"""


class Built(TestChannel):
    """Whoever has the token finds the platform: it says where that is."""

    __test__ = False

    def __init__(self, section: Telegram) -> None:
        token = section.token.get_secret_value()
        super().__init__("telegram", token, keyed=False, most=0, stale_s=120, poll_s=0.3, timeout_s=0.5, shows=False, drafts=False)


@pytest.mark.parametrize("place", ["credential", "environment", "config.json"])
def test_a_channel_takes_its_token_from_the_first_that_has_one(home: Home, tmp_path: Path, place: str) -> None:
    places = ["credential", "environment", "config.json"]
    with platform() as chats:
        said = {name: chats.url if name == place else _NOBODY.format(name) for name in places[places.index(place) :]}  # later ones have a wrong one
        home.config.write_text(json.dumps({"version": 1, "channels": {"telegram": {"enabled": True, "owners": ["7"], "token": said["config.json"]}}}))
        home.config.chmod(0o600)
        env = {**os.environ, **ENV, "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
        (tmp_path / "credentials").mkdir()
        if "credential" in said:
            (tmp_path / "credentials" / _CREDENTIAL).write_text(f"{said['credential']}\n")
        if "environment" in said:
            env[_VARIABLE] = said["environment"]
        argv = [sys.executable, "-c", _LAUNCHER, "channel", "telegram"]
        with subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            try:
                chats.say("good morning")
                until(lambda: [item.body["text"] for item in Queue(home.inbound("telegram")).list("new")] == ["good morning"])
            finally:
                running.send_signal(signal.SIGTERM)
                told = running.communicate(timeout=20)
        assert running.returncode == 0
    assert not any(token in "".join(told) for token in said.values())
