"""What probes found, as blocks of lines for a person and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bubbles.programs.screen import TRY, Block
from bubbles.sandboxes import cgroup, refusal
from bubbles.sandboxes.probe import Verdict


def told(tried: Sequence[Verdict], found: Verdict) -> dict[str, Any]:
    """As JSON: what holds for commands, and of each bubblewrap what was tried."""
    return asdict(found) | {"tried": [asdict(each) for each in tried], "kernel": kernel(), "cgroup": cgroup.why_not()}


def kernel() -> dict[str, str]:
    """The settings of the kernel that decide, by their names for sysctl."""
    return {name.replace("/", "."): value for name, value in refusal.sysctls().items()}


def blocks(tried: Sequence[Verdict], found: Verdict) -> Iterator[Block]:
    """A block for each bubblewrap, and one for what that means."""
    for each in tried:
        yield _one(each)
    block = Block()
    if tried:
        block.add("kernel", ", ".join(f"{name} = {value}" for name, value in kernel().items()) or "it has no setting for user namespaces")
        why = cgroup.why_not()
        block.add("limits", f"by watching, as this terminal has no cgroup of its own ({why})" if why else "by cgroups of its own")
    yield block
    block = Block()
    if found.ok:
        block.add("jails", f"hold here, by {found.binary} {found.version}", mark="ok")
    else:
        block.add_with_remedy("jails", f"do not hold here: {found.why}", found.remedy, mark="bad")
    yield block


def _one(each: Verdict) -> Block:
    block = Block()
    version = each.version or "of a version that it does not tell"
    block.add("bubblewrap", "holds" if each.ok else "does not hold", f"{version}, {each.binary}", mark="ok" if each.ok else "bad")
    for check in each.checks:
        skipped = bool(check.get("skipped"))
        mark = "off" if skipped else "ok" if check["ok"] else "bad"
        block.add(check["name"], {"off": "not tried", "ok": "holds", "bad": "does not hold"}[mark], check["detail"], mark=mark)
    if not each.ok and not any(not check["ok"] for check in each.checks):
        block.add("why", "", each.why, mark="bad")
        block.add("", "", f"{TRY}{each.remedy}")
    for note in each.notes:
        block.add("note", "", note, mark="note")
    return block
