"""One attempt of one call: one request over one connection.

It gets a connection, sends the request, passes the response to the reader of its body, and ends at its own timeouts.
One file because each report of a connection, a body or a timer is judged by how far the attempt is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
from ..request.turn import ConversationTurn
from .answer_body import Envelope
from .body import STEP_EVENTS, Body, Receiver, content_coding
from .completion import Timings
from .error_body import ErrorBody
from .fast_path import FastPath, FastReceiver
from .runtime import Tap
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
    from .runtime import Action, KeptAnswer, Runtime
    from .sockets import ConversationSocket

NO_CONTENT = frozenset({204, 205})
"""Successful statuses without a body. A call that receives one fails."""
SENT = (Phase.SEND, Phase.HEAD, Phase.BODY)
"""Phases in which at least a part of the request may have been sent."""
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
    def label(self) -> str:
        """The listener's name in reports."""
        ...

    def on_key(self, attempt: Attempt) -> None:
        """Receive the report that the attempt's request has a key of the key function."""
        ...

    def on_dequeued(self, attempt: Attempt) -> None:
        """Receive the report that the attempt waits no longer for a place in the pool: its dial began, or it has an
        idle connection."""
        ...

    def on_connected(self, attempt: Attempt) -> None:
        """Receive the report that the request was given to a connection."""
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
    """The undelivered events of one wire event, which may have thousands of parts.

    They are delivered a few at each tick, so that other streams are served in between, and none while the consumer has
    paused its call: so the high-water mark also holds within one event.

    then: called after the last event.
    """

    __slots__ = ("_attempt", "_events", "_position", "_scheduled", "_then")

    def __init__(self, attempt: Attempt, events: Sequence[Event], then: Callable[[], object]) -> None:
        self._attempt = attempt
        self._events = events
        self._then = then
        self._position = 0
        self._scheduled = False

    def go_on(self) -> None:
        """Deliver the next few events, unless the call has ended or is paused; schedule the next step."""
        self._scheduled = False
        attempt, start = self._attempt, self._position
        if attempt.over or attempt.paused:
            return
        if start >= len(self._events):
            attempt.stepped(self._then)
            return
        self._position = start + STEP_EVENTS
        attempt.receiver.deliver(self._events[start : self._position])
        self.schedule()

    def schedule(self) -> None:
        """Schedule the next step for the next tick."""
        if not self._scheduled:
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
    connection: the connection in use; None before there is one, and after the response has ended or was given up.
    paused: True while the consumer wants no events.
    steps: events of one wire event that are being delivered a few at a time; None: there are none.
    receiver: receives the events, none of them terminal. If the attempt is `over` afterwards, deliver no more.
    fast_receiver: receives the events of the fast path, which is used once the listener has set this.
    """

    prepared: Prepared
    _listener: Listener
    _runtime: Runtime
    clocks: Clocks
    started: float
    queue_since: float = math.inf
    paused: bool = False
    permit: AttemptPermit | None = None
    receiver: Receiver = field(init=False)
    fast_receiver: FastReceiver | None = field(default=None, init=False)
    status: int = field(default=0, init=False)
    headers: dict[str, str] = field(init=False)
    over: bool = field(default=False, init=False)
    is_whole: bool = field(default=False, init=False)
    connection: Connection | ConversationSocket | None = field(default=None, init=False)
    phase: Phase = field(default=QUEUE, init=False)
    steps: Steps | None = field(default=None, init=False)
    dequeued_at: float = field(default=math.inf, init=False)
    connected_at: float = field(default=math.inf, init=False)
    head_at: float = field(default=math.inf, init=False)
    content_at: float = field(default=math.inf, init=False)
    _tap: Tap | None = field(default=None, init=False)
    _body: Body | None = field(default=None, init=False)  # None until the response's head has arrived
    _held: Start | None = field(default=None, init=False)
    _kept: Iterator[bytes] | None = field(default=None, init=False)  # the pieces of a kept answer
    _buffered: deque[bytes] | None = field(default=None, init=False)  # the bytes that were read during `steps`
    _ended: Action | None = field(default=None, init=False)  # the end or failure of the body during `steps`
    _state: CallState = field(default=QUEUED, init=False)
    _timer: Deadline | None = field(default=None, init=False)  # a `Timer` would be one more object of each stream
    _dial_since: float = field(default=0.0, init=False)  # the connect timeout counts from here

    def __post_init__(self) -> None:
        self.receiver, self.headers = self, {}

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
        """True if a byte of the request, or of the one that created a durable answer, may have reached the server."""
        durable = self.prepared.durable
        return self.phase in SENT or (durable is not None and durable.reads)

    @property
    def reads(self) -> bool:
        """True if the request reads a durable answer that another one has created."""
        durable = self.prepared.durable
        return durable is not None and durable.reads

    @property
    def is_forwarded(self) -> bool:
        """Whether somebody gets the bytes of the body as they are."""
        return self.prepared.forwarder is not None

    def partial_response(self) -> Response | None:
        """Return the part of a stream that has arrived; None if nothing has."""
        response = self._body.partial_response() if self._body is not None else None
        durable = self.prepared.durable
        if response is None and durable is not None and durable.machine is not None:
            response = arrived(durable.machine.response())  # of the earlier connections
        return response

    def answered_for(self, now: float) -> float:
        """Return the seconds since the head of a successful response; 0 if there was none."""
        return now - self.head_at if 200 <= self.status < 300 else 0.0

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
        can_be_asked = fresh_key.source.refused(self.prepared.secrets.key) and fresh_key.asks_again
        self.prepared.fresh_key = fresh_key.for_last_time()
        return can_be_asked

    def timings(self) -> Timings:
        """Return the times of the attempt's steps."""
        if self.dequeued_at == math.inf:
            return Timings()
        return Timings(
            self._since_start(self.dequeued_at),
            self._since_start(self.connected_at),
            self._since_start(self.head_at),
            self._since_start(self.content_at),
        )

    def _since_start(self, time: float) -> float | None:
        return None if time == math.inf else time - self.started

    @property
    def state(self) -> CallState:
        """How far the attempt is."""
        state, connection = self._state, self.connection
        if state is SENDING and connection is not None and connection.sent_at is not None:
            return READING if connection.received else WAITING
        return state

    def acquire(self, fresh: bool) -> None:
        """Wait for a connection. The attempt may have one when this returns. fresh: one that no request has used."""
        pool, clocks, turn = self._runtime.pool, self.clocks, self.prepared.turn
        if turn is not None and self._runtime.sockets.take(self, turn):
            return
        pool.acquire(self.prepared.origin, self, fresh=fresh)
        if self.over:
            pool.abandon(self)  # the observer has ended the call when the pool closed another connection
        elif self._state is QUEUED and (clocks.queue < math.inf or clocks.total < math.inf):
            self.arm()  # it waits for a connection; if it had got one at once, the timer would be set

    # --- as the pool's waiter ---

    def on_phase(self, phase: Phase) -> None:
        now, first = self._runtime.loop.clock(), self.phase is QUEUE
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
            if turn is not None and turn.upgrades and self._opens_socket(turn, connection):
                return
            if self.prepared.provider.sign is not None and not self._signs():
                return
        self.phase = SEND
        forwarder = self.prepared.forwarder
        exchange: Exchange = self if forwarder is None else forwarder.tap(self)
        if self._runtime.recording is not None or self._runtime.answers is not None:
            exchange = self._noted(exchange)
        if isinstance(connection, Connection):
            connection.send(self.prepared.head, self.prepared.body, exchange, self._listener.label)
        else:
            connection.send_turn(exchange, self._listener.label)
        now, waited = self._runtime.loop.now, self._state is QUEUED  # the loop read the clock when it sent the request
        self._state, self.connected_at = SENDING, now
        if waited:
            self.dequeued_at = now
            self._listener.on_dequeued(self)
        self._listener.on_connected(self)
        if self.paused:
            self.pause()
        self.arm()

    def _opens_socket(self, turn: ConversationTurn, connection: Connection) -> bool:
        """Ask for a WebSocket over the connection. Returns False if the connection is for the request itself."""
        turn.upgrades = False
        try:
            return self._runtime.sockets.open(self, turn, connection, self._listener.label)
        except ProviderError as error:
            self.close()
            self.on_no_key(error)
            return True

    def on_upgrade(self) -> None:
        """The connection was asked for a WebSocket. The answer has the time of a connection."""
        self.on_phase(Phase.CONNECT)
        self._dial_since = self._runtime.loop.now
        self.arm()

    def start_over(self) -> None:
        """Get a connection again: nothing of an answer has come, and the attempt has not failed."""
        self.close()
        self.phase, self._state, self._tap = QUEUE, QUEUED, None
        self.acquire(fresh=False)

    def _noted(self, exchange: Exchange) -> Exchange:
        """Return an exchange that lets the recording and the store of answers note everything."""
        recorders = (self._runtime.recording, None if self.reads else self._runtime.answers)
        given = [each for each in recorders if each is not None]
        named = [(each.notes.take(each.note, self.prepared, self._listener), each.notes) for each in given]
        notes = [(note, guard) for note, guard in named if note is not None]
        if notes:
            exchange = self._tap = Tap(notes, exchange)
        return exchange

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
        self.dequeued_at = self.connected_at = self._runtime.loop.clock()
        self._kept = iter([body[start : start + KEPT_PIECE] for start in range(0, len(body), KEPT_PIECE)])
        self.on_head(200, headers)
        self._replay_piece()

    def _replay_piece(self) -> None:
        """Receive the next piece of a kept answer, one at each tick, unless the consumer has paused the call."""
        if self.over or self.paused or self._kept is None:
            return
        if self.steps is None:
            piece = next(self._kept, None)
            if piece is None:
                self.on_end()
                return
            self.on_body(piece)
        self.soon(self._replay_piece)

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
            self._body = ErrorBody(self) if is_error else Envelope(self)
        self._state, self.head_at = READING, self._runtime.loop.clock()
        self._listener.on_head(self)
        if coding:
            # `identity` was requested, and compressed events cannot be separated as they arrive.
            self.give_up(malformed(f"the server sent content-encoding {coding[:40]!r}, which was not asked for"))
        self.arm()

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
        self.connection, self.is_whole = None, True
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

    # --- the received bytes that it keeps ---

    def grown(self, size: int) -> None:
        """Count `size` more bytes of the answer. The attempt may fail soon (`give_way`)."""
        self._runtime.buffered.grown(self, size)

    def kept_bytes(self) -> int:
        """Return the number of received bytes that are kept. Takes linear time in that number."""
        assert self._body is not None  # it has reported received bytes
        return self._body.kept_bytes()

    def give_way(self) -> None:
        """Fail at the next tick, because the buffered responses of all calls are too large and this one is the largest.

        The failure waits for the next tick because the bytes of another call are being processed now.
        """
        self.soon(self._yield_room)

    def _yield_room(self) -> None:
        if not self.over:
            self.give_up(self._runtime.buffered.too_much())

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
        connection = self.connection
        if connection is not None:
            connection.pause()
        self.steps = Steps(self, events, then)
        self.steps.go_on()

    def soon(self, action: Action) -> None:
        """Perform an action at the loop's next tick."""
        self._runtime.timers.at(self._runtime.loop.clock(), action, self.on_defect)

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
            self.arm()

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
        if self._kept is not None:
            self.soon(self._replay_piece)
        if self.connection is not None:
            self.arm()

    def steer(self, text: str) -> bool:
        """Add a user's text to the answer. Returns False if there is none under way over a WebSocket."""
        connection, body, turn = self.connection, self._body, self.prepared.turn
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
        elif self.steps is not None or self._kept is not None:
            state = UNTIMED
        elif state is CONNECTING:
            since = self._dial_since
        elif connection is not None:
            since = connection.last_activity
            if connection.paused:
                state = UNTIMED
            elif state is WAITING and connection.sent_at is not None:
                since = connection.sent_at
        if self._runtime.paused and state in (WAITING, READING):
            # A server that the program has paused is silent; the timeout begins when it goes on.
            now = self._runtime.loop.clock()
            since = max(since, min(self._runtime.paused.get(self.prepared.origin, since), now))
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
            deadline = min(deadline, self._runtime.loop.now + self.clocks.first_byte)
        if deadline == math.inf:
            return  # a timer may be set; when it fires, it computes this deadline
        timers, timer = self._runtime.timers, self._timer
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
        if deadline > self._runtime.loop.clock():
            self.arm()
            return
        error = timeout_error(clock, LENGTH[clock](self.clocks), self._where())
        if self.connection is None:
            self._runtime.pool.abandon(self)
            if self.prepared.fresh_key is not None:
                self.prepared.fresh_key.source.forget(self)
        self.expire(error)

    def _where(self) -> str:
        """Return what the attempt was doing, for the message of a timeout."""
        state, origin, fresh_key = self.state, self.prepared.origin, self.prepared.fresh_key
        if fresh_key is not None and fresh_key.source.is_asked_by(self):
            return f"waiting for the key for {origin}"
        return (
            f"{STEP_WORDS.get(self.phase, 'connecting to')} {origin}" if state is CONNECTING else f"{state}, {origin}"
        )

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
                self.phase = Phase.CONNECT
            self._listener.on_attempt_failure(self, redacted(error, self.prepared.secrets), unread=unread)

    def give_up(self, error: ProviderError) -> None:
        """Close the connection, and report the error."""
        self.close()
        self.failed(error)

    def expire(self, error: ProviderError) -> None:
        """Process a timeout. If an error's status has arrived, that error is reported instead."""
        if self.over:
            return
        if self._body is None:
            self.give_up(error)
        else:
            self._body.expire(error)

    def abort(self) -> None:
        """End the attempt without a report, in whatever state it is. May be called again."""
        if self.over and self.connection is None:
            return
        if self.connection is None:
            self._runtime.pool.abandon(self)
            if self.prepared.fresh_key is not None:
                self.prepared.fresh_key.source.forget(self)
        self._leave()
        self.close()

    def _leave(self) -> None:
        """Mark the attempt as over, so that it reports nothing more."""
        self.over = True
        self.receiver = NOBODY  # else it would refer to itself
        if self._timer is not None:
            self._runtime.timers.cancel(self._timer)
            self._timer = None
        if self in self._runtime.buffered.most:
            self._runtime.buffered.forget(self)

    def release(self) -> None:
        """Drop what refers back to this attempt, which is over and not read any more. It is then freed with its call,
        and is no work for the garbage collector, whose pauses stop all streams."""
        if isinstance(self._body, StreamBody):
            self._body.release()
        self._body = self._tap = self.steps = self._ended = None

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
        connection, deliver = self.connection, self.is_forwarded
        if connection is not None:
            if self._tap is not None and not deliver:
                self._tap.ended("whole")
            connection.drain(deliver=deliver)
            self.connection = None
