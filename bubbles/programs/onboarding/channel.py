"""The questions of `bubbles onboard` about a platform to be reached from: which, and with which credentials."""

from __future__ import annotations

from typing import Any

import click

from bubbles import config
from bubbles.channels import CHANNELS
from bubbles.config.channels import Platform
from bubbles.config.section import is_secret, plain
from bubbles.errors import Misconfigured
from bubbles.programs.plan import Changes, Plan

NONE = "none"


def offer(plan: Plan) -> None:
    """Switch on a channel, if the owner wants one that is built and not on. The file is written. Raises TryAgain as `Plan.write`."""
    channels = config.settings_of(plan.home, plan.raw, "channels").channels
    off = [name for name in sorted(CHANNELS) if not getattr(channels, name).enabled]
    if not off:
        return
    click.echo("\nIs it to be reached from a chat, too? Each can be switched on later in the same way.")
    name = str(click.prompt("Which", type=click.Choice([*off, NONE]), default=NONE))
    if name == NONE:
        return
    section: Platform = getattr(channels, name)
    click.echo(f"What has to be made at the platform before, and which rights it wants: docs/channels/{name}.md")
    while True:
        try:
            plan.enter(_asked(name, section))
            break
        except Misconfigured as error:
            click.echo(f"\n{error.text}" + (f"\n  try: {error.remedy}" if error.remedy else ""))
            if not click.confirm("Again?", default=True):
                return
    plan.write()
    click.echo(
        f"{name} is switched on. To see whether it is let in: bubbles channels test {name}\n"
        f"Then start it (bubbles gateway; where that runs: bubbles channel {name}), and write to the bot in a private chat:\n"
        "it tells you a code, and bubbles channels pair CODE makes that account yours. Nobody else may speak until you say so."
    )


def _asked(name: str, section: Platform) -> Changes:
    changes: Changes = {("channels", name, "enabled"): True}
    for field in section.needs:
        held = plain(getattr(section, field))
        value = _answer(field, held, hidden=is_secret(type(section).model_fields[field].annotation))
        if value != held:
            changes["channels", name, field] = value
    return changes


def _answer(field: str, held: Any, *, hidden: bool) -> str:
    """What is typed for a setting; Return keeps what is there. Asks until there is something."""
    while True:
        kept = " (Return keeps it)" if held else ""
        if answer := str(click.prompt(f"{field}{kept}", default="", show_default=False, hide_input=hidden)).strip():
            return answer
        if held:
            return str(held)
