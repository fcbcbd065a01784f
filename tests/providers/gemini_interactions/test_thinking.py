"""Thinking options."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from tests.providers.gemini_interactions.test_request import HELLO, MODEL
from tests.providers.gemini_interactions.wire import (
    sent,
)


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        (MODEL, "none", {"thinking_level": "minimal"}),
        (MODEL, "low", {"thinking_level": "low", "thinking_summaries": "auto"}),
        ("gemini-2.5-flash", "high", {"thinking_level": "high", "thinking_summaries": "auto"}),
        ("gemini-4-neon", "high", {"thinking_level": "xhigh", "thinking_summaries": "auto"}),
        (MODEL, ms.ThinkingConfig(effort="xhigh"), {"thinking_level": "xhigh", "thinking_summaries": "auto"}),
        (MODEL, ms.ThinkingConfig(include_summary=False), {"thinking_summaries": "none"}),
        ("gemini-2.0-flash", "none", None),
    ],
)
def test_thinking_is_a_level(model: str, thinking: Any, expected: Any) -> None:
    assert sent(ms.Request(model, HELLO, thinking=thinking)).get("generation_config") == expected


def test_a_budget_of_thinking_is_refused() -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"thinking\.budget_tokens"):
        sent(ms.Request(MODEL, HELLO, thinking=ms.ThinkingConfig(budget_tokens=100)))
