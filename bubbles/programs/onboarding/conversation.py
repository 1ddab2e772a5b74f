"""The questions of `bubbles onboard`: who is to answer, where, with which key, and as which model."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import click

from bubbles import config
from bubbles.config import section
from bubbles.errors import BubblesError, Misconfigured
from bubbles.paths import Home
from bubbles.programs import servers, weights
from bubbles.programs.modelling import keys
from bubbles.programs.modelling.listing import SIGNED_IN
from bubbles.programs.onboarding.trying import about, ready, try_out
from bubbles.programs.onboarding.wishes import SHOWN
from bubbles.programs.plan import Plan, Wish
from bubbles.programs.provider import sign_in
from bubbles.providers import EMBEDDED, REGISTRY, catalogue, tokens
from bubbles.providers.route import route

_VENDOR = Wish("?")  # which is asked next


def converse(plan: Plan, wish: Wish, *, testing: bool) -> BubblesError | None:
    """Ask until a model has answered, or its owner leaves it at that: then what kept it from answering. The file is written before it is asked."""
    while True:
        try:
            wish = _asked(plan, wish)
            plan.set_up(_with_model(plan, wish))
            plan.write()
            if testing:
                try_out(plan.home)
            return None
        except BubblesError as error:
            click.echo(f"\n{error.text}" + (f"\n  try: {error.remedy}" if error.remedy else ""))
            if not click.confirm("Choose again?", default=True):
                if wish.provider != EMBEDDED:
                    with contextlib.suppress(Misconfigured):  # what would not load has been told of
                        plan.set_up(wish)
                plan.write()
                return error
            wish = Wish()


def _asked(plan: Plan, wish: Wish) -> Wish:
    """A wish with what was not given and the owner knows, but for the model."""
    settings = plan.settings()
    if not wish.provider and not wish.model:
        wish = _chosen(plan.home, settings)
    if not wish.provider or wish.provider == EMBEDDED:
        return wish
    if wish.provider in SIGNED_IN:
        if not tokens.path(plan.home, wish.provider).exists():
            sign_in(plan.home, REGISTRY[wish.provider])
        return wish
    section = getattr(settings.providers, wish.provider)
    if wish.provider in keys.KEYED:
        return replace(wish, api_key=wish.api_key or _asked_vendors_key(wish.provider, bool(section.api_key.get_secret_value())))
    wish = replace(wish, base_url=wish.base_url or _asked_url(section.base_url or REGISTRY[wish.provider].base_url))
    known = bool(section.api_key.get_secret_value()) and wish.base_url.rstrip("/") == section.base_url
    return wish if wish.keyless else replace(wish, api_key=wish.api_key or _asked_key(known))


def _with_model(plan: Plan, wish: Wish) -> Wish:
    if not wish.provider or wish.provider == EMBEDDED or wish.model:
        return wish
    found = catalogue.names(wish.provider) if wish.provider in keys.KEYED else plan.models(wish)
    return replace(wish, model=_asked_model(found))


def _chosen(home: Home, settings: config.Settings) -> Wish:
    """One line of a menu."""
    choices = [(about(server), Wish(server.provider, server.base_url, keyless=server.sure and not server.locked)) for server in servers.look()]
    none_runs = "" if choices else f"\nNo {_either([title for title, _ in servers.PLACES])} answers on this machine."
    here = [(REGISTRY[name].title, variable, Wish(name)) for name in keys.KEYED if (variable := keys.present(name))]
    choices += [(f"{title}, for which {variable} is set here", wish) for title, variable, wish in here]
    choices.append((f"a vendor or a gateway, by your key: {_either([REGISTRY[name].title for name in keys.KEYED])}", _VENDOR))
    choices.append(("any other endpoint that speaks OpenAI's protocol, by its address and key", Wish("custom")))
    choices.append((_about_embedded(home, settings), Wish(EMBEDDED)))
    for name in SIGNED_IN:
        how = "you are signed in" if tokens.path(home, name).exists() else "you are shown a code to sign in with"
        choices.append((f"{REGISTRY[name].title}, by a subscription of yours: {how}", Wish(name)))
    choices.append((_about_as_it_is(settings), Wish()))
    click.echo(f"{none_runs}\nWhich model is to answer?")
    for number, (text, _) in enumerate(choices, 1):
        click.echo(f"  {number}  {text}")
    number = click.prompt("Number", value_proc=lambda text: _number(text, len(choices)), default=str(len(choices) if ready(settings) else 1))
    wish = choices[number - 1][1]
    return Wish(_asked_vendor()) if wish is _VENDOR else wish


def _asked_vendor() -> str:
    """The name of a keyed provider, by its number or its name."""
    for number, name in enumerate(keys.KEYED, 1):
        click.echo(f"  {number:2d}  {name}")
    return str(click.prompt("Which, by number or name", value_proc=lambda text: _vendor(text.strip().lower())))


def _vendor(answer: str) -> str:
    if answer in keys.KEYED:
        return answer
    if not answer.isdecimal():
        raise click.UsageError("type a number or a name")
    return keys.KEYED[_number(answer, len(keys.KEYED)) - 1]


def _number(text: str, most: int) -> int:
    """Raises what click's prompt asks again for."""
    answer = text.strip()
    if not answer.isdecimal() or not 0 < int(answer) <= most:
        raise click.UsageError(f"type a number from 1 to {most}")
    return int(answer)


def _either(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _about_embedded(home: Home, settings: config.Settings) -> str:
    known, own = home.models / weights.SMOLLM2.file, Path(settings.providers.embedded.model_path)
    if own.is_file() and own != known:
        return f"your model file {own.name}, run by Bubbles itself"
    where = "is here already" if known.exists() else f"{weights.SMOLLM2.size / 1e6:.0f} MB are fetched, once"
    return f"a small model that Bubbles runs itself: no key; {where}; often wrong, and cannot use tools"


def _about_as_it_is(settings: config.Settings) -> str:
    try:
        found = route(settings)
    except Misconfigured:
        return "none for now"
    return f"as it is: {found.model or 'its only model'} by {found.provider}"


def _asked_url(known: str) -> str:
    return str(click.prompt("Its address (it usually ends in /v1)", default=known or None, value_proc=_address))


def _address(text: str) -> str:
    """An address as it can stand in the configuration: without a scheme, http:// is meant. Raises what click's prompt asks again for."""
    answer = text.strip()
    try:
        return section.url_of(answer if "://" in answer else f"http://{answer}")
    except ValueError as error:
        raise click.UsageError("type an address such as http://127.0.0.1:8000/v1") from error


def _asked_key(known: bool) -> str:
    """A key, not shown as it is typed; "" to go on with the one that is known, or without."""
    empty = "Enter to keep the one that is set" if known else "Enter if it needs none"
    return str(click.prompt(f"Its key, not shown ({empty})", hide_input=True, default="", show_default=False)).strip()


def _asked_vendors_key(provider: str, known: bool) -> str:
    """The key of a vendor: the one in its variable where its owner says so, else one that is typed, and not shown; "" to keep the one that is set."""
    variable = keys.present(provider)
    if variable and click.confirm(f"{variable} is set here. Take the key that is in it?", default=not known):
        return keys.read(variable)
    if known:
        return _asked_key(known)
    return str(click.prompt("Its key, not shown", hide_input=True)).strip()


def _asked_model(found: list[str]) -> str:
    """One of the models by its number or its name, or another that the endpoint did not list."""
    for number, name in enumerate(found[:SHOWN], 1):
        click.echo(f"  {number:2d}  {name}")
    if len(found) > SHOWN:
        click.echo(f"      and {len(found) - SHOWN} more")
    asked = "Model, by number or name" if found else "Model, by its name there"
    return str(click.prompt(asked, default="1" if len(found) == 1 else None, value_proc=lambda text: _model(text, found)))


def _model(text: str, found: list[str]) -> str:
    answer = text.strip()
    if not answer:
        raise click.UsageError("type a number or a name")
    return found[_number(answer, len(found)) - 1] if answer.isdecimal() and found and answer not in found else answer
