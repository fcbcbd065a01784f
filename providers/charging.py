"""How a server charges a request to its limits, as rows of data by provider.

Knows what the providers' documentation says. Must not know buckets nor when a request is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

OutputCharge: TypeAlias = Literal["reserved", "produced", "free"]
CombinedCharge: TypeAlias = Literal["sum", "larger"]
Settlement: TypeAlias = Literal["usage", "unknown"]
LimitedBy: TypeAlias = Literal["quota", "concurrency", "slots"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Charging:
    """How one server counts.

    output: how output counts. `reserved`: `max_tokens` at the start. `produced`: as it is generated, so `max_tokens`
        plays no part. `free`: not at all.
    combined: a limit of input and output together counts their `sum`, or the `larger` of the two (OpenAI).
    settlement: `usage`: what was charged becomes what was used when the request ends. `unknown`: nobody says that it
        does, so the charge is kept.
    refused_requests: a refused request counts as a request.
    failed_requests: a request that failed in another way counts as a request.
    cached_input: input that was read from a cache counts.
    limited_by: what the server limits: how much is sent per time (`quota`), or how much runs at once and more of it
        waits inside or gets 503 (`concurrency`), or gets 429 (`slots`).
    """

    output: OutputCharge = "reserved"
    combined: CombinedCharge = "sum"
    settlement: Settlement = "usage"
    refused_requests: bool = False
    failed_requests: bool = True
    cached_input: bool = True
    limited_by: LimitedBy = "quota"


_OPENAI = Charging(combined="larger", settlement="unknown", refused_requests=True)
_AZURE = Charging(settlement="unknown")
_ANTHROPIC = Charging(output="produced", cached_input=False)
_GEMINI = Charging(output="free")
_SERVER = Charging(output="free", limited_by="concurrency")

DEFAULT = Charging(settlement="unknown")
"""For servers without a row: what costs least if it is wrong."""

CHARGING: dict[str, Charging] = {
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "azure": _AZURE,
    "azure-deployment": _AZURE,
    "azure-models": _AZURE,
    "azure-responses": _AZURE,
    "anthropic": _ANTHROPIC,
    "anthropic-openai": _ANTHROPIC,
    "google": _GEMINI,
    "google-openai": _GEMINI,
    "groq": Charging(),
    "groq-responses": Charging(),
    "cerebras": Charging(),
    "mistral": Charging(),
    "together": Charging(),
    "fireworks": Charging(output="produced"),
    "deepseek": Charging(output="free", limited_by="slots"),
    "vllm": _SERVER,
    "sglang": _SERVER,
    "llama.cpp": _SERVER,
    "tgi": Charging(output="free", limited_by="slots"),
}
"""Provider's row name → how it charges."""


def charging_of(provider: str) -> Charging:
    """How a provider charges; `DEFAULT` for one without a row."""
    return CHARGING.get(provider, DEFAULT)
