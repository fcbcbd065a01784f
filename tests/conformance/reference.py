"""Convert the reference's reading of a recorded response to an `Outcome`."""

from __future__ import annotations

import re

from manystream.providers.json.json_values import JSON, JSONObject, items, mapping, objects, string

from .corpus import Case
from .outcome import Call, Failure, Outcome, arguments_of

STATUS_CATEGORY: dict[int, str] = {
    400: "invalid_arg", 401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 413: "invalid_arg",
    422: "invalid_arg", 429: "rate_limit", 500: "server", 502: "server", 503: "server", 504: "timeout", 529: "server",
}  # fmt: skip
"""HTTP status → the category if the body is not more specific. A deliberate second copy of the library's table."""

WORD_CATEGORY: dict[str, str] = {
    "overloaded_error": "server",
    "api_error": "server",
    "server_error": "server",
    "internal_server_error": "server",
    "UNAVAILABLE": "server",
    "INTERNAL": "server",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "insufficient_quota": "rate_limit",
    "tokens": "rate_limit",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "tool_use_failed": "invalid_arg",
    "invalid_request_error": "invalid_arg",
    "INVALID_ARGUMENT": "invalid_arg",
    "FAILED_PRECONDITION": "invalid_arg",
    "authentication_error": "auth",
    "PERMISSION_DENIED": "auth",
    "not_found_error": "not_found",
    "NOT_FOUND": "not_found",
}
"""Code or type of an error inside a 200 → category."""

NO_READING = frozenset({"AssertionError", "JSONDecodeError", "UnknownApiResponseError", "APIResponseValidationError"})
"""Exceptions that the official libraries raise when they fail themselves. They only show that there is an error."""

_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]")


def reference_of(case: Case) -> Outcome:
    """Return the outcome of the reference's reading."""
    expected = case.reference
    calls = _gemini_calls(expected) if case.dialect == "gemini" else _calls(expected)
    return Outcome(
        text=string(expected, "text") or "",
        thinking=string(expected, "thinking") or "",
        signatures=[str(value) for value in items(expected, "thinking_signatures") if value],
        redacted=[str(value) for value in items(expected, "redacted") if value],
        calls=calls,
        finish_reason=string(expected, "finish_reason"),
        usage=expected.get("usage"),
        model=string(expected, "model"),
        refusal=string(expected, "refusal") or "",
        error=_failure(case, mapping(expected, "error")) if expected.get("error") else None,
    )


def _calls(expected: JSONObject) -> list[Call]:
    return [
        Call(string(call, "id") or None, string(call, "name") or "", _arguments(call.get("arguments")))
        for call in objects(expected, "tool_calls")
    ]


def _arguments(value: JSON) -> JSON:
    return arguments_of(value) if isinstance(value, str) else ({} if value is None else value)


def _failure(case: Case, error: JSONObject) -> Failure:
    if string(error, "type") in NO_READING:
        return Failure(None, None, None)
    if case.dialect == "anthropic":
        inner = mapping(mapping(error, "body"), "error")
        code, message = string(inner, "type"), string(inner, "message")
    elif case.dialect == "gemini":
        inner = mapping(mapping(error, "details"), "error")
        code, message = string(error, "status"), string(inner, "message")
    elif case.dialect == "gemini-interactions":
        body = error.get("body")
        outer = body[0] if isinstance(body, list) else body
        inner = (mapping(outer, "error") or outer) if isinstance(outer, dict) else {}
        code, message = string(inner, "status") or string(inner, "code"), string(inner, "message")
    else:
        body = error.get("body")
        code = string(error, "code") or string(error, "error_type")
        message = string(body, "message") if isinstance(body, dict) else None
    category = STATUS_CATEGORY.get(case.status, "unknown") if case.status >= 400 else _category_in_band(error, code)
    return Failure(category, code, message)


def _category_in_band(error: JSONObject, code: str | None) -> str | None:
    if code is not None and code.isdigit():
        return STATUS_CATEGORY.get(int(code), "unknown")
    for word in (code, string(error, "error_type")):
        if word in WORD_CATEGORY:
            return WORD_CATEGORY[word]
    return None


# --- Gemini's streamed arguments ---


def _gemini_calls(expected: JSONObject) -> list[Call]:
    """Return the calls, with streamed arguments joined.

    A part with a name begins a call, and parts without a name continue it. It ends with the first part without
    `willContinue`.
    """
    calls: list[Call] = []
    open_call: Call | None = None
    for part in objects(expected, "tool_calls"):
        name = string(part, "name")
        if name or open_call is None:
            open_call = Call(string(part, "id") or None, name or "", _arguments(part.get("arguments")))
            calls.append(open_call)
        for piece in objects(part, "partialArgs"):
            open_call.arguments = _placed(open_call.arguments, _steps(string(piece, "jsonPath") or ""), piece)
        if part.get("willContinue") is not True:
            open_call = None
    return calls


def _steps(path: str) -> list[str | int]:
    return [int(index) if index else (name or quoted) for name, index, quoted in _PATH_STEP.findall(path)]


def _placed(target: JSON, steps: list[str | int], piece: JSONObject) -> JSON:
    """Return the arguments with one piece inserted at its path; text is appended to existing text."""
    if not steps:
        text = string(piece, "stringValue")
        if text is not None:
            return (target if isinstance(target, str) else "") + text
        for kind in ("numberValue", "boolValue"):
            if kind in piece:
                return piece[kind]
        return None if "nullValue" in piece else target
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        array = target if isinstance(target, list) else []
        while len(array) <= step:
            array.append(None)
        array[step] = _placed(array[step], rest, piece)
        return array
    mapped = target if isinstance(target, dict) else {}
    mapped[step] = _placed(mapped.get(step), rest, piece)
    return mapped
