"""What one session changes of the owner's settings: looked up, and changed only where all of it still fits afterwards.

It does not know who asks for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbles import config
from bubbles.config.section import fold, nearest
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.sessions.folder import Folder
from bubbles.workspace import Grant

if TYPE_CHECKING:
    from bubbles.sandboxes.probe import Verdict

_TOGETHER = ("sandbox", "network")  # each may fit, and not the two of them
_NAMES = {fold(name): name for name in config.SESSION_KEYS} | {"workspace": "workspaces"}


def key_of(typed: str) -> tuple[str, str]:
    """The setting that was typed, "" for none; and for none the one that it is near to, or ""."""
    found = _NAMES.get(fold(typed), "")
    return found, "" if found else nearest(typed, _NAMES)


class Overrides:
    """The settings of the session `key`, whether or not that is awake, or could be. `settings` are the owner's."""

    def __init__(self, home: Home, key: str, settings: Any) -> None:
        self._home = home
        self._settings = settings
        self._folder = Folder(key, home.session(key))

    def own(self) -> dict[str, Any]:
        """What the session's file says, by the settings' proper names. Raises Misconfigured where it cannot be read."""
        return {_NAMES.get(fold(name), name): value for name, value in self._folder.overrides().items() if name != "version"}

    def effective(self) -> config.Effective:
        """What holds. Raises Misconfigured where something in the session's file does not fit."""
        return config.session_settings(self._settings, self._folder.overrides(), str(self._folder.config))

    def owners(self) -> config.Effective:
        """What holds where a session changes nothing."""
        return config.session_settings(self._settings, {})

    def misfits(self) -> list[str]:
        """The names in the session's file whose values do not fit, each or together. Raises Misconfigured where it cannot be read at all."""
        own = self.own()
        alone = [name for name, value in own.items() if not self._fits({name: value})]
        return alone or ([] if self._fits(own) else [name for name in own if name in _TOGETHER])

    def confinement(self, key: str, value: Any) -> tuple[str, str]:
        """The sandbox and its network as they would be with `key` at `value` (None: taken back). Raises Misconfigured for a broken file."""
        owners = self.owners()
        own = {name: held for name, held in (self.own() | {key: value}).items() if held is not None}
        return str(own.get("sandbox", owners.sandbox)), str(own.get("network", owners.network))

    def _fits(self, raw: dict[str, Any]) -> bool:
        try:
            config.session_settings(self._settings, raw)
        except Misconfigured:
            return False
        return True

    def jail(self) -> Verdict:
        """Whether a jail can be made here. It blocks, some 0.1 s where that is not known yet."""
        from bubbles.sandboxes import probe  # 20 ms that every start would take

        return probe.verdict(self._home, self._settings.tools.sandbox)

    def change(self, key: str, value: Any) -> None:
        """Write one setting, or with None take it back. Raises Misconfigured, and changes nothing, where the file would not fit then."""
        raw = self._folder.overrides()
        spelled = next((name for name in raw if fold(name) == fold(key)), key)
        checked = {name: held for name, held in raw.items() if name != spelled} | ({} if value is None else {spelled: value})
        wanted = config.session_settings(self._settings, checked)
        for grant in wanted.workspaces if key == "workspaces" else ():
            Grant(Path(grant.path), grant.mode).check(self._home.root)
        if key == "sandbox" and value == "bwrap" and not (found := self.jail()).ok:
            raise Misconfigured(f"sandbox cannot be bwrap here: {found.why}", remedy=found.remedy)
        if not self._folder.exists():
            self._folder.prepare()
        self._folder.override(spelled, value)
