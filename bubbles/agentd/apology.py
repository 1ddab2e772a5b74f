"""What a person is told when a turn ends without an answer: a pure function of who asked, what failed, and when the last such notice went out.

It does not know the error: the log has that. A category is all that ever leaves, so that its reader can tell
"wait and try again" from "look at your key".
"""

from __future__ import annotations

from bubbles.agentd.texts import told

WINDOW_S = 60.0  # one notice a session in this time; later ones are only logged

CATEGORIES = ("rate_limited", "model_down", "context_too_long", "not_authorized", "not_set_up", "rejected", "over_budget")


def notice(outcome: str, *, awaited: bool, retries: int, steps: int, language: str, last_at: float, now: float, why: str = "") -> str:
    """The text for whoever waits, or "" for silence.

    `outcome` is a turn's (`failed:CATEGORY`, `limit`, `stopped`, …), `awaited`: a person spoke to the assistant, `retries` the
    requests beyond the first, `steps` the iteration limit, `language` "en" or "zh"; times are epoch seconds. `why` is all there is to say
    of a budget that is used up.
    """
    if outcome == "limit":
        return told("limit", language, n=steps)
    if outcome == "stopped":
        return told("stopped", language)
    if not outcome.startswith("failed:") or not awaited or 0 <= now - last_at < WINDOW_S:
        return ""
    category = outcome.partition(":")[2]
    if category == "over_budget" and why:
        return why
    if category == "empty":
        return told("empty", language)
    if category not in CATEGORIES:
        return told("failed other", language)
    tries = "" if retries < 1 else told("one try" if retries == 1 else "tries", language, n=retries)
    return told("failed", language, what=told(category, language), tries=tries)


def language_of(setting: str, text: str) -> str:
    """ "en" or "zh": the setting, or where that is "auto" the language that `text` is written in."""
    if setting in ("en", "zh"):
        return setting
    return "zh" if any("\u4e00" <= character <= "\u9fff" for character in text) else "en"
