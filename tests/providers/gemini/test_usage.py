"""Token counts of an answer: each count, and reports in pieces."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini import DIALECT
from manystream.providers.gemini.usage import read_usage
from tests.providers.gemini.wire import (
    PROVIDER,
    Ids,
    part_chunk,
    stream,
    text_chunk,
)


# --- usage ---
@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((10, 5, 7, 0, None), (10, 0, 7, 17)),
        ((10, 9, 7, 0, None), (10, 2, 7, 19)),
        ((10, 5, 7, 3, 22), (13, 5, 7, 22)),
        ((10, 5, 7, 3, 25), (13, 5, 7, 25)),
        ((10, 9, 7, 3, 23), (13, 2, 7, 23)),
        ((10, 5, 0, 3, None), (13, 5, 0, 18)),
        ((10, 5, None, 3, None), (13, 5, None, 18)),
        ((None, 5, None, 3, None), (3, 5, None, None)),
        ((26, 5, None, 12_504, None), (12_530, 5, None, 12_535)),
        ((None, 5, 7, None, 12), (None, 5, 7, 12)),
        ((None, 5, None, None, None), (None, 5, None, None)),
        ((10, None, 7, None, None), (10, 0, 7, 17)),
        ((10, None, 0, None, None), (10, None, 0, None)),
    ],
)
def test_each_count_has_its_field(counts: tuple[int | None, ...], expected: tuple[int | None, ...]) -> None:
    names = (
        "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount", "totalTokenCount",
    )  # fmt: skip
    raw: Any = {name: count for name, count in zip(names, counts, strict=True) if count is not None}
    prompt, output, thinking, total = expected
    assert read_usage(raw) == ms.Usage(prompt, output, thinking, total_tokens=total, raw=raw)


def test_usage_that_is_no_object_is_ignored() -> None:
    answer = stream(text_chunk("a", usageMetadata={"promptTokenCount": 3}), part_chunk(finish="STOP", usageMetadata=3))
    assert answer.response.usage == ms.Usage(3, raw={"promptTokenCount": 3})
    assert answer.response.provider_data == {}


@pytest.mark.parametrize(
    ("metadata", "output"),
    [
        ({"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 22}, 5),
        ({"promptTokenCount": 10, "candidatesTokenCount": 12, "thoughtsTokenCount": 7, "totalTokenCount": 22}, 5),
        ({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}, 5),
        ({"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "toolUsePromptTokenCount": 100,
            "totalTokenCount": 122}, 5),
        ({"promptTokenCount": 1, "candidatesTokenCount": 2, "thoughtsTokenCount": 9, "totalTokenCount": 3}, 0),
        ({"promptTokenCount": 1, "thoughtsTokenCount": 9, "totalTokenCount": 10}, 0),
        ({"promptTokenCount": 1, "thoughtsTokenCount": 9}, 0),
        ({"thoughtsTokenCount": 9, "totalTokenCount": 10}, 0),
        ({"promptTokenCount": 1, "thoughtsTokenCount": 9, "toolUsePromptTokenCount": 4, "totalTokenCount": 16}, 2),
        ({"promptTokenCount": 1, "totalTokenCount": 1}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_total_shows_whether_output_includes_thinking(metadata: dict[str, Any], output: int | None) -> None:
    assert read_usage(metadata).output_tokens == output


def test_missing_counts_are_none_and_a_missing_total_is_the_sum() -> None:
    assert read_usage({"trafficType": "ON_DEMAND"}) == ms.Usage(raw={"trafficType": "ON_DEMAND"})
    assert read_usage({"promptTokenCount": 3, "candidatesTokenCount": 4}).total_tokens == 7
    assert read_usage({"promptTokenCount": 3}).total_tokens is None
    assert read_usage({"promptTokenCount": 3.0, "totalTokenCount": "9"}).input_tokens == 3


def test_an_empty_usage_report_is_ignored() -> None:
    chunks = [{"usageMetadata": {"promptTokenCount": 3}}, {"candidates": [{"finishReason": "STOP"}]}]
    assert stream(*chunks, {"usageMetadata": {}}).response.usage.input_tokens == 3


def test_usage_is_assigned_and_never_added() -> None:
    answer = stream(
        text_chunk("a", usageMetadata={"promptTokenCount": 5, "totalTokenCount": 5}),
        text_chunk("b", usageMetadata={"promptTokenCount": 5, "candidatesTokenCount": 1, "totalTokenCount": 6}),
        text_chunk("c", usageMetadata={"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}),
        part_chunk(finish="STOP"),
    )
    usage = answer.response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5, 2, 7)
    assert usage.raw == {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}


def test_the_usage_so_far_is_on_an_unfinished_response() -> None:
    machine = DIALECT.machine(PROVIDER, Ids())
    machine.feed("", b'{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":3}}')
    assert machine.response().usage.input_tokens == 3
