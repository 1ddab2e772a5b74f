"""Bubbles as it will be when a platform's channel is built: telegram is the test channel, and its proxy setting is where the fake platform is.

python -m tests.programs.built_channel VERB [ARGUMENTS]...
"""

from __future__ import annotations

import sys
from pathlib import Path

from bubbles.channels import CHANNELS
from bubbles.config.channels import Telegram
from bubbles.programs import front
from tests.fakes.channel import TestChannel

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "tests.programs.built_channel")
ENV = {"PYTHONPATH": str(ROOT)}


class Built(TestChannel):
    """Made as every channel is: with its section of the configuration."""

    __test__ = False

    def __init__(self, section: Telegram) -> None:
        url = section.proxy.get_secret_value()
        super().__init__("telegram", url, keyed=False, most=0, stale_s=120, poll_s=0.3, timeout_s=0.5, shows=False, drafts=False)


def main() -> None:
    """The product, with one channel more."""
    Telegram.not_built = ""
    CHANNELS["telegram"] = f"{Built.__module__}:Built"
    front.front(sys.argv[1:])


if __name__ == "__main__":
    sys.modules["tests.programs.built_channel"] = sys.modules["__main__"]
    Built.__module__ = "tests.programs.built_channel"
    main()
