"""Sign in to a provider whose models belong to a subscription of yours, say whether you are, and sign out.

There are two: openai-codex (a subscription of ChatGPT) and github-copilot. Signing in shows an address and a code, to be
typed in any browser on any machine; openai-codex may also be signed in to by a browser on this machine (--browser), whose
last address can be pasted here where it runs on another. What comes of it lies in tokens/NAME.json of the home, for you
alone to read, and is made new by whoever asks with it. Daemons that run take it at once.

It is asked only where you choose it: agents.defaults.provider, or /config provider; never because of a model's name, and
never in another's place.

Input:
  nothing; with --browser the address that the browser shows at the end, if it is pasted
Output:
  login, logout: what happened, for people
  status: a line each, or with --json one JSON object each: provider, signed_in, since, account, plan, expires, file;
  times in seconds since 1970, expires that of the token that is in use. Never a token
Exit codes:
  0    done; with status: you are signed in (to one of them, where none is named)
  1    with status and logout: nobody is signed in
  64   that is no provider to sign in to
  75   not now: no connection, or nobody finished the login in time
  78   the login was refused, or the account may not use it
  130  interrupted; nothing was kept
Examples:
  bubbles provider login github-copilot
  bubbles provider login openai-codex --browser
  bubbles provider status --json | jq -r 'select(.signed_in) | .account'
  bubbles provider logout github-copilot
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from bubbles import config, log
from bubbles.errors import NO, OK, BubblesError, Misconfigured, ModelError, NotAuthorized, TryAgain, Usage
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import verbs
from bubbles.programs.screen import Block, ago, show
from bubbles.providers import OAUTH, REGISTRY, Entry, find, tokens

if TYPE_CHECKING:
    from bubbles.providers.codex_login import Browser
    from bubbles.providers.issuer import Device, Issuer
    from bubbles.providers.tokens import Login

NAMES = [name.replace("_", "-") for name, entry in REGISTRY.items() if entry.category == OAUTH]


class _Name(click.ParamType):  # type: ignore[type-arg]
    """A provider to sign in to, as people write it."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Entry:
        try:
            entry = value if isinstance(value, Entry) else find(str(value))
        except Misconfigured:
            entry = None
        if entry is None or entry.category != OAUTH:
            raise Usage(f"{value!r} is no provider to sign in to", remedy=f"one of: {', '.join(NAMES)}")
        return entry

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        return [click.shell_completion.CompletionItem(name) for name in NAMES if name.startswith(incomplete)]


@verbs("provider", __doc__)
def main() -> None: ...


@main.command("login")
@click.option("--device", "how", flag_value="device", help="By a code, typed in any browser on any machine. It is what is done without either.")
@click.option("--browser", "how", flag_value="browser", help="By a browser: openai-codex alone.")
@click.argument("entry", type=_Name(), metavar="NAME")
def login(how: str | None, entry: Entry) -> int:
    """Sign in."""
    home = Home.find()
    home.prepare()
    if how == "browser" and entry.name != "openai_codex":
        raise Usage(f"{entry.title} is signed in to by a code", remedy=f"bubbles provider login {_typed(entry)}")
    sign_in(home, entry, how)
    if config.load(home, "agents").agents.defaults.provider not in (entry.name, _typed(entry)):
        click.echo(f"It is asked where you choose it: agents.defaults.provider in {home.config}, or /config provider {entry.name} in a chat")
    return OK


@main.command("logout")
@click.argument("entry", type=_Name(), metavar="NAME")
def logout(entry: Entry) -> int:
    """Sign out: at the provider too, where that can be done from here."""
    import asyncio

    home = Home.find()
    path = tokens.path(home, entry.name)
    if not path.parent.is_dir():
        return _nobody(entry)
    with tokens.locked(path):
        there = path.exists()
        try:
            held = tokens.read(path, entry.name)
        except NotAuthorized:
            held = None  # whatever it is, it goes
        told = asyncio.run(_revoked(_issuer(home, entry), held)) if held else ""
        tokens.remove(path)
    if not there:
        return _nobody(entry)
    click.echo(f"Signed out of {entry.title}: {path} is gone.")
    if told:
        print(f"bubbles: {told}", file=sys.stderr)
    return OK


@main.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("entry", type=_Name(), metavar="[NAME]", required=False)
def status(as_json: bool, entry: Entry | None) -> int:
    """Say whether you are signed in, since when, and as whom."""
    home = Home.find()
    found = [_standing(home, each) for each in REGISTRY.values() if each.category == OAUTH and entry in (None, each)]
    if as_json:
        for each in found:
            lines.put(each)
    else:
        show([_shown(found)])
    return OK if any(each["signed_in"] for each in found) else NO


# -- signing in ------------------------------------------------------------------------------------


def sign_in(home: Home, entry: Entry, how: str | None = None) -> None:
    """Have a person sign in, and keep what comes of it. Raises Misconfigured, TryAgain: nothing was kept."""
    found = _signed_in(entry, _issuer(home, entry), how)
    path = tokens.path(home, entry.name)
    with tokens.locked(path):
        tokens.write(path, found)
    click.echo(f"Signed in to {entry.title}{_as(found)}.")


def _issuer(home: Home, entry: Entry) -> Issuer:
    """The provider's authority, where the configuration has it."""
    address = getattr(config.load(home, "providers").providers, entry.name).auth_url
    if entry.name == "openai_codex":
        from bubbles.providers.codex_login import Codex

        return Codex(address)
    from bubbles.providers.copilot_login import Copilot

    return Copilot(address)


def _signed_in(entry: Entry, issuer: Issuer, how: str | None) -> Login:
    """Raises Misconfigured, TryAgain: nothing was kept."""
    import asyncio

    from bubbles.programs.signing.browser import by_browser
    from bubbles.programs.signing.device import by_code

    def tell(device: Device) -> None:
        click.echo(f"Open {log.escaped(device.address)} in a browser, on any machine, and type this code:\n\n    {log.escaped(device.code)}\n")
        click.echo("Type it only because you began this yourself, here and now. Waiting; Ctrl-C ends it.")

    def open_it(browser: Browser, there: bool) -> None:
        click.echo(f"Open this address in a browser:\n\n{browser.address}\n")
        back = "When it says that you are signed in, that is all." if there else "The port of its way back is in use here."
        click.echo(f"{back} Where the browser runs on another machine, paste here the whole address that it shows at the end,")
        click.echo("which begins with http://localhost, though it says that there is nothing. Waiting; Ctrl-C ends it.")

    def complain(text: str) -> None:
        print(f"bubbles: {text}", file=sys.stderr, flush=True)

    try:
        if how == "browser":
            return asyncio.run(by_browser(issuer, open_it, complain, stdin=_stdin()))  # type: ignore[arg-type]
        return asyncio.run(by_code(issuer, tell, time.monotonic))
    except ModelError as error:
        kind = TryAgain if error.temporary else Misconfigured
        raise kind(f"not signed in to {entry.title}: {log.struck(error.text)}", remedy=error.remedy) from error


def _stdin() -> int:
    """Where something can be pasted; -1 where nothing can."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return -1


async def _revoked(issuer: Issuer, held: Login) -> str:
    """End a login at the provider; what is to be said of it."""
    try:
        if await issuer.revoke(held):
            return ""
    except BubblesError as error:
        return f"the provider was not told, and may take the login for good until it expires: {log.struck(error.text)}"
    if held.account_id:
        return "the provider would not end the login: it may take it until it expires"
    return "GitHub lets nobody end a login from here: do that at github.com/settings/apps/authorizations"


# -- how it stands ---------------------------------------------------------------------------------


def _standing(home: Home, entry: Entry) -> dict[str, Any]:
    path = tokens.path(home, entry.name)
    about: dict[str, Any] = {"provider": entry.name, "signed_in": False}
    try:
        found = tokens.read(path, entry.name)
    except NotAuthorized as error:
        return {**about, "wrong": error.text, "remedy": error.remedy}
    if found is None:
        return {**about, "remedy": tokens.remedy(entry.name)}
    known = {name: value for name, value in (("account", found.account), ("plan", found.plan)) if value}
    expires = {"expires": found.expires_at} if found.expires_at else {}
    return {**about, "signed_in": True, "since": found.since, **known, **expires, "file": str(path)}


def _shown(found: list[dict[str, Any]]) -> Block:
    block, now = Block(), time.time()
    for each in found:
        title = REGISTRY[each["provider"]].title
        if "wrong" in each:
            block.add_with_remedy(title, each["wrong"], each["remedy"], mark="bad")
        elif not each["signed_in"]:
            block.add_with_remedy(title, "nobody is signed in", each["remedy"], mark="off")
        else:
            who = " ".join(filter(None, (each.get("account", ""), f"({each['plan']})" if "plan" in each else "")))
            left = each.get("expires", 0) - now
            token = "" if "expires" not in each else f"a token for {left / 60:.0f} min more" if left > 0 else "its token is made new when it is asked"
            block.add(title, "; ".join(filter(None, (f"signed in {ago(now - each['since'])} ago", log.escaped(who), token))), mark="ok")
    return block


def _as(found: Login) -> str:
    return f" as {log.escaped(found.account)}" if found.account else ""


def _typed(entry: Entry) -> str:
    return entry.name.replace("_", "-")


def _nobody(entry: Entry) -> int:
    print(f"bubbles: nobody is signed in to {entry.title}", file=sys.stderr)
    return NO
