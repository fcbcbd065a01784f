"""The part of a call that traffic control directs: when an attempt begins, and at which target.

Knows the call's admission, and the requests that it is given for other targets. Must not know limits or routes, nor
when a call retries: `RunningCall`, a subclass, decides that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..providers.errors import ProviderError
from ..providers.options import Retry
from ..providers.response import Response
from .admission import Admission
from .delivery import Counters
from .ending import Step
from .stop import Stop
from .timed import Timed


class Directed(Timed):
    """The part of a call that waits for traffic control and takes the target that it is given.

    counters: the counters of the call's provider, which all calls to this provider update.
    """

    __slots__ = ("_admission", "_attempts", "_finish_response", "_retry", "counters")

    # Set by `RunningCall`, as for `Timed`.
    _admission: Admission | None
    _attempts: int
    _finish_response: Callable[[Response], None]
    _retry: Retry
    counters: Counters

    def begin(self, *, fresh: bool = False) -> None:
        """Start the first attempt, or another one. `fresh`: on a connection that no request has used."""
        raise NotImplementedError

    # --- for programs: documented in `Call` (handle.py) ---

    @property
    def target(self) -> str:
        if self._admission is not None:
            return self._admission.target
        return f"{self._prepared.provider.name}/{self._prepared.model}"

    @property
    def waiting_for(self) -> str:
        return "" if self._admission is None else self._admission.waiting_for

    # --- for traffic control ---

    def _set_out(self, *, again: bool = False) -> None:
        """Begin an attempt: at once, or when traffic control admits the call. `again`: the call was sent before."""
        admission = self._admission
        if admission is None:
            self.begin()
        elif self._step is Step.OPEN:
            self._enter_queue()
            self._disarm()
            now = self._runtime.loop.clock() if again else self._started
            admission.enter(self, self._longest_wait(now), now, again=again)

    def admitted(self) -> None:
        assert self._admission is not None
        self._admission.begin(self._runtime.loop.clock())
        self.begin()

    def redirect(self, stop: Stop) -> None:
        """Take the request for another target. The next attempt is sent there."""
        self._prepared, self._finish_response = stop.prepared, stop.finish_response
        # The time to wait is the call's own; the other timeouts may be the target's.
        self._clocks = dataclasses.replace(stop.clocks, queue=self._clocks.queue)
        if stop.counters is not self.counters:
            self.counters.started -= 1
            stop.counters.started += 1
            self.counters = stop.counters
            self._delivery.count_in(stop.counters)

    def rejected(self, error: ProviderError) -> None:
        self._timed_out(error)

    def overdue(self, waiting_for: str) -> None:
        self._expired(self._deadline()[1], f"waiting for {waiting_for}")

    @property
    def _counted(self) -> int:
        """The attempts that count against `Retry.max_attempts`. Those that a limit refused do not."""
        return self._attempts - (0 if self._admission is None else self._admission.refusals)

    @property
    def has_attempts_left(self) -> bool:
        return self._counted < self._retry.max_attempts

    def _ask_traffic(self, error: ProviderError) -> ProviderError | None:
        """Return None where the call waits again, because a limit refused it or another target may take it. Else return
        the error that decides about a retry: with several targets it may be an earlier one. What the attempt had
        reserved is given back in any case."""
        attempt, admission = self._attempt, self._admission
        if admission is None or attempt is None:
            return error
        self._sign(error)
        return admission.failed(
            error, attempt.headers, self._longest_wait(self._runtime.loop.clock()), sent=attempt.sent
        )

    def _set_out_again(self) -> None:
        self._set_out(again=True)

    def _sign(self, error: ProviderError) -> None:
        """Write into an error where the call was sent."""
        prepared = self._prepared
        error.provider, error.model = prepared.provider.name, prepared.model
        error.host = prepared.head.headers[0][1].decode()  # the first header is Host
