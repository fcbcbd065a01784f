"""Provoke one fault on loopback, and observe everything that a caller can see of it.

A `Wire` is what a server writes after it has read one request, and how it then closes. `observe` runs the engine
against it: a call without retries for the outcome; a second call on the same engine, to see which connection it gets
and that it reads no byte of the first response; and a call with attempts left, to see whether the engine retries.
"""

import enum
from dataclasses import dataclass, field

import trio

import manystream as ms
from tests.support.peers import (
    NO_RETRY,
    Line,
    Peer,
    Recorder,
    chat_answer,
    chat_chunk,
    chat_stream,
    hello,
    open_descriptors,
    open_peer,
    stream_of,
)

ONCE_MORE = ms.Retry(max_attempts=2, base=0, jitter=0)
CLOCKS = ms.Timeouts(connect=5, first_byte=20, idle=10, total=60)
"""Timeouts on a virtual clock. They differ, so that the error shows which one ended a call."""

GOOD_STREAM = stream_of(*chat_stream("second"))
GOOD_ANSWER = chat_answer("second").encode()

ONE = chat_chunk("one")
"""The first event of every faulty stream here."""
WHOLE = "".join(chat_stream("one"))
"""A complete stream with the text "one"."""
EVENTS = "Content-Type: text/event-stream\r\n"


class End(enum.Enum):
    """How the server closes the connection after its response."""

    OPEN = "keeps the connection open"
    FIN = "closes"
    RESET = "resets"


@dataclass(frozen=True)
class Wire:
    """What a server writes after one request, and how it closes. `pieces` are sent in separate writes."""

    data: bytes
    end: End = End.OPEN
    pieces: tuple[bytes, ...] = ()


def raw(head: str, body: str | bytes = b"", end: End = End.OPEN) -> Wire:
    """Build a response from its status line and headers (each with its line end) and its body."""
    return Wire(head.encode("latin-1") + b"\r\n" + (body.encode() if isinstance(body, str) else body), end)


def ok(headers: str, body: str | bytes = b"", end: End = End.OPEN) -> Wire:
    """Build a 200 response with an event stream."""
    return raw(f"HTTP/1.1 200 OK\r\n{EVENTS}{headers}", body, end)


def in_chunks(body: str | bytes, end: End = End.OPEN) -> Wire:
    """Build a 200 response with an event stream; `body` is already in chunked coding."""
    return ok("Transfer-Encoding: chunked\r\n", body, end)


@dataclass
class Seen:
    """The visible effects of one fault.

    first: the completion of the call that met the fault, without retries.
    recorder: the events of that call.
    seconds: the duration of that call on the virtual clock.
    second: the completion of the next call on the same engine.
    reused: the next call used the fault's connection.
    attempts: the number of attempts of a call that may make two.
    leaked: the number of descriptors that were open afterwards and not before.
    """

    recorder: Recorder
    first: ms.Completion
    second: ms.Completion
    seconds: float = 0.0
    reused: bool = False
    attempts: int = 1
    leaked: int = 0
    requests: list[bytes] = field(default_factory=list[bytes])

    @property
    def error(self) -> ms.ProviderError:
        assert self.first.error is not None, self.first
        return self.first.error

    @property
    def message(self) -> str:
        return self.error.message

    @property
    def retried(self) -> bool:
        return self.attempts > 1

    def check_once(self) -> None:
        """Check what holds for every fault: one completion, one terminal event, a good next call, no leak."""
        assert self.recorder.completions == [self.first]
        assert self.first.success == (self.first.error is None)
        kinds = self.recorder.types
        assert sum(kind in ("DONE", "ERROR") for kind in kinds) == (1 if kinds else 0)
        assert not kinds or kinds[-1] == ("DONE" if self.first.success else "ERROR")
        assert self.second.success, self.second
        assert self.second.response.text == "second"
        assert self.leaked == 0
        for shown in (repr(self.first), str(self.first.error), repr(self.first.error)):
            assert "sk-canary-secret" not in shown


def faulty(wire: Wire, stream: bool, requests: list[bytes], served: list[Line]) -> object:
    """Return a script that responds to the first request with `wire`, and correctly to each later one."""

    async def script(line: Line) -> None:
        while request := await line.request():
            requests.append(request)
            served.append(line)
            if len(served) > 1:
                await line.send(GOOD_STREAM if stream else answer_head(GOOD_ANSWER))
                continue
            for piece in wire.pieces:
                await line.send(piece)
                await trio.testing.wait_all_tasks_blocked(0.005)
            await line.send(wire.data)
            if wire.end is End.FIN:
                return
            if wire.end is End.RESET:
                line.reset()
                return

    return script


def answer_head(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def start(engine: ms.Engine, recorder: Recorder, stream: bool, retry: ms.Retry) -> ms.Call:
    request = hello(retry=retry, timeouts=CLOCKS)
    if stream:
        return engine.start_stream(request, recorder.on_event, recorder.on_completion)
    return engine.start_request(request, recorder.on_completion)


async def observe(wire: Wire, *, stream: bool = True) -> Seen:
    """Provoke a fault and return its visible effects. Needs a virtual clock."""
    requests: list[bytes] = []
    served: list[Line] = []
    recorder = Recorder()
    async with open_peer(faulty(wire, stream, requests, served)) as peer:  # type: ignore[arg-type]
        before = open_descriptors()
        async with ms.open_engine([peer.chat], proxy="") as engine:
            started = trio.current_time()
            first = await start(engine, recorder, stream, NO_RETRY).wait()
            seconds = trio.current_time() - started
            await trio.testing.wait_all_tasks_blocked(0.005)
            second = await start(engine, Recorder(), stream, NO_RETRY).wait()
            reused = len(served) > 1 and served[1] is served[0]
        await ended(peer)
        leaked = open_descriptors() - before
    return Seen(
        recorder, first, second, seconds, reused, await attempts_of(wire, stream=stream), leaked, requests=requests
    )


async def attempts_of(wire: Wire, *, stream: bool) -> int:
    """Return the number of attempts of a call that may make two and meets the fault at the first."""
    async with open_peer(faulty(wire, stream, [], [])) as peer, ms.open_engine([peer.chat], proxy="") as engine:  # type: ignore[arg-type]
        return (await start(engine, Recorder(), stream, ONCE_MORE).wait()).attempts


async def ended(peer: Peer) -> None:
    """Wait until the server, too, has closed the connections that the engine closed."""
    for _ in range(200):
        if all(line.stream.socket.fileno() < 0 for line in peer.lines):
            return
        await trio.testing.wait_all_tasks_blocked(0.012)  # longer than the servers' pause between two pieces
