"""Errors of a gateway's own in the forms of the dialects, as their clients read them."""

from __future__ import annotations

from typing import Final

from ..json.json_types import JSONObject

OPENAI_TYPES: Final[dict[int, str]] = {
    401: "authentication_error", 402: "insufficient_quota", 403: "permission_error", 429: "rate_limit_error",
}  # fmt: skip
ANTHROPIC_TYPES: Final[dict[int, str]] = {
    401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip
GOOGLE_STATUSES: Final[dict[int, str]] = {
    401: "UNAUTHENTICATED", 402: "RESOURCE_EXHAUSTED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip


def openai_error(status: int, message: str, code: str) -> JSONObject:
    """Return an error in OpenAI's, of Chat and Completions form. code: a word of the gateway's own."""
    kind = OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def responses_error(status: int, message: str, code: str) -> JSONObject:
    """Return an error in OpenAI's, of Responses form. code: a word of the gateway's own."""
    return {"type": "error", **openai_error(status, message, code)}


def anthropic_error(status: int, message: str, code: str) -> JSONObject:
    """Return an error in Anthropic's form. code: a word of the gateway's own."""
    kind = ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def google_error(status: int, message: str, code: str) -> JSONObject:
    """Return an error in Google's form. code: a word of the gateway's own."""
    kind = GOOGLE_STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "UNAVAILABLE")
    return {"error": {"code": status, "message": message, "status": kind}}
