"""Google's generateContent and streamGenerateContent (by events, or as one JSON array that grows), and the list of models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import parse_qs

from tests.fakes.script import Speech, pieces
from tests.fakes.signing import is_signature, signature
from tests.fakes.vendors.vendor import Vendor, unknown, value
from tests.fakes.wire import Asked, event

_QUESTION = re.compile(r"/v1(?:beta|alpha)?/models/([^/:]+):(generateContent|streamGenerateContent)")
_KNOWN = {"contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig", "cachedContent", "model", "serviceTier"}
_CONFIG = {"temperature", "topP", "topK", "candidateCount", "maxOutputTokens", "stopSequences", "responseMimeType", "responseSchema", "seed"}
_CONFIG |= {"responseJsonSchema", "presencePenalty", "frequencyPenalty", "responseModalities", "thinkingConfig", "mediaResolution", "logprobs"}
_DATA = {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
_PART = _DATA | {"thought", "thoughtSignature", "partMetadata", "mediaResolution", "videoMetadata"}
_SCHEMA = {"type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required", "minProperties", "default"}
_SCHEMA |= {"maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf", "propertyOrdering", "items", "minimum", "maximum"}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_NOTHING = {"candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "index": 0}], "usageMetadata": {}, "modelVersion": "m"}
_STOPS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}

Part = dict[str, Any]


class Gemini(Vendor):
    """A connection to Google's Gemini API."""

    name = "gemini"
    signs: ClassVar[dict[str, bytes]] = {**Vendor.signs, "empty": event(_NOTHING)}

    def is_question(self, asked: Asked) -> bool:
        return asked.method == "POST" and bool(_QUESTION.fullmatch(asked.path))

    def key(self, asked: Asked) -> str:
        return asked.headers.get("x-goog-api-key") or (parse_qs(asked.query).get("key") or [""])[0]

    def streamed(self, asked: Asked) -> bool:
        return asked.path.endswith(":streamGenerateContent")

    def other(self, asked: Asked) -> Any:
        if asked.method != "GET" or not re.fullmatch(r"/v1(beta)?/models", asked.path):
            return super().other(asked)
        methods = {"supportedGenerationMethods": ["generateContent"], "inputTokenLimit": 1048576, "outputTokenLimit": 65536}
        return {"models": [{"name": f"models/{m['id']}", "displayName": m["id"], **methods} for m in self.model.script.listed()]}

    def said(self, body: Any) -> str:
        parts = [_part(part) for part in body["contents"][-1]["parts"]]
        return "\n".join(part.get("text") or json.dumps((part.get("functionResponse") or {}).get("response", "")) for part in parts)

    def complaints(self, asked: Asked) -> Iterator[str]:
        body = {_camel(key): one for key, one in asked.body.items()}
        yield from (f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.' for key in unknown(body, _KNOWN))
        config = {_camel(key): one for key, one in (body.get("generationConfig") or {}).items()}
        yield from (f'Invalid JSON payload received. Unknown name "{key}" at \'generation_config\'.' for key in unknown(config, _CONFIG))
        if not 0 <= config.get("temperature", 1) <= 2 or config.get("maxOutputTokens", 1) < 1:
            yield "* GenerateContentRequest.generation_config: temperature in 0..2, max_output_tokens of at least 1"
        yield from _tools(body.get("tools") or [])
        system = body.get("systemInstruction")
        if system is not None and not all(part.get("text") for part in system.get("parts") or [{}]):
            yield "* GenerateContentRequest.system_instruction: text alone"
        contents = body.get("contents")
        if not isinstance(contents, list) or not contents:
            yield "* GenerateContentRequest.contents: contents is not specified"
            return
        yield from (f"* GenerateContentRequest.contents[{n}]{fault}" for n, content in enumerate(contents) for fault in _content(content))
        yield from _turns(contents)
        if self.model.script.needs_reasoning:
            yield from _unsigned(contents)

    def answer(self, speech: Speech, asked: Asked) -> Any:
        return self._response(asked, _parts(speech), _finish(speech), self._usage(speech, asked))

    def pieces(self, speech: Speech, asked: Asked) -> tuple[list[bytes], list[bytes]]:
        usage = self._usage(speech, asked)
        so_far = {key: usage[key] for key in ("promptTokenCount", "totalTokenCount")}
        made = [self._response(asked, [part], None, so_far) for part in _streamed(speech)]
        ending = self._response(asked, [{"text": ""}] if not speech.calls else [], _finish(speech), usage)
        if "alt=sse" in asked.query:
            return [event(one) for one in made], [event(ending)]
        return [b"[" * (not n) + b",\r\n" * (n > 0) + json.dumps(one).encode() for n, one in enumerate(made)], [
            (b",\r\n" if made else b"[") + json.dumps(ending).encode() + b"]"
        ]

    async def stream(self, rule: dict[str, Any], pieces: Any, ending: Any, *, failed: bytes = b"", kind: str = "") -> None:
        is_array = bool(ending) and not ending[0].startswith(b"data:")
        if failed and is_array:
            failed = b",\r\n" + failed.removeprefix(b"data: ").strip() + b"]"
        await super().stream(rule, pieces, ending, failed=failed, kind="application/json" if is_array else "text/event-stream")

    def failed(self, told: Any) -> bytes:
        return event(told)

    def refused(self, status: int, body: Any, headers: dict[str, Any] | None, *, streamed: bool) -> None:
        """What is told with 200 is told as an event, where events are awaited."""
        if status == 200 and streamed:
            self._begin(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
            self.chunk(event(body))
            self._end()
        else:
            super().refused(status, body, headers, streamed=streamed)

    def _response(self, asked: Asked, parts: list[Part], finish: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        if finish == "SAFETY":
            candidate["safetyRatings"] = [{"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True}]
        found = _QUESTION.fullmatch(asked.path)
        about = {"modelVersion": found.group(1) if found else "", "responseId": f"r{self.model.requests}"}
        return {"candidates": [candidate], "usageMetadata": usage, **about}

    def _usage(self, speech: Speech, asked: Asked) -> dict[str, int]:
        """The cached ones are told in the prompt's, the thoughts beside the answer's."""
        found = self.counted(speech, asked)
        counts = {"promptTokenCount": found["input"], "candidatesTokenCount": found["output"] - found["reasoning"]}
        extra = {"cachedContentTokenCount": found["cached"], "thoughtsTokenCount": found["reasoning"]}
        return {**counts, "totalTokenCount": found["input"] + found["output"], **{name: count for name, count in extra.items() if count}}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _finish(speech: Speech) -> str:
    return "SAFETY" if speech.rule.get("blocked") else _STOPS.get(speech.finish, speech.finish)


def _parts(speech: Speech) -> list[Part]:
    """Of several calls at once the first alone is signed, and of an answer in words its words."""
    made: list[Part] = []
    if speech.reasoning:
        made.append({"text": speech.reasoning, "thought": True})
    if speech.text:
        made.append({"text": speech.text})
    for n, call in enumerate(speech.calls):
        given = speech.rule["calls"][n].get("id")
        function = {"name": call["function"]["name"], "args": value(call["function"]["arguments"]), **({"id": given} if given else {})}
        made.append({"functionCall": function})
    if speech.reasoning:
        signed = next((part for part in made if "functionCall" in part), made[-1])
        signed["thoughtSignature"] = signature(speech.reasoning)
    return made


def _streamed(speech: Speech) -> list[Part]:
    """Texts in pieces, a call at once, and the signature of words in a part of its own."""
    made: list[Part] = []
    for part in _parts(speech):
        if "text" not in part:
            made.append(part)
            continue
        rest = {key: one for key, one in part.items() if key == "thought"}
        made += [{"text": piece, **rest} for piece in pieces(part["text"], speech.rule.get("chunks", 8))]
        if "thoughtSignature" in part:
            made.append({"text": "", "thoughtSignature": part["thoughtSignature"]})
    return made


# -- the rules -----------------------------------------------------------------------------------------


def _tools(tools: list[Any]) -> Iterator[str]:
    declared = [one for tool in tools for one in tool.get("functionDeclarations") or tool.get("function_declarations") or []]
    names = [one.get("name") for one in declared]
    if len(names) != len(set(names)):
        yield "Duplicate function declaration found"
    for n, one in enumerate(declared):
        place = f"* GenerateContentRequest.tools[0].function_declarations[{n}]"
        if not _NAME.fullmatch(str(one.get("name") or "")):
            yield f"{place}.name: Invalid function name."
        parameters = one.get("parameters")
        if parameters is not None:
            yield from (f"{place}.parameters{fault}" for fault in _schema(parameters))


def _schema(schema: Any) -> Iterator[str]:
    """What `parameters` may hold: a selection of JSON schema, and no object without properties."""
    yield from (f': Unknown name "{key}": Cannot find field.' for key in unknown(schema, _SCHEMA))
    kind = str(schema.get("type", "")).lower()
    if kind == "object" and "properties" in schema and not schema["properties"]:
        yield ".properties: should be non-empty for OBJECT type"
    if kind == "array" and "items" not in schema:
        yield ".items: missing field."
    for name, inner in (schema.get("properties") or {}).items():
        yield from (f".properties[{name}]{fault}" for fault in _schema(inner))
    if isinstance(schema.get("items"), dict):
        yield from (f".items{fault}" for fault in _schema(schema["items"]))


def _content(content: Any) -> Iterator[str]:
    if not isinstance(content, dict) or content.get("role", "user") not in ("user", "model", "function"):
        yield ".role: Please use a valid role: user, model."
        return
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts:
        yield ".parts: contents.parts must not be empty."
        return
    for n, given in enumerate(parts):
        part = _part(given)
        data = [key for key in part if key in _DATA]
        if len(data) != 1 or (data == ["text"] and not part["text"] and "thoughtSignature" not in part):
            yield f".parts[{n}].data: required oneof field 'data' must have one initialized field"
        yield from (f'.parts[{n}]: Unknown name "{key}": Cannot find field.' for key in unknown(part, _PART))
        if not isinstance((part.get("functionCall") or {}).get("args", {}), dict):
            yield f".parts[{n}].function_call.args: not an object"
        if "functionResponse" in part:
            if not part["functionResponse"].get("name"):
                yield f".parts[{n}].function_response.name: Name cannot be empty."
            if not isinstance(part["functionResponse"].get("response"), dict):
                yield f".parts[{n}].function_response.response: not an object"


def _part(part: Part) -> Part:
    return {_camel(key): one for key, one in part.items()}


def _turns(contents: list[Any]) -> Iterator[str]:
    """A turn with calls comes after one of the user's or of results, and is answered by as many results right after."""
    before = ""
    awaited: list[str] = []
    for content in contents:
        parts = [_part(part) for part in content["parts"]]
        calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        results = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        role = "model" if content.get("role") == "model" else "user"
        if calls and before != "user":
            yield "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
        if sorted(results) != sorted(awaited):
            yield "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
        before, awaited = role, calls
    if before != "user":
        yield "Please ensure that multiturn requests end with a user role or a function response."


def _unsigned(contents: list[Any]) -> Iterator[str]:
    """In the turn that goes on, the first call of each step must bring back the signature that it came with."""
    begins = max((n for n, one in enumerate(contents) if one.get("role") != "model" and any("text" in part for part in one["parts"])), default=0)
    for n, content in enumerate(contents[begins:], begins):
        calls = [_part(part) for part in content["parts"] if "functionCall" in _part(part)]
        if not calls:
            continue
        if "thoughtSignature" not in calls[0]:
            name = calls[0]["functionCall"]["name"]
            yield f"Function call is missing a thought_signature in functionCall parts. function call `default_api:{name}` , position {n}."
        elif not is_signature(calls[0]["thoughtSignature"]):
            yield "Invalid thought signature: Base64 decoding failed, or it is none of ours"

