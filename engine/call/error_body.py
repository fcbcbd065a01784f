"""Read the body of an error response, up to its limit, and convert the response to the error that the call reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...providers.catalog.json_stream import DONE_MARK, events_in
from ...providers.json.json_values import leading_json, mapping, shown
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.wire.error_bodies import object_of
from ...transport.errors import TransportError
from ...transport.sse import BARE_LINES, ServerSentEvent, SSEParser
from ..request.prepared import Prepared
from .body import BOM, Body, Form, content_coding, content_of, form_of

_NO_SUCH_PLACE = re.compile(
    r"(?:\w+: )?(?:(?:(?:file|page|path|route|resource|url) )?not found\W*|(?:invalid|unknown) (?:request )?url\b.*"
    r"|(?:cannot|no route for) (?:get|post)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
"""The message of a server that has nothing at the address. Other errors with 404 are about a model, a file or the
like."""

_VERSION = re.compile(r"(/v\d++(?:(?:alpha|beta)\d*+)?)(?=/)")
_TWO_VERSIONS = re.compile(_VERSION.pattern * 2)


@dataclass(slots=True, eq=False, repr=False)
class ErrorBody(Body):
    """The body of an error response. The status is reported even if the body breaks or a timeout ends it."""

    reads_error = True

    _pieces: list[bytes] = field(default_factory=lambda: [], init=False)

    def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self.count(len(data))
        if self.received >= self._attempt.prepared.shared.limits.max_error_bytes:
            self._attempt.close()
            self.end()

    def end(self) -> None:
        attempt, prepared = self._attempt, self._attempt.prepared
        # A body in a coding that was not requested is not read: only the status and the headers are used.
        pieces = [] if content_coding(attempt.headers) else self._pieces
        body = prepared.secrets.hide_bytes(b"".join(pieces).removeprefix(BOM))[: prepared.shared.limits.max_error_bytes]
        error = read_error(prepared, attempt.status, attempt.headers, body)
        if error.request_id is None:
            error.request_id = attempt.request_id
        attempt.failed(error)

    def fail(self, error: TransportError) -> None:
        self.end()

    def expire(self, error: ProviderError) -> None:
        self._attempt.close()
        self.end()


def read_error(prepared: Prepared, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Return the error that a response without success reports."""
    body = _reporting(body)
    where = headers.get("location")
    if 300 <= status < 400 and where is not None:
        return ProviderError(
            f"HTTP {status}: redirects are not followed; the server points to {shown(_without_query(where))}",
            category=ErrorCategory.UNKNOWN,
            http_status=status,
            retryable=False,
        )
    error = prepared.shared.dialect.decode_error(status, headers, body, prepared.shared.wall_clock())
    if is_wrong_address(status, body, error.message):
        add_address(error, prepared)
    return error


def is_wrong_address(status: int, body: bytes, message: str) -> bool:
    """Return whether a response says that the address is wrong, rather than the request.

    message: the message of the error that was read from the body.
    """
    if status not in (404, 405):
        return False
    parsed = object_of(body)
    first = parsed[0] if type(parsed) is list and parsed else parsed  # Gemini's form
    of_dialect = type(first) is dict and bool(mapping(first, "error").get("message"))
    return not of_dialect or _NO_SUCH_PLACE.fullmatch(message) is not None


def add_address(error: ProviderError, prepared: Prepared) -> None:
    """Add to an error's message where the request was sent, and what may be wrong with that address."""
    path = _without_query(prepared.head.target.decode("latin-1"))  # a query may contain a key
    twice = _TWO_VERSIONS.search(path)
    if twice is not None:
        hint = f"is {twice[1]} one too many in the base URL?"
    elif _VERSION.search(path) is None and path.endswith(("/chat/completions", "/responses")):
        hint = "is /v1 missing at the end of the base URL?"
    else:
        hint = "is the base URL right?"
    error.message = f"{error.message} ({prepared.head.method.decode()} {prepared.origin}{path}: {hint})"
    error.args = (error.message,)


def _reporting(body: bytes) -> bytes:
    """Return the part of an error body that reports the error: all of it, or the first event of one, in any form."""
    content = content_of(body)
    events: list[ServerSentEvent] = []
    if form_of(content) is Form.EVENTS:
        parser = SSEParser()
        events = [*parser.feed(content), *parser.end()]
    elif (parts := leading_json(content)) is not None:
        events.append((BARE_LINES, parts[0]))
    found = [data for name, text in events for _, data in (events_in(text) if name == BARE_LINES else [(name, text)])]
    return next((data for data in found if data.strip() not in (b"", DONE_MARK)), content)


def _without_query(url: str) -> str:
    return url.partition("?")[0]
