"""Messages made lighter: results shortened, oldest first, and then the oldest turns left out.

It does not know summaries: what stands for the turns left out is said by who calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from bubbles.kernel.canonical import Message, dump, parsed, text_of
from bubbles.kernel.clip import clip
from bubbles.kernel.weight import MESSAGE_TOKENS, tokens

RECENT = 6  # messages at the end that are shortened last
LEAST = 20  # tokens of a message to which it may be cut
_STEPS = ((1000, RECENT), (200, RECENT), (1000, 0), (200, 0), (50, 0))  # a part's tokens at most; messages spared at the end


def shrink(messages: Sequence[Message], budget_tokens: int) -> list[Message]:
    """As many messages, the results and arguments of the oldest shortened until all weigh at most the budget, or nothing more can be shortened."""
    return _shrunk(messages, budget_tokens)[0]


def _shrunk(messages: Sequence[Message], budget_tokens: int) -> tuple[list[Message], list[int]]:
    """Those messages and the weight of each: whoever goes on from there need not weigh them again."""
    light = list(messages)
    weights = [tokens([message]) for message in light]
    over = sum(weights) - budget_tokens
    for most, spared in _STEPS:
        for place in range(len(light) - spared):
            if over <= 0:
                return light, weights
            if weights[place] <= most:
                continue
            shorter = _shorter(light[place], most)
            if shorter is not light[place]:
                over -= weights[place]
                light[place], weights[place] = shorter, tokens([shorter])
                over += weights[place]
    return light, weights


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
    kept, weights = _shrunk(messages, budget_tokens)
    if sum(weights) <= budget_tokens:
        return kept
    head = sum(1 for message in kept[:1] if message["role"] == "system")
    room = budget_tokens - sum(weights[:head])
    start = head + _split(kept[head:], weights[head:], room)
    return kept[:head] + _squeeze(kept[start:], weights[start:], room)


def _squeeze(messages: list[Message], weights: list[int], budget_tokens: int) -> list[Message]:
    """The messages, those heavier than what is due to each cut to that."""
    most = _due(weights, budget_tokens)
    while sum(weights) > budget_tokens and most >= LEAST:
        heavy = [weight > most for weight in weights]
        messages = [_cut(message, most) if is_heavy else message for message, is_heavy in zip(messages, heavy, strict=True)]
        weights = [tokens([messages[n]]) if is_heavy else weights[n] for n, is_heavy in enumerate(heavy)]
        most = most * 3 // 4  # calls cannot be cut: what they weigh is taken off the words
    return messages


def _due(weights: list[int], budget_tokens: int) -> int:
    """The weight that each may have at most, so that all together weigh what they may."""
    left = budget_tokens
    for place, weight in enumerate(sorted(weights)):
        due = left // (len(weights) - place)
        if weight > due:
            return max(due, LEAST)
        left -= weight
    return max(weights, default=0)


def _cut(message: Message, most: int) -> Message:
    """The message with its words cut so that it weighs at most `most`, where its words are what weighs."""
    return message | {"content": clip(text_of(message["content"]), max(most - MESSAGE_TOKENS, 1))}


def split(messages: Sequence[Message], keep_tokens: int) -> int:
    """The index where the stretch begins that compaction keeps word for word: the earliest turn from which the rest weighs at most `keep_tokens`.

    It is always where somebody speaks, so both sides are well-formed, and never behind the last words of a person. A turn too heavy to be kept
    whole is cut where somebody spoke in it.
    """
    return _split(messages, [tokens([message]) for message in messages], keep_tokens)


def _split(messages: Sequence[Message], weights: Sequence[int], keep_tokens: int) -> int:
    behind = [*accumulate(reversed(weights))][::-1]
    spoken = [place for place, message in enumerate(messages) if message["role"] == "user" and (not place or messages[place - 1]["role"] != "user")]
    if not spoken or behind[0] <= keep_tokens:
        return 0
    turns = [place for place in spoken if not place or _ends(messages[place - 1])]
    light = [place for place in turns if behind[place] <= keep_tokens] or [place for place in spoken if behind[place] <= keep_tokens]
    return light[0] if light else spoken[-1]


def _ends(message: Message) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")
