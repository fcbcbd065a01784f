"""Token reports: visible output without thinking, unknown counts as None, and every known name of a number."""

import pytest

import manystream as ms
from manystream.providers.openai.chat.usage import read_usage


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({}, ms.Usage()),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            ms.Usage(input_tokens=10, output_tokens=5, total_tokens=15)),
        ({"prompt_tokens": 10, "completion_tokens": 5}, ms.Usage(input_tokens=10, output_tokens=5, total_tokens=15)),
        ({"prompt_tokens": 10}, ms.Usage(input_tokens=10)),
        ({"prompt_tokens": 0, "completion_tokens": None}, ms.Usage(input_tokens=0)),
        ({"input_tokens": 10, "output_tokens": 5}, ms.Usage(input_tokens=10, output_tokens=5, total_tokens=15)),
        # OpenAI counts reasoning inside the completion.
        ({"prompt_tokens": 10, "completion_tokens": 50, "total_tokens": 60,
            "completion_tokens_details": {"reasoning_tokens": 30}, "prompt_tokens_details": {"cached_tokens": 4}},
            ms.Usage(input_tokens=10, output_tokens=20, thinking_tokens=30, cached_tokens=4, total_tokens=60)),
        # xAI counts it separately from the completion, as the total shows.
        ({"prompt_tokens": 10, "completion_tokens": 50, "total_tokens": 90,
            "completion_tokens_details": {"reasoning_tokens": 30}},
            ms.Usage(input_tokens=10, output_tokens=50, thinking_tokens=30, total_tokens=90)),
        # Reasoning above the completion cannot be included in it.
        ({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12,
            "completion_tokens_details": {"reasoning_tokens": 30}},
            ms.Usage(input_tokens=10, output_tokens=2, thinking_tokens=30, total_tokens=12)),
        ({"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10, "reasoning_tokens": 4},
            ms.Usage(input_tokens=1, output_tokens=5, thinking_tokens=4, total_tokens=10)),
        ({"prompt_tokens": 1, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 0}},
            ms.Usage(input_tokens=1, output_tokens=9, thinking_tokens=0, total_tokens=10)),
        ({"input_tokens": 10, "output_tokens": 9,
            "input_tokens_details": {"cached_tokens": 4, "cache_creation_tokens": 3},
            "output_tokens_details": {"reasoning_tokens": 9}}, ms.Usage(10, 0, 9, 4, 3, 19)),
        # Details beat counts of the whole report, and the first of two names is used.
        ({"prompt_tokens": 10, "input_tokens": 11, "completion_tokens": 9, "output_tokens": 8, "reasoning_tokens": 4,
            "completion_tokens_details": {"reasoning_tokens": 2}, "output_tokens_details": {"reasoning_tokens": 3},
            "prompt_tokens_details": {"cache_write_tokens": 1, "cache_creation_tokens": 2},
            "input_tokens_details": {"cached_tokens": 5}, "cache_write_tokens": 6}, ms.Usage(10, 7, 2, None, 1, 19)),
        # Without the prompt's count, no total can show that reasoning is counted beside the completion.
        ({"completion_tokens": 9, "reasoning_tokens": 4, "total_tokens": 13}, ms.Usage(None, 5, 4, None, None, 13)),
        ({"cache_write_tokens": 6}, ms.Usage(cache_write_tokens=6)),
        ({"cache_creation_input_tokens": 5, "cache_write_tokens": 6}, ms.Usage(cache_write_tokens=5)),
        ({"prompt_cache_hit_tokens": 1, "cached_tokens": 2, "cache_read_input_tokens": 3}, ms.Usage(cached_tokens=1)),
        ({"completion_tokens": 5, "total_tokens": 6}, ms.Usage(output_tokens=5, total_tokens=6)),
        ({"prompt_cache_hit_tokens": 7}, ms.Usage(cached_tokens=7)),
        ({"cached_tokens": 7}, ms.Usage(cached_tokens=7)),
        ({"cache_read_input_tokens": 7, "cache_creation_input_tokens": 3},
            ms.Usage(cached_tokens=7, cache_write_tokens=3)),
        ({"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 3}, "cached_tokens": 9},
            ms.Usage(cached_tokens=0, cache_write_tokens=3)),
        ({"prompt_tokens": 12.0, "completion_tokens": "5", "total_tokens": True}, ms.Usage(input_tokens=12)),
        ({"prompt_tokens_details": None, "completion_tokens_details": 5}, ms.Usage()),
    ],
)  # fmt: skip
def test_reports(report: ms.JSONObject, expected: ms.Usage) -> None:
    expected.raw = report
    assert read_usage(report) == expected
