"""Sessions to work on, in homes of their own, with something outside that must never be reached."""

from __future__ import annotations

from pathlib import Path

SECRET = "the-secret-outside"


def session(root: Path, key: str = "alice") -> Path:
    """A session's directory as Bubbles makes it, beside another's and the installation's configuration, all of which hold SECRET."""
    made = root / "home" / "sessions" / key
    for path in (
        made / "work",
        made / "data",
        made / "skills" / "pdf",
        root / "home/sessions/bob",
        root / "home/session_homes" / key,
        root / "outside",
    ):
        path.mkdir(parents=True, exist_ok=True)
    for name in ("SOUL.md", "MEMORY.md", "HEARTBEATS.md", "skills/pdf/SKILL.md"):
        (made / name).write_text(f"{name} as it was\n")
    hidden = ("home/config.json", f"home/sessions/{key}/config.json", f"home/sessions/{key}/session.jsonl")
    for name in (*hidden, "home/sessions/bob/MEMORY.md", f"home/session_homes/{key}/.token", "outside/file"):
        (root / name).write_text(f"{SECRET}\n")
    return made


def everything(root: Path) -> dict[str, str]:
    """The content of every regular file below `root`, links not followed."""
    return {
        str(path.relative_to(root)): path.read_text("utf-8", "replace")
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
