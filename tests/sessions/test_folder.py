"""A session's directory is made from the templates, and what is in it is never touched again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bubbles.errors import Misconfigured
from bubbles.sessions import skills
from bubbles.sessions.folder import Folder


def test_a_directory_is_made_once(tmp_path: Path) -> None:
    folder = Folder("s", tmp_path / "s")
    folder.prepare()
    assert {"work", "data", "skills", "SOUL.md", "MEMORY.md"} <= {p.name for p in folder.path.iterdir()}
    (folder.path / "SOUL.md").write_text("mine")
    folder.prepare()
    assert folder.note("SOUL.md") == "mine"
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_a_note_that_is_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    folder = Folder("s", tmp_path)
    (tmp_path / "secret").write_text("secret")
    os.symlink("secret", tmp_path / "SOUL.md")
    os.mkfifo(tmp_path / "MEMORY.md")
    assert folder.note("SOUL.md") == ""
    assert folder.note("MEMORY.md") == ""


def test_overrides_come_and_go(tmp_path: Path) -> None:
    folder = Folder("s", tmp_path)
    assert folder.overrides() == {}
    folder.override("model", "x")
    folder.override("temperature", 0.1)
    folder.override("model", None)
    assert folder.overrides() == {"version": 1, "temperature": 0.1}
    assert (tmp_path / "config.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["{", "[]", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), ""])
def test_broken_overrides_are_named_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(Misconfigured, match="config.json"):
        Folder("s", tmp_path).overrides()
    assert path.read_text() == text


def test_overrides_that_others_may_have_written_are_not_believed(tmp_path: Path) -> None:
    folder = Folder("s", tmp_path)
    folder.override("sandbox", "local")
    for mode in (0o660, 0o602):
        folder.config.chmod(mode)
        for act in (folder.overrides, lambda: folder.override("model", "x")):
            with pytest.raises(Misconfigured, match="is not believed: others may write it") as caught:
                act()
            assert f"chmod 600 {folder.config}" in caught.value.remedy
    folder.config.chmod(0o644)
    assert folder.overrides() == {"version": 1, "sandbox": "local"}


def test_overrides_are_no_link(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine").write_text('{"sandbox": "local"}')
    (tmp_path / "config.json").symlink_to("work/mine")
    folder = Folder("s", tmp_path)
    for act in (folder.overrides, lambda: folder.override("model", "x")):
        with pytest.raises(Misconfigured, match="is a link"):
            act()
    assert (tmp_path / "work" / "mine").read_text() == '{"sandbox": "local"}'


def test_the_index_of_skills(tmp_path: Path) -> None:
    for name, text in {
        "pdf": "---\nname: pdf\ndescription: 'Read and write PDF'\n---\n# x\n",
        "notes": "# Notes\n\nKeeps notes.\n",
        "bare": "",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(text)
    (tmp_path / "nothing").mkdir()
    os.symlink("/etc", tmp_path / "link")
    assert skills.index(tmp_path) == [("bare", ""), ("notes", "Keeps notes."), ("pdf", "Read and write PDF")]
    assert skills.index(tmp_path / "absent") == []
