"""Messages made lighter: results shortened, oldest first, and then the oldest turns left out.

It does not know summaries: what stands for the turns left out is said by who calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from bubbles.kernel.canonical import Message, dump, parsed
from bubbles.kernel.clip import clip
from bubbles.kernel.weight import tokens

RECENT = 6  # messages at the end that are shortened last
_STEPS = ((1000, RECENT), (200, RECENT), (1000, 0), (200, 0), (50, 0))  # a part's tokens at most; messages spared at the end


def shrink(messages: Sequence[Message], budget_tokens: int) -> list[Message]:
    """As many messages, the results and arguments of the oldest shortened until all weigh at most the budget, or nothing more can be shortened."""
    light = list(messages)
    weights = [tokens([message]) for message in light]
    over = sum(weights) - budget_tokens
    for most, spared in _STEPS:
        for place in range(len(light) - spared):
            if over <= 0:
                return light
            shorter = _shorter(light[place], most)
            if shorter is not light[place]:
                over -= weights[place]
                light[place], weights[place] = shorter, tokens([shorter])
                over += weights[place]
    return light


def _shorter(message: Message, most: int) -> Message:
    """The message with each result, argument and thought cut to `most` tokens; words of people and models stay."""
    changed: Message = {}
    if message["role"] == "tool":
        changed["content"] = clip(message["content"], most)
    if message.get("tool_calls"):
        changed["tool_calls"] = [_shorter_call(call, most) for call in message["tool_calls"]]
    if message.get("reasoning_content"):
        changed["reasoning_content"] = clip(message["reasoning_content"], most)
    return message if all(message[key] == part for key, part in changed.items()) else message | changed


def _shorter_call(call: Message, most: int) -> Message:
    given = call["function"]["arguments"]
    if tokens(given) <= most:
        return call
    value = parsed(given)
    kept = dump({key: clip(one, most // 2) if isinstance(one, str) else one for key, one in value.items()}) if isinstance(value, dict) else ""
    if not kept or tokens(kept) > 2 * most:
        kept = dump({"left_out": f"{len(given)} characters"})
    return call | {"function": call["function"] | {"arguments": kept}}


def fit(messages: Sequence[Message], budget_tokens: int) -> list[Message]:
    """Messages that weigh at most the budget: results shortened, then whole turns left out from the oldest on, but never the last.

    Where that is not enough, the longest words of the last turn are shortened too, visibly. A system message at the head stays.
    """
    kept = shrink(messages, budget_tokens)
    if tokens(kept) <= budget_tokens:
        return kept
    head = [message for message in kept[:1] if message["role"] == "system"]
    rest = kept[len(head) :]
    rest = rest[split(rest, budget_tokens - tokens(head)) :]
    return head + _squeeze(rest, budget_tokens - tokens(head))


def _squeeze(messages: list[Message], budget_tokens: int) -> list[Message]:
    most = max(budget_tokens, 0)
    while tokens(messages) > budget_tokens and most > 20:
        most = most * 3 // 4
        messages = [message | {"content": clip(message["content"], most)} for message in messages]
    return messages


def split(messages: Sequence[Message], keep_tokens: int) -> int:
    """The index where the stretch begins that compaction keeps word for word: the earliest turn from which the rest weighs at most `keep_tokens`.

    It is always where somebody speaks, so both sides are well-formed, and never behind the last words of a person. A turn too heavy to be kept
    whole is cut where somebody spoke in it.
    """
    behind = [*accumulate(tokens([message]) for message in reversed(messages))][::-1]
    spoken = [place for place, message in enumerate(messages) if message["role"] == "user" and (not place or messages[place - 1]["role"] != "user")]
    if not spoken or behind[0] <= keep_tokens:
        return 0
    turns = [place for place in spoken if not place or _ends(messages[place - 1])]
    light = [place for place in turns if behind[place] <= keep_tokens] or [place for place in spoken if behind[place] <= keep_tokens]
    return light[0] if light else spoken[-1]


def _ends(message: Message) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")
