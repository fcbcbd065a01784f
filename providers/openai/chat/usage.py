"""Converts token reports of chat servers to `Usage`, and finish reasons to `FinishReason`.

Tables and arithmetic only.
"""

from __future__ import annotations

from ...json.json_values import JSONObject, first_integer, integer, mapping
from ...model.events import FinishReason
from ...model.tokens import Usage

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "complete": FinishReason.STOP,
    "completed": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "max_output_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_USE,
    "tool_call": FinishReason.TOOL_USE,
    "tool_use": FinishReason.TOOL_USE,
    "function_call": FinishReason.TOOL_USE,
    "content_filter": FinishReason.CONTENT_FILTER,
    "content-filter": FinishReason.CONTENT_FILTER,
    "sensitive": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
    "error": FinishReason.ERROR,
    "network_error": FinishReason.ERROR,
    "insufficient_system_resource": FinishReason.ERROR,
    # vLLM has found that the model repeats itself without end, and stopped it.
    "repetition": FinishReason.ERROR,
    "abort": FinishReason.ABORTED,
    "aborted": FinishReason.ABORTED,
    "cancelled": FinishReason.ABORTED,
}
"""Word of a server, in lower case → finish reason. OpenAI's words, and those of other servers (Together `eos`, Mistral
`model_length` and `error`, DeepSeek `insufficient_system_resource`, Z.ai `sensitive` and `network_error`, vLLM and
SGLang `abort`, TensorRT-LLM `cancelled`).
"""

_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
_CACHE_WRITES = ("cache_creation_input_tokens", "cache_write_tokens")


def finish_reason_of(raw: str | None) -> FinishReason:
    """Return the finish reason of a server's word; UNKNOWN for None and for an unknown word."""
    return FinishReason.UNKNOWN if raw is None else FINISH_REASONS.get(raw.lower(), FinishReason.UNKNOWN)


def read_usage(report: JSONObject) -> Usage:
    """Return a server's report as `Usage`. Counts that it does not have are None."""
    prompt = first_integer(report, ("prompt_tokens", "input_tokens"))
    completion = first_integer(report, ("completion_tokens", "output_tokens"))
    total = integer(report, "total_tokens")
    prompt_details = mapping(report, "prompt_tokens_details") or mapping(report, "input_tokens_details")
    details = mapping(report, "completion_tokens_details") or mapping(report, "output_tokens_details")
    thinking = integer(details, "reasoning_tokens")
    if thinking is None:
        thinking = integer(report, "reasoning_tokens")
    cached = integer(prompt_details, "cached_tokens")
    written = first_integer(prompt_details, ("cache_write_tokens", "cache_creation_tokens"))
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    return Usage(
        input_tokens=prompt,
        output_tokens=_visible(prompt, completion, thinking, total),
        thinking_tokens=thinking,
        cached_tokens=first_integer(report, _CACHED) if cached is None else cached,
        cache_write_tokens=first_integer(report, _CACHE_WRITES) if written is None else written,
        total_tokens=total,
        raw=report,
    )


def _visible(prompt: int | None, completion: int | None, thinking: int | None, total: int | None) -> int | None:
    """Return the visible output.

    OpenAI counts reasoning inside `completion_tokens`. xAI and others count it separately, which shows in the total, or
    in more reasoning than completion.
    """
    if completion is None or not thinking:
        return completion
    beside = prompt is not None and total == prompt + completion + thinking
    return completion if beside or thinking > completion else completion - thinking
