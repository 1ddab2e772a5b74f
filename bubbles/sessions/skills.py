"""The index of a session's skills: what stands at the head of each SKILL.md.

It does not know what a skill does; a model that wants to know reads the file.
"""

from __future__ import annotations

import os
from pathlib import Path

from bubbles.sessions.folder import head

_HEAD_MOST = 4096  # bytes of a SKILL.md that are looked at
_DESCRIPTION_MOST = 300  # characters


def index(skills: Path) -> list[tuple[str, str]]:
    """(name, description) of every `skills/NAME/SKILL.md`, sorted. The name is the directory's; one without a description has ""."""
    found: list[tuple[str, str]] = []
    try:
        names = sorted(entry.name for entry in os.scandir(skills) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    for name in names:
        if os.path.isfile(skills / name / "SKILL.md"):
            found.append((name, _description(head(skills / name / "SKILL.md", _HEAD_MOST))))
    return found


def _description(text: str) -> str:
    """The `description:` of the front matter, else the first line of prose."""
    lines = text.splitlines()
    if lines and lines[0].strip() == "---":
        for line in lines[1:]:
            if line.strip() == "---":
                break
            key, colon, value = line.partition(":")
            if colon and key.strip() == "description":
                return value.strip().strip("\"'")[:_DESCRIPTION_MOST]
    prose = [line.strip() for line in lines if line.strip() and not line.startswith(("#", "---"))]
    return prose[0][:_DESCRIPTION_MOST] if prose else ""
