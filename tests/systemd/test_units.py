"""`bubbles units` beside a service manager that runs: it starts, restarts and removes what it wrote, for any home, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from tests.systemd.machine import CHECKOUT
from tests.systemd.person import Person
from tests.systemd.world import AGENTD, CRON, MODELD, TARGET, world

UNITS = (AGENTD, MODELD, CRON)


def pids(person: Person) -> list[str]:
    return [person.unit(unit)["MainPID"] for unit in UNITS]


def test_install_now_runs_them_and_again_leaves_them_alone(person: Person) -> None:
    first = person.run(["bubbles", "units", "install"])
    assert f"systemctl --user enable --now {TARGET}" in first.stdout
    assert person.unit(TARGET)["ActiveState"] == "inactive"
    assert "running: agentd, modeld, cron" in person.run(["bubbles", "units", "install", "--now"]).stdout
    before = pids(person)
    assert "0" not in before
    assert person.unit(TARGET)["UnitFileState"] == "enabled"
    assert person.unit("bubbles-tidy.timer")["ActiveState"] == "active"
    assert "Next" not in person.run(["bubbles", "units", "install", "--now"]).stdout
    assert pids(person) == before
    well = person.run(["bubbles", "units", "verify"])
    assert (well.stdout, well.stderr) == ("", "")
    assert person.systemctl("start", "bubbles-tidy.service").returncode == 0
    assert person.unit("bubbles-tidy.service")["Result"] == "success"


def test_what_runs_by_an_older_text_is_restarted(person: Person) -> None:
    person.run(["bubbles", "units", "install", "--now"])
    before = pids(person)
    person.run(["bubbles", "units", "install", "--strict", "--now"])
    assert not set(pids(person)) & set(before)
    assert person.unit(AGENTD)["ProtectSystem"] == "strict"
    person.run(["bubbles", "units", "install", "--no-strict", "--now"])
    assert person.unit(AGENTD)["ProtectSystem"] == "no"


def test_remove_leaves_no_process_and_no_file_but_drop_ins(person: Person) -> None:
    person.run(["bubbles", "units", "install", "--now"])
    person.systemctl("enable", "bubbles-channel@telegram.service")
    person.write(f".config/systemd/user/{CRON}.d/mine.conf", "[Service]\nMemoryMax=1G\n")
    person.run(["rm", ".config/systemd/user/bubbles-tidy.timer"])
    person.systemctl("stop", "bubbles-tidy.timer")
    person.systemctl("daemon-reload")
    running = [pid for pid in pids(person) if pid != "0"]
    done = person.run(["bubbles", "units", "remove"])
    assert f"it is yours: {person.home}/.config/systemd/user/{CRON}.d" in done.stdout
    assert person.run(["ps", "-o", "pid=", "-p", ",".join(running)], check=False).stdout == ""
    left = person.run(["find", ".config/systemd/user", "-name", "bubbles*"]).stdout.split()
    assert left == [f".config/systemd/user/{CRON}.d"]
    assert person.systemctl("list-units", "--all", "--plain", "--no-legend", "bubbles*").stdout == ""
    assert person.run(["ls", ".bubbles"]).stdout


def test_a_home_with_any_name_and_no_second_one_beside_it(person: Person) -> None:
    home = str(person.home / 'a 100% "good" $HOME')
    env = {"BUBBLES_HOME": home}
    done = person.run(["bubbles", "units", "install", "--now"], env=env)
    assert "running: agentd, modeld, cron" in done.stdout
    assert person.run(["bubbles", "units", "verify"], env=env).stdout == ""
    other = person.run(["bubbles", "units", "install"], check=False)
    assert other.returncode == 78
    assert home in other.stderr
    assert person.run(["ls", home]).stdout.split() == ["cron", "log", "models", "run", "sessions", "spool", "tokens", "turns", "usage"]


def test_what_does_not_start_is_named(person: Person) -> None:
    person.write(".bubbles/config.json", '{"version": 1, "agents": {"defaults": {"temperature": "warm"}}}')
    done = person.run(["bubbles", "units", "install", "--now"], check=False)
    assert done.returncode == 69
    assert "is not up" in done.stderr
    assert "exit-code 78" in done.stderr
    assert "try: journalctl --user" in done.stderr


def test_a_moved_program_is_told_of(person: Person) -> None:
    person.run(["bubbles", "units", "install"])
    path = f".config/systemd/user/{MODELD}"
    person.write(path, person.read(path).replace(f"{CHECKOUT}/bin", "/opt/bubbles/bin"))
    done = person.run(["bubbles", "units", "verify"], check=False)
    assert done.returncode == 1
    assert "Command /opt/bubbles/bin/bubbles-modeld is not executable" in done.stdout
    assert "bubbles units install --now" in done.stderr


def test_onboarding_names_the_units_does_nothing_unasked_and_does_it_when_told_to(person: Person) -> None:
    done = person.run(["bubbles", "onboard", "--yes", "--no-test", "--base-url", "http://127.0.0.1:1/v1", "--model", "m"])
    assert "bubbles units install --now" in done.stdout
    assert "bubbles gateway" not in done.stdout
    assert person.run(["find", ".config", "-name", "bubbles*"], check=False).stdout == ""
    asked = person.run(["script", "-qec", "bubbles onboard --refresh --no-test", "/dev/null"], input="\ny\n")  # as it is; yes
    assert "Keep everything on from now on" in asked.stdout
    assert "running: agentd, modeld, cron" in asked.stdout
    assert person.unit(TARGET)["UnitFileState"] == "enabled"


def test_the_model_s_file_is_shown_to_modeld_where_it_lies(person: Person) -> None:
    person.write("large models/m.gguf", "GGUF\n")
    model = str(person.home / "large models/m.gguf")
    person.write(".bubbles/config.json", json.dumps({"version": 1, "providers": {"embedded": {"model_path": model}}}))
    person.run(["chmod", "-R", "go-rwx", ".bubbles"])
    person.run(["bubbles", "units", "install", "--now"])
    root = f"/proc/{person.unit(MODELD)['MainPID']}/root"
    assert person.machine.run(["cat", f"{root}{model}"]).stdout == "GGUF\n"
    assert person.machine.run(["ls", "-A", f"{root}{person.home}"]).stdout.split("\n")[:-1] == [".bubbles", "large models"]


def test_strict_shows_agentd_what_lies_below_tmp_and_belongs_to_it(person: Person) -> None:
    place, work = f"/tmp/program-of-{person.name}", f"/tmp/work-of-{person.name}"
    python = CHECKOUT / ".venv/bin/python"
    copy = f"tar -C {CHECKOUT} --exclude=__pycache__ -cf - bin bubbles sandbox units templates | tar -C {place} -xf -"
    person.run(["sh", "-c", f"mkdir {work} {place} && {copy} && {python} -m venv --without-pip {place}/.venv"])
    libraries = map(str, (CHECKOUT / ".venv/lib").glob("python*/site-packages"))
    path = f'for d in {place}/.venv/lib/python*/site-packages; do printf "%s\\n" {place} {" ".join(libraries)} >$d/it.pth; done'
    person.run(["sh", "-c", path])
    home = f"{place}/home"
    config = json.dumps({"version": 1, "tools": {"workspaces": [f"{work}:rw"]}})
    person.run(["sh", "-c", f"umask 077; mkdir {home}; cat >{home}/config.json"], input=config)
    person.run([f"{place}/bin/bubbles", "units", "install", "--strict"], env={"BUBBLES_HOME": home})
    person.systemctl("start", AGENTD)
    root = f"/proc/{person.unit(AGENTD)['MainPID']}/root"
    assert person.machine.run(["ls", f"{root}/tmp"]).stdout.split() == [f"program-of-{person.name}", f"work-of-{person.name}"]
    mounts = person.machine.run(["cat", root.replace("root", "mountinfo")]).stdout
    assert f" {work} rw," in mounts
    assert f" {home} rw," in mounts
    assert f" {place}/bubbles ro," in mounts
    person.run(["rm", "-rf", work], check=False)


def test_a_strict_agentd_that_is_down_is_not_replaced_by_one_that_is_not_confined(person: Person, tmp_path: Path) -> None:
    with world(person, tmp_path / "state", {"default": {"reply": "here"}}) as bubbles:
        person.run(["bubbles", "units", "install", "--strict", "--now"])
        assert bubbles.ask("hello") == "here"
        person.systemctl("stop", TARGET)
        person.until(lambda: person.unit(AGENTD)["ActiveState"] == "inactive")
        refused = person.run(["bubbles", "ask", "hello"], check=False)
        assert (refused.returncode, "--strict" in refused.stderr, f"systemctl --user start {TARGET}" in refused.stderr) == (69, True, True)
        person.run(["bubbles", "units", "install", "--no-strict"])
        assert bubbles.ask("hello") == "here"
