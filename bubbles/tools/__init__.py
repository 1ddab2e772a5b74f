"""The tools there are, how a model is told of them, and the one way to call one."""

from __future__ import annotations

import importlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from pydantic import ValidationError

from bubbles import log
from bubbles.errors import OutsideWorkspace, Refused, ToolError
from bubbles.kernel.clean import clean
from bubbles.kernel.clip import clip
from bubbles.kernel.weight import tokens
from bubbles.tools.tool import Arguments, Bench, Tool, TurnInfo

__all__ = ["REGISTRY", "Arguments", "Bench", "Tool", "TurnInfo", "call", "load", "schemas"]

Spill: TypeAlias = Callable[[str], Awaitable[str]]

REGISTRY: dict[str, str] = {
    "read_file": "bubbles.tools.read_file:ReadFile",
    "write_file": "bubbles.tools.write_file:WriteFile",
    "edit_file": "bubbles.tools.edit_file:EditFile",
    "list_dir": "bubbles.tools.list_dir:ListDir",
    "exec": "bubbles.tools.exec:Exec",
    "job_result": "bubbles.tools.job_result:JobResult",
    "job_stop": "bubbles.tools.job_stop:JobStop",
    "message": "bubbles.tools.message:Message",
    "find_person": "bubbles.tools.find_person:FindPerson",
}


def load(settings: Any) -> dict[str, Tool]:
    """Every tool, in the registry's order, made for the `tools` section `settings`."""
    return {name: _resolve(dotted)(settings) for name, dotted in REGISTRY.items()}


def _resolve(dotted: str) -> Any:
    module, _, attribute = dotted.partition(":")
    return getattr(importlib.import_module(module), attribute)


def schemas(tools: Mapping[str, Tool]) -> list[dict[str, Any]]:
    """The tools in the function form of the chat API; equal tools give equal bytes, so that a prompt's prefix stays cached."""
    return [
        {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": _parameters(tool)}}
        for tool in tools.values()
    ]


def _parameters(tool: Tool) -> dict[str, Any]:
    schema = tool.Arguments.model_json_schema()
    fields = {name: {k: v for k, v in field.items() if k != "title"} for name, field in schema.get("properties", {}).items()}
    return {"type": "object", "properties": fields, "required": schema.get("required", []), "additionalProperties": False}


async def call(tool: Tool, arguments: str, bench: Bench, result_tokens: int, spill: Spill | None = None) -> tuple[str, bool]:
    """Call `tool` with `arguments`, JSON text as the model gave it. Returns (result, ok); the result is clean, clipped and never empty.

    What is clipped is handed whole to `spill`, which says in a line where it is kept ("": nowhere); that line stands last.
    A fault of the arguments or a ToolError is told in the result, for the model; anything else that is raised is a bug and leaves.
    """
    try:
        text, ok = await tool.run(_arguments(tool, arguments), bench), True
    except ToolError as error:
        if isinstance(error, Refused | OutsideWorkspace):
            log.event("tool.refuse", f"{tool.name}: {error.text}", priority="warning", tool=tool.name)
        text, ok = f"Error: {error.text}" + (f"\n{error.remedy}" if error.remedy else ""), False
    text = clean(text)
    clipped = clip(text, result_tokens)
    if spill is not None and clipped != text and (where := await spill(text)):
        clipped = f"{clip(text, max(result_tokens - tokens(where) - 2, 1))}\n{where}"
    return clipped or "(empty)", ok


def _arguments(tool: Tool, text: str) -> Any:
    try:
        body = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the arguments of {tool.name} are not valid JSON ({error}); nothing was done") from error
    if not isinstance(body, dict):
        raise ToolError(f"the arguments of {tool.name} must be a JSON object; nothing was done")
    try:
        return tool.Arguments.model_validate(body)
    except ValidationError as error:
        raise ToolError("\n".join([f"wrong arguments for {tool.name}; nothing was done", *_faults(tool, error)])) from error


def _faults(tool: Tool, error: ValidationError) -> list[str]:
    known = ", ".join(tool.Arguments.model_fields)
    lines = []
    for fault in error.errors(include_url=False):
        field = ".".join(map(str, fault["loc"])) or "arguments"
        match fault["type"]:
            case "missing":
                what = "is required"
            case "extra_forbidden":
                what = f"is not an argument; there are: {known}"
            case _:
                what = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}, got {_shown(fault['input'])}"
        lines.append(f"- {field}: {what}")
    return lines


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
