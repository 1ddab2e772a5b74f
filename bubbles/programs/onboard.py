"""Set Bubbles up: a home, a configuration, and a model that has answered once.

It may be run again at any time. Where there is a configuration it asks whether to refresh it (keep every value, add
what is new) or to overwrite it with the defaults, and keeps a dated copy of the old file. Sessions are never touched.
The model may be a server that runs on this machine (Ollama, vLLM and llama.cpp are looked for), any other endpoint
that speaks OpenAI's protocol, or a small one that Bubbles fetches and runs itself.

Input:
  the answers, in a terminal; with --yes nothing, but for a key's one line with --api-key-stdin
Output:
  what was found and done, and what to type next
Exit codes:
  0    set up; the model, if there is one, has answered
  64   an answer is missing, and there is nobody to ask
  65   a file for the embedded model is not what it should be
  69   the embedded model cannot be fetched
  75   the model does not answer now, and the configuration is written; or the disk is full
  78   the key, the address or the configuration is wrong
  130  interrupted
Examples:
  bubbles onboard
  bubbles onboard --yes
  bubbles onboard --yes --provider embedded
  bubbles onboard --yes --provider custom --base-url http://127.0.0.1:8000/v1 --model qwen3-8b
  pass show my-endpoint | bubbles onboard --yes --base-url https://example.org/v1 --model glm-5 --api-key-stdin
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from bubbles import config
from bubbles.bus import is_running
from bubbles.config import environment, file, section
from bubbles.errors import OK, BubblesError, DataError, Misconfigured, Usage
from bubbles.paths import Home
from bubbles.programs import servers, trial, weights
from bubbles.programs.models import asks
from bubbles.programs.page import program
from bubbles.programs.plan import Plan, Wish, held
from bubbles.providers import EMBEDDED, REGISTRY
from bubbles.providers.route import route

BUILT = tuple(name for name, entry in REGISTRY.items() if entry.implementation)
_KEY_MOST = 16 << 10  # characters of a key on standard input
_SHOWN = 20  # models in a list to choose from


@program("onboard", __doc__)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: what is not given stays as it is, or at its default.")
@click.option("--refresh", "how", flag_value="refresh", help="Keep the values of an existing configuration, add what is new.")
@click.option("--overwrite", "how", flag_value="overwrite", help="Put the defaults in its place; a dated copy is kept.")
@click.option("--provider", type=click.Choice(BUILT), help="Who answers.")
@click.option("--base-url", metavar="URL", help="Where it answers; alone it means --provider custom.")
@click.option("--api-key-stdin", is_flag=True, help="Read its key from standard input.")
@click.option("--model", metavar="NAME", help="Which of its models.")
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="FILE", help="The embedded model: a wheel or .gguf file that is here.")
@click.option("--no-test", is_flag=True, help="Do not ask the model a question to see whether it answers.")
def main(
    yes: bool,
    how: str | None,
    provider: str | None,
    base_url: str | None,
    api_key_stdin: bool,
    model: str | None,
    source: Path | None,
    no_test: bool,
) -> int:
    if not yes and (api_key_stdin or not sys.stdin.isatty()):
        raise Usage(
            "there are questions, and standard input is not there to answer them", remedy="bubbles onboard --yes, with options for the answers"
        )
    wish = wished(provider, base_url, _key_on_stdin() if api_key_stdin else "", model, source)
    home = Home.find()
    home.prepare()
    click.echo(f"Home: {home.root}")
    failed: BubblesError | None = None
    with _line_ended():
        plan = planned(home, how, asking=not yes)
        if not yes:
            failed = converse(plan, wish, testing=not no_test)
    if yes:
        plan.set_up(completed(plan, wish))
        plan.write()
        if not no_test:
            try_out(home)
    click.echo(closing(home))
    return failed.exit if failed else OK


@contextlib.contextmanager
def _line_ended() -> Iterator[None]:
    """End the line of the question at which Ctrl-C was pressed, so that the shell's prompt begins a new one."""
    try:
        yield
    except click.Abort:
        click.echo(err=True)
        raise


def wished(provider: str | None, base_url: str | None, key: str, model: str | None, source: Path | None) -> Wish:
    """What the options say. Raises Usage where they do not go together."""
    if provider is None and (base_url or key or source):
        provider = EMBEDDED if source else "custom"
    if provider == EMBEDDED and (base_url or key or model):
        raise Usage(
            "the embedded model has neither address nor key, and is named by its file", remedy="bubbles onboard --provider embedded --from FILE"
        )
    if source and provider != EMBEDDED:
        raise Usage("--from is for the embedded model", remedy="bubbles onboard --provider embedded --from FILE")
    return Wish(provider or "", base_url or "", key, model or "", source)


def _key_on_stdin() -> str:
    key = sys.stdin.read(_KEY_MOST).strip()
    if not key:
        raise DataError("there is no key on standard input", remedy="pass show my-endpoint | bubbles onboard --yes --api-key-stdin")
    return key


def planned(home: Home, how: str | None, *, asking: bool) -> Plan:
    """The defaults, or what is there with the defaults filled in. Raises Misconfigured where that is broken and not to be overwritten."""
    before = held(home)
    if before is None or how == "overwrite":
        return Plan(home, config.defaults(), how or "new", before)
    try:
        raw = config.refresh(file.read(home.config))
        config.check(home, raw)
    except Misconfigured as error:
        if not asking:
            raise Misconfigured(error.text, remedy=f"mend {home.config}, or: bubbles onboard --overwrite (a copy is kept)") from error
        click.echo(f"\nThere is a configuration, and it cannot be refreshed: {error.text}")
        click.confirm("Put the defaults in its place? A dated copy is kept.", abort=True)
        return Plan(home, config.defaults(), "overwrite", before)
    how = how or (_asked_how(home) if asking else "refresh")
    return Plan(home, config.defaults() if how == "overwrite" else raw, how, before)


def _asked_how(home: Home) -> str:
    click.echo(f"\nThere is a configuration already: {home.config}")
    click.echo("  refresh     keep every value of it, and add the settings that are new")
    click.echo("  overwrite   put the defaults in its place; a dated copy is kept")
    return str(click.prompt("Which", type=click.Choice(["refresh", "overwrite"]), default="refresh"))


def completed(plan: Plan, wish: Wish) -> Wish:
    """A wish with what was not given and can be found out: an endpoint's usual address, its only model. Raises Usage."""
    if not wish.provider or wish.provider == EMBEDDED:
        return wish
    settings = plan.settings()
    known = getattr(settings.providers, wish.provider).base_url
    wish = replace(wish, base_url=wish.base_url or known or REGISTRY[wish.provider].base_url)
    if not wish.base_url:
        raise Usage(f"where does {wish.provider} answer?", remedy=f"bubbles onboard --yes --provider {wish.provider} --base-url URL")
    if wish.model or (wish.base_url.rstrip("/") == known and _answers_already(settings, wish.provider)):
        return wish
    found = plan.models(wish)
    if len(found) != 1:
        shown = ", ".join(found[:_SHOWN]) or "none"
        raise Usage(f"{wish.base_url} has {len(found)} models: {shown}", remedy="say which, by --model NAME")
    return replace(wish, model=found[0])


def _answers_already(settings: config.Settings, provider: str) -> bool:
    try:
        return route(settings).provider == provider
    except Misconfigured:
        return False


def try_out(home: Home) -> None:
    """Ask the model once, as the daemons would: with the environment over the file. Raises Misconfigured or TryAgain."""
    settings = config.load(home, "agents", "providers")
    if not ready(settings):
        return
    variables = [name for section in ("agents", "providers") for name, _, _ in environment.variables(os.environ, section)]
    if variables:
        click.echo(f"The environment stands over the file: {', '.join(variables)}")
    found = route(settings)
    click.echo(f"Asking {found.model or 'the model'} by {found.provider}: {found.why}")
    answer = trial.ask(home, settings)
    click.echo(f"It answers: {answer.text}" if answer.text else f"It answers, in {answer.tokens} tokens of thought.")


def ready(settings: config.Settings) -> bool:
    """Is there somebody to ask?"""
    return asks(settings) or bool(settings.providers.embedded.model_path)


# -- the conversation ----------------------------------------------------------------------------------


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
    section = getattr(settings.providers, wish.provider)
    wish = replace(wish, base_url=wish.base_url or _asked_url(section.base_url or REGISTRY[wish.provider].base_url))
    known = bool(section.api_key.get_secret_value()) and wish.base_url.rstrip("/") == section.base_url
    return replace(wish, api_key=wish.api_key or _asked_key(known))


def _with_model(plan: Plan, wish: Wish) -> Wish:
    if not wish.provider or wish.provider == EMBEDDED or wish.model:
        return wish
    return replace(wish, model=_asked_model(plan.models(wish)))


def _chosen(home: Home, settings: config.Settings) -> Wish:
    """One line of a menu."""
    choices = [(_about(server), Wish("custom", server.base_url)) for server in servers.look()]
    none_runs = "" if choices else f"\nNo {_either([title for title, _ in servers.PLACES])} answers on this machine."
    choices.append(("any other endpoint that speaks OpenAI's protocol, by its address and key", Wish("custom")))
    choices.append((_about_embedded(home, settings), Wish(EMBEDDED)))
    choices.append((_about_as_it_is(settings), Wish()))
    click.echo(f"{none_runs}\nWhich model is to answer?")
    for number, (text, _) in enumerate(choices, 1):
        click.echo(f"  {number}  {text}")
    number = click.prompt("Number", value_proc=lambda text: _number(text, len(choices)), default=str(len(choices) if ready(settings) else 1))
    return choices[number - 1][1]


def _number(text: str, most: int) -> int:
    """Raises what click's prompt asks again for."""
    answer = text.strip()
    if not answer.isdecimal() or not 0 < int(answer) <= most:
        raise click.UsageError(f"type a number from 1 to {most}")
    return int(answer)


def _either(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _about(server: servers.Server) -> str:
    count = "it wants a key" if server.locked else "1 model" if len(server.models) == 1 else f"{len(server.models)} models"
    return f"the server at {server.base_url}, where {server.title} usually is ({count})"


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


def _asked_model(found: list[str]) -> str:
    """One of the models by its number or its name, or another that the endpoint did not list."""
    for number, name in enumerate(found[:_SHOWN], 1):
        click.echo(f"  {number:2d}  {name}")
    if len(found) > _SHOWN:
        click.echo(f"      and {len(found) - _SHOWN} more")
    return str(click.prompt("Model, by number or name", default="1" if len(found) == 1 else None, value_proc=lambda text: _model(text, found)))


def _model(text: str, found: list[str]) -> str:
    answer = text.strip()
    if not answer:
        raise click.UsageError("type a number or a name")
    return found[_number(answer, len(found)) - 1] if answer.isdecimal() and found and answer not in found else answer


# -- the end -------------------------------------------------------------------------------------------


def closing(home: Home) -> str:
    """What holds now, and what to type next."""
    settings = config.load(home, "agents", "providers", "tools")
    lines = [f"Sandbox: {_SANDBOXES[settings.tools.sandbox.backend]} (tools.sandbox.backend: {settings.tools.sandbox.backend})"]
    lines += [f"Note: {warning}" for warning in settings.warnings]
    for name in ("agentd", "modeld"):
        if pid := is_running(home, name):
            lines.append(f"Note: {name} (pid {pid}) keeps its old settings until it is restarted")
    following = _READY if ready(settings) else _NOT_READY
    return "\n".join([*lines, "", "Next:", *(f"  {command:<32} {what}" for command, what in following)])


_SANDBOXES = {
    "local_isolated": "each session's commands get a HOME of their own; they are not kept from the rest of your files",
    "local": "commands share your environment and your files",
}
_READY = (
    ("bubbles agent", "talk; /session my goes to a session named my"),
    ("bubbles ask 'What can you do?'", "one question, for pipes and scripts"),
    ("bubbles gateway", "leave everything on; Ctrl-C ends it"),
)
_NOT_READY = (
    ("bubbles onboard", "again, once there is a server or a key"),
    ("bubbles models fetch", "a small model for this machine, without a key"),
    ("bubbles status", "what is set up, and what runs"),
)
