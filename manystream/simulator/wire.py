"""What a wire writer offers, and the framing that all of them use.

A writer is a stateless object, one per dialect: it reads a request into a `Prompt` (or refuses it as the service
would) and writes a `Scenario` as the events of a stream, as an unstreamed body, or as an error. Bytes only: no
sockets, no time.
"""

from __future__ import annotations

from typing import Protocol

from .http_request import HTTPRequest
from .json_text import JSONObject, dumps, loads_object
from .prompt import APIError, Prompt
from .scenario import Scenario

CREATED = 1_700_000_000
"""Every answer was made at this Unix time, so that the same request gives the same bytes."""

JSON_MODE: JSONObject = {"type": "object", "properties": {"answer": {"type": "string"}}}
"""The schema of an answer that must be JSON, whatever it says."""


class Wire(Protocol):
    """One dialect's writer. `ping` is its keep-alive event."""

    @property
    def name(self) -> str: ...

    @property
    def ping(self) -> bytes: ...

    def check_headers(self, request: HTTPRequest) -> None:
        """Raises `APIError` for a missing key."""
        ...

    def read(self, request: HTTPRequest) -> Prompt:
        """The prompt of a request. Raises `APIError`."""
        ...

    def frames(self, prompt: Prompt, scenario: Scenario) -> list[bytes]:
        """The stream, one item per event."""
        ...

    def body(self, prompt: Prompt, scenario: Scenario) -> bytes:
        """The unstreamed answer."""
        ...

    def error_body(self, failure: APIError) -> bytes:
        """An error's body."""
        ...

    def error_headers(self, failure: APIError) -> list[tuple[str, str]]:
        """An error's own headers: when to come again."""
        ...

    def error_frames(self, prompt: Prompt, scenario: Scenario, failure: APIError, position: int) -> list[bytes]:
        """An error inside a stream, after `position` events, and whatever follows it."""
        ...

    def headers(self, prompt: Prompt | None, identity: str) -> list[tuple[str, str]]:
        """Content type and request id; `prompt` is None for an error."""
        ...


def sse(data: bytes, name: str = "") -> bytes:
    """One server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data


def split_at(value: object, *marks: object) -> list[bytes]:
    """Serialise once, and cut where the marks stand: what is between is what all events of a kind have in common.

    A text mark leaves its quotes out too, so the gap takes any JSON value.
    """
    rest = dumps(value)
    parts: list[bytes] = []
    for mark in marks:
        before, _, rest = rest.partition(dumps(mark))
        parts.append(before)
    parts.append(rest)
    return parts


def body_object(request: HTTPRequest) -> JSONObject:
    """The request's JSON object. Raises `APIError`."""
    body = loads_object(request.body)
    if body is None:
        raise APIError(400, "We could not parse the JSON body of your request: it must be a JSON object.")
    return body


def seconds_text(seconds: float) -> str:
    """Seconds as a header has them: whole where they are whole."""
    return str(int(seconds)) if seconds == int(seconds) else f"{seconds:.3f}".rstrip("0")
