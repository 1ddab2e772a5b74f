"""What a unit forbids is seen from inside the process: each thing for itself, made by the kernel and not by us."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bubbles.agentd.confined import forbidden

ROOT = Path(__file__).parents[2]
ASK = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from bubbles.agentd.confined import forbidden; print(*forbidden(), sep=chr(10))"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux") or shutil.which("unshare") is None, reason="there are no mount namespaces")


def seen(*before: str, home: Path) -> set[str]:
    """What a process started behind `before` says. Its home is `home`."""
    done = subprocess.run([*before, sys.executable, "-c", ASK], env={**os.environ, "HOME": str(home)}, capture_output=True, text=True, check=True)
    return set(done.stdout.split("\n")) - {""}


def mounted(script: str) -> list[str]:
    return ["unshare", "-Urm", "sh", "-c", f'{script} && exec "$@"', "sh"]


def test_each_thing_is_told_where_it_holds_and_only_there(tmp_path: Path) -> None:
    usual = seen(home=tmp_path)
    assert seen("setpriv", "--no-new-privs", home=tmp_path) == usual | {"forbids rights"}
    home = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
    assert seen(*mounted(home), home=tmp_path) == usual | {"forbids home"}
    system = "mount --rbind /usr /usr && mount -o remount,bind,ro /usr"
    assert seen(*mounted(system), home=tmp_path) == usual | {"forbids system"}


def test_what_systemd_mounts_is_known_by_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tx\nNoNewPrivs:\t0\n")
    line = "36 35 98:0 {root} {at} rw,nosuid - tmpfs tmpfs rw\n"
    tmp = line.format(root="/systemd-private-0123-bubbles-agentd.service-x/tmp", at="/tmp")
    bus = line.format(root="/systemd/inaccessible/sock", at="/run/user/1000/bus")
    for text, keys in (("", []), (tmp, ["forbids tmp"]), (bus, ["forbids manager"]), (tmp + bus, ["forbids tmp", "forbids manager"])):
        (tmp_path / "mountinfo").write_text(line.format(root="/", at="/tmp") + text)
        assert [key for key in forbidden(tmp_path, tmp_path) if key != "forbids system"] == keys
    assert set(forbidden(tmp_path, tmp_path / "none")) <= {"forbids system"}
