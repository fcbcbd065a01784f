"""The recorded requests and the statistics of the simulator: `GET /sim/requests` and `GET /sim/statistics`.

Credentials are redacted before a request is stored.
"""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import asdict, dataclass

from ..http_server import HTTPRequest
from .json_text import dumps, is_json, raw_json

SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"})
REDACTED = "[redacted]"
_SECRET_QUERY = re.compile(r"([?&]key=)[^&]*")


@dataclass(slots=True)
class Statistics:
    """Counts since the start.

    started: answers that were begun.
    completed: answers that were sent to their end, including those with a fault that a knob asked for.
    aborted: answers whose client closed the connection before their end.
    refused: responses with an error status.
    limited: refused because of a limit, or because the inference server's queue was full.
    queued: calls that wait inside the inference server now.
    events: stream events that were sent. With the knob `chunk`, slices of bodies.
    bytes_sent: bytes that sockets took.
    connections: connections that are open now.
    accepted: connections since the start.
    live: answers that are being sent now.
    most_live: the largest `live` so far.
    late_ms: the longest delay of an event after its due time, in milliseconds.
    cpu_seconds: processor time of the whole process.
    """

    started: int = 0
    completed: int = 0
    aborted: int = 0
    refused: int = 0
    limited: int = 0
    queued: int = 0
    events: int = 0
    bytes_sent: int = 0
    connections: int = 0
    accepted: int = 0
    live: int = 0
    most_live: int = 0
    late_ms: float = 0.0
    cpu_seconds: float = 0.0

    def body(self) -> bytes:
        self.cpu_seconds = time.process_time()
        return dumps(asdict(self))


@dataclass(slots=True)
class Entry:
    """One recorded request. The body is parsed only when it is shown. sent: the WebSocket's message that asked it."""

    method: str
    target: str
    headers: dict[str, str]
    data: bytes
    sent: bytes = b""

    def shown(self) -> dict[str, object]:
        """The request as a JSON object. `body` is the parsed body, or its text where it is not JSON."""
        body: object = None
        if self.data:
            body = raw_json(self.data) if is_json(self.data) else self.data.decode("utf-8", "replace")
        shown: dict[str, object] = {"method": self.method, "path": self.target, "headers": self.headers, "body": body}
        return {**shown, "sent": raw_json(self.sent)} if self.sent else shown


class Journal:
    """The last requests, up to a fixed number."""

    def __init__(self, length: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=length)

    def add(self, request: HTTPRequest, sent: bytes = b"") -> None:
        """Record a request, without its credentials."""
        headers = {name: REDACTED if name in SECRET_HEADERS else value for name, value in request.headers.items()}
        target = _SECRET_QUERY.sub(r"\1" + REDACTED, request.target)
        self._entries.append(Entry(request.method, target, headers, request.body, sent))

    def body(self) -> bytes:
        """The requests as a JSON array, oldest first."""
        return dumps([entry.shown() for entry in self._entries])

    def clear(self) -> None:
        """Drop all requests."""
        self._entries.clear()
