"""What an attempt reports to, and what may stand between it and its connection.

Knows an attempt's outcomes. Must not know how an attempt comes to them.
"""

from __future__ import annotations

import enum
from typing import Protocol

from ..providers.errors import ProviderError
from ..providers.events import Event
from ..providers.response import Response
from ..transport.exchange import Exchange
from .prepared import Prepared
from .steps import Action


class Progress(enum.Enum):
    """How far an attempt has come, as its call needs to know."""

    DIALLING = "dialling"
    CONNECTED = "connected"
    HEAD = "head"


class Listener(Protocol):
    """Who is notified. After `on_answer`, `on_attempt_failure` or `on_defect`, nothing more."""

    @property
    def label(self) -> str:
        """What it is called in reports."""
        ...

    def on_progress(self, progress: Progress) -> None: ...

    def on_reading(self) -> None:
        """It reads on, after many events of one kept it from that."""
        ...

    def soon(self, callback: Action) -> None:
        """Call back at the loop's next turn."""
        ...

    def on_answer(self, response: Response, terminal: Event | None) -> None:
        """The answer is whole; `terminal` is the stream's Done."""
        ...

    def on_attempt_failure(self, error: ProviderError, *, unread: bool) -> None:
        """It failed. `unread`: the server cannot have read the request (see `TransportError.unread`)."""
        ...

    def on_defect(self, error: Exception) -> None:
        """Something raised: a defect in this library. The call must end without the code that raised."""
        ...


class Tap(Exchange, Protocol):
    """An exchange that stands before another one and passes on what it is told."""

    def left(self, *, whole: bool) -> None:
        """Nobody listens any more: the answer was `whole`, or was given up."""
        ...


class Recorder(Protocol):
    """Who puts taps before exchanges."""

    def tap(self, prepared: Prepared, exchange: Exchange) -> Tap: ...
