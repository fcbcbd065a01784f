"""Why Gemini stopped: its words and our words, as tables.

Knows `Candidate.FinishReason` of both of its homes (the Gemini API and Vertex AI). The list grows while servers run,
so an unknown word is no error: it is kept raw and counts as UNKNOWN.
"""

from __future__ import annotations

from ..events import FinishReason
from ..json_values import JSON

FINISH_REASONS: dict[str, FinishReason] = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    # The limit of one request, not of the model: `continuationToken` (in provider_data) asks for the rest.
    "CONTINUATION": FinishReason.LENGTH,
    "SAFETY": FinishReason.CONTENT_FILTER,
    "RECITATION": FinishReason.CONTENT_FILTER,
    "BLOCKLIST": FinishReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "SPII": FinishReason.CONTENT_FILTER,
    "MODEL_ARMOR": FinishReason.CONTENT_FILTER,
    "ESCALATION": FinishReason.CONTENT_FILTER,
    "IMAGE_SAFETY": FinishReason.CONTENT_FILTER,
    "IMAGE_PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "IMAGE_RECITATION": FinishReason.CONTENT_FILTER,
    "LANGUAGE": FinishReason.ERROR,
    "NO_IMAGE": FinishReason.ERROR,
    "MALFORMED_FUNCTION_CALL": FinishReason.ERROR,
    "UNEXPECTED_TOOL_CALL": FinishReason.ERROR,
    "TOO_MANY_TOOL_CALLS": FinishReason.ERROR,
    "MISSING_THOUGHT_SIGNATURE": FinishReason.ERROR,
    "MALFORMED_RESPONSE": FinishReason.ERROR,
    "PUP_LIMITED_DISABLED": FinishReason.ERROR,
    # Not Google's: other servers of this dialect say so where the model made calls.
    "FUNCTION_CALL": FinishReason.TOOL_USE,
    "OTHER": FinishReason.UNKNOWN,
    "IMAGE_OTHER": FinishReason.UNKNOWN,
    "FINISH_REASON_UNSPECIFIED": FinishReason.UNKNOWN,
}
"""Gemini's word → ours."""

FINISH_NUMBERS: dict[str, FinishReason] = {
    "1": FinishReason.STOP,
    "2": FinishReason.LENGTH,
    "3": FinishReason.CONTENT_FILTER,
    "4": FinishReason.CONTENT_FILTER,
    "5": FinishReason.UNKNOWN,
    "7": FinishReason.CONTENT_FILTER,
    "8": FinishReason.CONTENT_FILTER,
    "11": FinishReason.CONTENT_FILTER,
}
"""Enum numbers, which servers that serialise the protobuf send. Only those on which the two protobuf definitions
agree: 6, 9, 10 and all above 11 mean one thing in the Gemini API and another in Vertex AI."""

UNSPECIFIED = frozenset({"", "0", "FINISH_REASON_UNSPECIFIED"})
"""Protobuf's default: the member was not set, so the candidate has not finished."""


def raw_finish_reason(value: JSON) -> str | None:
    """The word as sent, a number as its digits; None where there is none yet."""
    if type(value) is int:
        value = str(value)
    return value if type(value) is str and value not in UNSPECIFIED else None


def finish_reason(raw: str | None) -> FinishReason:
    """Our word for Gemini's."""
    if raw is None:
        return FinishReason.UNKNOWN
    return FINISH_REASONS.get(raw.upper()) or FINISH_NUMBERS.get(raw, FinishReason.UNKNOWN)
