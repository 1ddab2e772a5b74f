"""The section `providers`: one class for each party that can be asked for an answer.

It does not know how one is asked: `bubbles.providers` does. Which of them can be asked yet is said by `not_built` here and by the registry
there, and a test holds the two equal.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from bubbles.config.section import ApiKey, Headers, NotYet, PathText, Promised, Secret, Section, Url, fold


class Provider(Promised):
    """What every provider has. `base_url` "" is the provider's own address."""

    not_built = "this provider"

    base_url: Url = ""
    headers: Headers = Field(default_factory=dict)  # sent with each request; as secret as a key


_Dollars = Annotated[StrictFloat | None, Field(ge=0, le=1_000_000)]


class Prices(Section):
    """US dollars per million tokens; null: as the list says, or else not known. Cached and cache_write: else what other input costs."""

    input: _Dollars = None
    output: _Dollars = None
    cached: _Dollars = None
    cache_write: _Dollars = None


class Traits(Section):
    """What nobody else says about one of a provider's models, or says wrongly, and the owner knows. What is not set here is as it is known."""

    tools: StrictBool = True  # it can call tools
    vision: StrictBool = False  # it sees images
    context_tokens: StrictInt = Field(default=0, ge=0, le=10_000_000)  # its window; 0: not known
    output_tokens: StrictInt = Field(default=0, ge=0, le=10_000_000)  # of one answer at most; 0: not known
    reasoning: Literal["drop", "keep", "require"] = "drop"  # what becomes of earlier reasoning in a request
    cache: StrictBool = False  # it keeps the beginning of a request for the next one
    prices: Prices = Field(default_factory=Prices)


class Keyed(Provider):
    """A provider that knows its customers by a key."""

    not_built = ""

    api_key: ApiKey = Secret("")
    models: dict[str, Traits] = Field(default_factory=dict)  # by the provider's own names


class Anthropic(Keyed):
    """Anthropic."""


class OpenAI(Keyed):
    """OpenAI."""


class Gemini(Keyed):
    """Google Gemini."""


class DeepSeek(Keyed):
    """DeepSeek."""


class Groq(Keyed):
    """Groq."""


class Moonshot(Keyed):
    """Moonshot (Kimi)."""


class MiniMax(Keyed):
    """MiniMax."""


class Zhipu(Keyed):
    """Zhipu (GLM)."""


class DashScope(Keyed):
    """DashScope (Qwen)."""


class OpenRouter(Keyed):
    """OpenRouter, a gateway."""


class AiHubMix(Keyed):
    """AiHubMix, a gateway."""


class SiliconFlow(Keyed):
    """SiliconFlow, a gateway."""


class VolcEngine(Keyed):
    """VolcEngine, a gateway."""


class SelfHosted(Keyed):
    """An endpoint of the owner's own that speaks OpenAI's chat protocol; the key is optional."""


class Custom(SelfHosted):
    """Any endpoint."""


class Ollama(SelfHosted):
    """Ollama on this or another machine."""


class Vllm(SelfHosted):
    """vLLM on this or another machine."""


class SignedIn(Provider):
    """A provider that a person signs in to: what it knows its customers by is in no configuration. `auth_url` "": its own authority."""

    not_built = ""

    auth_url: Url = ""  # where one signs in: a company's own GitHub
    models: dict[str, Traits] = Field(default_factory=dict)  # by the provider's own names


class OpenAICodex(SignedIn):
    """OpenAI Codex, by login."""


class GitHubCopilot(SignedIn):
    """GitHub Copilot, by login."""


class Embedded(Promised):
    """A model file run by Bubbles itself."""

    not_built = ""

    model_path: PathText = ""  # a GGUF file
    context_tokens: StrictInt = Field(default=8192, ge=512, le=1_000_000)
    threads: StrictInt = Field(default=0, ge=0, le=1024)  # 0: as many as there are cores
    idle_s: StrictInt = Field(default=600, ge=0, le=604_800)  # unloaded after so long without a request; 0: never


class Providers(Section):
    """The section `providers`."""

    anthropic: Anthropic = Field(default_factory=Anthropic)
    openai: OpenAI = Field(default_factory=OpenAI)
    gemini: Gemini = Field(default_factory=Gemini)
    deepseek: DeepSeek = Field(default_factory=DeepSeek)
    groq: Groq = Field(default_factory=Groq)
    moonshot: Moonshot = Field(default_factory=Moonshot)
    minimax: MiniMax = Field(default_factory=MiniMax)
    zhipu: Zhipu = Field(default_factory=Zhipu)
    dashscope: DashScope = Field(default_factory=DashScope)
    openrouter: OpenRouter = Field(default_factory=OpenRouter)
    aihubmix: AiHubMix = Field(default_factory=AiHubMix)
    siliconflow: SiliconFlow = Field(default_factory=SiliconFlow)
    volcengine: VolcEngine = Field(default_factory=VolcEngine)
    custom: Custom = Field(default_factory=Custom)
    ollama: Ollama = Field(default_factory=Ollama)
    vllm: Vllm = Field(default_factory=Vllm)
    openai_codex: OpenAICodex = Field(default_factory=OpenAICodex)
    github_copilot: GitHubCopilot = Field(default_factory=GitHubCopilot)
    embedded: Embedded = Field(default_factory=Embedded)


def built() -> list[str]:
    """The providers that can be asked."""
    return [name for name, info in Providers.model_fields.items() if not info.annotation.not_built]  # type: ignore[union-attr]


def known(name: str) -> str:
    """`name`, the name of a provider that can be asked, or "". Raises ValueError for another name, NotYet for one that is not built."""
    found = next((field for field in Providers.model_fields if fold(field) == fold(name)), "")
    if name and not found:
        raise ValueError(f'one of {", ".join(built())}; or "", to find it from the model\'s name')
    if name and found not in built():
        raise NotYet(f"the provider {found}", "", built=built())
    return name
