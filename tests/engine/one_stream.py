"""One stream on one connection, without an engine and without a task: the bytes of each read are given.

Tests compare what it delivers with and without the fast path.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

import manystream as ms
from manystream.engine.call.attempt import Attempt
from manystream.engine.call.buffered import Buffered
from manystream.engine.call.timeouts import effective
from manystream.engine.request.limits import EngineLimits
from manystream.engine.request.prepared import Prepared, Shared
from manystream.engine.request.redaction import Redaction
from manystream.providers.catalog.dialect import Dialect, StreamMachine
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.exchange import WireHead
from manystream.transport.http1 import Connection
from manystream.transport.loop import Poller, PollerLoop
from manystream.transport.url import Origin

if TYPE_CHECKING:
    from manystream.engine.call.runtime import Runtime
    from manystream.providers.catalog.dialect import DeltaTarget
    from manystream.providers.wire.delta_template import Match

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
REQUEST = WireHead(b"POST", b"/", ())
SECRETS = Redaction("key", REQUEST)


@dataclass(frozen=True)
class Case:
    """One dialect's stream.

    begin: the events before the deltas.
    finish: the events after the deltas.
    delta: a delta, with `%b` for its text as JSON.
    """

    provider: ms.Provider
    begin: Sequence[bytes]
    delta: bytes
    finish: Sequence[bytes]

    def __str__(self) -> str:
        words = {"padded": b"obfuscation", "usage": b"completion_tokens", "logprobs": b'"logprobs":{'}
        return " ".join([self.provider.dialect, *(word for word, part in words.items() if part in self.delta)])


CHAT = (
    b'data: {"id":"c1","created":1763760000,"model":"m","choices":[{"index":0,"delta":{"content":%b},'
    b'"finish_reason":null}],"usage":null}\n\n'
)
CHAT_END = (b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n")
USAGE = b'"usage":{"prompt_tokens":3,"completion_tokens":777,"total_tokens":10}'
LOGPROBS = b'"logprobs":{"content":[{"token":"a\\n","logprob":-0.777,"bytes":[97],"top_logprobs":[]}]},"finish_reason":'
CASES = [
    Case(ms.OpenAIChat("key"), (), CHAT, CHAT_END),
    Case(ms.OpenAIChat("key"), (), CHAT.replace(b'"usage":null', USAGE), CHAT_END),
    Case(ms.OpenAIChat("key"), (), CHAT.replace(b'"finish_reason":', LOGPROBS), CHAT_END),
    Case(
        ms.OpenAIChat("key"),
        (),
        CHAT.replace(b'"finish_reason":', LOGPROBS).replace(b'"usage":null', USAGE + b',"obfuscation":"k3J9q"'),
        CHAT_END,
    ),
    Case(ms.OpenAIChat("key"), (), CHAT.replace(b'"usage":null', b'"usage":null,"obfuscation":"k3J9q"'), CHAT_END),
    Case(
        ms.OpenAIResponses("key"),
        (b'event: response.created\ndata: {"type":"response.created","response":{"id":"r1","model":"m"}}\n\n',),
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","sequence_number":17,"item_id":"msg_1","output_index":0,'
        b'"content_index":0,"delta":%b,"logprobs":[],"obfuscation":"6T7CxjFn"}\n\n',
        (
            b"event: response.completed\n"
            b'data: {"type":"response.completed","response":{"id":"r1","status":"completed"}}\n\n',
        ),
    ),
    Case(
        ms.Anthropic("key"),
        (
            b'event: message_start\ndata: {"type":"message_start","message":{"id":"m1","model":"m","content":[]}}\n\n',
            b"event: content_block_start\n"
            b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n',
        ),
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%b}}\n\n',
        (
            b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
            b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n',
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
        ),
    ),
    Case(
        ms.Gemini("key"),
        (),
        b'data: {"candidates":[{"content":{"parts":[{"text":%b}],"role":"model"},"index":0}],"usageMetadata":'
        b'{"promptTokenCount":7,"candidatesTokenCount":0,"totalTokenCount":777},"modelVersion":"m","responseId":"kx_-1"}'
        b"\r\n\r\n",
        (b'data: {"candidates":[{"content":{"parts":[]},"finishReason":"STOP","index":0}]}\r\n\r\n',),
    ),
]
cases = pytest.mark.parametrize("case", CASES, ids=str)
VARIANTS = [*CASES[:3], CASES[4]]
"""Forms of Chat that have a part of the members of the fullest one, which is `CASES[3]`."""


def cuts(case: Case, begin: int, end: int) -> range:
    """Return the places at which to cut a body: all of them for the fullest form of a dialect, else every seventh."""
    return range(begin + VARIANTS.index(case), end, 7) if case in VARIANTS else range(begin, end)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(case: Case, text: str, *, ascii_only: bool = True) -> bytes:
    return chunk(case.delta % json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))


FED = [0]
"""The number of wire events that stream machines of `counted` dialects have processed."""


@cache
def counted(name: str) -> Dialect:
    """Return a dialect whose machines count in `FED` what they are fed."""
    kind = cast("type[StreamMachine]", DIALECTS[name].machine)

    class Counted(kind):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def feed(self, event: str, data: bytes) -> Sequence[ms.Event]:
            FED[0] += 1
            return kind.feed(self, event, data)

    return replace(DIALECTS[name], machine=Counted)


class ScriptedSocket:
    """A socket that returns the given pieces, then the end of the stream."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = [piece for piece in pieces if piece]

    def recv(self, size: int) -> bytes:
        if not self.pieces:
            return b""
        piece, self.pieces[0] = self.pieces[0][:size], self.pieces[0][size:]
        if not self.pieces[0]:
            del self.pieces[0]
        return piece

    def send(self, data: memoryview) -> int:
        return len(data)

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        pass


class NoPoller:
    """A poller that watches nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


class StillLoop(PollerLoop):
    """A loop that the test drives, outside trio."""

    def __init__(self) -> None:
        super().__init__(cast("Poller", NoPoller()), lambda: 0.0)


@dataclass
class Stream:
    """One stream on one connection, and its delivered events.

    fast: whether the fast path may be used.
    cancel_after: the number of events after which the stream is cancelled.
    streamed: whether the request asks for a stream.
    response: the response of a success; None before.
    error: the error of a failure; None before.
    by_machine: the number of wire events that the stream machine processed.
    """

    case: Case
    fast: bool
    cancel_after: int = 10**9
    limits: EngineLimits = field(default_factory=EngineLimits)
    streamed: bool = True
    events: list[str] = field(default_factory=lambda: [])
    outcome: str = ""
    response: ms.Response | None = None
    error: ms.ProviderError | None = None
    by_machine: int = 0

    def read(self, pieces: Iterable[bytes]) -> Stream:
        dialect = counted(self.case.provider.dialect)
        shared = Shared(
            origin=Origin("http", "127.0.0.1", 80), provider=self.case.provider, dialect=dialect, make_id=lambda: "id",
            limits=self.limits, wall_clock=lambda: 0.0,
        )  # fmt: skip
        prepared = Prepared(shared.origin, shared.provider, shared, "m", REQUEST, b"", SECRETS)
        prepared.stream = self.streamed
        loop = StillLoop()
        runtime = SimpleNamespace(
            loop=loop,
            timers=NoPoller(),
            pool=NoPoller(),
            recording=None,
            answers=None,
            buffered=Buffered(2**30),
            paused={},
        )
        self.attempt = Attempt(
            prepared, self, cast("Runtime", runtime), effective(None, None, stream=True), started=0.0
        )
        connection = Connection(
            cast("socket.socket", ScriptedSocket(pieces)), "http://127.0.0.1", loop, lambda _: None, lambda _: None
        )
        self.attempt.on_connection(connection, False)
        FED[0] = 0
        while not connection.closed and not self.attempt.over:
            connection.on_readable()
        self.by_machine = FED[0]
        return self

    @property
    def delivered(self) -> tuple[list[str], str]:
        return self.events, self.outcome

    # --- as the listener ---

    number = 1

    def on_dequeued(self, attempt: Attempt) -> None:
        pass

    def on_connected(self, attempt: Attempt) -> None:
        pass

    def on_head(self, attempt: Attempt) -> None:
        pass

    def on_answer(self, attempt: Attempt, response: ms.Response, terminal: ms.Event | None) -> None:
        self.outcome, self.response = f"{response} {terminal}", response

    def on_attempt_failure(self, attempt: Attempt, error: ms.ProviderError, *, unread: bool) -> None:
        self.outcome, self.error = f"{error.category} {error} {self.attempt.partial_response()}", error

    def on_defect(self, error: Exception) -> None:
        raise error

    def on_events(self, attempt: Attempt, events: Sequence[ms.Event]) -> None:
        had_content = bool(self.events)
        self.deliver(events)
        if not had_content and not attempt.over:
            attempt.receiver = self
            if self.fast:
                attempt.fast_receiver = self

    # --- as the receiver of events ---

    def deliver(self, events: Sequence[ms.Event]) -> None:
        for event in events:
            if not self.attempt.over:
                self._on_event(event)

    def deliver_matches(self, target: DeltaTarget, matches: Iterable[Match]) -> None:
        for match in matches:
            event = None if self.attempt.over else target.accept(match)
            if event is not None:
                self._on_event(event)

    def _on_event(self, event: ms.Event) -> None:
        self.events.append(str(event))
        if len(self.events) == self.cancel_after:
            self.outcome = f"cancelled: {self.attempt.partial_response()}"
            self.attempt.abort()


def both(case: Case, pieces: Sequence[bytes], cancel_after: int = 10**9) -> Stream:
    """Read with and without the fast path; check that both deliver the same."""
    short = Stream(case, True, cancel_after).read(pieces)
    assert short.delivered == Stream(case, False, cancel_after).read(pieces).delivered
    return short


def wire(case: Case, deltas: Iterable[bytes]) -> list[bytes]:
    """Return a complete response: its head and its chunks."""
    return [HEAD, *map(chunk, case.begin), *deltas, *map(chunk, case.finish), END]
