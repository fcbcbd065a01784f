"""Every header, code, status and word of servers about limits, one at a time, and every row of `CHARGING`."""

import json

import pytest

from manystream.providers.limits.quota_report import QuotaReport, Refusal, ReportedLimit, Unit
from tests.providers.limit_reports import NOW, report

REQUESTS, INPUT, OUTPUT, TOKENS = Unit.REQUESTS, Unit.INPUT_TOKENS, Unit.OUTPUT_TOKENS, Unit.TOKENS

RATE, SPENT, OVERLOAD = Refusal.RATE, Refusal.SPENT, Refusal.OVERLOAD

SECOND, MINUTE, DAY, MONTH = 1, 60, 86_400, 30 * 86_400

AZURE = (("requests", REQUESTS, MINUTE), ("tokens", TOKENS, MINUTE))

GROQ = (("requests", REQUESTS, DAY), ("tokens", TOKENS, MINUTE))

OPENAI = (("requests", REQUESTS, MINUTE), ("tokens", TOKENS, MINUTE), ("project-tokens", TOKENS, MINUTE))

NAMES: dict[str, tuple[tuple[str, Unit, int], ...]] = {
    "openai-chat": OPENAI,
    "openai-responses": OPENAI,
    "vllm": OPENAI,
    "azure": AZURE,
    "azure-deployment": AZURE,
    "azure-models": AZURE,
    "azure-responses": AZURE,
    "groq": GROQ,
    "groq-responses": GROQ,
    "cerebras": (("requests-day", REQUESTS, DAY), ("tokens-minute", TOKENS, MINUTE)),
    "mistral": (("req-second", REQUESTS, SECOND), ("req-minute", REQUESTS, MINUTE), ("tokens-minute", TOKENS, MINUTE),
        ("tokens-month", TOKENS, MONTH)),
    "fireworks": (("requests", REQUESTS, MINUTE), ("tokens-prompt", INPUT, MINUTE),
        ("tokens-generated", OUTPUT, MINUTE)),
}  # fmt: skip
"""Provider's row → what follows `x-ratelimit-limit-`, what it counts, and the window in seconds."""


@pytest.mark.parametrize(
    ("provider", "name", "unit", "window"),
    [(provider, *row) for provider, rows in NAMES.items() for row in rows],
    ids=[f"{provider} {row[0]}" for provider, rows in NAMES.items() for row in rows],
)
def test_one_limit_in_three_headers(provider: str, name: str, unit: Unit, window: int) -> None:
    headers = {
        f"x-ratelimit-limit-{name}": "90",
        f"x-ratelimit-remaining-{name}": "80",
        f"x-ratelimit-reset-{name}": "7s",
    }
    assert report(provider, headers) == QuotaReport((ReportedLimit(name, unit, window, 90, 80, 7),))


@pytest.mark.parametrize(("name", "unit"), [row[:2] for row in OPENAI])
@pytest.mark.parametrize("prefix", ["", "llm_provider-"])
def test_openai_sends_daily_limits_in_the_same_headers(prefix: str, name: str, unit: Unit) -> None:
    headers = {f"{prefix}x-ratelimit-limit-{name}": "90", f"{prefix}x-ratelimit-reset-{name}": "2h"}
    found = report("openai-compatible", headers)
    assert found == QuotaReport((ReportedLimit(f"{name} per day", unit, DAY, 90, None, 7200),))


@pytest.mark.parametrize("provider", ["azure", "azure-deployment", "azure-models", "azure-responses", "fireworks"])
def test_other_servers_send_no_daily_limits_in_these_headers(provider: str) -> None:
    headers = {"x-ratelimit-limit-requests": "90", "x-ratelimit-reset-requests": "2h"}
    assert report(provider, headers).limits == (ReportedLimit("requests", REQUESTS, MINUTE, 90, None, 7200),)


@pytest.mark.parametrize("provider", ["openrouter", "openrouter-responses"])
@pytest.mark.parametrize(
    ("reset", "name", "window"), [(40, "requests", MINUTE), (600, "requests", MINUTE), (601, "requests per day", DAY)]
)
def test_openrouter_sends_the_reset_in_milliseconds(provider: str, reset: int, name: str, window: int) -> None:
    headers = {
        "x-ratelimit-limit": "20",
        "x-ratelimit-remaining": "3",
        "x-ratelimit-reset": f"{(NOW + reset) * 1000:.0f}",
    }
    assert report(provider, headers) == QuotaReport((ReportedLimit(name, REQUESTS, window, 20, 3, reset),))


CODES: dict[str, dict[str, Refusal]] = {
    "openai-chat": {
        "insufficient_quota": SPENT,
        "quota_exceeded": SPENT,
        "billing_hard_limit_reached": SPENT,
        "billing_not_active": SPENT,
        "insufficient_balance": SPENT,
        "insufficient_credits": SPENT,
        "exceeded_current_quota_error": SPENT,
        "credit_balance_too_low": SPENT,
        "arrearage": SPENT,
        "credit_balance_exhausted": SPENT,
        "budget_exceeded": SPENT,
        "in_flight_budget_exhausted": RATE,
        "slow_down": RATE,
        "resource_unavailable": OVERLOAD,
        "capacity_exceeded": OVERLOAD,
        "overloaded_error": OVERLOAD,
        "engine_overloaded_error": OVERLOAD,
    },
    "anthropic": {"contract_spend_limit_reached": SPENT, "enforced_spend_limit_reached": SPENT,
        "linked_organization_billing_unavailable": SPENT, "linked_organization_spend_limit_reached": SPENT,
        "billing_error": SPENT, "overloaded_error": OVERLOAD, "rate_limit_error": RATE},
}  # fmt: skip
"""Code or type of an error → its refusal, for every status."""


@pytest.mark.parametrize(
    ("provider", "code", "refusal"), [(provider, *row) for provider, rows in CODES.items() for row in rows.items()]
)
def test_a_code_gives_the_refusal(provider: str, code: str, refusal: Refusal) -> None:
    body = json.dumps({"type": "error", "error": {"type": code, "message": "No."}})
    assert report(provider, {}, 400, body).refusal is refusal


STATUSES = {
    "openai-chat": {402: SPENT, 429: RATE, 498: OVERLOAD, 503: OVERLOAD, 529: OVERLOAD},
    "anthropic": {402: SPENT, 429: RATE, 503: OVERLOAD, 529: OVERLOAD},
    "google": {402: SPENT, 429: RATE, 503: OVERLOAD},
}


@pytest.mark.parametrize("provider", STATUSES)
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 413, 422, 428, 429, 430, 498, 499, 500, 503, 529])
def test_a_status_alone_gives_the_refusal(provider: str, status: int) -> None:
    assert report(provider, {}, status).refusal is STATUSES[provider].get(status, Refusal.NONE)


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("input tokens per minute: Limit 90", ReportedLimit("input tokens", INPUT, MINUTE, 90)),
        ("output tokens per minute (OTPM): Limit 90", ReportedLimit("output tokens", OUTPUT, MINUTE, 90)),
        ("tokens per second: limit 90", ReportedLimit("tokens", TOKENS, SECOND, 90)),
        ("requests per min (RPM): Limit: 1,090, Used: 1,080", ReportedLimit("requests", REQUESTS, MINUTE, 1090, 10)),
        ("Tokens per day: Limit 90, Used 95", ReportedLimit("tokens per day", TOKENS, DAY, 90, 0)),
    ],
)
def test_openais_message_names_a_limit(words: str, limit: ReportedLimit) -> None:
    body = json.dumps({"error": {"message": f"Rate limit reached on {words}", "code": "rate_limit_exceeded"}})
    found = report("openai-chat", {"retry-after": "1"}, 429, body)
    assert found == QuotaReport((limit,), RATE, limit.unit, 1.0)


@pytest.mark.parametrize(("delay", "hint"), [("0", 0.0), ("0.001", 0.001), ("7", 7.0), ("soon", None)])
def test_the_hint_of_a_refusal_is_in_seconds(delay: str, hint: float | None) -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down."}}
    assert report("anthropic", {"retry-after": delay}, 429, json.dumps(body)) == QuotaReport((), RATE, None, hint)
    for status, details in ((429, [{"retryDelay": f"{delay}s"}]), (403, [{"retryDelay": f"{delay}s"}])):
        error = {"error": {"code": status, "message": "Slow down.", "details": details}}
        refusal = RATE if status == 429 else Refusal.NONE
        assert report("google", {}, status, json.dumps(error)) == QuotaReport((), refusal, None, hint)
