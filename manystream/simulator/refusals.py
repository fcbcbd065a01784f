"""The error with which each server refuses a request that exceeds a limit: status, code, message and details."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .bucket import Bucket
from .json_text import JSON, JSONObject
from .limit import DAY
from .prompt import APIError
from .server_rules import ServerRules

SHORT_DELAY = 20.0
"""Gemini's `retryDelay` for a spent day, in seconds: far too short."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Excess:
    """Why a request is refused.

    bucket: the limit that it exceeds; None for the limit of calls at a time.
    wait: seconds until there is room for it.
    too_large: there will never be room for it.
    """

    bucket: Bucket | None
    limit: float
    cost: float
    wait: float
    too_large: bool
    model: str


_OPENAI_UNITS = {
    ("requests", False): "requests per min (RPM)",
    ("requests", True): "requests per day (RPD)",
    ("tokens", False): "tokens per min (TPM)",
    ("tokens", True): "tokens per day (TPD)",
    ("input_tokens", False): "input tokens per min",
    ("output_tokens", False): "output tokens per min",
}


def _openai(excess: Excess, rules: ServerRules) -> APIError:
    bucket = excess.bucket
    if bucket is None:
        message = f"Too many concurrent requests for {excess.model}: limit {excess.limit:g}."
        return APIError(rules.concurrent_status, message, type="requests", code="rate_limit_exceeded")
    unit = _OPENAI_UNITS[bucket.dimension, bucket.window >= DAY]
    if bucket.window == 1.0:
        unit = unit.replace("per min (RPM)", "per second")
    where = f"{excess.model} in organization org-simulator on {unit}"
    kind = "requests" if bucket.dimension == "requests" else "tokens"
    used = max(0.0, bucket.limit * (1 - bucket.level / bucket.capacity))
    if excess.too_large:
        message = (
            f"Request too large for {where}: Limit {bucket.limit:.0f}, Requested {excess.cost:.0f}. The input or"
            " output tokens must be reduced in order to run successfully."
        )
        return APIError(rules.too_large_status, message, type=kind, code="rate_limit_exceeded")
    message = (
        f"Rate limit reached for {where}: Limit {bucket.limit:.0f}, Used {used:.0f}, Requested {excess.cost:.0f}."
        f" Please try again in {_in_words(excess.wait)}."
    )
    return APIError(429, message, type=kind, code="rate_limit_exceeded")


def _in_words(seconds: float) -> str:
    return f"{math.ceil(seconds * 1000)}ms" if seconds < 1 else f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


_WINDOWS = {1.0: "second", 60.0: "minute", DAY: "day"}


def _anthropic(excess: Excess, rules: ServerRules) -> APIError:
    bucket = excess.bucket
    if bucket is None:
        message = "Number of concurrent connections has exceeded your rate limit. Please try again later."
        return APIError(429, message)
    unit = bucket.dimension.replace("_", " ")
    message = (
        f"This request would exceed your organization's rate limit of {bucket.limit:,.0f} {unit} per"
        f" {_WINDOWS[bucket.window]}. Please reduce the prompt length or the maximum tokens"
        " requested, or try again later."
    )
    return APIError(429, message)


_GOOGLE_HOST = "generativelanguage.googleapis.com"
_QUOTAS = {
    ("requests", False): ("generate_content_paid_tier_requests", "GenerateRequestsPerMinutePerProjectPerModel"),
    ("requests", True): ("generate_content_paid_tier_requests", "GenerateRequestsPerDayPerProjectPerModel"),
    ("input_tokens", False): (
        "generate_content_paid_tier_input_token_count",
        "GenerateContentPaidTierInputTokensPerModelPerMinute",
    ),
}
_OTHER_QUOTA = ("generate_content_token_count", "GenerateContentTokensPerModelPerMinute")


def _gemini(excess: Excess, rules: ServerRules) -> APIError:
    bucket = excess.bucket
    if bucket is None:
        return APIError(429, "Resource has been exhausted (e.g. check quota).")
    daily = bucket.window >= DAY
    metric, quota = _QUOTAS.get((bucket.dimension, daily), _OTHER_QUOTA)
    wait = min(excess.wait, SHORT_DELAY) if daily else excess.wait
    value = f"{bucket.limit:.0f}"
    violation: JSONObject = {
        "quotaMetric": f"{_GOOGLE_HOST}/{metric}",
        "quotaId": quota,
        "quotaDimensions": {"location": "global", "model": excess.model},
        "quotaValue": value,
    }
    details: list[JSON] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]},
        {
            "@type": "type.googleapis.com/google.rpc.Help",
            "links": [
                {
                    "description": "Learn more about Gemini API quotas",
                    "url": "https://ai.google.dev/gemini-api/docs/rate-limits",
                }
            ],
        },
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{math.ceil(wait)}s"},
    ]
    message = (
        "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric:"
        f" {_GOOGLE_HOST}/{metric}, limit: {value}, model: {excess.model}\nPlease retry in {wait:.6f}s."
    )
    return APIError(429, message, details=details)


def _overloaded(excess: Excess, rules: ServerRules) -> APIError:
    status = rules.concurrent_status
    return APIError(status, "The server is overloaded: too many requests are waiting.", type="overloaded_error")


REFUSALS: dict[str, Callable[[Excess, ServerRules], APIError]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "vertex": lambda excess, rules: APIError(429, "Resource exhausted. Please try again later."),
    "mistral": lambda excess, rules: APIError(429, "Requests rate limit exceeded", type="rate_limited", code="1300"),
    "overloaded": _overloaded,
}
"""Name of `ServerRules.error` → the error of a refused request."""
