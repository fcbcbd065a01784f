"""Converts Anthropic's errors to `ProviderError`: bodies of error responses, and `error` events inside a stream.

Source: https://platform.claude.com/docs/en/api/errors. An error's `type` determines its HTTP status, so an event
without a status is classified like the same error with one.
"""

from __future__ import annotations

import re
from typing import TypeGuard

from ..catalog.dialect import Headers
from ..json.json_values import JSON, JSONObject, integer, mapping, string
from ..model.provider_error import RETRYABLE, ErrorCategory, ProviderError, category_of_status
from ..wire.error_bodies import decode_error as decode_any_error
from ..wire.error_bodies import (
    error_from_object,
    is_context_overflow,
    is_nil,
    no_message,
    object_of,
    reported_error,
    request_id_in,
    with_its_envelope,
)
from ..wire.retry_hints import NO_HINT, retry_after_ms

TYPE_STATUS: dict[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

GENERIC_TYPES = frozenset({"invalid_request_error", "api_error"})
"""Types that compatible servers use for all errors. A known HTTP status takes precedence over them."""

SPENT_CODES = frozenset(
    {
        "contract_spend_limit_reached",
        "enforced_spend_limit_reached",
        "linked_organization_billing_unavailable",
        "linked_organization_spend_limit_reached",
    }
)
"""`error.details.error_code`s of a used-up budget: another attempt cannot succeed."""

FILTER_PHRASE = "content filtering policy"
"""The message of an output that Anthropic's filter stopped, which is an invalid_request_error without a code."""

SPENT_PHRASE = re.compile(r"specified API usage limits|credit balance is too low")
"""The message of a used-up balance, or of a spending limit of the customer's own. Anthropic reports both as an
invalid_request_error with status 400.
"""


def error_in(reported: JSON, data: bytes) -> ProviderError:
    """Return the error in an event, or in a body with status 200, of Anthropic's form or any other."""
    if _is_own(reported):
        return _error(0, reported, data, headers={}, now=0.0)
    return error_from_object(reported_error("error", reported), http_status=0, body=data)


def decode_error(status: int, headers: Headers, body: bytes, now: float) -> ProviderError:
    """Convert an error response to an error, as `DecodeError` says."""
    reported = object_of(body)
    if type(reported) is list and reported:
        reported = reported[0]
    if _is_own(reported):
        return _error(status, reported, body, headers, now)
    return decode_any_error(status, headers, body, now)


def _is_own(reported: JSON) -> TypeGuard[JSONObject]:
    """Return whether an error has Anthropic's form: an object with a message and a documented type.

    Any type will do if the error is in an object whose own type is `error`.
    """
    if type(reported) is not dict:
        return False
    error = mapping(reported, "error") or reported
    kind = string(error, "type")
    named = error is not reported and reported.get("type") == "error"
    return bool(kind and string(error, "message")) and ((named and not is_nil(kind)) or kind in TYPE_STATUS)


def _error(status: int, payload: JSONObject, data: bytes, headers: Headers, now: float) -> ProviderError:
    inner = mapping(payload, "error")
    error = with_its_envelope(inner, payload) if inner else payload
    kind = string(error, "type")
    code = string(mapping(error, "details"), "error_code")
    text = string(error, "message") or ""
    known = error_from_object(error, http_status=status, body=b"", now=now)
    passed_on = text.lstrip()[:1] == "{" and known.message != " ".join(text.split())
    if passed_on:  # the JSON of another server's error
        text = known.message
    category = _category(status, kind, text, error)
    if category is ErrorCategory.UNKNOWN or known.category is ErrorCategory.CONTENT_FILTER:
        category = known.category
    elif category is ErrorCategory.INVALID_ARG and known.category is ErrorCategory.AUTH:
        category = known.category  # the words of a closed account
    hint = retry_after_ms(headers, now, status=status)
    may_pass = known.retryable or known.category is not category
    return ProviderError(
        _message(kind, text, status),
        category=category,
        http_status=status,
        provider_code=code or kind,
        retry_after_ms=(known.retry_after_ms if hint == NO_HINT else hint) if category in RETRYABLE else NO_HINT,
        retryable=not _is_spent(code, text) and _should_retry(headers, category in RETRYABLE and may_pass),
        request_id=request_id_in(headers) or string(payload, "request_id"),
        body=data,
        context_overflow=is_context_overflow(category, (code, kind), text),
    )


def _category(status: int, kind: str | None, text: str | None, error: JSONObject) -> ErrorCategory:
    if text is not None and FILTER_PHRASE in text.lower():
        return ErrorCategory.CONTENT_FILTER
    if text is not None and SPENT_PHRASE.search(text):
        return ErrorCategory.RATE_LIMIT
    from_status = category_of_status(status) if status else ErrorCategory.UNKNOWN
    if kind in TYPE_STATUS and (from_status is ErrorCategory.UNKNOWN or kind not in GENERIC_TYPES):
        return category_of_status(TYPE_STATUS[kind])
    if from_status is not ErrorCategory.UNKNOWN:
        return from_status
    # Proxies put a status into the object, as a number or as digits in a text.
    code = integer(error, "code") or integer(error, "status")
    digits = string(error, "code") or ""
    if code is None and digits.isascii() and digits.isdigit():
        code = int(digits[:3])
    return category_of_status(code) if code else ErrorCategory.UNKNOWN


def _is_spent(code: str | None, text: str | None) -> bool:
    return code in SPENT_CODES or SPENT_PHRASE.search(text or "") is not None


def _should_retry(headers: Headers, default: bool) -> bool:
    """Return whether to retry: the server's `x-should-retry` takes precedence over the default."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower(), default)


def _message(kind: str | None, text: str | None, status: int) -> str:
    if text:
        return f"{kind}: {text}" if kind else text
    return kind or no_message(status)
