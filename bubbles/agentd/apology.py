"""What a person is told when a turn ends without an answer: a pure function of who asked, what failed, and when the last such notice went out.

It does not know the error: the log has that. A category is all that ever leaves, so that its reader can tell
"wait and try again" from "look at your key".
"""

from __future__ import annotations

WINDOW_S = 60.0  # one notice a session in this time; later ones are only logged

_CATEGORIES = {
    "rate_limited": ("the model's provider limits requests just now", "模型服务商正在限流"),
    "model_down": ("the model cannot be reached", "模型接口暂时不可用"),
    "context_too_long": ("the conversation does not fit the model's window", "对话超出了模型的上下文上限"),
    "not_authorized": ("the model's provider did not accept the key", "模型服务商认证失败"),
    "not_set_up": ("no model is set up that could be asked", "还没有设置可用的模型"),
    "rejected": ("the model's provider refused the request", "模型服务商拒绝了这次请求"),
}
_FAILED = ("No answer: {what}{tries}.", "没有得到回答：{what}{tries}。")
_TRIES = (", after {n} retries", "，已重试 {n} 次")
_ONE_TRY = (", after 1 retry", "，已重试 1 次")
_OTHER = ("Something went wrong here and this turn was given up. The log has the details.", "处理时出了问题，这一轮已放弃。详情见日志。")
_EMPTY = ("The model gave an empty answer. Please ask again.", "模型给出了空的回答，请再问一次。")
_LIMIT = (
    "I stopped after {n} steps without coming to an end. Say \u201cgo on\u201d to let me continue.",
    "我已用完 {n} 步仍未完成，先停在这里。说一声“继续”我就接着做。",
)
_STOPPED = ("Stopped.", "已停止。")


def notice(outcome: str, *, origin: str, retries: int, steps: int, language: str, last_at: float, now: float) -> str:
    """The text for whoever waits, or "" for silence.

    `outcome` is a turn's (`failed:CATEGORY`, `limit`, `stopped`, …), `origin` "user" or "system", `retries` the
    requests beyond the first, `steps` the iteration limit, `language` "en" or "zh"; times are epoch seconds.
    """
    chinese = int(language == "zh")
    if outcome == "limit":
        return _LIMIT[chinese].format(n=steps)
    if outcome == "stopped":
        return _STOPPED[chinese]
    if not outcome.startswith("failed:") or origin != "user" or 0 <= now - last_at < WINDOW_S:
        return ""
    category = outcome.partition(":")[2]
    if category == "empty":
        return _EMPTY[chinese]
    if category not in _CATEGORIES:
        return _OTHER[chinese]
    tries = "" if retries < 1 else (_ONE_TRY if retries == 1 else _TRIES)[chinese].format(n=retries)
    return _FAILED[chinese].format(what=_CATEGORIES[category][chinese], tries=tries)


def language_of(setting: str, text: str) -> str:
    """ "en" or "zh": the setting, or where that is "auto" the language that `text` is written in."""
    if setting in ("en", "zh"):
        return setting
    return "zh" if any("\u4e00" <= character <= "\u9fff" for character in text) else "en"
