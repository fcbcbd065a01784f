"""The interfaces of an attempt: the listener to which it reports, and the taps between it and its connection."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from ...providers.errors import ProviderError
from ...providers.model.events import Event
from ...providers.model.response import Response
from ...transport.exchange import Exchange
from ..request.prepared import Prepared
from .slices import Action


class Progress(enum.Enum):
    """The steps of an attempt that its call needs to know."""

    DIALLING = "dialling"
    DIAL_STEP = "dial step"
    CONNECTED = "connected"
    HEAD = "head"


DIALLING, DIAL_STEP, CONNECTED, HEAD = Progress
"""The members, for every attempt. CPython 3.11 needs a thousand instructions to find one in `Progress`."""


class Listener(Protocol):
    """The receiver of an attempt's reports. After `on_answer`, `on_attempt_failure` or `on_defect`, none follows."""

    @property
    def label(self) -> str:
        """The listener's name in reports."""
        ...

    def on_progress(self, progress: Progress) -> None: ...

    def deliver(self, events: Sequence[Event]) -> None:
        """Receive events, none of them terminal, until the attempt has another receiver."""
        ...

    def on_reading(self) -> None:
        """Receive the report that the attempt reads again, after it has delivered the many events of one wire event."""
        ...

    def soon(self, callback: Action) -> None:
        """Call `callback` at the loop's next tick."""
        ...

    def on_answer(self, response: Response, terminal: Event | None) -> None:
        """Receive the complete answer. `terminal` is the stream's `Done`; None if unstreamed."""
        ...

    def on_attempt_failure(self, error: ProviderError, *, unread: bool) -> None:
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


class Recorder(Protocol):
    """Creates the taps in front of exchanges."""

    def tap(self, prepared: Prepared, exchange: Exchange) -> Tap: ...
