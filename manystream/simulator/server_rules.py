"""How each server charges, reports and enforces its limits, as rows of data. Sources: the servers' documentation.

The rows are the simulator's own. They are not read from the library, which they are used to test.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True, kw_only=True)
class ServerRules:
    """The rules of one server.

    output: how output counts. `reserved`: `max_tokens` when the call is accepted. `produced`: token by token as it is
        sent. `free`: not at all.
    combined: a limit of input and output together counts their `sum`, or the `larger` of the two.
    settled: at the end of a call its charge is replaced by its usage. Else the charge is kept.
    refused_counts: a refused request counts as a request.
    cached_counts: input that was read from a cache counts.
    per_key: every key has a limit of its own. Else all keys share the limit, and every model has its own.
    request_slice: the limit of requests is enforced in slices of so many seconds; 0: of the limit's own bucket.
    daily_reset: the daily limit starts anew at midnight, Pacific time.
    over_limit: part of a limit that is still served beyond it, with a header that says so.
    report: name of the form of its headers, in `reports`.
    error: name of the form of its refusals, in `refusals`.
    too_large_status: the status for a request that is larger than a whole limit.
    concurrent_status: the status for a call above the limit of calls at a time.
    """

    output: str = "reserved"
    combined: str = "sum"
    settled: bool = True
    refused_counts: bool = False
    cached_counts: bool = True
    per_key: bool = True
    request_slice: float = 0.0
    daily_reset: bool = False
    over_limit: float = 0.0
    report: str = "none"
    error: str = "openai"
    too_large_status: int = 429
    concurrent_status: int = 429


_SELF_HOSTED = ServerRules(output="free", error="overloaded", concurrent_status=503)

SERVERS: dict[str, ServerRules] = {
    "openai": ServerRules(combined="larger", settled=False, refused_counts=True, report="openai"),
    "anthropic": ServerRules(output="produced", cached_counts=False, report="anthropic", error="anthropic"),
    "gemini": ServerRules(output="free", per_key=False, daily_reset=True, error="gemini"),
    "vertex": ServerRules(output="free", per_key=False, error="vertex"),
    "azure": ServerRules(settled=False, request_slice=10.0, report="azure"),
    "groq": ServerRules(report="groq", too_large_status=413),
    "cerebras": ServerRules(report="cerebras"),
    "mistral": ServerRules(report="mistral", error="mistral"),
    "deepseek": ServerRules(output="free"),
    "openrouter": ServerRules(report="openrouter"),
    "together": ServerRules(report="together"),
    "fireworks": ServerRules(output="produced", over_limit=0.25, report="fireworks"),
    "litellm": ServerRules(combined="larger", settled=False, report="litellm"),
    "vllm": _SELF_HOSTED,
    "sglang": _SELF_HOSTED,
    "llama.cpp": _SELF_HOSTED,
    "tgi": ServerRules(output="free", error="overloaded", concurrent_status=429),
}

DIALECT_SERVERS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "gemini-interactions": "gemini",
}
"""Dialect → the server whose rules hold for a limit that names none."""
