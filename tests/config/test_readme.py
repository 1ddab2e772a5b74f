"""The examples of the room's README are true."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import bubbles.config
from bubbles.config import environment, faults, file, section, version
from bubbles.paths import Home

ROOM = Path(bubbles.config.__file__).parent


class _Anywhere(doctest.OutputChecker):
    """A home's own path is written … in the README, and a file's text is shown without its indentation's blank lines."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, re.sub(r"/\S*/config\.json", "…/config.json", got), optionflags)


def test_the_readme_holds(home: Home) -> None:
    text = re.sub(r"^```.*$", "", (ROOM / "README.md").read_text(), flags=re.MULTILINE)
    example = doctest.DocTestParser().get_doctest(text, {"home": home}, "README.md", str(ROOM / "README.md"), 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(_Anywhere(), optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=said.append)
    assert runner.failures == 0, "".join(said)
    assert runner.tries > 20


def test_the_examples_in_the_code_hold() -> None:
    for module in (bubbles.config, environment, faults, file, section, version):
        assert doctest.testmod(module).failed == 0
