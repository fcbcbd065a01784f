"""Error responses and errors in a stream: category, message, hints, and the forms that proxies give them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.anthropic.errors import TYPE_STATUS
from tests.providers.statuses import CASES

from .wire import START, run, sse

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def failed(status: int, body: object, headers: dict[str, str] | None = None) -> ms.ProviderError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return DIALECT.decode_error(status, headers or {}, data, NOW)


def error_body(kind: str, text: str = "why", **members: object) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": text, **members}, "request_id": "req_body"}


TYPES = {
    "invalid_request_error": (400, ms.ErrorCategory.INVALID_ARG, False),
    "authentication_error": (401, ms.ErrorCategory.AUTH, False),
    "billing_error": (402, ms.ErrorCategory.UNKNOWN, False),
    "permission_error": (403, ms.ErrorCategory.AUTH, False),
    "not_found_error": (404, ms.ErrorCategory.NOT_FOUND, False),
    "conflict_error": (409, ms.ErrorCategory.UNKNOWN, False),
    "request_too_large": (413, ms.ErrorCategory.INVALID_ARG, False),
    "rate_limit_error": (429, ms.ErrorCategory.RATE_LIMIT, True),
    "api_error": (500, ms.ErrorCategory.SERVER, True),
    "timeout_error": (504, ms.ErrorCategory.TIMEOUT, True),
    "overloaded_error": (529, ms.ErrorCategory.SERVER, True),
}


def test_every_type_of_the_table_is_tested() -> None:
    assert {kind: status for kind, (status, _, _) in TYPES.items()} == TYPE_STATUS


@pytest.mark.parametrize("kind", TYPES)
def test_a_stream_error_has_the_category_of_its_http_status(kind: str) -> None:
    status, category, retryable = TYPES[kind]
    over_http = failed(status, error_body(kind))
    in_stream = run(START + sse(error_body(kind), "error")).error
    assert in_stream is not None
    for error in (over_http, in_stream):
        assert (error.category, error.retryable) == (category, retryable)
        assert error.message == f"{kind}: why"
        assert error.provider_code == kind
        assert error.request_id == "req_body"
    assert (over_http.http_status, in_stream.http_status) == (status, 0)


@pytest.mark.parametrize(("status", "category"), CASES)
def test_a_status_without_a_readable_body_has_its_category(status: int, category: ms.ErrorCategory) -> None:
    for body in (b"", b"<html></html>", b"{", b"[]", b"null", b"\xff"):
        error = failed(status, body)
        assert error.category is category
        assert error.message == f"HTTP {status}"
        assert error.body == body


@pytest.mark.parametrize(
    ("status", "kind", "category"),
    [
        (429, "invalid_request_error", ms.ErrorCategory.RATE_LIMIT),
        (404, "invalid_request_error", ms.ErrorCategory.NOT_FOUND),
        (401, "api_error", ms.ErrorCategory.AUTH),
        (520, "api_error", ms.ErrorCategory.SERVER),
        (400, "overloaded_error", ms.ErrorCategory.SERVER),
        (500, "rate_limit_error", ms.ErrorCategory.RATE_LIMIT),
        (500, "authentication_error", ms.ErrorCategory.AUTH),
        (418, "novel_error", ms.ErrorCategory.UNKNOWN),
        (503, "novel_error", ms.ErrorCategory.SERVER),
    ],
)
def test_the_more_specific_of_status_and_type_decides(status: int, kind: str, category: ms.ErrorCategory) -> None:
    assert failed(status, error_body(kind)).category is category


@pytest.mark.parametrize(
    ("members", "category"),
    [
        ({"code": 429}, ms.ErrorCategory.RATE_LIMIT),
        ({"status": 503}, ms.ErrorCategory.SERVER),
        ({"code": "429"}, ms.ErrorCategory.RATE_LIMIT),
        ({"code": "429001"}, ms.ErrorCategory.RATE_LIMIT),
        ({"code": "model_gone", "status": 404}, ms.ErrorCategory.NOT_FOUND),
        ({"code": "²"}, ms.ErrorCategory.UNKNOWN),
        ({"code": "777"}, ms.ErrorCategory.UNKNOWN),
        ({}, ms.ErrorCategory.UNKNOWN),
    ],
)
def test_a_status_in_the_body_replaces_an_unknown_one(members: dict[str, Any], category: ms.ErrorCategory) -> None:
    assert failed(418, error_body("novel_error", **members)).category is category
    assert failed(401, error_body("novel_error", **members)).category is ms.ErrorCategory.AUTH


def test_a_filtered_output_is_a_content_filter_error() -> None:
    body = error_body("invalid_request_error", "Output blocked by content filtering policy")
    assert failed(400, body).category is ms.ErrorCategory.CONTENT_FILTER
    in_stream = run(START + sse(body, "error")).error
    assert in_stream.category is ms.ErrorCategory.CONTENT_FILTER


def test_x_should_retry_takes_precedence() -> None:
    assert not failed(529, error_body("overloaded_error"), {"x-should-retry": "false"}).retryable
    assert not failed(529, error_body("overloaded_error"), {"x-should-retry": "False"}).retryable
    assert failed(409, error_body("conflict_error"), {"x-should-retry": "true"}).retryable
    assert failed(529, error_body("overloaded_error"), {"x-should-retry": "perhaps"}).retryable


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "req_body"),
        ({"request-id": "req_header"}, "req_header"),
        ({"x-request-id": "req_x"}, "req_x"),
        ({"request-id": "req_header", "x-request-id": "req_x"}, "req_header"),
    ],
)
def test_the_request_id_comes_from_the_header_or_the_body(headers: dict[str, str], expected: str) -> None:
    assert failed(500, error_body("api_error"), headers).request_id == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, -1),
        ({"retry-after": "7"}, 7000),
        ({"retry-after-ms": "250", "retry-after": "7"}, 250),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:09 GMT"}, 9000),
        ({"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:03Z"},
            3000),
    ],
)  # fmt: skip
def test_the_hint_is_read_from_the_headers(headers: dict[str, str], expected: int) -> None:
    assert failed(429, error_body("rate_limit_error"), headers).retry_after_ms == expected


def test_a_hint_in_the_body_counts_if_no_header_has_one() -> None:
    body = error_body("rate_limit_error", "Please try again in 1 minute")
    assert failed(429, body).retry_after_ms == 60_000
    assert failed(429, body, {"retry-after": "0"}).retry_after_ms == 0
    assert failed(401, error_body("authentication_error", "Please try again in 1 minute")).retry_after_ms == -1


@pytest.mark.parametrize(
    ("body", "text", "code"),
    [
        ({"error": "just words"}, "just words", None),
        ({"error": {"message": "m"}}, "m", None),
        ({"error": {"type": "t"}}, "t", "t"),
        ({"message": "m"}, "m", None),
        ({"detail": "m"}, "m", None),
        ({"type": "error", "message": "m"}, "m", None),
        ({"type": "error", "error": {"type": "<nil>", "message": "m"}}, "m", None),
        ({"type": "error", "error": {"type": "None", "message": "m"}}, "m", None),
        ({"object": "error", "message": "m", "type": "BadRequestError"}, "m", "BadRequestError"),
        ([{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}], "m", "400"),
        (b"Invalid API key", "Invalid API key", None),
        ({"detail": [{"loc": ["body", "model"], "msg": "Field required"}]}, "body.model: Field required", None),
        (b'event: error\ndata: {"type": "error", "error": {"type": "t", "message": "m"}}\n\n', "t: m", "t"),
        (b'\n  {"error": {"message": "m"}}  ', "m", None),
        ({"error": 7}, "HTTP 400", None),
        ({"error": None, "message": None}, "HTTP 400", None),
    ],
)
def test_the_shapes_of_proxies_and_other_servers_are_read(body: object, text: str, code: str | None) -> None:
    error = failed(400, body)
    assert (error.message, error.provider_code, error.category) == (text, code, ms.ErrorCategory.INVALID_ARG)


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (error_body("api_error", "why", details={"error_code": "some_code"}), "api_error: why", "some_code"),
        ({"type": "api_error", "message": "why"}, "api_error: why", "api_error"),
        ({"type": "error", "error": {"type": "novel", "message": "why"}}, "novel: why", "novel"),
        ({"type": "api_error", "message": ""}, "api_error", "api_error"),
        ([error_body("api_error")], "api_error: why", "api_error"),
    ],
)
def test_an_error_of_anthropics_form_has_its_type_and_code(body: object, message: str, code: str) -> None:
    error = failed(500, body)
    assert (error.message, error.provider_code, error.category) == (message, code, ms.ErrorCategory.SERVER)


@pytest.mark.parametrize(
    "text", ["You have reached your specified API usage limits.", "Your credit balance is too low"]
)
def test_a_used_up_balance_is_a_rate_limit_that_is_not_retried(text: str) -> None:
    error = failed(400, error_body("invalid_request_error", text), {"x-should-retry": "true", "retry-after": "7"})
    assert (error.category, error.retryable, error.retry_after_ms) == (ms.ErrorCategory.RATE_LIMIT, False, 7000)


def test_the_body_is_bounded() -> None:
    assert len(failed(500, b"x" * 1_000_000).body) == 4096


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([0, 200, 400, 402, 429, 500, 529, 999]),
    st.binary(max_size=100),
    st.dictionaries(
        st.sampled_from(["retry-after", "request-id", "x-should-retry", "anthropic-ratelimit-tokens-reset"]),
        st.text(max_size=8),
        max_size=3,
    ),
)
def test_reading_an_error_never_raises(status: int, body: bytes, headers: dict[str, str]) -> None:
    assert DIALECT.decode_error(status, headers, body, NOW).message
