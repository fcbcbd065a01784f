"""What a request of a client asks for, by its path and its headers, and the gateway's own errors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote

from .. import Dialect, ErrorCategory, InvalidRequestError, Provider, ProviderError
from ..http_server import CONNECTION_HEADERS, BadRequest, HTTPRequest
from ..providers.catalog.registry import DIALECT_MODULES, DIALECTS, PROMPT_DIALECTS, dialect_of
from ..providers.json.json_values import dumps
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

EVERY_DIALECT: Final = (*DIALECT_MODULES, *PROMPT_DIALECTS)
CLIENT_HEADERS: Final = {"anthropic-version": "anthropic", "x-goog-api-key": "gemini"}
"""Header that only the clients of a dialect send → the dialect."""

NO_WEBSOCKET: Final = "the gateway has WebSockets at /v1/responses alone: send the request over HTTP"
RESPONSES: Final = "openai-responses"
"""The dialect whose model calls come over WebSockets, too."""

PREVIOUS = ("previous_response_id", "previous_interaction_id")
"""Members of a body that name an answer that the provider keeps."""

_ROOT = re.compile(
    r"/(?:(?:chat/)?completions|responses|messages|interactions|models/[^/]+|(?:inference/v1/)?generate)\Z"
)
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

    dialect: Dialect
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

    def __init__(self, dialect: Dialect, status: int, message: str, retry_after_ms: int = -1) -> None:
        super().__init__(status, message)
        self.dialect = dialect
        self.retry_after_ms = retry_after_ms


Served: TypeAlias = Sequence[tuple[str, re.Pattern[str], Dialect | None]]
"""Methods, path and dialect; None: the client's."""


def served_by(providers: Sequence[Provider]) -> Served:
    """Return the paths of all dialects, those of the providers' first: two kinds of server have some paths in common.

    Paths that no provider serves are known as well, so that the error says why.
    """
    known: dict[str, Dialect] = {}
    for each in (*(dialect_of(provider.profile) for provider in providers), *map(DIALECTS.__getitem__, EVERY_DIALECT)):
        known.setdefault(each.name, each)
    paths = [(methods, re.compile(path), each) for each in known.values() for methods, path in each.served]
    return [*paths, ("GET", re.compile(r"(?:/v1)?(?P<rest>/models(?:/.+)?)"), None)]


def endpoint_of(request: HTTPRequest, path: str, served: Served) -> Endpoint:
    """Return what a request asks for. Raises `Refusal` if the gateway has no such path, or not with this method."""
    refused, takes = dialect_of_client(request), ""
    leaves_root = not {".", ".."}.isdisjoint(path.split("/"))
    for methods, pattern, of_path in served:
        found = None if leaves_root else pattern.fullmatch(path)
        if found is None:
            continue
        parts, dialect = found.groupdict(), of_path or refused
        if ("POST" if asks_for_websocket(request) else request.method) in methods.split():
            method = parts.get("method")
            stream = None if method is None else method.startswith("stream")
            return Endpoint(dialect, parts.get("model"), stream, parts.get("rest"), parts.get("answer"))
        refused, takes = dialect, methods.replace(" ", " or ")
    if asks_for_websocket(request):
        raise Refusal(refused, 426, NO_WEBSOCKET)
    if takes:
        raise Refusal(refused, 405, f"{path[:200]} takes {takes}, not {request.method}")
    raise Refusal(refused, 404, f"the gateway has no {request.method} {path[:200]}")


def asks_for_websocket(request: HTTPRequest) -> bool:
    """Return whether a request is to open a WebSocket, on which model calls come."""
    return request.method == "GET" and "websocket" in request.headers.get("upgrade", "").lower()


def dialect_of_client(request: HTTPRequest) -> Dialect:
    """Return the dialect of a client whose path is none of a dialect's, by its headers."""
    return DIALECTS[next((name for each, name in CLIENT_HEADERS.items() if each in request.headers), "openai-chat")]


def error_body(dialect: Dialect, status: int, message: str, code: str) -> bytes:
    """Return an error of the gateway's own."""
    return dumps(dialect.own_error(status, message, code))


def message_to_client(error: ProviderError) -> str:
    """Return an error's message for a client, which may learn the name of the provider and not its address."""
    if error.category is not ErrorCategory.NETWORK:
        message, found, where = error.message.rpartition(" (")  # the address may be the end of the message
        return message if found and "://" in where and where.endswith(")") else error.message
    reason = getattr(error.__cause__, "strerror", None) or error.provider_code
    return f"the connection to the provider {error.provider!r} failed ({reason})"


def error_event(dialect: Dialect, body: bytes) -> bytes:
    """Return an event with an error's JSON, which may have been sent by a provider on several lines."""
    name = f"event: {dialect.error_name}\n".encode() if dialect.error_name else b""
    return name + b"".join(b"data: %b\n" % line for line in body.splitlines()) + b"\n"


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
