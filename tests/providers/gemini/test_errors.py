"""Error bodies of Google's servers and of the proxies before them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini import DIALECT, parse_error
from manystream.providers.gemini.errors import REASON_CATEGORY, STATUS_CODES, read_error
from tests.providers.gemini.wire import (
    PROVIDER,
    Ids,
)

NOW = 1_700_000_000.0


def body(code: int = 400, message: str = "No.", status: str = "INVALID_ARGUMENT", *details: Any) -> bytes:
    return json.dumps(
        {"error": {"code": code, "message": message, "status": status, "details": list(details)}}
    ).encode()


@pytest.mark.parametrize(
    ("status", "category", "retryable"),
    [
        (400, ms.ErrorCategory.INVALID_ARG, False),
        (401, ms.ErrorCategory.AUTH, False),
        (402, ms.ErrorCategory.UNKNOWN, False),
        (403, ms.ErrorCategory.AUTH, False),
        (404, ms.ErrorCategory.NOT_FOUND, False),
        (408, ms.ErrorCategory.TIMEOUT, True),
        (409, ms.ErrorCategory.UNKNOWN, False),
        (413, ms.ErrorCategory.INVALID_ARG, False),
        (429, ms.ErrorCategory.RATE_LIMIT, True),
        (499, ms.ErrorCategory.UNKNOWN, False),
        (500, ms.ErrorCategory.SERVER, True),
        (501, ms.ErrorCategory.UNKNOWN, False),
        (502, ms.ErrorCategory.SERVER, True),
        (503, ms.ErrorCategory.SERVER, True),
        (504, ms.ErrorCategory.TIMEOUT, True),
    ],
)
def test_the_status_decides_the_category(status: int, category: ms.ErrorCategory, retryable: bool) -> None:
    error = parse_error(status, b"")
    assert (error.category, error.http_status, error.retryable) == (category, status, retryable)
    assert error.message == f"HTTP {status}"


@pytest.mark.parametrize(
    ("name", "status", "category"),
    [  # google/rpc/code.proto says which HTTP status each code maps to.
        ("CANCELLED", 499, ms.ErrorCategory.UNKNOWN),
        ("UNKNOWN", 500, ms.ErrorCategory.SERVER),
        ("INVALID_ARGUMENT", 400, ms.ErrorCategory.INVALID_ARG),
        ("DEADLINE_EXCEEDED", 504, ms.ErrorCategory.TIMEOUT),
        ("NOT_FOUND", 404, ms.ErrorCategory.NOT_FOUND),
        ("ALREADY_EXISTS", 409, ms.ErrorCategory.UNKNOWN),
        ("PERMISSION_DENIED", 403, ms.ErrorCategory.AUTH),
        ("UNAUTHENTICATED", 401, ms.ErrorCategory.AUTH),
        ("RESOURCE_EXHAUSTED", 429, ms.ErrorCategory.RATE_LIMIT),
        ("FAILED_PRECONDITION", 400, ms.ErrorCategory.INVALID_ARG),
        ("ABORTED", 409, ms.ErrorCategory.UNKNOWN),
        ("OUT_OF_RANGE", 400, ms.ErrorCategory.INVALID_ARG),
        ("UNIMPLEMENTED", 501, ms.ErrorCategory.UNKNOWN),
        ("INTERNAL", 500, ms.ErrorCategory.SERVER),
        ("UNAVAILABLE", 503, ms.ErrorCategory.SERVER),
        ("DATA_LOSS", 500, ms.ErrorCategory.SERVER),
    ],
)
def test_inside_a_200_the_status_name_sets_the_category(name: str, status: int, category: ms.ErrorCategory) -> None:
    error = read_error({"error": {"status": name, "message": "x"}}, b"")
    assert (error.category, error.http_status, error.provider_code) == (category, status, name)


def test_every_status_name_is_covered_above() -> None:
    marks = test_inside_a_200_the_status_name_sets_the_category.pytestmark  # type: ignore[attr-defined]
    assert {name for name, _, _ in marks[0].args[1]} == STATUS_CODES.keys()


def test_the_message_is_the_status_name_and_the_servers_text() -> None:
    error = parse_error(400, body(400, "Temperature must be below 2.", "INVALID_ARGUMENT"))
    assert error.message == "INVALID_ARGUMENT: Temperature must be below 2."
    assert error.provider_code == "INVALID_ARGUMENT"


def info(reason: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}


REASONS = {  # google/api/error_reason.proto
    "API_KEY_INVALID": ms.ErrorCategory.AUTH,
    "API_KEY_EXPIRED": ms.ErrorCategory.AUTH,
    "API_KEY_SERVICE_BLOCKED": ms.ErrorCategory.AUTH,
    "SERVICE_DISABLED": ms.ErrorCategory.AUTH,
    "ACCESS_TOKEN_EXPIRED": ms.ErrorCategory.AUTH,
    "RATE_LIMIT_EXCEEDED": ms.ErrorCategory.RATE_LIMIT,
}


def test_every_reason_of_the_table_is_tested() -> None:
    assert REASON_CATEGORY.keys() == REASONS.keys()


@pytest.mark.parametrize(("reason", "category"), REASONS.items())
def test_the_reason_takes_precedence_over_the_status(reason: str, category: ms.ErrorCategory) -> None:
    error = parse_error(400, body(400, "No.", "INVALID_ARGUMENT", info(reason)))
    assert (error.category, error.provider_code) == (category, reason)


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
    assert (error.category, error.retryable) == (ms.ErrorCategory.RATE_LIMIT, retryable)


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
    assert (error.message, error.category, error.body) == (message, ms.ErrorCategory.INVALID_ARG, text)


def test_a_body_is_text_or_bytes() -> None:
    assert parse_error(404, body(404, "x", "NOT_FOUND").decode()) == parse_error(404, body(404, "x", "NOT_FOUND"))
    assert isinstance(parse_error(404, ""), ms.ProviderError)


def test_a_refused_prompt_is_an_error_with_its_reason_and_body() -> None:
    body = b'{"promptFeedback": {"blockReason": 4, "blockReasonMessage": ""}}'
    with pytest.raises(ms.ProviderError) as raised:
        DIALECT.decode(body, PROVIDER, Ids())
    assert raised.value == ms.ProviderError(
        "prompt blocked: PROHIBITED_CONTENT", category=ms.ErrorCategory.CONTENT_FILTER, http_status=200,
        provider_code="PROHIBITED_CONTENT", body=body,
    )  # fmt: skip


# --- errors of the API ---
@pytest.mark.parametrize(
    ("value", "status", "code", "category"),
    [
        ({"error": {"code": 400, "message": "m"}}, 400, None, ms.ErrorCategory.INVALID_ARG),
        ({"error": {"code": 599, "message": "m"}}, 599, None, ms.ErrorCategory.SERVER),
        ({"error": {"code": 501, "message": "m"}}, 501, None, ms.ErrorCategory.UNKNOWN),
        ({"error": {"code": 399, "message": "m"}}, 200, None, ms.ErrorCategory.UNKNOWN),
        ({"error": {"code": 600, "message": "m"}}, 200, None, ms.ErrorCategory.UNKNOWN),
        ({"error": {"code": 600, "status": "UNAVAILABLE"}}, 503, "UNAVAILABLE", ms.ErrorCategory.SERVER),
        ({"code": 404, "message": "m"}, 404, None, ms.ErrorCategory.NOT_FOUND),
        ([None, {"a": 1}, {"error": {"status": "ABORTED"}}], 409, "ABORTED", ms.ErrorCategory.UNKNOWN),
        ({"error": {"code": 429, "type": "x", "message": "m"}}, 200, "429", ms.ErrorCategory.RATE_LIMIT),
        ({"error": {"code": "429", "message": "m"}}, 200, "429", ms.ErrorCategory.RATE_LIMIT),
    ],
)
def test_an_error_inside_an_answer_has_its_own_status(
    value: Any, status: int, code: str | None, category: ms.ErrorCategory
) -> None:
    error = read_error(value, b"body")
    assert (error.http_status, error.provider_code, error.category, error.body) == (status, code, category, b"body")


def failed(status: int, error: dict[str, Any], headers: dict[str, str] | None = None) -> ms.ProviderError:
    return DIALECT.decode_error(status, headers or {}, json.dumps({"error": error}).encode(), 0.0)


QUOTA: dict[str, Any] = {"code": 429, "status": "RESOURCE_EXHAUSTED"}


def test_an_error_status_takes_precedence_over_the_bodys_code() -> None:
    error = failed(400, QUOTA)
    assert (error.http_status, error.category) == (400, ms.ErrorCategory.INVALID_ARG)
    error = failed(399, QUOTA)
    assert (error.http_status, error.category) == (429, ms.ErrorCategory.RATE_LIMIT)


def test_half_a_character_in_a_message_is_replaced() -> None:
    for value in ({"error": {"status": "UNAVAILABLE", "message": "a\ud800"}}, {"error": {"message": "a\ud800"}}):
        assert read_error(value, b"").message.removeprefix("UNAVAILABLE: ") == "a?"  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("UNAVAILABLE", ms.ErrorCategory.SERVER),
        ("RESOURCE_EXHAUSTED", ms.ErrorCategory.RATE_LIMIT),
        ("ABORTED", ms.ErrorCategory.UNKNOWN),
        (None, ms.ErrorCategory.UNKNOWN),
    ],
)
def test_the_status_name_replaces_an_unknown_status(name: str | None, category: ms.ErrorCategory) -> None:
    error = failed(418, {"code": 418, "status": name, "message": "m"})
    assert (error.http_status, error.category) == (418, category)
    assert failed(403, {"code": 403, "status": name, "message": "m"}).category is ms.ErrorCategory.AUTH


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"x-request-id": "a"}, "a"),
        ({"x-goog-request-id": "b"}, "b"),
        ({"x-request-id": "a", "x-goog-request-id": "b"}, "b"),
    ],
)
def test_googles_request_id_takes_precedence(headers: dict[str, str], expected: str | None) -> None:
    assert failed(429, QUOTA, headers).request_id == expected
    assert DIALECT.decode_error(500, headers, b"", 0.0).request_id == expected


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ({"message": "Please retry in 1m30s."}, 90_000),
        ({"message": "Retry in 250ms"}, 250),
        ({"message": "Please try again in 2 hours."}, 7_200_000),
        ({"message": "Please retry in a while."}, 7000),
        ({"details": [{"retryDelay": "soon"}, {"retryDelay": "3s"}]}, 3000),
        ({"message": "retry in 9s", "details": [{"retryDelay": "3s"}]}, 3000),
        ({"message": "retry in 9s", "details": [{"retryDelay": "soon"}]}, 9000),
        ({}, 7000),
    ],
)
def test_the_first_readable_delay_counts(error: dict[str, Any], hint: int) -> None:
    assert failed(429, {**QUOTA, **error}, {"retry-after": "7"}).retry_after_ms == hint


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"message": "limit: 0"}, False),
        ({"message": "limit: 0, model: x"}, False),
        ({"message": "limit: 0.5"}, True),
        ({"message": "limit: 05"}, True),
        ({"message": "60 requests per day"}, False),
        ({"message": "super dayly"}, True),
        ({"message": "Your project reached its spending cap."}, False),
        ({"details": [{"violations": [{"quotaValue": 0}]}]}, False),
        ({"details": [{"violations": [{"quotaValue": 1}, {"quotaId": "ModelPerDay"}]}]}, False),
        ({"details": [{}, {"violations": [{"quotaId": "PerMinute", "quotaValue": "10"}]}]}, True),
    ],
)
def test_a_quota_without_an_end_in_sight_is_not_retried(error: dict[str, Any], retryable: bool) -> None:
    assert failed(429, {**QUOTA, **error}).retryable is retryable


def test_a_key_is_removed_from_every_form_of_error() -> None:
    key = "AIza" + "0123456789"
    for body in (
        {"error": {"code": 400, "message": f"Bad key {key}.", "status": "INVALID_ARGUMENT"}},
        {"message": f"Bad key {key}."},
        {"error": {"message": "API key: hunter2", "type": "x"}},
    ):
        error = DIALECT.decode_error(400, {}, json.dumps(body).encode(), 0.0)
        assert error.message.removeprefix("INVALID_ARGUMENT: ") in ("Bad key [removed].", "API key: [removed]")
        assert b"[removed]" in error.body
        assert key.encode() not in error.body
    assert failed(400, {"code": 400, "message": "AIza012345678"}).message == "HTTP 400: AIza012345678"


def test_the_longest_context_is_named_as_such() -> None:
    text = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."
    assert failed(400, {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}).context_overflow
    assert not failed(400, {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}).context_overflow
