"""The tasks that dial: each opens a socket for one request of the connection pool."""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from .backend import Backend
from .errors import Phase, TransportError
from .tls_socket import TLSSocket
from .url import Origin
from .waiting import PoolRequest

logger: logging.Logger = logging.getLogger("manystream.transport.pool")

Dial: TypeAlias = Callable[[Origin, Callable[[Phase], None]], Awaitable[socket.socket | TLSSocket]]
"""A function that opens a connected non-blocking socket and reports its phases. Raises `TransportError`."""

EVICTIONS = 8
"""The maximum number of attempts of one dial."""

DIALS_PER_TURN = 16
"""Dials begun before other tasks run. A dial runs for about 0.1 ms until it waits for the first time."""


class DialOwner(Protocol):
    """The receiver of the outcomes of dials: the pool."""

    def on_dial_ended(
        self, request: PoolRequest, sock: socket.socket | TLSSocket | None, failure: Exception | None
    ) -> None:
        """Receive the socket that a dial has opened, or the reason why there is none. Called once for each dial."""
        ...

    def on_not_dialled(self, request: PoolRequest) -> None:
        """Receive a request that was abandoned before its dial began."""
        ...

    def evict(self) -> bool:
        """Free file descriptors for a dial that found none left. Returns False if there is none to free."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Dials:
    """The dials of one pool: those that run, and those that have not begun."""

    _backend: Backend
    _socket: Dial
    _owner: DialOwner
    # the requests whose dials have not begun. The pool appends to it, and then calls `begin`. A method of this class
    # that appends could raise a `RecursionError`, and the request would be lost.
    pending: deque[PoolRequest] = field(default_factory=lambda: deque(), init=False)
    # the task that begins dials runs. It also removes the abandoned requests that have not begun.
    running: bool = field(default=False, init=False)

    def begin(self) -> None:
        """Start the task that begins the dials, unless it runs or there is no dial to begin."""
        if self.pending and not self.running:
            self._backend.start(self._begin)
            self.running = True

    def drop(self) -> None:
        """Forget the dials that have not begun."""
        self.pending.clear()

    async def _begin(self) -> None:
        """Begin the dials, a few per iteration: a thousand at once would block all streams."""
        try:
            while self.pending:
                for _ in range(min(DIALS_PER_TURN, len(self.pending))):
                    request = self.pending[0]
                    if request.waiter is not None:
                        request.dial = self._backend.start(self._dial, request)
                    self.pending.popleft()
                    if request.waiter is None:  # abandoned
                        self._owner.on_not_dialled(request)
                await self._backend.checkpoint()
        except Exception:
            logger.exception("beginning a dial raised: a defect in manystream")
        finally:
            self.running = False

    async def _dial(self, request: PoolRequest) -> None:
        """Run one dial; log and report a defect."""
        waiter = request.waiter
        try:
            await self._run(request)
        except Exception as error:
            logger.exception("a dial to %s raised: a defect in manystream", request.host.origin)
            if waiter is not None:
                waiter.on_defect(error)

    async def _run(self, request: PoolRequest) -> None:
        sock: socket.socket | TLSSocket | None = None
        failure: Exception | None = None
        try:
            for _ in range(EVICTIONS):
                try:
                    sock = await self._socket(request.host.origin, request.on_phase)
                except Exception as error:
                    failure = error
                if sock is not None or not isinstance(failure, TransportError) or not failure.exhausted:
                    break
                if not self._owner.evict():
                    break
        finally:  # also after a cancellation
            self._owner.on_dial_ended(request, sock, failure)
