"""A request that is no call: it takes no place in a limit, and nothing of its answer is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...providers.model.events import Event
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.response import Response
from ...transport.errors import TransportError
from ...transport.exchange import Exchange, RawHeaders
from ..request.errors import internal
from ..request.prepared import Prepared
from .attempt import Attempt
from .runtime import Runtime
from .timeouts import Clocks


class RequestOwner(Protocol):
    """The receiver of the end of a `PlainRequest`."""

    def answered(self) -> None:
        """Receive the report that the answer has ended."""
        ...

    def failed(self, attempt: Attempt, error: ProviderError) -> None:
        """Receive the error of the last attempt."""
        ...

    def on_defect(self, error: Exception) -> None:
        """Receive a defect in this library."""
        ...


class PlainRequest:
    """Sends a request, and once more if the idle connection that it was sent over had been closed.

    It is the listener of its attempts.

    attempt: the latest attempt.
    """

    __slots__ = ("_clocks", "_idempotent", "_owner", "_prepared", "_repeated", "_runtime", "_started", "attempt")

    def __init__(
        self, owner: RequestOwner, prepared: Prepared, runtime: Runtime, clocks: Clocks, *, idempotent: bool = True
    ) -> None:
        """Send the request at the next tick.

        idempotent: whether the server may get it twice. Otherwise it is sent again only if the server cannot have read
            it.
        """
        self._owner = owner
        self._idempotent = idempotent
        self._prepared = prepared
        self._runtime = runtime
        self._clocks = clocks
        self._repeated = False
        self._started = runtime.loop.clock()
        self.attempt: Attempt = self._begin(fresh=False)

    def _begin(self, *, fresh: bool) -> Attempt:
        """Send the request at the next tick. `fresh`: on a connection that no request has used."""
        attempt = Attempt(self._prepared, self, self._runtime, self._clocks, self._started)
        self._runtime.soon(lambda: self._send(attempt, fresh), self.on_defect)
        return attempt

    def _send(self, attempt: Attempt, fresh: bool) -> None:
        if not attempt.over:
            attempt.begin(fresh)

    @property
    def number(self) -> int:
        return 0

    def on_key(self, attempt: Attempt) -> None:
        pass

    def on_dequeued(self, attempt: Attempt) -> None:
        pass

    def on_head(self, attempt: Attempt) -> None:
        pass

    def on_events(self, attempt: Attempt, events: Sequence[Event]) -> None:
        pass

    def on_answer(self, attempt: Attempt, response: Response, terminal: Event | None) -> None:
        self._owner.answered()

    def on_attempt_failure(self, attempt: Attempt, error: ProviderError, *, unread: bool) -> None:
        lost = self._idempotent and error.category is ErrorCategory.NETWORK and not attempt.status
        if (unread or lost) and not self._repeated:
            self._repeated = True  # the connection was idle, and the server may have closed it
            self.attempt = self._begin(fresh=True)
        else:
            self._owner.failed(attempt, error)

    def on_defect(self, error: Exception) -> None:
        self._owner.on_defect(error)


async def fetch(
    prepared: Prepared,
    runtime: Runtime,
    clocks: Clocks,
    on_data: Callable[[bytes], object] | None = None,
    *,
    idempotent: bool = True,
    needs_body: bool = True,
) -> bytes:
    """Send a request and return the body of its response. Raises `ProviderError` for an error, and for no or half a
    response.

    on_data: gets the body's pieces as they come; then nothing is returned.
    idempotent: as for `PlainRequest`.
    needs_body: whether half a response is an error. Otherwise the head of a success is enough.
    """
    ended = runtime.backend.event()
    sent = Fetch(prepared, runtime, clocks, ended.set, on_data, idempotent=idempotent, needs_body=needs_body)
    try:
        await ended.wait()
    finally:
        sent.request.attempt.abort()
    if sent.error is not None:
        sent.error.provider, sent.error.host = prepared.provider.name, prepared.origin.host
        raise sent.error
    return b"".join(sent.pieces)


class Fetch(Exchange):
    """The owner of a request, and the exchange of its attempts, which read the response only if it is an error.

    on_ended: called once the request has ended, or failed.
    on_data: gets the body's pieces as they come. None: they are in `pieces`.
    error: why it failed; None if it has not.
    """

    def __init__(
        self,
        prepared: Prepared,
        runtime: Runtime,
        clocks: Clocks,
        on_ended: Callable[[], None],
        on_data: Callable[[bytes], object] | None = None,
        *,
        idempotent: bool = True,
        needs_body: bool = True,
    ) -> None:
        self.pieces: list[bytes] = []
        self.error: ProviderError | None = None
        self._on_ended = on_ended
        self._take = on_data or self.pieces.append
        self._needs_body = needs_body
        self._succeeds = False
        prepared.forwarder = self
        self.request: PlainRequest = PlainRequest(self, prepared, runtime, clocks, idempotent=idempotent)

    def tap(self, exchange: Exchange) -> Exchange:
        self._attempt = exchange
        return self

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self._succeeds = 200 <= status < 300
        if self._succeeds:
            self.request.attempt.status = status
        else:
            self._attempt.on_head(status, headers)

    def on_body(self, data: bytes) -> None:
        if self._succeeds:
            self._take(data)
        else:
            self._attempt.on_body(data)

    def on_end(self) -> None:
        if self._succeeds:
            self.request.attempt.connection = None  # it is in order, and goes back to the pool
            self._on_ended()
        else:
            self._attempt.on_end()

    def on_failure(self, error: TransportError) -> None:
        self._attempt.on_failure(error)

    def on_defect(self, error: Exception) -> None:
        self.request.attempt.connection = None  # it is closed, or carries another exchange
        self.error = internal(error)
        self._on_ended()

    def answered(self) -> None:
        """Do nothing: no attempt reads an answer."""

    def failed(self, attempt: Attempt, error: ProviderError) -> None:
        if self._needs_body or not self._succeeds:
            self.error = error
        self._on_ended()
