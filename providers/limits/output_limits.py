"""The most output tokens that one request can cause: what its body says, else what its model can produce at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import InvalidRequestError
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

    names: the members that may hold the limit. If several do, the largest counts: a server may follow any of them.
    choices: the member with the number of answers; empty if there is none.
    """
    limit = 0
    for name in names:
        if name in body:
            limit = max(limit, _count(body[name]) or 0)
    return limit * (_count(body.get(choices)) or 1) if limit else None


LIMITS = frozenset(
    {
        "max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "max_new_tokens", "n_predict",
        "num_predict", "max_tokens_to_sample",
    }
)  # fmt: skip
"""Members for the most output tokens, in the dialects and in their servers."""

CHOICES = frozenset({"n", "best_of", "candidateCount", "candidate_count", "num_return_sequences"})
"""Members for the number of answers."""

SETTINGS = ("generationConfig", "generation_config", "options", "parameters", "sampling_params")
"""Objects of a body that may have such members, too."""


def raised_output(body: JSONObject) -> tuple[int, int]:
    """Return the largest limit for output that any member of a body names, and the largest number of answers. 0 and 1
    if none names any. A member that its server does not know limits nothing, so the first is no limit by itself.

    Raises `InvalidRequestError` that names a member with a value that is no count.
    """
    limit, count = 0, 1
    for path, name, value in _settings(body):
        if value is None or not (name in LIMITS or name in CHOICES):
            continue
        number = _count(value)
        if number is None:
            raise InvalidRequestError(path, f"a budget limits the output: must be a whole number from 1, not {value!r}")
        if name in LIMITS:
            limit = max(limit, number)
        else:
            count = max(count, number)
    return limit, count


def _settings(body: JSONObject) -> Iterator[tuple[str, str, JSON]]:
    for name, value in body.items():
        yield name, name, value
        if name in SETTINGS and type(value) is dict:
            yield from ((f"{name}.{inner}", inner, member) for inner, member in value.items())


def _count(value: JSON) -> int | None:
    """Return a count that servers accept: a whole number, such a float or such a text. None for any other value."""
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 1 else None
