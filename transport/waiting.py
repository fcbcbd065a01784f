"""Who waits for a connection: one ticket a waiter, one queue an origin.

Knows waiters and how far each has come. Must not know caps, nor who gets the next connection (the pool decides).
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from .errors import Phase, TransportError
from .http1 import Connection
from .url import Origin

logger: logging.Logger = logging.getLogger("manystream.transport.pool")


class Waiter(Protocol):
    """Who wants a connection. Exactly one of the two outcomes is told, unless `Pool.abandon` came before."""

    def on_phase(self, phase: Phase) -> None: ...
    def on_connection(self, connection: Connection, reused: bool) -> None: ...
    def on_connect_failure(self, error: TransportError) -> None: ...
    def on_defect(self, error: Exception) -> None:
        """One of the other methods raised. The waiter must end without the code that raised."""
        ...


class WaiterState(enum.Enum):
    """Where a waiter stands."""

    QUEUED = "queued"
    DIALLING = "dialling"


class Ticket:
    """One waiter's place: in the queue, or at a dial of its own.

    fresh: a connection that has served will not do. scope: of the dial, once it has begun.
    """

    __slots__ = ("_clock", "_connected", "_connecting", "fresh", "host", "scope", "state", "waiter")

    def __init__(self, waiter: Waiter, host: Host, fresh: bool, clock: Callable[[], float]) -> None:
        self.waiter: Waiter | None = waiter
        self.host: Host = host
        self.fresh: bool = fresh
        self.state: WaiterState = WaiterState.QUEUED
        self.scope: trio.CancelScope | None = None
        self._clock = clock
        self._connecting: float | None = None
        self._connected: float | None = None

    def on_phase(self, phase: Phase) -> None:
        """The dial has come to another step."""
        if phase is Phase.CONNECT:
            self._connecting = self._clock()
        elif self._connecting is not None and self._connected is None:
            self._connected = self._clock()
        waiter = self.waiter
        if waiter is not None:
            try:
                waiter.on_phase(phase)
            except Exception as error:
                waiter.on_defect(error)

    def connect_seconds(self) -> float:
        """How long the TCP connection took, which is about one round trip. The dial has just ended."""
        if self._connecting is None:
            return 0.0
        return (self._clock() if self._connected is None else self._connected) - self._connecting


class Host:
    """What the pool has for one origin."""

    __slots__ = ("dialling", "idle", "live", "origin", "queue", "starved", "waiting")

    def __init__(self, origin: Origin) -> None:
        self.origin: Origin = origin
        self.idle: list[Connection] = []
        self.live: int = 0  # open connections and running dials
        self.dialling: int = 0
        self.queue: deque[Ticket] = deque()
        self.waiting: int = 0  # tickets in the queue that were not abandoned
        self.starved: bool = False  # waits in `Pool._starved` for a place under the total cap


def refuse(waiter: Waiter, error: Exception) -> None:
    """Tell the waiter that there is no connection, and why."""
    try:
        if isinstance(error, TransportError):
            waiter.on_connect_failure(error)
        else:
            logger.error("dialling raised: a defect in manystream", exc_info=error)
            waiter.on_defect(error)
    except Exception as defect:
        waiter.on_defect(defect)
