"""How each provider counts a request against its limits, as one row of data per provider, and which of its models share
them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..catalog.registry import ROWS

OutputCharge: TypeAlias = Literal["reserved", "produced"]
CombinedCharge: TypeAlias = Literal["sum", "larger"]
Settlement: TypeAlias = Literal["usage", "unknown"]
LimitedBy: TypeAlias = Literal["quota", "concurrency", "slots"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Charging:
    """How one server counts requests and tokens.

    output: how output tokens count. `reserved`: `max_tokens` counts when the request starts. `produced`: tokens count
        as they are generated, or not at all, so `max_tokens` has no effect.
    combined: how a limit of input and output together counts: their `sum`, or the `larger` of the two (OpenAI).
    settlement: what happens to the charge when the request ends. `usage`: it becomes the actual usage. `unknown`: the
        documentation does not say, so the charge is kept.
    refused_requests: whether a refused request counts as a request. One that failed in another way does everywhere.
    cached_input: whether input that was read from a cache counts.
    limited_by: what the server limits. `quota`: the amount per time. `concurrency`: requests that run at once; further
        ones wait in the server or get 503. `slots`: requests that run at once; further ones get 429.
    """

    output: OutputCharge = "reserved"
    combined: CombinedCharge = "sum"
    settlement: Settlement = "usage"
    refused_requests: bool = False
    cached_input: bool = True
    limited_by: LimitedBy = "quota"


_OPENAI = Charging(combined="larger", settlement="unknown", refused_requests=True)
_AZURE = Charging(settlement="unknown")
_ANTHROPIC = Charging(output="produced", cached_input=False)
_GEMINI = Charging(output="produced")
_SERVER = Charging(output="produced", limited_by="concurrency")

DEFAULT = Charging(settlement="unknown")
"""For servers without a row: the values that cost least if they are wrong."""

CHARGING: dict[str, Charging] = {
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "openai-compatible": _OPENAI,
    "responses-compatible": _OPENAI,
    "azure": _AZURE,
    "azure-deployment": _AZURE,
    "azure-models": _AZURE,
    "azure-responses": _AZURE,
    "anthropic": _ANTHROPIC,
    "anthropic-compatible": _ANTHROPIC,
    "anthropic-openai": _ANTHROPIC,
    "google": _GEMINI,
    "google-interactions": _GEMINI,
    "google-openai": _GEMINI,
    "groq": Charging(),
    "groq-responses": Charging(),
    "cerebras": Charging(),
    "mistral": Charging(),
    "together": Charging(),
    "fireworks": Charging(output="produced"),
    "deepseek": Charging(output="produced", limited_by="slots"),
    "vllm": _SERVER,
    "sglang": _SERVER,
    "llama-cpp": _SERVER,
    "lmdeploy": _SERVER,
    "dynamo": _SERVER,
    "tgi": Charging(output="produced", limited_by="slots"),
}
"""Name of the provider's profile → how it counts.

A server with an address of its own that names no profile has the row of its dialect's own server: most are gateways to
it. The charge is then the smaller one. If it is too small, refusals lower the rate; nothing would correct one that is
too large, as it leaves a part of the limit unused.
"""


def charging_of(provider: str, dialect: str = "") -> Charging:
    """Return how a provider counts, or how most servers of its dialect do if it has no row. OpenAI's dialects have too
    many different servers for one.

    provider: the name of its profile.
    dialect: the name of its dialect.
    """
    row = ROWS.get(dialect)
    return CHARGING.get(provider) or CHARGING.get("" if row is None else row.charges_as, DEFAULT)


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
