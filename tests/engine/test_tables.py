"""The words and rules that the tables of the engine have.

Names of headers and status codes are the wire's. A new word needs a line here.
"""

from __future__ import annotations

import pytest

from tests.support.tables import table

TABLES: dict[str, object] = {
    "admission.PAUSES": ("Refusal.RATE", "Refusal.OVERLOAD"),
    "attempt.JSON_TYPES": ("application/json", "text/json"),
    "attempt.NO_ANSWER_TYPES": ("text/html", "application/xhtml+xml", "image/", "audio/", "video/"),
    "attempt.NO_CONTENT": {204, 205},
    "attempt.SENT": ("Phase.SEND", "Phase.HEAD", "Phase.BODY"),
    "clocks.STATE_CLOCK": {
        "CallState.QUEUED": "Clock.QUEUE",
        "CallState.CONNECTING": "Clock.CONNECT",
        "CallState.SENDING": "Clock.IDLE",
        "CallState.WAITING": "Clock.FIRST_BYTE",
        "CallState.READING": "Clock.IDLE",
        "CallState.BACKOFF": None,
        "CallState.ENDED": None,
    },
    "call_state.MAY_FOLLOW": {
        "CallState.QUEUED": ("CallState.CONNECTING", "CallState.SENDING", "CallState.BACKOFF", "CallState.ENDED"),
        "CallState.CONNECTING": ("CallState.SENDING", "CallState.QUEUED", "CallState.BACKOFF", "CallState.ENDED"),
        "CallState.SENDING": ("CallState.READING", "CallState.QUEUED", "CallState.BACKOFF", "CallState.ENDED"),
        "CallState.WAITING": ("CallState.READING", "CallState.QUEUED", "CallState.BACKOFF", "CallState.ENDED"),
        "CallState.READING": ("CallState.ENDED", "CallState.BACKOFF", "CallState.QUEUED"),
        "CallState.BACKOFF": ("CallState.QUEUED", "CallState.ENDED"),
        "CallState.ENDED": ("CallState.ENDED",),
    },
    "itinerary.AWAY": ("TicketState.NEW", "TicketState.ENDED"),
    "lane.REFUSAL_CODES": {"Refusal.TOO_LARGE": "request_too_large", "Refusal.SPENT": "quota_spent"},
    "prepare.OWN_HEADERS": {"accept-encoding", "connection", "content-length", "host", "transfer-encoding"},
    "record.REQUEST_HEADERS": {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "openai-beta",
        "user-agent",
    },
    "record.RESPONSE_HEADERS": {
        "cf-ray",
        "content-encoding",
        "content-type",
        "date",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "server",
        "x-goog-request-id",
        "x-request-id",
        "x-should-retry",
    },
    "record.RESPONSE_HEADER_PREFIXES": ("anthropic-ratelimit-", "x-ratelimit-"),
    "redaction.PLACEHOLDERS": {
        "apikey",
        "dummy",
        "empty",
        "fake",
        "local",
        "no-key",
        "none",
        "null",
        "ollama",
        "secret",
        "test",
        "token",
        "unused",
    },
    "redaction.HARMLESS_HEADERS": {
        "accept",
        "accept-encoding",
        "accept-language",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "host",
        "idempotency-key",
        "openai-beta",
        "request-id",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-client-request-id",
        "x-correlation-id",
        "x-request-id",
    },
    "redaction.HARMLESS_QUERY": {"alt", "api-version", "beta"},
    "redaction.SECRET_NAMES": ("auth", "key", "token", "secret", "pass", "cookie", "session", "credential", "sign"),
    "redaction.SCHEMES": ("bearer ", "basic ", "token ", "apikey ", "key "),
    "redaction._NAMED": {'"': "quot", "&": "amp", "'": "apos", "<": "lt", ">": "gt"},
    "traffic.failover.TARGET_FAILURES": {
        "ErrorCategory.AUTH",
        "ErrorCategory.NETWORK",
        "ErrorCategory.NOT_FOUND",
        "ErrorCategory.SERVER",
        "ErrorCategory.TIMEOUT",
    },
    "traffic.failover.CALL_CLOCKS": {"queue", "total"},
    "traffic.failover.KEY_STATUSES": {401, 403},
    "traffic.failover.OTHERS_MAY_TAKE": {"Refusal.SPENT", "Refusal.TOO_LARGE"},
    "traffic.ticket.UNDER_WAY": ("TicketState.SENT", "TicketState.CONFIRMED"),
    "traffic.rate_limit._LIMITS": (
        ("requests_per_second", "Unit.REQUESTS", 1.0),
        ("requests_per_minute", "Unit.REQUESTS", 60.0),
        ("requests_per_day", "Unit.REQUESTS", 86400.0),
        ("tokens_per_minute", "Unit.TOKENS", 60.0),
        ("input_tokens_per_minute", "Unit.INPUT_TOKENS", 60.0),
        ("output_tokens_per_minute", "Unit.OUTPUT_TOKENS", 60.0),
    ),
    "traffic.route_options.MERGED": ("metadata", "extra_body", "extra_headers"),
    "traffic.route_options.OF_THE_CALL": ("retry", "session"),
    "call_state.QUEUED": "CallState.QUEUED",
    "call_state.SENDING": "CallState.SENDING",
    "call_state.ENDED": "CallState.ENDED",
    "clocks.WHAT_WAS_AWAITED": {
        "Clock.CONNECT": "no connection within",
        "Clock.FIRST_BYTE": "no response byte within",
        "Clock.IDLE": "no byte for",
        "Clock.TOTAL": "the call did not end within",
        "Clock.QUEUE": "the call was not sent within",
    },
    "traffic.ticket.NEW": "TicketState.NEW",
    "traffic.ticket.QUEUED": "TicketState.QUEUED",
    "traffic.ticket.SENT": "TicketState.SENT",
    "traffic.ticket.CONFIRMED": "TicketState.CONFIRMED",
    "traffic.ticket.ENDED": "TicketState.ENDED",
}
"""Module and name of a table → its whole content."""


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_these_words_and_no_others(place: str) -> None:
    assert table(f"engine.{place}") == TABLES[place]
