"""One attempt of one call: gets a connection, sends the request, and passes the response to the reader of its body."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ...providers.errors import ProviderError, malformed
from ...providers.model.events import Event
from ...providers.model.response import Response
from ...providers.wire.request_ids import request_id_in
from ...transport.errors import Phase, TransportError
from ...transport.exchange import Exchange, RawHeaders
from ...transport.headers import headers_to_mapping
from ...transport.http1 import Connection
from ..request.errors import hide_words, redacted, redacted_headers, transport_error
from ..request.prepared import Prepared
from .body import Body, BodyOwner, Envelope, ErrorBody, content_coding
from .body.fast_path import FastPath
from .delivery import Receiver
from .listener import CONNECTED, DIAL_STEP, DIALLING, HEAD, Listener, Recorder, Tap
from .slices import Action, Steps

NO_CONTENT = frozenset({204, 205})
"""Successful statuses without a body. A call that receives one fails."""
SENT = (Phase.SEND, Phase.HEAD, Phase.BODY)
"""Phases in which at least a part of the request may have been sent."""
QUEUE, SEND, BODY = Phase.QUEUE, Phase.SEND, Phase.BODY
"""The phases of every attempt. CPython 3.11 needs a thousand instructions to find a member in its enum."""


class Attempt(BodyOwner):
    """One attempt of a call.

    phase: the phase of the connection or exchange.
    dial_since: the time from which the connect timeout counts; its listener sets it.
    connection: the connection in use; None before there is one, and after the response has ended or was given up.
    paused: True while the consumer wants no events.
    steps: events of one wire event that are being delivered a few at a time; None: there are none.
    receiver: receives the events: the listener, until it gives the attempt another receiver.
    fast_receiver: receives the events of the fast path, which is used once the listener has set this.
    """

    __slots__ = (
        "_body",
        "_buffered",
        "_ended",
        "_listener",
        "_recorder",
        "_tap",
        "connection",
        "dial_since",
        "paused",
        "phase",
        "steps",
    )

    def __init__(
        self,
        prepared: Prepared,
        listener: Listener,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(prepared, listener)
        self._recorder = recorder
        self._tap: Tap | None = None
        self._listener = listener
        self._body: Body | None = None  # None until the response's head has arrived
        self.connection: Connection | None = None
        self.phase: Phase = QUEUE
        self.dial_since: float = 0.0
        self.paused: bool = False
        self.steps: Steps | None = None
        self._buffered: deque[bytes] | None = None  # the bytes that were read during `steps`
        self._ended: Action | None = None  # the end or failure of the body during `steps`

    @property
    def request_id(self) -> str | None:
        """The provider's id for the request, from the response's headers."""
        return request_id_in(self.headers) if self.headers else None

    @property
    def reads_error(self) -> bool:
        """True while the body of an error response is being read."""
        return self._body is not None and self._body.reads_error and not self.over

    @property
    def sent(self) -> bool:
        """True if a byte of the request may have reached the server."""
        return self.phase in SENT

    def partial_response(self) -> Response | None:
        """Return the part of a stream that has arrived; None if nothing has."""
        return self._body.partial_response() if self._body is not None else None

    def take_fresh_key(self) -> None:
        """Call the key function for this attempt's key. The attempt fails if the function returns none."""
        try:
            self.prepared: Prepared = self.prepared.with_fresh_key()
        except ProviderError as error:
            if not self.over:
                self._leave()
                hide_words(error, self.prepared.secrets)
                self._listener.on_attempt_failure(error, unread=False)

    def hand_over(self, listener: Listener) -> None:
        """Report to another listener from now on, and deliver the events there."""
        self._listener = listener
        self.receiver: Receiver = listener

    # --- as the pool's waiter ---

    def on_phase(self, phase: Phase) -> None:
        first = self.phase is QUEUE
        self.phase = phase
        self._listener.on_progress(DIALLING if first else DIAL_STEP)

    def on_connection(self, connection: Connection, reused: bool) -> None:
        if self.over:
            connection.close()  # the observer has ended the call when the pool closed another connection
            return
        self.connection = connection
        self.phase = SEND
        exchange: Exchange = self
        if self._recorder is not None:
            exchange = self._tap = self._recorder.tap(self.prepared, self)
        connection.send(self.prepared.head, self.prepared.body, exchange, self._listener.label)
        self._listener.on_progress(CONNECTED)

    def on_connect_failure(self, error: TransportError) -> None:
        self.failed(transport_error(error, streaming=False))

    # --- as the connection's exchange ---

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        self.headers: dict[str, str] = redacted_headers(headers_to_mapping(headers), self.prepared.secrets)
        self.phase = BODY
        is_error = not 200 <= status < 300 or status in NO_CONTENT
        coding = "" if is_error else content_coding(self.headers)
        if not coding:
            self._body = ErrorBody(self) if is_error else Envelope(self)
        self._listener.on_progress(HEAD)
        if coding:
            # `identity` was requested, and compressed events cannot be separated as they arrive.
            self.give_up(malformed(f"the server sent content-encoding {coding[:40]!r}, which was not asked for"))

    def read_with(self, body: Body) -> None:
        """Let another reader read the body, from the next bytes on."""
        self._body = body

    def end_with(self, data: bytes) -> None:
        """Let the reader of the body read these bytes, which are the last ones, and the end."""
        if data:
            self.on_body(data)
        self.on_end()

    def on_body(self, data: bytes) -> FastPath | None:
        body = self._body
        if body is None or self.over:
            return None
        if self.steps is not None:
            if self._buffered is None:
                self._buffered = deque()
            self._buffered.append(data)  # a paused connection that broke is read to its end
            return None
        return body.feed(data)

    def on_end(self) -> None:
        if self.over:
            return
        self.connection = None
        if self.steps is not None:
            self._ended = self.on_end
            return
        assert self._body is not None, "a response ends after its head"
        self._body.end()

    def on_failure(self, error: TransportError) -> None:
        if self.over:
            return
        self.connection = None
        if self.steps is not None:
            self._ended = partial(self.on_failure, error)
        elif self._body is None:
            self.failed(transport_error(error, streaming=False), unread=error.unread)
        else:
            self._body.fail(error)

    def on_defect(self, error: Exception) -> None:
        self.connection = None  # it is closed, or carries the exchange of another call
        self._listener.on_defect(error)

    # --- as the holder of received bytes ---

    def kept_bytes(self) -> int:
        """Return the number of received bytes that are kept."""
        assert self._body is not None  # it has reported received bytes
        return self._body.kept_bytes()

    def give_way(self) -> None:
        """Fail at the next tick, because the buffered responses of all calls are too large and this one is the largest.

        The failure waits for the next tick because the bytes of another call are being processed now.
        """
        self._listener.soon(self._yield_room)

    def _yield_room(self) -> None:
        if not self.over:
            self.give_up(self.prepared.buffered.too_much())

    # --- delivery that takes more than one tick ---

    def deliver_in_steps(self, events: Sequence[Event], then: Callable[[], object]) -> None:
        """Deliver many events a few at a time, and read nothing until all are delivered. Then call `then`."""
        connection = self.connection
        if connection is not None:
            connection.pause()
        self.steps = Steps(self, events, then, self._listener.soon)
        self.steps.go_on()

    def deliver_step(self, events: Sequence[Event]) -> None:
        """Deliver the events of one step."""
        self.receiver.deliver(events)

    def stepped(self, then: Callable[[], object]) -> None:
        """Call `then` after the last step, and continue reading."""
        self.steps = None
        then()
        while self._buffered and self.steps is None and not self.over:
            self.on_body(self._buffered.popleft())
        if self.steps is not None or self.over:
            return
        if self._ended is not None:
            self._ended()
        elif self.connection is not None and not self.paused:
            self.connection.resume()
            self._listener.on_reading()

    def pause(self) -> None:
        """Stop reading until `resume`; only events that were already read are delivered."""
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Continue delivery and reading."""
        self.paused = False
        if self.steps is not None:
            self.steps.schedule()
        elif self.connection is not None:
            self.connection.resume()

    # --- the end ---

    def answered(self, response: Response, terminal: Event | None, *, drain: bool = False) -> None:
        """Report the complete answer. `drain`: more body bytes may follow, which are read to reuse the connection."""
        if not self.over:
            self._leave()
            if drain:
                self.drain()
            self._listener.on_answer(response, terminal)

    def failed(self, error: ProviderError, *, unread: bool = False) -> None:
        """Report that the attempt failed. `unread`: the server cannot have read the request."""
        if not self.over:
            self._leave()
            if unread:
                self.phase = Phase.CONNECT
            self._listener.on_attempt_failure(redacted(error, self.prepared.secrets), unread=unread)

    def give_up(self, error: ProviderError) -> None:
        """Close the connection, and report the error."""
        self.close()
        self.failed(error)

    def expire(self, error: ProviderError) -> None:
        """Process a timeout of the call. If an error's status has arrived, that error is reported instead."""
        if self.over:
            return
        if self._body is None:
            self.give_up(error)
        else:
            self._body.expire(error)

    def abort(self) -> None:
        """Close the connection without a report, because the call has ended."""
        self._leave()
        self.close()

    def _leave(self) -> None:
        """Mark the attempt as over, so that it reports nothing more."""
        self.over = True
        self.prepared.buffered.forget(self)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection = self.connection
        if connection is not None:
            if self._tap is not None:
                self._tap.left(whole=False)
            connection.close()
            self.connection = None  # last: if closing raises, it is closed again

    def drain(self) -> None:
        """Let the connection read the rest of the body, so that it can be reused."""
        connection = self.connection
        if connection is not None:
            if self._tap is not None:
                self._tap.left(whole=True)
            connection.drain()
            self.connection = None
