"""Token counts of an interaction."""

from __future__ import annotations

from tests.providers.gemini_interactions.wire import (
    CREATED,
    completed,
    delta,
    run,
    sse,
    step,
    text,
)


def test_usage_of_steps_and_deltas_counts_until_the_end() -> None:
    stop = sse({"index": 0, "usage": {"total_tokens": 7}, "step_usage": {"total_tokens": 3}, "event_type": "step.stop"})
    wire = CREATED + step(0, "model_output", text("a"), stop=False) + stop
    assert run(wire).response.usage.total_tokens == 7
    metered = delta(0, text("b"), metadata={"total_usage": {"total_tokens": 9}})
    assert run(wire + metered).response.usage.total_tokens == 9
    assert run(wire + completed()).response.usage.total_tokens == 70
