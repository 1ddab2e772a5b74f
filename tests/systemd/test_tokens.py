"""A channel whose token the platform rejects: its start fails where everybody sees it, it stays down, and the rest goes on."""

from __future__ import annotations

from pathlib import Path

from tests.systemd.person import Person
from tests.systemd.world import AGENTD, CHANNEL, CHAT, CRON, MODELD, world


def test_a_wrong_token_fails_the_start_and_stays_down(person: Person, tmp_path: Path) -> None:
    with world(person, tmp_path / "state", {"default": {"reply": "here"}}) as bubbles:
        bubbles.platform.faults(status={"code": 401, "path": ""})
        bubbles.adjust(CHANNEL, "short", "[Service]\nRestartSec=0.1\n")
        failed = person.systemctl("start", CHANNEL, check=False)
        assert failed.returncode != 0
        assert "failed" in failed.stderr
        bubbles.start()
        assert bubbles.ask("hello?") == "here"  # no matter who is down
        unit = person.unit(CHANNEL)
        assert (unit["ActiveState"], unit["SubState"], unit["ExecMainStatus"], unit["NRestarts"]) == ("failed", "failed", "78", "0")
        status = person.systemctl("status", CHANNEL, check=False)
        assert status.returncode == 3
        assert "the platform rejects the token" in status.stdout
        assert "try: give it another" in status.stdout
        assert all(bubbles.pids(AGENTD, MODELD, CRON).values())

        bubbles.platform.faults()
        person.systemctl("start", CHANNEL)
        bubbles.platform.say("and now?", chat=CHAT)
        assert person.until(lambda: [sent["text"] for sent in bubbles.platform.sent()]) == ["here"]
