"""Convert an error response's head and body to the error that the caller receives."""

from __future__ import annotations

from collections.abc import Mapping

from ....providers.errors import ErrorCategory, ProviderError
from ....providers.json.json_values import shown
from ....transport.sse import SSEParser
from ...request.prepared import Prepared

EVENT_STREAM = "text/event-stream"


def read_error(prepared: Prepared, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Return the error that a response without success reports."""
    if headers.get("content-type", "").startswith(EVENT_STREAM):
        body = _first_event_data(body)
    where = headers.get("location")
    if 300 <= status < 400 and where is not None:
        return ProviderError(
            f"HTTP {status}: redirects are not followed; the server points to {shown(_without_query(where))}",
            category=ErrorCategory.UNKNOWN,
            http_status=status,
            retryable=False,
        )
    return prepared.dialect.decode_error(status, headers, body, prepared.wall_clock())


def _first_event_data(body: bytes) -> bytes:
    """Return the data of the first event of an error body in the form of server-sent events."""
    parser = SSEParser()
    events = [*parser.feed(body), *parser.end()]
    return next((data for _, data in events if data), body)


def _without_query(url: str) -> str:
    return url.partition("?")[0]
