"""Whole reports of refused requests: the limit that an error names, its unit and window, and where errors are found."""

import json

import pytest

import manystream as ms
from manystream.providers.limits.quota_report import QuotaReport, Refusal, ReportedLimit, Unit
from tests.providers.limit_reports import report

RATE, SPENT, TOO_LARGE, NONE = Refusal.RATE, Refusal.SPENT, Refusal.TOO_LARGE, Refusal.NONE
REQUESTS, TOKENS, INPUT, OUTPUT = Unit.REQUESTS, Unit.TOKENS, Unit.INPUT_TOKENS, Unit.OUTPUT_TOKENS
SECOND, MINUTE, DAY = 1, 60, 86_400


def refused(message: str, status: int = 429, provider: str = "openai-chat", **members: ms.JSON) -> QuotaReport:
    body = json.dumps({"error": {"message": message, **members}})
    return report(provider, {}, status, body)


NAMED: list[tuple[str, ReportedLimit]] = [
    ("on tokens per min (TPM): Limit 10,000, Used 9,500, x", ReportedLimit("tokens", TOKENS, MINUTE, 10000, 500)),
    ("on Tokens per Minute: limit: 10, used: 20", ReportedLimit("tokens", TOKENS, MINUTE, 10, 0)),
    ("on input tokens per second: Limit 10", ReportedLimit("input tokens", INPUT, SECOND, 10, None)),
    ("on output tokens per min: Limit 10, Used 0", ReportedLimit("output tokens", OUTPUT, MINUTE, 10, 10)),
    ("on requests per minute (RPM): Limit 3, Used 3", ReportedLimit("requests", REQUESTS, MINUTE, 3, 0)),
]


@pytest.mark.parametrize(("message", "limit"), NAMED, ids=[row[0] for row in NAMED])
def test_the_limit_that_an_error_names(message: str, limit: ReportedLimit) -> None:
    assert refused(f"Rate limit reached {message}") == QuotaReport((limit,), RATE, limit.unit)


def test_a_limit_per_day_has_its_own_name() -> None:
    limit = ReportedLimit("requests per day", REQUESTS, DAY, 200, 0)
    assert refused("on requests per day (RPD): Limit 200, Used 200") == QuotaReport((limit,), SPENT, REQUESTS)


@pytest.mark.parametrize(("wait", "refusal"), [("60s", RATE), ("61s", SPENT), ("1s", RATE)])
def test_a_used_up_day_with_a_hint(wait: str, refusal: Refusal) -> None:
    found = refused(f"on requests per day (RPD): Limit 2, Used 2. Please try again in {wait}.")
    assert (found.refusal, found.hint) == (refusal, float(wait[:-1]))
    found = refused(f"free-models-per-day is used up. Please try again in {wait}.")
    assert (found.refusal, found.hint, found.limits) == (refusal, float(wait[:-1]), ())


@pytest.mark.parametrize("words", ["per day", "PER-DAY", "per-day"])
def test_words_for_a_day(words: str) -> None:
    assert refused(f"The limit {words} is reached").refusal is SPENT
    assert refused("The limit perday is reached").refusal is RATE


def test_a_header_of_a_used_up_day() -> None:
    headers = {"x-ratelimit-limit-requests": "9", "x-ratelimit-remaining-requests": "0"}
    body = json.dumps({"error": {"message": "Limit"}})
    day = ReportedLimit("requests", REQUESTS, DAY, 9, 0)
    assert report("groq", headers, 429, body) == QuotaReport((day,), SPENT)
    assert report("groq", {**headers, "x-ratelimit-remaining-requests": "1"}, 429, body).refusal is RATE
    assert report("openai-chat", headers, 429, body).refusal is RATE


def test_a_named_limit_that_a_header_has_is_not_added() -> None:
    headers = {"x-ratelimit-limit-tokens": "10", "x-ratelimit-remaining-tokens": "1"}
    body = json.dumps({"error": {"message": "on tokens per min: Limit 10, Used 9"}})
    limit = ReportedLimit("tokens", TOKENS, MINUTE, 10, 1)
    assert report("openai-chat", headers, 429, body) == QuotaReport((limit,), RATE, TOKENS)
    other = json.dumps({"error": {"message": "on requests per min: Limit 5"}})
    named = ReportedLimit("requests", REQUESTS, MINUTE, 5, None)
    assert report("openai-chat", headers, 429, other) == QuotaReport((limit, named), RATE, REQUESTS)


@pytest.mark.parametrize(("kind", "unit"), [("requests", REQUESTS), ("tokens", TOKENS), ("other", None), (5, None)])
def test_the_type_of_an_error_is_the_unit(kind: ms.JSON, unit: Unit | None) -> None:
    assert refused("Limit", type=kind) == QuotaReport((), RATE, unit)


def test_no_quota_at_all() -> None:
    assert refused("on tokens per min: Limit 0, Used 0, Requested 1") == QuotaReport((), SPENT)
    assert refused("on tokens per min: Limit 1, Used 0").refusal is RATE
    assert refused("on tokens per min: Limit 0", 400).refusal is SPENT


@pytest.mark.parametrize(
    ("provider", "status", "members", "refusal"),
    [
        ("openai-chat", 429, {}, TOO_LARGE),
        ("openai-chat", 413, {}, NONE),
        ("openai-chat", 413, {"code": "rate_limit_exceeded"}, TOO_LARGE),
        ("openai-chat", 413, {"type": "Tokens"}, TOO_LARGE),
        ("groq", 413, {}, TOO_LARGE),
        ("groq-responses", 413, {}, TOO_LARGE),
        ("openai-chat", 413, {"type": "other"}, NONE),
    ],
)
def test_a_request_that_is_too_large(provider: str, status: int, members: dict[str, ms.JSON], refusal: Refusal) -> None:
    assert refused("REQUEST too large for it", status, provider, **members).refusal is refusal


def test_the_code_comes_before_the_type() -> None:
    assert refused("x", code="slow_down", type="insufficient_quota").refusal is RATE
    assert refused("x", code="other", type="Insufficient_Quota").refusal is SPENT
    assert refused("on tokens per min: Limit 0", code="slow_down").refusal is RATE


@pytest.mark.parametrize(("value", "refusal"), [("0", SPENT), ("1", RATE)])
def test_mistral_without_a_quota(value: str, refusal: Refusal) -> None:
    headers = {"x-ratelimit-limit-tokens-month": value}
    body = json.dumps({"message": "x"})
    assert report("mistral", headers, 429, body).refusal is refusal
    assert report("openai-chat", headers, 429, body).refusal is RATE


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"message":"x","type":"tokens"}}', '  {"error":{"message":"x","type":"tokens"}}',
        '[{"error":{"message":"x","type":"tokens"}}]', '{"message":"x","type":"tokens"}',
    ],
)  # fmt: skip
def test_the_place_of_an_error(body: str) -> None:
    assert report("openai-chat", {}, 429, body) == QuotaReport((), RATE, TOKENS)


@pytest.mark.parametrize(
    "body", ["", "x", "[]", "[1]", "{", '"tokens"', '{"error":"tokens"}', "x" + '{"type":"tokens"}']
)
def test_a_body_without_an_error_object(body: str) -> None:
    assert report("openai-chat", {}, 429, body) == QuotaReport((), RATE)


def test_headers_within_an_error_are_openrouters_only() -> None:
    headers = {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "other": 5}
    body = json.dumps({"error": {"message": "x", "metadata": {"headers": headers}}})
    limit = ReportedLimit("requests", REQUESTS, MINUTE, 20, 0)
    for name in ("openrouter", "openrouter-responses"):
        assert report(name, {"x-ratelimit-limit": "9"}, 429, body).limits == (limit,)
    assert report("together", {"x-ratelimit-limit": "9"}, 429, body).limits == (
        ReportedLimit("requests", REQUESTS, SECOND, 9, None),
    )


def test_upstream_headers_are_read_if_a_gateway_has_none() -> None:
    upstream = {"llm_provider-x-ratelimit-limit-tokens": "5"}
    own = {"x-ratelimit-limit-tokens": "7"}
    assert report("litellm", upstream).limits == (ReportedLimit("tokens", TOKENS, MINUTE, 5, None),)
    assert report("litellm", {**upstream, **own}).limits == (ReportedLimit("tokens", TOKENS, MINUTE, 7, None),)
    assert report("groq", upstream).limits == ()


def test_an_error_that_is_no_refusal_has_the_limits() -> None:
    headers = {"x-ratelimit-limit-tokens": "7", "x-ratelimit-reset-tokens": "soon", "retry-after": "3"}
    found = report("openai-chat", headers, 400, json.dumps({"error": {"message": "No", "type": "tokens"}}))
    limit = ReportedLimit("tokens", TOKENS, MINUTE, 7, None)
    assert found == QuotaReport((limit,), NONE, None, found.hint, ("x-ratelimit-reset-tokens",))
    found = report("openai-chat", headers, 429, json.dumps({"error": {"message": "No", "type": "tokens"}}))
    assert found == QuotaReport((limit,), RATE, TOKENS, 3, ("x-ratelimit-reset-tokens",))
