"""What the gateway itself has to know of the dialects: where a request goes, its key, and its own errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote

from ..http_server import CONNECTION_HEADERS, BadRequest, HTTPRequest
from ..providers.errors import InvalidRequestError
from ..providers.json.json_values import JSONObject, dumps
from ..providers.model.provider_error import ErrorCategory
from ..transport.exchange import RawHeaders

SLOT_NAME = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]{1,100}"
SLOT_PATH = re.compile(rf"/slots/({SLOT_NAME})(/.*)")
"""A base URL may name a slot: `http://127.0.0.1:8080/slots/task-17`."""

STATUS: Final[dict[ErrorCategory, int]] = dict.fromkeys(ErrorCategory, 502) | {
    ErrorCategory.AUTH: 500, ErrorCategory.CALLBACK: 500,  # the gateway's own key and program, not the client's
    ErrorCategory.INVALID_ARG: 400, ErrorCategory.CONTENT_FILTER: 400, ErrorCategory.BUDGET: 402,
    ErrorCategory.NOT_FOUND: 404, ErrorCategory.RATE_LIMIT: 429, ErrorCategory.CANCELLED: 503,
    ErrorCategory.TIMEOUT: 504,
}  # fmt: skip
"""Category of an error that no provider's answer explains → the status of the response."""

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


@dataclass(slots=True, frozen=True)
class WireDialect:
    """A dialect as its clients speak it.

    name: the dialect's name.
    keep_alive: the bytes in a stream that its clients ignore.
    error: takes a status, a message and a code of our own; returns the JSON of an error.
    event: the name of a stream's event with an error; empty for an event without a name.
    stores: whether its providers keep answers, which later requests name.
    """

    name: str
    keep_alive: bytes
    error: Callable[[int, str, str], JSONObject]
    event: str = ""
    stores: bool = False

    def error_body(self, status: int, message: str, code: str) -> bytes:
        return dumps(self.error(status, message, code))

    def error_event(self, body: bytes) -> bytes:
        """Return an event with an error's JSON, which may have been sent by a provider on several lines."""
        name = f"event: {self.event}\n".encode() if self.event else b""
        return name + b"".join(b"data: %b\n" % line for line in body.splitlines()) + b"\n"


def _openai_error(status: int, message: str, code: str) -> JSONObject:
    kind = OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _responses_error(status: int, message: str, code: str) -> JSONObject:
    return {"type": "error", **_openai_error(status, message, code)}


def _anthropic_error(status: int, message: str, code: str) -> JSONObject:
    kind = ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _google_error(status: int, message: str, code: str) -> JSONObject:
    kind = GOOGLE_STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "UNAVAILABLE")
    return {"error": {"code": status, "message": message, "status": kind}}


_COMMENT = b": keep-alive\n\n"
OPENAI_CHAT = WireDialect("openai-chat", _COMMENT, _openai_error)
ANTHROPIC = WireDialect("anthropic", b'event: ping\ndata: {"type": "ping"}\n\n', _anthropic_error, "error")
INTERACTIONS = WireDialect("gemini-interactions", _COMMENT, _google_error, "error", stores=True)
GEMINI = WireDialect("gemini", b"\n", _google_error)  # google-genai takes a comment for a part of the answer
RESPONSES = WireDialect("openai-responses", _COMMENT, _responses_error, "error", stores=True)

ENDPOINTS: Final[tuple[tuple[str, re.Pattern[str], WireDialect | None], ...]] = tuple(
    (methods, re.compile(pattern), dialect)
    for methods, pattern, dialect in (
        ("POST", r"(?:/v1)?/chat/completions", OPENAI_CHAT),
        ("POST", r"(?:/v1)?/responses", RESPONSES),
        ("POST", r"(?:/v1)?/messages", ANTHROPIC),
        ("POST", r"(?:/v1[a-z]*)?/models/(?P<model>.+):(?P<method>generateContent|streamGenerateContent)", GEMINI),
        ("POST", r"(?:/v1[a-z]*)?/interactions", INTERACTIONS),
        ("GET", r"/v1[a-z]+(?P<rest>/models(?:/[^/]+)?)", GEMINI),
        ("GET", r"(?:/v1)?(?P<rest>/models(?:/.+)?)", None),  # the client's dialect
        ("POST", r"(?:/v1[a-z]*)?/models/(?P<model>.+)(?P<rest>:countTokens)", GEMINI),
        ("POST", r"(?:/v1)?(?P<rest>/messages/count_tokens)", ANTHROPIC),
        ("POST", r"(?:/v1)?(?P<rest>/responses/input_tokens)", RESPONSES),
        ("POST", r"(?:/v1)?(?P<rest>/responses/(?P<answer>[^/]+)/cancel)", RESPONSES),
        ("GET DELETE", r"(?:/v1)?(?P<rest>/responses/(?P<answer>[^/]+)(?:/input_items)?)", RESPONSES),
        ("POST", r"(?:/v1[a-z]*)?(?P<rest>/interactions/(?P<answer>[^/]+)/cancel)", INTERACTIONS),
        ("GET DELETE", r"(?:/v1[a-z]*)?(?P<rest>/interactions/(?P<answer>[^/]+))", INTERACTIONS),
    )
)
"""Methods and path → dialect. OpenAI's clients have `/v1` in their base URL, the others add it: both are understood.

A path with a `rest` is no model call. It is passed on to the dialect's provider.
"""

PREVIOUS = ("previous_response_id", "previous_interaction_id")
"""Members of a body that name an answer that the provider keeps."""

_ROOT = re.compile(r"/(?:chat/completions|responses|messages|interactions|models/[^/]+)\Z")
"""The end of the path of a model call, in every dialect."""

ALIVE = re.compile(r"(?:/slots/[^/]+)?/?(?:healthz?)?")
"""Paths at which a client or a supervisor asks whether the gateway runs."""


@dataclass(slots=True, frozen=True)
class Endpoint:
    """What a request asks for, as far as its path says it.

    dialect: the dialect of the path.
    model: the model of the path; None if the body names it.
    stream: whether the path asks for a stream; None if the body says it.
    rest: for a request that is no model call, the end of its path; else None.
    answer: the id of the answer of which it asks something; else None.
    """

    dialect: WireDialect
    model: str | None = None
    stream: bool | None = None
    rest: str | None = None
    answer: str | None = None

    def place(self, path: str, model: str) -> str:
        """Return the path at a provider of a request that is no model call. path: that of a model call."""
        rest = quote(self.rest or "", safe="/:@")
        root = path.rpartition(":")[0] if rest.startswith(":") else _ROOT.sub("", path)
        if root == path:
            raise InvalidRequestError("model", f"{model!r}: its provider has no {self.rest}")
        return root + rest


class Refusal(BadRequest):
    """A request that the gateway does not take.

    dialect: that of its client.
    retry_after_ms: when it may ask again, in milliseconds; -1 if that is not known.
    """

    def __init__(self, dialect: WireDialect, status: int, message: str, retry_after_ms: int = -1) -> None:
        super().__init__(status, message)
        self.dialect = dialect
        self.retry_after_ms = retry_after_ms


def endpoint_of(request: HTTPRequest, path: str) -> Endpoint:
    """Return what a request asks for. Raises `Refusal` if the gateway has no such path, or not with this method."""
    refused, takes = dialect_of_client(request), ""
    leaves_root = not {".", ".."}.isdisjoint(path.split("/"))
    for methods, pattern, of_path in ENDPOINTS:
        found = None if leaves_root else pattern.fullmatch(path)
        if found is None:
            continue
        parts, dialect = found.groupdict(), of_path or refused
        if request.method in methods.split():
            method = parts.get("method")
            stream = None if method is None else method.startswith("stream")
            return Endpoint(dialect, parts.get("model"), stream, parts.get("rest"), parts.get("answer"))
        refused, takes = dialect, methods.replace(" ", " or ")
    if "upgrade" in request.headers:  # Codex asks for a WebSocket first
        raise Refusal(refused, 426, "the gateway has no WebSockets: send the request over HTTP")
    if takes:
        raise Refusal(refused, 405, f"{path[:200]} takes {takes}, not {request.method}")
    raise Refusal(refused, 404, f"the gateway has no {request.method} {path[:200]}")


def dialect_of_client(request: HTTPRequest) -> WireDialect:
    """Return the dialect of a client whose path is none of a dialect's, by its headers."""
    if "anthropic-version" in request.headers:
        return ANTHROPIC
    return GEMINI if "x-goog-api-key" in request.headers else OPENAI_CHAT


def takes_interim(request: HTTPRequest) -> bool:
    """Return whether a client is known to take interim responses (RFC 9110, 15.2), which requests takes for answers."""
    return request.chunked and _HTTPX.search(request.headers.get("user-agent", "")) is not None


def seconds_waited(request: HTTPRequest, otherwise: float) -> float:
    """Return the seconds in which a client must get a refusal.

    That is its own timeout as its SDK says it, less some for the way back and for what the SDK has rounded.
    """
    for name in TIMEOUT_HEADERS:
        try:
            own = float(request.headers.get(name, ""))
        except ValueError:
            continue
        if 0 < own < math.inf:
            return own - min(max(1.0, own / 10), 5.0, own / 2)
    return otherwise


def key_of(request: HTTPRequest) -> str:
    """Return the key of a client, wherever its dialect puts it; empty if there is none."""
    headers = request.headers
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    named = (headers.get(name, "") for name in ("x-api-key", "api-key", "x-goog-api-key"))
    return bearer or next(filter(None, named), "") or request.query.get("key", "")


def query_of(request: HTTPRequest) -> list[tuple[str, str]]:
    """Return the client's query without its key."""
    pairs = parse_qsl(request.target.partition("?")[2], keep_blank_values=True)
    return [(name, value) for name, value in pairs if name != "key"]


_HTTPX = re.compile(r"(?:OpenAI|Anthropic)/Python|google-genai-sdk/\S{1,64} gl-python|python-httpx")

TIMEOUT_HEADERS = ("x-stainless-read-timeout", "x-stainless-timeout", "x-server-timeout")
"""Headers in which the official SDKs say their timeout in seconds: OpenAI's, Anthropic's and google-genai's."""

SENT_HEADERS = frozenset(
    {"accept", "content-type", "idempotency-key", "openai-beta", "originator", "session-id", "user-agent"}
)
SENT_PREFIXES = ("anthropic-", "x-codex-", "x-session-")


def headers_to_provider(request: HTTPRequest) -> dict[str, str]:
    """Return the headers that a provider gets: those that change the answer, and none that names an account."""
    sent = (each for each in request.headers.items() if each[0] in SENT_HEADERS or each[0].startswith(SENT_PREFIXES))
    return {name: value for name, value in sent if value.isascii()}


_OWN = CONNECTION_HEADERS | {"alt-svc", "set-cookie", "strict-transport-security"}
"""Headers of one connection, and those that mean the provider's host."""


def headers_to_client(headers: RawHeaders) -> list[tuple[str, str]]:
    """Return the headers of a provider's answer that the client gets."""
    decoded = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return [pair for pair in decoded if pair[0].lower() not in _OWN]
