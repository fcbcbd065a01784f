"""Unstreamed answers: the place of each member, and equality of streamed and unstreamed answers."""

from __future__ import annotations

import dataclasses
import json
from typing import get_args

import pytest
from anthropic.types import StopReason
from anthropic.types.beta import BetaStopReason

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.anthropic.response import FINISH_REASONS

from .wire import (
    LENIENT,
    MESSAGE,
    START,
    STOP,
    STRICT,
    block,
    decode,
    finish,
    made_ids,
    message,
    run,
    run_at_every_split,
    sse,
    text,
)

SEARCH: dict[str, object] = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "rain"}}
FOUND: dict[str, object] = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
CITATION: dict[str, object] = {"type": "web_search_result_location", "url": "https://a.example", "cited_text": "wet"}


def test_every_member_has_its_place() -> None:
    response = decode(message({"type": "text", "text": "Hi"}, container={"id": "c"}, stop_details=None))
    assert response.content == [ms.Text("Hi")]
    assert (response.id, response.model) == ("msg_1", "claude-sonnet-4-5")
    assert (response.finish_reason, response.raw_finish_reason) == (ms.FinishReason.STOP, "end_turn")
    assert response.provider_data == {"container": {"id": "c"}}
    assert response.to_message() == ms.Message(ms.Role.ASSISTANT, "Hi")


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


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({}, ms.Usage()),
        ({"input_tokens": 3}, ms.Usage(input_tokens=3)),
        ({"output_tokens": 3}, ms.Usage(output_tokens=3)),
        ({"input_tokens": 0, "output_tokens": 0}, ms.Usage(0, 0, total_tokens=0)),
        ({"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7, "output_tokens": 11},
            ms.Usage(15, 11, cached_tokens=5, cache_write_tokens=7, total_tokens=26)),
        ({"input_tokens": 3, "output_tokens": 11, "output_tokens_details": {"thinking_tokens": 4}},
            ms.Usage(3, 7, 4, total_tokens=14)),
        ({"input_tokens": 3, "output_tokens": 2, "output_tokens_details": {"thinking_tokens": 4}},
            ms.Usage(3, 0, 4, total_tokens=5)),
        ({"input_tokens": "3", "output_tokens": True}, ms.Usage()),
    ],
)  # fmt: skip
def test_input_includes_the_cache_and_output_leaves_out_thinking(raw: dict[str, object], expected: ms.Usage) -> None:
    if raw:
        expected.raw = raw  # type: ignore[assignment]
    assert decode({**message(), "usage": raw}).usage == expected


def sampled(kind: str, given: object, written: object, read: object = 0, **more: object) -> dict[str, object]:
    """Return an entry of `usage.iterations`."""
    counts = {"input_tokens": given, "output_tokens": written, "cache_read_input_tokens": read}
    return {"type": kind, **counts, "cache_creation_input_tokens": 0, **more}


ITERATIONS: dict[str, tuple[dict[str, object], ms.Usage]] = {
    "a compaction is in no count of its own": (
        {"input_tokens": 23_000, "output_tokens": 1_000,
         "iterations": [sampled("compaction", 180_000, 3_500), sampled("message", 23_000, 1_000)]},
        ms.Usage(203_000, 4_500, cached_tokens=0, cache_write_tokens=0, total_tokens=207_500),
    ),
    "a compaction that read the cache": (
        {"input_tokens": 181, "cache_read_input_tokens": 0, "output_tokens": 8,
         "iterations": [sampled("compaction", 100, 83, 55_096), sampled("message", 181, 8)]},
        ms.Usage(55_377, 91, cached_tokens=55_096, cache_write_tokens=0, total_tokens=55_468),
    ),
    "only a compaction": (
        {"input_tokens": 0, "output_tokens": 0, "iterations": [sampled("compaction", 60_385, 522)]},
        ms.Usage(60_385, 522, cached_tokens=0, cache_write_tokens=0, total_tokens=60_907),
    ),
    "an advisor": (
        {"input_tokens": 2_417, "output_tokens": 133, "output_tokens_details": {"thinking_tokens": 55},
         "iterations": [sampled("message", 1_128, 121), sampled("advisor_message", 2_529, 38, model="claude-opus-4-8"),
                        sampled("message", 1_289, 12)]},
        ms.Usage(4_946, 116, 55, cached_tokens=0, cache_write_tokens=0, total_tokens=5_117),
    ),
    "a declined attempt is not billed": (
        {"input_tokens": 412, "output_tokens": 264,
         "iterations": [sampled("message", 408, 0, model="claude-fable-5"),
                        sampled("fallback_message", 412, 264, model="claude-opus-4-8")]},
        ms.Usage(412, 264, cached_tokens=0, cache_write_tokens=0, total_tokens=676),
    ),
    "two declined attempts": (
        {"input_tokens": 412, "output_tokens": 9,
         "iterations": [sampled("message", 408, 0), sampled("message", 409, 0), sampled("fallback_message", 412, 9)]},
        ms.Usage(412, 9, cached_tokens=0, cache_write_tokens=0, total_tokens=421),
    ),
    "an attempt that wrote something before it declined is billed": (
        {"input_tokens": 10, "output_tokens": 9,
         "iterations": [sampled("message", 10, 4), sampled("fallback_message", 10, 9)]},
        ms.Usage(20, 13, cached_tokens=0, cache_write_tokens=0, total_tokens=33),
    ),
    "all attempts declined": (
        {"input_tokens": 412, "output_tokens": 0,
         "iterations": [sampled("message", 535, 0), sampled("fallback_message", 412, 0)]},
        ms.Usage(412, 0, cached_tokens=0, cache_write_tokens=0, total_tokens=412),
    ),
    "a kind that nobody knows": (
        {"input_tokens": 10, "output_tokens": 5,
         "iterations": [sampled("message", 10, 5), sampled("reflection", 7, 3)]},
        ms.Usage(17, 8, cached_tokens=0, cache_write_tokens=0, total_tokens=25),
    ),
    "no entry for the answer": (
        {"input_tokens": 10, "output_tokens": 5, "iterations": [sampled("compaction", 7, 3)]},
        ms.Usage(17, 8, cached_tokens=0, cache_write_tokens=0, total_tokens=25),
    ),
    "an entry without counts": (
        {"input_tokens": 10, "output_tokens": 5, "iterations": [{"type": "message"}, sampled("compaction", 7, 3)]},
        ms.Usage(17, 8, total_tokens=25),
    ),
    "no entries": ({"input_tokens": 10, "output_tokens": 5, "iterations": []}, ms.Usage(10, 5, total_tokens=15)),
    "null": ({"input_tokens": 10, "output_tokens": 5, "iterations": None}, ms.Usage(10, 5, total_tokens=15)),
    "the wrong shape": ({"input_tokens": 10, "output_tokens": 5, "iterations": "2"}, ms.Usage(10, 5, total_tokens=15)),
    "entries of the wrong shape": (
        {"input_tokens": 10, "output_tokens": 5, "iterations": [1, None, []]}, ms.Usage(10, 5, total_tokens=15)),
}  # fmt: skip


@pytest.mark.parametrize("name", ITERATIONS)
def test_usage_is_all_that_is_billed(name: str) -> None:
    raw, expected = ITERATIONS[name]
    expected = dataclasses.replace(expected, raw={key: value for key, value in raw.items() if value is not None})  # type: ignore[misc]
    unstreamed = decode({**message(), "usage": raw}).usage
    assert dataclasses.replace(unstreamed, raw=expected.raw) == expected
    start = sse({"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 7, "output_tokens": 1}}})
    streamed = run_at_every_split(start + text(0, "a") + finish("end_turn", raw) + STOP).response.usage
    assert streamed == expected


COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@pytest.mark.parametrize(
    ("start", "later", "found"),
    [
        ((12,), (0,), (12,)),
        ((12, 5000, 7), (0, 0, 0), (12, 5000, 7)),
        ((12, 5000, 7), (0,), (12, 5000, 7)),
        ((12, 5000, 0), (0, 5000, 0), (12, 5000, 0)),
        ((12, 5000, 0), (0, None, None), (12, 5000, 0)),
        ((0, 0, 0), (12, 0, 0), (12, 0, 0)),
        ((12, 0, 0), (20, 0, 0), (20, 0, 0)),
        # These zeros say where the input went.
        ((5000, 0, 0), (0, 5000, 0), (0, 5000, 0)),
        ((5000, 0, 0), (0, 0, 4990), (0, 0, 4990)),
        ((100, 55_096, 0), (181, 0, 0), (181, 0, 0)),
        ((100, 20, 0), (None, 0, None), (100, 0, 0)),
    ],
)  # fmt: skip
def test_a_zero_that_tells_nothing_does_not_replace_the_input(
    start: tuple[int, ...], later: tuple[int | None, ...], found: tuple[int, ...]
) -> None:
    begun = {**MESSAGE, "usage": {**dict(zip(COUNTS, start, strict=False)), "output_tokens": 1}}
    report: dict[str, object] = {**dict(zip(COUNTS, later, strict=False)), "output_tokens": 8}
    usage = run(sse({"type": "message_start", "message": begun}) + text(0, "a") + finish("end_turn", report) + STOP)
    raw = usage.response.usage.raw or {}
    assert tuple(raw[name] for name in COUNTS[: len(found)]) == found
    assert usage.response.usage.input_tokens == sum(found)
    entries = {**report, "iterations": [sampled("compaction", 60, 5)]}
    wire = sse({"type": "message_start", "message": begun}) + text(0, "a") + finish("compaction", entries) + STOP
    itemised = run(wire).response.usage.raw or {}
    for name, value in zip(COUNTS, later, strict=False):
        assert itemised[name] == value or value is None


@pytest.mark.parametrize("usage", [None, [], "many"])
def test_usage_of_the_wrong_shape_is_unknown(usage: object) -> None:
    assert decode({**message(), "usage": usage}).usage == ms.Usage()


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


def test_absent_and_empty_content_give_equal_answers() -> None:
    spare = decode(message({"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}))
    full = decode(
        message(
            {"type": "text", "text": "a", "citations": None}, {"type": "thinking", "thinking": "b", "signature": ""}
        )
    )
    assert spare.content == full.content == [ms.Text("a"), ms.Thinking("b", state=ms.ProviderState("anthropic", {}))]


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


def test_model_and_id_are_the_same_streamed_and_unstreamed() -> None:
    streamed = run(sse({"type": "message_start", "message": MESSAGE}) + finish() + STOP).response
    unstreamed = DIALECT.decode(json.dumps(message()).encode(), STRICT, made_ids())
    assert (streamed.model, streamed.id) == (unstreamed.model, unstreamed.id)
