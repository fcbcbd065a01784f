"""The interfaces of an attempt: the listener to which it reports, and the taps between it and its connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...providers.model.events import Event
from ...providers.model.provider_error import ProviderError
from ...providers.model.response import Response
from ...transport.exchange import Exchange, RawHeaders
from ..request.prepared import Prepared

if TYPE_CHECKING:
    from .attempt import Attempt


class Listener(Protocol):
    """The receiver of an attempt's reports. After `on_answer`, `on_attempt_failure` or `on_defect`, none follows."""

    @property
    def label(self) -> str:
        """The listener's name in reports."""
        ...

    def on_key(self, attempt: Attempt) -> None:
        """Receive the report that the attempt's request has a key of the key function."""
        ...

    def on_dequeued(self, attempt: Attempt) -> None:
        """Receive the report that the attempt waits no longer for a place in the pool: its dial began, or it has an
        idle connection."""
        ...

    def on_connected(self, attempt: Attempt) -> None:
        """Receive the report that the request was given to a connection."""
        ...

    def on_head(self, attempt: Attempt) -> None:
        """Receive the report that the response's status and headers have arrived."""
        ...

    def on_events(self, attempt: Attempt, events: Sequence[Event]) -> None:
        """Receive events, none of them terminal, until the attempt has another receiver. The first ones have content,
        and may begin with a `Start`."""
        ...

    def on_answer(self, attempt: Attempt, response: Response, terminal: Event | None) -> None:
        """Receive the complete answer. `terminal` is the stream's `Done`; None if unstreamed."""
        ...

    def on_attempt_failure(self, attempt: Attempt, error: ProviderError, *, unread: bool) -> None:
        """Receive the attempt's error. `unread`: the server cannot have read the request (`TransportError.unread`)."""
        ...

    def on_defect(self, error: Exception) -> None:
        """Receive a defect in this library. The call must end without the code that raised."""
        ...


class Tap(Exchange, Protocol):
    """An exchange in front of another one, to which it forwards everything."""

    def left(self, *, whole: bool) -> None:
        """Receive the report that the attempt has ended. `whole`: the answer was complete."""
        ...

    def accepted(self) -> None:
        """Receive the report that the answer is the call's, which has succeeded."""
        ...


KeptAnswer: TypeAlias = tuple[RawHeaders, bytes]
"""The headers and the body of an answer that was kept."""


class AnswerStore(Protocol):
    """Keeps the answers of requests, so that no request is sent whose answer it has."""

    def find(self, prepared: Prepared) -> KeptAnswer | None:
        """Return the answer to a request, or None if there is none. Never raises."""
        ...

    def tap(self, prepared: Prepared, exchange: Exchange) -> Tap:
        """Return an exchange that keeps the answer when it is accepted, and forwards everything to `exchange`."""
        ...


class Recorder(Protocol):
    """A recording: creates the taps in front of exchanges, until it is closed."""

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...

    def tap(self, prepared: Prepared, exchange: Exchange) -> Tap: ...
