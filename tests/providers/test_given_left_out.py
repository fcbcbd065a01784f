"""What a user gave with a file in one provider's form: another provider's request names it in a warning."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS

CHAT, RESPONSES = ms.OpenAIChat(api_key="k"), ms.OpenAIResponses(api_key="k")
ANTHROPIC, GEMINI = ms.Anthropic(api_key="k"), ms.Gemini(api_key="k")
PICTURE: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
DOCUMENT: dict[str, Any] = {
    "type": "document",
    "source": {"type": "content", "content": [{"type": "text", "text": "Chapter 1"}, PICTURE]},
    "context": "A contract of 2019.",
    "citations": {"enabled": True},
}
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
