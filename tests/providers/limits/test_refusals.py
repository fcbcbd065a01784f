"""Refusals that the HTTP status alone does not show: other errors with 429, errors inside answers, limits of 0."""

import json

import pytest

import manystream as ms
from manystream.providers.anthropic.errors import error_in
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.limits.limit_reports import reader_of
from manystream.providers.limits.quota_report import Refusal, ReportedLimit, Unit
from manystream.providers.wire.error_bodies import error_from_object
from tests.providers.limit_reports import NOW, report

NO_LIMIT: list[tuple[str, str, ms.JSON]] = [
    ("openai-chat", "a model that is not there", {"error": {"message": "no", "code": "model_not_available"}}),
    ("openai-chat", "a wrong key", {"error": {"message": "no", "code": "invalid_api_key"}}),
    ("openai-chat", "a filter", {"error": {"message": "no", "code": "content_filter"}}),
    ("openai-chat", "a wrong value", {"error": {"message": "no", "code": "invalid_value"}}),
    ("anthropic", "a model that is not there", {"type": "error", "error": {"type": "not_found_error", "message": "m"}}),
    ("anthropic", "OpenAI's form", {"error": {"message": "no", "code": "model_not_found"}}),
    ("google", "OpenAI's form", {"error": {"message": "no", "code": "model_not_found"}}),
]


@pytest.mark.parametrize(
    ("provider", "body"), [(row[0], row[2]) for row in NO_LIMIT], ids=[f"{r[0]} {r[1]}" for r in NO_LIMIT]
)
def test_a_429_whose_code_is_of_no_limit(provider: str, body: ms.JSON) -> None:
    assert report(provider, {"retry-after": "1"}, 429, json.dumps(body)).refusal is Refusal.NONE


SPENT: list[tuple[str, str, int, dict[str, str], ms.JSON]] = [
    ("openai-chat", "no attempts", 429, {"x-should-retry": "false"}, {"error": {"message": "Limit", "code": "429"}}),
    ("openai-chat", "words", 429, {}, {"error": {"message": "You exceeded your current quota, check your plan"}}),
    ("openrouter", "nested", 429, {}, {"error": {"message": "Provider returned error", "code": 429,
     "metadata": {"raw": '{"error": {"message": "no", "code": "insufficient_quota"}}'}}}),
    ("openai-chat", "a limit of 0", 429, {}, {"error": {"type": "requests", "code": "rate_limit_exceeded", "message":
     "Rate limit reached for gpt-5 on requests per min (RPM): Limit 0, Used 0, Requested 1."}}),
    ("anthropic", "a limit of 0", 429, {}, {"type": "error", "error": {"type": "rate_limit_error", "message":
     "This request would exceed your organization's rate limit of 0 input tokens per minute"}}),
    ("anthropic", "no balance", 400, {}, {"type": "error", "error": {"type": "invalid_request_error", "message":
     "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "status", "headers", "body"), [(r[0], *r[2:]) for r in SPENT], ids=[f"{r[0]} {r[1]}" for r in SPENT]
)
def test_no_wait_helps(provider: str, status: int, headers: dict[str, str], body: ms.JSON) -> None:
    assert report(provider, headers, status, json.dumps(body)).refusal is Refusal.SPENT


@pytest.mark.parametrize("number", ["10", "50,000", "100"])
def test_a_limit_above_0_is_waited_for(number: str) -> None:
    message = f"Rate limit reached for gpt-5 on requests per min (RPM): Limit {number}, Used {number}, Requested 1."
    assert report("openai-chat", {}, 429, json.dumps({"error": {"message": message}})).refusal is Refusal.RATE
    message = f"This request would exceed your organization's rate limit of {number} requests per minute"
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": message}}
    assert report("anthropic", {}, 429, json.dumps(body)).refusal is Refusal.RATE


@pytest.mark.parametrize("comma", [",", ", "])
def test_a_header_that_a_proxy_repeats_counts_once(comma: str) -> None:
    values = {"limit": "60", "remaining": "59", "reset": "1s"}
    headers = {f"x-ratelimit-{part}-requests": f"{value}{comma}{value}" for part, value in values.items()}
    assert report("openai-chat", headers).limits == (ReportedLimit("requests", Unit.REQUESTS, 60, 60, 59, 1),)
    values = {"limit": "60", "remaining": "59", "reset": "2026-09-21T14:13:30Z"}
    headers = {f"anthropic-ratelimit-requests-{part}": f"{value}{comma}{value}" for part, value in values.items()}
    assert report("anthropic", headers).limits == (ReportedLimit("requests", Unit.REQUESTS, 60, 60, 59, 10),)


@pytest.mark.parametrize("value", ["1,000", "600, 100", "100, 100;w=60", ",", "60,"])
def test_several_different_values_are_ignored(value: str) -> None:
    found = report("openai-chat", {"x-ratelimit-limit-requests": value})
    assert (found.limits, found.ignored) == ((), ("x-ratelimit-limit-requests",))


def test_a_prompt_that_is_longer_than_the_plan_allows() -> None:
    message = "Extra usage is required for long context requests."
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": message}}
    assert report("anthropic", {}, 429, json.dumps(body)).refusal is Refusal.TOO_LARGE


@pytest.mark.parametrize(
    "message", ["Your credit balance is too low", "You have reached your specified API usage limits."]
)
def test_a_used_up_balance_is_no_wrong_request(message: str) -> None:
    error = error_in({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, b"")
    assert (error.category, error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)


ACCOUNT: list[tuple[str, ms.ErrorCategory]] = [
    ("Your credit balance is too low to access the Anthropic API.", ms.ErrorCategory.RATE_LIMIT),
    ("You have reached your specified API usage limits.", ms.ErrorCategory.RATE_LIMIT),
    ("This organization has been disabled.", ms.ErrorCategory.AUTH),
    ("Your account org-1 has been suspended, contact us", ms.ErrorCategory.AUTH),
    ("Your organization is not disabled, tools is", ms.ErrorCategory.INVALID_ARG),
]


@pytest.mark.parametrize(("message", "category"), ACCOUNT)
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"])
@pytest.mark.parametrize("status", [400, 200])
def test_an_account_that_serves_nothing_is_no_wrong_request(
    dialect: str, message: str, category: ms.ErrorCategory, status: int
) -> None:
    """Gateways pass Anthropic's words on, in the form of another dialect."""
    inner: ms.JSON = {"type": "invalid_request_error", "message": message}
    body: ms.JSON = {"type": "error", "error": inner} if dialect == "anthropic" else {"error": inner}
    decode = DIALECTS[dialect].decode_error
    error = decode(status, {}, json.dumps(body).encode(), NOW)
    assert (error.category, error.retryable) == (category, False)


INSIDE: list[tuple[ms.JSON, Refusal]] = [
    ({"code": 429, "message": "Provider returned error"}, Refusal.RATE),
    ({"code": "429", "message": "Provider returned error"}, Refusal.RATE),
    ({"code": 503, "message": "Provider returned error"}, Refusal.OVERLOAD),
    ({"code": 529, "message": "Provider returned error"}, Refusal.OVERLOAD),
    ({"code": 402, "message": "Provider returned error"}, Refusal.SPENT),
    ({"code": 502, "message": "Provider returned error"}, Refusal.NONE),
    ({"type": "too_many_requests", "message": "slower"}, Refusal.RATE),
    ({"code": "insufficient_quota", "message": "no"}, Refusal.SPENT),
    ({"code": 400, "message": "no"}, Refusal.NONE),
    ({"message": "no"}, Refusal.NONE),
]


@pytest.mark.parametrize(("inner", "refusal"), INSIDE)
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_a_refusal_inside_an_answer(dialect: str, inner: ms.JSON, refusal: Refusal) -> None:
    """An answer begins with status 200, and the server behind a gateway refuses afterwards."""
    body = json.dumps({"error": inner}).encode()
    if dialect == "anthropic":
        error = error_in({"error": inner}, body)
    else:
        error = error_from_object(inner, http_status=200, body=body)
    assert reader_of(dialect)(dialect, {}, NOW, error, body).refusal is refusal
