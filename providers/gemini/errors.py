"""Converts errors of Google's APIs to `ProviderError`."""

from __future__ import annotations

import re

from ..catalog.dialect import Headers
from ..json.json_values import JSON, JSONObject, integer, mapping, objects, string
from ..model.provider_error import ErrorCategory, ProviderError, category_of_status
from ..model.rules import instance, whole
from ..wire.error_bodies import (
    ERROR,
    VAGUE,
    error_from_object,
    is_context_overflow,
    is_spent,
    no_message,
    object_of,
    reported_error,
    request_id_in,
    with_its_envelope,
)
from ..wire.error_bodies import decode_error as decode_any_error
from ..wire.retry_hints import NO_HINT, hint_ms, retry_after_ms

STATUS_CODES: dict[str, int] = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
}
"""google.rpc.Code → its HTTP status (the mapping in google/rpc/code.proto)."""

REASON_CATEGORY: dict[str, ErrorCategory] = {
    "API_KEY_INVALID": ErrorCategory.AUTH,
    "API_KEY_EXPIRED": ErrorCategory.AUTH,
    "API_KEY_SERVICE_BLOCKED": ErrorCategory.AUTH,
    "SERVICE_DISABLED": ErrorCategory.AUTH,
    "ACCESS_TOKEN_EXPIRED": ErrorCategory.AUTH,
    "RATE_LIMIT_EXCEEDED": ErrorCategory.RATE_LIMIT,
}
"""`ErrorInfo.reason` → category, where it is more specific than the status: a wrong key comes as a 400."""

BLOCK_REASONS: dict[str, str] = {"1": "SAFETY", "2": "OTHER", "3": "BLOCKLIST", "4": "PROHIBITED_CONTENT"}
"""Enum numbers of `promptFeedback.blockReason` with the same meaning in both protobuf definitions."""

NOT_BLOCKED = frozenset({"", "0", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"})
"""Values of `promptFeedback.blockReason` that mean that the prompt was not refused."""

_SPENT = re.compile(r"limit: 0(?![\d.])|\bper day\b|credits are depleted|spending cap", re.ASCII)
"""A used-up quota in a message, for errors without details. A limit of 0 is a quota that the project does not have."""

_SECRETS = re.compile(rb"AIza[0-9A-Za-z_\-]{10,}|(?<=API key: )[^\s\"'\\,]+")
"""Keys in texts: Google's debug details quote the key that was refused."""


def decode_error(status: int, headers: Headers, body: bytes, now: float) -> ProviderError:
    """Convert an error response to an error, as `DecodeError` says."""
    value = object_of(body)
    request_id = request_id_in(headers)
    if _own_error(value) is None:
        error = decode_any_error(status, headers, body, now)
        error.request_id = request_id or error.request_id
        return _safe(error)
    hint = retry_after_ms(headers, now, status=status)
    return read_error(value, body, status=status, header_hint_ms=hint, request_id=request_id, now=now)


def parse_error(status: int, body: bytes | str) -> ProviderError:
    """Convert an error response to an error, from status and body alone. No body makes it raise.

    status: the HTTP status of the answer.
    body: the response's body. Its `error` gives the message, `STATUS: text`, such as
        `RESOURCE_EXHAUSTED: Quota exceeded.`, and the hint of a `RetryInfo`. Without such a word it is
        `HTTP 429: text`, and without an error in the body, such as in a page, `HTTP 503`.

    Raises `InvalidRequestError` for a status that is no number, and a body that is no text or bytes.
    """
    whole(0).check(status, "status")
    instance(str, bytes).check(body, "body")
    data = body.encode() if isinstance(body, str) else body
    error, value = decode_error(status, {}, data, 0.0), object_of(data)
    if _own_error(value) is None:
        error.message = _message(error.message if type(value) is not str else "", None, status)
    return error


def read_error(
    value: JSON,
    body: bytes,
    *,
    status: int = 200,
    header_hint_ms: int = NO_HINT,
    request_id: str | None = None,
    now: float = 0.0,
) -> ProviderError:
    """Convert a parsed error to `ProviderError`.

    value: the error, or the object or array that contains it. An error of another dialect's form is accepted.
    body: the bytes that the error keeps, without keys.
    status: the HTTP status. Below 400 the error is inside an answer, and is classified by its own code.
    header_hint_ms: the hint of the headers in milliseconds, used if the error has none.
    request_id: the provider's id for the request, or None.
    now: the wall clock in Unix seconds; 0 if it is unknown.
    """
    error = _own_error(value)
    if error is None:
        return _safe(error_from_object(reported_error(ERROR, value), http_status=status, body=body))
    name = string(error, "status")
    details = objects(error, "details")
    reason = next((text for detail in details if (text := string(detail, "reason"))), None)
    http_status = status
    if status < 400:
        status = _own_code(error, name) or status
    message = string(error, "message") or ""
    known = error_from_object(error, http_status=status, body=b"", now=now)
    hint = _retry_delay(details)
    if hint == NO_HINT:
        # If a gateway removed the details, the message still has the delay.
        hint = known.retry_after_ms
    category = _category(status, name, reason)
    spent = known.category is ErrorCategory.RATE_LIMIT and not known.retryable
    if known.category is ErrorCategory.CONTENT_FILTER or (spent and category in VAGUE):
        category = known.category  # the words say more than the status
    violations = [violation for detail in details for violation in objects(detail, "violations")]
    spent = spent or (
        category is ErrorCategory.RATE_LIMIT and (any(map(is_spent, violations)) or bool(_SPENT.search(message)))
    )
    return ProviderError(
        _message(message, name, http_status),
        category=category,
        http_status=status,
        provider_code=reason or name,
        retry_after_ms=header_hint_ms if hint == NO_HINT else hint,
        # A daily quota that is used up comes as 429 with a delay of seconds as well.
        retryable=False if spent else None,
        request_id=request_id,
        body=without_secrets(body),
        context_overflow=is_context_overflow(category, (), message),
    )


def blocked(chunk: JSONObject, body: bytes) -> ProviderError | None:
    """Return the error for a refused prompt (`promptFeedback.blockReason`), or None."""
    feedback = mapping(chunk, "promptFeedback")
    value = feedback.get("blockReason")
    reason = str(value) if type(value) is int else value
    if type(reason) is not str or reason in NOT_BLOCKED:
        return None
    reason = BLOCK_REASONS.get(reason, reason)
    explanation = string(feedback, "blockReasonMessage")
    return ProviderError(
        f"prompt blocked: {reason}" + (f": {explanation}" if explanation else ""),
        category=ErrorCategory.CONTENT_FILTER,
        http_status=200,
        provider_code=reason,
        body=body,
    )


def without_secrets(body: bytes) -> bytes:
    """Return the body with quoted keys replaced."""
    return _SECRETS.sub(b"[removed]", body)


def _safe(error: ProviderError) -> ProviderError:
    """Remove the keys that an error quotes, and read the one reason of a refused prompt that has no meaning elsewhere.
    Returns the error.
    """
    if (error.provider_code or "").lower() == "other" and error.category in VAGUE:
        error.category = ErrorCategory.CONTENT_FILTER
    error.message = without_secrets(error.message.encode("utf-8", "replace")).decode()
    error.body = without_secrets(error.body)
    return error


def _own_error(value: JSON) -> JSONObject | None:
    """Return the error object, which may be in an array, if it has Google's form, else None.

    That is a known `status`, or a number as code and no `type`, which is a member of other dialects. An error whose
    message is the JSON of another error is that one: gateways pass errors on so.
    """
    if type(value) is list:
        value = next((member for member in value if type(member) is dict and member.get("error")), None)
    error = value.get("error", value) if type(value) is dict else None
    if type(error) is not dict:
        return None
    if type(value) is dict and error is not value:
        error = with_its_envelope(error, value)
    text = string(error, "message") or ""
    inner = object_of(text.encode("utf-8", "replace")) if text.lstrip()[:1] == "{" else None
    if type(inner) is dict:
        return _own_error(inner)
    if string(error, "status") in STATUS_CODES:
        return error
    is_google = error.get("type") is None and "msg" not in error and integer(error, "code") is not None
    return error if is_google else None


def _own_code(error: JSONObject, name: str | None) -> int | None:
    """Return the error's own HTTP status: its code, or the one of its status name; None if unknown."""
    code = integer(error, "code")
    if code is not None and 400 <= code <= 599:
        return code
    return STATUS_CODES.get(name or "")


def _category(status: int, name: str | None, reason: str | None) -> ErrorCategory:
    if reason in REASON_CATEGORY:
        return REASON_CATEGORY[reason]
    category = category_of_status(status)
    return category_of_status(STATUS_CODES.get(name or "", status)) if category is ErrorCategory.UNKNOWN else category


def _message(text: str, name: str | None, status: int) -> str:
    word = name or (f"HTTP {status}" if status > 200 else "")
    whole = ": ".join(dict.fromkeys(part for part in (word, text) if part))
    return without_secrets(whole.encode("utf-8", "replace")).decode() if whole else no_message(status)


def _retry_delay(details: list[JSONObject]) -> int:
    """Return the hint in the details, in milliseconds; -1 if there is none."""
    delays = [delay for detail in details if (delay := string(detail, "retryDelay"))]
    return next((hint for delay in delays if (hint := hint_ms(delay)) != NO_HINT), NO_HINT)
