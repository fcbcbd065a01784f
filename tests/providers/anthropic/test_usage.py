"""Token counts of an answer: what they include, and which report counts."""

from __future__ import annotations

import dataclasses

import pytest

import manystream as ms
from tests.providers.anthropic.wire import (
    MESSAGE,
    START,
    STOP,
    decode,
    finish,
    message,
    run,
    run_at_every_split,
    sse,
    text,
)


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


def test_usage_in_message_delta_replaces_that_of_the_start() -> None:
    start = {
        **MESSAGE, "usage": {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300,
        "output_tokens": 1, "service_tier": "standard", "server_tool_use": None},
    }  # fmt: skip
    later: dict[str, object] = {
        "input_tokens": None, "cache_creation_input_tokens": 0, "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 30}, "server_tool_use": {"web_search_requests": 1},
    }  # fmt: skip
    wire = sse({"type": "message_start", "message": start}) + text(0, "a") + finish("end_turn", later) + STOP
    outcome = run_at_every_split(wire)
    assert outcome.response.usage == ms.Usage(
        input_tokens=400, output_tokens=20, thinking_tokens=30, cached_tokens=300, cache_write_tokens=0,
        total_tokens=450, raw={"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 300,
        "output_tokens": 50, "service_tier": "standard", "output_tokens_details": {"thinking_tokens": 30},
        "server_tool_use": {"web_search_requests": 1}},
    )  # fmt: skip
    assert outcome.response.provider_data == {"service_tier": "standard"}


def test_usage_in_the_last_event_is_read() -> None:
    last = sse({"type": "message_stop", "usage": {"input_tokens": 30, "output_tokens": 9}}, "message_stop")
    usage = run(START + text(0, "a") + finish(usage={}) + last).done.usage
    assert (usage.input_tokens, usage.output_tokens) == (30, 9)
