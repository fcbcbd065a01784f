"""The most output tokens that one request can cause: what its body says, else what its model can produce at all."""

from __future__ import annotations

from collections.abc import Sequence

from ..json.json_values import JSON, JSONObject

_OPENAI: tuple[tuple[str, int], ...] = (
    ("gpt-5-chat", 16_384),
    ("gpt-5", 128_000),
    ("gpt-4.1", 32_768),
    ("gpt-4o", 16_384),
    ("o4-mini", 100_000),
    ("o3", 100_000),
)
_GEMINI: tuple[tuple[str, int], ...] = (
    ("gemini-3", 65_536),
    ("gemini-2.5", 65_536),
    ("gemini-2.0", 8_192),
)

LARGEST_OUTPUT: dict[str, tuple[tuple[str, int], ...]] = {
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "google": _GEMINI,
    "google-openai": _GEMINI,
}
"""Name of the provider's profile → (beginning of a model's name, its largest output in tokens). The first row counts.

Only models whose provider publishes the number are listed. Anthropic needs no row: each of its requests has a limit.
"""


def largest_output(provider: str, model: str) -> int | None:
    """Return the most output tokens that a model can produce; None if that is unknown.

    provider: the name of the provider's profile.
    """
    rows = LARGEST_OUTPUT.get(provider, ())
    return next((tokens for beginning, tokens in rows if model.startswith(beginning)), None)


def output_limit(body: JSONObject, names: Sequence[str], choices: str = "") -> int | None:
    """Return the limit for output that a body has, for all of its choices together; None if it has none.

    names: the members that may hold the limit.
    choices: the member with the number of answers; empty if there is none.
    """
    for name in names:
        limit = body.get(name)
        if limit is not None:
            return _product(limit, body.get(choices))
    return None


def _product(limit: JSON, count: JSON) -> int | None:
    if type(limit) is not int or limit < 1:
        return None
    return limit * count if type(count) is int and count > 1 else limit
