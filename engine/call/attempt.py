"""One attempt of one call: one request over one connection.

It gets a connection, sends the request, passes the response to the reader of its body, and ends at its own timeouts.
One file because each report of a connection, a body or a timer is judged by how far the attempt is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ...providers.model.events import Event, Start
from ...providers.model.provider_error import ProviderError, malformed
from ...providers.model.response import Response, arrived
from ...providers.wire.error_bodies import request_id_in
from ...transport.errors import Phase, TransportError
from ...transport.exchange import Exchange, RawHeaders
from ...transport.headers import headers_to_mapping
from ...transport.http1 import Connection
from ...transport.timers import Deadline
from ..request.errors import transport_error
from ..request.fresh_key import Key
from ..request.prepared import Prepared
from ..request.redaction import hide_words, redacted, redacted_headers
from .answer_body import Envelope
from .body import STEP_EVENTS, Body, Receiver, content_coding
from .completion import Timings
from .error_body import ErrorBody
from .fast_path import FastPath, FastReceiver
from .stream_body import StreamBody
from .timeouts import (
    CONNECTING,
    ERROR_BODY_SECONDS,
    LENGTH,
    QUEUED,
    READING,
    SENDING,
    STATE_CLOCK,
    UNTIMED,
    WAITING,
    CallState,
    Clock,
    Clocks,
    timeout_error,
)

if TYPE_CHECKING:
    from .admission_control import AttemptPermit
    from .runtime import Action, KeptAnswer, Runtime, Tap
    from .sockets import ConversationSocket

NO_CONTENT = frozenset({204, 205})
"""Successful statuses without a body. A call that receives one fails."""
QUEUE, SEND, BODY = Phase.QUEUE, Phase.SEND, Phase.BODY
"""The phases of every attempt."""
KEPT_PIECE = 16 * 1024
"""The bytes of a kept answer that are read at one tick."""
STEP_WORDS = {
    Phase.DNS: "looking up",
    Phase.TLS: "TLS handshake with",
    Phase.PROXY: "proxy tunnel to",
}
"""Phase of a dial → what the attempt was doing, for the message of a timeout; else it was connecting."""

UNAUTHORIZED = 401


class Listener(Protocol):
    """The receiver of an attempt's reports. After `on_answer`, `on_attempt_failure` or `on_defect`, none follows."""

    @property
    def number(self) -> int:
        """The call's number in its engine; 0: it is no call."""
        ...

    def on_key(self, attempt: Attempt) -> None:
        """Receive the report that the attempt's request has a key of the key function."""
        ...

    def on_dequeued(self, attempt: Attempt) -> None:
        """Receive the report that the attempt waits no longer for a place in the pool: its dial began, or it has an
        idle connection."""
        ...

    def on_head(self, attempt: Attempt) -> None:
        """Receive the report that the response's status and headers have arrived."""
        ...

    def on_events(self, attempt: Attempt, events: Sequence[Event]) -> None:
        """Receive events, none of them terminal, until the attempt has another receiver. The first ones have content,
        and may begin with a `Start`."""
        ...

    def on_answer(self, attempt: Attempt, response: Response, terminal: Event | None) -> None:
        """Receive the complete answer. `terminal` is the stream's `Done`; None if unstreamed."""
        ...

    def on_attempt_failure(self, attempt: Attempt, error: ProviderError, *, unread: bool) -> None:
        """Receive the attempt's error. `unread`: the server cannot have read the request (`TransportError.unread`)."""
        ...

    def on_defect(self, error: Exception) -> None:
        """Receive a defect in this library. The call must end without the code that raised."""
        ...


class Nobody:
    """Receives the events of an attempt that is over, and drops them."""

    __slots__ = ()

    def deliver(self, events: Sequence[Event]) -> None:
        """Drop the events."""


NOBODY = Nobody()


class Steps:
    """What of an answer is delivered in later ticks of the loop: the events of one wire event, which may have thousands
    of parts, then bytes of the body, then its end.

    A few events, or one piece of the body, are delivered at each tick, so that other streams are served in between, and
    none while the consumer has paused its call: so the high-water mark also holds within one event.

    pieces: bytes of the body that have arrived, and are not read yet.
    end: ends the body; None: its end has not arrived.
    """

    __slots__ = ("_attempt", "_events", "_position", "_scheduled", "_then", "end", "pieces")

    def __init__(self, attempt: Attempt, pieces: Iterable[bytes] = (), end: Action | None = None) -> None:
        self._attempt = attempt
        self._events: Sequence[Event] = ()
        self._position = 0
        self._then: Callable[[], object] | None = None
        self._scheduled = False
        self.pieces: deque[bytes] = deque(pieces)  # of a paused connection that broke, which is read to its end
        self.end: Action | None = end

    def deliver(self, events: Sequence[Event], then: Callable[[], object]) -> None:
        """Deliver events a few at a time, before anything else; then call `then`."""
        self._events, self._position, self._then = events, 0, then
        self.go_on()

    def go_on(self) -> None:
        """Deliver what is next, unless the call has ended or is paused; schedule the next step."""
        self._scheduled = False
        attempt, start = self._attempt, self._position
        if attempt.over or attempt.paused:
            return
        if start < len(self._events):
            self._position = start + STEP_EVENTS
            attempt.receiver.deliver(self._events[start : self._position])
            self.schedule()
            return
        if self._then is not None:
            then, self._then = self._then, None
            then()
        elif self.pieces:
            assert attempt.body is not None, "a body has a reader"
            attempt.body.feed(self.pieces.popleft())
        if self._then is not None or self.pieces:
            self.schedule()
        elif not attempt.over:
            attempt.steps = None
            if self.end is not None:
                self.end()
            elif not attempt.paused:
                attempt.resume()

    def schedule(self) -> None:
        """Schedule the next step for the next tick."""
        if not self._scheduled and not self._attempt.over:
            self._scheduled = True
            self._attempt.soon(self.go_on)


@dataclass(slots=True, eq=False, repr=False)
class Attempt:
    """One attempt of a call.

    It receives its own events until its listener gives it another receiver: it holds `Start` until there is content,
    because an attempt of which nothing was delivered can be repeated.

    prepared: the request.
    permit: what traffic control has given for it; None without traffic control, and if it reads on: its answer's first
        attempt has the permit.
    sent: a byte of the request, or of the one that created the answer that it reads, may have reached the server.
    status: the response's status; 0 before its head has arrived.
    headers: the response's headers, redacted.
    over: the attempt has ended; nothing more may be reported.
    clocks: its timeouts.
    started: the time at which its call was started. All times are on the loop's clock; `math.inf` for what was not
        reached.
    queue_since: the time from which the queue timeout counts; `math.inf` for no such timeout.
    dequeued_at: when its dial began, or it got an idle connection.
    connected_at: when the request was given to a connection.
    head_at: when the response's head had arrived.
    content_at: when its first content was delivered; the call sets it.
    is_whole: the response has ended as its framing says, so the connection is in order.
    phase: the phase of the connection or exchange.
    body: reads the response's body; None before its head has arrived.
    connection: the connection in use; None before there is one, and after the response has ended or was given up.
    paused: True while the consumer wants no events.
    steps: what is delivered in later ticks of the loop; None: nothing.
    receiver: receives the events, none of them terminal. If the attempt is `over` afterwards, deliver no more.
    fast_receiver: receives the events of the fast path, which is used once the listener has set this.
    """

    prepared: Prepared
    _listener: Listener
    runtime: Runtime
    clocks: Clocks
    started: float
    queue_since: float = math.inf
    paused: bool = False
    permit: AttemptPermit | None = None
    receiver: Receiver = field(init=False)
    fast_receiver: FastReceiver | None = field(default=None, init=False)
    sent: bool = field(default=False, init=False)
    status: int = field(default=0, init=False)
    headers: dict[str, str] = field(init=False)
    over: bool = field(default=False, init=False)
    is_whole: bool = field(default=False, init=False)
    connection: Connection | ConversationSocket | None = field(default=None, init=False)
    phase: Phase = field(default=QUEUE, init=False)
    body: Body | None = field(default=None, init=False)
    steps: Steps | None = field(default=None, init=False)
    dequeued_at: float = field(default=math.inf, init=False)
    connected_at: float = field(default=math.inf, init=False)
    head_at: float = field(default=math.inf, init=False)
    content_at: float = field(default=math.inf, init=False)
    _tap: Tap | None = field(default=None, init=False)
    _held: Start | None = field(default=None, init=False)
    _state: CallState = field(default=QUEUED, init=False)
    _timer: Deadline | None = field(default=None, init=False)  # a `Timer` would be one more object of each stream
    _dial_since: float = field(default=0.0, init=False)  # the connect timeout counts from here

    def __post_init__(self) -> None:
        self.receiver, self.headers = self, {}
        if self.prepared.durable is not None:
            self.sent = self.prepared.reads

    @property
    def label(self) -> str:
        """The name in reports."""
        number, provider = self._listener.number, self.prepared.provider.name
        return f"call {number} ({provider}/{self.prepared.model})" if number else f"a request to {provider!r}"

    @property
    def request_id(self) -> str | None:
        """The provider's id for the request, from the response's headers."""
        return request_id_in(self.headers) if self.headers else None

    @property
    def reads_error(self) -> bool:
        """True while the body of an error response is being read."""
        return self.body is not None and self.body.reads_error and not self.over

    def partial_response(self) -> Response | None:
        """Return the part of a stream that has arrived; None if nothing has."""
        response = self.body.partial_response() if self.body is not None else None
        durable = self.prepared.durable
        if response is None and durable is not None and durable.machine is not None:
            response = arrived(durable.machine.response())  # of the earlier connections
        return response

    def read_on_after(self, attempt: Attempt) -> None:
        """Go on with the answer of an attempt that is over, before this one has a connection."""
        self._held, attempt._held = attempt._held, None
        self.content_at = attempt.content_at

    # --- as the waiter for a key ---

    def begin(self, fresh: bool) -> None:
        """Ask the key function, if there is one, for this attempt's key, then wait for a connection. The function may
        end the call."""
        fresh_key = self.prepared.fresh_key
        if fresh_key is None:
            self.acquire(fresh)
            return
        try:
            key = fresh_key.source.ask()
        except ProviderError as error:
            self.on_no_key(error)
            return
        if key is not None:
            self.on_key(key, fresh=fresh)
        elif not self.over:
            fresh_key.source.wait(self, partial(self.on_key, fresh=fresh), self.on_defect)
            self.arm()

    def on_key(self, key: Key | ProviderError, *, fresh: bool) -> None:
        """Take the key, or the error that says why there is none. fresh: as for `acquire`."""
        if self.over:
            return
        if isinstance(key, ProviderError):
            self.on_no_key(key)
            return
        try:
            self.prepared = self.prepared.with_key(key)
        except ProviderError as error:
            self.on_no_key(error)
            return
        self._listener.on_key(self)
        self.acquire(fresh)

    def on_no_key(self, error: ProviderError) -> None:
        """Fail without a key. The program's exception, which is the error's cause, keeps its traceback."""
        if not self.over:
            self._leave()
            hide_words(error, self.prepared.secrets)
            if self.prepared.fresh_key is not None:
                self.prepared.fresh_key.hide_latest(error)
            self._listener.on_attempt_failure(self, error, unread=False)

    def asks_for_another_key(self, error: ProviderError) -> bool:
        """Return whether the request can be sent with another key, once, because the server has refused this one."""
        fresh_key = self.prepared.fresh_key
        if error.http_status != UNAUTHORIZED or fresh_key is None:
            return False
        self.prepared.fresh_key = fresh_key.for_last_time()
        return fresh_key.source.refused(self.prepared.secrets.key) and fresh_key.asks_again

    def timings(self) -> Timings:
        """Return the times of the attempt's steps."""
        if self.dequeued_at == self.content_at == math.inf:
            return Timings()
        times = (self.dequeued_at, self.connected_at, self.head_at, self.content_at)
        queued, connected, first_byte, first_token = [None if at == math.inf else at - self.started for at in times]
        return Timings(queued, connected, first_byte, first_token)

    @property
    def state(self) -> CallState:
        """How far the attempt is."""
        state, connection = self._state, self.connection
        if state is SENDING and connection is not None and connection.sent_at is not None:
            return READING if connection.received else WAITING
        return state

    def acquire(self, fresh: bool) -> None:
        """Wait for a connection. The attempt may have one when this returns. fresh: one that no request has used."""
        pool, clocks, turn = self.runtime.pool, self.clocks, self.prepared.turn
        if turn is not None and self.runtime.sockets.take(self, turn):
            return
        pool.acquire(self.prepared.origin, self, fresh=fresh)
        if self.over:
            pool.abandon(self)  # the observer has ended the call when the pool closed another connection
        elif self._state is QUEUED and (clocks.queue < math.inf or clocks.total < math.inf):
            self.arm()  # it waits for a connection; if it had got one at once, the timer would be set

    # --- as the pool's waiter ---

    def on_phase(self, phase: Phase) -> None:
        now, first = self.runtime.loop.clock(), self.phase is QUEUE
        self.phase = phase
        if first:
            self._state, self.dequeued_at = CONNECTING, now
            self._listener.on_dequeued(self)
        elif self._dial_since + self.clocks.connect > now:
            return
        # Else the loop was blocked: the dial went on before its timeout was judged. The rest of it gets the whole time.
        self._dial_since = now
        self.arm()

    def on_connection(self, connection: Connection | ConversationSocket, reused: bool) -> None:
        if self.over:
            connection.close()  # the observer has ended the call when the pool closed another connection
            return
        self.connection = connection
        if isinstance(connection, Connection):
            turn = self.prepared.turn
            if turn is not None and turn.upgrades and self.runtime.sockets.open(self, turn, connection, self.label):
                return
            if self.prepared.provider.sign is not None and not self._signs():
                return
        self.phase, self.sent = SEND, True
        forwarder = self.prepared.forwarder
        exchange: Exchange = self if forwarder is None else forwarder.tap(self)
        if self.runtime.recording is not None or self.runtime.answers is not None:
            self._tap = self.runtime.tap(exchange, self.prepared, self._listener)
            exchange = self._tap or exchange
        if isinstance(connection, Connection):
            connection.send(self.prepared.head, self.prepared.body, exchange, self.label)
        else:
            connection.send_turn(exchange, self.label)
        now, waited = self.runtime.loop.now, self._state is QUEUED  # the loop read the clock when it sent the request
        self._state, self.connected_at = SENDING, now
        if waited:
            self.dequeued_at = now
            self._listener.on_dequeued(self)
        if self.permit is not None:
            self.permit.connected()
        if self.paused:
            self.pause()
        self.arm()

    def on_upgrade(self) -> None:
        """The connection was asked for a WebSocket. The answer has the time of a connection."""
        self.on_phase(Phase.CONNECT)
        self._dial_since = self.runtime.loop.now
        self.arm()

    def start_over(self) -> None:
        """Get a connection again: nothing of an answer has come, and the attempt has not failed."""
        self.close()
        self.phase, self._state, self._tap, self.sent = QUEUE, QUEUED, None, self.prepared.reads
        self.acquire(fresh=False)

    def _signs(self) -> bool:
        """Sign the request, which is sent now. Returns False if the attempt has ended."""
        try:
            self.prepared = self.prepared.signed()
        except ProviderError as error:
            self.close()
            self.on_no_key(error)
        if self.over:
            self.close()  # the function has ended the call
        return not self.over

    def accepted(self) -> None:
        """Note that the answer is the call's, which has succeeded."""
        if self._tap is not None:
            self._tap.accepted()

    def replay(self, answer: KeptAnswer) -> None:
        """Receive a kept answer in place of one from a connection."""
        headers, body = answer
        self.dequeued_at = self.connected_at = self.runtime.loop.clock()
        pieces = [body[start : start + KEPT_PIECE] for start in range(0, len(body), KEPT_PIECE)]
        steps = self.steps = Steps(self, pieces, self.on_end)
        self.on_head(200, headers)
        steps.go_on()

    def on_connect_failure(self, error: TransportError) -> None:
        self.failed(transport_error(error, streaming=False))

    # --- as the connection's exchange ---

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        self.headers = redacted_headers(headers_to_mapping(headers), self.prepared.secrets)
        self.phase = BODY
        is_error = not 200 <= status < 300 or status in NO_CONTENT
        coding = "" if is_error else content_coding(self.headers)
        if not coding:
            self.body = ErrorBody(self) if is_error else Envelope(self)
        self._state, self.head_at = READING, self.runtime.loop.clock()
        self._listener.on_head(self)
        if coding:
            # `identity` was requested, and compressed events cannot be separated as they arrive.
            self.give_up(malformed(f"the server sent content-encoding {coding[:40]!r}, which was not asked for"))
        self.arm()

    def read_with(self, body: Body) -> None:
        """Let another reader read the body, from the next bytes on."""
        if self.body in self.runtime.buffered.most:
            self.runtime.buffered.forget(self.body)
        self.body = body

    def on_body(self, data: bytes) -> FastPath | None:
        body = self.body
        if body is None or self.over:
            return None
        if self.steps is not None:
            self.steps.pieces.append(data)
            return None
        return body.feed(data)

    def on_end(self) -> None:
        if self.over:
            return
        self.connection, self.is_whole = None, True
        if self.steps is not None:
            self.steps.end = self.on_end
            return
        assert self.body is not None, "a response ends after its head"
        self.body.end()

    def on_failure(self, error: TransportError) -> None:
        if self.over:
            return
        self.connection = None
        if self.steps is not None:
            self.steps.end = partial(self.on_failure, error)
        elif self.body is None:
            self.failed(transport_error(error, streaming=False), unread=error.unread)
        else:
            self.body.fail(error)

    def on_defect(self, error: Exception) -> None:
        self.connection = None  # it is closed, or carries the exchange of another call
        self._listener.on_defect(error)

    # --- events ---

    def deliver(self, events: Sequence[Event]) -> None:
        """Hold `Start`, and report the first content and what follows it to the listener."""
        if self._held is None and events and isinstance(events[0], Start):
            self._held, events = events[0], events[1:]
        if events:
            self._listener.on_events(self, self.with_start(events))

    def with_start(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return events, after the `Start` that is held."""
        held, self._held = self._held, None
        return events if held is None else (held, *events)

    # --- delivery that takes more than one tick ---

    def deliver_in_steps(self, events: Sequence[Event], then: Callable[[], object]) -> None:
        """Deliver many events a few at a time, and read nothing until all are delivered. Then call `then`."""
        if self.connection is not None:
            self.connection.pause()
        if self.steps is None:
            self.steps = Steps(self)
        self.steps.deliver(events, then)

    def soon(self, action: Action) -> None:
        """Perform an action at the loop's next tick."""
        self.runtime.timers.at(self.runtime.loop.clock(), action, self.on_defect)

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
        if self.connection is not None:
            self.arm()

    def steer(self, text: str) -> bool:
        """Add a user's text to the answer. Returns False if there is none under way over a WebSocket."""
        connection, body, turn = self.connection, self.body, self.prepared.turn
        if turn is None or isinstance(connection, Connection | None) or not isinstance(body, StreamBody):
            return False
        message = body.steer(turn.wire, text)
        if message is not None:
            connection.send_text(message)
        return message is not None

    # --- timeouts ---

    def _deadline(self) -> tuple[float, Clock]:
        """Return the next deadline and its timeout, from the connection's latest activity."""
        clocks, connection, state, since = self.clocks, self.connection, self.state, self.started
        if state is QUEUED:
            since = self.queue_since
        elif self.steps is not None:
            state = UNTIMED
        elif state is CONNECTING:
            since = self._dial_since
        elif connection is not None:
            since = connection.last_activity
            if connection.paused:
                state = UNTIMED
            elif state is WAITING and connection.sent_at is not None:
                since = connection.sent_at
        if self.runtime.paused and state in (WAITING, READING):
            # A server that the program has paused is silent; the timeout begins when it goes on.
            now = self.runtime.loop.clock()
            since = max(since, min(self.runtime.paused.get(self.prepared.origin, since), now))
        total, clock = self.started + clocks.total, STATE_CLOCK[state]
        own = math.inf if clock is None else since + LENGTH[clock](clocks)
        if state is READING and self.reads_error:
            # The status is known: the body, which only explains it, gets a short timeout.
            own = min(self.head_at + ERROR_BODY_SECONDS, own)
        return (total, Clock.TOTAL) if clock is None or total <= own else (own, clock)

    def arm(self) -> None:
        """Set the timer to the next deadline, unless it fires earlier.

        A timer that fires before the deadline is set again, so that received bytes need not change the timer.
        """
        if self.over:
            return
        deadline, _ = self._deadline()
        if self._state is SENDING and self.state is SENDING:
            # When the request is sent, the first-byte timeout begins without a notification; it may be shorter.
            deadline = min(deadline, self.runtime.loop.now + self.clocks.first_byte)
        if deadline == math.inf:
            return  # a timer may be set; when it fires, it computes this deadline
        timers, timer = self.runtime.timers, self._timer
        if timer is not None:
            if timer[0] <= deadline and timers.pending(timer):
                return
            timers.cancel(timer)
        self._timer = timers.notify(deadline, self)

    def on_timer(self) -> None:
        """End the attempt if a timeout has expired; else set the timer to the next deadline."""
        if self.over:
            return
        self._timer = None
        deadline, clock = self._deadline()
        if deadline > self.runtime.loop.clock():
            self.arm()
            return
        origin, fresh_key = self.prepared.origin, self.prepared.fresh_key
        where = f"{self.state}, {origin}"
        if fresh_key is not None and fresh_key.source.is_asked_by(self):
            where = f"waiting for the key for {origin}"
        elif self._state is CONNECTING:
            where = f"{STEP_WORDS.get(self.phase, 'connecting to')} {origin}"
        error = timeout_error(clock, LENGTH[clock](self.clocks), where)
        if self.body is not None:
            self.body.expire(error)  # if an error's status has arrived, that error is reported instead
            return
        if self.connection is None:
            self.runtime.pool.abandon(self)
            if fresh_key is not None:
                fresh_key.source.forget(self)
        self.give_up(error)

    # --- the end ---

    def answered(self, response: Response, terminal: Event | None, *, drain: bool = False) -> None:
        """Report the complete answer. `drain`: more body bytes may follow, which are read to reuse the connection."""
        if not self.over:
            self._leave()
            if drain:
                self.drain()
            self._listener.on_answer(self, response, terminal)

    def failed(self, error: ProviderError, *, unread: bool = False) -> None:
        """Report that the attempt failed. `unread`: the server cannot have read the request."""
        if not self.over:
            self._leave()
            if unread:
                self.sent = self.prepared.reads
            self._listener.on_attempt_failure(self, redacted(error, self.prepared.secrets), unread=unread)

    def give_up(self, error: ProviderError) -> None:
        """Close the connection, and report the error."""
        self.close()
        self.failed(error)

    def abort(self) -> None:
        """End the attempt without a report, in whatever state it is. May be called again."""
        if self.over and self.connection is None:
            return
        if self.connection is None:
            self.runtime.pool.abandon(self)
            if self.prepared.fresh_key is not None:
                self.prepared.fresh_key.source.forget(self)
        self._leave()
        self.close()

    def _leave(self) -> None:
        """Mark the attempt as over, so that it reports nothing more."""
        self.over = True
        self.receiver = NOBODY  # else it would refer to itself
        if self._timer is not None:
            self.runtime.timers.cancel(self._timer)
            self._timer = None
        if self.body is not None and self.body in self.runtime.buffered.most:
            self.runtime.buffered.forget(self.body)

    def release(self) -> None:
        """Drop what refers back to this attempt, which is over and not read any more. It is then freed with its call,
        and is no work for the garbage collector, whose pauses stop all streams."""
        if isinstance(self.body, StreamBody):
            self.body.release()
        self.body = self._tap = self.steps = None

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection = self.connection
        if connection is not None:
            if self._tap is not None:
                self._tap.ended("left")
            connection.close()
            self.connection = None  # last: if closing raises, it is closed again

    def drain(self) -> None:
        """Let the connection read the rest of the body, so that it can be reused. A forwarder gets it."""
        connection, deliver = self.connection, self.prepared.forwarder is not None
        if connection is not None:
            if self._tap is not None and not deliver:
                self._tap.ended("whole")
            connection.drain(deliver=deliver)
            self.connection = None
