"""Limits in Anthropic's headers and messages."""

import json

import pytest

from manystream.providers.limits.quota_report import QuotaReport, ReportedLimit, Unit
from tests.providers.limit_reports import report
from tests.providers.limits.test_limit_reports import INPUT, MINUTE, OUTPUT, RATE, REQUESTS, TOKENS


@pytest.mark.parametrize(
    ("prefix", "tier"), [("anthropic-ratelimit", ""), ("anthropic-priority", "priority"), ("anthropic-fast", "fast")]
)
@pytest.mark.parametrize(("name", "unit"), [("requests", REQUESTS), ("input-tokens", INPUT), ("output-tokens", OUTPUT)])
def test_one_limit_of_anthropic(prefix: str, tier: str, name: str, unit: Unit) -> None:
    headers = {
        f"{prefix}-{name}-limit": "90",
        f"{prefix}-{name}-remaining": "80",
        f"{prefix}-{name}-reset": "2026-09-21T14:13:27Z",
    }
    assert report("anthropic", headers) == QuotaReport((ReportedLimit(name, unit, MINUTE, 90, 80, 7, tier),))


@pytest.mark.parametrize(
    ("words", "unit", "limit"),
    [
        ("rate limit of 50 requests per minute", REQUESTS, ReportedLimit("requests", REQUESTS, MINUTE, 50)),
        ("rate limit of 8,000 tokens per minute", TOKENS, ReportedLimit("tokens", TOKENS, MINUTE, 8000)),
        ("Rate Limit of 8,000 Input Tokens per minute", INPUT, ReportedLimit("input-tokens", INPUT, MINUTE, 8000)),
        ("rate limit of 8,000 output tokens per minute", OUTPUT, ReportedLimit("output-tokens", OUTPUT, MINUTE, 8000)),
        ("Number of requests has exceeded", REQUESTS, None),
        ("Number of tokens has exceeded", TOKENS, None),
        ("Number of input tokens has exceeded", INPUT, None),
        ("Number of request tokens has exceeded", INPUT, None),
        ("Number of output tokens has exceeded", OUTPUT, None),
        ("Number of images has exceeded", None, None),
    ],
)
def test_anthropics_message_names_a_limit(words: str, unit: Unit | None, limit: ReportedLimit | None) -> None:
    body = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": words}})
    assert report("anthropic", {}, 429, body) == QuotaReport((limit,) if limit else (), RATE, unit)


def test_a_limit_in_anthropics_headers_is_not_repeated() -> None:
    headers = {"anthropic-ratelimit-requests-limit": "90", "anthropic-ratelimit-requests-remaining": "0"}
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "rate limit of 50 requests per minute"}}
    in_headers = ReportedLimit("requests", REQUESTS, MINUTE, 90, 0)
    assert report("anthropic", headers, 429, json.dumps(body)) == QuotaReport((in_headers,), RATE, REQUESTS)
    body["error"] = {"type": "rate_limit_error", "message": "rate limit of 8,000 input tokens per minute"}
    named = ReportedLimit("input-tokens", INPUT, MINUTE, 8000)
    assert report("anthropic", headers, 429, json.dumps(body)) == QuotaReport((in_headers, named), RATE, INPUT)
