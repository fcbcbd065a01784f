"""Content that only another provider understands: what stays, what is not sent, and the one warning about it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.model.messages import Block
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.providers.sdk_bodies import READERS, sent_by_sdk, sent_by_us
from tests.providers.sdk_examples import BASES, USER

PROVIDERS: list[tuple[ms.Provider, str]] = [
    (ms.OpenAIChat(), "gpt-4.1"), (ms.OpenAIChat(name="deepseek"), "deepseek-reasoner"),
    (ms.OpenAIResponses(), "gpt-5.1"), (ms.Anthropic(), "claude-sonnet-4-5"), (ms.Gemini(), "gemini-3-pro-preview"),
]  # fmt: skip

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


CHAT, RESPONSES = ms.OpenAIChat(api_key="k"), ms.OpenAIResponses(api_key="k")

ANTHROPIC, GEMINI = ms.Anthropic(api_key="k"), ms.Gemini(api_key="k")

PICTURE: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}

DOCUMENT: dict[str, Any] = {
    "type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "Chapter 1"}, PICTURE]},
    "context": "A contract of 2019.", "citations": {"enabled": True},
}  # fmt: skip

LEFT_OUT = [
    "messages: the 'citations' of a file is not sent; only 'anthropic' takes it",
    "messages: the 'context' of a file is not sent; only 'anthropic' takes it",
    "messages: a picture in a document is not sent; only 'anthropic' takes it",
]

FILM: dict[str, Any] = {
    "inlineData": {"mimeType": "application/pdf", "data": "aGk="},
    "videoMetadata": {"startOffset": "3s"},
}


def warnings_of(request: ms.Request, provider: ms.Provider) -> list[str]:
    return DIALECTS[provider.profile.dialect_name].encode(request, "m", provider, stream=False).warnings


def with_document(*content: dict[str, Any]) -> ms.Request:
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Read."}, *content]}]
    return ms.Request.from_anthropic(model="m", max_tokens=99, messages=messages)


def with_document_in_a_result() -> ms.Request:
    call: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    messages: list[Any] = [
        {"role": "user", "content": "Read."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [DOCUMENT]}]},
    ]
    return ms.Request.from_anthropic(model="m", max_tokens=99, messages=messages)


@pytest.mark.parametrize("provider", [CHAT, RESPONSES, GEMINI])
@pytest.mark.parametrize("request_", [with_document(DOCUMENT, DOCUMENT), with_document_in_a_result()])
def test_what_only_anthropic_takes_causes_a_warning(provider: ms.Provider, request_: ms.Request) -> None:
    warnings = warnings_of(request_, provider)
    assert [warning for warning in warnings if warning.startswith("messages: ")] == LEFT_OUT


@pytest.mark.parametrize("provider", [CHAT, RESPONSES, GEMINI])
def test_a_document_of_texts_alone_causes_no_warning(provider: ms.Provider) -> None:
    plain: dict[str, Any] = {
        "type": "document",
        "source": {"type": "content", "content": [{"type": "text", "text": "Chapter 1"}]},
    }
    assert warnings_of(with_document(plain), provider) == []


def test_anthropic_gets_what_the_user_gave_without_a_warning() -> None:
    assert warnings_of(with_document(DOCUMENT), ANTHROPIC) == []


@pytest.mark.parametrize("provider", [CHAT, RESPONSES, ANTHROPIC])
def test_what_only_gemini_takes_causes_a_warning(provider: ms.Provider) -> None:
    contents: list[Any] = [{"role": "user", "parts": [{"text": "Look."}, FILM]}]
    request = ms.Request.from_gemini(model="m", contents=contents)
    assert warnings_of(request, provider) == [
        "messages: the 'videoMetadata' of a file is not sent; only 'google' takes it"
    ]


CITED = {"enabled": True}

PNG = "iVBORw0KGgo="

TEXT_SOURCE = {"type": "text", "media_type": "text/plain", "data": "The Rhine."}

PARTS = [{"type": "text", "text": "The Rhine."}, {"type": "text", "text": "Big."}]

PARTS_SOURCE = {"type": "content", "content": PARTS}

SEARCH_RESULT = {
    "type": "search_result", "source": "https://example.org/rivers", "title": "Rivers", "content": PARTS,
    "citations": CITED,
}  # fmt: skip

CLAUDE_CALL: dict[str, object] = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}],
}


def claude_document(**members: object) -> dict[str, object]:
    return {"type": "document", "source": TEXT_SOURCE, "title": "Rivers", **members}


def claude_result(*content: object) -> list[object]:
    result = {"type": "tool_result", "tool_use_id": "a", "content": list(content)}
    return [USER, CLAUDE_CALL, {"role": "user", "content": [result]}]


def gemini_clip(**members: object) -> list[object]:
    return [{"role": "user", "parts": [{"fileData": {"fileUri": "https://youtu.be/x"}, **members}, {"text": "Hi"}]}]


GEMINI_RESULT: list[object] = [
    {"role": "user", "parts": [{"text": "Hi"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "a picture"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}]}}]},
]  # fmt: skip

GIVEN: dict[str, tuple[str, str, list[object]]] = {
    "citations": ("anthropic", "messages", [{"role": "user", "content": [claude_document(citations=CITED)]}]),
    "context": ("anthropic", "messages", [{"role": "user", "content": [claude_document(context="A lexicon.")]}]),
    "a document in parts": ("anthropic", "messages",
        [{"role": "user", "content": [claude_document(source=PARTS_SOURCE, citations=CITED)]}]),
    "a document of one text": ("anthropic", "messages",
        [{"role": "user", "content": [claude_document(source={"type": "content", "content": "The Rhine."})]}]),
    "a search result": ("anthropic", "messages", claude_result(SEARCH_RESULT)),
    "a cited document in a result": ("anthropic", "messages", claude_result(claude_document(citations=CITED))),
    "a tool's reference": ("anthropic", "messages", claude_result({"type": "tool_reference", "tool_name": "look"})),
    "a clip": ("gemini", "contents", gemini_clip(videoMetadata={"startOffset": "1s", "endOffset": "5s", "fps": 2})),
    "a resolution": ("gemini", "contents", gemini_clip(mediaResolution={"level": "MEDIA_RESOLUTION_LOW"})),
    "pages": ("gemini", "contents", gemini_clip(documentMetadata={"startPage": 2, "endPage": 5})),
    "cells": ("gemini", "contents", gemini_clip(spreadsheetMetadata={"sheetIndex": 1, "visibleCells": "A1:D10"})),
    "a piece of sound": ("gemini", "contents", gemini_clip(audioMetadata={"startOffset": "1s", "endOffset": "5s"})),
    "a way to watch": ("gemini", "contents", gemini_clip(mediaProcessing="AGENTIC")),
    "a speaker": ("gemini", "contents",
        [{"role": "user", "parts": [{"text": "Hi", "speechMetadata": {"speaker": "Ann"}, "partMetadata": {"a": 1}}]}]),
}  # fmt: skip

USER_ITEM: dict[str, object] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}

PROGRAM: dict[str, object] = {
    "type": "program", "id": "p", "call_id": "c", "code": "1", "fingerprint": "f",
}  # fmt: skip

PROGRAM_OUTPUT: dict[str, object] = {
    "type": "program_output", "id": "o", "call_id": "c", "result": "1", "status": "completed",
}  # fmt: skip

MORE_TOOLS: dict[str, object] = {"type": "additional_tools", "role": "developer", "tools": []}

UPDATE: dict[str, object] = {"type": "configuration_update", "reasoning": {"effort": "low"}}

GIVEN.update(
    {"a program": ("openai_responses", "input", [USER_ITEM, PROGRAM, PROGRAM_OUTPUT]),
    "more tools": ("openai_responses", "input", [MORE_TOOLS, USER_ITEM]),
    "an update": ("openai_responses", "input", [USER_ITEM, UPDATE])}
)  # fmt: skip


@pytest.mark.parametrize(("sdk", "member", "items"), GIVEN.values(), ids=GIVEN)
def test_the_rest_of_a_document_stays_when_a_turn_is_added(sdk: str, member: str, items: list[object]) -> None:
    arguments = {**BASES[sdk], member: items}
    request = READERS[sdk](**arguments)
    assert sent_by_us(sdk, request)[member] == items
    sent_by_sdk(sdk, arguments)  # the SDK takes it
    answered = [*request.messages, ms.Message.assistant("Yes."), ms.Message.user("Why?")]
    written: Any = sent_by_us(sdk, dataclasses.replace(request, messages=answered))[member]
    assert written[: len(items)] == items


def test_a_gateway_gets_the_citations_setting_too() -> None:
    messages = [{"role": "user", "content": [claude_document(citations=CITED)]}]
    request = ms.Request.from_anthropic(**{**BASES["anthropic"], "messages": messages})
    changed = dataclasses.replace(request, messages=[*request.messages, ms.Message.assistant("Yes.")])
    gateway = ms.Anthropic(base_url="https://gateway.example", name="gateway", api_key="any")
    written: Any = sent_by_us("anthropic", changed, provider=gateway)
    assert written["messages"][0] == messages[0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (SEARCH_RESULT, "Rivers\nhttps://example.org/rivers\n\nThe Rhine.\n\nBig."),
        ({"type": "tool_reference", "tool_name": "look"}, "look"),
    ],
)
def test_another_provider_gets_the_text_of_a_result(content: object, text: str) -> None:
    request = ms.Request.from_anthropic(**{**BASES["anthropic"], "messages": claude_result(content)})
    written: Any = sent_by_us("openai", dataclasses.replace(request, extra_body=None))
    assert written["messages"][2] == {"role": "tool", "tool_call_id": "a", "content": text}


def test_another_provider_gets_the_text_of_a_document_in_parts() -> None:
    messages = [{"role": "user", "content": [claude_document(source=PARTS_SOURCE)]}]
    request = ms.Request.from_anthropic(**{**BASES["anthropic"], "messages": messages})
    (block,) = request.messages[0].content
    assert isinstance(block, ms.File)
    assert (block.data, block.media_type, block.name) == (b"The Rhine.\n\nBig.", "text/plain", "Rivers")


def test_the_pages_of_a_result_s_document_stay() -> None:
    file = {"inlineData": {"mimeType": "application/pdf", "data": PNG}, "documentMetadata": {"startPage": 2}}
    response = {"name": "look", "response": {"output": "a document"}, "parts": [file]}
    contents = [*GEMINI_RESULT[:2], {"role": "user", "parts": [{"functionResponse": response}]}]
    request = ms.Request.from_gemini(model="gemini-3-pro-preview", contents=contents)
    changed = dataclasses.replace(request, messages=[*request.messages, ms.Message.user("Why?")])
    written: Any = sent_by_us("gemini", changed)["contents"]
    assert written[2]["parts"][0]["functionResponse"]["parts"] == [file]


@pytest.mark.parametrize("sdk", ["gemini", "anthropic", "openai_responses", "openai"])
def test_the_picture_of_a_function_s_result_stays(sdk: str) -> None:
    request = ms.Request.from_gemini(model="gemini-3-pro-preview", contents=GEMINI_RESULT)
    (result,) = request.messages[2].content
    assert isinstance(result, ms.ToolResult)
    assert result.text == "a picture"
    changed = dataclasses.replace(request, messages=[*request.messages, ms.Message.user("Why?")], extra_body=None)
    assert PNG in str(sent_by_us(sdk, changed))


def test_the_picture_is_inside_a_result_for_gemini_3() -> None:
    request = ms.Request.from_gemini(model="gemini-3-pro-preview", contents=GEMINI_RESULT)
    changed = dataclasses.replace(request, messages=[*request.messages, ms.Message.user("Why?")])
    written: Any = sent_by_us("gemini", changed)
    assert written["contents"][2] == GEMINI_RESULT[2]


def test_sound_that_is_only_an_id_is_not_sent_to_gemini() -> None:
    """OpenAI keeps the sound of its answers, so the history has no bytes of it."""
    messages = [USER, {"role": "assistant", "audio": {"id": "audio_1"}}, USER]
    request = ms.Request.from_openai(model="gpt-audio", messages=messages)
    provider = ms.Gemini(api_key="any")
    encoded = DIALECTS["gemini"].encode(request, "gemini-2.5-flash", provider, stream=False)
    assert b"inlineData" not in encoded.body
    assert encoded.warnings == ["messages[1].content[0]: left out, the file has no bytes"]
