"""What each unit may read, write and do, tried from inside it: a drop-in has the unit run tests/systemd/probe.py in place of its program."""

from __future__ import annotations

import base64
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbles.systemd import version
from tests.fakes.start import model
from tests.systemd.machine import CHECKOUT, Machine
from tests.systemd.person import Person
from tests.systemd.world import AGENTD, CHANNEL, CRON, MODELD, world

TIDY = "bubbles-tidy.service"
CONFINED = (MODELD, CRON, CHANNEL, TIDY)
_CODE = base64.b64encode(Path(__file__).with_name("probe.py").read_bytes()).decode()
_REFUSED = {"EROFS", "EACCES", "EPERM", "ENOENT", "ENOSYS", "EAFNOSUPPORT", "ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL"}
_CLONE_NEWUSER, _CLONE_NEWNS = 0x10000000, 0x20000
_BWRAP = [
    *("prlimit", "--nofile=4096:4096", "--core=0:0", "--fsize=2147483648:2147483648", "--"),
    *("bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net", "--disable-userns"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "bubbles", "--clearenv", "--setenv", "PATH", "/usr/bin"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--proc", "/proc", "--dev", "/dev", "--size", "67108864", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
    *("--size", "268435456", "--perms", "1777", "--tmpfs", "/tmp"),
]  # a jail as a command would get it, but for its own directory and its filter of system calls
_SECRETS = (
    *("config.json.old", "chats.json", "sessions/s/session.jsonl", "session_homes/s/.netrc", "turns/s.jsonl", "channels/other/token"),
    *("spool/inbound/other/new/m.json", "spool/outbound/other/new/m.json", "spool/media/other/picture"),
)
_LOGS = ("log/agentd.log", "log/agentd.jsonl", "log/modeld.jsonl", "log/units/other/other.jsonl", "log/units/channel-other/channel-other.jsonl.1")
_CONFIG = {
    "version": 1,
    "agents": {"defaults": {"model": "custom/m"}},
    "Providers": {"custom": {"apiKey": "key-of-providers", "base_url": "http://127.0.0.1:1/v1"}},
    "channels": {"sessionMode": "user", "Test": {"token": "key-of-test"}, "slack": {"botToken": "key-of-slack"}},
    "tools": {"web": {"search": {"api_key": "key-of-tools"}}},
    "gateway": {"token": "key-of-gateway"},
}
_LOG_OF = {MODELD: "log/units/modeld", CRON: "log/units/cron", CHANNEL: "log/units/channel-test", TIDY: "log/units/tidy", AGENTD: "log"}


class Inside:
    """A person whose units are installed, with things lying about that no unit is to see."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.bubbles = person.home / ".bubbles"
        self.runtime = Path(f"/run/user/{person.uid}")
        person.write(".ssh/id", "my key\n")
        for place in (*_SECRETS, *_LOGS):
            person.write(f".bubbles/{place}", "secret\n")
        person.write("project/file", "theirs\n")
        person.machine.run(["sh", "-c", f"echo secret >/tmp/of-{person.name}; chown {person.name} /tmp/of-{person.name}"])
        person.run(["bubbles", "units", "install"])
        person.write(".bubbles/config.json", json.dumps(_CONFIG))  # now, because most of it is not built yet, and so refused
        person.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $! >shell.pid"])
        self.shell = person.read("shell.pid").strip()

    def ask(self, unit: str, wanted: dict[str, list[str]]) -> dict[str, str]:
        """What the unit's directives let the probe do."""
        said, told = self.bubbles / "log/answers.json", self.bubbles / _LOG_OF[unit] / "answers.json"  # the same file, from inside and from outside
        escaped = json.dumps(wanted).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        lines = ["[Service]", "Type=oneshot", "Restart=no", "WatchdogSec=0", "ExecStart=", f'Environment="ANSWERS={said}" "PROBE={escaped}"']
        start = f"ExecStart={CHECKOUT}/.venv/bin/python -c \"import base64; exec(base64.b64decode('{_CODE}'))\""
        place = f".config/systemd/user/{unit}.d/zz-probe.conf"
        self.person.write(place, "\n".join([*lines, start, ""]))
        self.person.systemctl("daemon-reload")
        try:
            self.person.systemctl("start", unit)
            return json.loads(self.person.machine.path(told).read_text())
        finally:
            self.person.run(["rm", "-rf", f"{self.person.home}/{place}", told])
            self.person.systemctl("daemon-reload")


@pytest.fixture(scope="module")
def inside(machine: Machine) -> Iterator[Inside]:
    made = Inside(machine.person())
    yield made
    made.person.run(["kill", made.shell], check=False)


def outside(inside: Inside) -> dict[str, list[str]]:
    """What no confined unit may do."""
    home, bubbles, runtime, shell = inside.person.home, inside.bubbles, inside.runtime, inside.shell
    reads = [
        *(home / ".ssh/id", home / "project/file", "/root/.bashrc", f"/tmp/of-{inside.person.name}"),
        *(bubbles / "session_homes/s/.netrc", CHECKOUT / "SECURITY.md", *(bubbles / place for place in _LOGS)),
        *(runtime / "bubbles.own/modeld.json", runtime / "bubbles.own/channel-test.json"),
        *(f"/proc/{shell}/{name}" for name in ("environ", "maps", "root/etc/passwd", "cwd/.ssh/id")),
    ]
    lists = [bubbles / "log/units", runtime / "bubbles.own"]
    lists += ["/var/log/journal", "/run/log/journal", "/run/dbus", "/home/" + inside.person.name + "/project", f"/proc/{shell}/cwd"]
    writes = [
        *("/x", "/etc/x", "/usr/x", "/var/x", "/run/x", "/dev/x", "/dev/shm/x", "/dev/mqueue/x", "/proc/sys/kernel/hostname", "/sys/fs/cgroup/x"),
        *(home / "x", home / ".config/systemd/user/x", runtime / "x", bubbles / "config.json", CHECKOUT / "bubbles/x", CHECKOUT / "bin/x"),
    ]
    doors = [runtime / "bus", runtime / "systemd/private", "/run/dbus/system_bus_socket"]
    return {
        **{f"read {path}": ["read", str(path)] for path in reads},
        **{f"list {path}": ["list_", str(path)] for path in lists},
        **{f"write {path}": ["write", str(path)] for path in writes},
        **{f"connect {path}": ["connect", str(path)] for path in doors},
        **{f"family {name}": ["family", name] for name in ("AF_PACKET", "AF_NETLINK", "AF_VSOCK")},
        "user namespace": ["namespace", str(_CLONE_NEWUSER)],
        "mount namespace": ["namespace", str(_CLONE_NEWNS)],
        "setuid bit": ["mark_setuid", "/tmp/x"],
        "memory to write and run": ["memory"],
        "ptrace": ["call", "101"],
        "mount": ["call", "165"],
        "bpf": ["call", "321"],
    }


def of_others(inside: Inside) -> dict[str, list[str]]:
    """What is Bubbles' own, and no channel's, modeld's or cron's."""
    bubbles = inside.bubbles
    reads = [place for place in _SECRETS if not place.startswith("session_homes")]
    writes = ["x", "sessions/x", "sessions/s/x", "turns/x", "channels/x", "spool/x", "spool/inbound/x", "spool/inbound/other/new/x", "run/lent/x"]
    return {
        **{f"read {path}": ["read", str(bubbles / path)] for path in reads},
        **{f"write {path}": ["write", str(bubbles / path)] for path in writes},
    }


def allowed(found: dict[str, str]) -> dict[str, str]:
    return {name: answer for name, answer in found.items() if answer not in _REFUSED}


@pytest.mark.parametrize("unit", CONFINED)
def test_nothing_outside_can_be_read_written_or_reached(inside: Inside, unit: str) -> None:
    wanted = outside(inside) | ({} if unit == TIDY else of_others(inside))
    facts = {"status": ["status", "NoNewPrivs"], "caps": ["status", "CapBnd"], "root": ["list_", "/"], "here": ["list_", str(inside.person.home)]}
    found = inside.ask(unit, wanted | facts)
    assert {name: found.pop(name) for name in ("status", "caps", "here")} == {"status": "1", "caps": "0" * 16, "here": ".bubbles"}
    assert set(found.pop("root").split()) <= {
        *("bin", "dev", "etc", "home", "lib", "lib32", "lib64", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "var"),
        CHECKOUT.parts[1],
    }
    assert allowed(found) == {}


def test_the_same_probe_is_let_do_it_where_nothing_confines_it(inside: Inside) -> None:
    wanted = outside(inside) | of_others(inside)
    found = inside.ask(AGENTD, {name: words for name, words in wanted.items() if words[0] in ("read", "list_", "connect")})
    refused = {name for name, answer in found.items() if answer in _REFUSED}
    assert refused <= {"read /root/.bashrc", "list /run/log/journal"}
    assert "key-of-slack" in inside.ask(AGENTD, {"settings": ["read", str(inside.bubbles / "config.json")]})["settings"]
    assert found[f"read {inside.person.home}/.ssh/id"] == "my key"


def test_a_channel_has_its_own_and_the_network(inside: Inside) -> None:
    bubbles = inside.bubbles
    writes = ["channels/test/x", "spool/inbound/test/x", "spool/outbound/test/x", "spool/media/test/x", "log/x", "run/channel-test.lock"]
    with model() as server:
        port = server.url.split(":")[2].split("/")[0]
        wanted = {path: ["write", str(bubbles / path)] for path in writes} | {
            "network": ["ask_network", "127.0.0.1", port],
            "names": ["read", "/etc/hosts"],
            "notify": ["list_", str(inside.runtime / "systemd")],
            "sockets": ["write", str(inside.runtime / "bubbles/x")],
        }
        found = inside.ask(CHANNEL, wanted)
    assert found.pop("notify") == "notify"
    assert found.pop("names")
    assert set(found.values()) == {"yes"}


@pytest.mark.parametrize(
    ("unit", "seen"),
    [
        (MODELD, {name: _CONFIG[name] for name in ("version", "agents", "Providers")}),
        (CHANNEL, {"version": 1, "channels": {"sessionMode": "user", "Test": {"token": "key-of-test"}}}),
        (CRON, "ENOENT"),
        (TIDY, "EACCES"),
    ],
)
def test_of_the_settings_each_sees_what_it_loads(inside: Inside, unit: str, seen: Any) -> None:
    path = str(inside.bubbles / "config.json")
    found = inside.ask(unit, {"settings": ["read", path], "logs": ["list_", str(inside.bubbles / "log")], "aside": ["rename", path]})
    assert (found["settings"] if isinstance(seen, str) else json.loads(found["settings"])) == seen
    assert found["logs"] in ("", "x")  # that of the test above, not that of the others
    assert found["aside"] in _REFUSED | {"EBUSY"}
    own = inside.person.machine.path(inside.runtime / "bubbles.own")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (own, *own.iterdir())} == {0o700, 0o600}


def test_cron_has_its_own_and_no_network(inside: Inside) -> None:
    wanted = {path: ["write", str(inside.bubbles / path)] for path in ("cron/x", "spool/inbound/cron/x", "spool/outbound/cron/x")}
    with model() as server:
        found = inside.ask(CRON, wanted | {"network": ["ask_network", "127.0.0.1", server.url.split(":")[2].split("/")[0]]})
    assert found.pop("network") == "EAFNOSUPPORT"
    assert set(found.values()) == {"yes"}


def test_modeld_has_its_models_to_read_and_no_queue(inside: Inside) -> None:
    inside.person.write(".bubbles/models/m.gguf", "GGUF\n")
    inside.person.write(".bubbles/tokens/x.json", "login\n")
    bubbles = inside.bubbles
    found = inside.ask(MODELD, {
        "read": ["read", str(bubbles / "models/m.gguf")], "write": ["write", str(bubbles / "models/x")], "spool": ["list_", str(bubbles / "spool")],
        "cron": ["list_", str(bubbles / "cron")], "channels": ["list_", str(bubbles / "channels")],
        "login": ["read", str(bubbles / "tokens/x.json")], "renewed": ["write", str(bubbles / "tokens/y")],
    })  # fmt: skip
    assert (found.pop("login"), found.pop("renewed")) == ("login", "yes")
    assert found == {"read": "GGUF", "write": "EROFS", "spool": "ENOENT", "cron": "ENOENT", "channels": "ENOENT"}


def test_tidy_sees_the_home_and_neither_keys_nor_what_commands_keep(inside: Inside) -> None:
    inside.person.write(".bubbles/tokens/x.json", "login\n")
    bubbles = inside.bubbles
    found = inside.ask(TIDY, {
        "session": ["read", str(bubbles / "sessions/s/session.jsonl")], "delete": ["write", str(bubbles / "sessions/s/x")],
        "keys": ["read", str(bubbles / "config.json")], "homes": ["list_", str(bubbles / "session_homes/s")],
        "logins": ["list_", str(bubbles / "tokens")],
    })  # fmt: skip
    assert found == {"session": "secret", "delete": "yes", "keys": "EACCES", "homes": "EACCES", "logins": "EACCES"}


@pytest.mark.skipif(version() != 252, reason="the page has the numbers of 252")
def test_the_page_has_the_numbers_of_systemd(inside: Inside) -> None:
    page = (CHECKOUT / "docs" / "units.md").read_text()
    for names, number in re.findall(r"^\| (`bubbles-[^|]*) \| ([0-9.]+)", page, re.M):
        for name in re.findall(r"`([^`]+)`", names):
            unit = f"{name}x.service" if name.endswith("@") else f"{name}.service"
            said = inside.person.run(["systemd-analyze", "--user", "--no-pager", "security", unit]).stdout
            assert f"exposure level for {unit}: {number} " in said


@pytest.mark.parametrize("strict", [False, True])
def test_agentd_can_make_a_jail_and_serve_commands(inside: Inside, strict: bool) -> None:
    person, session = inside.person, str(inside.bubbles / "sessions/s")
    person.write(".bubbles/config.json", json.dumps({"version": 1, "tools": {"workspaces": [f"{person.home}/project:rw"]}}))
    person.run(["bubbles", "units", "install", "--strict" if strict else "--no-strict"])
    jail = [*_BWRAP, "--bind", session, session, "--remount-ro", "/", "--chdir", session, "--", "/bin/sh", "-c"]
    cgroup = 'd=/sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -d: -f3); mkdir "$d/x" && rmdir "$d/x" && echo made'
    wanted: dict[str, Any] = {
        "jail": ["run", *jail, 'echo "$(hostname) $(ls -d /home/*/.*/*)" >out; cat out'],
        "openat2": ["call", "437"],
        "cgroup": ["run", "sh", "-c", cgroup],
        "session": ["write", f"{session}/work"],
        "granted": ["write", f"{person.home}/project/x"],
        "home": ["write", f"{person.home}/x"],
        "tmp": ["write", "/tmp/x"],
        "key": ["read", f"{person.home}/.ssh/id"],
        "manager": ["connect", str(inside.runtime / "bus")],
        "sudo fails": ["status", "NoNewPrivs"],
        "compilers at run time": ["memory"],
    }
    if not person.machine.run(["sh", "-c", "command -v bwrap"], check=False).stdout:
        del wanted["jail"]
    found = inside.ask(AGENTD, wanted)
    assert found.pop("jail", "bubbles").startswith("bubbles")
    assert found.pop("openat2") == "EINVAL"  # known, and called wrongly
    everywhere = {"cgroup": "made", "session": "yes", "granted": "yes", "tmp": "yes", "key": "my key", "sudo fails": "1"}
    everywhere |= {"compilers at run time": "yes"}
    kept = {"home": "EROFS", "manager": "EACCES"} if strict else {"home": "yes", "manager": "yes"}
    assert found == everywhere | kept


def test_sudo_is_allowed_by_the_drop_in_of_the_page(inside: Inside) -> None:
    page = (CHECKOUT / "docs" / "units.md").read_text()
    drop_in = re.search(r"```ini\n(\[Service\]\nNoNewPrivileges=no\n.*?)```", page, re.S)
    assert drop_in
    inside.person.write(f".config/systemd/user/{AGENTD}.d/sudo.conf", drop_in[1])
    assert inside.ask(AGENTD, {"sudo fails": ["status", "NoNewPrivs"]}) == {"sudo fails": "0"}


def test_a_changed_key_is_seen_after_a_restart_and_a_broken_file_ends_it_with_the_reason(person: Person, tmp_path: Path) -> None:
    with world(person, tmp_path / "state", {"default": {"reply": "here"}}) as bubbles:
        bubbles.start()
        assert bubbles.ask("hello?") == "here"
        config = json.loads(person.read(".bubbles/config.json"))
        config["providers"]["custom"]["apiKey"] = "sk-a-key-of-later"
        good = json.dumps(config)
        person.write(".bubbles/config.json", good)
        person.systemctl("restart", MODELD)
        assert bubbles.ask("and now?") == "here"
        assert bubbles.model.seen()["headers"][-1]["authorization"] == "Bearer sk-a-key-of-later"

        person.write(".bubbles/config.json", good.replace('"sk-a', '\n"sk-a').replace('later"', 'later" oh'))
        assert person.systemctl("restart", MODELD, check=False).returncode != 0
        unit = person.unit(MODELD)
        assert (unit["ActiveState"], unit["ExecMainStatus"], unit["NRestarts"]) == ("failed", "78", "0")
        said = person.systemctl("status", MODELD, check=False).stdout
        assert re.search(r"config\.json: line 2, column [0-9]+: expecting ',' delimiter", said)
        assert "try: mend it there" in said
        assert "sk-a-key" not in said + person.machine.path(f"/run/user/{person.uid}/bubbles.own/modeld.json").read_text()
        person.systemctl("restart", CRON)  # has nothing to do with it

        person.write(".bubbles/config.json", good)
        for _ in range(7):  # more than systemd starts anything in ten seconds, unless it is told otherwise
            person.systemctl("restart", CRON)
        assert person.unit("bubbles-home.service")["Result"] == "success"
        person.systemctl("start", MODELD)
        assert bubbles.ask("and at last?") == "here"
