"""Which models of a provider share their limits, as rows of data.

Knows what the providers' documentation says. Must not know limits.
"""

from __future__ import annotations

import re

_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$|-\d{8}$", re.ASCII)
"""The date at the end of a model's name: a snapshot has its model's limits."""

_ONE_SERVER = frozenset({"vllm", "sglang", "llama-cpp", "tgi"})
"""Providers that are one server each: whatever runs there takes from the same memory."""

ALL_MODELS = "*"
"""The family of every model on such a server."""

_CLAUDE = re.compile(r"(claude-(?:opus|sonnet)-4)\b", re.ASCII)
"""Claude Opus 4 and its later versions share their limits; so do those of Sonnet 4."""


def family_of(provider: str, model: str) -> str:
    """What the limits of a model are called: the family's name, or the model's own.

    provider: the provider's row name. model: as the provider knows it.
    """
    if provider in _ONE_SERVER:
        return ALL_MODELS
    name = _SNAPSHOT.sub("", model)
    if provider == "anthropic":
        match = _CLAUDE.match(name)
        if match is not None:
            return match[1]
    return name
