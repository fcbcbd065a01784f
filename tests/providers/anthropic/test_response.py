"""Unstreamed answers: the place of each member, and equality of streamed and unstreamed answers."""

from __future__ import annotations

from typing import get_args

import pytest
from anthropic.types import StopReason
from anthropic.types.beta import BetaStopReason

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.anthropic.response import FINISH_REASONS
from tests.providers.anthropic.wire import (
    LENIENT,
    START,
    STOP,
    STRICT,
    block,
    decode,
    finish,
    made_ids,
    message,
    run,
    text,
)

SEARCH: dict[str, object] = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "rain"}}

FOUND: dict[str, object] = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}

CITATION: dict[str, object] = {"type": "web_search_result_location", "url": "https://a.example", "cited_text": "wet"}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("end_turn", ms.FinishReason.STOP),
        ("stop_sequence", ms.FinishReason.STOP),
        ("max_tokens", ms.FinishReason.LENGTH),
        ("model_context_window_exceeded", ms.FinishReason.LENGTH),
        ("refusal", ms.FinishReason.CONTENT_FILTER),
        ("pause_turn", ms.FinishReason.UNKNOWN),
        ("compaction", ms.FinishReason.STOP),
        ("something_new", ms.FinishReason.UNKNOWN),
    ],
)
def test_every_stop_reason_is_mapped_and_kept(raw: str, expected: ms.FinishReason) -> None:
    response = decode(message(stop_reason=raw))
    assert (response.finish_reason, response.raw_finish_reason) == (expected, raw)
    assert run(START + finish(raw) + STOP).done.finish_reason is expected
    assert FINISH_REASONS.get(raw, ms.FinishReason.UNKNOWN) is expected


def test_the_words_are_those_of_the_sdk() -> None:
    assert {*get_args(StopReason), *get_args(BetaStopReason)} <= FINISH_REASONS.keys()


@pytest.mark.parametrize("reason", [None, 3, {}])
def test_a_stop_reason_that_is_no_text_is_unknown(reason: object) -> None:
    response = decode({**message({"type": "text", "text": "a"}), "stop_reason": reason})
    assert (response.finish_reason, response.raw_finish_reason) == (ms.FinishReason.UNKNOWN, None)


PAIRS: dict[str, tuple[dict[str, object], str]] = {
    "text": (message({"type": "text", "text": "Hello"}), text(0, "Hel", "lo") + finish()),
    "thinking, then a call": (
        message(
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "ZW5j"},
            {"type": "tool_use", "id": "t", "name": "look", "input": {"city": "Åbo", "days": [1, 2]}},
            stop_reason="tool_use",
        ),
        block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "c2ln"},
        )
        + block(1, {"type": "redacted_thinking", "data": "ZW5j"})
        + block(
            2,
            {"type": "tool_use", "id": "t", "name": "look", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"city": "Å'},
            {"type": "input_json_delta", "partial_json": 'bo", "days": [1, 2]}'},
        )
        + finish("tool_use"),
    ),
    "a call without arguments": (message({"type": "tool_use", "id": "t", "name": "look", "input": {}},
        stop_reason="tool_use"), block(0, {"type": "tool_use", "id": "t", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": ""}) + finish("tool_use")),
    "a call that was cut off": (message({"type": "tool_use", "id": "t", "name": "look", "input": {}},
        stop_reason="max_tokens"), block(0, {"type": "tool_use", "id": "t", "name": "look", "input": {}},
        stop=False) + finish("max_tokens")),
    "a search, and what it found": (
        message(SEARCH, FOUND, {"type": "text", "text": "Wet.", "citations": [CITATION]}),
        block(
            0,
            {**SEARCH, "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query":'},
            {"type": "input_json_delta", "partial_json": ' "rain"}'},
        )
        + block(1, FOUND)
        + block(
            2,
            {"type": "text", "text": "", "citations": []},
            {"type": "citations_delta", "citation": CITATION},
            {"type": "text_delta", "text": "Wet."},
        )
        + finish(),
    ),
    "a stop sequence": (message({"type": "text", "text": "a"}, stop_reason="stop_sequence", stop_sequence="END"),
        text(0, "a") + finish("stop_sequence", stop_sequence="END")),
    "a compaction": (message({"type": "compaction", "content": "So far."}),
        block(0, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "So far."})
        + finish()),
    "a refusal without text": (message(stop_reason="refusal", stop_details={"type": "refusal", "category": None}),
        finish("refusal", stop_details={"type": "refusal", "category": None})),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("provider", [STRICT, LENIENT], ids=["anthropic", "compatible"])
def test_a_streamed_answer_equals_the_unstreamed_one(name: str, provider: object) -> None:
    unstreamed, stream = PAIRS[name]
    assert run(START + stream + STOP, provider).response == decode(unstreamed, provider)  # type: ignore[arg-type]


def test_arguments_given_as_text_stay_that_text() -> None:
    content = decode(message({"type": "tool_use", "id": "t", "name": "look", "input": '{"a":1}'})).content
    assert content == [ms.ToolCall("t", "look", '{"a":1}')]


def test_blocks_of_unknown_type_are_kept_as_received() -> None:
    odd: list[dict[str, object]] = [{"type": "novelty", "n": 1}, {"n": 2}, {"type": 3}]
    assert decode(message(*odd)).content == [ms.ProviderBlock("anthropic", part) for part in odd]  # type: ignore[arg-type]


def test_an_error_object_in_a_200_is_raised() -> None:
    with pytest.raises(ms.ProviderError) as raised:
        decode({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert (raised.value.category, raised.value.retryable) == (ms.ErrorCategory.SERVER, True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'[{"type": "message"}]', 'expected a JSON object, got \'[{"type": "message"}]\''),
        (b'{"model": "m"}', 'expected a message with content, got \'{"model": "m"}\''),
        (b'{"type": "message"', 'malformed JSON \'{"type": "message"\': '),
        (b'{"id": "m", "content": null}', "expected a message with content, got "),
        (b'{"content": "text"}', 'expected a message with content, got \'{"content": "text"}\''),
        (b'{"content": ["text"]}', 'a content block that is no object in \'{"content": ["text"]}\''),
        (b'{"content": [1, null]}', "a content block that is no object in '{\"content\": [1, null]}'"),
        (b"<html>", "malformed JSON '<html>': "),
        (b"\xff\xfe", "malformed JSON '\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}': "),
    ],
)
def test_a_body_that_is_no_message_is_an_error_that_quotes_it(body: bytes, message: str) -> None:
    with pytest.raises(ms.ProviderError) as raised:
        DIALECT.decode(body, STRICT, made_ids())
    assert raised.value.message.startswith(message)
    assert raised.value.category is ms.ErrorCategory.SERVER
    assert not raised.value.retryable
    assert raised.value.body == body


def test_the_quotation_of_a_long_body_is_bounded() -> None:
    with pytest.raises(ms.ProviderError) as raised:
        DIALECT.decode(b'{"content": ["' + b"x" * 100_000 + b'"]}', STRICT, made_ids())
    assert len(raised.value.message) < 500
    assert len(raised.value.body) <= 4096
