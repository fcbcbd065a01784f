"""Streams: choices, their end, and errors."""

from __future__ import annotations

from array import array

import pytest

import manystream as ms
from manystream.tokens import WeightSpan
from tests.providers.generate.test_answer import SPANS, USAGE, VLLM_CHUNKS, decode, read, sglang, sse, vllm

VLLM_WHOLE = {
    "request_id": "r", "usage": USAGE, "prompt_token_ids": [1, 2], "choices": [
        vllm(0, [5, 7, 8, 2], "stop", stop_reason=2, weight_versions=SPANS), vllm(1, [6, 4], "length"),
        vllm(2, [9], "abort"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1, 13])
def test_vllm_streams_its_choices_interleaved(cut: int) -> None:
    end = {"request_id": "r", "choices": [], "usage": {**USAGE, "completion_tokens": 7}}
    events, response = read("vllm-generate", sse([*VLLM_CHUNKS, end]), cut)
    assert response == decode("vllm-generate", {**VLLM_WHOLE, "usage": end["usage"]})
    assert response.tokens == ms.Tokens(
        array("q", [5, 7, 8, 2]), array("d", [-5.0, -7.0, -8.0, -2.0]), array("q", [1, 2]),
        (WeightSpan("v1", 0, 1), WeightSpan("v2", 1, 4)), 1, 3,
    )  # fmt: skip
    assert [[*choice.tokens.ids] for choice in response.choices if choice.tokens is not None] == [
        [5, 7, 8, 2], [6, 4], [9],
    ]  # fmt: skip
    assert [choice.finish_reason for choice in response.choices] == [
        ms.FinishReason.STOP, ms.FinishReason.LENGTH, ms.FinishReason.ABORTED,
    ]  # fmt: skip
    deltas = [event for event in events if isinstance(event, ms.TextDelta)]
    assert [(delta.text, [*((delta.tokens or ms.Tokens()).ids or ())]) for delta in deltas] == [
        ("", [5]), ("", [7, 8]), ("", [2]),
    ]  # fmt: skip
    assert isinstance(events[-1], ms.Done)


def test_a_stream_without_its_end_is_cut_and_keeps_its_tokens() -> None:
    body = sse(VLLM_CHUNKS[:4]).removesuffix(b"data: [DONE]\n\n")
    events, response = read("vllm-generate", body)
    assert isinstance(events[-1], ms.ErrorEvent)
    assert events[-1].error.category is ms.ErrorCategory.NETWORK
    assert [*response.tokens.ids] == [5, 7, 8]


@pytest.mark.parametrize("error", [{"message": "The request was aborted"}, "gone"])
def test_an_error_in_a_stream_ends_it(error: object) -> None:
    events, response = read("sglang-generate", sse([sglang("a", [5], 1), {"error": error}]))
    assert isinstance(events[-1], ms.ErrorEvent)
    assert response.tokens is not None
    with pytest.raises(ms.ProviderError):
        decode("sglang-generate", {"error": error})
