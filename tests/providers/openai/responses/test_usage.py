"""Token counts of a response."""

import pytest

import manystream as ms
from tests.providers.openai.responses.test_response import MESSAGE, answer
from tests.providers.openai.responses.wire import decode

USAGES: list[tuple[ms.JSONObject, ms.Usage]] = [
    ({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 40}, "total_tokens": 150},
        ms.Usage(100, 10, 40, 60, 30, 150)),
    (
        # The total shows that reasoning was counted separately from the output.
        {
            "input_tokens": 10,
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 22,
        },
        ms.Usage(10, 5, 7, None, None, 22),
    ),
    ({"input_tokens": 10, "output_tokens": 5}, ms.Usage(10, 5, None, None, None, 15)),
    ({"input_tokens": 10}, ms.Usage(10)),
    ({"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, "reasoning_tokens": 8},
        ms.Usage(10, 12, 8, None, None, 30)),
    ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 8}}, ms.Usage(10, 12, 8, 4, None, 30)),
    ({"input_tokens": 10, "prompt_tokens": 11, "output_tokens": 2, "completion_tokens": 3},
        ms.Usage(10, 2, None, None, None, 12)),
    ({"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 3},
        ms.Usage(1, 0, 3, None, None, 3)),
    ({"input_tokens": 0, "output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0},
        ms.Usage(0, 0, 0, None, None, 0)),
    ({"input_tokens": "7", "output_tokens": None, "input_tokens_details": []}, ms.Usage()),
    ({}, ms.Usage()),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "usage"), USAGES)
def test_usage(raw: ms.JSONObject, usage: ms.Usage) -> None:
    usage.raw = raw
    assert decode(answer(MESSAGE, usage=raw)).usage == usage


def test_no_usage_is_unknown_not_zero() -> None:
    assert decode(answer(MESSAGE, usage=None)).usage == ms.Usage()


def test_usage_of_servers_with_other_counts() -> None:
    raw: ms.JSONObject = {
        "input_tokens": 5, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 7}, "total_tokens": 12,
    }  # fmt: skip
    assert decode({"status": "completed", "usage": raw}).usage == ms.Usage(5, 0, 7, None, None, 12, raw=raw)
    apart: ms.JSONObject = {**raw, "total_tokens": 19}
    assert decode({"status": "completed", "usage": apart}).usage == ms.Usage(5, 7, 7, None, None, 19, raw=apart)
    assert decode({"status": "completed", "usage": 5}).usage == ms.Usage()
    unknown: ms.JSONObject = {**raw, "input_tokens": None, "output_tokens": 9, "total_tokens": 16}
    assert decode({"status": "completed", "usage": unknown}).usage == ms.Usage(None, 2, 7, None, None, 16, raw=unknown)
