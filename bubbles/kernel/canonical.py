"""The parts of a canonical message, each made so that every provider takes it.

It does not know requests: what is well-formed in itself may still stand in the wrong place (`context.build` sees to that).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any, TypeAlias

from bubbles.kernel.events import Call
from bubbles.messages import scrub

Message: TypeAlias = dict[str, Any]

EMPTY = "(empty)"
NOT_JSON = "not_a_json_object"
_KEPT = 500  # characters of arguments that are no JSON object

ID_MOST = 40  # characters of a call's id: OpenAI takes no more
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COUNTED = re.compile(r"[a-z_-]*\d{0,4}")  # call_0, exec-12
_RANDOM_LEAST = 9  # characters
_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def text_of(content: Any) -> str:
    """The text of a content: "" for none, the text parts of a list, nothing that no encoding can carry."""
    if isinstance(content, str):
        return scrub(content)
    if isinstance(content, list):
        return "\n".join(scrub(part) for part in map(_part, content) if part)
    return ""


def words_of(given: Any) -> Any:
    """The content of a user's message: a text, or where there are pictures in it a list of parts, `{"type":"text"|"image_url",…}`, a text first."""
    pictures = [part for part in given if _is_picture(part)] if isinstance(given, list) else []
    text = content(given)
    return [{"type": "text", "text": text}, *map(_picture, pictures)] if pictures else text


def _is_picture(part: Any) -> bool:
    image = part.get("image_url") if isinstance(part, dict) and part.get("type") == "image_url" else None
    return isinstance(image, dict) and isinstance(image.get("url"), str) and _PICTURE.fullmatch(image["url"]) is not None


def _picture(part: Any) -> Any:
    return {"type": "image_url", "image_url": {"url": part["image_url"]["url"]}}


def behind(first: Any, second: Any) -> Any:
    """Two contents of a user's, the second as a further paragraph of the first."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(given: Any) -> list[Any]:
    return [{"type": "text", "text": given}] if isinstance(given, str) else given


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def content(text: Any) -> str:
    """The content of a user's or a tool's message: never blank, since some providers refuse that."""
    cleaned = text_of(text)
    return cleaned if cleaned.strip() else EMPTY


def call_name(name: Any) -> str:
    """The name of a call. Gemini wants none that begins with a digit or a dash.

    >>> call_name("functions.exec"), call_name("0day")
    ('functions_exec', '_0day')
    """
    found = _safe(name) or "unknown"
    return found if found[0].isalpha() or found[0] == "_" else f"_{found}"[:64]


def call_id(id: Any, otherwise: str, taken: Collection[str]) -> str:
    """The id of a call: `id` or, where that is none, `otherwise`; with a number behind it where `taken` has it already.

    >>> call_id("call_0", "c1", {"call_0"})
    'call_0_2'
    """
    wanted = (_safe(id) or otherwise)[:ID_MOST]
    found, n = wanted, 1
    while found in taken:
        n += 1
        found = f"{wanted[: ID_MOST - 4]}_{n}"
    return found


def rare_id(id: Any, otherwise: str, turn: str) -> str:
    """An id that no other turn of the session has: the model's own where it looks random, else with a mark of the turn behind it.

    Some models count their calls from 0 in every answer, and some providers refuse a request in which an id comes twice.

    >>> rare_id("call_0", "c1", "telegram-8841"), rare_id("D681PevKs", "c1", "telegram-8841")
    ('call_0-657fbe', 'D681PevKs')
    """
    wanted = _safe(id) or otherwise
    if wanted == id and _RANDOM_LEAST <= len(wanted) <= ID_MOST and not _COUNTED.fullmatch(wanted):
        return wanted
    return f"{wanted[: ID_MOST - 7]}-{hashlib.sha256(turn.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def _safe(name: Any) -> str:
    if not isinstance(name, str):
        return ""
    return name if _NAME.fullmatch(name) else _NOT_NAME.sub("_", name)[:64].strip("_")


def arguments(given: Any) -> str:
    """The arguments of a call as JSON text of an object, as it was given where it is one; else what was given, in part, as text in one.

    >>> print(arguments('{"path": "a"}'), arguments(""), arguments('["a'))
    {"path": "a"} {} {"not_a_json_object":"[\\"a"}
    """
    if given is None or given == "{}" or (isinstance(given, str) and not given.strip()):
        return "{}"
    try:
        value = parsed(given) if isinstance(given, str) else given
        cleaned = _scrubbed(value)
        if not isinstance(value, dict):
            return dump({NOT_JSON: scrub(str(given))[:_KEPT]})
        return given if cleaned == value and isinstance(given, str) and scrub(given) == given else dump(cleaned)
    except RecursionError:
        return dump({NOT_JSON: "nested too deeply"})


def parsed(text: str) -> Any:
    """The value of a JSON text; None where it is none. NaN and numbers too large for a float are none: other parsers refuse them."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(digits)
    return number


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list | tuple):
        return [_scrubbed(one) for one in value]
    if isinstance(value, dict):
        return {scrub(str(key)): _scrubbed(one) for key, one in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | None) else scrub(str(value))


def dump(value: Any) -> str:
    """JSON text as it stands in history and on the wire."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def encode(message: Message) -> bytes:
    """The bytes of a canonical message: a line of history (without its line break) and a part of a request alike."""
    return dump(message).encode("utf-8", "replace")


def user(text: Any) -> Message:
    """Words for the model, as a canonical message."""
    return {"role": "user", "content": content(text)}


def assistant(text: str, calls: Sequence[Call] = (), reasoning: str = "") -> Message:
    """What a model said, as a canonical message. The calls' ids are taken as they are; `text` is "" only beside calls."""
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    if thought := text_of(reasoning).strip():
        message["reasoning_content"] = thought
    return message


def _call(call: Call) -> Message:
    return {"id": call.id, "type": "function", "function": {"name": call_name(call.name), "arguments": arguments(call.arguments)}}


def result(id: str, text: Any) -> Message:
    """What a call brought, as a canonical message."""
    return {"role": "tool", "tool_call_id": id, "content": content(text)}
