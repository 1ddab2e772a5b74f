"""read_file, write_file, edit_file, list_dir as a model uses them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.tools.read_file import ReadFile, _shown_lines
from bubbles.tools.tool import Bench
from bubbles.workspace import Page
from tests.tools.conftest import Ask


def test_a_file_is_written_read_edited_and_listed(ask: Ask) -> None:
    assert ask("write_file", {"path": "src/a.py", "content": "x = 1\ny = 2\n"}) == ("made src/a.py: 2 lines, 12 bytes", True)
    assert ask("read_file", {"path": "src/a.py"}) == ("x = 1\ny = 2", True)
    assert ask("edit_file", {"path": "src/a.py", "old": "y = 2", "new": "y = 3"}) == ("edited src/a.py at line 2", True)
    assert ask("read_file", {"path": "src/a.py", "line_numbers": True}) == ("1\tx = 1\n2\ty = 3", True)
    assert ask("list_dir", {}) == ("src/", True)
    assert ask("list_dir", {"depth": 2}) == ("src/\nsrc/a.py  12", True)
    assert ask("write_file", {"path": "src/a.py", "content": "done"}) == ("replaced src/a.py: 1 line, 4 bytes", True)


def test_an_edit_that_fails_tells_why_and_changes_nothing(ask: Ask, session: Path) -> None:
    ask("write_file", {"path": "a", "content": "one\n\ttwo\nthree\none\n"})
    text, ok = ask("edit_file", {"path": "a", "old": "    two", "new": "2"})
    assert not ok
    assert "line 2" in text or "lines 2-2" in text
    assert "\ttwo" in text
    text, ok = ask("edit_file", {"path": "a", "old": "one", "new": "1"})
    assert not ok
    assert "2 times (lines 1, 4)" in text
    assert (session / "work/a").read_text() == "one\n\ttwo\nthree\none\n"
    assert ask("edit_file", {"path": "a", "old": "one", "new": "1", "replace_all": True}) == ("edited a at lines 1, 4", True)


@pytest.mark.parametrize("path", ["../config.json", "../../bob/x", "/etc/passwd", "~/.ssh/id", "missing.txt", ".", "a\0b"])
def test_what_may_not_be_read_is_an_error_that_names_the_path(ask: Ask, path: str) -> None:
    for name, more in (("read_file", {}), ("edit_file", {"old": "a", "new": "b"})):
        text, ok = ask(name, {"path": path, **more})
        assert not ok
        assert text.startswith("Error: ")
        assert "Traceback" not in text


def test_the_memory_may_be_written_and_the_configuration_may_not(ask: Ask, session: Path) -> None:
    assert ask("edit_file", {"path": "../MEMORY.md", "old": "remembered", "new": "known"})[1]
    assert (session / "MEMORY.md").read_text() == "known\n"
    text, ok = ask("write_file", {"path": "../config.json", "content": '{"sandbox": "local"}'})
    assert not ok
    assert "writable: work/" in text
    assert "local" not in (session / "config.json").read_text()


def test_a_long_file_comes_in_pages_that_say_how_to_go_on(ask: Ask, session: Path) -> None:
    (session / "work/log").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    text, ok = ask("read_file", {"path": "log", "limit": 10})
    assert ok
    assert text.endswith("line 10\n[lines 1-10 of 5000; go on with offset=11]")
    text, _ = ask("read_file", {"path": "log", "offset": 4999})
    assert text == "line 4999\nline 5000\n[lines 4999-5000 of 5000]"
    text, ok = ask("read_file", {"path": "log", "offset": 5001})
    assert (text, ok) == ("Error: log has only 5000 lines", False)


def test_pages_stay_under_the_cap_of_a_result(ask: Ask, session: Path) -> None:
    (session / "work/log").write_text("".join(f"line {n} with a few more words in it\n" for n in range(20_000)))
    text, _ = ask("read_file", {"path": "log", "limit": 5000})
    assert "left out" not in text  # it ends at a line and says so, rather than losing its middle
    assert re.search(r"\[lines 1-\d+ of 20000; go on with offset=\d+\]$", text)


def test_binary_empty_odd_and_huge_files(ask: Ask, session: Path) -> None:
    work = session / "work"
    (work / "program").write_bytes(b"\x7fELF\0\0\0")
    (work / "empty").write_text("")
    (work / "latin").write_bytes("café au lait\n".encode("latin-1"))
    (work / "crlf").write_bytes(b"one\r\ntwo\r\n")
    (work / "wide").write_text("x" * 10_000)
    with open(work / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert "is binary (7 bytes)" in ask("read_file", {"path": "program"})[0]
    assert ask("read_file", {"path": "empty"}) == ("(the file is empty)", True)
    assert ask("read_file", {"path": "latin"}) == ("caf\ufffd au lait", True)
    assert ask("read_file", {"path": "crlf"}) == ("one\ntwo", True)
    assert "[... 8000 more characters in this line]" in ask("read_file", {"path": "wide"})[0]
    assert "is binary (1099511627776 bytes)" in ask("read_file", {"path": "sparse"})[0]


def test_a_text_file_beyond_the_cap_is_read_from_its_start(ask: Ask, session: Path) -> None:
    (session / "work/log").write_bytes(b"a line of a large log\n" * 1_000_000)
    text, ok = ask("read_file", {"path": "log", "offset": 3, "limit": 2})
    assert (text, ok) == ("a line of a large log\na line of a large log\n[lines 3-4 of a file of 22000000 bytes; go on with offset=5]", True)
    text, ok = ask("read_file", {"path": "log", "offset": 999_999})
    assert not ok
    assert "use exec" in text


lines = st.lists(st.text(st.characters(blacklist_characters="\n\r\0", blacklist_categories=["Cs"]), max_size=20), max_size=40)


@given(lines, st.booleans(), st.integers(1, 50), st.integers(60, 400))
def test_pages_together_are_the_file(content: list[str], newline: bool, limit: int, most: int) -> None:
    data = ("\n".join(content) + ("\n" if newline and content else "")).encode()
    expected = data.decode().split("\n")
    if not expected[-1]:
        expected.pop()
    seen: list[str] = []
    while len(seen) < max(1, len(expected)):
        text = _shown_lines(ReadFile.Arguments(path="f", offset=len(seen) + 1, limit=limit), Page(data, 0, len(data)), most)
        if not expected:
            assert text == "(the file is empty)"
            return
        *shown, last = text.split("\n")
        seen += (
            shown
            if re.fullmatch(r"\[lines \d+-\d+ of \d+.*\]", last) and len(shown) + len(seen) <= len(expected) and text != "\n".join(expected)
            else [*shown, last]
        )
    assert seen == expected


def test_listings_show_kinds_and_count_what_is_left_out(ask: Ask, session: Path) -> None:
    work = session / "work"
    (work / "link").symlink_to("../MEMORY.md")
    (work / "a\nb").write_text("x")
    (work / "sub").mkdir()
    assert ask("list_dir", {}) == ("a\\nb  1\nlink -> ../MEMORY.md\nsub/", True)
    assert ask("list_dir", {"path": "sub"}) == ("(the directory is empty)", True)
    assert "MEMORY.md  11" in ask("list_dir", {"path": ".."})[0].splitlines()
    assert "config.json" not in ask("list_dir", {"path": ".."})[0]
    for number in range(600):
        (work / f"sub/{number:03}").write_text("")
    text, _ = ask("list_dir", {"path": "sub"})
    assert text.endswith("499  0\n[500 entries shown, 100 left out; list a directory below, or use exec]")
    text, ok = ask("list_dir", {"path": "link"})
    assert not ok
    assert "not a directory" in text


def test_a_free_tool_may_run_many_times_at_once(bench: Bench, session: Path) -> None:
    for number in range(50):
        (session / f"work/{number}").write_text(str(number))

    async def scenario() -> list[str]:
        tool = ReadFile()
        return list(await asyncio.gather(*(tool.run(ReadFile.Arguments(path=str(n)), bench) for n in range(50))))

    assert asyncio.run(scenario()) == [str(n) for n in range(50)]
