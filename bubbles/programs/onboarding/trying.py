"""Whether there is a model to ask, whether it answers, and which servers of this machine could be one."""

from __future__ import annotations

import os

import click

from bubbles import config
from bubbles.config import environment
from bubbles.paths import Home
from bubbles.programs import servers, trial
from bubbles.programs.models import asks
from bubbles.providers import REGISTRY
from bubbles.providers.route import route


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


def tell_what_runs(home: Home) -> None:
    """Where nobody is there to be asked and no model was set up: the servers of this machine, and the command that takes each."""
    if ready(config.load(home, "agents", "providers")):
        return
    for server in servers.look():
        where = "" if server.base_url == REGISTRY[server.provider].base_url else f" --base-url {server.base_url}"
        which = "" if len(server.models) == 1 else " --model NAME"
        click.echo(f"Found: {about(server)}\n  try: bubbles onboard --yes --provider {server.provider}{where}{which}")


def ready(settings: config.Settings) -> bool:
    """Is there somebody to ask?"""
    return asks(settings) or bool(settings.providers.embedded.model_path)


def about(server: servers.Server) -> str:
    """A line of a menu."""
    count = "it wants a key" if server.locked else "1 model" if len(server.models) == 1 else f"{len(server.models)} models"
    if server.sure:
        return f"{server.title} at {server.base_url} ({count})"
    return f"the server at {server.base_url}, where {server.title} usually is ({count})"
