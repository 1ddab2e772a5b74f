"""What Tab offers: commands, sessions, the names of settings, and their values where those are a list. Pure but for the names of sessions."""

from __future__ import annotations

from pathlib import Path

from bubbles import providers, sandboxes
from bubbles.agentd.spelling import COMMANDS
from bubbles.agentd.texts import TEXTS

KEYS = [key.removeprefix("allowed ") for key in TEXTS if key.startswith("allowed ")]  # of a session's settings
VALUES = {
    "sandbox": list(sandboxes.REGISTRY),
    "language": ["auto", "en", "zh"],
    "provider": [name for name, entry in providers.REGISTRY.items() if entry.implementation],
    "workspace": ["add", "remove"],
}


def offers(text: str, sessions: Path) -> list[tuple[str, int]]:
    """What may stand for the end of `text`, each with how many characters of it that replaces; `sessions` holds a directory for each."""
    words = text.split(" ")
    start = words[-1]
    match words:
        case [first] if first.startswith("/"):
            found = [f"/{name}" for name in (*COMMANDS, "exit")]
        case ["/session", *_]:
            start = text.removeprefix("/session ")
            found = sorted(path.name for path in sessions.glob("*") if path.is_dir())
        case ["/config", _]:
            found = sorted([*KEYS, "workspace"])
        case ["/config", key, _]:
            found = [*VALUES.get(key, []), "-"]
        case _:
            found = []
    return [(word, len(start)) for word in found if word.startswith(start)]
