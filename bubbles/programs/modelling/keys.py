"""The variables in which people keep the keys of vendors. What is in them is read when its owner says so, and never before.

It does not know BUBBLES_… variables, which stand over the configuration by themselves (bubbles.config.environment).
"""

from __future__ import annotations

import os

from bubbles.config import environment
from bubbles.config.section import fold
from bubbles.errors import Usage
from bubbles.providers import DIRECT, GATEWAY, REGISTRY

KEYED = tuple(name for name, entry in REGISTRY.items() if entry.category in (DIRECT, GATEWAY))
VARIABLES = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "minimax": ("MINIMAX_API_KEY",),
    "zhipu": ("ZHIPUAI_API_KEY", "ZAI_API_KEY"),
    "dashscope": ("DASHSCOPE_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "aihubmix": ("AIHUBMIX_API_KEY",),
    "siliconflow": ("SILICONFLOW_API_KEY",),
    "volcengine": ("ARK_API_KEY", "VOLCENGINE_API_KEY"),
}


def present(provider: str) -> str:
    """The variable that holds a key of this vendor's here; "" where none does."""
    return next((name for name in VARIABLES.get(provider, ()) if os.environ.get(name)), "")


def vendor(variable: str) -> str:
    """Whose key a variable of this name holds; "" where that is not known."""
    return next((provider for provider, names in VARIABLES.items() if variable in names), "")


def read(variable: str) -> str:
    """The key in a variable that its owner has named. Raises Usage where there is none."""
    if key := os.environ.get(variable, "").strip():
        return key
    raise Usage(f"there is no variable {variable}, or nothing in it", remedy=f"export {variable}=…, or --api-key-stdin")


def stands_over(provider: str) -> bool:
    """Whether a BUBBLES_… variable gives this provider its key."""
    return any([fold(str(part)) for part in key] == [fold(provider), "apikey"] for _, key, _ in environment.variables(os.environ, "providers"))
