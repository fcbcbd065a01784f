"""Cancels a durable answer at its server, for a call that was cancelled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...providers.model.provider_error import ProviderError
from ..request.durable import DurableAnswer
from ..request.prepared import Prepared
from .attempt import Attempt
from .plain_request import PlainRequest
from .runtime import Runtime
from .timeouts import Clocks

if TYPE_CHECKING:
    from .call import RunningCall

SECONDS = 2.0
"""The most seconds between `cancel` and the completion."""


class ServerCancel:
    """Sends the request that ends the answer, and lets the call complete then.

    The call's error says that the server was not reached, until it is.

    attempt: the request's first attempt.
    """

    __slots__ = ("_call", "_error", "_plain", "attempt")

    def __init__(
        self, call: RunningCall, error: ProviderError, durable: DurableAnswer, prepared: Prepared, runtime: Runtime
    ) -> None:
        """Create it. error: the call's. prepared: the request of the call's latest attempt."""
        self._call = call
        self._error = error
        self._plain = error.message
        error.message += f"; the server was not reached, and may go on with the answer {durable.answer_id!r}"
        clocks = Clocks(math.inf, math.inf, math.inf, SECONDS, math.inf)
        self.attempt: Attempt = PlainRequest(self, durable.cancel_request(prepared), runtime, clocks).attempt

    @property
    def label(self) -> str:
        return self._call.label

    def answered(self) -> None:
        self._error.message = self._plain
        self._call.finish()

    def failed(self, attempt: Attempt, error: ProviderError) -> None:
        if 200 <= attempt.status < 300:
            self.answered()
        else:
            self._error.message += f": {error.message}"
            self._call.finish()

    def repeated(self, attempt: Attempt) -> None:
        self._call.cancel_again(attempt)

    def on_defect(self, error: Exception) -> None:
        self._call.on_defect(error)
