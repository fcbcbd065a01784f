"""The finish reasons that have one meaning in every dialect. Gateways pass on the words of the server behind them."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.events import FinishReason
from ..model.provider_error import ErrorCategory
from .error_bodies import CODE_CATEGORY, TYPE_CATEGORY

FINISH_REASONS: dict[str, FinishReason] = {
    **dict.fromkeys(
        ("stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete", "completed"), FinishReason.STOP
    ),
    **dict.fromkeys(
        ("length", "max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded", "max_length",
         "token_limit", "time_limit", "error_limit"),
        FinishReason.LENGTH,
    ),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "function_call", "tool-calls"), FinishReason.TOOL_USE),
    **dict.fromkeys(
        ("content_filter", "content-filter", "content_filtered", "guardrail_intervened", "sensitive", "safety",
         "refusal", "recitation", "blocklist", "prohibited_content", "error_toxic"),
        FinishReason.CONTENT_FILTER,
    ),
    **dict.fromkeys(
        ("error", "network_error", "insufficient_system_resource", "timeout", "malformed_function_call",
         "unexpected_tool_call", "malformed_model_output", "malformed_tool_use", "repetition"),
        FinishReason.ERROR,
    ),
    **dict.fromkeys(("abort", "aborted", "cancelled", "canceled", "user_cancel"), FinishReason.ABORTED),
}  # fmt: skip
"""Word of a server, in lower case → finish reason. OpenAI's words, and those of other servers (Together `eos`, Mistral
`model_length` and `error`, DeepSeek `insufficient_system_resource`, Z.ai `sensitive` and `network_error`, vLLM
`repetition`, vLLM and SGLang `abort`, TensorRT-LLM `cancelled` and `timeout`, Bedrock `guardrail_intervened`, Cohere
`error_toxic`, watsonx `time_limit`).
"""

BROKEN = ("error", "fail", "malformed", "timeout", "timed_out", "insufficient", "overload", "unavailable", "interrupt")
"""Parts of a word, in lower case, that says that the generation broke."""


def reason_of_word(
    raw: str | None, own: Mapping[str, FinishReason] = FINISH_REASONS, other: FinishReason = FinishReason.UNKNOWN
) -> FinishReason:
    """Return the finish reason of a server's word.

    own: the dialect's own words, which take precedence over those of all servers.
    other: the reason for a word that says nothing about its meaning. None is UNKNOWN.
    """
    if raw is None:
        return FinishReason.UNKNOWN
    word = raw.lower()
    reason = own.get(raw) or own.get(raw.upper()) or FINISH_REASONS.get(word)
    if reason is not None:
        return reason
    category = CODE_CATEGORY.get(word) or TYPE_CATEGORY.get(word)
    if category is ErrorCategory.CONTENT_FILTER:
        return FinishReason.CONTENT_FILTER
    return FinishReason.ERROR if category is not None or any(part in word for part in BROKEN) else other
