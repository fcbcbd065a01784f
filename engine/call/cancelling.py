"""The cancelling of a durable answer at its server, for which the completion of a cancelled call waits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...providers.model.provider_error import ProviderError
from ..request.durable import IN_PROGRESS, DurableAnswer
from ..request.errors import cancelled
from ..request.prepared import Prepared
from .attempt import Attempt
from .plain_request import PlainRequest
from .runtime import Runtime
from .timeouts import Clocks

if TYPE_CHECKING:
    from .call import RunningCall

CANCEL_CLOCKS = Clocks(connect=math.inf, first_byte=math.inf, idle=math.inf, total=2.0, queue=math.inf)
"""The timeouts of the request."""


class Cancelling:
    """Asks the server to end an answer, and lets its call complete when the server knows that or does not answer.

    error: the call's. It says that the server has not confirmed, until it has.
    """

    __slots__ = ("_call", "_request", "error")

    def __init__(self, call: RunningCall, durable: DurableAnswer, prepared: Prepared, runtime: Runtime) -> None:
        """Send the request at the next tick. prepared: the request of the call's latest attempt."""
        unknown = f"; the server has not confirmed that, and may go on with the answer {durable.answer_id!r}"
        self.error: ProviderError = cancelled(f"{cancelled().message}{unknown}")
        self._call = call
        self._request = PlainRequest(self, durable.cancel_request(prepared), runtime, CANCEL_CLOCKS)

    def answered(self) -> None:
        self.error.message = cancelled().message
        self._call.finish()

    def failed(self, attempt: Attempt, error: ProviderError) -> None:
        durable = attempt.prepared.durable
        if error.provider_code == IN_PROGRESS or (durable is not None and durable.ended):
            self.answered()
        else:
            self.error.message += f": {error.message}"
            self._call.finish()

    def on_defect(self, error: Exception) -> None:
        self._call.on_defect(error)

    def abort(self) -> None:
        """Send nothing more, and wait no longer. May be called again."""
        self._request.attempt.abort()
