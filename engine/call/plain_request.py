"""A request that is no call: it takes no place in a limit, and nothing of its answer is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...providers.model.events import Event
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.response import Response
from ..request.prepared import Prepared
from .attempt import Attempt
from .runtime import Runtime
from .timeouts import Clocks


class RequestOwner(Protocol):
    """The receiver of the end of a `PlainRequest`."""

    @property
    def label(self) -> str:
        """The name in reports."""
        ...

    def answered(self) -> None:
        """Receive the report that the answer has ended."""
        ...

    def failed(self, attempt: Attempt, error: ProviderError) -> None:
        """Receive the error of the last attempt."""
        ...

    def repeated(self, attempt: Attempt) -> None:
        """Receive the second attempt, which has begun."""
        ...

    def on_defect(self, error: Exception) -> None:
        """Receive a defect in this library."""
        ...


class PlainRequest:
    """Sends a request, and once more if the idle connection that it was sent over had been closed.

    It is the listener of its attempts.

    attempt: the latest attempt.
    """

    __slots__ = ("_clocks", "_owner", "_prepared", "_repeated", "_runtime", "_started", "attempt")

    def __init__(self, owner: RequestOwner, prepared: Prepared, runtime: Runtime, clocks: Clocks) -> None:
        """Send the request at the next tick."""
        self._owner = owner
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
    def label(self) -> str:
        return self._owner.label

    def on_key(self, attempt: Attempt) -> None:
        pass

    def on_dequeued(self, attempt: Attempt) -> None:
        pass

    def on_connected(self, attempt: Attempt) -> None:
        pass

    def on_head(self, attempt: Attempt) -> None:
        pass

    def on_events(self, attempt: Attempt, events: Sequence[Event]) -> None:
        pass

    def on_answer(self, attempt: Attempt, response: Response, terminal: Event | None) -> None:
        self._owner.answered()

    def on_attempt_failure(self, attempt: Attempt, error: ProviderError, *, unread: bool) -> None:
        if error.category is ErrorCategory.NETWORK and not attempt.status and not self._repeated:
            self._repeated = True  # the connection was idle, and the server may have closed it
            self.attempt = self._begin(fresh=True)
            self._owner.repeated(self.attempt)
        else:
            self._owner.failed(attempt, error)

    def on_defect(self, error: Exception) -> None:
        self._owner.on_defect(error)
