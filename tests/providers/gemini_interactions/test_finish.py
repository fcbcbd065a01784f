"""The status of an interaction as the reason of its end."""

from __future__ import annotations

import pytest

import manystream as ms
from tests.providers.gemini_interactions.wire import (
    CREATED,
    completed,
    decode,
    interaction,
    run,
    step,
    text,
)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("completed", ms.FinishReason.STOP),
        ("requires_action", ms.FinishReason.STOP),  # no call
        ("incomplete", ms.FinishReason.LENGTH),
        ("requires_continuation", ms.FinishReason.LENGTH),
        ("budget_exceeded", ms.FinishReason.LENGTH),
        ("throttled_by_policy", ms.FinishReason.UNKNOWN),
    ],
)
def test_the_status_is_the_finish_reason(status: str, reason: ms.FinishReason) -> None:
    outcome = run(CREATED + step(0, "model_output", text("a")) + completed(status))
    assert (outcome.last.finish_reason, outcome.last.raw_finish_reason) == (reason, status)
    whole = decode(interaction(status, steps=[{"type": "model_output", "content": [text("a")]}]))
    assert (whole.finish_reason, whole.raw_finish_reason) == (reason, status)
