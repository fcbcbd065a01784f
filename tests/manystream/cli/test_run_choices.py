"""How `manystream run` chooses the provider: by name, by model, by base URL, or the first with a key."""

from typing import TypeAlias

import pytest

import manystream as ms
from manystream.cli.run import choose_provider, provider_names
from tests.support.profile_rows import ROWS

Given: TypeAlias = tuple[str | None, str | None, str | None]
"""Provider, model and base URL."""
LOCAL = "http://127.0.0.1:1/v1"


def options(provider: str | None = None, model: str | None = None, base_url: str | None = None) -> Given:
    return provider, model, base_url


@pytest.mark.parametrize(
    ("given", "kind", "model"),
    [
        (options(provider="anthropic"), ms.Anthropic, "claude-sonnet-4-5"),
        (options(provider="claude", model="x"), ms.Anthropic, "x"),
        (options(provider="openai"), ms.OpenAIChat, "gpt-5-mini"),
        (options(provider="openai-responses"), ms.OpenAIResponses, "gpt-5-mini"),
        (options(provider="gemini"), ms.Gemini, "gemini-2.5-flash"),
        (options(model="claude-opus-4-5"), ms.Anthropic, "claude-opus-4-5"),
        (options(model="gpt-5.2"), ms.OpenAIChat, "gpt-5.2"),
        (options(model="gemini-3-pro"), ms.Gemini, "gemini-3-pro"),
        (options(model="anthropic/claude-next"), ms.Anthropic, "claude-next"),
        (options(model="llama3.2", base_url=LOCAL), ms.OpenAIChat, "llama3.2"),
        (options(model="meta/llama", base_url=LOCAL), ms.OpenAIChat, "meta/llama"),
        (options(provider="anthropic", model="x", base_url=LOCAL), ms.Anthropic, "x"),
    ],
)
def test_name_model_and_url_choose_the_provider(given: Given, kind: type[ms.Provider], model: str) -> None:
    provider, chosen = choose_provider(*given, {})
    assert type(provider) is kind
    assert chosen == model
    assert given[2] is None or provider.base_url == given[2]


@pytest.mark.parametrize(
    ("given", "environment", "kind", "url", "model"),
    [
        (options(model="gpt-5"), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat, LOCAL, "gpt-5"),
        (options(model="llama3.2"), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat, LOCAL, "llama3.2"),
        (options(model="llama3.2"), {"ANTHROPIC_BASE_URL": LOCAL}, ms.Anthropic, LOCAL, "llama3.2"),
        (options(model="openai/llama3.2"), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat, LOCAL, "llama3.2"),
        (options(), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat, LOCAL, "gpt-5-mini"),
        (options(provider="groq", model="m"), {"GROQ_BASE_URL": "http://127.0.0.1:1"}, ms.OpenAIChat,
         "http://127.0.0.1:1/openai/v1", "m"),
        (options(provider="azure", model="m"), {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com"}, ms.OpenAIChat,
         "https://a.openai.azure.com/openai/v1", "m"),
        (options(model="gpt-5", base_url="http://127.0.0.1:2/v1"), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat,
         "http://127.0.0.1:2/v1", "gpt-5"),
        (options(model="claude-opus-4-5"), {"OPENAI_BASE_URL": LOCAL}, ms.Anthropic, "https://api.anthropic.com",
         "claude-opus-4-5"),
    ],
)  # fmt: skip
def test_the_environment_has_the_address(
    given: Given, environment: dict[str, str], kind: type[ms.Provider], url: str, model: str
) -> None:
    provider, chosen = choose_provider(*given, environment)
    assert (type(provider), provider.base_url, chosen) == (kind, url, model)


def test_a_server_of_the_environment_has_its_profile() -> None:
    provider, _ = choose_provider(*options(model="gpt-5"), {"OPENAI_BASE_URL": LOCAL})
    assert (provider.name, provider.profile.name) == ("openai-chat", "openai-compatible")


def test_without_a_name_the_first_provider_with_a_key_is_asked() -> None:
    provider, model = choose_provider(*options(), {"GEMINI_API_KEY": "k", "OPENAI_API_KEY": ""})
    assert type(provider) is ms.Gemini
    assert model == "gemini-2.5-flash"


OTHER_DIALECTS = {
    "anthropic": ms.Anthropic, "google": ms.Gemini, "google-interactions": ms.GeminiInteractions,
    "openai-responses": ms.OpenAIResponses, "openrouter-responses": ms.OpenAIResponses,
    "vercel-responses": ms.OpenAIResponses, "xai-responses": ms.OpenAIResponses, "groq-responses": ms.OpenAIResponses,
    "github-copilot-responses": ms.OpenAIResponses, "huggingface-responses": ms.OpenAIResponses,
    "vllm-generate": ms.VLLMGenerate, "sglang-generate": ms.SGLangGenerate, "openai-completions": ms.OpenAICompletions,
    "vllm-completions": ms.OpenAICompletions, "sglang-completions": ms.OpenAICompletions,
}  # fmt: skip
"""Provider → its class, for the providers that do not speak OpenAI Chat."""


def test_every_provider_with_a_base_url_has_a_name() -> None:
    assert provider_names() == [name for name, row in ROWS.items() if row.base_url]
    assert {"openai-chat", "groq", "ollama", *OTHER_DIALECTS} <= {*provider_names()}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.base_url])
def test_every_provider_name_is_accepted(name: str) -> None:
    provider, model = choose_provider(*options(provider=name, model="m"), {})
    assert type(provider) is OTHER_DIALECTS.get(name, ms.OpenAIChat)
    assert (provider.name, provider.base_url, model) == (name, ROWS[name].base_url, "m")
