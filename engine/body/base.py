"""What every body has, and what it needs of its attempt.

Knows the size of an answer and its limits. Must not know what is in a body, nor connections.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from ...providers.errors import ProviderError, malformed
from ...providers.events import Event
from ...providers.response import Response
from ...transport.errors import TransportError
from ..answer_size import AnswerSize
from ..buffered import Holder
from ..errors import transport_error
from ..fast_path import DeliverEach, FastPath
from ..prepared import Prepared


def content_coding(headers: Mapping[str, str]) -> str:
    """The body's content coding (RFC 9110, section 8.4); empty where it has none."""
    coding = headers.get("content-encoding", "").strip().lower()
    return "" if coding == "identity" else coding


class BodyOwner(Holder, abc.ABC):
    """The attempt, as its body sees it.

    prepared: the request.
    status, headers: of the response.
    over: nothing more may be reported.
    deliver: takes a stream's events, none of them terminal. If the attempt is `over` when it returns, it gets no more.
    deliver_each: the same for events that are made as they are asked for; None: there is no fast path.
    """

    __slots__ = ("deliver", "deliver_each", "headers", "over", "prepared", "status")

    def __init__(self, prepared: Prepared, deliver: Callable[[Sequence[Event]], None]) -> None:
        self.prepared: Prepared = prepared
        self.deliver: Callable[[Sequence[Event]], None] = deliver
        self.deliver_each: DeliverEach | None = None
        self.status: int = 0
        self.headers: dict[str, str] = {}
        self.over: bool = False

    @property
    @abc.abstractmethod
    def request_id(self) -> str | None:
        """The provider's id for the request."""

    @abc.abstractmethod
    def deliver_in_steps(self, events: Sequence[Event], then: Callable[[], object]) -> None:
        """Deliver many events a few at a time, then call `then`; feed nothing meanwhile."""

    @abc.abstractmethod
    def answered(self, response: Response, terminal: Event | None, *, drain: bool = False) -> None:
        """The answer is whole. drain: its body may go on, and is read to its end."""

    @abc.abstractmethod
    def failed(self, error: ProviderError, *, unread: bool = False) -> None:
        """The attempt failed."""

    @abc.abstractmethod
    def give_up(self, error: ProviderError) -> None:
        """Close the connection, and fail."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection: no more of the body is wanted."""

    @abc.abstractmethod
    def drain(self) -> None:
        """Let the connection read to the body's end, for the next exchange."""


class Body(abc.ABC):
    """One body: `feed` its bytes, then `end` or `fail`, once.

    reads_error: whether it explains a status that says enough by itself.
    """

    __slots__ = ("_attempt", "_size")

    reads_error: ClassVar[bool] = False

    def __init__(self, attempt: BodyOwner) -> None:
        self._attempt = attempt
        self._size = AnswerSize(attempt.prepared.limits.max_response_bytes)

    @abc.abstractmethod
    def feed(self, data: bytes) -> FastPath | None:
        """Take the next bytes. Returns what may read the chunks that follow."""

    @abc.abstractmethod
    def end(self) -> None:
        """The body is whole."""

    def fail(self, error: TransportError) -> None:
        """The connection broke inside the body, or before the response."""
        self._attempt.failed(transport_error(error, streaming=False), unread=error.unread)

    def expire(self, error: ProviderError) -> None:
        """A clock of the call ended."""
        self._attempt.give_up(error)

    def kept_bytes(self) -> int:
        """What of the bytes received is kept."""
        return self._size.received

    def partial_response(self) -> Response | None:
        """What had arrived of the answer, where that can be read."""
        return None

    def _may_grow(self) -> bool:
        """Look at the size. False where it is too much."""
        prepared = self._attempt.prepared
        grown = self._size.look()
        if grown is None:
            limit = prepared.limits.max_response_bytes
            self._attempt.give_up(malformed(f"the answer is larger than {limit} bytes (limits.max_response_bytes)"))
            return False
        prepared.buffered.grown(self._attempt, grown)
        return True
