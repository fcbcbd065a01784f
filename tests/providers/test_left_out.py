"""What only another provider understands stays behind, and every dialect says so, once."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.messages import Block
from manystream.providers.registry import DIALECTS

PROVIDERS: list[tuple[ms.Provider, str]] = [
    (ms.OpenAIChat(), "gpt-4.1"),
    (ms.OpenAIChat(name="deepseek"), "deepseek-reasoner"),
    (ms.OpenAIResponses(), "gpt-5.1"),
    (ms.Anthropic(), "claude-sonnet-4-5"),
    (ms.Gemini(), "gemini-3-pro-preview"),
]
ELSEWHERE = ms.ProviderState("elsewhere", {"signature": "canary"})


@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
@pytest.mark.parametrize(
    "block",
    [
        ms.Thinking("canary", "canary", ELSEWHERE),
        ms.RedactedThinking("canary", ELSEWHERE),
        ms.ProviderBlock("elsewhere", {"type": "search", "query": "canary"}),
    ],
)
def test_what_another_provider_made_stays_behind_with_a_warning(
    provider: ms.Provider, model: str, block: Block
) -> None:
    said = ms.Message.assistant([block, ms.Text("answer")])
    request = ms.Request(model, [ms.Message.user("q"), said, ms.Message.user("next")])
    sent = DIALECTS[provider.profile.dialect].encode(request, model, provider, stream=True)
    assert b"canary" not in sent.body
    assert len(sent.warnings) == 1
    assert "canary" not in sent.warnings[0]


@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
def test_thinking_is_told_of_once_however_long_the_conversation(provider: ms.Provider, model: str) -> None:
    said = ms.Message.assistant([ms.Thinking("t", "s", ELSEWHERE), ms.Text("answer")])
    request = ms.Request(model, [ms.Message.user("q"), said, ms.Message.user("next")] * 9)
    sent = DIALECTS[provider.profile.dialect].encode(request, model, provider, stream=True)
    assert sent.warnings == [f"messages: thinking that {provider.profile.name!r} did not make is not sent to it"]
