"""What only another provider understands stays behind, and every dialect says so, once."""

from __future__ import annotations

from collections.abc import Callable

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


def cut_anthropic_stream() -> ms.Response:
    machine = DIALECTS["anthropic"].machine(ms.Anthropic(), lambda: "id")
    machine.feed("", b'{"type":"message_start","message":{"id":"m","model":"claude","content":[]}}')
    machine.feed("", b'{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}')
    machine.feed("", b'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"canary"}}')
    machine.end()
    return machine.response()


def cut_responses_stream() -> ms.Response:
    machine = DIALECTS["openai-responses"].machine(ms.OpenAIResponses(), lambda: "id")
    machine.feed("", b'{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"canary"}')
    machine.end()
    return machine.response()


@pytest.mark.parametrize("cut", [cut_anthropic_stream, cut_responses_stream])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
def test_thinking_of_a_cut_stream_goes_to_no_other_provider(
    cut: Callable[[], ms.Response], stored: bool, provider: ms.Provider, model: str
) -> None:
    response = cut()
    assert response.thinking == "canary"
    conversation = ms.Conversation([ms.Message.user("q")])
    conversation.add_response(response)
    conversation.messages[-1].content.append(ms.Text("answer"))
    conversation.add(ms.Message.user("next"))
    if stored:
        conversation = ms.Conversation.from_rows(conversation.rows())
    sent = DIALECTS[provider.profile.dialect].encode(conversation.request(model), model, provider, stream=True)
    assert b"canary" not in sent.body
    assert len(sent.warnings) == 1
