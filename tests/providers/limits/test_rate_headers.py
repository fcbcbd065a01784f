"""Limits in each server's headers and errors, row by row as the servers send them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manystream.providers.anthropic import rate_limits as anthropic
from manystream.providers.limits.quota_report import (
    DAY,
    MINUTE,
    MONTH,
    SECOND,
    QuotaReport,
    Refusal,
    ReportedLimit,
    Unit,
)
from manystream.providers.openai import rate_limits as openai
from tests.providers.limit_reports import NOW, report

REQUESTS, INPUT, OUTPUT, TOKENS = Unit.REQUESTS, Unit.INPUT_TOKENS, Unit.OUTPUT_TOKENS, Unit.TOKENS


HEADER_ROWS: list[tuple[str, str, dict[str, str], tuple[ReportedLimit, ...]]] = [
    (
        "openai",
        "openai-chat",
        {
            "x-ratelimit-limit-requests": "500",
            "x-ratelimit-remaining-requests": "499",
            "x-ratelimit-reset-requests": "120ms",
            "x-ratelimit-limit-tokens": "150000",
            "x-ratelimit-remaining-tokens": "149984",
            "x-ratelimit-reset-tokens": "6m0s",
            "x-ratelimit-limit-project-tokens": "30000",
            "x-ratelimit-remaining-project-tokens": "29000",
            "x-ratelimit-reset-project-tokens": "2s",
        },
        (
            ReportedLimit("requests", REQUESTS, MINUTE, 500, 499, 0.12),
            ReportedLimit("tokens", TOKENS, MINUTE, 150000, 149984, 360),
            ReportedLimit("project-tokens", TOKENS, MINUTE, 30000, 29000, 2),
        ),
    ),
    ("openai, the day's tokens under the minute's name", "openai-responses",
        {"x-ratelimit-limit-tokens": "2000000", "x-ratelimit-remaining-tokens": "60000",
        "x-ratelimit-reset-tokens": "23h18m29.144s"},
        (ReportedLimit("tokens per day", TOKENS, DAY, 2000000, 60000, 83909.144),)),
    ("azure", "azure", {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-limit-tokens": "10000", "x-ratelimit-remaining-tokens": "9000", "x-ratelimit-reset-tokens": "7"},
        (ReportedLimit("requests", REQUESTS, MINUTE, 60, 59, None),
        ReportedLimit("tokens", TOKENS, MINUTE, 10000, 9000, 7))),
    ("azure, unknown", "azure", {"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "-1",
        "x-ratelimit-limit-tokens": "0", "x-ratelimit-remaining-tokens": "0"}, ()),
    (
        "groq: requests are per day",
        "groq",
        {
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-reset-requests": "2m59.56s",
            "x-ratelimit-limit-tokens": "18000",
            "x-ratelimit-remaining-tokens": "17997",
            "x-ratelimit-reset-tokens": "7.66s",
        },
        (
            ReportedLimit("requests", REQUESTS, DAY, 14400, 14370, 179.56),
            ReportedLimit("tokens", TOKENS, MINUTE, 18000, 17997, 7.66),
        ),
    ),
    (
        "cerebras",
        "cerebras",
        {
            "x-ratelimit-limit-requests-day": "1000000000",
            "x-ratelimit-remaining-requests-day": "999997455",
            "x-ratelimit-reset-requests-day": "33011.382867",
            "x-ratelimit-limit-tokens-minute": "1000000",
            "x-ratelimit-remaining-tokens-minute": "999000",
            "x-ratelimit-reset-tokens-minute": "11.382867",
        },
        (
            ReportedLimit("requests-day", REQUESTS, DAY, 1e9, 999997455, 33011.382867),
            ReportedLimit("tokens-minute", TOKENS, MINUTE, 1e6, 999000, 11.382867),
        ),
    ),
    (
        "mistral: no reset",
        "mistral",
        {
            "x-ratelimit-limit-req-minute": "60",
            "x-ratelimit-remaining-req-minute": "58",
            "x-ratelimit-limit-tokens-minute": "500000",
            "x-ratelimit-remaining-tokens-minute": "499900",
            "x-ratelimit-limit-tokens-month": "1000000000",
            "x-ratelimit-remaining-tokens-month": "5",
        },
        (
            ReportedLimit("req-minute", REQUESTS, MINUTE, 60, 58),
            ReportedLimit("tokens-minute", TOKENS, MINUTE, 500000, 499900),
            ReportedLimit("tokens-month", TOKENS, MONTH, 1e9, 5),
        ),
    ),
    ("together: per second", "together", {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "9",
        "x-ratelimit-reset": "1", "x-tokenlimit-limit": "3000", "x-tokenlimit-remaining": "2500"},
        (ReportedLimit("requests", REQUESTS, SECOND, 10, 9, 1), ReportedLimit("tokens", TOKENS, SECOND, 3000, 2500))),
    (
        "fireworks: over the limit and served",
        "fireworks",
        {
            "x-ratelimit-limit-tokens-prompt": "60000",
            "x-ratelimit-remaining-tokens-prompt": "59000",
            "x-ratelimit-limit-tokens-generated": "6000",
            "x-ratelimit-remaining-tokens-generated": "0",
            "x-ratelimit-over-limit": "yes",
        },
        (
            ReportedLimit("tokens-prompt", INPUT, MINUTE, 60000, 59000),
            ReportedLimit("tokens-generated", OUTPUT, MINUTE, 6000, 0),
        ),
    ),
    ("litellm: the server behind it", "openai-compatible",
        {"llm_provider-x-ratelimit-limit-requests": "10000", "llm_provider-x-ratelimit-remaining-requests": "9999",
        "llm_provider-x-ratelimit-reset-requests": "6ms"},
        (ReportedLimit("requests", REQUESTS, MINUTE, 10000, 9999, 0.006),)),
    (
        "anthropic: `tokens` is no limit of its own",
        "anthropic",
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2026-09-21T14:13:21Z",
            "anthropic-ratelimit-tokens-limit": "48000",
            "anthropic-ratelimit-tokens-remaining": "48000",
            "anthropic-ratelimit-input-tokens-limit": "40000",
            "anthropic-ratelimit-input-tokens-remaining": "39000",
            "anthropic-ratelimit-input-tokens-reset": "2026-09-21T14:13:20Z",
            "anthropic-ratelimit-output-tokens-limit": "8000",
            "anthropic-ratelimit-output-tokens-remaining": "8000",
            "anthropic-ratelimit-output-tokens-reset": "2025-09-21T14:13:20Z",
            "anthropic-priority-input-tokens-limit": "10000",
            "anthropic-priority-input-tokens-remaining": "9618",
            "anthropic-priority-input-tokens-reset": "2026-09-21T14:14:20Z",
        },
        (
            ReportedLimit("requests", REQUESTS, MINUTE, 50, 49, 1),
            ReportedLimit("input-tokens", INPUT, MINUTE, 40000, 39000, 0),
            ReportedLimit("output-tokens", OUTPUT, MINUTE, 8000, 8000, None),
            ReportedLimit("input-tokens", INPUT, MINUTE, 10000, 9618, 60, "priority"),
        ),
    ),
    ("deepseek says nothing", "deepseek", {"content-type": "text/event-stream"}, ()),
    ("gemini says nothing", "google", {"x-ratelimit-limit-requests": "5"}, ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "headers", "limits"), [row[1:] for row in HEADER_ROWS], ids=[r[0] for r in HEADER_ROWS]
)
def test_headers(provider: str, headers: dict[str, str], limits: tuple[ReportedLimit, ...]) -> None:
    assert report(provider, headers) == QuotaReport(limits)


@pytest.mark.parametrize("junk", ["-1", "0", "NaN", "nan", "inf", "1e308", "", "1_000", "much", "0x10"])
def test_a_malformed_limit_is_ignored(junk: str) -> None:
    headers = {"x-ratelimit-limit-tokens": junk, "x-ratelimit-remaining-tokens": "100"}
    assert report("openai-chat", headers) == QuotaReport()


@pytest.mark.parametrize("junk", ["-1", "NaN", "1e308", "much"])
def test_a_malformed_remaining_amount_keeps_the_limit(junk: str) -> None:
    headers = {"x-ratelimit-limit-tokens": "600", "x-ratelimit-remaining-tokens": junk}
    assert report("openai-chat", headers).limits == (ReportedLimit("tokens", TOKENS, MINUTE, 600, None),)


def error_body(message: str, **members: str) -> str:
    import json

    return json.dumps({"error": {"message": message, **members}})


def google_body(*violations: dict[str, str], delay: str = "", message: str = "Resource exhausted") -> str:
    import json

    details: list[object] = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": list(violations)}]
    if delay:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    error = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}
    return json.dumps({"error": error})


PER_MINUTE = {
    "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
    "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
    "quotaValue": "15",
}
INPUT_PER_MINUTE = {
    "quotaMetric": "generativelanguage.googleapis.com/generate_content_paid_tier_input_token_count",
    "quotaId": "GenerateContentPaidTierInputTokensPerModelPerMinute",
    "quotaValue": "1000000",
}
PER_DAY = {**PER_MINUTE, "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "200"}
TPM = (
    "Rate limit reached for gpt-4 in organization org on tokens per min (TPM): Limit 10000, Used 9500, Requested 1000. "
)
RPD = "Rate limit reached for gpt-4 in organization org on requests per day (RPD): Limit 200, Used 200, Requested 1. "

REFUSALS: list[tuple[str, str, int, dict[str, str], str, Refusal, Unit | None, float | None]] = [
    ("openai tokens", "openai-chat", 429, {}, error_body(TPM + "Please try again in 3s.", type="tokens",
     code="rate_limit_exceeded"), Refusal.RATE, TOKENS, 3.0),
    ("openai hint in ms first", "openai-chat", 429, {"retry-after": "1", "retry-after-ms": "250"},
     error_body("Rate limit reached", type="requests", code="rate_limit_exceeded"), Refusal.RATE, REQUESTS, 0.25),
    ("openai day", "openai-chat", 429, {}, error_body(RPD + "Please try again in 7m12s.", type="requests",
     code="rate_limit_exceeded"), Refusal.SPENT, REQUESTS, 432.0),
    ("openai day that refills soon", "openai-chat", 429, {}, error_body(RPD + "Please try again in 8.64s.",
     type="requests", code="rate_limit_exceeded"), Refusal.RATE, REQUESTS, 8.64),
    ("openai too large", "openai-chat", 429, {}, error_body(
     "Request too large for gpt-4 on tokens per min (TPM): Limit 10000, Requested 12000.", type="tokens",
     code="rate_limit_exceeded"), Refusal.TOO_LARGE, TOKENS, None),
    ("openai no money", "openai-chat", 429, {}, error_body("You exceeded your current quota",
     type="insufficient_quota", code="insufficient_quota"), Refusal.SPENT, None, None),
    ("openai too steep a ramp", "openai-chat", 503, {}, error_body("Slow down", type="slow_down"), Refusal.RATE,
     None, None),
    ("openai overloaded", "openai-chat", 503, {}, error_body("The engine is currently overloaded"),
     Refusal.OVERLOAD, None, None),
    ("openai flex", "openai-chat", 429, {}, error_body("Flex is full", code="resource_unavailable"),
     Refusal.OVERLOAD, None, None),
    ("openai bad request", "openai-chat", 400, {}, error_body("No such parameter"), Refusal.NONE, None, None),
    ("azure", "azure", 429, {"retry-after-ms": "1500", "retry-after": "2"},
     error_body("Requests to the ChatCompletions_Create Operation have exceeded", code="429"), Refusal.RATE, None, 1.5),
    ("groq too large", "groq", 413, {}, error_body(
     "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 9000", type="tokens",
     code="rate_limit_exceeded"), Refusal.TOO_LARGE, TOKENS, None),
    ("groq flex full", "groq", 498, {}, error_body("Flex tier capacity exceeded"), Refusal.OVERLOAD, None, None),
    ("mistral has no quota", "mistral", 429, {"x-ratelimit-limit-req-minute": "0"},
     error_body("Rate limit exceeded"), Refusal.SPENT, None, None),
    ("deepseek no money", "deepseek", 402, {}, error_body("Insufficient Balance"), Refusal.SPENT, None, None),
    ("deepseek full", "deepseek", 503, {}, error_body("Server overloaded"), Refusal.OVERLOAD, None, None),
    ("openrouter in flight", "openrouter", 402, {}, error_body("Too much in flight",
     code="in_flight_budget_exhausted"), Refusal.RATE, None, None),
    ("openrouter no credits", "openrouter", 402, {}, error_body("Insufficient credits"), Refusal.SPENT, None, None),
    ("litellm budget", "openai-compatible", 400, {}, error_body("Budget has been exceeded! Current cost: 2",
     type="budget_exceeded"), Refusal.SPENT, None, None),
    ("vllm full", "openai-compatible", 503, {}, "queue is full", Refusal.OVERLOAD, None, None),
    ("anthropic input", "anthropic", 429, {"retry-after": "12"}, error_body(
     "This request would exceed your organization's rate limit of 50,000 input tokens per minute.",
     type="rate_limit_error"), Refusal.RATE, INPUT, 12.0),
    ("anthropic requests", "anthropic", 429, {}, error_body(
     "Number of requests has exceeded your per-minute rate limit", type="rate_limit_error"), Refusal.RATE, REQUESTS,
     None),
    ("anthropic connections", "anthropic", 429, {}, error_body(
     "Number of concurrent connections has exceeded your rate limit", type="rate_limit_error"), Refusal.OVERLOAD,
     None, None),
    ("anthropic will never allow it", "anthropic", 429, {"x-should-retry": "false"}, error_body(
     "Extra usage is required", type="rate_limit_error"), Refusal.SPENT, None, None),
    ("anthropic allows it later", "anthropic", 429, {"x-should-retry": "true"}, error_body(
     "This request would exceed your rate limit", type="rate_limit_error"), Refusal.RATE, None, None),
    ("anthropic overloaded", "anthropic", 529, {}, error_body("Overloaded", type="overloaded_error"),
     Refusal.OVERLOAD, None, None),
    ("anthropic overloaded, by the status alone", "anthropic", 529, {}, "<html>Site is overloaded</html>",
     Refusal.OVERLOAD, None, None),
    ("anthropic unavailable, by the status alone", "anthropic", 503, {}, "", Refusal.OVERLOAD, None, None),
    ("anthropic spent", "anthropic", 400, {}, error_body(
     "You have reached your specified API usage limits. You will regain access on 2026-10-01",
     type="invalid_request_error"), Refusal.SPENT, None, None),
    ("anthropic billing", "anthropic", 402, {}, error_body("Your credit balance", type="billing_error"),
     Refusal.SPENT, None, None),
    ("gemini minute", "google", 429, {}, google_body(PER_MINUTE, delay="22s"), Refusal.RATE, REQUESTS, 22.0),
    ("gemini input", "google", 429, {}, google_body(INPUT_PER_MINUTE, delay="3s"), Refusal.RATE, INPUT, 3.0),
    ("gemini day with a short delay", "google", 429, {}, google_body(PER_DAY, delay="11s"), Refusal.SPENT, REQUESTS,
     11.0),
    ("gemini in a list", "google", 429, {}, f"[{google_body(PER_DAY, delay='11s')}]", Refusal.SPENT, REQUESTS, 11.0),
    ("gemini limit 0", "google", 429, {}, google_body({**PER_MINUTE, "quotaValue": "0"}), Refusal.SPENT, REQUESTS,
     None),
    ("gemini without details", "google", 429, {}, '{"error": {"code": 429, "message": "Quota exceeded for metric: '
     'generativelanguage.googleapis.com/generate_requests, limit: 15\\nPlease retry in 4.5s."}}', Refusal.RATE,
     REQUESTS, 4.5),
    ("gemini behind a gateway, limit 0", "google", 429, {}, '{"detail": "Quota is used up, limit: 0, model: m"}',
     Refusal.SPENT, None, None),
    ("gemini behind a gateway, limit 0.5", "google", 429, {}, '{"detail": "Quota is used up, limit: 0.5, model: m"}',
     Refusal.RATE, None, None),
    ("gemini prepaid credits gone", "google", 429, {}, '{"error": {"code": 429, "message": "Your prepayment credits '
     'are depleted.", "status": "RESOURCE_EXHAUSTED"}}', Refusal.SPENT, None, None),
    ("gemini no money", "google", 402, {}, '{"error": {"code": 402, "message": "Payment required"}}', Refusal.SPENT,
     None, None),
    ("vertex says nothing", "google", 429, {}, '{"error": {"code": 429, "message": "Resource exhausted.", '
     '"status": "RESOURCE_EXHAUSTED"}}', Refusal.RATE, None, None),
    ("gemini unavailable", "google", 503, {}, '{"error": {"code": 503, "status": "UNAVAILABLE"}}', Refusal.OVERLOAD,
     None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "status", "headers", "body", "refusal", "unit", "hint"),
    [r[1:] for r in REFUSALS],
    ids=[r[0] for r in REFUSALS],
)
def test_refusals(
    provider: str,
    status: int,
    headers: dict[str, str],
    body: str,
    refusal: Refusal,
    unit: Unit | None,
    hint: float | None,
) -> None:
    found = report(provider, headers, status, body)
    assert (found.refusal, found.refused_by, found.hint) == (refusal, unit, hint)


def test_an_error_names_its_limit() -> None:
    found = report("openai-chat", {}, 429, error_body(TPM, type="tokens", code="rate_limit_exceeded"))
    assert found.limits == (ReportedLimit("tokens", TOKENS, MINUTE, 10000, 500),)
    found = report("google", {}, 429, google_body(PER_MINUTE))
    assert found.limits == (ReportedLimit("requests", REQUESTS, MINUTE, 15, 0),)


def test_a_unit_without_a_number_is_no_limit() -> None:
    words = "Number of requests has exceeded your per-minute rate limit"
    found = report("anthropic", {}, 429, error_body(words, type="rate_limit_error"))
    assert (found.limits, found.refused_by) == ((), REQUESTS)


def test_openrouter_repeats_its_headers_within_the_error() -> None:
    reset = round((NOW + 40) * 1000)
    body = (
        '{"error": {"code": 429, "message": "Rate limit exceeded: free-models-per-min", "metadata": {"headers": '
        f'{{"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "{reset}"}}}}}}}}'
    )
    found = report("openrouter", {}, 429, body)
    assert found.refusal is Refusal.RATE
    assert found.limits == (ReportedLimit("requests", REQUESTS, MINUTE, 20, 0, 40),)
    spent = report(
        "openrouter", {}, 429, body.replace("per-min", "per-day").replace(str(reset), str(reset + 36_000_000))
    )
    assert spent.refusal is Refusal.SPENT


@given(
    st.sampled_from(["openai-chat", "groq", "mistral", "openrouter", "together", "anthropic", "google"]),
    st.text(),
    st.binary(),
)
def test_no_input_raises(provider: str, text: str, body: bytes) -> None:
    names = [name for row in openai.SERVER_HEADERS.get(provider, ()) for name in (row.limit, row.remaining, row.reset)]
    names += [name for row in anthropic.HEADERS for name in (row.limit, row.remaining, row.reset)]
    for status in (200, 429, 503):
        report(provider, dict.fromkeys(names, text), status, body.decode("latin-1"))


IGNORED_ROWS: list[tuple[str, str, dict[str, str], tuple[str, ...]]] = [
    ("unknown, as Azure writes it", "azure",
        {"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "-1", "x-ratelimit-limit-tokens": "0"},
        ("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens")),
    ("a rest without a limit", "openai-chat", {"x-ratelimit-remaining-requests": "5"},
        ("x-ratelimit-remaining-requests",)),
    ("junk beside a limit", "openai-chat",
        {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "NaN",
        "x-ratelimit-reset-requests": "soon"}, ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")),
    ("a date of last year", "anthropic",
        {"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "1e308",
        "anthropic-ratelimit-requests-reset": "2020-01-01T00:00:00Z"},
        ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset")),
    ("junk of openrouter", "openrouter", {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "-1",
        "x-ratelimit-reset": "1767225600000"}, ("x-ratelimit-remaining", "x-ratelimit-reset")),
    ("in order", "openai-chat", {"x-ratelimit-limit-requests": "5", "x-ratelimit-remaining-requests": "4"}, ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "headers", "ignored"), [row[1:] for row in IGNORED_ROWS], ids=[row[0] for row in IGNORED_ROWS]
)
def test_headers_that_say_nothing_are_named(provider: str, headers: dict[str, str], ignored: tuple[str, ...]) -> None:
    assert report(provider, headers).ignored == ignored


PAST_RESETS: list[tuple[str, dict[str, str]]] = [
    (
        "anthropic",
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "50",
            "anthropic-ratelimit-requests-reset": reset,
        },
    )
    for reset in ("2026-09-21T14:13:19Z", "2026-09-21T14:13:20Z", "2026-09-21T12:30:00Z")
] + [
    (
        "openrouter",
        {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "20", "x-ratelimit-reset": str(round(NOW - 5) * 1000)},
    ),
    (
        "openai-chat",
        {
            "x-ratelimit-limit-requests": "20",
            "x-ratelimit-remaining-requests": "20",
            "x-ratelimit-reset-requests": "0s",
        },
    ),
]


@pytest.mark.parametrize(("provider", "headers"), PAST_RESETS, ids=range(len(PAST_RESETS)))
def test_a_reset_that_has_passed_is_not_ignored(provider: str, headers: dict[str, str]) -> None:
    """Such a report is as old as an unstreamed answer took, or the two clocks differ."""
    found = report(provider, headers)
    assert found.ignored == ()
    assert [limit.reset <= 0 for limit in found.limits] == [True]


ROWS = {**openai.SERVER_HEADERS, "openai-chat": openai.OPENAI_HEADERS, "anthropic": anthropic.HEADERS}
"""Profile → the rows of its headers."""

JUNK = ["-1", "NaN", "1e308", "2025-09-21T14:13:20Z", "much"]


@pytest.mark.parametrize("junk", [*JUNK, "0"])
@pytest.mark.parametrize("provider", ROWS)
def test_junk_as_a_limit_is_ignored_and_named_in_every_dialect(provider: str, junk: str) -> None:
    headers = {name: junk for row in ROWS[provider] for name in (row.limit, row.remaining, row.reset) if name}
    found = report(provider, headers)
    assert found.limits == ()
    assert set(found.ignored) == {row.limit for row in ROWS[provider]}


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("provider", ROWS)
def test_junk_beside_a_limit_is_ignored_in_every_dialect(provider: str, junk: str) -> None:
    headers = {name: junk for row in ROWS[provider] for name in (row.remaining, row.reset) if name}
    found = report(provider, headers | {row.limit: "600" for row in ROWS[provider]})
    assert {(limit.limit, limit.remaining, limit.reset) for limit in found.limits} <= {(600.0, None, None)}
    assert len(found.limits) == len(ROWS[provider])
    assert set(found.ignored) == set(headers)
