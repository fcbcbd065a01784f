"""An error's head and body → the error that the caller sees.

Knows redirects, and error bodies that come as server-sent events; a dialect reads all others. Must not know attempts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..providers.errors import ErrorCategory, ProviderError
from ..providers.json_values import shown
from ..transport.sse import SSEParser
from .prepared import Prepared

EVENT_STREAM = "text/event-stream"


def read_error(prepared: Prepared, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """What a response reports that is no success."""
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
    """The data of an error body that comes as server-sent events."""
    parser = SSEParser()
    events = [*parser.feed(body), *parser.end()]
    return next((data for _, data in events if data), body)


def _without_query(url: str) -> str:
    return url.partition("?")[0]
