"""Error bodies of Google's servers and of the proxies before them."""

import json
from typing import Any

import pytest

from manystream.providers.gemini import DIALECT, parse_error
from manystream.providers.gemini.errors import REASON_CATEGORY, STATUS_CODES, read_error
from manystream.providers.model.provider_error import ErrorCategory, ProviderError

NOW = 1_700_000_000.0


def body(code: int = 400, message: str = "No.", status: str = "INVALID_ARGUMENT", *details: Any) -> bytes:
    return json.dumps(
        {"error": {"code": code, "message": message, "status": status, "details": list(details)}}
    ).encode()


@pytest.mark.parametrize(
    ("status", "category", "retryable"),
    [
        (400, ErrorCategory.INVALID_ARG, False),
        (401, ErrorCategory.AUTH, False),
        (402, ErrorCategory.UNKNOWN, False),
        (403, ErrorCategory.AUTH, False),
        (404, ErrorCategory.NOT_FOUND, False),
        (408, ErrorCategory.TIMEOUT, True),
        (409, ErrorCategory.UNKNOWN, False),
        (413, ErrorCategory.INVALID_ARG, False),
        (429, ErrorCategory.RATE_LIMIT, True),
        (499, ErrorCategory.UNKNOWN, False),
        (500, ErrorCategory.SERVER, True),
        (501, ErrorCategory.UNKNOWN, False),
        (502, ErrorCategory.SERVER, True),
        (503, ErrorCategory.SERVER, True),
        (504, ErrorCategory.TIMEOUT, True),
    ],
)
def test_the_status_decides_the_category(status: int, category: ErrorCategory, retryable: bool) -> None:
    error = parse_error(status, b"")
    assert (error.category, error.http_status, error.retryable) == (category, status, retryable)
    assert error.message == f"HTTP {status}"


@pytest.mark.parametrize(
    ("name", "status", "category"),
    [  # google/rpc/code.proto says which HTTP status each code maps to.
        ("CANCELLED", 499, ErrorCategory.UNKNOWN),
        ("UNKNOWN", 500, ErrorCategory.SERVER),
        ("INVALID_ARGUMENT", 400, ErrorCategory.INVALID_ARG),
        ("DEADLINE_EXCEEDED", 504, ErrorCategory.TIMEOUT),
        ("NOT_FOUND", 404, ErrorCategory.NOT_FOUND),
        ("ALREADY_EXISTS", 409, ErrorCategory.UNKNOWN),
        ("PERMISSION_DENIED", 403, ErrorCategory.AUTH),
        ("UNAUTHENTICATED", 401, ErrorCategory.AUTH),
        ("RESOURCE_EXHAUSTED", 429, ErrorCategory.RATE_LIMIT),
        ("FAILED_PRECONDITION", 400, ErrorCategory.INVALID_ARG),
        ("ABORTED", 409, ErrorCategory.UNKNOWN),
        ("OUT_OF_RANGE", 400, ErrorCategory.INVALID_ARG),
        ("UNIMPLEMENTED", 501, ErrorCategory.UNKNOWN),
        ("INTERNAL", 500, ErrorCategory.SERVER),
        ("UNAVAILABLE", 503, ErrorCategory.SERVER),
        ("DATA_LOSS", 500, ErrorCategory.SERVER),
    ],
)
def test_inside_a_200_the_status_name_sets_the_category(name: str, status: int, category: ErrorCategory) -> None:
    error = read_error({"error": {"status": name, "message": "x"}}, b"")
    assert (error.category, error.http_status, error.provider_code) == (category, status, name)


def test_every_status_name_is_covered_above() -> None:
    marks = test_inside_a_200_the_status_name_sets_the_category.pytestmark  # type: ignore[attr-defined]
    assert {name for name, _, _ in marks[0].args[1]} == STATUS_CODES.keys()


def test_the_message_is_the_status_name_and_the_servers_text() -> None:
    error = parse_error(400, body(400, "Temperature must be below 2.", "INVALID_ARGUMENT"))
    assert error.message == "INVALID_ARGUMENT: Temperature must be below 2."
    assert error.provider_code == "INVALID_ARGUMENT"


def test_the_http_status_takes_precedence_over_the_bodys_codes() -> None:
    assert parse_error(404, body(400, "x", "INVALID_ARGUMENT")).category is ErrorCategory.NOT_FOUND


def info(reason: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}


REASONS = {  # google/api/error_reason.proto
    "API_KEY_INVALID": ErrorCategory.AUTH,
    "API_KEY_EXPIRED": ErrorCategory.AUTH,
    "API_KEY_SERVICE_BLOCKED": ErrorCategory.AUTH,
    "SERVICE_DISABLED": ErrorCategory.AUTH,
    "ACCESS_TOKEN_EXPIRED": ErrorCategory.AUTH,
    "RATE_LIMIT_EXCEEDED": ErrorCategory.RATE_LIMIT,
}


def test_every_reason_of_the_table_is_tested() -> None:
    assert REASON_CATEGORY.keys() == REASONS.keys()


@pytest.mark.parametrize(("reason", "category"), REASONS.items())
def test_the_reason_takes_precedence_over_the_status(reason: str, category: ErrorCategory) -> None:
    error = parse_error(400, body(400, "No.", "INVALID_ARGUMENT", info(reason)))
    assert (error.category, error.provider_code) == (category, reason)


def test_a_disabled_service_differs_from_a_missing_permission() -> None:
    disabled = parse_error(403, body(403, "Enable it.", "PERMISSION_DENIED", info("SERVICE_DISABLED")))
    denied = parse_error(403, body(403, "No.", "PERMISSION_DENIED"))
    assert disabled.category is denied.category is ErrorCategory.AUTH
    assert (disabled.provider_code, denied.provider_code) == ("SERVICE_DISABLED", "PERMISSION_DENIED")


@pytest.mark.parametrize(
    ("delay", "hint"),
    [
        ("60s", 60_000),
        ("1.5s", 1500),
        ("0s", 0),
        ("48.939935699s", 48_940),
        ("later", -1),
        ("", -1),
        (5, -1),
        ("9" * 400 + "s", -1),
    ],
)
def test_the_retry_delay_is_read_from_the_body(delay: Any, hint: int) -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    assert parse_error(429, body(429, "Slow.", "RESOURCE_EXHAUSTED", detail)).retry_after_ms == hint


def test_without_details_the_delay_is_read_from_the_message() -> None:
    error = parse_error(429, body(429, "Quota exceeded.\nPlease retry in 48.5s.", "RESOURCE_EXHAUSTED"))
    assert error.retry_after_ms == 48_500


def test_without_a_hint_in_the_body_the_headers_count() -> None:
    error = DIALECT.decode_error(503, {"retry-after": "7"}, b"<html>busy</html>", NOW)
    assert (error.retry_after_ms, error.message) == (7000, "busy")
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}
    error = DIALECT.decode_error(429, {"retry-after": "7"}, body(429, "x", "RESOURCE_EXHAUSTED", detail), NOW)
    assert error.retry_after_ms == 2000


def quota(quota_id: str, value: str = "250") -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaMetric": "m", "quotaId": quota_id, "quotaValue": value}],
    }


@pytest.mark.parametrize(
    ("detail", "retryable"),
    [
        (quota("GenerateContentPaidTierInputTokensPerModelPerMinute"), True),
        (quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), False),
        (quota("GenerateRequestsPerMonthPerProject"), False),
        (quota("GenerateRequestsPerMinutePerProject", "0"), False),
        ({"violations": "none"}, True),
    ],
)
def test_a_used_up_daily_quota_is_not_retryable(detail: dict[str, Any], retryable: bool) -> None:
    error = parse_error(429, body(429, "x", "RESOURCE_EXHAUSTED", detail, {"retryDelay": "30s"}))
    assert (error.category, error.retryable) == (ErrorCategory.RATE_LIMIT, retryable)


@pytest.mark.parametrize(
    ("message", "retryable"),
    [
        ("Quota exceeded for metric: m, limit: 0, model: gemini-3-pro\nPlease retry in 45.5s.", False),
        ("Quota exceeded for metric: m, limit: 250, model: gemini-3-pro\nPlease retry in 45.5s.", True),
        ("Quota exceeded for quota metric 'Requests' and limit 'Requests per day per user'", False),
        ("Your prepayment credits are depleted.", False),
        ("Resource has been exhausted (e.g. check quota).", True),
        ("No capacity available for model on the server", True),
    ],
)
def test_a_used_up_quota_is_recognised_in_the_message(message: str, retryable: bool) -> None:
    assert parse_error(429, body(429, message, "RESOURCE_EXHAUSTED")).retryable is retryable
    assert parse_error(503, body(503, message, "UNAVAILABLE")).retryable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'[{"error": {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}}]', "INVALID_ARGUMENT: No."),
        (b'{"error": "plain words"}', "HTTP 400: plain words"),
        (b'{"error": {"message": "only a message"}}', "HTTP 400: only a message"),
        (b'{"error": {"status": "INVALID_ARGUMENT"}}', "INVALID_ARGUMENT"),
        (b'{"message": "from a gateway"}', "HTTP 400: from a gateway"),
        (b'{"error": {"message": {"nested": true}}}', "HTTP 400"),
        (b'{"error": null}', "HTTP 400"),
        (b"[]", "HTTP 400"),
        (b"[1, null]", "HTTP 400"),
        (b"<!doctype html><title>Error 400</title>", "HTTP 400"),
        (b'"text"', "HTTP 400"),
        (b"Bad key", "HTTP 400"),
        (b'{"detail": "Not Found"}', "HTTP 400: Not Found"),
        (
            b'{"detail": [{"loc": ["body", "contents"], "msg": "Field required"}]}',
            "HTTP 400: body.contents: Field required",
        ),
        (b"\xff\xfe", "HTTP 400"),
    ],
)
def test_every_shape_of_body_gives_a_message(text: bytes, message: str) -> None:
    error = parse_error(400, text)
    assert (error.message, error.category, error.body) == (message, ErrorCategory.INVALID_ARG, text)


def test_a_quoted_key_is_removed() -> None:
    key = "AIza" + "Sy0123456789abcdef" * 2
    detail = {"@type": "type.googleapis.com/google.rpc.DebugInfo", "detail": "Invalid API key: hunter2"}
    error = parse_error(400, body(400, f"API key {key} expired.", "INVALID_ARGUMENT", detail))
    for text in (error.message, str(error), repr(error), error.body.decode()):
        assert key not in text
        assert "hunter2" not in text


def test_the_request_id_is_kept_for_the_support_desk() -> None:
    assert DIALECT.decode_error(500, {"x-request-id": "abc"}, b"", NOW).request_id == "abc"


def test_a_body_is_text_or_bytes() -> None:
    assert parse_error(404, body(404, "x", "NOT_FOUND").decode()) == parse_error(404, body(404, "x", "NOT_FOUND"))
    assert isinstance(parse_error(404, ""), ProviderError)
