"""What Gemini's generateContent refuses in a request. Written from what it says, apart from the fakes, so that it can find their faults too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Part = dict[str, Any]

_BODY = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"}
_DATA = {"text", "inlineData", "fileData", "functionCall", "functionResponse"}
_PART = _DATA | {"thought", "thoughtSignature"}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_SCHEMA = {"type", "format", "title", "description", "nullable", "enum", "items", "properties", "required", "propertyOrdering", "anyOf", "default"}
_SCHEMA |= {"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties", "pattern", "example"}
_IMAGES = {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "image/gif"}


def faults(body: Any) -> list[str]:
    """What would be refused, a sentence each; [] where nothing."""
    if not isinstance(body, dict):
        return ["Invalid JSON payload received. Root element must be a message."]
    body = _camel(body)
    return [*_carried(body), *_body(body)] or [*_turns(body["contents"])]


def _camel(value: Mapping[str, Any]) -> dict[str, Any]:
    """One level of names as they are in JSON: either spelling is taken."""
    return {re.sub(r"_([a-z])", lambda found: found[1].upper(), key): one for key, one in value.items()}


def _carried(body: Any) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        yield "Invalid JSON payload received. Parsing terminated before end of input."


def _body(body: dict[str, Any]) -> Iterator[str]:
    yield from (f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.' for key in body.keys() - _BODY)
    yield from (fault for tool in body.get("tools") or [] for fault in _tools(_camel(tool)))
    if (system := body.get("systemInstruction")) is not None:
        yield from (f"system_instruction{fault}" for fault in _parts(system.get("parts")))
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        yield "* GenerateContentRequest.contents: contents is not specified"
        return
    yield from (f"* GenerateContentRequest.contents[{n}]{fault}" for n, content in enumerate(contents) for fault in _content(content))


def _tools(tool: dict[str, Any]) -> Iterator[str]:
    declared = tool.get("functionDeclarations", [])
    for n, one in enumerate(declared):
        place = f"* GenerateContentRequest.tools[0].function_declarations[{n}]"
        if not _NAME.fullmatch(str(one.get("name"))):
            yield f"{place}.name: Invalid function name. Must start with a letter or an underscore."
        if one.get("parameters") is not None:
            yield from (f"{place}.parameters{fault}" for fault in _schema(one["parameters"]))
    names = [one.get("name") for one in declared]
    yield from (f"Duplicate function declaration found: {name}" for n, name in enumerate(names) if name in names[:n])


def _schema(schema: dict[str, Any]) -> Iterator[str]:
    yield from (f': Unknown name "{key}": Cannot find field.' for key in schema.keys() - _SCHEMA)
    kind = str(schema.get("type", "")).lower()
    if kind == "object" and "properties" in schema and not schema["properties"]:
        yield ".properties: should be non-empty for OBJECT type"
    if kind == "array" and "items" not in schema:
        yield ".items: missing field."
    if "enum" in schema and kind != "string":
        yield ".enum: only allowed for STRING type"
    properties = schema.get("properties") or {}
    yield from (f".required: property is not defined: {name}" for name in schema.get("required", ()) if name not in properties)
    for inner in [*properties.values(), *([schema["items"]] if isinstance(schema.get("items"), dict) else [])]:
        yield from _schema(inner)


def _content(content: Any) -> Iterator[str]:
    if not isinstance(content, dict) or content.get("role") not in ("user", "model"):
        yield ".role: Please use a valid role: user, model."
        return
    yield from (f': Unknown name "{key}": Cannot find field.' for key in content.keys() - {"role", "parts"})
    yield from _parts(content.get("parts"))


def _parts(parts: Any) -> Iterator[str]:
    if not isinstance(parts, list) or not parts:
        yield ".parts: contents.parts must not be empty."
        return
    for n, part in enumerate(parts):
        yield from (f".parts[{n}]{fault}" for fault in _part(_camel(part) if isinstance(part, dict) else {}))


def _part(part: Part) -> Iterator[str]:
    yield from (f': Unknown name "{key}": Cannot find field.' for key in part.keys() - _PART)
    data = [key for key in part if key in _DATA]
    if len(data) != 1 or (data == ["text"] and not part["text"]):
        yield ".data: required oneof field 'data' must have one initialized field"
        return
    if data == ["text"] and not isinstance(part["text"], str):
        yield ".text: Invalid value (text), a string"
    if (rule := _DATA_RULES.get(data[0])) is not None:
        yield from rule(part[data[0]])


def _call(call: dict[str, Any]) -> Iterator[str]:
    if not _NAME.fullmatch(str(call.get("name", ""))):
        yield ".function_call.name: Name cannot be empty, and must be a valid name."
    if not isinstance(call.get("args", {}), dict):
        yield ".function_call.args: not a Struct"


def _response(response: dict[str, Any]) -> Iterator[str]:
    if not _NAME.fullmatch(str(response.get("name", ""))):
        yield ".function_response.name: Name cannot be empty."
    if not isinstance(response.get("response"), dict):
        yield ".function_response.response: not a Struct"


def _inline(data: dict[str, Any]) -> Iterator[str]:
    data = _camel(data)
    if data.get("mimeType") not in _IMAGES or not data.get("data"):
        yield f".inline_data: Unsupported MIME type: {data.get('mimeType')}, or no data"


_DATA_RULES = {"functionCall": _call, "functionResponse": _response, "inlineData": _inline}


def _turns(contents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Calls come after the user or after results, and are answered by as many results right behind them; the user has the last word."""
    before, awaited = "", list[tuple[Any, Any]]()
    for n, content in enumerate(contents):
        parts = [_camel(part) for part in content["parts"]]
        calls = [_known(part["functionCall"]) for part in parts if "functionCall" in part]
        results = [_known(part["functionResponse"]) for part in parts if "functionResponse" in part]
        if (calls and content["role"] == "user") or (results and content["role"] == "model"):
            yield f"contents[{n}]: a call is the model's, and a result is not"
        if calls and before != "user":
            yield "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
        if sorted(results) != sorted(awaited):
            yield "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
        if content["role"] == before == "model":
            yield "Please ensure that multiturn requests alternate between user and model."
        before, awaited = content["role"], calls
    if contents[0]["role"] != "user":
        yield "Please ensure that multiturn requests begin with a user role."
    if before != "user":
        yield "Please ensure that multiturn requests end with a user role or a function response."


def _known(one: Mapping[str, Any]) -> tuple[str, str]:
    """A call, or the result of one: the name, and the id where it has one."""
    return str(one.get("name")), str(one.get("id", ""))
