"""Content that only another provider understands is not sent, and every dialect adds one warning about it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.model.messages import Block
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter

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
def test_another_providers_blocks_are_left_out_with_a_warning(provider: ms.Provider, model: str, block: Block) -> None:
    answer = ms.Message.assistant([block, ms.Text("answer")])
    request = ms.Request(model, [ms.Message.user("q"), answer, ms.Message.user("next")])
    sent = DIALECTS[provider.profile.dialect_name].encode(request, model, provider, stream=True)
    assert b"canary" not in sent.body
    assert len(sent.warnings) == 1
    assert "canary" not in sent.warnings[0]


@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
def test_foreign_thinking_causes_one_warning(provider: ms.Provider, model: str) -> None:
    answer = ms.Message.assistant([ms.Thinking("t", "s", ELSEWHERE), ms.Text("answer")])
    request = ms.Request(model, [ms.Message.user("q"), answer, ms.Message.user("next")] * 9)
    sent = DIALECTS[provider.profile.dialect_name].encode(request, model, provider, stream=True)
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
def test_thinking_of_a_cut_stream_is_sent_to_no_other_provider(
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
    sent = DIALECTS[provider.profile.dialect_name].encode(conversation.request(model), model, provider, stream=True)
    assert b"canary" not in sent.body
    assert len(sent.warnings) == 1


OWN = ms.Anthropic(base_url="http://127.0.0.1:8080")
"""A compatible server that signs nothing, such as llama.cpp's `/v1/messages`."""

OTHER = ms.Anthropic(base_url="http://127.0.0.1:8081", name="other")
"""Another server of this kind. Both have the same profile."""


def thought(by: ms.Provider, signature: str = "") -> ms.Message:
    body = {
        "type": "message", "content": [{"type": "thinking", "thinking": "canary", "signature": signature},
        {"type": "text", "text": "answer"}], "stop_reason": "end_turn",
    }  # fmt: skip
    return DIALECTS["anthropic"].decode(json.dumps(body).encode(), by, lambda: "id").to_message()


def asked(provider: ms.Provider, message: ms.Message) -> tuple[bool, list[str]]:
    """Return whether the thinking of an answer is in the next request, and the request's warnings."""
    request = ms.Request("m", [ms.Message.user("q"), message, ms.Message.user("next")])
    sent = DIALECTS[provider.profile.dialect_name].encode(request, "m", provider, stream=True)
    return b"canary" in sent.body, sent.warnings


@pytest.mark.parametrize("own", [OWN, ms.Anthropic(base_url="https://llm.example/anthropic", name="mine")])
def test_unsigned_thinking_is_sent_only_to_its_own_server(own: ms.Provider) -> None:
    assert asked(own, thought(own)) == (True, [])
    assert asked(own, thought(own, "sig")) == (True, [])
    for other in (ms.Anthropic(), OTHER, ms.Gemini(), ms.OpenAIChat()):
        for signature in ("", "sig"):
            sent, warnings = asked(other, thought(own, signature))
            assert not sent
            assert warnings == [f"messages: thinking that {other.maker!r} did not make is not sent to it"]


def test_anthropic_gets_only_thinking_that_it_signed() -> None:
    anthropic = ms.Anthropic()
    assert asked(anthropic, thought(anthropic, "sig")) == (True, [])
    reason = "messages: thinking without a signature is not sent; 'anthropic' accepts only thinking that it signed"
    assert asked(anthropic, thought(anthropic)) == (False, [reason])
    assert not asked(OWN, thought(anthropic))[0]


def test_a_signature_without_a_state_is_sent_to_any_gateway() -> None:
    message = ms.Message.assistant([ms.Thinking("canary", "sig"), ms.Text("answer")])
    assert asked(ms.Anthropic(), message) == (True, [])
    assert asked(OWN, message) == (True, [])
    message = ms.Message.assistant([ms.Thinking("canary"), ms.Text("answer")])
    assert not asked(ms.Anthropic(), message)[0]
    assert not asked(OWN, message)[0]


def test_a_quirk_decides_whether_unsigned_thinking_is_sent() -> None:
    strict = ms.Profile(
        name="strict", dialect="anthropic", base_url="http://x/", quirks=ms.Quirks(signed_thinking_only=True)
    )
    lenient = ms.Profile(name="lenient", dialect="anthropic", base_url="http://x/")
    assert not asked(ms.Anthropic(profile=strict), thought(ms.Anthropic(profile=strict)))[0]
    assert asked(ms.Anthropic(profile=lenient), thought(ms.Anthropic(profile=lenient)))[0]


REFUSED = ms.Message.assistant(ms.Text("answer", state=ms.ProviderState("elsewhere", {"refusal": "canary"})))


@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
def test_a_foreign_refusal_beside_a_text_causes_a_warning(provider: ms.Provider, model: str) -> None:
    request = ms.Request(model, [ms.Message.user("q"), REFUSED, ms.Message.user("next")] * 2)
    sent = DIALECTS[provider.profile.dialect_name].encode(request, model, provider, stream=True)
    assert b"canary" not in sent.body
    assert b"answer" in sent.body
    assert sent.warnings == [
        f"messages: a refusal that {provider.maker!r} did not make is not sent to it, only the text before it"
    ]


@pytest.mark.parametrize("converter", [ChatConverter, ResponsesConverter, AnthropicConverter, GeminiConverter])
def test_a_converter_reports_a_foreign_refusal(converter: type[HistoryConverter]) -> None:
    warnings: list[str] = []
    converter().encode_messages([REFUSED], warnings)
    maker = converter().provider.maker
    assert warnings == [f"messages: a refusal that {maker!r} did not make is not sent to it, only the text before it"]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"thoughtSignature": "c2ln", "executableCode": {"code": "1"}}, "'executableCode'"),
        ({"type": "search", "query": {}}, "'search'"),
        ({}, "block"),
    ],
)
@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
def test_a_block_that_is_left_out_is_named(provider: ms.Provider, model: str, data: ms.JSONObject, name: str) -> None:
    answer = ms.Message.assistant([ms.ProviderBlock("elsewhere", data), ms.Text("answer")])
    request = ms.Request(model, [ms.Message.user("q"), answer, ms.Message.user("next")])
    sent = DIALECTS[provider.profile.dialect_name].encode(request, model, provider, stream=True)
    assert f"{name} is not sent" in sent.warnings[0] or f"{name} of 'elsewhere' is not sent" in sent.warnings[0]
    assert "''" not in sent.warnings[0]
    assert "'a block'" not in sent.warnings[0]
