"""A history that is Chinese only, and sixty tools with large schemas: made by rule, so that its tokens could be counted once.

The counts are those of a real vocabulary, o200k (OpenAI's, by the library bpe-openai), of each text by itself. What a provider
adds around a message or a schema is not counted: that differs between them, and a turn's `scale` learns it.
"""

from __future__ import annotations

from typing import Any

O200K_HISTORY = 6708
O200K_TOOLS = 18912

_TOPICS = ("备份", "证书", "日志", "磁盘空间", "数据库迁移", "网络延迟", "用户权限", "定时任务", "监控告警", "代码审查")
_WORDS = (
    "我昨天看了一下{topic}的情况，总的来说比上个月好一些，但是还有几个问题没有解决。",
    "关于{topic}，请你先列出目前所有的配置，然后告诉我哪些可以删掉，哪些必须保留。",
    "如果{topic}再出现同样的错误，就马上停下来通知值班的同事，不要自己反复重试。",
    "下个星期三之前把{topic}的说明文档写完，放到共享目录里，大家开会的时候要用。",
)
_NOUNS = ("invoice", "calendar", "contact", "ticket", "deployment", "snapshot", "repository", "subscription", "translation", "sensor")
_VERBS = ("search", "create", "update", "archive", "export", "compare")


def history() -> list[dict[str, Any]]:
    """Forty turns of Chinese."""
    made: list[dict[str, Any]] = []
    for n in range(40):
        topic = _TOPICS[n % len(_TOPICS)]
        made.append({"role": "user", "content": "".join(text.format(topic=topic) for text in (_WORDS[n % 4], _WORDS[(n + 1) % 4]))})
        made.append({"role": "assistant", "content": f"好的，{topic}我已经查过了。" + "".join(text.format(topic=topic) for text in _WORDS)})
    return made


def tools() -> list[dict[str, Any]]:
    """Sixty tools, each with some ten arguments."""
    return [_tool(verb, noun) for verb in _VERBS for noun in _NOUNS]


def _tool(verb: str, noun: str) -> dict[str, Any]:
    properties: dict[str, Any] = {
        f"{noun}_id": {"type": "string", "description": f"The identifier of the {noun}, as returned by search_{noun}."},
        "query": {"type": "string", "description": f"Words to look for in the title and the body of each {noun}; quotes keep a phrase together."},
        "since": {"type": "string", "format": "date-time", "description": "Only what changed after this time (ISO 8601, UTC)."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50, "description": "How many results at most."},
        "order": {"type": "string", "enum": ["newest", "oldest", "relevance", "title"], "default": "newest"},
        "labels": {"type": "array", "items": {"type": "string", "maxLength": 40}, "description": f"Labels that the {noun} must all have."},
        "dry_run": {"type": "boolean", "default": False, "description": f"Say what would happen to the {noun}, and change nothing."},
        "options": {
            "type": "object",
            "properties": {
                "notify": {"type": "boolean", "description": "Tell everybody who watches it."},
                "priority": {"type": "number", "minimum": 0, "maximum": 1},
                "assignee": {"type": ["string", "null"], "description": "The user who is responsible from now on, or null for nobody."},
            },
            "additionalProperties": False,
        },
    }
    purpose = f"{verb.capitalize()} one or several {noun} records. Use it when the user asks to {verb} a {noun}; never guess an identifier."
    return {
        "type": "function",
        "function": {
            "name": f"{verb}_{noun}",
            "description": purpose,
            "parameters": {"type": "object", "properties": properties, "required": [f"{noun}_id"], "additionalProperties": False},
        },
    }
