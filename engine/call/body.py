"""What all body readers share: their base class, and the forms of bodies."""

from __future__ import annotations

import abc
import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol

from ...providers.catalog.json_stream import DONE_MARK
from ...providers.model.events import Event
from ...providers.model.provider_error import ProviderError, malformed
from ...providers.model.response import Response
from ...transport.errors import TransportError
from ..request.errors import transport_error
from .buffered import STEP_BYTES
from .fast_path import FastPath

if TYPE_CHECKING:
    from .attempt import Attempt

STEP_EVENTS = 64
"""The most events of one wire event that are delivered in one step: the number that may wait for a consumer before its
stream is paused."""

BOM = b"\xef\xbb\xbf"
"""The byte order mark that some servers write before a JSON text. It is ignored (RFC 8259, section 8.1)."""


def content_coding(headers: Mapping[str, str]) -> str:
    """Return the body's content coding (RFC 9110, section 8.4); empty if it has none."""
    coding = headers.get("content-encoding", "").strip().lower()
    return "" if coding == "identity" else coding


class Receiver(Protocol):
    """Receives the events of an attempt."""

    def deliver(self, events: Sequence[Event]) -> None:
        """Deliver events, none of them terminal."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Body(abc.ABC):
    """The reader of one body: call `feed` with its bytes, then `end` or `fail`, once.

    It counts the bytes, and compares the count with the limits once per `STEP_BYTES`, so that it costs nothing per
    event: a reader only subtracts the bytes from `bytes_left`.

    bytes_left: the number of body bytes until the next check of the size; negative when the check is due.
    reads_error: the body belongs to an error status, which is reported even if the body is incomplete.
    """

    reads_error: ClassVar[bool] = False

    _attempt: Attempt
    bytes_left: int = field(init=False)
    _limit: int = field(init=False)
    _looked_at: int = field(default=0, init=False)
    _next_look: int = field(init=False)

    def __post_init__(self) -> None:
        self._limit = self._attempt.prepared.shared.limits.max_response_bytes
        self._next_look = self.bytes_left = min(STEP_BYTES, self._limit)

    @abc.abstractmethod
    def feed(self, data: bytes) -> FastPath | None:
        """Read the next bytes. Returns the fast path for the chunks that follow, or None."""

    @abc.abstractmethod
    def end(self) -> None:
        """Process the end of the complete body."""

    def fail(self, error: TransportError) -> None:
        """Process an error of the connection inside the body, or before the response."""
        self._attempt.failed(transport_error(error, streaming=False), unread=error.unread)

    def expire(self, error: ProviderError) -> None:
        """Process a timeout of the call."""
        self._attempt.give_up(error)

    def kept_bytes(self) -> int:
        """Return the number of received bytes that are kept in memory. Takes linear time in that number."""
        return self.received

    def partial_response(self) -> Response | None:
        """Return the part of the answer that has arrived, if it can be read; else None."""
        return None

    # --- the size of the answer ---

    def count(self, size: int) -> bool:
        """Count `size` more bytes. Returns whether the check is due."""
        self.bytes_left -= size
        return self.bytes_left < 0

    @property
    def received(self) -> int:
        """The number of body bytes so far."""
        return self._next_look - self.bytes_left

    def _fits(self) -> bool:
        """Return whether the answer is small enough, apart from the bytes of this body."""
        return True

    def _may_grow(self) -> bool:
        """Check the size, and schedule the next check. Returns False if the answer is too large."""
        received, limit = self.received, self._limit
        if received > limit or not self._fits():
            self._attempt.give_up(malformed(f"the answer is larger than {limit} bytes (limits.max_response_bytes)"))
            return False
        self._next_look = min(received + STEP_BYTES, limit)
        self.bytes_left = self._next_look - received
        grown, self._looked_at = received - self._looked_at, received
        self._attempt.runtime.buffered.grown(self, grown)
        return True

    def give_way(self) -> None:
        """Fail at the next tick, because the buffered responses of all calls are too large and this one is the largest.

        The failure waits for the next tick because the bytes of another call are being processed now.
        """
        attempt = self._attempt
        attempt.soon(partial(attempt.give_up, attempt.runtime.buffered.too_much()))


# --- the form of a body, by its first bytes ---


_NO_CONTENT = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r\n]++|:[^\r\n]*+[\r\n])*+")
"""What may precede every body: a byte order mark (RFC 8259, section 8.1), blank lines, comments of an event stream."""

_FIELD = re.compile(rb"(?:data|event|id|retry)(?:[:\r\n])|(?i:error):")
"""The beginning of a line that is a field of an event (HTML standard, 9.2.6), or an error in place of one."""

_FIELDS = (b"data", b"event", b"id", b"retry", b"error")


class Form(enum.Enum):
    """The form of a body."""

    JSON = "json"
    EVENTS = "events"
    PAGE = "page"
    TEXT = "text"


def content_of(body: bytes) -> bytes:
    """Return a body without the blank lines, comments and byte order mark at its beginning."""
    match = _NO_CONTENT.match(body)
    return body[match.end() :] if match is not None else body


def form_of(content: bytes) -> Form | None:
    """Return the form of a body that begins with this content, or None if more bytes are needed."""
    first = content[:1]
    if first == b"[" and DONE_MARK.startswith(content[: len(DONE_MARK)]):
        return Form.EVENTS if len(content) > 1 else None
    if first in (b"{", b"["):
        return Form.JSON
    if first == b"<":
        return Form.PAGE
    if _FIELD.match(content) is not None:
        return Form.EVENTS
    # These may become a field, a byte order mark or a comment.
    unclear = any(field.startswith(content.lower()) for field in _FIELDS) or BOM.startswith(content) or first == b":"
    return None if unclear else Form.TEXT
