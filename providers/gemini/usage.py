"""Converts Gemini's `usageMetadata` to `Usage`. Every chunk of a stream has the totals, so the last one counts."""

from __future__ import annotations

from ..json.json_values import JSONObject, integer
from ..model.tokens import Usage


def read_usage(metadata: JSONObject) -> Usage:
    """Return the token counts as `Usage`. A missing count is None: protobuf omits zeros and unknown values alike.

    Only a missing count of visible output beside thoughts is known to be 0. The results of Google's own tools, which
    the prompt's count does not include, are input: they are billed as such.
    """
    prompt = integer(metadata, "promptTokenCount")
    candidates = integer(metadata, "candidatesTokenCount")
    thoughts = integer(metadata, "thoughtsTokenCount")
    tool_results = integer(metadata, "toolUsePromptTokenCount") or 0
    total = integer(metadata, "totalTokenCount")
    output = candidates
    if candidates is not None and thoughts:
        output = _visible(prompt or 0, candidates, thoughts, tool_results, total)
    elif candidates is None and thoughts:
        # Protobuf omits a zero: the model thought until the limit, and wrote nothing. A total shows any other count.
        output = 0 if total is None or prompt is None else max(0, total - prompt - thoughts - tool_results)
    if total is None and prompt is not None and output is not None:
        total = prompt + output + (thoughts or 0) + tool_results
    return Usage(
        input_tokens=(prompt or 0) + tool_results if tool_results else prompt,
        output_tokens=output,
        thinking_tokens=thoughts,
        cached_tokens=integer(metadata, "cachedContentTokenCount"),
        total_tokens=total,
        raw=metadata,
    )


def _visible(prompt: int, candidates: int, thoughts: int, tool_results: int, total: int | None) -> int:
    # Today's API counts thoughts separately from the candidates. Earlier servers included them in the candidates.
    # The total shows which: it is the sum of the separate counts.
    apart = prompt + candidates + thoughts
    if total in (apart, apart + tool_results):
        return candidates
    return max(0, candidates - thoughts)
