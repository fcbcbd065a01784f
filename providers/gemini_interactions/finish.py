"""Maps the status of an interaction to `FinishReason`.

Google adds words at any time, so an unknown word is no error: it is UNKNOWN, and kept as the raw reason.
"""

from __future__ import annotations

from ..model.events import FinishReason
from ..wire.finish_words import reason_of_word

COMPLETED = "completed"

FINISH_REASONS: dict[str, FinishReason] = {
    COMPLETED: FinishReason.STOP,
    "requires_action": FinishReason.TOOL_USE,
    "incomplete": FinishReason.LENGTH,
    # The limit of one request, not of the model. `continuation_token` (in provider_data) requests the rest.
    "requires_continuation": FinishReason.LENGTH,
    "budget_exceeded": FinishReason.LENGTH,
    "failed": FinishReason.ERROR,
    "cancelled": FinishReason.ABORTED,
}
"""Status of an interaction that has ended → finish reason."""

UNFINISHED = frozenset({"in_progress", "queued", "idle"})
"""Status of an interaction that has not ended. An unstreamed answer has one if it runs in the background."""


def finish_reason(status: str | None) -> FinishReason:
    """Return the finish reason of a status."""
    return reason_of_word(status, FINISH_REASONS)
