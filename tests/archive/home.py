"""Homes to save, and backups as somebody else might make them."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bubbles.archive.form import END, HEAD, INSIDE, End, Head
from bubbles.archive.packing import Pack
from bubbles.archive.saving import Patience, Saving
from bubbles.kernel.events import Event, ModelAsked, UserSpoke, header, to_line
from bubbles.messages import Address
from bubbles.paths import Home

Member = tuple[str, Callable[[tarfile.TarInfo], object], bytes]


def saved(home: Home, without: Collection[str] = (), *, at: float | None = None, patience: Patience | None = None) -> bytes:
    """A backup, not compressed."""
    out = io.BytesIO()
    Saving(home, Pack(out), without, patience=patience or Patience()).run(time.time() if at is None else at)
    return out.getvalue()


def ended(home: Home) -> End:
    """What a backup of it says last."""
    return Saving(home, Pack(io.BytesIO()), ()).run(0.0)


def file(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def spoke(id: str) -> UserSpoke:
    return UserSpoke(id, "hello", "", Address("cli", "s"), at=1.0)


def journal(home: Home, key: str, *events: Event, turn: str = "cli-1") -> Path:
    """The journal of a turn that is open."""
    path = home.turns / f"{key}.jsonl"
    with open(path, "ab") as out:
        out.write(header(turn, key) if not path.stat().st_size else b"")
        out.writelines(to_line(event, 1.0) for event in events or (spoke(turn), ModelAsked(f"{turn}.0")))
    return path


def history(home: Home, key: str, *turns: str) -> Path:
    """A history in which these turns ended."""
    path = file(home.session(key) / "session.jsonl", json.dumps({"format": "bubbles.history", "version": 1, "session": key}) + "\n")
    with open(path, "a") as out:
        for turn in turns:
            end = {"meta": "turn", "turn": turn, "outcome": "replied", "messages": [{"id": turn}], "says": ["x"], "at": 1.0, "end": True}
            out.write(json.dumps(end, separators=(",", ":")) + "\n")
    return path


def tree(root: Path) -> dict[str, Any]:
    """All that is below a directory: contents, links, and times of files."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = os.fsencode(path.relative_to(root)).decode("utf-8", "backslashreplace")
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
    return found


def tar(*members: tuple[str, dict[str, Any], bytes], head: Any = None, end: Any = None) -> bytes:
    """A tar with a head and an end of ours, and these members of anybody's: name in the home (or "/name" as it is), what is set, content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, settings, content in [
            (f"/{HEAD}", {}, json.dumps(head or Head("0.1.0", "/home/ann/.bubbles", time.time()).body()).encode()),
            *members,
            (f"/{END}", {}, json.dumps(end or {"files": 0}).encode()),
        ]:
            info = tarfile.TarInfo(name[1:] if name.startswith("/") else f"{INSIDE}/{name}")
            info.size = len(content)
            for key, value in settings.items():
                setattr(info, key, value)
            made.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return out.getvalue()
