"""One request of a client: the call that carries it to the provider, and the bytes that come back.

The bytes of an attempt are held until the engine makes no other attempt: until the answer's first content, or its end.
Then they go to the client as they arrive. The engine's stream machine reads the same bytes for the books.
"""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from .. import (
    Call,
    CallState,
    Completion,
    Dialect,
    ErrorCategory,
    InvalidRequestError,
    ProviderError,
    Request,
    RequestOptions,
    Response,
)
from ..engine.embedding import (
    Attempt,
    ConversationSocket,
    ForwardedBody,
    KeyFilter,
    PlainRequest,
    content_coding,
    forwarded_request,
)
from ..http_server import AnsweringConnection, BadRequest, HTTPRequest, chunk
from ..providers.catalog.registry import DIALECTS, PROMPT_DIALECTS
from ..providers.json.json_values import JSONObject, loads_object, mapping, string
from ..providers.limits.output_limits import LIMITS, SETTINGS, output_limit
from ..transport.errors import TransportError
from ..transport.exchange import Exchange, RawHeaders
from ..transport.headers import headers_to_mapping
from ..transport.http1 import Connection
from ..transport.timers import Timer
from .bodies import CODINGS, uncompressed, with_members, with_model
from .dialects import (
    PREVIOUS,
    STATUS,
    Endpoint,
    Refusal,
    error_body,
    error_event,
    headers_to_client,
    headers_to_provider,
    message_to_client,
    query_of,
    seconds_waited,
    takes_interim,
)
from .trace import TracedCall

if TYPE_CHECKING:
    import socket

    from .gateway import Gateway, Slot
    from .websocket import ResponsesSocket, SocketTurn

OURS: Final = frozenset({ErrorCategory.NETWORK, ErrorCategory.TIMEOUT, ErrorCategory.CANCELLED, ErrorCategory.BUDGET})
"""Categories of errors that no provider's answer explains."""

REFUSED: Final = frozenset({429, 503, 529})
"""The statuses with which a provider says that the request may be sent later."""

BODY_END = 2.0
"""Seconds in which the end of a body may follow the end of its answer. The pool closes the connection then, too."""

COMPRESSED = "the provider sent content-encoding {!r}, which was not asked for"

MOST_AFTER_END = 64 * 1024
"""The most bytes of a body after the answer's end that a client gets."""

LOOK_AGAIN = 1.0
"""Seconds until a call is looked at again whose attempt is under way when its time to wait is over."""

HELD = (CallState.QUEUED, CallState.BACKOFF)
"""The states of a call of which no attempt is under way."""

STREAM_HEADERS = [("content-type", "text/event-stream"), ("cache-control", "no-cache")]


class GatewayConnection(AnsweringConnection):
    """A client's connection to the gateway, and the request that is answered on it.

    forwarding: the request that is under way; None if there is none.
    """

    __slots__ = ("_gateway", "forwarding")

    def __init__(self, gateway: Gateway, sock: socket.socket) -> None:
        AnsweringConnection.__init__(self, gateway.http, sock)
        self._gateway = gateway
        self.forwarding: Forwarding | Passing | ResponsesSocket | None = None

    codings: ClassVar[Sequence[str]] = CODINGS
    conversation: ClassVar[None] = None
    upstream: ClassVar[None] = None

    def answer(self, request: HTTPRequest) -> None:
        try:
            coding = request.headers.get("content-encoding", "identity").lower()
            if coding != "identity":
                self._gateway.slot_of(request)  # before the body costs anything
                request.body = uncompressed(request.body, coding)
            self._gateway.begin(self, request)
        except BadRequest as refusal:
            self.answer_wrong(refusal)

    @property
    def takes_status(self) -> bool:
        """Whether an answer can still be an error with a status."""
        return not self.has_head

    def check(self, request: HTTPRequest) -> None:
        self._gateway.slot_of(request)

    def answer_wrong(self, error: BadRequest) -> None:
        refusal = error if isinstance(error, Refusal) else Refusal(DIALECTS["openai-chat"], error.status, error.message)
        self.fail(refusal.dialect, refusal.status, refusal.message, "refused", refusal.retry_after_ms)

    def fail(self, dialect: Dialect, status: int, message: str, code: str, retry_after_ms: int) -> None:
        """Respond with an error of the gateway's own. retry_after_ms: -1 for no Retry-After."""
        headers = [("content-type", "application/json")]
        if status not in (429, 503):  # the engine has repeated what it can; a limit passes, and a gateway may be back
            headers.append(("x-should-retry", "false"))
        if status == 426:
            headers.append(("sec-websocket-version", "13"))
        if retry_after_ms > 0:
            headers.append(("retry-after", str(math.ceil(retry_after_ms / 1000))))
        self.respond(status, headers, error_body(dialect, status, message, code))

    def answered(self) -> None:
        self.forwarding = None

    def has_room(self) -> None:
        if self.forwarding is not None:
            self.forwarding.resume()

    def client_left(self) -> None:
        forwarding, self.forwarding = self.forwarding, None
        self._gateway.http.drop(self)
        if forwarding is not None:
            forwarding.client_left()


Client: TypeAlias = "GatewayConnection | SocketTurn"
"""What a request is answered on: a connection, or its turn on a WebSocket."""


class AnswerTap(Exchange):
    """The exchange of one attempt: holds its bytes, and forwards everything to the attempt.

    status: the status of the response; 0 before its head.
    held: the bytes of the body that were not sent to the client.
    keys: removes the attempt's key from what the client gets.
    beginning: the end of the bytes that were sent, which may be the beginning of the key, and was not sent.
    ended: the body has ended as its framing says.
    one_event, cut: as of a `FastReader`.
    """

    def __init__(self, owner: Forwarding, exchange: Exchange) -> None:
        self._owner = owner
        assert isinstance(exchange, Attempt)
        self.attempt: Attempt = exchange
        self.connection: Connection | ConversationSocket | None = exchange.connection
        self.status: int = 0
        self.headers: RawHeaders = ()
        self.held: list[bytes] = []
        self.keys: KeyFilter = owner.keys_of(exchange)
        self.beginning: bytes = b""
        self.ended: bool = False
        self.cut: bool = False
        self.one_event: bool = False

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self.status, self.headers = status, headers
        self._owner.latest = self
        self.attempt.on_head(status, headers)

    def on_body(self, data: bytes) -> AnswerTap | None:
        owner = self._owner
        self.held.append(data)
        owner.latest = self
        reader = self.attempt.on_body(data)
        owner.flush(self)
        if reader is None or self.held or self.beginning or not owner.request.chunked:
            return None
        self._reader, self.one_event = reader, reader.one_event
        return self

    def read(self, data: bytes) -> int:
        """Forward whole chunks with the framing that they have, as long as the engine's fast path reads them."""
        reader = self._reader
        reader.cut = self.cut
        if not self.keys.passes(data, is_cut=self.cut):
            return 0  # `on_body` gets it
        taken = reader.read(data)
        if taken:
            self._owner.forward(data if taken == len(data) else data[:taken], b"\n\n")
        return taken

    def read_events(self, data: bytes) -> int:
        if not self.keys.ends_well(data) or not self.keys.passes(data):
            return 0
        taken = self._reader.read_events(data)
        if taken:
            self._owner.forward(chunk(data[:taken]), data[max(0, taken - 4) : taken])
        return taken

    def take(self) -> bytes:
        """Return the bytes that are held, without the key."""
        data = b"".join((self.beginning, *self.held))
        self.held.clear()
        data, self.beginning = self.keys.split(data, last=self.ended)
        return data

    @property
    def is_open(self) -> bool:
        """Whether more bytes may come."""
        return self.connection is not None and not self.connection.closed

    def lacks(self, error: ProviderError) -> bool:
        """Return whether a client that gets these bytes does not see that the call failed: it gets an error then.

        A provider's own error has a status, or is an event. What else ends a call is in no byte: a break, a timeout, an
        end without the end marker of the dialect, an answer above a limit. A compressed answer is not passed on, since
        nothing has looked for a key in it.
        """
        if not self.status or content_coding(self.attempt.headers):
            return True
        is_empty = self.ended and not self.held and not error.body
        if not 200 <= self.status < 300 or (error.http_status and not is_empty):
            return False
        if self.ended and self.attempt.prepared.stream:
            return True  # the end is what is wrong: an error in an event is found before it
        return not error.body and (is_empty or error.category in OURS or not (self.ended or self.is_open))

    def on_end(self) -> None:
        self.ended = True
        self._owner.latest = self
        self.attempt.on_end()
        self._owner.flush(self)

    def on_failure(self, error: TransportError) -> None:
        self.attempt.on_failure(error)
        self._owner.broken(self)

    def on_defect(self, error: Exception) -> None:
        self.attempt.on_defect(error)


class ClientRequest(abc.ABC):
    """One request of a client, and the connection on which it is answered."""

    __slots__ = ("_connection", "_gateway", "dialect", "endpoint", "request", "slot")

    def __init__(
        self, gateway: Gateway, connection: Client, request: HTTPRequest, slot: Slot, endpoint: Endpoint
    ) -> None:
        self._gateway = gateway
        self._connection = connection
        self.request: HTTPRequest = request
        self.slot: Slot = slot
        self.endpoint: Endpoint = endpoint
        self.dialect: Dialect = endpoint.dialect

    @abc.abstractmethod
    def tap(self, exchange: Exchange) -> Exchange:
        """Return an exchange in front of an attempt's."""

    def _keeper(self, members: JSONObject) -> str | None:
        """Return the name of the provider that keeps the answer that the request names, if one is known.

        Raises `Refusal` for an answer of another slot.
        """
        named = [self.endpoint.answer, *(string(members, name) for name in PREVIOUS)]
        try:
            return self._gateway.keeper_of([each for each in named if each], self.slot, self.request.key)
        except LookupError as error:
            raise Refusal(self.dialect, 404, f"there is no answer {error.args[0]!r:.200} of this slot") from None

    def keys_of(self, attempt: Attempt) -> KeyFilter:
        """Return what removes an attempt's key from its answer: the client must not get it. What the client itself has
        sent is not removed."""
        known = (*headers_to_provider(self.request).values(), *(value for _, value in query_of(self.request)))
        return self._gateway.key_filter(attempt.prepared.secrets.keys(known))

    def _for_engine(self, model: str, body: bytes, members: JSONObject, *, replaces: bool) -> Request:
        """Return the engine's request. model: for the engine. replaces: the body has the model's name."""
        forwarded = ForwardedBody(
            self.dialect.name,
            members,
            frozenset(),
            {},
            None,
            write=(lambda name: with_model(body, members, name)) if replaces else (lambda name: body),
            query=query_of(self.request),
            forwarder=self,
            method=self.request.method,
            place=None if self.endpoint.rest is None else self.endpoint.place,
            conversation=self._connection.conversation,
            turn=self._connection.upstream,
        )
        places = [members, *(mapping(members, name) for name in SETTINGS)]
        limit = max((output_limit(each, sorted(LIMITS)) or 0 for each in places), default=0) or None
        headers = headers_to_provider(self.request)
        options: RequestOptions = {**self.slot.options, "extra_headers": headers, "max_output_tokens": limit}
        return forwarded_request(model, forwarded, **options)


class Forwarding(ClientRequest):
    """A model call.

    latest: the attempt that received something last.
    """

    __slots__ = (
        "_after_end", "_body", "_call", "_chosen", "_completion", "_interim", "_is_over", "_late", "_late_at",
        "_late_timer", "_left", "_model", "_newest", "_sent_tail", "_started", "_stream", "_timer", "latest",
    )  # fmt: skip

    def __init__(
        self, gateway: Gateway, connection: Client, request: HTTPRequest, slot: Slot, endpoint: Endpoint
    ) -> None:
        super().__init__(gateway, connection, request, slot, endpoint)
        self._model = endpoint.model or ""
        self._stream = endpoint.stream
        self._body = request.body
        self._call: Call | None = None
        self._completion: Completion | None = None
        self._chosen: AnswerTap | None = None  # the attempt whose bytes the client gets
        self._interim = takes_interim(request)  # its keep-alives are interim responses
        self._is_over = False  # the client has its answer, or has left
        self._left = False  # the client has left
        self._sent_tail = b"\n\n"  # the last bytes that the client got
        self._after_end = 0  # bytes after the end of the answer
        self._timer: Timer | None = None
        self._late: ProviderError | None = None  # the refusal of a call that could not be sent in time
        self._late_at = gateway.loop.clock() + seconds_waited(request, gateway.queue)
        self._late_timer: Timer | None = None
        self._started = time.time()
        self._newest: AnswerTap | None = None
        self.latest: AnswerTap | None = None

    # --- the request ---

    def start(self) -> None:
        """Start the call. Raises `InvalidRequestError`, `MalformedJSONError` and what `Calls.start` raises."""
        body, slot, gateway = self._body, self.slot, self._gateway
        members = loads_object(body)
        in_body = not self._model and "model" in members
        if in_body:
            self._model = string(members, "model") or ""
        if not self._model and (in_body or self.dialect.name not in PROMPT_DIALECTS):  # a server has one model
            raise InvalidRequestError("model", "is missing, or is no text")
        self._keeper(members)
        stream = self._stream if self._stream is not None else members.get("stream") or False
        if not isinstance(stream, bool):
            raise InvalidRequestError("stream", "must be true or false")
        self._stream = stream
        if slot.extra_body:
            body = self._body = with_members(body, members, slot.extra_body)
            members = {**members, **slot.extra_body}
        model = gateway.model_of(self.dialect.name, self._model or None)
        request = self._for_engine(model, body, members, replaces=in_body)
        self._connection.forwarding = self
        self._call = call = gateway.calls.start(request, None, self._on_completion, stream=stream)
        slot.running[call] = None
        if not self._is_over and (stream or self._interim):
            self._arm(gateway.keep_alive, self._keep_alive)
        if not self._is_over:
            self._look_at(self._late_at)

    def steer(self, message: str) -> bool:
        """Pass a client's message on for the answer that is under way. Returns False if that is not possible."""
        try:
            if self._call is not None:
                self._call.steer(message)
        except InvalidRequestError:
            return False
        return self._call is not None

    # --- as the forwarder of the call ---

    def tap(self, exchange: Exchange) -> AnswerTap:
        self._newest = AnswerTap(self, exchange)
        return self._newest

    # --- the answer ---

    def flush(self, tap: AnswerTap) -> None:
        """Send what an attempt has received, if it is the one whose bytes the client gets."""
        if self._chosen is None and self._stream and tap.attempt.content_at < math.inf:
            self._chosen = tap  # no other attempt follows
            if self.dialect.stored is not None:
                self._remember(tap.attempt.partial_response())
        if tap is not self._chosen or self._is_over:
            if tap.attempt.over and self._call is not None:
                if tap.status in REFUSED:
                    self._gateway.hint(self._call.target, tap.attempt.headers)
                self._look()
            return
        connection, completion = self._connection, self._completion
        is_last = tap.ended and completion is not None
        data = tap.take()
        if is_last and not connection.has_head:
            self._end()
            connection.respond(tap.status, _headers(tap.headers, tap.keys), data)
            return
        head = b"" if connection.has_head else connection.head(tap.status, _headers(tap.headers, tap.keys))
        if completion is not None:
            self._after_end += len(data)
            is_last = is_last or self._after_end > MOST_AFTER_END
        self.forward(head + connection.piece(data, last=is_last), data[-4:])
        if is_last and not self._is_over:
            self._end()
            connection.finish()

    def _remember(self, answer: Response | None) -> None:
        """Remember whose an answer is, as soon as its client can name it."""
        if self.dialect.stored is not None and self._call is not None and answer is not None and answer.id:
            self._gateway.remember(answer.id, self._call.target, self.slot)

    def forward(self, chunks: bytes, tail: bytes) -> None:
        """Send whole chunks. tail: the last bytes of what is in them."""
        if self._is_over or not chunks:
            return
        self._sent_tail = (self._sent_tail + tail)[-4:]
        self._connection.write(chunks)
        if self._connection.unsent and self._call is not None and self._completion is None:
            self._call.pause()

    def resume(self) -> None:
        """Go on: the client has read what its socket had not taken."""
        if self._call is not None and self._completion is None:
            self._call.resume()

    def broken(self, tap: AnswerTap) -> None:
        """The connection of an attempt broke. After the answer's end that means only that nothing follows."""
        self._look()
        if tap is self._chosen and self._completion is not None and not self._is_over:
            tap.ended = True
            self.flush(tap)

    def _on_completion(self, completion: Completion) -> None:
        if self._late is not None:
            if not completion.attempts:
                self._late.category = ErrorCategory.RATE_LIMIT
            completion = replace(completion, error=self._late)
        self._completion = completion
        self._remember(completion.response)
        if self._call is not None:
            self.slot.running.pop(self._call, None)
        self._disarm()
        target = "" if self._call is None else self._call.target
        asked = (self._started, self.dialect.name, self._model, target, bool(self._stream), self._body)
        noted = TracedCall(*asked, completion=completion, client_left=self._left)
        if not self._is_over and completion.error is not None:
            self._fail(completion.error)
        elif not self._is_over:
            tap = self._chosen or self.latest
            assert tap is not None, "an answer has come over a connection"
            self._send_rest(tap)
        self.slot.add(noted)  # after the answer: whatever is noted does not touch it

    def _send_rest(self, tap: AnswerTap) -> None:
        """Send what has come and what still comes of the body of an answer that has ended."""
        self._chosen = tap
        if tap.ended:
            self.flush(tap)
        else:  # the end of the body follows in `on_body` and `on_end`; if it does not, the client need not wait for it
            self._arm(BODY_END, self._end_body)

    def _end_body(self) -> None:
        """End an answer whose body did not end in time. The answer is complete."""
        if self._chosen is not None:
            self._chosen.ended = True
            self.flush(self._chosen)

    def _fail(self, error: ProviderError) -> None:
        """Answer a call that failed: with what the provider sent, or with an error of the gateway's own."""
        connection, tap = self._connection, self._chosen
        if tap is None and self.latest is self._newest:
            tap = self.latest  # else the last attempt has received nothing
        is_ours = tap is None or tap.lacks(error)
        if tap is not None and not is_ours and (self._chosen is not None or connection.takes_status):
            tap.ended |= not tap.is_open
            self._send_rest(tap)  # the client gets the provider's own error
            return
        status, code = STATUS[error.category], error.category.value
        if connection.takes_status:
            self._end()
            coding = "" if tap is None else content_coding(tap.attempt.headers)
            message = COMPRESSED.format(coding) if coding else message_to_client(error)
            connection.fail(self.dialect, 502 if coding else status, message, code, error.retry_after_ms)
            return
        if self._chosen is not None:
            self._chosen.ended = False  # the error follows
            self.flush(self._chosen)  # what has come before it
        self._end()
        if not self._sent_tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
            connection.finish(cut=True)  # inside an event
            return
        body = error_body(self.dialect, status, message_to_client(error), code)
        if tap is not None and not is_ours:
            body = tap.take()  # the head of a stream was sent, so the error comes as an event of it
        connection.write(connection.piece(error_event(self.dialect, body), last=True))
        connection.finish()

    # --- while a call waits ---

    def _arm(self, seconds: float, function: Callable[[], None]) -> None:
        when, drop = self._gateway.loop.clock() + seconds, self._connection.client_left
        self._timer = self._gateway.timers.at(when, function, lambda _: drop())

    def _disarm(self) -> None:
        for timer in (self._timer, self._late_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._late_timer = None

    def _look_at(self, when: float) -> None:
        self._late_timer = self._gateway.timers.at(when, self._look_again, lambda _: self._connection.client_left())

    def _look_again(self) -> None:
        self._look()
        if self._chosen is None and not self._is_over:  # an attempt is under way, which may fail, and pause the call
            self._look_at(self._gateway.loop.clock() + LOOK_AGAIN)

    def _look(self) -> None:
        """Refuse a call that still waits when its client waits no longer. Keep-alives would let it wait for ever."""
        call, gateway = self._call, self._gateway
        if self._is_over or self._completion is not None or call is None or call.state not in HELD:
            return
        if gateway.loop.clock() >= self._late_at:
            reason = f" (waiting for {call.waiting_for})" if call.waiting_for else ""
            self._late = ProviderError(f"the request could not be sent in time{reason}", category=ErrorCategory.TIMEOUT)
            self._late.retry_after_ms = gateway.hint_ms(call.target)
            call.cancel()

    def _keep_alive(self) -> None:
        """Send a keep-alive: nothing has come that the client could get."""
        connection = self._connection
        is_array = self.dialect.name == "gemini" and ("alt", "sse") not in query_of(self.request)
        if self._chosen is not None or self._is_over or (not self._interim and (is_array or not self._stream)):
            return
        if self._interim and not connection.unsent:
            connection.write(connection.interim(102))
        elif not connection.unsent:
            head = b"" if connection.has_head else connection.head(200, STREAM_HEADERS)
            connection.write(head + connection.piece(self.dialect.keep_alive))
        if not self._is_over:
            self._arm(self._gateway.keep_alive, self._keep_alive)

    # --- the end ---

    def client_left(self) -> None:
        """Cancel the call: nobody waits for its answer."""
        self._left = True
        self._end()
        if self._call is not None:
            self._call.cancel()

    def end(self, error: ProviderError) -> None:
        """End the answer with an error, unless it is complete: the gateway ends."""
        if self._completion is not None:
            self._end_body()
        elif self._call is not None:
            self._call.cancel()  # first, because it closes the attempt's connection
            self._fail(error)

    def _end(self) -> None:
        self._is_over = True
        self._disarm()


class Passing(ClientRequest, Exchange):
    """A request that is no model call, such as one for the list of models, and the exchange of its attempts.

    It takes no place in a limit. The answer's bytes go to the client, and nothing else reads them.
    """

    def __init__(
        self, gateway: Gateway, connection: Client, request: HTTPRequest, slot: Slot, endpoint: Endpoint
    ) -> None:
        super().__init__(gateway, connection, request, slot, endpoint)
        self._head: tuple[int, list[tuple[str, str]]] | None = None  # until it was sent
        self._beginning = b""  # bytes that may be the beginning of the key

    def start(self) -> None:
        """Send it. Raises `InvalidRequestError`, `MalformedJSONError` and `EngineClosedError`."""
        self._gateway.calls.check_here()
        starter, endpoint, body = self._gateway.calls.starter, self.endpoint, self.request.body
        members = loads_object(body) if body else {}
        name = endpoint.model or string(members, "model")
        keeper = self._keeper(members)
        preparer, target = starter.first_target(self._gateway.model_of(self.dialect.name, name, keeper))
        asked = self._for_engine(target, body, members, replaces="model" in members)
        prepared, _ = preparer.prepare(asked, stream=False)
        self._sent = PlainRequest(self, prepared, starter.runtime, starter.clocks_of(asked, stream=False))
        self._connection.forwarding = self

    def resume(self) -> None:
        """Go on: the client has read what its socket had not taken."""
        self._sent.attempt.resume()

    def client_left(self) -> None:
        """Close the connection to the provider: nobody waits for the answer."""
        self._sent.attempt.abort()

    def end(self, error: ProviderError) -> None:
        """End the answer with an error: the gateway ends."""
        self.client_left()
        self.failed(self._sent.attempt, error)

    # --- as the forwarder and the exchange of its attempts ---

    def tap(self, exchange: Exchange) -> Exchange:
        assert isinstance(exchange, Attempt)
        self._exchange, self._keys = exchange, self.keys_of(exchange)
        return self

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self._sent.attempt.status = status
        self._head = status, _headers(headers, self._keys)
        coding = content_coding(headers_to_mapping(headers))
        if coding:
            self.client_left()
            message = COMPRESSED.format(coding)
            self._connection.fail(self.dialect, 502, message, ErrorCategory.SERVER.value, -1)

    def on_body(self, data: bytes) -> None:
        connection = self._connection
        head, self._head = b"" if self._head is None else connection.head(*self._head), None
        data, self._beginning = self._keys.split(self._beginning + data)
        connection.write(head + connection.piece(data))
        if connection.unsent:
            self._sent.attempt.pause()

    def on_end(self) -> None:
        self._sent.attempt.connection = None  # it is in order, and goes back to the pool
        self._sent.attempt.abort()
        if self._head is not None:
            self._connection.respond(*self._head, b"")
        else:
            self._connection.write(self._connection.piece(self._keys.hide(self._beginning), last=True))
            self._connection.finish()

    def on_failure(self, error: TransportError) -> None:
        self._exchange.on_failure(error)

    def on_defect(self, error: Exception) -> None:
        self._sent.attempt.connection = None  # it is closed, or carries another exchange
        self._connection.client_left()

    # --- as the owner of the request ---

    def answered(self) -> None:
        """Do nothing: no attempt reads an answer."""

    def repeated(self, attempt: Attempt) -> None:
        """Do nothing: `PlainRequest` has the latest attempt."""

    def failed(self, attempt: Attempt, error: ProviderError) -> None:
        if attempt.status and self._head is None:  # a part of the answer was sent
            if self._keys.passes(self._beginning, is_cut=True):
                self._connection.write(self._connection.piece(self._beginning))
            self._connection.finish(cut=True)
        else:
            status, code = STATUS[error.category], error.category.value
            self._connection.fail(self.dialect, status, message_to_client(error), code, error.retry_after_ms)


def _headers(headers: RawHeaders, keys: KeyFilter) -> list[tuple[str, str]]:
    """Return the headers of a provider's answer that the client gets, without keys."""
    return headers_to_client([(name, keys.hide(value)) for name, value in headers])
