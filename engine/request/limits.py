"""Caps on the resources that one server, one caller or one map can use. Only values."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...providers.wire.answer_limits import AnswerLimits
from ...transport.pool import PoolLimits


@dataclass(slots=True, frozen=True)
class EngineLimits(AnswerLimits):
    """pool: caps on connections (see `PoolLimits`).
    max_event_bytes: one server-sent event.
    max_response_bytes: one answer, streamed or not.
    max_error_bytes: what is read of an error's body.
    max_calls: calls that may be running at once; one more is refused (`TooManyCallsError`).
    max_buffered_bytes: received bytes that all answers under way keep; beyond it the call that keeps most fails.
    retry_reserve: retries of all calls together in an outage; each started call adds a fifth, up to this number. A
        failure after which none is left is not repeated. `math.inf`: no bound.
    max_choices: choices (candidates) of one answer.
    max_blocks: content blocks of one answer, all choices together; and content parts of one event.
    max_tool_calls: tool calls of one answer, all choices together; and pieces of tool calls in one event.
    """

    pool: PoolLimits = field(default_factory=PoolLimits)
    max_event_bytes: int = 32 * 1024 * 1024
    max_response_bytes: int = 256 * 1024 * 1024
    max_error_bytes: int = 64 * 1024
    max_calls: int = 1_000_000
    max_buffered_bytes: int = 1024 * 1024 * 1024
    retry_reserve: float = 100.0
