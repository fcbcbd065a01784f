"""Whether an error says that the prompt is too long for the model."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model.provider_error import ErrorCategory

OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "too_many_prompt_tokens"})
"""Codes and types, in lower case: those of OpenAI, llama.cpp and Databricks."""

_WORDS = re.compile(
    r"prompt (?:is )?too long"  # Anthropic, Fireworks, Ollama
    r"|(?:exceeds?|exceeded|(?:longer|greater|larger) than|reached)[^.]{0,60}"
    r"\b(?:context|model length|max_(?:seq|model)_len)"  # Anthropic, SGLang, vLLM, OpenAI, LM Studio
    r"|context (?:length|window|size)[^.]{0,30}\b(?:exceed|overflow)"  # gateways, MiniMax
    r"|maximum (?:allowed )?(?:context|prompt|input) length"  # OpenAI, vLLM, xAI, OpenRouter, Poolside
    r"|too large for model with \d+ maximum context"  # Mistral
    r"|(?:input|prompt) token count[^.]{0,40}exceeds"  # Gemini, GitHub
    r"|exceeded model token limit"  # Moonshot
    r"|prompt exceeds max"  # Z.ai
    r"|range of input length should be"  # Alibaba
    r"|input is too long for requested model"  # Bedrock
    r"|tokens \+ `max_new_tokens` must be"  # Text Generation Inference, Together
    r"|inputs?`? must have less than \d+ tokens",  # Text Generation Inference
    re.IGNORECASE,
)

ITS_CATEGORIES = frozenset({ErrorCategory.INVALID_ARG, ErrorCategory.UNKNOWN})
"""The categories of such errors. A limit on tokens per minute uses similar words; it is RATE_LIMIT."""


def is_context_overflow(category: ErrorCategory, words: Iterable[str | None], message: str) -> bool:
    """Return whether an error says that the prompt is too long for the model.

    words: the codes and types of the error, in lower case.
    """
    if category not in ITS_CATEGORIES:
        return False
    return not OVERFLOW_CODES.isdisjoint(words) or _WORDS.search(message) is not None
