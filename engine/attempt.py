"""One try of one call: get a connection, send, read, decode; and what ended it.

Knows transport (as its waiter and its exchange) and a dialect's machine or decoder. Must not know retries, clocks
or callbacks: it reports to its `Listener` (the call) and is over.

The ordinary way of a stream is `on_body` with a machine: body bytes → SSE → machine → `deliver`. What it returns may
read the chunks that follow (`fast_path.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..providers.accumulate import events_of
from ..providers.dialect import StreamMachine
from ..providers.errors import ErrorCategory, ProviderError, malformed
from ..providers.events import Error, Event
from ..providers.kept import kept_bytes
from ..providers.response import Response
from ..transport.errors import Phase, TransportError
from ..transport.exchange import Exchange, RawHeaders
from ..transport.headers import headers_to_mapping
from ..transport.http1 import Connection
from ..transport.sse import ServerSentEvent, SSEOverflowError, SSEParser
from .answer_size import AnswerSize
from .error_answer import EVENT_STREAM, read_error
from .errors import redacted, redacted_headers, transport_error
from .fast_path import DeliverEach, FastPath
from .listener import Listener, Progress, Recorder, Tap
from .prepared import Prepared
from .steps import STEP_EVENTS, Action, Steps

JSON_TYPES = ("application/json", "text/json")
NO_ANSWER_TYPES = ("text/html", "application/xhtml+xml", "image/", "audio/", "video/")
NO_CONTENT = frozenset({204, 205})
"""Successes that say there is no answer: an error here, named by its status."""
REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-goog-request-id", "apim-request-id", "x-ms-request-id", "cf-ray")


class Reading(enum.Enum):
    """What the response body is."""

    NOTHING = "nothing"
    STREAM = "stream"
    ANSWER = "answer"
    PAGE = "page"
    ERROR = "error"


class Attempt:
    """One try.

    status, headers: of the response, once its head has come. phase: where the dial stands.
    deliver: takes a stream's events, none of them terminal; the listener may put another in its place at any time.
    If the attempt is `over` when it returns, nothing more is given. deliver_each: the same for events that are made as
    they are asked for, once the listener has set it; without it there is no fast path. paused: the consumer wants
    nothing for now.
    """

    __slots__ = (
        "_buffered",
        "_ended",
        "_fast_path",
        "_listener",
        "_machine",
        "_pieces",
        "_prepared",
        "_reading",
        "_recorder",
        "_size",
        "_sse",
        "_tap",
        "_truncatable",
        "connection",
        "deliver",
        "deliver_each",
        "headers",
        "over",
        "paused",
        "phase",
        "status",
        "steps",
    )

    def __init__(
        self,
        prepared: Prepared,
        listener: Listener,
        deliver: Callable[[Sequence[Event]], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._prepared = prepared
        self._recorder = recorder
        self._tap: Tap | None = None
        self._listener = listener
        self.deliver: Callable[[Sequence[Event]], None] = deliver
        self.deliver_each: DeliverEach | None = None
        self._fast_path: FastPath | None = None
        self.connection: Connection | None = None
        self.phase: Phase = Phase.QUEUE
        self.status: int = 0
        self.headers: dict[str, str] = {}
        self.over: bool = False
        self.paused: bool = False
        self.steps: Steps | None = None  # events of one wire event that are being delivered a few at a time
        self._buffered: list[bytes] = []  # what was read meanwhile
        self._ended: Action | None = None  # how the body ended meanwhile
        self._reading = Reading.NOTHING
        self._machine: StreamMachine | None = None
        self._sse: SSEParser | None = None
        self._pieces: list[bytes] = []
        self._size = AnswerSize(prepared.limits.max_response_bytes)
        self._truncatable = False

    @property
    def request_id(self) -> str | None:
        """The provider's id for the request, from the response's headers."""
        for name in REQUEST_ID_HEADERS:
            if name in self.headers:
                return self.headers[name]
        return None

    @property
    def _encoding(self) -> str:
        """The body's content coding; empty where it has none."""
        coding = self.headers.get("content-encoding", "").strip().lower()
        return "" if coding == "identity" else coding

    def partial_response(self) -> Response | None:
        """What had arrived of a stream, where anything had."""
        return self._machine.response() if self._machine is not None else None

    # --- as the pool's waiter ---

    def on_phase(self, phase: Phase) -> None:
        first = self.phase is Phase.QUEUE
        self.phase = phase
        if first:
            self._listener.on_progress(Progress.DIALLING)

    def on_connection(self, connection: Connection, reused: bool) -> None:
        self.connection = connection
        self.phase = Phase.SEND
        exchange: Exchange = self
        if self._recorder is not None:
            exchange = self._tap = self._recorder.tap(self._prepared, self)
        connection.send(self._prepared.head, self._prepared.body, exchange, self._listener.label)
        self._listener.on_progress(Progress.CONNECTED)

    def on_connect_failure(self, error: TransportError) -> None:
        self._fail(transport_error(error, streaming=False))

    # --- as the connection's exchange ---

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        self.headers = redacted_headers(headers_to_mapping(headers), self._prepared.secrets)
        self.phase = Phase.BODY
        self._reading = self._choose_reading()
        self._truncatable = "content-length" not in self.headers and "transfer-encoding" not in self.headers
        self._listener.on_progress(Progress.HEAD)

    def _choose_reading(self) -> Reading:
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not 200 <= self.status < 300 or self.status in NO_CONTENT:
            return Reading.ERROR
        if self._encoding:
            # `identity` was asked for, and compressed events could not be told apart as they come.
            what = f"the server sent content-encoding {self._encoding[:40]!r}, which was not asked for"
            self._give_up(malformed(what))
            return Reading.NOTHING
        is_events = media_type == EVENT_STREAM
        if media_type.startswith(NO_ANSWER_TYPES):
            return Reading.PAGE  # decoding will refuse it, and quote its beginning
        if is_events or (self._prepared.stream and media_type not in JSON_TYPES):
            prepared = self._prepared
            self._machine = prepared.dialect.machine(prepared.provider, prepared.make_id, prepared.limits)
            self._sse = SSEParser(prepared.limits.max_event_bytes)
            self._fast_path = FastPath(self._machine, self._size)
            return Reading.STREAM
        return Reading.ANSWER

    def on_body(self, data: bytes) -> FastPath | None:
        machine, sse, fast_path = self._machine, self._sse, self._fast_path
        if machine is None or sse is None or fast_path is None:
            self._collect(data)
            return None
        if self.steps is not None:
            self._buffered.append(data)  # a paused connection that broke is read to its end
            return None
        size = self._size
        size.bytes_left -= len(data)
        if size.bytes_left < 0 and not self._may_grow():
            return None
        try:
            wire_events = sse.feed(data)
        except SSEOverflowError as error:
            self._give_up(malformed(f"{error} (limits.max_event_bytes)"))
            return None
        if not self._take(iter(wire_events), machine) or self.deliver_each is None or not sse.at_boundary:
            return None
        return fast_path.follow(wire_events, data, self.deliver_each)

    def _take(self, wire_events: Iterator[ServerSentEvent], machine: StreamMachine) -> bool:
        """Decode and deliver. False where that ends the attempt, or takes more than one tick."""
        deliver = self.deliver
        for name, payload in wire_events:
            if not payload:
                continue
            events = machine.feed(name, payload)
            if machine.ended:
                self._stream_ended(events)
                return False
            if events:
                if len(events) > STEP_EVENTS:
                    self._deliver_in_steps(events, partial(self._take, wire_events, machine))
                    return False
                deliver(events)
                if self.over:
                    return False
        return True

    def on_end(self) -> None:
        if self.over:
            return
        self.connection = None
        if self.steps is not None:
            self._ended = self.on_end
            return
        if self._reading is Reading.STREAM:
            self._end_of_stream(None)
        elif self._reading in (Reading.ANSWER, Reading.PAGE):
            self._decode_answer()
        else:
            self._decode_error()

    def on_failure(self, error: TransportError) -> None:
        if self.over:
            return
        self.connection = None
        if self.steps is not None:
            self._ended = partial(self.on_failure, error)
            return
        if self._reading is Reading.STREAM:
            self._end_of_stream(transport_error(error, streaming=True))
        elif self._reading is Reading.ERROR:
            self._decode_error()  # the status has come, and says more than the broken line
        else:
            self._fail(transport_error(error, streaming=False), unread=error.unread)

    def on_defect(self, error: Exception) -> None:
        self._listener.on_defect(error)

    @property
    def reads_error(self) -> bool:
        """Whether the body of an error answer is being read."""
        return self._reading is Reading.ERROR and not self.over

    # --- streams ---

    def _stream_ended(self, events: Sequence[Event]) -> None:
        """The machine has returned its terminal event."""
        *before, terminal = events
        if len(before) > STEP_EVENTS:
            self._deliver_in_steps(before, partial(self._finish_stream, terminal))
            return
        if before:
            self.deliver(before)
        self._finish_stream(terminal)

    def _finish_stream(self, terminal: Event) -> None:
        machine = self._machine
        assert machine is not None
        if self.over:
            return
        if isinstance(terminal, Error):
            self._stream_failed(terminal.error)
            return
        self._leave()
        self._drain()
        self._listener.on_answer(machine.response(), terminal)

    def _stream_failed(self, error: ProviderError) -> None:
        if error.request_id is None:
            error.request_id = self.request_id
        if error.retryable:
            self._drain()  # busy, but in order: the next attempt may have its connection
        self._give_up(error)

    def _end_of_stream(self, broken: ProviderError | None) -> None:
        """The body ended, or broke, with no terminal event so far. What arrived whole still counts."""
        machine, sse = self._machine, self._sse
        assert machine is not None and sse is not None
        for name, payload in sse.end():
            # The last event's end was not seen: it counts only if it is whole.
            events = machine.feed_last(name, payload)
            if machine.ended:
                self._stream_ended(events)
                return
            if len(events) > STEP_EVENTS:
                self._deliver_in_steps(events, partial(self._end_of_stream, broken))  # by then it holds no more
                return
            if events:
                self.deliver(events)
                if self.over:
                    return
        events = machine.end(sse.stray)
        terminal = events[-1] if events else None
        if broken is not None and isinstance(terminal, Error) and terminal.error.category is ErrorCategory.NETWORK:
            # "truncated" is true, and how it was cut says more.
            events = (*events[:-1], Error(broken))
        if events:
            self._stream_ended(events)

    # --- whole bodies ---

    def _collect(self, data: bytes) -> None:
        if self.over:
            return
        if self._reading is Reading.PAGE and data.lstrip()[:1] in (b"{", b"["):
            self._reading = Reading.ANSWER  # whatever its type says
        self._pieces.append(data)
        self._size.bytes_left -= len(data)
        if self._reading in (Reading.ERROR, Reading.PAGE):
            if self._size.received >= self._prepared.limits.max_error_bytes:
                self._close()
                self._decode_error() if self._reading is Reading.ERROR else self._decode_answer()
        elif self._size.bytes_left < 0:
            self._may_grow()

    # --- how large it becomes ---

    def _may_grow(self) -> bool:
        """Look at the size. False where it is too much."""
        prepared = self._prepared
        grown = self._size.look()
        if grown is None:
            limit = prepared.limits.max_response_bytes
            self._give_up(malformed(f"the answer is larger than {limit} bytes (limits.max_response_bytes)"))
            return False
        prepared.buffered.grown(self, grown)
        return True

    def kept_bytes(self) -> int:
        """What of the bytes received is kept."""
        machine, sse = self._machine, self._sse
        if machine is None or sse is None:
            return self._size.received
        return kept_bytes(machine) + sse.pending

    def give_way(self) -> None:
        """Fail: the answers of all calls are too large, and this one is the largest."""
        self._listener.soon(self._yield_room)  # at the next tick: another call's read is under way

    def _yield_room(self) -> None:
        if not self.over:
            self._give_up(self._prepared.buffered.too_much())

    def _leave(self) -> None:
        """Nothing more is reported from here on."""
        self.over = True
        self._prepared.buffered.forget(self)

    def _decode_answer(self) -> None:
        prepared = self._prepared
        body = b"".join(self._pieces)
        self._pieces.clear()
        try:
            response = prepared.dialect.decode(body, prepared.provider, prepared.make_id, prepared.limits)
        except ProviderError as error:
            if error.request_id is None:
                error.request_id = self.request_id
            if not body or self._truncatable:
                error.message = f"{error.message} (the body ended with the connection, perhaps early)"
            self._fail(error)
            return
        if not prepared.stream:
            self._leave()
            self._listener.on_answer(response, None)
            return
        *events, done = events_of(response)
        if len(events) > STEP_EVENTS:
            self._deliver_in_steps(events, partial(self._answered, response, done))
            return
        self.deliver(events)
        self._answered(response, done)

    def _answered(self, response: Response, done: Event) -> None:
        if not self.over:
            self._leave()
            self._listener.on_answer(response, done)

    # --- what takes more than one tick ---

    def _deliver_in_steps(self, events: Sequence[Event], then: Callable[[], object]) -> None:
        """Deliver many events a few at a time, and read nothing meanwhile."""
        connection = self.connection
        if connection is not None:
            connection.pause()
        self.steps = Steps(self, events, then, self._listener.soon)
        self.steps.go_on()

    def deliver_step(self, events: Sequence[Event]) -> None:
        """Deliver a few of them."""
        self.deliver(events)

    def stepped(self, then: Callable[[], object]) -> None:
        """They were delivered: go on with what comes after them."""
        self.steps = None
        then()
        while self._buffered and self.steps is None and not self.over:
            self.on_body(self._buffered.pop(0))
        if self.steps is not None or self.over:
            return
        if self._ended is not None:
            self._ended()
        elif self.connection is not None and not self.paused:
            self.connection.resume()
            self._listener.on_reading()

    def pause(self) -> None:
        """Deliver no more than what was read, and read nothing, until `resume`."""
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Go on."""
        self.paused = False
        if self.steps is not None:
            self.steps.schedule()
        elif self.connection is not None:
            self.connection.resume()

    def _decode_error(self) -> None:
        prepared = self._prepared
        # A body in a coding that was not asked for is not read: only the status and the headers count.
        pieces = [] if self._encoding else self._pieces
        body = prepared.secrets.hide_bytes(b"".join(pieces))[: prepared.limits.max_error_bytes]
        error = read_error(prepared, self.status, self.headers, body)
        if error.request_id is None:
            error.request_id = self.request_id
        self._fail(error)

    # --- the end ---

    def expire(self, error: ProviderError) -> None:
        """A clock of the call ended. An error's status that has come already says more than the clock."""
        if self.over:
            return
        if self._reading is Reading.ERROR:
            self._close()
            self._decode_error()
        else:
            self._give_up(error)

    def abort(self) -> None:
        """Close whatever is open, and tell nothing: the call has ended."""
        self._leave()
        self._close()

    def _close(self) -> None:
        connection = self.connection
        if connection is not None:
            if self._tap is not None:
                self._tap.left(whole=False)
            connection.close()
            self.connection = None  # last: where closing raises, it is closed again

    def _drain(self) -> None:
        connection = self.connection
        if connection is not None:
            if self._tap is not None:
                self._tap.left(whole=True)
            connection.drain()
            self.connection = None

    def _give_up(self, error: ProviderError) -> None:
        self._close()
        self._fail(error)

    def _fail(self, error: ProviderError, *, unread: bool = False) -> None:
        if not self.over:
            self._leave()
            self._listener.on_attempt_failure(redacted(error, self._prepared.secrets), unread=unread)
