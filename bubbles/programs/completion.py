"""Print the script that completes `bubbles` in a shell.

The script is text: pressing TAB starts no program of ours. Session names are read from the sessions directory.

Input:
  nothing
Output:
  a script for bash, zsh or fish
Exit codes:
  0   printed
  64  no such shell
Examples:
  bubbles completion bash > ~/.local/share/bash-completion/completions/bubbles
  bubbles completion zsh > ~/.zfunc/_bubbles
  bubbles completion fish > ~/.config/fish/completions/bubbles.fish
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from dataclasses import dataclass, field

import click

from bubbles.programs import PROGRAMS
from bubbles.programs.page import program


@dataclass(frozen=True)
class Words:
    """What may follow a program's name."""

    name: str
    summary: str
    options: list[str] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)

    @property
    def all(self) -> str:
        return " ".join([*self.verbs, *self.options])


@program("completion", __doc__)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def main(shell: str) -> None:
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](words()), end="")


def words() -> list[Words]:
    """What may follow each program's name, read from the programs themselves."""
    return [_words(name, dotted, summary) for name, (dotted, _, _, summary) in PROGRAMS.items()]


def _words(name: str, dotted: str, summary: str) -> Words:
    command = importlib.import_module(dotted).main
    if isinstance(command, click.Command):
        options = [option for p in command.params if isinstance(p, click.Option) for option in p.opts if option.startswith("--")]
        choices = [str(c) for p in command.params if isinstance(p, click.Argument) and isinstance(p.type, click.Choice) for c in p.type.choices]
        return Words(name, summary, ["--help", *options], [*getattr(command, "commands", []), *choices])
    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        command(["--help"])
    return Words(name, summary, sorted(set(re.findall(r"--[a-z][a-z-]+", page.getvalue()))))


def bash(programs: list[Words]) -> str:
    """The script for bash."""
    cases = "\n".join(f"        {w.name}) words='{w.all}' ;;" for w in programs)
    names = " ".join(w.name for w in programs)
    links = " ".join(f"bubbles-{w.name}" for w in programs)
    return f"""\
# bash completion for bubbles
_bubbles() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb words=
    verb=${{COMP_WORDS[0]##*/}}
    if [[ $verb == bubbles-* ]]; then
        verb=${{verb#bubbles-}}
    elif (( COMP_CWORD == 1 )); then
        mapfile -t COMPREPLY < <(compgen -W '{names} help --help --version' -- "$cur")
        return
    else
        verb=${{COMP_WORDS[1]}}
    fi
    if [[ $prev == -s || $prev == --session || ($verb == history && $cur != -*) ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(ls -- "${{BUBBLES_HOME:-$HOME/.bubbles}}/sessions" 2> /dev/null)" -- "$cur")
        return
    fi
    case $verb in
{cases}
        help) words='{names}' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}}
complete -o default -F _bubbles bubbles {links}
"""


def zsh(programs: list[Words]) -> str:
    """The script for zsh."""
    names = "\n".join(f"    '{w.name}:{_quoted(w.summary)}'" for w in programs)
    cases = "\n".join(f"    {w.name}) compadd -- {w.all} ;;" for w in programs)
    links = " ".join(f"bubbles-{w.name}" for w in programs)
    return f"""\
#compdef bubbles {links}
_bubbles() {{
  local -a programs sessions
  local verb=${{words[1]:t}}
  programs=(
{names}
  )
  if [[ $verb == bubbles-* ]]; then
    verb=${{verb#bubbles-}}
  elif (( CURRENT == 2 )); then
    _describe program programs
    compadd -- --help --version
    return
  else
    verb=${{words[2]}}
  fi
  if [[ ${{words[CURRENT-1]}} == (-s|--session) || ($verb == history && ${{words[CURRENT]}} != -*) ]]; then
    sessions=(${{BUBBLES_HOME:-$HOME/.bubbles}}/sessions/*(N:t))
    compadd -- $sessions
    return
  fi
  case $verb in
{cases}
    help) _describe program programs ;;
  esac
}}
compdef _bubbles bubbles {links}
"""


def fish(programs: list[Words]) -> str:
    """The script for fish."""
    first = "complete -c bubbles -f -n __fish_use_subcommand"
    lines = ["# fish completion for bubbles", f"{first} -l help", f"{first} -l version"]
    sessions = "(path basename (set -q BUBBLES_HOME; and echo $BUBBLES_HOME; or echo ~/.bubbles)/sessions/* 2> /dev/null)"
    for w in programs:
        after = f"complete -c bubbles -n '__fish_seen_subcommand_from {w.name}'"
        lines.append(f"{first} -a {w.name} -d '{_quoted(w.summary)}'")
        lines += [f"{after} -f -a '{' '.join(w.verbs)}'"] if w.verbs else []
        lines += [f"{after} -f -s s -l session -a '{sessions}'" if o == "--session" else f"{after} -l {o[2:]}" for o in w.options]
        if w.name == "history":
            lines.append(f"{after} -f -a '{sessions}'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("'", "").replace(":", "\\:")
