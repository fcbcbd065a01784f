"""Deliver events to their callback: in order, with exactly one terminal event as the last one."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...providers.catalog.dialect import DeltaTarget
from ...providers.model.events import Event
from ...providers.model.provider_error import ErrorCategory
from ...providers.wire.delta_template import Match
from .callbacks import OnEvent

if TYPE_CHECKING:
    from .call import RunningCall


class Counters:
    """The counters of one provider's calls. `events` counts delivered events, with or without a callback."""

    __slots__ = ("completed", "events", "failures", "started")

    def __init__(self) -> None:
        self.events: int = 0
        self.started: int = 0
        self.completed: int = 0
        self.failures: Counter[ErrorCategory] = Counter()


class Nobody:
    """Receives the events of an attempt that is over, and drops them."""

    __slots__ = ()

    def deliver(self, events: Sequence[Event]) -> None:
        """Drop the events."""


NOBODY = Nobody()


class Stage(enum.IntEnum):
    """The stage of the delivery of a call's events. A stage may be skipped; none is entered twice."""

    HOLDING = 0
    """The caller has received nothing: the call can be retried."""
    DELIVERING = 1
    """Events are delivered to the callback as they arrive."""
    MUTED = 2
    """The call is ending: only its terminal event is still delivered."""
    FINISHED = 3
    """The callback has received the terminal event, or has raised: it is not called again."""


HOLDING, DELIVERING, MUTED, FINISHED = Stage
"""The members, for the stages of every call."""


class Delivery:
    """The events of one call. An overload that a server reports inside a 200 can be retried while none was delivered.

    on_event: the caller's callback.
    call: notified once of an exception that `on_event` raises; `on_event` then receives no further event.
    """

    __slots__ = ("_call", "_counters", "_on_event", "_stage")

    def __init__(self, on_event: OnEvent | None, call: RunningCall, counters: Counters) -> None:
        self._on_event: OnEvent = _nobody if on_event is None else on_event
        self._call: RunningCall | None = call
        self._counters = counters
        self._stage = HOLDING

    @property
    def delivered(self) -> bool:
        """Whether the caller has received an event, so that the call must not be retried any more."""
        return self._stage is not HOLDING

    def count_in(self, counters: Counters) -> None:
        """Count the events in other counters: the call goes to another provider."""
        self._counters = counters

    def mute(self) -> None:
        """Deliver only the terminal event from now on: the call is ending."""
        if self._stage is not FINISHED:
            self._stage = MUTED

    def deliver_first(self, events: Sequence[Event]) -> None:
        """Deliver the first events with content. The call cannot be retried from now on."""
        self._stage = max(self._stage, DELIVERING)
        self.deliver(events)

    def deliver(self, events: Sequence[Event]) -> None:
        """Deliver more events, none of them terminal. Stops once the callback has raised or cancelled its call."""
        if self._stage is not DELIVERING:
            return
        on_event, delivered = self._on_event, 0
        try:
            for event in events:
                delivered += 1
                try:
                    on_event(event)
                except BaseException as error:
                    self._failed(error)
                    break
                if self._stage is not DELIVERING:
                    break
        finally:
            self._counters.events += delivered

    def deliver_matches(self, target: DeltaTarget, matches: Iterable[Match]) -> None:
        """Deliver deltas that matched, as `deliver` does. `target` makes the event of each.

        A loop of its own: an iterator that makes the events for `deliver` would cost each of them a hundredth more.
        """
        if self._stage is not DELIVERING:
            return
        on_event, delivered = self._on_event, 0
        try:
            for match in matches:
                event = target.accept(match)
                if event is None:
                    continue
                delivered += 1
                try:
                    on_event(event)
                except BaseException as error:
                    self._failed(error)
                    break
                if self._stage is not DELIVERING:
                    break
        finally:
            self._counters.events += delivered

    def _failed(self, error: BaseException) -> None:
        """Process an exception of `on_event`."""
        self._stage = FINISHED
        call = self._call
        assert call is not None, "a call that has ended has no events"
        try:
            call.on_callback_failure(error)
        except Exception as defect:
            call.on_defect(defect)

    def finish(self, events: Sequence[Event]) -> BaseException | None:
        """Deliver the last events: the terminal one, after a `Start` if none was delivered before. Returns the
        exception that the callback raised, or None."""
        if self._stage is FINISHED:
            return None
        self._stage = FINISHED  # last before the callback: this may be called again
        self._counters.events += len(events)
        try:
            for each in events:
                self._on_event(each)
        except BaseException as error:
            return error
        return None

    def release(self) -> None:
        """Drop the references to the ended call and to the callback, which refer to each other."""
        self._on_event, self._call = _nobody, None


def _nobody(_: object) -> None:
    """Do nothing: the callback of a call that has none."""
