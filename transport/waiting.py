"""The waiters of the connection pool: one request per waiter, one queue per origin."""

from __future__ import annotations

import enum
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from .backend import Cancellable
from .errors import Phase, TransportError
from .http1 import Connection
from .url import Origin

logger: logging.Logger = logging.getLogger("manystream.transport.pool")


class Waiter(Protocol):
    """The receiver of a connection.

    The pool reports exactly one outcome, `on_connection` or `on_connect_failure`, unless `Pool.abandon` was called
    before.
    """

    def on_phase(self, phase: Phase) -> None:
        """Receive the phase that the dial has begun."""
        ...

    def on_connection(self, connection: Connection, reused: bool) -> None:
        """Receive the connection. `reused`: it has carried an exchange before, or was opened for another waiter."""
        ...

    def on_connect_failure(self, error: TransportError) -> None:
        """Receive the error that ended the dial."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End after a defect: another method raised. Must not call the code that raised."""
        ...


class WaiterState(enum.Enum):
    """The state of a waiter: in the queue, or at a dial that was begun for it."""

    QUEUED = "queued"
    DIALLING = "dialling"


QUEUED, DIALLING = WaiterState
"""The members."""


@dataclass(slots=True, eq=False, repr=False)
class PoolRequest:
    """One waiter's place in the queue, or its running dial."""

    waiter: Waiter | None  # None once the waiter has abandoned the request, or has its outcome
    host: Host  # the origin's state in the pool
    fresh: bool  # the waiter needs a connection that has carried no exchange yet
    state: WaiterState = field(default=QUEUED, init=False)  # queued or dialling
    dial: Cancellable | None = field(default=None, init=False)  # the running dial; None before it begins

    def on_phase(self, phase: Phase) -> None:
        """Report the dial's phase to the waiter."""
        waiter = self.waiter
        if waiter is not None:
            try:
                waiter.on_phase(phase)
            except Exception as error:
                waiter.on_defect(error)


@dataclass(slots=True, eq=False, repr=False)
class Host:
    """The pool's state for one origin."""

    origin: Origin  # the origin
    name: str = field(init=False)  # the origin as text, which its connections share
    # connections that can be reused, the latest last
    idle: dict[Connection, None] = field(default_factory=lambda: {}, init=False)
    live: int = field(default=0, init=False)  # the number of open connections and running dials
    dialling: int = field(default=0, init=False)  # the number of running dials
    # the requests that wait, abandoned ones included
    queue: deque[PoolRequest] = field(default_factory=lambda: deque(), init=False)
    waiting: int = field(default=0, init=False)  # the number of requests in the queue that are not abandoned
    # the origin waits in `Pool._starved` until the total cap allows one more connection
    starved: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.name = str(self.origin)


def report_failure(waiter: Waiter, error: Exception) -> None:
    """Report to the waiter the error because of which it gets no connection."""
    try:
        if isinstance(error, TransportError):
            waiter.on_connect_failure(error)
        else:
            logger.error("dialling raised: a defect in manystream", exc_info=error)
            waiter.on_defect(error)
    except Exception as defect:
        waiter.on_defect(defect)
