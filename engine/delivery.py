"""Events to their callback: in order, the first `Start` held back, exactly one terminal event, nothing after it.

Knows the callback. Must not know sockets, attempts, or why a call ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..providers.events import Error, Event, EventType, Start

OnEvent: TypeAlias = "Callable[[Event], object]"

logger = logging.getLogger("manystream.engine")


class CallbackError(Exception):
    """`on_event` raised; the original is the cause. Ends its own call."""

    def __init__(self, original: Exception) -> None:
        super().__init__(str(original))
        self.original = original


class Tally:
    """Events delivered, over all calls that share it."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events = 0


class Delivery:
    """The events of one call.

    delivered: events that the callback was given; once above 0, no attempt may be repeated.
    muted: the call is ending, so that only its terminal event is still told.
    """

    __slots__ = ("_ended", "_held", "_on_event", "_tally", "delivered", "muted")

    def __init__(self, on_event: OnEvent | None, tally: Tally) -> None:
        self._on_event = on_event
        self._tally = tally
        self._held: Start | None = None
        self.delivered = 0
        self.muted = False
        self._ended = False

    def deliver(self, events: Sequence[Event]) -> None:
        """Hand on events that are no terminal ones. Raises `CallbackError`.

        `Start` waits for the stream's first event that is no error: an overload that a server reports inside a 200
        can still be retried then.
        """
        if not self.delivered:
            events = self._with_start(events)
        on_event = self._on_event
        self._tally.events += len(events)
        if on_event is None:
            self.delivered += len(events)
            return
        for event in events:
            if self.muted:
                return  # the callback has cancelled its own call
            self.delivered += 1
            try:
                on_event(event)
            except Exception as error:
                self.muted = self._ended = True
                raise CallbackError(error) from error

    def reset(self) -> None:
        """Another attempt begins; nothing of this one was told."""
        self._held = None

    def finish(self, event: Event) -> None:
        """Hand on the terminal event, and nothing after it. Raises `CallbackError`."""
        if self._ended:
            return
        if event.type is EventType.DONE:
            self.deliver((event,))  # with the `Start` of an answer that had no content
        elif self._on_event is not None:
            self.delivered += 1
            self._tally.events += 1
            try:
                self._on_event(event)
            except Exception as error:
                self.muted = self._ended = True
                raise CallbackError(error) from error
        self.muted = self._ended = True

    def abort(self, error: Error) -> None:
        """Hand on the error of a call that ended for another reason; what the callback makes of it is logged."""
        try:
            self.finish(error)
        except CallbackError as failure:
            logger.error("on_event raised on its Error event", exc_info=failure.original)

    def _with_start(self, events: Sequence[Event]) -> Sequence[Event]:
        if self._held is None and events and isinstance(events[0], Start):
            self._held = events[0]
            events = events[1:]
        if events and self._held is not None:
            events = (self._held, *events)
            self._held = None
        return events
