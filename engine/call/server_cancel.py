"""Cancels a durable answer at its server, for a call that was cancelled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...providers.model.events import Event
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.response import Response
from ..request.durable import DurableAnswer
from ..request.prepared import Prepared
from .attempt import Attempt
from .runtime import Runtime
from .timeouts import Clocks

if TYPE_CHECKING:
    from .call import RunningCall

SECONDS = 2.0
"""The most seconds between `cancel` and the completion."""


class ServerCancel:
    """Sends the request that ends the answer, and lets the call complete then. It listens to the request's attempt.

    The call's error says that the server was not reached, until it is.
    """

    __slots__ = ("_call", "_clocks", "_error", "_plain", "_prepared", "_repeated", "_runtime", "_started")

    def __init__(
        self, call: RunningCall, error: ProviderError, durable: DurableAnswer, prepared: Prepared, runtime: Runtime
    ) -> None:
        """Create it. error: the call's. prepared: the request of the call's latest attempt."""
        self._call = call
        self._error = error
        self._plain = error.message
        self._runtime = runtime
        self._prepared = durable.cancel_request(prepared)
        self._repeated = False
        self._started = runtime.loop.clock()
        self._clocks = Clocks(math.inf, math.inf, math.inf, SECONDS, math.inf)
        error.message += f"; the server was not reached, and may go on with the answer {durable.answer_id!r}"

    def begin(self, *, fresh: bool = False) -> Attempt:
        """Send the request. `fresh`: on a connection that no request has used."""
        attempt = Attempt(self._prepared, self, self._runtime, self._clocks, self._started)
        self._runtime.soon(lambda: self._send(attempt, fresh), self.on_defect)
        return attempt

    def _send(self, attempt: Attempt, fresh: bool) -> None:
        if attempt.over:
            return
        if self._prepared.fresh_key is None:
            attempt.acquire(fresh)
        else:
            attempt.take_key(fresh)

    @property
    def label(self) -> str:
        return self._call.label

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

    def on_unfinished(self, attempt: Attempt) -> None:
        self._reached()

    def on_answer(self, attempt: Attempt, response: Response, terminal: Event | None) -> None:
        self._reached()

    def on_attempt_failure(self, attempt: Attempt, error: ProviderError, *, unread: bool) -> None:
        if 200 <= attempt.status < 300:
            self._reached()
        elif error.category is ErrorCategory.NETWORK and not self._repeated:
            self._repeated = True  # the connection was idle, and the server may have closed it
            self._call.cancel_again(self.begin(fresh=True))
        else:
            self._error.message += f": {error.message}"
            self._call.finish()

    def on_defect(self, error: Exception) -> None:
        self._call.on_defect(error)

    def _reached(self) -> None:
        self._error.message = self._plain
        self._call.finish()
