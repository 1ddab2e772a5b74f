"""Look at everything that Bubbles stands on, say what is wrong, and what to do about it.

It changes nothing, but for what every program does: a config.json and a jobs.json that others may read are made private.
With --fix it mends what can be mended without harm: modes of files, sockets that dead daemons left, histories that a power
cut tore. It does not restart anything, and touches nothing outside the home and its sockets; for that it says the command.

No question is put to a model: that its server lets us in is seen from its list of models, which costs nothing. Vendors and
gateways are not asked at all. With --ask the model that is set is asked for one word, which may cost a fraction of a cent.

Every check has its time and is given up after it, so that this ends whatever hangs; what could not be looked at by then is
a warning, and nothing is said of it. It runs without daemons, a configuration
or a home, and as any user.

Input:
  names of checks, to make only those; `bubbles doctor --list` tells them
Output:
  for people: by groups, each finding with ok, note, warn, fail or fixed, and what to try. With --json one JSON object each:
  check, group, level, text, and where there is one remedy, fix (what --fix would do), done (what became of it);
  of files in a queue that are no messages, queue and ids
Exit codes:
  0   all is well, or there are warnings alone: what works now may not for long
  1   something is wrong (fail), and was not mended
  64  there is no such check
Examples:
  bubbles doctor
  bubbles doctor --fix --dry-run
  bubbles doctor --brief config providers
  bubbles doctor --json | jq -r 'select(.level=="fail") | .remedy'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bubbles.errors import NO, OK, Usage
from bubbles.paths import Home
from bubbles.programs.page import program

if TYPE_CHECKING:
    from bubbles.programs.doctoring.finding import Check, Finding


@program("doctor", __doc__)
@click.option("--fix", is_flag=True, help="Mend what can be mended without harm, and say what was done.")
@click.option("--dry-run", "dry", is_flag=True, help="Only say what --fix would do.")
@click.option("--ask", "asks", is_flag=True, help="Ask the model that is set for one word.")
@click.option("--brief", is_flag=True, help="Leave out what is well.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one a line.")
@click.option("--list", "listing", is_flag=True, help="Tell the checks and what each asks; make none.")
@click.argument("names", nargs=-1, metavar="[CHECK]...")
def main(fix: bool, dry: bool, asks: bool, brief: bool, as_json: bool, listing: bool, names: tuple[str, ...]) -> int:
    from bubbles.programs import lines
    from bubbles.programs.doctoring.finding import FAIL, Patient
    from bubbles.programs.doctoring.rounds import mended, visits
    from bubbles.programs.doctoring.told import Page

    checks = chosen(names)
    if listing:
        for check in checks:
            lines.put({"check": check.name, "group": check.group, "asks": check.asks}) if as_json else print(f"{check.name:<11} {check.asks}")
        return OK
    page = Page(brief=brief)
    wrong = False
    for check, found in visits(checks, Patient(Home.find(), asks)):
        found = [mended(finding, dry) for finding in found] if fix or dry else found
        wrong = wrong or any(finding.level == FAIL for finding in found)
        if not as_json:
            page.tell(check, found)
        for finding in found if as_json else ():
            lines.put(line(check, finding))
    if not as_json:
        page.end()
    return NO if wrong else OK


def chosen(names: tuple[str, ...]) -> list[Check]:
    """The checks of these names; all, where none is named. Raises Usage."""
    from bubbles.programs.doctoring import CHECKS

    if unknown := [name for name in names if name not in {check.name for check in CHECKS}]:
        raise Usage(f"there is no check {unknown[0]!r}", remedy="bubbles doctor --list")
    return [check for check in CHECKS if not names or check.name in names]


def line(check: Check, finding: Finding) -> dict[str, Any]:
    """A finding as an object."""
    told = {"check": check.name, "group": check.group, "level": finding.level, "text": finding.text}
    more = {"remedy": finding.remedy, "fix": finding.fix.would if finding.fix else "", "done": finding.done}
    return told | {name: text for name, text in more.items() if text} | finding.more
