"""The family of a model's name."""

from __future__ import annotations

import pytest

from manystream.providers.limits.charging import family_of


@pytest.mark.parametrize(
    ("provider", "model", "family"),
    [
        ("anthropic", "claude-opus-4-5", "claude-opus-4"),
        ("anthropic", "claude-opus-4-1-20250805", "claude-opus-4"),
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4"),
        ("anthropic", "claude-sonnet-4", "claude-sonnet-4"),
        ("anthropic", "claude-sonnet-45", "claude-sonnet-45"),
        ("anthropic", "claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("anthropic", "my-claude-opus-4-5", "my-claude-opus-4-5"),
        ("anthropic-compatible", "claude-opus-4-5", "claude-opus-4-5"),
        ("openai-chat", "gpt-5-2025-08-07", "gpt-5"),
        ("openai-chat", "gpt-5-mini", "gpt-5-mini"),
        ("openai-chat", "gpt-5-2025-08-07-x", "gpt-5-2025-08-07-x"),
        ("openai-chat", "gpt-5-2025080", "gpt-5-2025080"),
        ("vllm", "a", "*"),
        ("sglang", "a", "*"),
        ("llama-cpp", "a", "*"),
        ("tgi", "a", "*"),
        ("ollama", "a", "a"),
    ],
)
def test_the_family_of_a_model(provider: str, model: str, family: str) -> None:
    assert family_of(provider, model) == family
