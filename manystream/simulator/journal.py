"""What the simulator remembers and counts, for `GET /sim/requests` and `GET /sim/statistics`.

Keys are redacted when a request is written down, not when it is shown: no credential is kept.
"""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import asdict, dataclass

from .http_request import HTTPRequest
from .json_text import dumps, is_json, raw_json

SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"})
REDACTED = "[redacted]"
_SECRET_QUERY = re.compile(r"([?&]key=)[^&]*")


@dataclass(slots=True)
class Statistics:
    """Counts since the start.

    started: answers begun. completed: of these, played to their end, faults that were asked for included. aborted:
    the client closed before. refused: answers with an error status. events: stream events sent (where `chunk` cuts a
    body, its slices). bytes_sent: all of them. connections: open now; accepted: ever. live: answers being played now;
    most_live: the most at one time. late_ms: how long after its time an event was sent, at worst. cpu_seconds: of the
    whole process.
    """

    started: int = 0
    completed: int = 0
    aborted: int = 0
    refused: int = 0
    events: int = 0
    bytes_sent: int = 0
    connections: int = 0
    accepted: int = 0
    live: int = 0
    most_live: int = 0
    late_ms: float = 0.0
    cpu_seconds: float = 0.0

    def body(self) -> bytes:
        """As JSON."""
        self.cpu_seconds = time.process_time()
        return dumps(asdict(self))


@dataclass(slots=True)
class Entry:
    """A request that was read. The body stays bytes until somebody asks."""

    method: str
    target: str
    headers: dict[str, str]
    data: bytes

    def shown(self) -> dict[str, object]:
        """As JSON. `body` is the body where it is JSON, else its text."""
        body: object = None
        if self.data:
            body = raw_json(self.data) if is_json(self.data) else self.data.decode("utf-8", "replace")
        return {"method": self.method, "path": self.target, "headers": self.headers, "body": body}


class Journal:
    """The last requests."""

    __slots__ = ("_entries",)

    def __init__(self, length: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=length)

    def add(self, request: HTTPRequest) -> None:
        """Write a request down."""
        headers = {name: REDACTED if name in SECRET_HEADERS else value for name, value in request.headers.items()}
        target = _SECRET_QUERY.sub(r"\1" + REDACTED, request.target)
        self._entries.append(Entry(request.method, target, headers, request.body))

    def body(self) -> bytes:
        """As a JSON array, oldest first."""
        return dumps([entry.shown() for entry in self._entries])

    def clear(self) -> None:
        """Forget."""
        self._entries.clear()
