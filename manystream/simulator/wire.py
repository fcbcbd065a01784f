"""The interface of the dialects, and the framing that they share.

A dialect is a stateless object. It reads a request into a `Prompt`, or raises `APIError` where the service would
respond with an error. It writes a `Scenario` as the events of a stream, as an unstreamed body, or as an error. It knows
bytes only: no sockets and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Protocol

from ..http_server import HTTPRequest
from .json_text import JSONObject, dumps, loads_object, string
from .prompt import APIError, Prompt
from .scenario import Scenario

CREATED = 1_700_000_000
"""The creation time of all answers, so that equal requests get equal bytes."""

JSON_MODE: JSONObject = {"type": "object", "properties": {"answer": {"type": "string"}}}
"""The schema of an answer that must be JSON of any form."""


class Wire(Protocol):
    """One dialect. `ping` is its keep-alive event."""

    @property
    def name(self) -> str: ...

    @property
    def ping(self) -> bytes: ...

    def check_headers(self, request: HTTPRequest) -> None:
        """Raise `APIError` if the key or another required header is missing."""
        ...

    def read(self, request: HTTPRequest) -> Prompt:
        """Read a request. Raises `APIError`."""
        ...

    def frames(self, prompt: Prompt, scenario: Scenario) -> list[bytes]:
        """The events of a stream, framed."""
        ...

    def body(self, prompt: Prompt, scenario: Scenario) -> bytes: ...

    def error_body(self, failure: APIError) -> bytes:
        """The body of an error response."""
        ...

    def error_headers(self, failure: APIError) -> list[tuple[str, str]]:
        """The headers of an error response that no other response has, such as `retry-after`."""
        ...

    def error_frames(self, prompt: Prompt, scenario: Scenario, failure: APIError, position: int) -> list[bytes]:
        """The events of an error inside a stream, after `position` events."""
        ...

    def headers(self, prompt: Prompt | None, identity: str) -> list[tuple[str, str]]:
        """Content type and request id. `prompt` is None for an error response."""
        ...


class StoringWire(Wire, Protocol):
    """A dialect whose service keeps its answers."""

    def id(self, scenario: Scenario) -> str:
        """The id of an answer."""
        ...

    def continued(self, prompt: Prompt, earlier: Prompt, answer: Scenario) -> Prompt:
        """The prompt with the conversation that it continues. Raises `APIError`."""
        ...

    def shown(self, prompt: Prompt, scenario: Scenario, status: str, failure: APIError | None) -> bytes:
        """The body of an answer that is read by its id. status: that of `StoredAnswer.status`."""
        ...

    def cancelled_frames(self, prompt: Prompt, scenario: Scenario, position: int) -> list[bytes]:
        """The last events of a stream that was cancelled after `position` events."""
        ...

    def events_read(self, request: HTTPRequest, scenario: Scenario) -> int:
        """How many of the stream's events the reader has, as the request says. Raises `APIError`."""
        ...

    def not_found(self, id: str) -> APIError:
        """The error for an id that is not known."""
        ...

    def streams_by_id(self, prompt: Prompt) -> bool:
        """Whether the answer in the background to this request can be streamed by its id."""
        ...

    def not_streamed(self) -> APIError:
        """The error for a stream of an answer that cannot be streamed by its id."""
        ...

    def not_cancelled(self) -> APIError:
        """The error for an answer that cannot be cancelled, since it is not in the background."""
        ...

    def deleted(self, id: str) -> bytes:
        """The body of a response that says that an answer is deleted."""
        ...


def sse(data: bytes, name: str = "") -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data


def split_at(value: object, *marks: object) -> list[bytes]:
    """Serialise a value once and split it at the marks. Events of one kind differ only in the values at the marks.

    A text mark is removed with its quotes, so any JSON value can take its place.
    """
    rest = dumps(value)
    parts: list[bytes] = []
    for mark in marks:
        before, _, rest = rest.partition(dumps(mark))
        parts.append(before)
    parts.append(rest)
    return parts


def body_object(request: HTTPRequest) -> JSONObject:
    """The request's body, which must be a JSON object. Raises `APIError`."""
    body = loads_object(request.body)
    if body is None:
        raise APIError(400, "We could not parse the JSON body of your request: it must be a JSON object.")
    return body


def last_turn(entries: Iterable[tuple[str, JSONObject]]) -> tuple[JSONObject, int]:
    """The last entry of the user, and the number of tool rounds after it.

    entries: those of a conversation, each with what it is: `user`, `tools` for a part of a round, or another word.
    """
    last_user: JSONObject = {}
    rounds, before = 0, ""
    for kind, entry in entries:
        if kind == "user":
            last_user, rounds = entry, 0
        elif kind == "tools" and before != kind:
            rounds += 1
        before = kind
    return last_user, rounds


def ending(entries: Sequence[JSONObject], member: str, word: str) -> list[JSONObject]:
    """The entries at the end of a conversation that have this word in this member."""
    return [*takewhile(lambda entry: string(entry, member) == word, reversed(entries))][::-1]


def seconds_text(seconds: float) -> str:
    """Seconds as text for a header, in milliseconds at most: no fraction for whole numbers."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")
