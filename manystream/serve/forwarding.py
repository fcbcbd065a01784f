"""One request of a client: the call that carries it to the provider, and the bytes that come back.

The bytes of an attempt are held until the engine makes no other attempt: until the answer's first content, or its end.
Then they go to the client as they arrive. The engine's stream machine reads the same bytes for the books.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ..engine.call.completion import Completion
from ..engine.call.handle import Call
from ..engine.request.errors import EngineClosedError, TooManyCallsError
from ..engine.request.forwarded import ForwardedBody, forwarded_request
from ..http_server import LAST_CHUNK, BadRequest, HTTPConnection, HTTPRequest, chunk, http_head
from ..providers.errors import InvalidRequestError
from ..providers.json.json_values import JSONObject, MalformedJSONError, loads_object, string
from ..providers.limits.output_limits import LIMITS, output_limit
from ..providers.model.events import Error, Event
from ..providers.model.provider_error import ErrorCategory, ProviderError
from ..transport.errors import TransportError
from ..transport.exchange import Exchange, RawHeaders
from ..transport.timers import Timer
from .bodies import with_members, with_model
from .dialects import (
    OPENAI_CHAT,
    Endpoint,
    WireDialect,
    error_response,
    headers_to_client,
    headers_to_provider,
    query_of,
    status_of,
)
from .trace import TracedCall

if TYPE_CHECKING:
    import socket

    from .gateway import Gateway, Slot

OURS: Final = frozenset({ErrorCategory.NETWORK, ErrorCategory.TIMEOUT, ErrorCategory.CANCELLED, ErrorCategory.BUDGET})
"""Categories of errors that no provider's answer explains."""

BODY_END = 2.0
"""Seconds in which the end of a body may follow the end of its answer. The pool closes the connection then, too."""

MOST_AFTER_END = 64 * 1024
"""The most bytes of a body after the answer's end that a client gets."""

STREAM_HEADERS = [("content-type", "text/event-stream"), ("cache-control", "no-cache")]


class Refusal(BadRequest):
    """A request that the gateway does not take. dialect: that of its client."""

    def __init__(self, dialect: WireDialect, status: int, message: str) -> None:
        super().__init__(status, message)
        self.dialect = dialect


class GatewayConnection(HTTPConnection):
    """A client's connection to the gateway, and the request that is answered on it.

    forwarding: the request that is under way; None if there is none.
    """

    __slots__ = ("_chunked", "_closes", "_gateway", "_waits", "forwarding")

    def __init__(self, gateway: Gateway, sock: socket.socket) -> None:
        HTTPConnection.__init__(self, gateway.http, sock)
        self._gateway = gateway
        self._chunked = True  # the client understands chunks (HTTP/1.1)
        self._closes = False  # after the answer
        self._waits = False  # the answer has ended, and the client has not read all of it
        self.forwarding: Forwarding | None = None

    def begin(self, request: HTTPRequest) -> None:
        self._chunked = request.chunked
        self._closes = not request.keep_alive
        try:
            self._gateway.begin(self, request)
        except Refusal as refusal:
            self._answer(refusal)

    def check(self, request: HTTPRequest) -> None:
        self._gateway.check(request)

    def refuse(self, error: BadRequest) -> None:
        self._closes = True
        self._answer(error if isinstance(error, Refusal) else Refusal(OPENAI_CHAT, error.status, error.message))

    def _answer(self, refusal: Refusal) -> None:
        status, message = refusal.status, refusal.message
        self.respond(status, *error_response(refusal.dialect, status, message, "refused"))

    def respond(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Send a whole response, and go on with the next request."""
        self.write(http_head(status, [*headers, ("content-length", str(len(body))), *self._closing()]) + body)
        self.finish()

    def head(self, status: int, headers: list[tuple[str, str]]) -> bytes:
        """Return the head of a response whose body follows in pieces."""
        self._closes |= not self._chunked
        framing = [("transfer-encoding", "chunked")] if self._chunked else []
        return http_head(status, [*headers, *framing, *self._closing()])

    def piece(self, data: bytes, *, last: bool = False) -> bytes:
        """Return a piece of such a body in its framing."""
        if not self._chunked:
            return data
        return (chunk(data) if data else b"") + (LAST_CHUNK if last else b"")

    def _closing(self) -> list[tuple[str, str]]:
        return [("connection", "close")] if self._closes else []

    def finish(self, *, cut: bool = False) -> None:
        """End the answer. `cut`: close the connection, so that the client sees that the answer is not whole."""
        self.forwarding = None
        self._closes |= cut
        if self.unsent:
            self._waits = True
        elif self._closes:
            self._gateway.http.drop(self)
        elif self.is_open:
            self.next()

    def drained(self) -> None:
        if self._waits:
            self._waits = False
            self.finish()
        elif self.forwarding is not None:
            self.forwarding.resume()

    def client_left(self) -> None:
        forwarding, self.forwarding = self.forwarding, None
        self._gateway.http.drop(self)
        if forwarding is not None:
            forwarding.client_left()


class AnswerTap(Exchange):
    """The exchange of one attempt: holds its bytes, and forwards everything to the attempt.

    status: the status of the response; 0 before its head.
    headers: the headers of the response.
    held: the bytes of the body that were not sent to the client.
    ended: the body has ended as its framing says.
    """

    __slots__ = ("_exchange", "_owner", "ended", "headers", "held", "status")

    def __init__(self, owner: Forwarding, exchange: Exchange) -> None:
        self._owner = owner
        self._exchange = exchange
        self.status: int = 0
        self.headers: RawHeaders = ()
        self.held: list[bytes] = []
        self.ended: bool = False

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self.status, self.headers = status, headers
        self._owner.latest = self
        self._exchange.on_head(status, headers)

    def on_body(self, data: bytes) -> None:
        owner = self._owner
        self.held.append(data)
        owner.latest = self
        self._exchange.on_body(data)
        owner.flush(self)

    def on_end(self) -> None:
        self.ended = True
        self._owner.latest = self
        self._exchange.on_end()
        self._owner.flush(self)

    def on_failure(self, error: TransportError) -> None:
        self._exchange.on_failure(error)
        self._owner.broken(self)

    def on_defect(self, error: Exception) -> None:
        self._exchange.on_defect(error)


class Forwarding:
    """One request of a client, and the call that carries it.

    latest: the attempt that received something last.
    """

    __slots__ = (
        "_after_end",
        "_body",
        "_call",
        "_chosen",
        "_completion",
        "_connection",
        "_dialect",
        "_gateway",
        "_has_head",
        "_is_over",
        "_members",
        "_model",
        "_newest",
        "_request",
        "_sent_tail",
        "_slot",
        "_started",
        "_stream",
        "_timer",
        "latest",
    )

    def __init__(
        self, gateway: Gateway, connection: GatewayConnection, request: HTTPRequest, slot: Slot, endpoint: Endpoint
    ) -> None:
        self._gateway = gateway
        self._connection = connection
        self._request = request
        self._slot = slot
        self._dialect: WireDialect = endpoint.dialect
        self._members: JSONObject = {}
        self._model = endpoint.model or ""
        self._stream = endpoint.stream
        self._body = request.body
        self._call: Call | None = None
        self._completion: Completion | None = None
        self._chosen: AnswerTap | None = None  # the attempt whose bytes the client gets
        self._has_head = False  # the head of a response in chunks was sent
        self._is_over = False  # the client has its answer, or has left
        self._sent_tail = b"\n\n"  # the last bytes that the client got
        self._after_end = 0  # bytes after the end of the answer
        self._timer: Timer | None = None
        self._started = time.time()
        self._newest: AnswerTap | None = None
        self.latest: AnswerTap | None = None

    # --- the request ---

    def start(self) -> None:
        """Start the call, or answer with an error."""
        try:
            self._start()
        except InvalidRequestError as error:
            status = 500 if error.field.startswith("api_key") else 400
            self._refuse(status, str(error), "invalid_request")
        except MalformedJSONError:
            self._refuse(400, "the request's body is not a JSON object", "invalid_request")
        except (EngineClosedError, TooManyCallsError) as error:
            self._refuse(503, str(error), "unavailable")

    def _start(self) -> None:
        body, slot, gateway = self._body, self._slot, self._gateway
        self._members = members = loads_object(body)
        in_path = bool(self._model)
        if not in_path:
            self._model = string(members, "model") or ""
            if not self._model:
                raise InvalidRequestError("model", "is missing, or is no text")
        stream = members.get("stream") is True if self._stream is None else self._stream
        self._stream = stream
        if slot.extra_body:
            body = self._body = with_members(body, members, slot.extra_body)
            members = self._members = {**members, **slot.extra_body}
        forwarded = ForwardedBody(
            self._dialect.name,
            members,
            frozenset(),
            {},
            None,
            write=(lambda model: body) if in_path else (lambda model: with_model(body, members, model)),
            query=query_of(self._request),
            forwarder=self,
        )
        request = forwarded_request(
            gateway.model_of(self._dialect.name, self._model),
            forwarded,
            extra_headers=headers_to_provider(self._request),
            max_output_tokens=_output_limit(members),
            tenant=slot.tenant,
            session=slot.session,
            tags=slot.tags,
            priority=slot.priority,
        )
        self._connection.forwarding = self
        self._call = call = gateway.calls.start(
            request, self._on_event if stream else None, self._on_completion, stream=stream
        )
        slot.running[call] = None
        if stream and not self._is_over:
            self._arm(gateway.keep_alive)

    def _refuse(self, status: int, message: str, code: str, retry_after_ms: int = -1) -> None:
        """Answer with an error of the gateway's own."""
        headers, body = error_response(self._dialect, status, message, code, retry_after_ms)
        self._end()
        self._connection.respond(status, headers, body)

    # --- as the forwarder of the call ---

    def tap(self, exchange: Exchange) -> AnswerTap:
        self._newest = AnswerTap(self, exchange)
        return self._newest

    # --- the answer ---

    def _on_event(self, event: Event) -> None:
        """The first content has come: no other attempt follows."""
        if self._chosen is None and not isinstance(event, Error):
            self._chosen = self.latest

    def flush(self, tap: AnswerTap) -> None:
        """Send what an attempt has received, if it is the one whose bytes the client gets."""
        if tap is not self._chosen or self._is_over:
            return
        connection, completion = self._connection, self._completion
        is_last = tap.ended and completion is not None
        data = tap.held[0] if len(tap.held) == 1 else b"".join(tap.held)
        tap.held.clear()
        if is_last and not self._has_head:
            self._end()
            connection.respond(tap.status, headers_to_client(list(tap.headers)), data)
            return
        head = b""
        if not self._has_head:
            self._has_head = True
            head = connection.head(tap.status, headers_to_client(list(tap.headers)))
        if data:
            self._sent_tail = (self._sent_tail + data[-4:])[-4:]
        if completion is not None:
            self._after_end += len(data)
            is_last = is_last or self._after_end > MOST_AFTER_END
        if is_last:
            self._end()
            connection.write(head + connection.piece(data, last=True))
            connection.finish()
            return
        if head or data:
            connection.write(head + connection.piece(data))
        if connection.unsent and self._call is not None and completion is None:
            self._call.pause()

    def resume(self) -> None:
        """Go on: the client has read what its socket had not taken."""
        if self._call is not None and self._completion is None:
            self._call.resume()

    def broken(self, tap: AnswerTap) -> None:
        """The connection of an attempt broke. After the answer's end that means only that nothing follows."""
        if tap is self._chosen and self._completion is not None and not self._is_over:
            tap.ended = True
            self.flush(tap)

    def _on_completion(self, completion: Completion) -> None:
        self._completion = completion
        if self._call is not None:
            self._slot.running.pop(self._call, None)
        self._disarm()
        self._slot.add(self._traced(completion))
        if self._is_over:
            return
        if completion.error is not None:
            self._fail(completion.error)
            return
        self._chosen = tap = self._chosen or self.latest
        assert tap is not None, "an answer has come over a connection"
        if tap.ended:
            self.flush(tap)
        else:  # the end of the body follows in `on_body` and `on_end`; if it does not, the client need not wait for it
            self._timer = self._gateway.timers.at(
                self._gateway.loop.clock() + BODY_END, self._end_body, self._on_defect
            )

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
        is_ours = tap is None or not tap.status or (error.category in OURS and not tap.ended)
        if tap is not None and not is_ours and (self._chosen is not None or not self._has_head):
            self._chosen, tap.ended = tap, True  # the client gets the provider's own error
            self.flush(tap)
            return
        if not self._has_head:
            self._refuse(status_of(error), error.message, error.category.value, error.retry_after_ms)
            return
        if self._chosen is not None:
            self.flush(self._chosen)  # what has come before the break
        self._end()
        if not self._sent_tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
            connection.finish(cut=True)  # inside an event
            return
        if tap is not None and not is_ours:
            body = b"".join(tap.held)  # the head of a stream was sent, so the error comes as an event of it
        else:
            _, body = error_response(self._dialect, status_of(error), error.message, error.category.value)
        connection.write(connection.piece(self._dialect.error_event(body), last=True))
        connection.finish()

    # --- while a call waits ---

    def _arm(self, seconds: float) -> None:
        self._timer = self._gateway.timers.at(self._gateway.loop.clock() + seconds, self._keep_alive, self._on_defect)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _keep_alive(self) -> None:
        """Send a keep-alive: nothing has come that the client could get."""
        if self._chosen is not None or self._is_over:
            return
        if self._dialect.name == "gemini" and ("alt", "sse") not in query_of(self._request):
            return  # the stream is one JSON array
        connection, head = self._connection, b""
        if not self._has_head:
            self._has_head = True
            head = connection.head(200, STREAM_HEADERS)
        if not connection.unsent:
            connection.write(head + connection.piece(self._dialect.keep_alive))
        if not self._is_over:
            self._arm(self._gateway.keep_alive)

    # --- the end ---

    def client_left(self) -> None:
        """Cancel the call: nobody waits for its answer."""
        self._end()
        if self._call is not None:
            self._call.cancel()

    def _on_defect(self, error: Exception) -> None:
        """End the request after a defect: a timer's function raised."""
        self._connection.client_left()

    def _end(self) -> None:
        self._is_over = True
        self._disarm()

    def _traced(self, completion: Completion) -> TracedCall:
        return TracedCall(
            started=self._started,
            dialect=self._dialect.name,
            model=self._model,
            target="" if self._call is None else self._call.target,
            stream=bool(self._stream),
            body=self._body,
            completion=completion,
            client_left=self._is_over,
        )


def _output_limit(members: JSONObject) -> int | None:
    """Return the most output tokens that a body allows; None if it names no limit."""
    config = members.get("generationConfig")
    return output_limit({**members, **config} if isinstance(config, dict) else members, sorted(LIMITS))
