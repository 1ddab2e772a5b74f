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
    """What may follow a program's name, and by `verbs` what may follow each verb of its own: options, and words that its argument is one of."""

    name: str
    summary: str
    options: list[str] = field(default_factory=list)
    verbs: dict[str, list[str]] = field(default_factory=dict)

    @property
    def cases(self) -> list[tuple[str, str]]:
        """What was typed, as a shell's pattern, and the words that may follow: the longer pattern first."""
        longer = [(f"'{self.name} {verb}'", " ".join(options)) for verb, options in self.verbs.items() if options]
        return [*longer, (f"'{self.name}' | '{self.name} '*", " ".join([*self.verbs, *self.options]))]


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
        choices: dict[str, list[str]] = {choice: [] for choice in _choices(command)}
        verbs = {verb: [*_options(each), *_choices(each)] for verb, each in getattr(command, "commands", {}).items()}
        return Words(name, summary, _options(command), choices | verbs)
    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        command(["--help"])
    return Words(name, summary, sorted(set(re.findall(r"--[a-z][a-z-]+", page.getvalue()))))


def _choices(command: click.Command) -> list[str]:
    chosen = [p.type for p in command.params if isinstance(p, click.Argument) and isinstance(p.type, click.Choice)]
    return [str(choice) for kind in chosen for choice in kind.choices]


def _options(command: click.Command) -> list[str]:
    return ["--help", *(option for p in command.params if isinstance(p, click.Option) for option in p.opts if option.startswith("--"))]


def bash(programs: list[Words]) -> str:
    """The script for bash."""
    cases = "\n".join(f"        {typed}) words='{words}' ;;" for w in programs for typed, words in w.cases)
    names = " ".join(w.name for w in programs)
    links = " ".join(f"bubbles-{w.name}" for w in programs)
    return f"""\
# bash completion for bubbles
_bubbles() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words=
    local name=${{COMP_WORDS[0]##*/}}
    local -a typed=("${{COMP_WORDS[@]:1:COMP_CWORD-1}}")
    [[ $name == bubbles ]] || typed=("${{name#bubbles-}}" "${{typed[@]}}")
    if [[ $prev == -s || $prev == --session || (${{typed[0]}} == history && $cur != -*) ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(ls -- "${{BUBBLES_HOME:-$HOME/.bubbles}}/sessions" 2> /dev/null)" -- "$cur")
        return
    fi
    case "${{typed[*]:0:2}}" in
{cases}
        '' | help) words='{names} help --help --version' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}}
complete -o default -F _bubbles bubbles {links}
"""


def zsh(programs: list[Words]) -> str:
    """The script for zsh."""
    names = "\n".join(f"    '{w.name}:{_quoted(w.summary)}'" for w in programs)
    cases = "\n".join(f"    {typed}) compadd -- {words} ;;" for w in programs for typed, words in w.cases)
    links = " ".join(f"bubbles-{w.name}" for w in programs)
    return f"""\
#compdef bubbles {links}
_bubbles() {{
  local -a programs sessions typed
  local name=${{words[1]:t}}
  programs=(
{names}
  )
  typed=(${{words[2,CURRENT-1]}})
  [[ $name == bubbles ]] || typed=(${{name#bubbles-}} $typed)
  if [[ ${{words[CURRENT-1]}} == (-s|--session) || ($typed[1] == history && ${{words[CURRENT]}} != -*) ]]; then
    sessions=(${{BUBBLES_HOME:-$HOME/.bubbles}}/sessions/*(N:t))
    compadd -- $sessions
    return
  fi
  case "${{typed[1,2]}}" in
{cases}
    ''|help) _describe program programs; compadd -- --help --version ;;
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
        lines.append(f"{first} -a {w.name} -d '{_quoted(w.summary)}'")
        after = f"complete -c bubbles -n '__fish_seen_subcommand_from {w.name}"
        lines += [f"{after}' -f -a '{' '.join(w.verbs)}'"] if w.verbs else []
        lines += [f"{after}' -f -s s -l session -a '{sessions}'" if o == "--session" else f"{after}' -l {o[2:]}" for o in w.options]
        for verb, words in w.verbs.items():
            behind = f"{after}; and __fish_seen_subcommand_from {verb}'"
            lines += [f"{behind} -l {word[2:]}" if word.startswith("--") else f"{behind} -f -a {word}" for word in words]
        lines += [f"{after}' -f -a '{sessions}'"] if w.name == "history" else []
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("'", "").replace(":", "\\:")
