"""Responses over a WebSocket: each `response.create` of a client becomes a model call with the whole conversation.

The latest answer of each stream is kept in memory, with all before it (`Chain`), so that a client sends only what is
new, whatever the provider behind speaks. What is kept is bounded (`ChainMemory`); a client whose conversation was
forgotten is told so by the error of the service, on which it sends all of it.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .. import Dialect, FinishReason, ProviderError, Response
from ..http_server import (
    BODY_LIMIT,
    PING_FRAME,
    WEBSOCKET_SECONDS,
    BadRequest,
    Headers,
    HTTPRequest,
    WebSocket,
    text_frame,
    websocket_head,
)
from ..providers.catalog.dialect import StreamMachine, TurnError
from ..providers.catalog.registry import DIALECTS
from ..providers.json.exact_numbers import UnwritableError
from ..providers.json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    dumps,
    items,
    loads_object,
    mapping,
    string,
)
from ..providers.openai.responses.turns import steer_message, turn_error
from ..providers.wire.error_bodies import error_from_object
from ..transport.sse import SSEParser
from .dialects import RESPONSES, STATUS, Refusal, error_body
from .forwarding import Forwarding

if TYPE_CHECKING:
    from .forwarding import GatewayConnection, Passing
    from .gateway import Gateway

DIALECT: Final = DIALECTS[RESPONSES]
GOING_AWAY, POLICY = 1001, 1008
MOST_ACTIVE = 16
"""The turns of a WebSocket that are answered at a time, as at OpenAI: one of each stream."""
MOST_WAITING, WAITING_BYTES = 64, 16 * 1024 * 1024
"""The turns of a WebSocket that may wait, and their bytes."""
KEPT_BYTES = 256 * 1024 * 1024
"""Bytes of the conversations of all WebSockets that are kept."""

MOST_OF_A_TEXT = 1000
LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
"""The events that end an answer."""

ITEM = "response.output_item.done"

_KIND = re.compile(rb'"type"\s*:\s*"(response\.[a-z_.]++|error)"')
_NOT_SENT = frozenset({"type", "generate", "background"})
_OF_HANDSHAKE = ("upgrade:", "connection:", "content-encoding:", "sec-websocket-", "openai-beta: responses_websockets")
"""The beginnings of the headers of a handshake that its model calls do not have."""


@dataclass(slots=True, frozen=True)
class Chain:
    """A conversation up to an answer.

    answer: the id of the answer; empty until it has come.
    items: the items of each input and each answer as JSON, with a comma between two.
    base: the id of the answer before them, which the provider keeps; None if they are all.
    """

    answer: str
    items: tuple[bytes, ...]
    base: str | None = None

    def then(self, answer: str, items: list[JSON]) -> Chain:
        """Return the conversation with more items. Raises `UnwritableError` for those that no body could hold."""
        return Chain(answer, (*self.items, dumps([items])[2:-2]) if items else self.items, self.base)


class ChainMemory:
    """The latest chains of all WebSockets. The oldest are forgotten."""

    def __init__(self) -> None:
        self._chains: dict[tuple[ResponsesSocket, str | None], Chain] = {}
        self.bytes: int = 0

    def keep(self, socket: ResponsesSocket, stream: str | None, chain: Chain) -> None:
        self.forget(socket, stream)
        self._chains[socket, stream] = chain
        self.bytes += sum(map(len, chain.items))
        while self.bytes > KEPT_BYTES:
            self.forget(*next(iter(self._chains)))

    def forget(self, socket: ResponsesSocket, stream: str | None) -> None:
        chain = self._chains.pop((socket, stream), None)
        if chain is not None:
            self.bytes -= sum(map(len, chain.items))

    def find(self, socket: ResponsesSocket, answer: str | None) -> Chain | None:
        """Return the chain of an answer that a WebSocket may continue, on any stream."""
        for stream in (None, *socket.streams):
            chain = self._chains.get((socket, stream))
            if chain is not None and chain.answer == answer != "":
                return chain
        return None


class UpstreamTurn:
    """A turn over a WebSocket to the provider. What the server knows (`chain`) is the id of its latest answer.

    why: the reason for which it is sent whole.
    """

    __slots__ = ("_own", "_previous", "why")

    def __init__(self, own: list[JSON], previous: str | None) -> None:
        """Begin one. own: the items that the client has sent. previous: the answer that they continue."""
        self._own = own
        self._previous = previous
        self.why: str = "" if previous else "new"

    def message(self, body: Callable[[], bytes], chain: object) -> tuple[bytes, bool]:
        """Return the text that is sent, and whether it is only what is new. body: returns the body over HTTP."""
        members = {name: value for name, value in loads_object(body()).items() if name != "stream"}
        continues = chain is not None and chain == self._previous
        if continues:
            members |= {"input": self._own, "previous_response_id": self._previous}
        return dumps({"type": "response.create", **members}), continues

    def answered(self, machine: StreamMachine, response: Response) -> object:
        """Return what the server knows after an answer."""
        return response.id if response.finish_reason in (FinishReason.STOP, FinishReason.TOOL_USE) else None

    def steer(self, machine: StreamMachine, text: str) -> bytes | None:
        """Return the message of a client, if it is for the answer that is under way; None if there is no such answer.
        text: the message."""
        members = loads_object(text)
        is_meant = string(members, "previous_response_id") == machine.answer.id
        return steer_message(machine, members.get("input")) if is_meant else None

    def error(self, text: bytes) -> TurnError | None:
        """Return the error with which the server refuses the turn; None if the text is another event."""
        return turn_error(text)


class SocketTurn:
    """One turn. It stands in the place of a connection: what is sent on it are the events of its answer.

    stream: the name of its stream; None for the connection's own.
    conversation, upstream: how it is sent where the provider has a WebSocket for it.
    forwarding: the model call; None if there is none.
    is_steered: the client has sent more input for its answer. Another one follows, and the conversation is forgotten.
    has_head: an event was sent.
    """

    takes_status: Final = True

    __slots__ = (
        "_chain", "_is_stored", "_items", "_parser", "_socket", "conversation", "forwarding", "has_head", "is_steered",
        "stream", "upstream",
    )  # fmt: skip

    def __init__(
        self, socket: ResponsesSocket, stream: str | None, chain: Chain, upstream: UpstreamTurn, *, is_stored: bool
    ) -> None:
        """Begin one. chain: the conversation that is sent. is_stored: the provider keeps the answer."""
        self._socket = socket
        self._chain: Chain | None = chain  # until the last event
        self._is_stored = is_stored
        self._items: list[JSON] = []
        self._parser = SSEParser(BODY_LIMIT)
        self.stream: str | None = stream
        self.conversation: Hashable = (socket, stream)
        self.upstream: UpstreamTurn = upstream
        self.forwarding: Forwarding | Passing | None = None
        self.has_head: bool = False
        self.is_steered: bool = False

    # --- as the connection of a request ---

    @property
    def unsent(self) -> bytes | memoryview:
        """Bytes that the client has not taken."""
        return self._socket.connection.unsent

    def write(self, data: bytes) -> None:
        """Send frames. A turn ends with its last event: the next one need not wait for the end of a body."""
        self._socket.connection.write(data)
        if self._chain is None:
            self._socket.ended(self)

    def head(self, status: int, headers: Headers) -> bytes:
        """Return nothing: an answer on a WebSocket has no head."""
        return b""

    def interim(self, status: int) -> bytes:
        """Return a keep-alive."""
        return PING_FRAME

    def piece(self, data: bytes, *, last: bool = False) -> bytes:
        """Return a piece of an answer, cut anywhere, as frames. A keep-alive is a ping."""
        events = [*self._parser.feed(data), *(self._parser.end() if last else ())]
        frames = b"".join([self._frame(name, event) for name, event in events if event.startswith(b"{")])
        self.has_head |= bool(frames)
        return frames or (PING_FRAME if data.startswith(b":") else b"")

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer: an error, the events of a short stream, or an object."""
        if not 200 <= status < 300:
            self._fail(status, headers, body)
            return
        if body.lstrip().startswith(b"{"):
            body = b'data: {"type":"response.completed","response":%b}\n\n' % b" ".join(body.splitlines())
        self.write(self.piece(body, last=True))
        self.finish()

    def fail(self, dialect: Dialect, status: int, message: str, code: str, retry_after_ms: int) -> None:
        """Send an error of the gateway's own. retry_after_ms: -1 for no hint."""
        headers = [("retry-after-ms", str(retry_after_ms))] if retry_after_ms > 0 else []
        self._fail(status, headers, error_body(dialect, status, message, code))

    def finish(self, *, cut: bool = False) -> None:
        if self.is_steered:
            self._chain = None
            self._socket.ended(self)
        elif self._chain is not None:
            self._fail(502, (), b'{"error":{"type":"server_error","message":"the answer has no last event"}}')

    def client_left(self) -> None:
        """Drop the connection."""
        self._socket.connection.client_left()

    def _fail(self, status: int, headers: Headers, body: bytes) -> None:
        try:
            error = loads_object(body).get("error")
        except MalformedJSONError:
            error = body[:MOST_OF_A_TEXT].decode(errors="replace")
        if not isinstance(error, dict):
            error = {"type": "server_error" if status >= 500 else "invalid_request_error", "message": error}
        if self._chain is not None:
            self._chain = None
            event = dumps({"type": "error", "status": status, "error": {**error, "headers": dict(headers)}})
            self.write(text_frame(with_stream(event, self.stream)))

    def prepare(self, members: JSONObject) -> None:
        """Answer a turn that is to prepare a response without output: what it brings is kept for the next one."""
        id, usage = f"resp_{secrets.token_hex(24)}", {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        shown = {"id": id, "object": "response", "created_at": int(time.time()), "model": members.get("model")}
        shown |= {"status": "completed", "output": [], "usage": usage, "tools": [], "tool_choice": "auto"}
        self.respond(200, (), dumps({**shown, "parallel_tool_calls": True}))

    # --- events ---

    def _frame(self, name: str, event: bytes) -> bytes:
        """Return the frame of an event, and keep what the next turn must know of it."""
        if self._chain is None:
            return b""  # it has had its last event
        found = None if name.startswith("response.") else _KIND.search(event)
        untyped = "error" if event.startswith(b'{"error"') else ""  # as gateways of other dialects send it
        kind = found[1].decode() if found is not None else name or untyped
        if kind in LAST or kind == ITEM:
            event = self._read(kind, event, self._chain)
        return text_frame(with_stream(event, self.stream))

    def _read(self, kind: str, event: bytes, chain: Chain) -> bytes:
        try:
            members = loads_object(event)
        except MalformedJSONError:
            return event
        if kind == ITEM:
            self._items.append(members.get("item"))
            return event
        self._chain = chain if self.is_steered and kind != "error" else None  # another answer may follow
        memory, response = self._socket.gateway.chains, mapping(members, "response")
        if kind == "error":  # harnesses read the form with a member `error` and a status
            text: JSONObject = {"message": string(members, "message") or string(members, "error") or ""}
            error = mapping(members, "error") or members | text
            read = error_from_object(error, http_status=0, body=event)
            with contextlib.suppress(UnwritableError):
                return dumps({"type": kind, "status": STATUS[read.category], **members, "error": text | error})
            return event
        if kind != "response.completed" or self.is_steered:
            memory.forget(self._socket, self.stream)
            return event
        output = items(response, "output") or self._items
        sent_again = [each for each in output if self._is_stored or not _is_lost(each)]
        try:
            memory.keep(self._socket, self.stream, chain.then(string(response, "id") or "", sent_again))
        except UnwritableError:
            memory.forget(self._socket, self.stream)
        return event


def _is_lost(item: JSON) -> bool:
    """Return whether an item cannot be sent again: reasoning that neither the provider keeps nor its client has."""
    return isinstance(item, dict) and item.get("type") == "reasoning" and not item.get("encrypted_content")


def with_stream(event: bytes, stream: str | None) -> bytes:
    """Return an event with the name of its stream, if that has one."""
    return event if stream is None else event.rstrip()[:-1] + b',"stream_id":' + dumps(stream) + b"}"


class ResponsesSocket(WebSocket):
    """A client's WebSocket.

    turns: stream → the turn that is answered.
    """

    __slots__ = ("_handshake", "_is_starting", "_waiting", "gateway", "turns")

    def __init__(self, gateway: Gateway, connection: GatewayConnection, handshake: HTTPRequest) -> None:
        WebSocket.__init__(self, connection, gateway.http, gateway.loop.clock() + WEBSOCKET_SECONDS)
        self.gateway: Gateway = gateway
        self.turns: dict[str | None, SocketTurn] = {}
        self._waiting: dict[str | None, deque[tuple[JSONObject, int]]] = {}
        self._handshake = handshake
        self._is_starting = False

    @staticmethod
    def open(gateway: Gateway, connection: GatewayConnection, request: HTTPRequest) -> None:
        """Open one. Raises `BadRequest`."""
        connection.write(websocket_head(request))
        connection.forwarding = socket = ResponsesSocket(gateway, connection, _as_post(request))
        connection.open_websocket(socket)

    # --- messages ---

    def message(self, data: bytes) -> None:
        try:
            members = loads_object(data)
        except MalformedJSONError:
            members = {}
        kind, stream = members.get("type"), members.pop("stream_id", None)
        fault = self.why_not(stream)
        if kind not in ("response.create", "response.steer"):
            fault = "invalid_request_error", "a message must be an object of the type response.create or response.steer"
        sizes = [size for queue in self._waiting.values() for _, size in queue]
        if fault is not None:
            self.refuse(400, *fault)
        elif kind == "response.steer":
            try:
                self._steer(members)
            except UnwritableError as error:
                self.refuse(400, "invalid_request_error", f"the message cannot be passed on: {error}")
        elif len(sizes) >= MOST_WAITING or sum(sizes) > WAITING_BYTES:
            self.close(POLICY, "too many turns wait: send one when another has ended")
        else:
            name = stream if isinstance(stream, str) else None
            self._waiting.setdefault(name, deque()).append((members, len(data)))
            self._go_on()

    def outlived(self) -> None:
        self.refuse(400, "websocket_connection_limit_reached", "the connection is an hour old: open another one")
        self.close(GOING_AWAY)

    def refuse(self, status: int, code: str, message: str) -> None:
        """Send an error of the gateway's own, unless they are not read."""
        if self.connection.unsent:
            self.close(POLICY, "errors are not read")
        self.send(dumps({**DIALECT.own_error(status, message, code), "status": status}))

    def ended(self, turn: SocketTurn) -> None:
        """A turn has ended. Begin those that wait."""
        if self.turns.get(turn.stream) is turn:
            del self.turns[turn.stream]
            self._go_on()
            if not self.turns and self.connection.answering:
                self.connection.next()

    def _go_on(self) -> None:
        if self._is_starting:
            return  # the loop below goes on: a turn may end while it is started
        self._is_starting = True
        try:
            while len(self.turns) < MOST_ACTIVE and self.connection.is_open and not self.connection.unsent:
                ready = [stream for stream, queue in self._waiting.items() if queue and stream not in self.turns]
                if not ready:
                    break
                self._start(ready[0], self._waiting[ready[0]].popleft()[0])
        finally:
            self._is_starting = False

    def _start(self, stream: str | None, members: JSONObject) -> None:
        """Begin a turn."""
        given, previous = members.get("input"), string(members, "previous_response_id")
        own: list[JSON] = [{"role": "user", "content": given}] if isinstance(given, str) else items(members, "input")
        known = self.gateway.chains.find(self, previous)
        is_stored = members.get("store") is not False
        try:
            chain = (known or Chain("", (), previous)).then("", own)
        except UnwritableError as error:
            self.refuse(400, "invalid_request_error", f"the input cannot be passed on: {error}")
            return
        turn = self.turns[stream] = SocketTurn(self, stream, chain, UpstreamTurn(own, previous), is_stored=is_stored)
        self.begin()
        try:
            if previous is not None and known is None and not is_stored:
                message = f"there is no response {previous[:80]!r} on this connection"
                turn.fail(DIALECT, 400, message, "previous_response_not_found", -1)
            elif members.get("background"):
                raise BadRequest(400, "background is not for WebSockets")
            elif members.get("generate") is False:
                turn.prepare(members)
            else:
                self.gateway.begin(turn, replace(self._handshake, body=_body(members, known and chain)))
        except BadRequest as refusal:
            hint = refusal.retry_after_ms if isinstance(refusal, Refusal) else -1
            turn.fail(DIALECT, refusal.status, refusal.message, "refused", hint)
        except UnwritableError as error:
            turn.fail(DIALECT, 400, f"the message cannot be passed on: {error}", "refused", -1)

    def _steer(self, members: JSONObject) -> None:
        """Pass an input on for an answer that is under way over a WebSocket to the provider."""
        for turn in self.turns.values():
            if isinstance(turn.forwarding, Forwarding) and turn.forwarding.steer(dumps(members).decode()):
                turn.is_steered = True
                return
        message = "the answer is not under way over a WebSocket to the provider"
        error = {"type": "invalid_request_error", "code": "steering_not_supported", "message": message}
        steer = {name: members.get(name) for name in ("previous_response_id", "input")}
        self.send(dumps({"type": "response.steer.failed", "sequence_number": 0, "error": error, "steer": steer}))

    # --- as what is answered on the connection ---

    @property
    def _calls(self) -> list[Forwarding | Passing]:
        return [turn.forwarding for turn in self.turns.values() if turn.forwarding is not None]

    def resume(self) -> None:
        """Go on: the client has read what its socket had not taken."""
        for call in self._calls:
            call.resume()
        self._go_on()

    def client_left(self) -> None:
        """Cancel the turns: nobody waits for their answers."""
        sockets = self.gateway.calls.starter.runtime.sockets
        for stream in (None, *self.streams):
            self.gateway.chains.forget(self, stream)
            sockets.end((self, stream))
        for call in self._calls:
            call.client_left()

    def end(self, error: ProviderError) -> None:
        """End the turns with an error, and the connection: the gateway ends."""
        for call in self._calls:
            call.end(error)
        self.close(GOING_AWAY, "the gateway has ended")


def _as_post(request: HTTPRequest) -> HTTPRequest:
    """Return the request for a model call that has the headers of a handshake."""
    given = request.headers.items()
    headers = {name: value for name, value in given if not f"{name}: {value}".startswith(_OF_HANDSHAKE)}
    return HTTPRequest("POST", request.target, headers, chunked=False)


def _body(members: JSONObject, chain: Chain | None) -> bytes:
    """Return the body of a turn. chain: the conversation, in place of the input; None to send the turn as it is."""
    left_out = _NOT_SENT if chain is None else _NOT_SENT | {"input", "previous_response_id"}
    body = {name: value for name, value in members.items() if name not in left_out} | {"stream": True}
    if chain is None:
        return dumps(body)
    if chain.base is not None:
        body["previous_response_id"] = chain.base
    whole = b'%b,"input":[%b]}' % (dumps(body)[:-1], b",".join(chain.items))
    if len(whole) > BODY_LIMIT:
        raise BadRequest(413, f"the conversation is longer than {BODY_LIMIT} bytes")
    return whole
