"""What a user's documents and a tool's results say beside their content stays, when a program adds a turn."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from tests.providers.sdk_bodies import READERS, sent_by_sdk, sent_by_us
from tests.providers.sdk_examples import BASES, USER

CITED = {"enabled": True}
PNG = "iVBORw0KGgo="
TEXT_SOURCE = {"type": "text", "media_type": "text/plain", "data": "The Rhine."}
PARTS = [{"type": "text", "text": "The Rhine."}, {"type": "text", "text": "Big."}]
PARTS_SOURCE = {"type": "content", "content": PARTS}
SEARCH_RESULT = {
    "type": "search_result",
    "source": "https://example.org/rivers",
    "title": "Rivers",
    "content": PARTS,
    "citations": CITED,
}
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
    {
        "a program": ("openai_responses", "input", [USER_ITEM, PROGRAM, PROGRAM_OUTPUT]),
        "more tools": ("openai_responses", "input", [MORE_TOOLS, USER_ITEM]),
        "an update": ("openai_responses", "input", [USER_ITEM, UPDATE]),
    }
)


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


PDF = "JVBERi0xLjQ="  # %PDF-1.4
CHAT_FILE: dict[str, object] = {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}
RESPONSES_FILE: dict[str, object] = {"type": "input_file", "filename": "a.pdf", "file_data": PDF}
PLAIN_BASE64 = {"openai": ("messages", CHAT_FILE), "openai_responses": ("input", RESPONSES_FILE)}


@pytest.mark.parametrize("sdk", PLAIN_BASE64)
def test_a_file_may_be_plain_base64_text(sdk: str) -> None:
    """The SDK's own words: "The base64 encoded file data"."""
    member, part = PLAIN_BASE64[sdk]
    arguments = {**BASES[sdk], member: [{"role": "user", "content": [part]}]}
    request = READERS[sdk](**arguments)
    assert sent_by_us(sdk, request) == sent_by_sdk(sdk, arguments)
    assert request.messages[0].content == [ms.File(b"%PDF-1.4", "application/pdf", name="a.pdf")]


@pytest.mark.parametrize(
    ("name", "data", "media_type"),
    [("a.txt", "SGk=", "text/plain"), ("A.CSV", "SGk=", "text/csv"), (None, PDF, "application/pdf")],
)
def test_the_name_tells_the_type_of_plain_base64(name: str | None, data: str, media_type: str) -> None:
    part = {"type": "input_file", "file_data": data, **({"filename": name} if name else {})}
    request = ms.Request.from_openai_responses(model="gpt-5", input=[{"role": "user", "content": [part]}])
    (block,) = request.messages[0].content
    assert isinstance(block, ms.File)
    assert block.media_type == media_type


@pytest.mark.parametrize(
    ("sdk", "place"),
    [("openai", r"messages\[0\]\.content\[0\]\.file"), ("openai_responses", r"input\[0\]\.content\[0\]")],
)
def test_file_data_that_cannot_be_read_is_named(sdk: str, place: str) -> None:
    part = {"type": "file", "file": {"file_data": "not base64!"}}
    part = part if sdk == "openai" else {"type": "input_file", "file_data": "not base64!"}
    with pytest.raises(ms.InvalidRequestError, match=rf"{place}\.file_data: is neither a URL nor base64 text"):
        READERS[sdk](model="gpt-5", **{PLAIN_BASE64[sdk][0]: [{"role": "user", "content": [part]}]})


def test_a_file_s_url_stays_a_url() -> None:
    part = {"type": "input_file", "file_url": "https://example.org/a.pdf"}
    request = ms.Request.from_openai_responses(model="gpt-5", input=[{"role": "user", "content": [part]}])
    assert request.messages[0].content == [ms.File(url="https://example.org/a.pdf")]


def test_sound_that_is_only_an_id_is_not_sent_to_gemini() -> None:
    """OpenAI keeps the sound of its answers, so the history has no bytes of it."""
    messages = [USER, {"role": "assistant", "audio": {"id": "audio_1"}}, USER]
    request = ms.Request.from_openai(model="gpt-audio", messages=messages)
    provider = ms.Gemini(api_key="any")
    encoded = DIALECTS["gemini"].encode(request, "gemini-2.5-flash", provider, stream=False)
    assert b"inlineData" not in encoded.body
    assert encoded.warnings == ["messages[1].content[0]: left out, the file has no bytes"]
