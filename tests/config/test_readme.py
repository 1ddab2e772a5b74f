"""The examples of the room's README, and those in its code, are true."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType

import pytest

import bubbles.config
from bubbles.config import environment, faults, file, section, version


def test_the_readme_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    readme = Path(bubbles.config.__file__).parent / "README.md"
    result = doctest.testfile(str(readme), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    assert result.attempted > 20


@pytest.mark.parametrize("module", [bubbles.config, environment, faults, file, section, version])
def test_the_examples_in_the_code_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.failed == 0
