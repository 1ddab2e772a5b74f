"""`bubbles units`: what it writes, compares and removes, in a directory of its own; what systemd makes of it is checked by systemd-analyze."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bubbles.paths import Home
from bubbles.programs import front, unit_files
from bubbles.programs.units import _home_of
from tests.programs.run import BIN

analyzed = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
NAMES = {
    "bubbles.target", "bubbles-agentd.service", "bubbles-modeld.service", "bubbles-cron.service", "bubbles-channel@.service",
    "bubbles-home.service", "bubbles-home@.service", "bubbles-tidy.service", "bubbles-tidy.timer",
}  # fmt: skip
OF_ALL = {
    "Type=notify", "NotifyAccess=main", "Restart=always", "RestartPreventExitStatus=64 78", "StartLimitIntervalSec=0", "WatchdogSec=30",
    "KillMode=mixed", "OOMPolicy=continue", "UMask=0077", "LimitCORE=0", "PartOf=bubbles.target",
}  # fmt: skip
# Every directive of systemd 257 that takes something away from a service, but for resource limits and those that need root.
CONFINING = {
    "AmbientCapabilities", "BindPaths", "BindReadOnlyPaths", "CapabilityBoundingSet", "Delegate", "DeviceAllow", "DevicePolicy", "DynamicUser",
    "IPAddressDeny", "InaccessiblePaths", "KeyringMode", "LockPersonality", "MemoryDenyWriteExecute", "NoExecPaths", "NoNewPrivileges",
    "PrivateDevices", "PrivateIPC", "PrivateMounts", "PrivateNetwork", "PrivatePIDs", "PrivateTmp", "PrivateUsers", "ProcSubset", "ProtectClock",
    "ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc",
    "ProtectSystem", "RemoveIPC", "RestrictAddressFamilies", "RestrictFileSystems", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID",
    "RootDirectory", "SocketBindDeny", "SystemCallArchitectures", "SystemCallFilter", "TemporaryFileSystem",
}  # fmt: skip


@dataclass(frozen=True)
class Person:
    """Somebody with a home of Bubbles and a configuration directory, and without a service manager."""

    root: Path
    home: Path

    @property
    def units(self) -> Path:
        return self.root / "config" / "systemd" / "user"

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """`bubbles units ARGV...`, in this process: there are many of them."""
        own = {"HOME": str(self.root), "XDG_CONFIG_HOME": str(self.root / "config"), "BUBBLES_HOME": str(self.home), "XDG_RUNTIME_DIR": ""}
        out, err, mask = io.StringIO(), io.StringIO(), os.umask(0o022)
        try:
            with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                for name, value in own.items():
                    patch.setenv(name, value)
                status = front.run(["units", *argv])
        finally:
            os.umask(mask)
        return subprocess.CompletedProcess(argv, status, out.getvalue(), err.getvalue())

    def text(self, name: str) -> str:
        return (self.units / name).read_text()

    def there(self) -> set[str]:
        return {str(path.relative_to(self.units)) for path in self.units.rglob("*") if path.is_file()}

    def configure(self, **sections: object) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "config.json").write_text(json.dumps({"version": 1, **sections}))
        (self.home / "config.json").chmod(0o600)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path, tmp_path / ".bubbles")


def test_install_writes_every_unit_and_once_is_enough(person: Person) -> None:
    first = person.run("install")
    assert (first.returncode, first.stderr) == (0, "")
    assert person.there() == NAMES
    assert "9 files written" in first.stdout
    assert "bubbles units install --now" in first.stdout
    assert "0 files written" in person.run("install").stdout
    now = person.run("install", "--now")
    assert (now.returncode, "nothing is started" in now.stderr) == (69, True)
    assert not [path for path in person.units.iterdir() if path.name.startswith(".")]


def test_nothing_is_left_to_fill_in_and_the_executables_are_real(person: Person) -> None:
    person.run("install")
    for name in NAMES:
        assert not re.search(r"@[A-Z]+@", person.text(name)), name
    for program in ("agentd", "modeld", "cron"):
        started = re.search(r'^ExecStart="(.*)"$', person.text(f"bubbles-{program}.service"), re.M)
        assert started
        assert started[1] == str(BIN / f"bubbles-{program}")
        assert os.access(started[1], os.X_OK)


def test_the_usual_home_is_written_so_that_one_text_serves_everybody(person: Person, tmp_path: Path) -> None:
    person.run("install")
    assert 'Environment="BUBBLES_HOME=%h/.bubbles"' in person.text("bubbles-agentd.service")
    assert "RuntimeDirectory=bubbles\n" in person.text("bubbles-agentd.service")
    done = person.run("install", "--to", str(tmp_path / "package"))
    assert done.returncode == 0
    assert {path.name for path in (tmp_path / "package").iterdir()} == NAMES
    for name in NAMES:
        text = (tmp_path / "package" / name).read_text()
        assert str(tmp_path) not in text
        assert text == person.text(name)


def test_a_package_has_its_executables_where_they_will_be(person: Person, tmp_path: Path) -> None:
    assert person.run("install", "--bin", "/usr/bin").returncode == 64
    done = person.run("install", "--to", str(tmp_path / "package"), "--bin", "/usr/bin")
    assert done.returncode == 0
    assert 'ExecStart="/usr/bin/bubbles-agentd"' in (tmp_path / "package" / "bubbles-agentd.service").read_text()
    assert str(BIN.parent) not in "".join((tmp_path / "package" / name).read_text() for name in NAMES)


def test_another_home_has_sockets_of_its_own_and_its_path_stands_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / 'a 100% "good" $HOME\\here'
    person = Person(tmp_path, home)
    assert person.run("install").returncode == 0
    text = person.text("bubbles-agentd.service")
    assert f"RuntimeDirectory=bubbles{Home(home).mark}\n" in text
    assert r"a 100%% \"good\" $HOME\\here" in text
    assert _home_of(text) == home


def test_a_path_that_no_unit_can_name_is_refused(tmp_path: Path) -> None:
    done = Person(tmp_path, tmp_path / "a:b").run("install")
    assert done.returncode == 78
    assert "without colons" in done.stderr


def test_the_units_of_another_home_are_not_written_over(person: Person, tmp_path: Path) -> None:
    person.run("install")
    other = Person(tmp_path, tmp_path / "other")
    for verb in ("install", "remove", "verify"):
        refused = other.run(verb)
        assert refused.returncode == 78
        assert f"BUBBLES_HOME={person.home} bubbles units remove" in refused.stderr
    assert person.run("remove").returncode == 0
    assert other.run("install").returncode == 0


def test_a_unit_that_somebody_wrote_is_in_the_way_and_stays(person: Person) -> None:
    person.units.mkdir(parents=True)
    own = person.units / "bubbles-cron.service"
    own.write_text("[Service]\nExecStart=/bin/true\n")
    done = person.run("install")
    assert done.returncode == 78
    assert str(own) in done.stderr
    assert person.there() == {"bubbles-cron.service"}
    assert own.read_text() == "[Service]\nExecStart=/bin/true\n"


def test_a_masked_unit_is_not_unmasked_behind_its_owners_back(person: Person) -> None:
    person.run("install")
    (person.units / "bubbles-cron.service").unlink()
    (person.units / "bubbles-cron.service").symlink_to("/dev/null")
    done = person.run("install")
    assert done.returncode == 78
    assert "systemctl --user unmask bubbles-cron.service" in done.stderr


def test_the_places_of_the_program_lie_beside_each_other_and_are_there() -> None:
    places = unit_files.places()
    assert all(place.exists() and not place.is_relative_to("/usr") for place in places)
    assert [one for one in places for other in places if one != other and one.is_relative_to(other)] == []
    assert any((place / "programs").is_dir() or (place / "bubbles" / "programs").is_dir() for place in places)


def test_strict_stays_until_it_is_taken_back(person: Person) -> None:
    project, other = person.root / "project", person.root / "notes"
    project.mkdir()
    other.mkdir()
    person.configure(tools={"workspaces": [f"{project}:rw", str(other)]})
    person.run("install", "--strict")
    strict = "bubbles-agentd.service.d/strict.conf"
    assert person.there() == NAMES | {strict}
    assert f'ReadWritePaths="-{project}"' in person.text(strict)
    assert str(other) not in person.text(strict)
    person.run("install")
    assert person.there() == NAMES | {strict}
    person.run("install", "--no-strict")
    assert person.there() == NAMES
    assert not (person.units / "bubbles-agentd.service.d").exists()


def test_a_session_s_own_workspace_is_granted_too(person: Person) -> None:
    session = person.home / "sessions" / "s"
    session.mkdir(parents=True)
    (session / "config.json").write_text(json.dumps({"version": 1, "workspaces": [f"{person.root / 'mine'}:rw"]}))
    (person.home / "sessions" / "broken").mkdir()
    (person.home / "sessions" / "broken" / "config.json").write_text("{")
    person.home.chmod(0o700)
    assert person.run("install", "--strict").returncode == 0
    assert f'ReadWritePaths="-{person.root / "mine"}"' in person.text("bubbles-agentd.service.d/strict.conf")


def test_a_model_file_outside_the_home_is_shown_to_modeld_alone(person: Person) -> None:
    model = person.root / "large.gguf"
    person.configure(providers={"embedded": {"model_path": str(model)}})
    person.run("install")
    assert [name for name in NAMES if str(model) in person.text(name)] == ["bubbles-modeld.service"]
    inside = person.home / "models" / "small.gguf"
    person.configure(providers={"embedded": {"model_path": str(inside)}})
    person.run("install")
    assert str(inside) not in person.text("bubbles-modeld.service")


@analyzed
def test_systemd_finds_no_fault_in_any_of_them(person: Person) -> None:
    person.run("install", "--strict")
    runtime = person.root / "runtime"
    runtime.mkdir(mode=0o700)
    paths = [str(person.units / name) for name in sorted(NAMES)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "HOME": str(person.root), "XDG_CONFIG_HOME": str(person.root / "config")}
    done = subprocess.run(["systemd-analyze", "--user", "--man=no", "verify", *paths], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


@analyzed
def test_verify_says_nothing_where_all_is_well_and_the_difference_where_it_is_not(person: Person) -> None:
    missing = person.run("verify")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "bubbles units install" in missing.stderr
    person.run("install")
    well = person.run("verify")
    assert (well.returncode, well.stdout, well.stderr) == (0, "", "")
    path = person.units / "bubbles-cron.service"
    path.write_text(path.read_text().replace("MemoryMax=256M", "MemoryMax=9G"))
    differs = person.run("verify")
    assert differs.returncode == 1
    assert "-MemoryMax=9G" in differs.stdout
    assert "+MemoryMax=256M" in differs.stdout
    (person.units / "bubbles-modeld.service").unlink()
    assert "+++ wanted/bubbles-modeld.service" in person.run("verify").stdout
    person.run("install")
    assert person.run("verify").returncode == 0


@analyzed
def test_verify_shows_what_systemd_says_of_a_drop_in(person: Person) -> None:
    person.run("install")
    own = person.units / "bubbles-cron.service.d"
    own.mkdir()
    (own / "mine.conf").write_text("[Service]\nMemoryMacks=1\n")
    done = person.run("verify")
    assert done.returncode == 1
    assert "MemoryMacks" in done.stdout


def test_remove_deletes_what_was_written_and_leaves_the_rest(person: Person) -> None:
    person.run("install", "--strict")
    own = person.units / "bubbles-modeld.service.d" / "key.conf"
    own.parent.mkdir()
    own.write_text("[Service]\nLoadCredential=providers.custom.api_key:%h/key\n")
    foreign = person.units / "backup.service"
    foreign.write_text("[Service]\nExecStart=/bin/true\n")
    wanted = person.units / "default.target.wants"
    wanted.mkdir()
    (wanted / "bubbles.target").symlink_to(person.units / "bubbles.target")
    done = person.run("remove")
    assert done.returncode == 0
    assert person.there() == {"backup.service", "bubbles-modeld.service.d/key.conf"}
    assert f"it is yours: {own.parent}" in done.stdout
    assert not (wanted / "bubbles.target").is_symlink()
    assert "0 files deleted" in person.run("remove").stdout


def test_each_unit_keeps_the_promises_of_all(person: Person) -> None:
    person.run("install")
    for name in ("agentd", "modeld", "cron", "channel@"):
        lines = person.text(f"bubbles-{name}.service").splitlines()
        assert set(lines) >= OF_ALL, name
    assert "Delegate=yes" in person.text("bubbles-agentd.service").splitlines()


@pytest.mark.parametrize("name", ["home", "home@"])
def test_what_prepares_the_units_is_started_as_often_as_they_are(person: Person, name: str) -> None:
    person.run("install")
    lines = person.text(f"bubbles-{name}.service").splitlines()
    assert "StartLimitIntervalSec=0" in lines
    assert "RuntimeDirectory=bubbles.own" in lines
    program = "modeld" if name == "home" else "channel-%i"
    assert f'ExecStart=:"{BIN}/bubbles-units" excerpt "{program}" "%t/bubbles.own/{program}.json"' in lines


def test_the_file_of_settings_itself_is_bound_into_no_unit(person: Person) -> None:
    person.run("install")
    for name in ("modeld", "cron", "channel@"):
        bound = [line for line in person.text(f"bubbles-{name}.service").splitlines() if line.startswith("Bind") and "config.json" in line]
        assert all('"%t/bubbles.own/' in line and line.count("config.json") == 1 for line in bound)
        assert len(bound) == (name != "cron")


def test_strict_binds_what_a_private_tmp_would_hide() -> None:
    home = Home(Path("/tmp/x/home"))
    granted = unit_files.Granted(workspaces=(Path("/tmp/x/work"), Path("/srv/work")))
    text = unit_files.texts(home, granted, strict=True)[unit_files.STRICT]
    assert 'BindPaths="/tmp/x/home"\nBindPaths="-/tmp/x/work"\n' in text
    assert "/srv" not in "".join(line for line in text.splitlines() if line.startswith("Bind"))
    away = unit_files.texts(Home(Path("/srv/home")), unit_files.Granted(), strict=True, installed=Path("/usr/bin"))[unit_files.STRICT]
    assert "Bind" not in away


def directives(name: str) -> set[str]:
    return set(re.findall(r"^([A-Za-z]+)=", (unit_files.templates() / name).read_text(), re.M))


def left_out(heading: str) -> set[str]:
    """The directives in the first column of a table of docs/units.md."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "units.md").read_text()
    section = re.search(rf"^## {heading}$(.*?)^## ", page, re.M | re.S)
    assert section
    return set(re.findall(r"^\| `([A-Za-z]+)=", section[1], re.M))


@pytest.mark.parametrize("name", ["modeld", "cron", "channel@", "tidy"])
def test_each_way_to_confine_is_used_or_the_page_says_what_it_broke(name: str) -> None:
    used = directives(f"bubbles-{name}.service.in")
    assert CONFINING - used - left_out("Left out of the confined units") == set()


def test_what_agentd_lacks_has_its_row_and_what_strict_adds_too() -> None:
    rows = left_out("Left out of agentd")
    assert CONFINING - directives("bubbles-agentd.service.in") == rows - {"ReadWritePaths"}
    assert directives("bubbles-agentd.service.d/strict.conf.in") & CONFINING <= rows | directives("bubbles-agentd.service.in")
