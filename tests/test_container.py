"""Dockerfile, compose.yaml and .dockerignore: read, and what they run tried as far as that needs no container."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bubbles.programs import PROGRAMS
from tests.programs.conftest import Place, a_place
from tests.programs.run import BIN
from tests.test_tree import ROOT, locked, tracked

KNOWN = {"ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with what follows, lines that go on joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n", "", "\n".join(lines))
    return [(found[1], found[2].strip()) for line in text.splitlines() if line.strip() and (found := re.fullmatch(r"([A-Z]+) (.*)", line))]


def of(name: str, *, stage: int = -1) -> list[str]:
    """What follows each instruction `name` of a stage."""
    stages: list[list[tuple[str, str]]] = [[]]
    for each in instructions():
        if each[0] == "FROM":
            stages.append([])
        stages[-1].append(each)
    return [rest for found, rest in stages[stage] if found == name]


def composed(text: str) -> dict[str, Any]:
    """The part of YAML that compose.yaml is written in: maps by indentation, and one-line values."""
    root: dict[str, Any] = {}
    open_maps = [(-1, root)]
    for line in text.splitlines():
        line = re.sub(r"(^|\s+)#.*", "", line)
        if not line.strip():
            continue
        found = re.fullmatch(r"( *)([\w.]+):(?: (.+))?", line)
        assert found, line
        depth = len(found[1])
        while open_maps[-1][0] >= depth:
            open_maps.pop()
        value: Any = {} if found[3] is None else _value(found[3])
        open_maps[-1][1][found[2]] = value
        if found[3] is None:
            open_maps.append((depth, value))
    return root


def _value(text: str) -> Any:
    if text.startswith("["):
        return [_value(each.strip()) for each in text[1:-1].split(", ")]
    return text[1:-1] if text.startswith('"') else {"true": True, "false": False}.get(text, text)


def test_the_image_runs_without_rights_as_a_user_with_a_number() -> None:
    assert {name for name, _ in instructions()} <= KNOWN
    assert len(of("FROM", stage=1)) == len(of("FROM", stage=2)) == 1
    assert of("FROM", stage=1)[0].split()[0] == of("FROM")[0].split()[0] == "python:${PYTHON}-slim"
    assert of("USER") == ["1000:1000"]
    assert any("useradd --uid 1000 " in run and run.endswith(" /home/bubbles/.bubbles") for run in of("RUN"))
    assert of("VOLUME") == ["/home/bubbles/.bubbles"]
    assert "XDG_RUNTIME_DIR=/home/bubbles/.bubbles/run CREDENTIALS_DIRECTORY=/run/secrets" in of("ENV")[0]
    assert json.loads(of("ENTRYPOINT")[0]) == ["bubbles"]
    assert json.loads(of("CMD")[0])[0] in PROGRAMS


def test_the_service_gives_up_all_rights_and_waits_for_a_stop() -> None:
    found = composed((ROOT / "compose.yaml").read_text())
    service = found["services"]["bubbles"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["init"] is True
    assert not {"privileged", "cap_add", "ports", "pid", "user", "network_mode"} & set(service)
    assert service["volumes"] == [f"home:{of('VOLUME')[0]}"]
    assert "home" in found["volumes"]
    assert int(service["stop_grace_period"].removesuffix("s")) > 15 + 2  # children.STOP_S, and what killing takes


def test_a_key_handed_over_as_compose_yaml_says_is_a_secret_of_that_name() -> None:
    text = re.sub(r"^( *)# (?=secrets:|  providers)", r"\1", (ROOT / "compose.yaml").read_text(), flags=re.M)
    assert "\n    secrets: [providers.custom.api_key]" in text
    assert "\nsecrets:\n  providers.custom.api_key: { file: " in text


def test_the_lock_has_all_that_the_image_is_built_from(tmp_path: Path) -> None:
    first = next(run for run in of("RUN", stage=1) if run.startswith("awk"))
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    subprocess.run(["sh", "-euc", first], cwd=tmp_path, check=True)
    chosen = (tmp_path / "first.lock").read_text()
    assert [line.split("==")[0] for line in chosen.splitlines() if "==" in line] == ["pip", "setuptools"]
    assert all(locked()[name].strip() in chosen for name in ("pip", "setuptools"))
    fetches = [run for run in of("RUN", stage=1) if "pip install" in run or "pip wheel" in run or "install -q" in run]
    commands = [command for run in fetches for command in run.split("&&") if "pip" in command and "-m venv" not in command]
    assert len(commands) == 4
    assert all(("--require-hashes" in command) != ("--no-index" in command) for command in commands)


def test_what_docker_is_shown_is_enough_to_build_and_holds_no_secret(tmp_path: Path) -> None:
    shown = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()
    for path in [*tracked(), ROOT / "bubbles/templates", ROOT / "bubbles/units"]:
        name = str(path.relative_to(ROOT))
        if any(name == each or name.startswith(f"{each}/") for each in shown) and os.path.lexists(path):
            (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / "src" / name, follow_symlinks=False)
    assert not any(fnmatch.fnmatch(each, pattern) for each in shown for pattern in (".git*", "*.key", "tests*", ".demo*"))
    build = next(command for run in of("RUN", stage=1) for command in run.split("&&") if command.strip().startswith("pip wheel -q --no-index"))
    argv = build.replace("/wheels", str(tmp_path)).split()
    subprocess.run([sys.executable, "-m", *argv], cwd=tmp_path / "src", check=True)
    assert list(tmp_path.glob("bubbles_assistant-*.whl"))


def health(place: Place) -> int:
    """What the image's check says of a home."""
    command = json.loads(of("HEALTHCHECK")[0].partition(" CMD ")[2])
    assert command.pop(0) == "python"
    return subprocess.run([sys.executable, "-P", *command], env={**os.environ, **place.env, "PYTHONPATH": str(ROOT)}, timeout=60).returncode


def test_healthy_is_who_answers(tmp_path: Path) -> None:
    with a_place(tmp_path) as place:
        assert health(place) == 1
        with subprocess.Popen([BIN / "bubbles", "gateway"], env={**os.environ, **place.env}, stderr=subprocess.PIPE, text=True) as gateway:
            assert gateway.stderr
            assert any("all run" in line for line in gateway.stderr)
            assert health(place) == 0
            gateway.terminate()
            gateway.communicate(timeout=30)
