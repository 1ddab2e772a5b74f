"""/config and /model: one session's settings, shown and changed by their owner."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bubbles import config, lending, sandboxes
from bubbles.agentd import confined, standing
from bubbles.agentd.asked import Asked, asked
from bubbles.agentd.overrides import key_of
from bubbles.bus.caller import Caller
from bubbles.config.section import plain
from bubbles.errors import BubblesError, Misconfigured, Usage
from bubbles.sessions.lent import lent

LANGUAGES = ("auto", "en", "zh")
_PATIENCE_S = 5.0  # for the providers to say what they have
_NAMED_MOST = 20  # models that /model names
_LONG = 200  # characters of a value in the list of all


async def configure(ask: Asked) -> str:
    """The text of /config. Raises OSError, and has changed nothing, where the disk refuses; Misconfigured where the session's file cannot be read."""
    try:
        return await _configure(ask)
    except Misconfigured:
        return _broken(ask, ask.overrides.misfits())


async def _configure(ask: Asked) -> str:
    first, rest = _split(ask.arguments)
    if not first:
        return _all(ask)
    if first.lower() in ("workspace", "workspaces") and (_split(rest)[0] in ("add", "remove") or not rest):
        return _workspaces(ask, rest)
    key, near = key_of(first)
    if not key:
        return ask.told("no setting but", key=first[:40], near=near) if near else ask.told("no setting", key=first[:40], names=_names())
    if not rest:
        return _one(ask, key)
    if key in ("sandbox", "network"):
        rest = rest.lower()  # words of ours, and a phone begins them with a capital
    return await _set(ask, key, None if rest == "-" else rest)


async def choose_model(ask: Asked, modeld: Caller) -> str:
    """The text of /model."""
    if ask.arguments:
        return await _set(ask, "model", None if ask.arguments == "-" else ask.arguments)
    route = await standing.routed(ask)
    lines = [standing.model_line(ask, route)]
    if not isinstance(route, str) and ask.language == "en":  # it is told in English alone
        lines.append(ask.told("why", why=route.why))
    if names := await _models(modeld):
        more = ask.told("and more", n=len(names) - _NAMED_MOST) if len(names) > _NAMED_MOST else ""
        lines.append(ask.told("models", names=", ".join(names[:_NAMED_MOST])) + more)
    return "\n".join([*lines, ask.told("model help")])


async def _models(modeld: Caller) -> list[str]:
    """The models that can be asked, as one types them; none where nobody tells."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            body, _ = await modeld.call("model.list")
    except (TimeoutError, BubblesError):
        return []
    return [f"{one['provider']}/{one['model']}" for one in body["models"]]


# -- showing -------------------------------------------------------------------------------------


def _all(ask: Asked) -> str:
    own = ask.overrides.own()
    shown = _settings(ask)
    lines = [_line(ask, key, _short(text), key in own) for key, text in shown.items()]
    return "\n".join([*lines, *_lent(ask), ask.told("config help")])


def _one(ask: Asked, key: str) -> str:
    return _line(ask, key, _settings(ask)[key], key in ask.overrides.own())


def _line(ask: Asked, key: str, value: str, own: bool) -> str:
    return ask.told("own setting" if own else "setting", key=key, value=value)


def _settings(ask: Asked) -> dict[str, str]:
    effective = ask.overrides.effective()
    shown = {key: _shown(ask, plain(getattr(effective, key))) for key in config.SESSION_KEYS}
    return shown if effective.network else shown | {"network": ask.told("unset but", value=_network(effective))}


def _network(effective: config.Effective) -> str:
    """The rule for the network that holds in a turn of the owner's alone."""
    return sandboxes.narrower(effective.sandbox, effective.network, "host") or "host"


def _shown(ask: Asked, value: Any) -> str:
    if value in ("", []):
        return ask.told("unset")
    if isinstance(value, list):
        return ", ".join(_grant(one) for one in value)
    return value if isinstance(value, str) else json.dumps(value)


def _grant(grant: Mapping[str, str]) -> str:
    return f"{grant['path']} ({grant['mode']})"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONG else line[: _LONG - 1] + "…"


def _lent(ask: Asked) -> list[str]:
    loans = lent(ask.agent.home, ask.inbound.session) if ask.awake is None else lent(ask.agent.home, ask.actor.session.key)
    return [ask.told("lent", value=", ".join(f"{loan.path} ({loan.mode})" for loan in loans))] if loans else []


# -- changing ------------------------------------------------------------------------------------


async def _set(ask: Asked, key: str, text: str | None) -> str:
    before = ask.overrides.own().get(key)
    was_own = before is not None or text is not None
    if key == "workspaces" and text is not None and (why := _unlendable(ask, _grants(text))):
        return why
    try:
        value = None if text is None else config.parse(key, text)
    except Usage as error:
        return _refused(ask, key, text or "", not_built="not built yet" in error.text)
    if wrong := await _unkept(ask, key, value) or _changed(ask, key, value):
        return wrong
    if key in ("sandbox", "network"):
        return "\n".join([_one(ask, key), *(_consequences(ask, key) if was_own else ())])
    if key == "language":
        ask = asked(ask.agent, ask.inbound, ask.command, ask.awake)  # from now on in that one
    if key not in ("model", "provider") or ask.awake is None:
        return _one(ask, key)
    route = await standing.routed(ask)
    if route == "not_set_up" and value is not None:  # it would answer nothing any more
        _changed(ask, key, before if before != value else None)
        return ask.told("model nowhere", model=text)
    return f"{_one(ask, key)}\n{standing.model_line(ask, route)}"


def _changed(ask: Asked, key: str, value: Any) -> str:
    """Change one setting, for the next request on; why not, or ""."""
    try:
        ask.overrides.change(key, value)
    except Misconfigured:
        broken = [name for name in ask.overrides.misfits() if name != key]
        return _broken(ask, broken) if broken else _refused(ask, key, str(value))
    if ask.awake is not None:
        ask.actor.session.refresh()
    return ""


async def _unkept(ask: Asked, key: str, value: Any) -> str:
    """Why commands cannot be kept to what is asked for here, "" where they can: it is refused and not promised in vain."""
    if key not in ("sandbox", "network"):
        return ""
    backend, network = ask.overrides.confinement(key, value)
    if _unkeepable(backend, network):
        return ask.told("network not kept" if key == "network" else "sandbox keeps less", sandbox=backend, network=network)
    if (key, value) != ("sandbox", "bwrap"):
        return ""
    found = await asyncio.to_thread(ask.overrides.jail)
    return "" if found.ok else ask.told("no jail", why=found.why.rstrip("."), remedy=found.remedy)


def _unkeepable(backend: str, network: str) -> str:
    from bubbles.config.tools import unkept  # its section is loaded by now

    return unkept(backend, network)


def _consequences(ask: Asked, key: str) -> list[str]:
    """What an owner should know who has just changed the sandbox or its network."""
    effective = ask.overrides.effective()
    network = _network(effective)
    if key == "network":
        return [ask.told("network open")] if (effective.sandbox, network) == ("bwrap", "host") else []
    if effective.sandbox == "bwrap":
        return [ask.told("jailed", network=network)]
    kept = ", ".join(ask.told(what) for what in confined.forbidden())
    return [ask.told("not jailed"), *([ask.told("still forbidden", what=kept)] if kept else [])]


def _broken(ask: Asked, keys: list[str]) -> str:
    return ask.told("settings broken", keys=", ".join(keys), key=keys[0]) if keys else ask.told("broken")


def _refused(ask: Asked, key: str, text: str, *, not_built: bool = False) -> str:
    allowed = ask.told(f"allowed {key}", names=", ".join(_values(key)))
    return ask.told("not built" if not_built else "wrong value", key=key, value=_short(text), allowed=allowed)


def _values(key: str) -> list[str]:
    """What a setting may be, where that is a list of words."""
    match key:
        case "provider":
            from bubbles.config.providers import built  # 18 ms that every start would take

            return built()
        case "sandbox":
            return list(sandboxes.REGISTRY)
        case "network":
            return list(sandboxes.NETWORKS)
        case "language":
            return list(LANGUAGES)
    return []


def _names() -> str:
    return ", ".join(config.SESSION_KEYS)


# -- workspaces ----------------------------------------------------------------------------------


def _workspaces(ask: Asked, text: str) -> str:
    """The text of /config workspace: the list, or what `add PATH [ro|rw]`, `remove PATH` made of it.

    A session's own list begins empty: the owner's is not copied, because what the owner takes back there would stay here.
    """
    verb, rest = _split(text)
    path, mode = _path(rest)
    if not verb or not path or (verb == "remove" and mode):
        help = [] if not verb else [ask.told("workspace help")]
        return "\n".join(help or [_one(ask, "workspaces"), *_lent(ask), ask.told("workspace help")])
    own = ask.overrides.own().get("workspaces")
    mine = [dict(grant) for grant in plain(ask.overrides.effective().workspaces)] if own is not None else []
    left = [grant for grant in mine if _real(grant["path"]) != _real(path)]
    if verb == "remove":
        return _removed(ask, path, left, found=len(left) < len(mine))
    grant = {"path": path, "mode": mode or "ro"}
    if why := _unlendable(ask, [grant]):
        return why
    aside = _set_aside(ask) if own is None else []
    return _changed(ask, "workspaces", [*left, grant]) or "\n".join([_one(ask, "workspaces"), *aside])


def _removed(ask: Asked, path: str, left: list[dict[str, str]], *, found: bool) -> str:
    if found:
        return _changed(ask, "workspaces", left) or _one(ask, "workspaces")
    owners = any(_real(grant.path) == _real(path) for grant in ask.overrides.owners().workspaces)
    return "\n".join([ask.told("owner's workspace" if owners else "no workspace", path=path), _one(ask, "workspaces")])


def _set_aside(ask: Asked) -> list[str]:
    """What has to be said where a session gets a list of its own, and the owner's does not count there any more."""
    owners = ", ".join(_grant(grant) for grant in plain(ask.overrides.owners().workspaces))
    return [ask.told("set aside", paths=owners)] if owners else []


def _unlendable(ask: Asked, grants: list[dict[str, str]]) -> str:
    """Why the first of `grants` that may not be lent may not; "" where all may."""
    for grant in grants:
        path = Path(grant["path"])
        why = lending.refused(path, ask.agent.home.root) or ("" if path.is_dir() else "not there")
        if why:
            return ask.told("workspace refused", path=path, why=ask.told(why))
    return ""


def _grants(text: str) -> list[dict[str, str]]:
    """The workspaces that were typed as a list, or as one path with `:ro` or `:rw` behind it; none where a list is not written as one."""
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    paths = [one.get("path") if isinstance(one, dict) else one for one in (found if isinstance(found, list) else [text])]
    return [{"path": os.path.expanduser(re.sub(r":r[ow]$", "", path))} for path in paths if isinstance(path, str) and path]


def _path(text: str) -> tuple[str, str]:
    """A path and the mode behind it, "" where none is."""
    path, mode = text.strip(), ""
    if path[-2:] in ("ro", "rw") and path[-3:-2].isspace():
        path, mode = path[:-2].rstrip(), path[-2:]
    path = os.path.expanduser(path)
    return os.path.normpath(path) if os.path.isabs(path) else path, mode


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _split(text: str) -> tuple[str, str]:
    first, rest, *_ = [*text.split(None, 1), "", ""]
    return first, rest.strip()
