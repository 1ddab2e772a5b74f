"""The help page of a program: its module's docstring, with the options that click knows put in after what it does.

Every page has one order: the call, what it does, its options, Input, Output, Exit codes, Examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import click

from bubbles import __version__
from bubbles.errors import Usage

HEADINGS = ("Input:", "Output:", "Exit codes:", "Examples:")


class Page(click.Command):
    """A click command that prints its page as written and raises our errors instead of ending the process."""

    def __init__(self, *args: Any, page: str = "", **kwargs: Any) -> None:
        what, _, rest = inspect.cleandoc(page).partition(f"\n{HEADINGS[0]}")
        kwargs["help"] = what.strip() or kwargs.get("help")
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "terminal_width": 110, "max_content_width": 110})
        kwargs["no_args_is_help"] = False
        super().__init__(*args, **kwargs)
        self.rest = f"{HEADINGS[0]}{rest}" if rest else ""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "Print this page."
        return option

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\n{self.help}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.rest:
            formatter.write(f"\n{self.rest}\n")

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **_: Any) -> int:  # type: ignore[override]
        """Run with `args` and return the exit status. Raises Usage for a wrong call; all other errors pass."""
        try:
            with self.make_context(prog_name or f"bubbles {self.name}", list(args or [])) as context:
                return int(self.invoke(context) or 0)
        except click.exceptions.Exit as end:
            return end.exit_code
        except click.Abort as error:
            raise KeyboardInterrupt from error
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else f"bubbles {self.name}"
            raise Usage(error.format_message(), remedy=f"{path} --help") from error

    def __call__(self, args: Sequence[str] | None = None, **_: Any) -> int:
        return self.main(args)


class Verbs(Page, click.Group):
    """A program with verbs of its own: `bubbles queue list`."""

    command_class = Page


def program(name: str, page: str | None) -> Callable[[Callable[..., Any]], Page]:
    """Make a function the program `name`, with `page` (its module's docstring) as its help."""
    return lambda function: Page(name, params=_params(name, function), callback=function, page=page or "")


def verbs(name: str, page: str | None) -> Callable[[Callable[..., Any]], Verbs]:
    """Make a function the program `name` whose verbs are added by `.command(...)`."""
    return lambda function: Verbs(name, params=_params(name, function), callback=function, page=page or "")


def named(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The callback of whatever takes a session's name: any text is one, but for none at all."""
    if value == "":
        raise Usage("a session has a name", remedy=f"{context.command_path} --help")
    return value


def _params(name: str, function: Callable[..., Any]) -> list[click.Parameter]:
    own: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
    version = click.version_option(__version__, "-V", "--version", message=f"bubbles {name} {__version__}", help="Say which version this is.")
    return [*own, *version(lambda: None).__click_params__]  # type: ignore[attr-defined]
