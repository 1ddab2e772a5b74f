"""What a channel itself says to people in a chat, in English and in Chinese.

It does not know when one is said.
"""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "pair": (
        "This is somebody's personal assistant, and you are not known here yet. Your code: {code} (good for an hour).\n"
        "If it is yours, type where it runs:\nbubbles channels pair {code}\nElse give the code to its owner, and write again once you were let in.",
        "这是一个私人助手，它还不认识你。你的配对码：{code}（一小时内有效）。\n"
        "如果它是你自己的，请在运行它的机器上输入：\nbubbles channels pair {code}\n否则请把配对码告诉它的主人，被允许之后再发消息。",
    ),
    "owner": ("You are known here now, as the owner. What shall I do?", "配对成功，你是这里的主人。有什么要做的？"),
    "guest": ("You are known here now. You can write to me.", "配对成功，现在可以给我发消息了。"),
}


def told(key: str, words: str, /, **values: object) -> str:
    """The text `key`, in the language of somebody's `words`.

    >>> told("guest", "你好")
    '配对成功，现在可以给我发消息了。'
    """
    return TEXTS[key][is_chinese(words)].format(**values)


def is_chinese(words: str) -> bool:
    """Whether words have Chinese characters in them."""
    return any("\u4e00" <= character <= "\u9fff" for character in words)
