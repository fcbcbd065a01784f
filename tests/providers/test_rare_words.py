"""Members, types, headers, media types and model names that are rare, each with an example."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import manystream as ms
from manystream import ErrorEvent
from manystream.providers.anthropic.block_writer import CITATION_TYPES
from manystream.providers.anthropic.schema import adapt_schema
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.gemini.errors import parse_error
from manystream.providers.limits.charging import family_of
from manystream.providers.model.messages import Message, ProviderBlock, Text
from manystream.providers.model.request import Request
from manystream.providers.openai.chat import DIALECT as CHAT
from manystream.providers.openai.responses.converter import ResponsesConverter
from manystream.providers.openai.thinking import effort_for, is_reasoning_model
from manystream.providers.wire.retry_hints import retry_after_ms
from tests.conformance.exchange import provider_for
from tests.providers.anthropic.test_message_writer import sent as sent_to_anthropic
from tests.providers.gemini.sent import sent as sent_to_gemini
from tests.providers.gemini.wire import part_chunk, stream, text_chunk
from tests.providers.openai.chat.wire import answer
from tests.providers.openai.responses.wire import stream_of

NOW = 1_700_000_000.0

# --- errors ---


@pytest.mark.parametrize("header", ["x-request-id", "request-id", "apim-request-id", "x-ms-request-id", "cf-ray"])
def test_every_header_that_names_a_request_is_read(header: str) -> None:
    assert CHAT.decode_error(500, {header: "r-1"}, b"", NOW).request_id == "r-1"


@pytest.mark.parametrize("member", ["error", "errors", "detail", "message", "error_message", "errorMessage", "msg",
                                    "title", "reason", "details"])  # fmt: skip
def test_every_member_with_an_errors_message_is_read(member: str) -> None:
    assert CHAT.decode_error(400, {}, json.dumps({member: "why"}).encode(), NOW).message == "why"


@pytest.mark.parametrize("member", ["innererror", "inner_error", "metadata", "raw", "details"])
def test_every_member_with_further_codes_is_read(member: str) -> None:
    body = {"error": {"message": "m", member: {"code": "insufficient_quota"}}}
    error = CHAT.decode_error(418, {}, json.dumps(body).encode(), NOW)
    assert (error.category, error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)


@pytest.mark.parametrize(
    "words",
    ["Insufficient balance", "insufficient credits", "insufficient quota", "insufficient funds", "out of credits",
     "You exceeded your current quota"],
)  # fmt: skip
def test_a_used_up_balance_is_recognised_in_the_message(words: str) -> None:
    error = CHAT.decode_error(402, {}, json.dumps({"error": {"message": f"Sorry: {words}."}}).encode(), NOW)
    assert (error.category, error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)


@pytest.mark.parametrize(
    "words", ["limit: 0, model: m", "Requests per day", "credits are depleted", "reached its spending cap"]
)
def test_a_used_up_quota_of_google_is_recognised(words: str) -> None:
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": f"Sorry: {words}."}}
    assert not parse_error(429, json.dumps(body)).retryable


@pytest.mark.parametrize("word", ["", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", 0])
def test_a_block_reason_that_is_not_set_blocks_nothing(word: object) -> None:
    outcome = stream({**text_chunk("a"), "promptFeedback": {"blockReason": word}}, part_chunk(finish="STOP"))
    assert outcome.error is None
    assert outcome.response.text == "a"


@pytest.mark.parametrize(("number", "word"), [(1, "SAFETY"), (2, "OTHER"), (3, "BLOCKLIST"), (4, "PROHIBITED_CONTENT")])
def test_a_block_reason_as_a_number_has_its_name(number: int, word: str) -> None:
    outcome = stream({"promptFeedback": {"blockReason": number}})
    assert (outcome.error.error.provider_code, outcome.error.error.category) == (word, ms.ErrorCategory.CONTENT_FILTER)


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:25Z", "anthropic-ratelimit-tokens-remaining": "0"},
            5000),
        # A bucket that is not empty causes no wait.
        ({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:25Z", "anthropic-ratelimit-tokens-remaining": "9"}, -1),
        ({"x-ratelimit-reset-tokens": "6s", "x-ratelimit-remaining-tokens": "0"}, 6000),
        ({"x-ratelimit-reset-tokens": "6s", "x-ratelimit-remaining-tokens": "9"}, -1),
    ],
)  # fmt: skip
def test_only_an_empty_buckets_reset_is_a_hint(headers: dict[str, str], hint: int) -> None:
    assert retry_after_ms(headers, NOW, status=503) == hint


# --- what is sent ---


def test_image_jpg_is_sent_as_image_jpeg_to_anthropic() -> None:
    for block in (ms.Image(data=b"x", media_type="image/jpg"), ms.Image(data=b"x", media_type="image/jpeg")):
        (part,) = sent_to_anthropic(ms.Message.user(block))[0]["content"]
        assert part["source"]["media_type"] == "image/jpeg"


ANTHROPICS_CITATIONS: dict[str, ms.JSONObject] = {
    "char_location": {"document_index": 0, "document_title": None, "start_char_index": 0, "end_char_index": 1},
    "page_location": {"document_index": 0, "document_title": None, "start_page_number": 1, "end_page_number": 2},
    "content_block_location": {"document_index": 0, "document_title": None, "start_block_index": 0,
                               "end_block_index": 1},
    "search_result_location": {"search_result_index": 0, "source": "s", "title": None, "start_block_index": 0,
                               "end_block_index": 1},
    "web_search_result_location": {"encrypted_index": "e", "title": None, "url": "https://h"},
}  # fmt: skip


def test_the_citations_are_those_of_anthropics_sdk() -> None:
    assert ANTHROPICS_CITATIONS.keys() == CITATION_TYPES


@pytest.mark.parametrize("kind", ANTHROPICS_CITATIONS)
def test_every_citation_of_anthropic_is_sent_back(kind: str) -> None:
    citation: ms.JSONObject = {"type": kind, "cited_text": "a", **ANTHROPICS_CITATIONS[kind]}
    history = (ms.Message.user("q"), ms.Message.assistant(ms.Text("b", citations=[citation])))
    assert sent_to_anthropic(*history)[1]["content"] == [{"type": "text", "text": "b", "citations": [citation]}]


@pytest.mark.parametrize("member", ["default", "examples", "deprecated", "readOnly", "writeOnly"])
def test_an_annotation_is_described_without_a_warning(member: str) -> None:
    warnings: list[str] = []
    assert adapt_schema({"type": "string", member: True}, "s", warnings) == {
        "type": "string",
        "description": f'{{"{member}":true}}',
    }
    assert warnings == []


@pytest.mark.parametrize(
    "model",
    ["gemini-1.5-pro", "gemini-2.0-flash", "gemini-2.5-flash-image", "gemini-2.5-flash-preview-tts",
     "gemini-2.5-pro-preview-tts", "gemma-3-27b-it"],
)  # fmt: skip
def test_a_gemini_model_without_thinking_gets_no_config(model: str) -> None:
    body = sent_to_gemini(model=model, thinking=ms.ThinkingConfig(level=ms.ThinkingLevel.HIGH))
    assert "thinkingConfig" not in body.get("generationConfig", {})


LEVELS = (ms.ThinkingLevel.NONE, ms.ThinkingLevel.LOW, ms.ThinkingLevel.MED, ms.ThinkingLevel.HIGH)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("o3-deep-research-2025-06-26", "medium medium medium medium"),
        ("o4-mini-deep-research", "medium medium medium medium"),
        ("computer-use-preview", "medium medium medium medium"),
        ("codex-mini-latest", "low low medium high"),
        ("gpt-5.3-chat-latest", "medium medium medium medium"),
        ("gpt-5.4-pro", "medium medium high xhigh"),
        ("gpt-5.5", "none low medium xhigh"),
        ("gpt-6", "none low medium max"),
        ("gpt-6.1", "low low medium max"),
    ],
)
def test_every_family_of_openai_has_its_efforts(model: str, words: str) -> None:
    assert [effort_for(model, ms.ThinkingConfig(level=level)) for level in LEVELS] == words.split()


@pytest.mark.parametrize(
    "model", ["gpt-3.5-turbo", "gpt-4o", "gpt-5-chat-latest", "chatgpt-4o-latest", "gpt-audio-mini", "gpt-realtime",
              "davinci-002", "babbage-002"],
)  # fmt: skip
def test_openai_models_without_reasoning_are_recognised(model: str) -> None:
    assert not is_reasoning_model(model)


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


def sent(dialect: str, *messages: Message, **options: Any) -> Any:
    provider = provider_for(dialect, "openai")
    request = Request("m", messages, **options)
    return json.loads(DIALECTS[dialect].encode(request, "m", provider, stream=False).body)


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
def test_a_citation_of_an_odd_type_is_not_sent(odd: Any) -> None:
    text = Text("cited", citations=[{"type": odd}])
    body = sent("anthropic", Message.user("a"), Message.assistant(text), Message.user("b"))
    assert body["messages"][1]["content"] in ("cited", [{"type": "text", "text": "cited"}])


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
def test_a_schema_s_odd_format_is_not_sent(odd: Any) -> None:
    schema = {"type": "object", "properties": {"when": {"type": "string", "format": odd}}}
    body = sent("anthropic", Message.user("a"), response_schema=schema)
    assert body["output_config"]["format"]["schema"]["properties"]["when"]["type"] == "string"


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
@pytest.mark.parametrize("dialect", ["anthropic", "gemini-interactions", "openai-responses"])
def test_a_provider_s_block_of_an_odd_type_is_sent_as_it_is(dialect: str, odd: Any) -> None:
    name = provider_for(dialect, "openai").profile.name
    block = ProviderBlock(name, {"type": odd})
    assistant = Message.assistant([Text("text"), block])
    body = sent(dialect, Message.user("a"), assistant, Message.user("b"))
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
    assert ResponsesConverter().decode_messages(items)[-1] == Message.tool_result("c", "")


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "gemini-interactions", "openai-chat", "openai-responses"])
def test_an_event_of_an_odd_type_is_no_defect(dialect: str, odd: Any) -> None:
    for value in ({"type": odd}, {"object": odd}, {"error": {"type": odd, "code": odd}}, [{"type": odd}]):
        machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
        end = [*machine.feed("", json.dumps(value).encode()), *machine.end()][-1]
        assert isinstance(end, ErrorEvent)
        assert "defect" not in end.error.message


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
