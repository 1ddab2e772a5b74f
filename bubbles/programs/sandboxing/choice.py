"""Which sandbox onboarding writes: a jail where one real one holds, else the next best, and never without a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bubbles import config
from bubbles.config import file
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.programs.plan import Plan
from bubbles.sandboxes import probe
from bubbles.sandboxes.probe import Verdict

KEY = ("tools", "sandbox", "backend")
JAIL, NEXT_BEST = "bwrap", "local_isolated"
_ABOUT = {
    "bwrap": "each command gets a jail of its own, which shows its session and nothing else of your files",
    "local_isolated": "each session's commands get a HOME of their own; they are not kept from the rest of your files",
    "local": "commands share your environment and your files",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What the file says now, and how that came about: "given" on the command line, "kept" from before, or "tried"."""

    backend: str
    how: str
    verdict: Verdict

    def lines(self, backend: str) -> Iterator[str]:
        """For a person. `backend`: what holds, which the environment may have put over the file."""
        by = f", tried here with {self.verdict.binary} {self.verdict.version}" if backend == JAIL and self.verdict.ok else ""
        yield f"Sandbox: {_ABOUT[backend]}{by} (tools.sandbox.backend: {backend})"
        if backend == JAIL and not self.verdict.ok:
            yield f"Note: commands are refused until a jail can be made here: {self.verdict.why}"
            yield from self._remedy(f"or: bubbles onboard --sandbox {NEXT_BEST}")
        elif backend == self.backend != JAIL and self.how == "tried":
            yield f"Note: a jail for each command ({JAIL}) would be better, and none can be made here: {self.verdict.why}"
            yield from self._remedy(f"then: bubbles onboard --sandbox {JAIL}")
        elif backend == self.backend != JAIL and self.how == "kept" and self.verdict.ok:
            yield f"Note: a jail for each command holds here, and your choice was kept; to have it: bubbles onboard --sandbox {JAIL}"

    def _remedy(self, then: str) -> Iterator[str]:
        if self.verdict.remedy:
            yield f"  try: {self.verdict.remedy}; {then}"


def enter(plan: Plan, wanted: str | None) -> Choice:
    """Enter into the plan what is `wanted`, what its owner had chosen, or what works. Raises Misconfigured where a jail is wanted and none holds."""
    settings = config.settings_of(plan.home, plan.raw, "tools").tools.sandbox
    found = probe.verdict(plan.home, settings, fresh=True)
    if wanted == JAIL and not found.ok:
        raise Misconfigured(f"no jail can be made here: {found.why}", remedy=found.remedy)
    if wanted is None and plan.how == "refresh" and _is_chosen(plan.home):
        return Choice(settings.backend, "kept", found)
    backend = wanted or (JAIL if found.ok else NEXT_BEST)
    plan.enter({KEY: backend})
    return Choice(backend, "given" if wanted else "tried", found)


def _is_chosen(home: Home) -> bool:
    """Whether the file that is there says it."""
    tools = config.settings_of(home, file.read(home.config), "tools").tools
    return "sandbox" in tools.model_fields_set and "backend" in tools.sandbox.model_fields_set
