"""The WebSockets that conversations keep. Each belongs to one conversation, and carries one turn at a time.

An attempt of a turn asks `ConversationSockets` before the pool. A `ConversationSocket` stands in the place of an HTTP
connection: what the server sends in text messages reaches the attempt as server-sent events, so that everything behind
it reads, records and forwards one form. The pool has the connection below a socket in its counts, and gives it to
nobody.

A turn goes over HTTP where a socket cannot carry it, and no attempt is counted for that.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ...providers.catalog.dialect import TurnError
from ...providers.model.prefix_cache import Tie
from ...providers.model.provider_error import ProviderError
from ...providers.model.request import Request, prefix_cache_of
from ...transport.errors import Phase, TransportError
from ...transport.exchange import Exchange, FastReader, RawHeaders, WireHead
from ...transport.http1 import Connection
from ...transport.outgoing import Upload
from ...transport.response_head import SWITCHING_PROTOCOLS
from ...transport.timers import Timer
from ...transport.url import Origin
from ...transport.websocket import (
    BINARY,
    INTERNAL,
    NORMAL,
    PING,
    POLICY,
    PONG,
    TOO_BIG,
    FrameError,
    FrameReader,
    decode_close,
    encode_close,
    encode_frame,
    fault_of_upgrade,
    new_key,
    upgrade_headers,
)
from ...transport.websocket import CLOSE as CLOSE_FRAME
from ..request.signing import sign_head
from ..request.turn import WEBSOCKET, ConversationTurn
from .body import Form, content_of, form_of
from .fast_path import FastPath

if TYPE_CHECKING:
    from .attempt import Attempt
    from .runtime import Runtime

logger: logging.Logger = logging.getLogger("manystream.engine")

Key: TypeAlias = tuple[Hashable, Origin]
"""The conversation of a socket, and where it goes."""

MOST_OF_A_REFUSAL = 64 * 1024
"""The bytes of a handshake's error that are read."""
HANDSHAKE_SECONDS = 5.0
"""The longest wait for the answer to a handshake, and at most half of the call's timeout `connect`."""
MAX_AGE = 55 * 60.0
"""Seconds after which a socket gets no new turn: servers end one after an hour."""
PING_AFTER = 20.0
"""Seconds of silence in a turn after which the server is pinged. It has as many for the pong."""
REST, LONGEST_REST = 60.0, 3600.0
"""Seconds for which an origin is not asked again that opens no WebSocket: doubled each time, up to an hour."""

PASSED_ON = frozenset({401, 403, 429})
"""Statuses of a handshake that are errors of the call, if the body is JSON. Others say that there is no WebSocket."""
REFUSED = frozenset({POLICY, INTERNAL})
"""Codes of a close frame before the first event that say the same."""

NOT_FOUND = "previous_response_not_found"
TOO_OLD = "websocket_connection_limit_reached"
"""The server's words for a socket that does not know the latest answer, and for one that is an hour old."""

OWN_OF_POST = frozenset({b"content-type", b"accept", b"accept-encoding"})
"""Headers of the request that the handshake does not have."""
EVENT_STREAM = (b"content-type", b"text/event-stream")


@dataclass(slots=True)
class Place:
    """What is known of one origin's WebSockets, and what was sent there.

    asks_at: the time from which it is asked for a WebSocket again.
    rest: seconds for which it rests after the next refusal.
    largest: the size of the smallest message that was too large for it.
    continued: turns of which only what is new was sent.
    whole: reason → turns that were sent whole over a socket.
    over_http: reason → turns that were sent over HTTP.
    """

    asks_at: float = -math.inf
    rest: float = 0.0
    largest: float = math.inf
    continued: int = 0
    whole: Counter[str] = field(default_factory=lambda: Counter())
    over_http: Counter[str] = field(default_factory=lambda: Counter())


class ConversationSockets:
    """The sockets of one engine.

    places: by origin, what is known there.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._sockets: dict[Key, ConversationSocket] = {}  # the oldest first
        self._ended: deque[Hashable] = deque()  # conversations that have ended, perhaps on another thread
        self._expiry: Timer | None = None
        self.places: dict[Origin, Place] = {}

    def conversation(self, request: Request) -> Hashable | None:
        """Return the conversation of a request: its session, or what stands for its `Conversation`; None without."""
        cache = prefix_cache_of(request)
        if cache is None:
            return request.session
        tie = cache.tie
        if tie is None or (request.session is not None and tie.name != request.session):
            tie = cache.tie = Tie(request.session, self.end_soon)
        return tie.name

    def chain(self, conversation: Hashable, origin: Origin) -> object:
        """Return what the server knows of a conversation; None if it knows nothing."""
        socket = self._sockets.get((conversation, origin))
        return None if socket is None else socket.chain

    def place(self, origin: Origin) -> Place:
        """Return what is known of an origin."""
        return self.places.setdefault(origin, Place())

    def take(self, attempt: Attempt, turn: ConversationTurn) -> bool:
        """Give an attempt the socket of its conversation. Returns False if it needs a connection of the pool: to open a
        socket over it (`turn.upgrades`), or for HTTP."""
        prepared, now = attempt.prepared, self._runtime.loop.clock()
        place, why = self.place(prepared.origin), turn.over_http
        socket = self._sockets.get((turn.conversation, prepared.origin))
        if not why and socket is not None:
            if socket.busy:
                why = "busy"
            elif not socket.can_carry(prepared.secrets.key, now):
                socket.close()
                socket = None
        chain = None if socket is None else socket.chain
        if not why and place.largest < math.inf:
            why = "size" if len(turn.wire.message(lambda: prepared.body, chain)[0]) >= place.largest else ""
        if not why and socket is None:
            if now < place.asks_at:
                why = "refused"
            elif place.rest:  # others wait for the outcome
                place.asks_at, place.rest = now + place.rest, min(2 * place.rest, LONGEST_REST)
        turn.upgrades = not why
        if why:
            place.over_http[why] += 1
            turn.transport, turn.continued = "http", False
        elif socket is not None:
            turn.upgrades = False
            socket.begin(attempt, turn)
            try:
                attempt.on_connection(socket, True)
            except Exception as error:
                socket.close()
                attempt.on_defect(error)
            return True
        return False

    def open(self, attempt: Attempt, turn: ConversationTurn, connection: Connection, label: str) -> bool:
        """Ask for a WebSocket over a connection. Returns False if the connection is for the request itself: another
        call of the conversation has a socket meanwhile."""
        turn.upgrades = False
        key = turn.conversation, attempt.prepared.origin
        if key in self._sockets:
            self.place(key[1]).over_http["busy"] += 1
            turn.transport = "http"
            return False
        prepared, now, turn.transport = attempt.prepared, self._runtime.loop.now, WEBSOCKET
        reader = FrameReader(prepared.shared.limits.max_event_bytes, masked=False)
        socket = self._sockets[key] = ConversationSocket(
            self, self._runtime, key, attempt, turn, connection, reader, prepared.secrets.key, now
        )
        try:
            socket.shake_hands(attempt, label)
        except BaseException as error:
            del self._sockets[key]
            if not isinstance(error, ProviderError):
                raise
            attempt.close()
            attempt.on_no_key(error)
            return True
        if self._expiry is None:
            self._expire_at(socket.opened_at + MAX_AGE)
        return True

    def forget(self, key: Key, socket: ConversationSocket) -> None:
        """A socket has ended."""
        if self._sockets.get(key) is socket:
            del self._sockets[key]

    def end(self, conversation: Hashable) -> None:
        """End the sockets of a conversation. A turn under way goes on."""
        for origin in self.places:
            socket = self._sockets.get((conversation, origin))
            if socket is not None:
                socket.retire()

    def end_soon(self, conversation: Hashable) -> None:
        """End the sockets of a conversation. May be called on any thread, and while the loop runs."""
        if not self._sockets:
            return
        self._ended.append(conversation)
        if threading.get_ident() == self._runtime.home.thread:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and its sockets with it
                self._runtime.soon(self._end_all, lambda error: logger.error("closing sockets raised", exc_info=error))

    def _end_all(self) -> None:
        while self._ended:
            self.end(self._ended.popleft())

    def _expire_at(self, when: float) -> None:
        self._expiry = self._runtime.timers.at(when, self._expire, lambda _: self._expire_at(when + MAX_AGE))

    def _expire(self) -> None:
        self._expiry = None
        now = self._runtime.loop.clock()
        self._end_all()
        for socket in list(self._sockets.values()):
            if socket.opened_at + MAX_AGE > now:
                self._expire_at(socket.opened_at + MAX_AGE)
                return
            socket.retire()

    def close(self) -> None:
        """Close all sockets."""
        for socket in list(self._sockets.values()):
            socket.close()
        if self._expiry is not None:
            self._expiry.cancel()

    def counts(self) -> Iterator[tuple[str, int, int, Place]]:
        """Yield each origin with the numbers of sockets that have a turn, and that have none."""
        busy = Counter(key[1] for key, socket in self._sockets.items() if socket.busy)
        all_of_them = Counter(key[1] for key in self._sockets)
        for origin, place in self.places.items():
            name = str(origin).replace("http", "ws", 1)
            yield name, busy[origin], all_of_them[origin] - busy[origin], place


@dataclass(slots=True, eq=False, repr=False)
class ConversationSocket:
    """One socket. Until the server has switched protocols, it is a handshake.

    The attempt of a turn uses it as it uses a `Connection`.

    chain: what the server knows; None: nothing that a turn could continue.
    opened_at: the time of the handshake.
    sent_at, received, last_activity: as for a `Connection`. Pongs are no activity.
    """

    _sockets: ConversationSockets
    _runtime: Runtime
    _name: Key
    _attempt: Attempt | None
    _turn: ConversationTurn | None
    _connection: Connection
    _reader: FrameReader
    _secret: str
    opened_at: float
    _key: bytes = field(default_factory=new_key)  # of the handshake; empty once the socket is open
    _headers: RawHeaders = ()
    _refusal: tuple[int, RawHeaders, list[bytes]] | None = None
    _exchange: Exchange | None = None
    _begun: bool = False  # the turn has had an event
    _retired: bool = False
    _size: int = 0  # of the latest message
    _timer: Timer | None = None
    _heard_at: float = 0.0
    _ponged_at: float = 0.0
    _pinged_at: float = -1.0
    chain: object = None
    sent_at: float | None = None
    received: int = 0
    _upload: Upload = field(init=False)

    # --- the handshake ---

    def shake_hands(self, attempt: Attempt, label: str) -> None:
        """Ask the server to switch protocols. Raises `ProviderError` if the provider's `sign` does."""
        prepared, head = attempt.prepared, attempt.prepared.head
        head = WireHead(b"GET", head.target, [pair for pair in head.headers if pair[0].lower() not in OWN_OF_POST])
        if prepared.provider.sign is not None:
            head = sign_head(prepared.provider, prepared.origin, head, b"")
            prepared.secrets = prepared.secrets.of_head(head)
        for header in upgrade_headers(self._key):
            head = head.with_header(*header)
        self._upload = self._connection.send_upgrade(head, self, label)
        attempt.connection = self
        seconds = min(HANDSHAKE_SECONDS, attempt.clocks.connect / 2)
        self._set_timer(seconds, lambda: self._refuse(f"no answer within {seconds:g} s"))
        attempt.on_upgrade()

    def on_head(self, status: int, headers: RawHeaders) -> None:
        if status != SWITCHING_PROTOCOLS:
            self._refusal = (status, headers, [])
            return
        fault = fault_of_upgrade(headers, self._key)
        if fault:
            self._refuse(fault)
            return
        self._cancel_timer()
        self._headers = (EVENT_STREAM, *(pair for pair in headers if b"request-id" in pair[0]))
        self._key = b""
        place = self._sockets.place(self._name[1])
        place.asks_at, place.rest = -math.inf, 0.0
        attempt = self._attempt
        if attempt is not None:
            attempt.on_connection(self, False)

    def _refuse(self, why: str) -> None:
        """Let the origin rest, and send the turn over HTTP."""
        origin, attempt, turn = self._name[1], self._attempt, self._turn
        place = self._sockets.place(origin)
        place.rest = place.rest or REST
        place.asks_at = max(place.asks_at, self._runtime.loop.clock() + place.rest)
        logger.info("%s takes no WebSocket: %s; conversations go over HTTP", origin, why)
        self.close()
        if attempt is not None and turn is not None:
            turn.over_http = "refused"
            attempt.start_over()

    def _refused(self) -> None:
        """Judge the response of a server that has not switched protocols."""
        assert self._refusal is not None
        status, headers, pieces = self._refusal
        body, attempt = b"".join(pieces), self._attempt
        if attempt is None or status not in PASSED_ON or form_of(content_of(body)) is not Form.JSON:
            self._refuse(f"HTTP {status}")
            return
        self.close()
        self._pass_on(attempt, status, headers, body)

    def _pass_on(self, exchange: Exchange, status: int, headers: RawHeaders, body: bytes) -> None:
        """Let an exchange receive an error as over HTTP."""
        exchange.on_head(status, headers)
        exchange.on_body(body)
        exchange.on_end()

    # --- as the connection of an attempt ---

    def begin(self, attempt: Attempt, turn: ConversationTurn) -> None:
        """Let an attempt have the socket for its turn."""
        self._attempt, self._turn, turn.transport = attempt, turn, WEBSOCKET

    def send_turn(self, exchange: Exchange, label: str = "") -> None:
        """Send the turn. Calls no method of `exchange` before it returns."""
        self._exchange, self._connection.label = exchange, label
        self._send()

    def _send(self, why: str = "") -> None:
        turn, attempt = self._turn, self._attempt
        assert turn is not None and attempt is not None, "a turn is sent"
        place, chain, self.chain = self._sockets.place(self._name[1]), self.chain, None
        message, turn.continued = turn.wire.message(lambda: attempt.prepared.body, chain)
        turn.chain = None
        if turn.continued:
            place.continued += 1
        else:
            before = "" if not self._size else turn.wire.why.replace("new", "answer")
            place.whole[why or (before or "lost" if self._size else turn.wire.why or "new")] += 1
        self._begun, self.received, self.sent_at, self._size = False, 0, None, len(message)
        self._upload.send(encode_frame(message, masked=True))
        self._heard_at = self._runtime.loop.now
        if not self._connection.notify_sent(self._on_sent):
            self._on_sent()
        self._set_timer(PING_AFTER, self._on_silence)

    def _on_sent(self) -> None:
        self.sent_at = self._runtime.loop.now

    @property
    def busy(self) -> bool:
        """Whether a turn is under way, or about to be."""
        return self._attempt is not None

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or the connection has ended."""
        return self._connection.closed

    @property
    def paused(self) -> bool:
        """Whether the socket reads nothing."""
        return self._connection.paused

    @property
    def last_activity(self) -> float:
        """The time at which a byte was last sent of the turn, or received that is no pong."""
        return self._heard_at if self.sent_at is not None else self._connection.last_activity

    def pause(self) -> None:
        """Stop reading until `resume`."""
        self._connection.pause()

    def resume(self) -> None:
        """Read again. The pause does not count as idle time."""
        self._heard_at = self._runtime.loop.clock()
        self._connection.resume()

    def send_text(self, text: bytes) -> None:
        """Send a message into the turn."""
        self._upload.send(encode_frame(text, masked=True))

    def drain(self, *, deliver: bool = False) -> None:
        """Keep the socket for the next turn: this one has ended."""
        turn, self._attempt, self._turn, self._exchange = self._turn, None, None, None
        self.chain = None if turn is None else turn.chain
        self._cancel_timer()
        if self._retired or self._runtime.loop.now - self.opened_at >= MAX_AGE:
            self.close()
        elif self.paused:
            self.resume()

    def retire(self) -> None:
        """Close the socket, after the turn that is under way."""
        self._retired = True
        if not self.busy:
            self.close()

    def can_carry(self, secret: str, now: float) -> bool:
        """Return whether another turn may be sent, with this key. Reads what has arrived."""
        if secret == self._secret and now - self.opened_at < MAX_AGE:
            self._connection.on_readable()
            return not self._connection.closed
        return False

    def close(self) -> None:
        """Close the socket now. Idempotent. The attempt is not notified."""
        self._cancel_timer()
        self._sockets.forget(self._name, self)
        self._attempt = self._turn = self._exchange = None
        self._connection.close()

    # --- what the server sends ---

    def on_body(self, data: bytes) -> FastReader | None:
        if self._refusal is not None:
            self._refusal[2].append(data)
            if sum(map(len, self._refusal[2])) > MOST_OF_A_REFUSAL:
                self._refused()
            return None
        fault: FrameError | None = None
        try:
            messages = self._reader.feed(data)
        except FrameError as error:
            messages, fault = error.messages, error
        texts = [payload for opcode, payload in messages if opcode <= BINARY]
        reader = self._take(texts) if texts else None
        pings = [payload for opcode, payload in messages if opcode == PING]
        if pings:
            self._heard_at = self._runtime.loop.now
        if pings and not self._upload.holds:  # a server that reads nothing gets no more of them
            self._upload.send(encode_frame(pings[-1], PONG, masked=True))
        if any(opcode == PONG for opcode, _ in messages):
            self._ponged_at = self._runtime.loop.now
        if fault is None and self._reader.closed:
            self._on_close_frame(messages[-1][1])
        elif fault is not None:
            self._end(fault.code, f"the server has violated the WebSocket protocol: {fault}", again=False)
        return reader if not self._reader.pending and not self._connection.closed else None

    def _take(self, texts: list[bytes]) -> FastReader | None:
        """Deliver events. Those of no turn are dropped: they come late, and are no part of an answer."""
        exchange, turn = self._exchange, self._turn
        if exchange is None or turn is None:
            return None
        self._heard_at = self._runtime.loop.now
        if not self._begun:
            refusal = turn.wire.error(texts[0])
            if refusal is not None and self._handle(refusal, exchange, texts[0]):
                return None
            self._begun, self.received = True, 1
            exchange.on_head(200, self._headers)
            if self._exchange is not exchange:
                return None
        if any(b"\n" in text or b"\r" in text for text in texts):  # white space of JSON, and no end of an event
            texts = [text.replace(b"\n", b" ").replace(b"\r", b" ") for text in texts]
        fast = exchange.on_body(b"data: %b\n\n" % b"\n\ndata: ".join(texts))
        return FrameEvents(self, fast) if isinstance(fast, FastPath) and self._exchange is exchange else None

    def _handle(self, refusal: TurnError, exchange: Exchange, text: bytes) -> bool:
        """Handle an error in place of the first event. Returns False if it is an event of the stream."""
        status, headers, code = refusal
        attempt, turn = self._attempt, self._turn
        assert attempt is not None and turn is not None, "a turn is under way"
        if code == NOT_FOUND and turn.continued:
            self._send("forgotten")
        elif code == TOO_OLD and not turn.reopened:
            self._end(NORMAL, code)
        elif status >= 400:
            self.drain()
            raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
            self._pass_on(exchange, status, raw, text)
        else:
            return False
        return True

    def heard(self) -> None:
        """Note that events have arrived."""
        self._heard_at = self._runtime.loop.now

    # --- the end ---

    def _on_close_frame(self, payload: bytes) -> None:
        try:
            code, reason = decode_close(payload)
        except FrameError as error:
            code, reason = error.code, str(error)
        if not self._connection.closed:
            self._upload.send(encode_frame(encode_close(NORMAL), CLOSE_FRAME, masked=True))
        self._end(code, f"the server closed the WebSocket ({code}) {reason}".strip())

    def on_end(self) -> None:
        if self._refusal is not None:
            self._refused()
        else:
            self._end(NORMAL, "the server ended the connection of the WebSocket", eof=True)

    def on_failure(self, error: TransportError) -> None:
        attempt, turn = self._attempt, self._turn
        if self._refusal is not None:
            self._refused()
        elif self._key and self._connection.served and attempt is not None and turn is not None and not turn.reopened:
            turn.reopened = True  # the pool's idle connection had ended
            self.close()
            attempt.start_over()
        else:
            self._end(NORMAL, str(error))

    def on_defect(self, error: Exception) -> None:
        attempt = self._attempt
        self.close()
        if attempt is not None:
            attempt.on_defect(error)

    def _end(self, code: int, message: str, *, again: bool = True, eof: bool = False) -> None:
        """End the socket, and its turn: once for nothing, if no event of it has come, else as a failure."""
        attempt, turn, exchange, begun = self._attempt, self._turn, self._exchange, self._begun
        if self._key:
            self._refuse(message)
            return
        sent, size = self.sent_at is not None, self._size
        self.close()
        if attempt is None or turn is None or exchange is None:
            return
        if not begun and code == TOO_BIG and again:
            place = self._sockets.place(self._name[1])
            place.largest, turn.over_http = min(place.largest, size), "size"
            attempt.start_over()
        elif not begun and code in REFUSED and again:
            self._attempt, self._turn = attempt, turn
            self._refuse(message)
        elif not begun and again and not turn.reopened:
            turn.reopened = True
            turn.resent += sent
            self._runtime.resent += sent
            attempt.start_over()
        else:
            origin = str(self._name[1])
            phase = Phase.BODY if begun else Phase.HEAD
            error = TransportError(f"{message} [{origin}]", phase=phase, origin=origin, protocol=not again, sent=True)
            exchange.on_failure(error)

    # --- silence ---

    def _set_timer(self, seconds: float, callback: Callable[[], None]) -> None:
        self._cancel_timer()
        when = self._runtime.loop.clock() + seconds
        self._timer = self._runtime.timers.at(when, callback, self.on_defect, is_timeout=True)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_silence(self) -> None:
        """Ping a server that has been silent, and end the socket of one that does not answer."""
        now = self._runtime.loop.clock()
        latest = max(self.last_activity, self._ponged_at)
        if self.paused or now - latest < PING_AFTER:
            self._pinged_at = -1.0
            self._set_timer(PING_AFTER if self.paused else latest + PING_AFTER - now, self._on_silence)
        elif self._pinged_at > latest:
            self._end(NORMAL, f"no pong within {PING_AFTER:g} s", again=False)
        else:
            self._pinged_at = now
            self._upload.send(encode_frame(b"", PING, masked=True))
            self._set_timer(PING_AFTER, self._on_silence)


class FrameEvents:
    """Reads whole frames of a socket by the fast path of its stream."""

    __slots__ = ("_fast", "_socket", "cut", "one_event")

    def __init__(self, socket: ConversationSocket, fast: FastPath) -> None:
        self._socket = socket
        self._fast = fast
        self.one_event: bool = False
        self.cut: bool = False

    def read(self, data: bytes) -> int:
        """Read frames from the front of the received `data`. Returns the number of bytes read."""
        return self.read_events(data)

    def read_events(self, data: bytes) -> int:
        """Read frames from the front of the received `data`. Returns the number of bytes read."""
        self._socket.heard()
        return self._fast.read_frames(data)
