"""The examples in the docstrings of this room are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from bubbles import providers


@pytest.mark.parametrize("name", ["bubbles.providers", *(f"bubbles.providers.{m.name}" for m in pkgutil.iter_modules(providers.__path__))])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
