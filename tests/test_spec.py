"""SPEC.md against the registries: a promise without code, or code without a promise, does not pass."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from bubbles import logfile, providers, sandboxes, tools
from bubbles.agentd.spelling import ALIASES, COMMANDS
from bubbles.config.agents import Agents
from bubbles.config.channels import Channels, Platform
from bubbles.config.providers import Providers
from bubbles.config.settings import SECTIONS, SESSION_KEYS
from bubbles.programs import PROGRAMS
from bubbles.programs.terminal.commands import local

ROOT = Path(__file__).resolve().parents[1]


@cache
def page(name: str = "SPEC.md") -> str:
    return (ROOT / name).read_text("utf-8")


def table(head: str) -> list[list[str]]:
    """The rows of the one table of SPEC.md whose first column is headed `head`."""
    found = re.findall(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page(), flags=re.M)
    assert len(found) == 1, head
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[0].splitlines()]


def names(head: str) -> list[str]:
    """The names in backticks of that table's first column, in order."""
    return [name for row in table(head) for name in re.findall(r"`([^`]+)`", row[0])]


def planned(item: str) -> list[str]:
    """The names in backticks of one item of the list "Planned"."""
    found = re.search(rf"^\* \*\*{item}\*\*: (.*?)(?=^\* |^## )", page().split("## 13. Planned")[1], flags=re.M | re.S)
    assert found, item
    return re.findall(r"`([a-z_]+)`", found[1])


def test_programs() -> None:
    assert sorted(names("program")) == sorted(PROGRAMS)


def test_tools() -> None:
    assert names("tool") == list(tools.REGISTRY)


def test_sandboxes() -> None:
    assert names("sandbox") == list(sandboxes.REGISTRY)


def test_providers_that_can_be_asked() -> None:
    assert sorted(names("provider")) == sorted(name for name, entry in providers.REGISTRY.items() if entry.implementation)


def test_every_provider_can_be_asked() -> None:
    assert all(entry.implementation for entry in providers.REGISTRY.values())
    assert set(providers.REGISTRY) == set(Providers.model_fields)


def test_channels() -> None:
    platforms = {
        name for name, field in Channels.model_fields.items() if isinstance(field.annotation, type) and issubclass(field.annotation, Platform)
    }
    assert names("channel") == ["cli"]
    assert platforms <= set(planned("Channels"))
    assert len(platforms) == 11


def test_how_much_of_a_log_is_kept() -> None:
    kept = {1: "one", 2: "two", 3: "three", 4: "four"}[logfile.KEPT]
    assert f"a log file of more than {logfile.MOST_BYTES >> 20} MiB is moved aside, and the last {kept} are kept" in page()
    assert f"beyond {logfile.MOST_BYTES >> 20} MiB" in page("SECURITY.md")
    assert f"what was in `.{logfile.KEPT}` is gone" in page("SECURITY.md")


def test_sections_of_the_configuration() -> None:
    assert sorted(names("section")) == sorted(SECTIONS)


def test_what_a_session_may_override() -> None:
    text = re.search(r"Its settings override yours: (.*?)\. `/config`", page(), flags=re.S)
    assert text
    assert set(re.findall(r"`([a-z_]+)`", text[1])) == set(SESSION_KEYS)


def test_commands() -> None:
    assert list(dict.fromkeys(name.split()[0] for name in names("command"))) == [f"/{name}" for name in COMMANDS]
    who = {cells[0].strip("`").split()[0]: cells[1] for cells in table("command")}
    assert {name for name, whose in who.items() if whose == "everybody"} == {f"/{name}" for name, kind in COMMANDS.items() if kind.everybody}
    assert all(f"`/{alias}`" in page() for alias in ALIASES)


def test_what_the_terminal_keeps_for_itself() -> None:
    assert names("input") == ["/session NAME", "exit", "quit", "/exit"]
    assert all(local(name) for name in names("input"))
    assert not any(local(f"/{name}") for name in COMMANDS)


def test_every_setting_that_the_page_names_exists() -> None:
    assert "interjection" in Agents.model_fields["defaults"].annotation.model_fields
    assert re.search(r"`interjection: preempt`", page())


def test_it_speaks_of_promises_and_not_of_the_code() -> None:
    text = re.sub(r"```.*?```", "", page(), flags=re.S)
    assert re.findall(r"`[^`]*\(\)`|\b\w+\.py\b|\bv?\d+\.\d+\.\d+\b", text) == []
    camel = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+\b", text)) - {"OpenAI", "LiteLLM", "ChatGPT"}
    assert camel == set(), "looks like the name of a class"


def test_it_has_the_parts_that_are_always_there() -> None:
    heads = re.findall(r"^#{2,3} (?:\d+\. )?(.*)$", page(), flags=re.M)
    assert {"What it is", "What it is not", "Planned", "Rules for this page"} <= set(heads)
    assert heads.count("Planned") == 1


def test_both_readmes_show_the_same_commands() -> None:
    def shown(name: str) -> list[str]:
        blocks = re.findall(r"```(?:sh|console)\n(.*?)```", page(name), flags=re.S)
        return [line.split(" # ")[0].rstrip() for block in blocks for line in block.splitlines()]

    assert shown("README.md") == shown("README.zh-CN.md")
    assert shown("README.md")
    headings = [len(re.findall(r"^#+ ", page(name), flags=re.M)) for name in ("README.md", "README.zh-CN.md")]
    assert headings[0] == headings[1]


def test_the_commands_that_the_pages_show_exist() -> None:
    pages = "".join(page(name) for name in ("README.md", "SPEC.md", "SECURITY.md", "CONTRIBUTING.md", "docs/demo.sh", "docs/pane.sh"))
    verbs = set(re.findall(r"(?:^|[`$|'] ?|bin/)bubbles ([a-z][a-z-]+)\b", pages, flags=re.M))
    assert {"agent", "onboard", "ask", "cron"} <= verbs
    assert verbs - set(PROGRAMS) == {"sync-skills"}, "which is planned"
    goals = set(re.findall(r"(?:^|`)make ([a-z]+)\b", pages, flags=re.M))
    assert {"demo", "test"} <= goals
    assert goals <= set(re.findall(r"^([a-z]+):", page("Makefile"), flags=re.M))
