"""Who is asked, and what: each provider of the registry with the fake that stands in for its vendor, and what that vendor's wire carries."""

from __future__ import annotations

from dataclasses import dataclass

KEY = "sk-0123456789"


@dataclass(frozen=True, slots=True)
class Side:
    """One provider, one of its models, and the server at its `base_url`. `reasoning`: what the owner says becomes of earlier reasoning.

    What the vendor's protocol has no place for: `cached`, `cache_write`, `thoughts` (tokens of each), `ids` (of calls), `images`.
    """

    provider: str
    model: str
    server: str = "openai"
    root: str = ""  # what the base_url has behind the server's address
    vendor: str = ""  # whose words faults are told in, where the server can speak in those of several
    reasoning: str = "drop"
    cached: bool = True
    cache_write: bool = False
    thoughts: bool = True
    ids: bool = True
    images: bool = True
    speaks: str = ""  # of the protocols of one server
    signs_in: bool = False  # by what a login left, and not by a key of the configuration
    bounded: bool = True  # the length of an answer can be said

    @property
    def words(self) -> str:
        """The vendor in tests.fakes.vendors.wordings."""
        return self.vendor or self.server

    def __str__(self) -> str:
        return f"{self.provider}{self.speaks and '-'}{self.speaks}"


SIDES = [
    Side("anthropic", "claude-sonnet-4-5", "anthropic", reasoning="keep", cache_write=True, thoughts=False),
    Side("openai", "gpt-4.1", vendor="openai"),
    Side("openai", "gpt-5.2-codex", vendor="responses", reasoning="keep", speaks="responses"),
    Side("gemini", "gemini-3-pro-preview", "gemini", "/v1beta", reasoning="keep", ids=False),
    Side("deepseek", "deepseek-v4-pro", vendor="deepseek", reasoning="require", images=False),
    Side("groq", "openai/gpt-oss-120b", vendor="groq"),
    Side("moonshot", "kimi-k2.5", vendor="moonshot", reasoning="require"),
    Side("minimax", "MiniMax-M2.5", vendor="minimax", reasoning="keep"),
    Side("zhipu", "glm-4.7", vendor="zhipu", reasoning="keep"),
    Side("dashscope", "qwen3.7-plus", vendor="dashscope"),
    Side("openrouter", "openai/gpt-5", vendor="openrouter", reasoning="keep"),
    Side("openrouter", "anthropic/claude-sonnet-4.5", vendor="openrouter", reasoning="keep", speaks="claude"),
    Side("aihubmix", "gpt-4.1", vendor="aihubmix"),
    Side("siliconflow", "deepseek-ai/DeepSeek-V3.2", vendor="siliconflow"),
    Side("volcengine", "doubao-seed-2-0-pro-260215", vendor="volcengine"),
    Side("custom", "deepseek-chat", vendor="deepseek", reasoning="require"),
    Side("ollama", "llama3.2", "ollama", "/v1", cached=False, thoughts=False),
    Side("vllm", "qwen3", vendor="vllm"),
    Side("openai_codex", "gpt-5.3-codex", "codex", vendor="responses", reasoning="keep", signs_in=True, bounded=False),
    Side("github_copilot", "gpt-4.1", "copilot", vendor="openai", signs_in=True),
    Side("github_copilot", "gpt-5.3-codex", "copilot", vendor="responses", reasoning="keep", speaks="responses", signs_in=True),
]

# One of each way in which bytes are read: what holds for it holds for those that are read alike.
WIRES = [side for side in SIDES if str(side) in ("anthropic", "openai", "openai-responses", "gemini", "openrouter", "custom", "ollama")]
