"""Who may import whom: the tables of bubbles/README.md, held against every import of every module."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "bubbles"
NO_CODE = {"templates"}


@cache
def page() -> str:
    return (PACKAGE / "README.md").read_text("utf-8")


def table(head: str) -> list[list[str]]:
    """The rows of the table of bubbles/README.md whose first column is headed `head`."""
    found = re.findall(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page(), flags=re.M)
    assert len(found) == 1, head
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def allowed() -> dict[str, set[str]]:
    """Of each package, the others that it may import."""
    layers = {name: ticked(packages) for name, packages, _ in table("layer")}
    found: dict[str, set[str]] = {}
    for _, packages, rule in table("layer"):
        may, _, but = rule.partition(";")
        below = {package for layer in re.findall(r"\w+", may) for package in layers[layer]} - set(ticked(but))
        for n, package in enumerate(ticked(packages)):
            beside = set() if "not each other" in but else set(ticked(packages)[:n])
            found[package] = below | beside
    return found


def libraries() -> dict[str, list[str]]:
    """Of each library, the files and packages that may import it."""
    return {library: ticked(places) for names, places in table("library") for library in ticked(names)}


def modules(root: Path = PACKAGE) -> dict[str, Path]:
    """Every module below `root` by its dotted name; a package goes by `package.__init__`."""
    return {
        ".".join(["bubbles", *path.relative_to(root).with_suffix("").parts]): path
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).parts[0] not in NO_CODE and "__pycache__" not in path.parts
    }


def imports(path: Path, known: dict[str, Path], *, types: bool = True) -> Iterator[tuple[int, str]]:
    """Line and name of every import in a file, inside functions too; of ours the module, else the library. Without `types`, not for types alone."""
    tree = ast.parse(path.read_text("utf-8"))
    for_types = set() if types else {id(node) for test in ast.walk(tree) if _is_type_checking(test) for node in ast.walk(test)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, _module(alias.name, known)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                yield node.lineno, _module(f"{node.module}.{alias.name}", known)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _module(name: str, known: dict[str, Path]) -> str:
    """The module that `name`, or a name in it, stands for."""
    if not name.startswith("bubbles"):
        return name.split(".")[0]
    for candidate in (name, f"{name}.__init__", name.rpartition(".")[0], f"{name.rpartition('.')[0]}.__init__"):
        if candidate in known:
            return candidate
    return name


def room(module: str) -> str:
    """The package, or the module at the top, that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def violations(root: Path = PACKAGE) -> list[str]:
    """Every import that the tables do not allow."""
    known, rooms, places = modules(), allowed(), libraries()
    found = []
    for module, path in modules(root).items():
        own = room(module)
        for line, name in imports(path, known):
            where = f"{path.relative_to(root)}:{line} imports {name}"
            if name.startswith("bubbles"):
                if room(name) not in {own, "__init__", *rooms.get(own, ())}:
                    found.append(where)
            elif name not in sys.stdlib_module_names and not _may_stand(path.relative_to(root), places.get(name, [])):
                found.append(where)
    return found


def _may_stand(path: Path, places: list[str]) -> bool:
    return any(str(path) == place or path.is_relative_to(place) for place in places)


def circles(root: Path = PACKAGE) -> list[list[str]]:
    """Every way from a module back to itself, imports for types alone left out."""
    known = modules(root)
    graph = {module: {name for _, name in imports(path, known, types=False) if name in known} - {module} for module, path in known.items()}
    done: set[str] = set()
    found: list[list[str]] = []

    def walk(module: str, way: list[str]) -> None:
        if module in way:
            found.append([*way[way.index(module) :], module])
            return
        if module in done:
            return
        for name in sorted(graph[module]):
            walk(name, [*way, module])
        done.add(module)

    for module in graph:
        walk(module, [])
    return found


def test_every_import_is_allowed() -> None:
    assert violations() == []


def test_no_imports_in_a_circle() -> None:
    assert circles() == []


def test_the_table_names_what_is_there_and_nothing_else() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} - {"__init__"} - NO_CODE
    to_come = set(ticked(re.search(r"^`templates` holds files.*$", page(), re.M)[0])) - NO_CODE
    assert there | to_come == set(allowed())
    assert not there & to_come


def test_every_library_of_the_table_is_imported_where_it_says() -> None:
    known = modules()
    used = {(name, str(path.relative_to(PACKAGE))) for path in known.values() for _, name in imports(path, known)}
    for library, places in libraries().items():
        for place in places:
            there = any(name == library and _may_stand(Path(file), [place]) for name, file in used)
            assert there or library == "pydantic_core", (library, place)


def test_nothing_may_import_a_program_and_the_kernel_knows_words_alone() -> None:
    assert [package for package, may in allowed().items() if "programs" in may] == []
    assert allowed()["kernel"] == {"errors", "ids", "messages", "paths", "egress", "lending", "readable"}
    assert not allowed()["agentd"] & {"providers", "channels", "cron"}


@pytest.mark.parametrize(
    ("file", "line", "ok"),
    [
        ("kernel/turn.py", "from bubbles.messages import scrub", True),
        ("kernel/turn.py", "from bubbles import log", False),
        ("kernel/turn.py", "def f():\n    import bubbles.log", False),
        ("kernel/turn.py", "import zmq", False),
        ("bus/door.py", "import zmq", True),
        ("bus/wire.py", "import zmq", False),
        ("bus/wire.py", "from bubbles import spool", True),
        ("spool/queue.py", "from bubbles import bus", False),
        ("messages.py", "from bubbles.errors import DataError", True),
        ("errors.py", "from bubbles.messages import scrub", False),
        ("providers/route.py", "from bubbles.sessions import history", False),
        ("agentd/intake.py", "import bubbles.providers", False),
        ("agentd/intake.py", "from bubbles import __version__", True),
        ("tools/exec.py", "from bubbles import sandboxes", False),
        ("sessions/a.py", "from bubbles.programs import front", False),
        ("programs/a.py", "from bubbles import agentd, providers", True),
        ("utils.py", "from bubbles import errors", False),
    ],
)
def test_an_import_that_is_not_allowed_is_found(tmp_path: Path, file: str, line: str, ok: bool) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(line)
    assert (violations(tmp_path) == []) is ok


def test_a_circle_is_found_and_one_of_types_alone_is_none(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "a.py").write_text("from bubbles.spool import b")
    (tmp_path / "spool" / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bubbles.spool.a import x")
    assert circles(tmp_path) == []
    (tmp_path / "spool" / "b.py").write_text("def f():\n    from bubbles.spool.a import x")
    assert circles(tmp_path) == [["bubbles.spool.a", "bubbles.spool.b", "bubbles.spool.a"]]
