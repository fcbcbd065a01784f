"""Maps Gemini's finish reasons to `FinishReason`.

Google adds words at any time, so an unknown word is no error: it is UNKNOWN, and kept as the raw reason.
"""

from __future__ import annotations

from ..json.json_values import JSON
from ..model.events import FinishReason
from ..model.rules import instance, optional
from ..wire.finish_words import reason_of_word

FINISH_REASONS: dict[str, FinishReason] = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    # The limit of one request, not of the model. `continuationToken` (in provider_data) requests the rest.
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
    "OTHER": FinishReason.UNKNOWN,
    "IMAGE_OTHER": FinishReason.UNKNOWN,
    "FINISH_REASON_UNSPECIFIED": FinishReason.UNKNOWN,
}

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
"""Enum number → finish reason, for servers that serialise the protobuf.

Only numbers with the same meaning in both protobuf definitions: 6, 9, 10 and those above 11 differ between the Gemini
API and Vertex AI.
"""

RAW = optional(instance(str, int, must="a text or a number"))

UNSPECIFIED = frozenset({"", "0", "FINISH_REASON_UNSPECIFIED"})
"""Protobuf's default: the member was not set, so the candidate has not finished."""


def raw_finish_reason(value: JSON) -> str | None:
    """Return the word as sent, or a number as its digits; None if the candidate has not finished."""
    if type(value) is int:
        value = str(value)
    return value if type(value) is str and value not in UNSPECIFIED else None


def finish_reason(raw: str | int | None) -> FinishReason:
    """Return the finish reason of Gemini's word or number. Raises `InvalidRequestError` for any other value."""
    RAW.check(raw, "raw")
    word = str(raw)
    return FINISH_NUMBERS.get(word) or reason_of_word(None if raw is None else word, FINISH_REASONS)
