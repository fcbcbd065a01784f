"""Members, types, headers, media types and model names that are rare, each with an example."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.conformance.exchange import provider_for
from tests.providers.gemini.sent import sent as sent_to_gemini
from tests.providers.gemini.wire import part_chunk, stream
from tests.providers.openai.chat.wire import answer
from tests.providers.openai.responses.wire import stream_of


@pytest.mark.parametrize(
    "model",
    ["gemini-1.5-pro", "gemini-2.0-flash", "gemini-2.5-flash-image", "gemini-2.5-flash-preview-tts",
     "gemini-2.5-pro-preview-tts", "gemma-3-27b-it"],
)  # fmt: skip
def test_a_gemini_model_without_thinking_gets_no_config(model: str) -> None:
    body = sent_to_gemini(model=model, thinking=ms.ThinkingConfig(level=ms.ThinkingLevel.HIGH))
    assert "thinkingConfig" not in body.get("generationConfig", {})


# --- what is read ---
SOUNDS = {
    b"RIFF0000WAVE": "audio/wav", b"ID3\x04": "audio/mpeg", b"\xff\xfb\x90": "audio/mpeg",
    b"\xff\xf3\x90": "audio/mpeg", b"OggS\x00": "audio/ogg", b"fLaC\x00": "audio/flac", b"\x00\x01\x02": "audio/pcm",
}  # fmt: skip
"""Media type → the first bytes of its files."""


@pytest.mark.parametrize(("data", "media_type"), SOUNDS.items())
def test_sound_gets_its_media_type_from_its_first_bytes(data: bytes, media_type: str) -> None:
    sound = {"id": "a", "data": base64.b64encode(data).decode(), "transcript": "Hi"}
    (block,) = answer({"content": None, "audio": sound}).content
    assert isinstance(block, ms.File)
    assert (block.data, block.media_type) == (data, media_type)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("citationMetadata", "citations"),
        ("citationMetadata", "citationSources"),
        ("logprobsResult", "chosenCandidates"),
        ("logprobsResult", "topCandidates"),
    ],
)
def test_a_list_that_gemini_sends_in_pieces_is_joined(outer: str, inner: str) -> None:
    pieces = [
        {"candidates": [{"content": {"parts": [{"text": text}]}, outer: {inner: [{"n": number}]}}]}
        for number, text in enumerate("ab")
    ]
    outcome = stream(*pieces, part_chunk(finish="STOP"))
    assert outcome.response.provider_data[outer] == {inner: [{"n": 0}, {"n": 1}]}


@pytest.mark.parametrize("member", ["sequence_number", "event_id"])
def test_numbers_of_responses_events_are_not_kept(member: str) -> None:
    outcome = stream_of({"type": "response.completed", member: 7, "response": {"status": "completed", "output": []}})
    assert member not in outcome.response.provider_data


ODD = [["text"], {"type": "text"}, 7]


def sent(dialect: str, *messages: ms.Message, **options: Any) -> Any:
    provider = provider_for(dialect, "openai")
    request = ms.Request("m", messages, **options)
    return json.loads(DIALECTS[dialect].encode(request, "m", provider, stream=False).body)


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
def test_a_citation_of_an_odd_type_is_not_sent(odd: Any) -> None:
    text = ms.Text("cited", citations=[{"type": odd}])
    body = sent("anthropic", ms.Message.user("a"), ms.Message.assistant(text), ms.Message.user("b"))
    assert body["messages"][1]["content"] in ("cited", [{"type": "text", "text": "cited"}])


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
def test_a_schema_s_odd_format_is_not_sent(odd: Any) -> None:
    schema = {"type": "object", "properties": {"when": {"type": "string", "format": odd}}}
    body = sent("anthropic", ms.Message.user("a"), response_schema=schema)
    assert body["output_config"]["format"]["schema"]["properties"]["when"]["type"] == "string"


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
@pytest.mark.parametrize("dialect", ["anthropic", "gemini-interactions", "openai-responses"])
def test_a_provider_s_block_of_an_odd_type_is_sent_as_it_is(dialect: str, odd: Any) -> None:
    name = provider_for(dialect, "openai").profile.name
    block = ms.ProviderBlock(name, {"type": odd})
    assistant = ms.Message.assistant([ms.Text("text"), block])
    body = sent(dialect, ms.Message.user("a"), assistant, ms.Message.user("b"))
    assert json.dumps({"type": odd}) in json.dumps(body)


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
def test_results_behind_an_item_of_an_odd_type_are_read(odd: Any) -> None:
    items = [
        {"type": odd, "role": "user", "content": "a"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "seen"},
    ]
    messages = ResponsesConverter().decode_messages(items)
    assert [message.role.value for message in messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("absent", [{}, {"output": None}], ids=["no output", "null"])
def test_a_result_without_an_output_is_empty(absent: Any) -> None:
    items = [
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", **absent},
    ]
    assert ResponsesConverter().decode_messages(items)[-1] == ms.Message.tool_result("c", "")


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "gemini-interactions", "openai-chat", "openai-responses"])
def test_an_event_of_an_odd_type_is_no_defect(dialect: str, odd: Any) -> None:
    for value in ({"type": odd}, {"object": odd}, {"error": {"type": odd, "code": odd}}, [{"type": odd}]):
        machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
        end = [*machine.feed("", json.dumps(value).encode()), *machine.end()][-1]
        assert isinstance(end, ms.ErrorEvent)
        assert "defect" not in end.error.message
