"""A session's sandbox in words: what it promises, what a command sees and may write, what bounds it, and what does not exist there.

It does not know how any of it is brought about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bubbles import sandboxes
from bubbles.programs.sandboxing import bounding
from bubbles.programs.sandboxing.inside import Inside
from bubbles.programs.screen import Block
from bubbles.sandboxes import mark
from bubbles.sandboxes.bounding import size
from bubbles.sandboxes.inside.jail import ETC, FILES, TOP

_GONE = ("BASH_ENV", "BUBBLES_FILE_KIB", "BUBBLES_JOIN", "BUBBLES_PROCESSES")  # read before the command begins, and taken away
NETWORKS = {
    "none": "nothing, not even this machine: there is no network but the jail's own loopback",
    "public": "public addresses alone, by http and https through a proxy that checks each; neither this machine nor its local network",
    "host": "whatever this machine may, its own services included",
}
_ABSENT = (
    "the owner's HOME and all of Bubbles' home but what stands above: settings, keys, other sessions, histories, queues, logs",
    "this session's own config.json, session.jsonl and HEARTBEATS.md",
    "sockets of services (/run, D-Bus, systemd, X11, Docker, ssh-agent), and what listens in the abstract",
    "other processes; devices but null, zero, full, random, urandom, tty and a pts of its own; /sys",
    "rights: capabilities, setuid, further namespaces, mounts, ptrace of others, kernel keys",
)


def described(inside: Inside) -> dict[str, Any]:
    """As JSON. Raises ToolError and Misconfigured where the sandbox cannot be opened."""
    tools = inside.tools
    found = inside.open().describe()
    is_jail = found["backend"] == "bwrap"
    return found | {
        "session": inside.key,
        "directory": str(inside.directory),
        "network": found.get("network") or "host",
        "unattended_network": sandboxes.narrower(inside.backend, inside.network, tools.sandbox.unattended_network) or "host",
        "allow_domains": list(tools.sandbox.allow_domains),
        "limits": _limits(tools, is_jail),
        "bounded_by": bounding.of_agentd(inside.home),
        "environment": sorted({*found["environment"], mark.MARK} - set(_GONE)),
        "binds": [bind.model_dump() for bind in tools.sandbox.binds] if is_jail else [],
        "left_out": list(inside.left_out),
        "absent": list(_ABSENT) if is_jail else [],
    }


def _limits(tools: Any, is_jail: bool) -> dict[str, int | float]:
    of_sandbox: dict[str, int | float] = tools.sandbox.limits.model_dump()
    if not is_jail:
        of_sandbox.pop("tmp_bytes")
    call = tools.exec
    return of_sandbox | {"timeout_s": call.timeout_s, "timeout_max_s": call.timeout_max_s, "output_bytes": call.output_bytes, "jobs": call.jobs}


def blocks(told: dict[str, Any], verdict: str) -> Iterator[Block]:
    """For a person. `verdict`: whether jails hold here, in words; "" where that does not matter."""
    yield _about(told, verdict)
    yield _places(told)
    yield _bounds(told)
    yield _more(told)


def _about(told: dict[str, Any], verdict: str) -> Block:
    block = Block()
    block.add("session", told["session"])
    block.add("sandbox", told["backend"])
    block.add("promise", told["promise"])
    if verdict:
        block.add("here", verdict)
    return block


def _places(told: dict[str, Any]) -> Block:
    block = Block()
    block.add("starts in", told["cwd"])
    block.add("HOME", told["home"])
    if told["backend"] != "bwrap":
        block.add("files", "whatever you can read and write: nothing is hidden from a command")
        _listed(block, "workspaces", (f"{each['path']} ({each['mode']})" for each in told["workspaces"]))
        return block
    of = {"rw": "can write", "ro": "can read"}
    for mode, name in of.items():
        _listed(block, name, (f"{each['path']}{_of_whom(each['path'], told)}" for each in told["shown"] if each["mode"] == mode))
    _listed(block, "in memory", ["/tmp (gone with each command)", "/dev/shm"])
    etc = f"of /etc: {', '.join(_etc())}; and a passwd, group, hosts and nsswitch.conf of its own"
    _listed(block, "system", [f"/usr, with /{', /'.join(_top())}; read-only", etc])
    return block


def _of_whom(path: str, told: dict[str, Any]) -> str:
    """Why something is there, where that is not plain."""
    if path == told["home"]:
        return " (HOME: this session's own, kept)"
    if path in (each["path"] for each in told["workspaces"]):
        return " (a granted workspace)"
    if path in (each["to"] or each["path"] for each in told["binds"]):
        return " (tools.sandbox.binds)"
    return "" if Path(path).is_relative_to(told["directory"]) else " (the Python that runs Bubbles)"


def _top() -> list[str]:
    return [name for name in TOP if Path("/", name).exists()]


def _etc() -> list[str]:
    return [name for name in (*ETC, *FILES) if Path("/etc", name).exists()]


def _bounds(told: dict[str, Any]) -> Block:
    block = Block()
    network = told["network"]
    block.add("network", f"{network}: {NETWORKS[network]}")
    if told["backend"] == "bwrap":
        if network == "public" and told["allow_domains"]:
            block.add("", f"only {', '.join(told['allow_domains'])} and what lies below")
        block.add("", f"in turns that no person began, and in groups: {told['unattended_network']}")
    limits = told["limits"]
    _listed(block, "limits", _said(limits))
    block.add("", f"memory, processes and processor: {told['bounded_by']}")
    return block


def _said(limits: dict[str, Any]) -> Iterator[str]:
    cpu = f", {limits['cpu_percent']} % of a processor" if limits["cpu_percent"] else ""
    yield f"{size(limits['memory_bytes'])} of memory (at most half of the machine's), {limits['processes']} processes{cpu}"
    tmp = f", {size(limits['tmp_bytes'])} in /tmp" if "tmp_bytes" in limits else ""
    yield f"{size(limits['file_bytes'])} in a file{tmp}; {size(limits['free_bytes'])} of the disk stay free, or a tenth of it where that is less"
    yield f"{limits['timeout_s']:g} s, up to {limits['timeout_max_s']:g} s where a call asks for it; {limits['output_bytes'] / 1e6:g} MB of output"
    yield f"{limits['jobs']} commands in the background at once"


def _more(told: dict[str, Any]) -> Block:
    block = Block()
    whose = " (that of this terminal; a command has agentd's)" if told["backend"] == "local" else ""
    block.add("environment", ", ".join(told["environment"]) + whose)
    for bind in told["binds"]:
        block.add("bind", f"{bind['path']} at {bind['to'] or bind['path']} ({bind['mode']})")
    for why in told["left_out"]:
        block.add("left out", why, mark="note")
    _listed(block, "not there", told["absent"])
    return block


def _listed(block: Block, name: str, cells: Iterable[str]) -> None:
    """Cells below each other, the first of them with the name."""
    for number, cell in enumerate(cells):
        block.add("" if number else name, cell)
