"""Messages made lighter: results shortened, oldest first, then the oldest turns left out, and of a turn too long for itself its oldest calls.

It does not know summaries: what stands for the turns left out is said by who calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from bubbles.kernel.canonical import Message, behind, dump, parsed, text_of
from bubbles.kernel.clip import clip
from bubbles.kernel.weight import MESSAGE_TOKENS, tokens

RECENT = 6  # messages at the end that are shortened last
LEAST = 20  # tokens of a message to which it may be cut
_NAMES, _NOTE = 4, 100  # of tools whose calls are left out, that are told; and the tokens that telling it may take
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

    Where that is not enough, the oldest calls of the last turn are left out with their results, and its longest words shortened, both
    visibly. A system message at the head stays.
    """
    kept, weights = _shrunk(messages, budget_tokens)
    if sum(weights) <= budget_tokens:
        return kept
    head = sum(1 for message in kept[:1] if message["role"] == "system")
    room = budget_tokens - sum(weights[:head])
    start = head + _split(kept[head:], weights[head:], room)
    return kept[:head] + _squeeze(*_without_old_calls(kept[start:], weights[start:], room), room)


def _without_old_calls(messages: list[Message], weights: list[int], budget_tokens: int) -> tuple[list[Message], list[int]]:
    """The messages of a turn without its oldest calls, each with all its results, where calls are what weighs; and the weight of each.

    At least half of the budget stays theirs, for words can be cut and calls cannot. The newest stay, and all that people said.
    """
    over = sum(weights) - budget_tokens + _NOTE
    rounds = [place for place, message in enumerate(messages) if message.get("tool_calls")]
    spare = sum(weights[at] for place in rounds for at in _round(messages, place)) - budget_tokens // 2
    gone: set[int] = set()
    for place in rounds[:-1]:
        if over <= 0 or spare <= 0:
            break
        gone |= set(found := _round(messages, place))
        over -= sum(weights[at] for at in found)
        spare -= sum(weights[at] for at in found)
    if not gone:
        return messages, weights
    names = Counter(call["function"]["name"] for place in rounds if place in gone for call in messages[place]["tool_calls"])
    used = ", ".join(f"{name} {count} times" for name, count in sorted(names.items())[:_NAMES])
    first = max((place for place in range(min(gone)) if messages[place]["role"] == "user"), default=None)
    kept, light = [], []
    for place, message in enumerate(messages):
        if place == first:
            message = message | {"content": behind(message["content"], f"(Earlier calls of this turn and their results are left out: {used}.)")}
        if place not in gone:
            kept.append(message)
            light.append(tokens([message]) if place == first else weights[place])
    return kept, light


def _round(messages: Sequence[Message], place: int) -> range:
    """The places of an answer with calls and of their results, which follow it."""
    end = place + 1
    while end < len(messages) and messages[end]["role"] == "tool":
        end += 1
    return range(place, end)


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
