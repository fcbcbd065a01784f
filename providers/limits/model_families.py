"""Which models of a provider share their limits, as rows of data."""

from __future__ import annotations

import re

_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$|-\d{8}$", re.ASCII)
"""The date at the end of a snapshot's name. A snapshot has the limits of its model."""

_ONE_SERVER = frozenset({"vllm", "sglang", "llama-cpp", "tgi"})
"""Providers that are a single server. All models on it share its memory."""

ALL_MODELS = "*"
"""The family of every model on a single server."""

_CLAUDE = re.compile(r"(claude-(?:opus|sonnet)-4)\b", re.ASCII)
"""Claude Opus 4 and its later versions share their limits. Sonnet 4 and its later versions share theirs."""


def family_of(provider: str, model: str) -> str:
    """Return the name under which a model's limits are counted: that of its family, or its own.

    provider: the name of the provider's profile.
    model: the model's name as the provider knows it.
    """
    if provider in _ONE_SERVER:
        return ALL_MODELS
    name = _SNAPSHOT.sub("", model)
    if provider == "anthropic":
        match = _CLAUDE.match(name)
        if match is not None:
            return match[1]
    return name
