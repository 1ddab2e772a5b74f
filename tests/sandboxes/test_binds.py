"""What the owner has shown in every jail is judged again as it is opened: what was harmless when the settings were read may be a link by now."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bubbles import sandboxes
from bubbles.config.tools import Bind, Sandbox
from bubbles.errors import Misconfigured
from tests.sandboxes.test_bwrap import opened, root, run  # noqa: F401  # a fixture


def test_a_bind_that_became_a_link_out_is_refused(root: Path, tmp_path: Path) -> None:  # noqa: F811
    bind = Bind(path=str(tmp_path / "shown"), to="/mnt/shown")
    (tmp_path / "shown").mkdir()
    box = opened(root, binds=[bind])
    assert run(box, "ls -d /mnt/shown").exit == 0
    (tmp_path / "shown").rmdir()
    for target, why in (("/etc", "belongs to the system"), (root, "Bubbles' own files"), (root / "session_homes", "Bubbles' own"), ("/", "far more")):
        (tmp_path / "shown").symlink_to(target)
        with pytest.raises(Misconfigured, match=why):
            run(box, "ls /mnt/shown")
        (tmp_path / "shown").unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "shown"))
        with pytest.raises(Misconfigured, match="socket"):
            run(box, "ls /mnt/shown")


def test_one_that_may_be_written_is_written_and_its_links_lead_nowhere(root: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "shared").mkdir()
    box = opened(root, binds=[Bind(path=str(tmp_path / "shared"), to="/mnt/shared", mode="rw")])
    assert run(box, "echo hi > /mnt/shared/x; ln -s /oldroot/etc /mnt/shared/etc; ls /mnt/shared/etc/ 2>/dev/null").output == ""
    assert (tmp_path / "shared" / "x").read_text() == "hi\n"


def test_nothing_is_shown_in_the_place_of_a_sessions_own(root: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "shown").mkdir()
    for place in ("work/x", "skills/x", "config.json"):
        at = root / "sessions" / "alice" / place
        bind = Bind.model_construct(path=str(tmp_path / "shown"), to=str(at), mode="ro")
        session = root / "sessions" / "alice"
        settings = Sandbox().model_copy(update={"binds": [bind]})
        box = sandboxes.open("bwrap", session, root / "session_homes" / "alice", settings, network="none")
        with pytest.raises(Misconfigured, match="cannot be bound in a jail"):
            run(box, "true")
