"""The end of a call: the outcome is decided once, and each step that follows is performed once."""

from __future__ import annotations

import abc
import dataclasses
import enum
import logging
from collections.abc import Sequence

from ...providers.model.events import Error, Event
from ...transport.backend import Event as Flag
from ..request.errors import callback_failed
from .callbacks import OnCompletion
from .completion import Completion
from .delivery import Delivery
from .runtime import Runtime

logger: logging.Logger = logging.getLogger("manystream.engine")


class Step(enum.IntEnum):
    """The steps of a call's end, in order. Each is performed once."""

    OPEN = 0
    """Attempts are made; the outcome is open."""
    SETTLED = 1
    """The outcome is decided. The steps below follow at once, or at the next iteration of the loop."""
    STOPPED = 2
    """Nothing of the call runs, waits or is open."""
    NOTIFYING = 3
    """The terminal event is being given to `on_event`."""
    NOTIFIED = 4
    """`on_event` has returned, and is not called again."""
    RECORDED = 5
    """The completion is public, and the engine has counted it."""
    COMPLETED = 6
    """`on_completion` was called."""
    ENDED = 7
    """The tasks that wait for the call were woken."""


OPEN, SETTLED, STOPPED, NOTIFYING, NOTIFIED, RECORDED, COMPLETED, ENDED = Step
"""The members, for the steps of every call."""


class Ending(abc.ABC):
    """The part of a call that ends it, exactly once.

    completion: the final record, once the call has ended.
    """

    __slots__ = (
        "_delivery",
        "_ended",
        "_on_completion",
        "_outcome",
        "_raised",
        "_runtime",
        "_started",
        "_starting",
        "_step",
        "_terminal",
        "completion",
    )

    def __init__(self, runtime: Runtime, delivery: Delivery, on_completion: OnCompletion | None) -> None:
        self._runtime = runtime
        self._delivery = delivery
        self._on_completion = on_completion
        self._started = runtime.loop.clock()
        self._step = OPEN
        self._outcome: Completion | None = None  # what `completion` will be
        self._terminal: Sequence[Event] = ()  # the events that the stream ends with
        self._raised: BaseException | None = None  # by a callback; may end the engine
        self._ended: Flag | None = None
        self._starting = False  # `start_*` has not returned yet: no callback may run
        self.completion: Completion | None = None

    async def wait(self) -> Completion:
        """Wait for the completion, which the callback (if any) has been given by then. Cancelling the wait leaves the
        call running; `async with call:` cancels both. Raises `EngineClosedError` away from the engine's home."""
        if self.completion is None:
            self._runtime.home.check()
        await self._runtime.backend.checkpoint()
        if self.completion is None:
            if self._ended is None:
                self._ended = self._runtime.backend.event()
            await self._ended.wait()
        assert self.completion is not None
        return self.completion

    def _settle(self, outcome: Completion, terminal: Sequence[Event]) -> None:
        """Decide the outcome of the call, unless a function of the program has ended it meanwhile.

        terminal: the last events of its stream; empty if `on_event` raised.
        """
        if self._step is not OPEN:
            return
        self._outcome = outcome
        self._terminal = terminal
        self._delivery.mute()
        self._step = SETTLED

    def finish(self) -> None:
        """Perform the remaining steps of the end.

        Steps that may be repeated are marked as taken afterwards. Callbacks are marked before they are called, by the
        same function that calls them. So after a step that raised this can be called again: nothing is left out, and
        no callback is called twice.

        While the call is being started, only the first step is taken at once. The others follow at the loop's next
        tick, when the caller has the call in hand.
        """
        if self._step < STOPPED:
            self._stop()
            self._step = max(self._step, STOPPED)  # a function of the program may have closed the engine
        if self._starting:
            self._runtime.soon(self.finish, self.on_defect)
            return
        if self._step < NOTIFIED:
            self._step = NOTIFYING
            self._deliver_terminal()
            self._step = NOTIFIED
        if self._step < RECORDED:
            self._record()
            self._step = RECORDED
        if self._step < COMPLETED:
            self._step = COMPLETED
            on_completion, completion = self._on_completion, self.completion or self._outcome
            if on_completion is not None and completion is not None:
                try:
                    on_completion(completion)
                except BaseException as error:
                    logger.exception("on_completion raised")
                    self._raised = error
        if self._step < ENDED:
            self._step = ENDED
            if self._ended is not None:
                self._ended.set()
        raised, self._raised = self._raised, None
        if raised is not None:
            self._runtime.on_callback_raised(raised)

    def _finish_by_all_means(self) -> None:
        """Perform the remaining steps; skip a step that raises."""
        for _ in Step:
            try:
                self.finish()
            except Exception:
                logger.exception("ending %r raised, too", self)
                self._step = Step(min(self._step + 1, ENDED))
                continue
            return

    @abc.abstractmethod
    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library. Never raises."""

    @abc.abstractmethod
    def _stop(self) -> None:
        """Stop everything of the call that runs, waits or is open. May be called again."""

    @abc.abstractmethod
    def _book(self, completion: Completion) -> None:
        """Let the engine count the call as ended. May be called again."""

    def _deliver_terminal(self) -> None:
        terminal = self._terminal
        if not terminal:
            return
        failure = self._delivery.finish(terminal)
        if failure is None:
            return
        self._raised = failure
        if isinstance(terminal[-1], Error):
            logger.error("on_event raised on its Error event", exc_info=failure)
        else:
            assert self._outcome is not None
            self._outcome = _failed_by_callback(self._outcome, failure)

    def _record(self) -> None:
        completion = self._outcome
        assert completion is not None
        completion.timings.finished = self._runtime.loop.clock() - self._started
        self.completion = completion
        self._delivery.release()
        self._book(completion)


def _failed_by_callback(outcome: Completion, failure: BaseException) -> Completion:
    """Return the outcome of a call with a complete answer whose `on_event` raised on `Done`."""
    return dataclasses.replace(outcome, success=False, error=callback_failed(failure))
