"""Read a streamed answer: body bytes → SSE parser → stream machine → receiver.

This is the general case. The fast path reads the events that match the machine's delta template (`fast_path.py`).
`feed` may return it; it then reads the chunks that follow as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...providers.catalog.dialect import StreamMachine, Turn
from ...providers.model.events import ErrorEvent, Event
from ...providers.model.provider_error import ErrorCategory, ProviderError, malformed, truncated
from ...providers.model.response import Response, arrived
from ...providers.wire.answer_bytes import kept_bytes
from ...transport.errors import TransportError
from ...transport.sse import BARE_LINES, ServerSentEvent, SSEOverflowError, SSEParser
from ..request.durable import DurableAnswer
from ..request.errors import transport_error
from .body import STEP_EVENTS, Body
from .fast_path import FastPath

if TYPE_CHECKING:
    from .attempt import Attempt


class StreamBody(Body):
    """The body of a streamed answer: server-sent events."""

    __slots__ = ("_fast_path", "_machine", "_sse")

    def __init__(self, attempt: Attempt, machine: StreamMachine | None = None) -> None:
        """Create the reader. machine: has read the beginning of the answer; None: this is the beginning."""
        super().__init__(attempt)
        prepared, shared = attempt.prepared, attempt.prepared.shared
        if machine is None:
            machine = shared.dialect.machine(shared.provider, shared.make_id, shared.limits)
            machine.unasked, machine.choices, machine.asked = prepared.unasked, prepared.choices, prepared.asked
            if prepared.keep_received:
                machine.keep_received()
        self._machine: StreamMachine = machine
        self._sse = SSEParser(shared.limits.max_event_bytes)
        self._fast_path = FastPath(self._machine, self, shared.limits.max_event_bytes)

    def feed(self, data: bytes) -> FastPath | None:
        attempt, sse = self._attempt, self._sse
        fast_path = self._fast_path
        if sse.at_boundary:
            taken = fast_path.read_events(data)
            if attempt.over:
                return None
            if taken == len(data):
                return fast_path
            data = fast_path.take_beginning() + data[taken:]
        if self.count(len(data)) and not self._may_grow():
            return None
        try:
            wire_events = sse.feed(data)
        except SSEOverflowError as error:
            attempt.give_up(malformed(f"{error} (limits.max_event_bytes)"))
            return None
        if not self._take(iter(wire_events)) or attempt.fast_receiver is None or not sse.at_boundary:
            return None
        return fast_path.follow(wire_events, data, attempt.fast_receiver)

    def take_lines(self, lines: bytes) -> None:
        """Read bytes that are no fields of events, such as JSON lines."""
        self._take(self._unread(((BARE_LINES, lines),)))

    def _unread(self, wire_events: Iterable[ServerSentEvent]) -> Iterator[ServerSentEvent]:
        """Return the events that were not read before: all of them."""
        return iter(wire_events)

    def _take(self, wire_events: Iterator[ServerSentEvent]) -> bool:
        """Decode and deliver events. Returns False if the attempt has ended, or if delivery needs more ticks."""
        attempt, machine = self._attempt, self._machine
        receiver = attempt.receiver
        for name, payload in wire_events:
            if not payload:
                continue
            events = machine.feed(name, payload)
            if machine.ended:
                self._ended(events)
                return False
            if events:
                if len(events) > STEP_EVENTS:
                    attempt.deliver_in_steps(events, partial(self._take, wire_events))
                    return False
                receiver.deliver(events)
                if attempt.over:
                    return False
        return True

    def end(self) -> None:
        self._end(None)

    def fail(self, error: TransportError) -> None:
        self._end(transport_error(error, streaming=True))

    def _end(self, broken: ProviderError | None) -> None:
        """Process the end, or the break, of a body without a terminal event. Complete events still count."""
        self._sse.feed(self._fast_path.take_beginning())  # completes no event
        self._take_last(self._unread(self._sse.end()), broken)

    def _take_last(self, wire_events: Iterator[ServerSentEvent], broken: ProviderError | None) -> None:
        """Decode and deliver the last events, and end the machine."""
        attempt, machine = self._attempt, self._machine
        for name, payload in wire_events:
            # The end of the last event has not arrived: the event counts only if it is complete.
            events = machine.feed_last(name, payload)
            if machine.ended:
                self._ended(events)
                return
            if len(events) > STEP_EVENTS:
                attempt.deliver_in_steps(events, partial(self._take_last, wire_events, broken))
                return
            if events:
                attempt.receiver.deliver(events)
                if attempt.over:
                    return
        self._end_machine(broken)

    def _end_machine(self, broken: ProviderError | None) -> None:
        """Deliver what the machine makes of the end, or the break, of the body."""
        events = self._machine.end()
        terminal = events[-1] if events else None
        if broken is not None and isinstance(terminal, ErrorEvent) and terminal.error.category is ErrorCategory.NETWORK:
            # "truncated" is true, and how it was cut says more.
            events = (*events[:-1], ErrorEvent(broken))
        if events:
            self._ended(events)

    def _ended(self, events: Sequence[Event]) -> None:
        """The machine has returned its terminal event."""
        *before, terminal = events
        if len(before) > STEP_EVENTS:
            self._attempt.deliver_in_steps(before, partial(self._finish, terminal))
            return
        if before:
            self._attempt.receiver.deliver(before)
        self._finish(terminal)

    def _finish(self, terminal: Event) -> None:
        attempt = self._attempt
        if attempt.over:
            return
        if isinstance(terminal, ErrorEvent):
            error = terminal.error
            if error.request_id is None:
                error.request_id = attempt.request_id
            if error.retryable or attempt.prepared.forwarder is not None:
                attempt.drain()  # busy, but in order: the next attempt may have its connection
            attempt.give_up(error)
            return
        response, turn = self._machine.response(), attempt.prepared.turn
        if turn is not None:
            turn.succeeded(self._machine, response)
        attempt.answered(response, terminal, drain=True)

    def steer(self, turn: Turn, text: str) -> bytes | None:
        """Return the message that adds a text to the answer; None if that is not possible."""
        return turn.steer(self._machine, text)

    def kept_bytes(self) -> int:
        return kept_bytes(self._machine) + self._sse.pending + self._fast_path.beginning_bytes

    def partial_response(self) -> Response | None:
        return arrived(self._machine.response())

    def release(self) -> None:
        """Drop the fast path, which refers back to this reader. The reader is not used any more."""
        del self._fast_path


class DurableStreamBody(StreamBody):
    """The body of one connection of a durable stream, which goes on where the one before was cut.

    One machine reads all of them. Each event is parsed for its place, so there is no fast path. The end of a body
    without the end of the answer, and an error report of the server, are a failure of the attempt only.
    """

    __slots__ = ("_durable",)

    def __init__(self, attempt: Attempt, durable: DurableAnswer) -> None:
        super().__init__(attempt, durable.machine)
        durable.machine = self._machine
        self._durable = durable
        self._looked_at -= durable.events.size  # the first report is about the earlier connections, too

    def feed(self, data: bytes) -> FastPath | None:
        if (self.count(len(data)) or not self._fits()) and not self._may_grow():
            return None
        try:
            wire_events = self._sse.feed(data)
        except SSEOverflowError as error:
            self._attempt.give_up(malformed(f"{error} (limits.max_event_bytes)"))
            return None
        self._take(self._unread(wire_events))
        return None

    def _fits(self) -> bool:
        return self._durable.events.size <= self._attempt.prepared.shared.limits.max_response_bytes

    def kept_bytes(self) -> int:
        return super().kept_bytes() + self._durable.events.kept_bytes

    def _unread(self, wire_events: Iterable[ServerSentEvent]) -> Iterator[ServerSentEvent]:
        try:
            yield from self._durable.events.new(wire_events)
        except ProviderError as error:  # they are of another answer, or some are missing
            self._durable.no_more_events()
            self._attempt.give_up(error)

    def _end_machine(self, broken: ProviderError | None) -> None:
        if broken is None:
            self._durable.no_more_events()
        self._attempt.failed(broken or truncated("truncated stream: it ended before the answer"))

    def _ended(self, events: Sequence[Event]) -> None:
        if self._durable.events.is_report:
            self._machine.ended = False
        else:
            self._durable.ended = True
        super()._ended(events)


def stream_body(attempt: Attempt) -> StreamBody:
    """Return the reader of a streamed answer."""
    durable = attempt.prepared.durable
    return StreamBody(attempt) if durable is None else DurableStreamBody(attempt, durable)
