"""Events to their callback: in order, the first `Start` held back, exactly one terminal event, nothing after it.

Knows the callback. Must not know sockets, attempts, or why a call ended.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from ..providers.events import Event, EventType, Start

OnEvent: TypeAlias = "Callable[[Event], object]"


class Counters:
    """What became of the calls that share it: one provider's. events: delivered, to a callback or to nobody."""

    __slots__ = ("completed", "events", "failures", "started")

    def __init__(self) -> None:
        self.events: int = 0
        self.started: int = 0
        self.completed: int = 0
        self.failures: Counter[str] = Counter()


class CallbackOwner(Protocol):
    """Whose callback it is."""

    def on_callback_failure(self, failure: BaseException) -> None:
        """The callback raised."""
        ...

    def on_defect(self, error: Exception) -> None:
        """The method above raised: a defect in this library."""
        ...


class Stage(enum.IntEnum):
    """How far the delivery of a call's events has come. A stage may be passed over; none is entered twice."""

    HOLDING = 0
    """The caller has received nothing: another attempt may be made."""
    DELIVERING = 1
    """Events are given to the callback as they come."""
    MUTED = 2
    """The call is ending: only its terminal event is still given to the callback."""
    FINISHED = 3
    """The callback has had the terminal event, or has raised: it is not called again."""


DELIVERING = Stage.DELIVERING


class Delivery:
    """The events of one call.

    on_event: the caller's.
    call: notified, once, of what `on_event` raised; `on_event` gets no further event then.
    """

    __slots__ = ("_call", "_counters", "_held", "_on_event", "_stage")

    def __init__(self, on_event: OnEvent | None, call: CallbackOwner, counters: Counters) -> None:
        self._on_event: OnEvent = _nobody if on_event is None else on_event
        self._call: CallbackOwner | None = call
        self._counters = counters
        self._held: Start | None = None
        self._stage = Stage.HOLDING

    @property
    def delivered(self) -> bool:
        """Whether the caller has received an event, so that no attempt may be repeated any more."""
        return self._stage is not Stage.HOLDING

    def mute(self) -> None:
        """The call is ending: deliver nothing but its terminal event."""
        if self._stage is not Stage.FINISHED:
            self._stage = Stage.MUTED

    def deliver_first(self, events: Sequence[Event]) -> None:
        """Hand on events, none of them terminal, while nothing may have been told.

        `Start` waits for the stream's first event that is no error: an overload that a server reports inside a 200
        can still be retried then.
        """
        events = self._with_start(events)
        if events:
            self._stage = max(self._stage, DELIVERING)
            self.deliver(events)

    def deliver(self, events: Iterable[Event]) -> None:
        """Deliver more events, none of them terminal. They may be made as they are asked for: none is, once the
        callback has raised or has cancelled its own call."""
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

    def _failed(self, error: BaseException) -> None:
        """`on_event` raised."""
        self._stage = Stage.FINISHED
        call = self._call
        assert call is not None, "a call that has ended has no events"
        try:
            call.on_callback_failure(error)
        except Exception as defect:
            call.on_defect(defect)

    def reset(self) -> None:
        """Another attempt begins; nothing of this one was told."""
        self._held = None

    def finish(self, event: Event) -> BaseException | None:
        """Hand on the terminal event, and nothing after it. Returns what the callback raised."""
        if self._stage is Stage.FINISHED:
            return None
        # An error that comes first comes alone; `Done` brings the `Start` of an answer that had no content.
        events = (event,) if event.type is EventType.ERROR else self._with_start((event,))
        self._stage = Stage.FINISHED  # last before the callback: this may be called again
        self._counters.events += len(events)
        try:
            for each in events:
                self._on_event(each)
        except BaseException as error:
            return error
        return None

    def release(self) -> None:
        """The call has ended: let go of it and of the callback, which refer to each other."""
        self._on_event, self._call = _nobody, None

    def _with_start(self, events: Sequence[Event]) -> Sequence[Event]:
        if self._held is None and events and isinstance(events[0], Start):
            self._held = events[0]
            events = events[1:]
        if events and self._held is not None:
            events = (self._held, *events)
            self._held = None
        return events


def _nobody(_: object) -> None:
    """The callback of a call that has none."""
