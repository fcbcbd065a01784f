"""The fast path: chunks that match the delta template give the same events as decoder, parser and machine."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manystream as ms
from manystream.engine.attempt import Attempt
from manystream.engine.buffered import Buffered
from manystream.engine.delivery import Counters, Delivery
from manystream.engine.fast_path import FastPath
from manystream.engine.limits import Limits
from manystream.engine.listener import Progress
from manystream.engine.prepared import Prepared
from manystream.engine.redaction import Redaction
from manystream.providers.registry import DIALECTS
from manystream.transport.exchange import WireHead
from manystream.transport.http1 import Connection
from manystream.transport.loop import Poller, PollerLoop
from manystream.transport.sse import usual_framing
from manystream.transport.url import Origin
from tests.support.peers import Line, Recorder, hello, open_peer, until

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
RECEIVE = 16 * 1024


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
        return self.provider.dialect + (" padded" if b"obfuscation" in self.delta else "")


CHAT = (
    b'data: {"id":"c1","created":1763760000,"model":"m","choices":[{"index":0,"delta":{"content":%b},'
    b'"finish_reason":null}],"usage":null}\n\n'
)
CHAT_END = (b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n")
CASES = [
    Case(ms.OpenAIChat("key"), (), CHAT, CHAT_END),
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
        b'{"promptTokenCount":7,"candidatesTokenCount":0,"totalTokenCount":7},"modelVersion":"m","responseId":"kx_-1"}'
        b"\r\n\r\n",
        (b'data: {"candidates":[{"content":{"parts":[]},"finishReason":"STOP","index":0}]}\r\n\r\n',),
    ),
]
cases = pytest.mark.parametrize("case", CASES, ids=str)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(case: Case, text: str, *, ascii_only: bool = True) -> bytes:
    return chunk(case.delta % json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))


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
    by_machine: the number of wire events that the stream machine processed.
    """

    case: Case
    fast: bool
    cancel_after: int = 10**9
    limits: Limits = field(default_factory=Limits)
    events: list[str] = field(default_factory=lambda: [])
    outcome: str = ""
    by_machine: int = 0

    def read(self, pieces: Iterable[bytes]) -> Stream:
        head = WireHead(b"POST", b"/", ())
        prepared = Prepared(
            origin=Origin("http", "127.0.0.1", 80),
            head=head,
            body=b"",
            secrets=Redaction("key", head),
            stream=True,
            provider=self.case.provider,
            model="m",
            dialect=DIALECTS[self.case.provider.dialect],
            make_id=lambda: "id",
            buffered=Buffered(2**30),
            limits=self.limits,
            wall_clock=lambda: 0.0,
        )
        self.delivery = Delivery(self._on_event, self._on_failure, Counters())
        self.attempt = Attempt(prepared, self, self._deliver)
        connection = Connection(
            cast("socket.socket", ScriptedSocket(pieces)),
            "http://127.0.0.1",
            StillLoop(),
            lambda _: None,
            lambda _: None,
        )
        self.attempt.on_connection(connection, False)
        while not connection.closed and not self.attempt.over:
            connection.on_readable()
        return self

    @property
    def delivered(self) -> tuple[list[str], str]:
        return self.events, self.outcome

    # --- as the listener ---

    label = "a stream"

    def on_progress(self, progress: Progress) -> None:
        machine = getattr(self.attempt._body, "_machine", None)  # pyright: ignore[reportPrivateUsage]
        if progress is not Progress.HEAD or machine is None:
            return
        kind = type(machine)

        class Counted(kind):  # type: ignore[misc, valid-type]
            __slots__ = ()

            def feed(counted, event: str, data: bytes) -> Sequence[ms.Event]:
                self.by_machine += 1
                return kind.feed(counted, event, data)

        machine.__class__ = Counted

    def on_answer(self, response: ms.Response, terminal: ms.Event | None) -> None:
        self.outcome = f"{response} {terminal}"

    def on_attempt_failure(self, error: ms.ProviderError, *, unread: bool) -> None:
        self.outcome = f"{error.category} {error} {self.attempt.partial_response()}"

    def on_defect(self, error: Exception) -> None:
        raise error

    # --- as the call ---

    def _deliver(self, events: Sequence[ms.Event]) -> None:
        self.delivery.deliver_first(events)
        if self.delivery.delivered:
            self.attempt.deliver = self.delivery.deliver
            if self.fast:
                self.attempt.deliver_each = self.delivery.deliver

    def _on_event(self, event: ms.Event) -> None:
        self.events.append(str(event))
        if len(self.events) == self.cancel_after:
            self.delivery.mute()
            self.outcome = f"cancelled: {self.attempt.partial_response()}"
            self.attempt.abort()

    def _on_failure(self, failure: Exception) -> None:
        raise failure


def both(case: Case, pieces: Sequence[bytes], cancel_after: int = 10**9) -> Stream:
    """Read with and without the fast path; check that both deliver the same."""
    short = Stream(case, True, cancel_after).read(pieces)
    assert short.delivered == Stream(case, False, cancel_after).read(pieces).delivered
    return short


def wire(case: Case, deltas: Iterable[bytes]) -> list[bytes]:
    """Return a complete response: its head and its chunks."""
    return [HEAD, *map(chunk, case.begin), *deltas, *map(chunk, case.finish), END]


@cases
def test_repeated_chunks_use_the_fast_path(case: Case) -> None:
    texts = [f"word {number} " for number in range(50)]
    short = both(case, wire(case, (delta(case, text) for text in texts)))
    assert sum("Delta" in event for event in short.events) == 50
    assert "STOP" in short.outcome or "'stop'" in short.outcome
    assert short.by_machine <= len(case.begin) + 3 + len(case.finish)


@cases
def test_many_chunks_in_one_read_are_processed_at_once(case: Case) -> None:
    texts = [f"word {number} " for number in range(50)]
    first, second, *rest = (delta(case, text) for text in texts)
    pieces = [HEAD, *map(chunk, case.begin), first, second, b"".join([*rest, *map(chunk, case.finish), END])]
    both(case, pieces)  # the first chunk of a new size takes the slow path
    short = both(case, pieces)
    assert sum("Delta" in event for event in short.events) == 50
    assert short.by_machine <= len(case.begin) + 3 + len(case.finish)


@cases
def test_every_cut_delivers_the_same_events(case: Case) -> None:
    pieces = wire(case, (delta(case, text) for text in ("Once", " upon", ' a "time"', "\n", " wö")))
    whole = b"".join(pieces)
    expected = both(case, pieces).delivered
    start = len(HEAD)
    for place in range(start, len(whole)):
        assert both(case, [whole[:start], whole[start:place], whole[place:]]).delivered == expected
    # Deltas as servers send them, then a cut.
    before = len(b"".join([HEAD, *map(chunk, case.begin), *pieces[1 + len(case.begin) :][:2]]))
    opening = pieces[: 1 + len(case.begin) + 2]
    for place in range(before, len(whole)):
        assert both(case, [*opening, whole[before:place], whole[place:]]).delivered == expected


@cases
def test_a_chunk_that_differs_leaves_the_fast_path(case: Case) -> None:
    """Each byte of a chunk is changed, removed or doubled: the events must be those of the slow path."""
    usual = delta(case, 'some "text" here')
    opening = [HEAD, *map(chunk, case.begin), delta(case, "Once"), delta(case, " upon"), delta(case, " a")]
    closing = b"".join([delta(case, " time"), *map(chunk, case.finish), END])
    for place in range(len(usual)):
        for byte in (b"", usual[place : place + 1] * 2, b'"', b"\\", b"7", b"\n", b"\r", b"\x01", b"\xff"):
            both(case, [*opening, usual[:place] + byte + usual[place + 1 :], closing])


@given(
    st.lists(st.text(min_size=0, max_size=20), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from(CASES),
    st.lists(st.integers(0, 2**16), max_size=6),
)
def test_any_texts_cut_anywhere_agree_with_the_slow_path(
    texts: list[str], ascii_only: bool, case: Case, cuts: list[int]
) -> None:
    whole = b"".join(wire(case, (delta(case, text, ascii_only=ascii_only) for text in texts))[1:])
    places = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    both(case, [HEAD, *(whole[start:end] for start, end in itertools.pairwise(places))])


@cases
@pytest.mark.parametrize("events", range(1, 9))
def test_a_stream_cancelled_in_a_read_keeps_delivered_events(case: Case, events: int) -> None:
    deltas = [delta(case, f"{number} ") for number in range(8)]
    pieces = [HEAD, *map(chunk, case.begin), *deltas[:2], b"".join(deltas[2:])]
    short = both(case, pieces, cancel_after=events)
    assert len(short.events) == events


@cases
@pytest.mark.parametrize("size", [77, 300, 1_000, 10_000, 10**9])
def test_the_limit_on_a_response_s_size_holds_on_both_paths(case: Case, size: int) -> None:
    deltas = [delta(case, f"{number} ") for number in range(500)]
    whole = wire(case, deltas)
    first, body = whole[: len(case.begin) + 6], b"".join(whole[len(case.begin) + 6 :])  # until the template is known
    reads = [*first, *(body[begin : begin + size] for begin in range(0, len(body), size))]
    for limit in (1_000, 10_000, 30_000):
        outcomes: list[str] = []
        for fast in (True, False):
            stream = Stream(case, fast, limits=Limits(max_response_bytes=limit)).read(reads)
            assert "larger than" in stream.outcome
            outcomes.append(stream.outcome)
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("whole", [True, False], ids=["ended", "broken"])
@pytest.mark.parametrize("per_read", [1, 3, 50])
def test_the_latest_usage_of_matched_chunks_is_kept(per_read: int, whole: bool) -> None:
    """Gemini sends the usage so far with every chunk; the last one counts on both paths."""
    case = CASES[-1]
    deltas = [
        chunk((case.delta % b'"more "').replace(b'Count":7}', b'Count":%d}' % (100 + number))) for number in range(50)
    ]
    reads = [b"".join(deltas[begin : begin + per_read]) for begin in range(3, len(deltas), per_read)]
    finish = [*map(chunk, case.finish), END] if whole else []
    fast = both(case, [HEAD, *deltas[:3], *reads, *finish])
    assert "'totalTokenCount': 149" in fast.outcome
    assert fast.by_machine < 6


@cases
def test_an_error_after_matched_chunks_names_its_place(case: Case) -> None:
    pieces = wire(case, (delta(case, f"{number} ") for number in range(9)))[: -1 - len(case.finish)]
    assert "NETWORK" in both(case, pieces).outcome.upper()


def test_only_the_usual_framing_is_learned() -> None:
    assert usual_framing("", b"", b"data: \n\n") is None
    assert usual_framing("", b"{}", b"data: {}\n\n") == (b"data: ", b"\n\n")
    assert usual_framing("", b"{}", b"data: {}\r\n\r\n") == (b"data: ", b"\r\n\r\n")
    assert usual_framing("e", b"{}", b"event: e\ndata: {}\n\n") == (b"event: e\ndata: ", b"\n\n")
    for name, wire_text in (
        ("", b"data:{}\n\n"),
        ("", b"id: 1\ndata: {}\n\n"),
        ("", b": a comment\n\ndata: {}\n\n"),
        ("", b"data: {}\n\n: a comment\n\n"),
        ("", b"data: {}\n"),
        ("", b"{}\n\n"),
        ("e", b"data: {}\nevent: e\n\n"),
        ("e", b"data: {}\n\n"),
    ):
        assert usual_framing(name, b"{}", wire_text) is None


@cases
@pytest.mark.parametrize("empty", [b"data: \n\n", b"data:\n\n", b"event: ping\ndata: \n\n", b": ping\n\n"])
def test_an_event_without_data_after_two_deltas_is_ignored(case: Case, empty: bytes) -> None:
    """A server writes two deltas at once, and then an empty event to keep the connection open."""
    two = chunk(b"".join(case.delta % text for text in (b'"Once"', b'" upon"')))
    fast = both(case, wire(case, [two, chunk(empty), *(delta(case, text) for text in (" a", " time"))]))
    assert "Once upon a time" in fast.outcome


@pytest.mark.trio
async def test_an_engine_uses_the_fast_path_and_ends_normally() -> None:
    case = CASES[1]

    async def script(line: Line) -> None:
        for _ in range(3):
            await line.request()
            for piece in wire(case, (delta(case, f"{number} ") for number in range(40))):
                await line.send(piece)

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        for _ in range(3):
            recorder = Recorder()
            completion = await engine.start_stream(hello(), recorder.on_event).wait()
            assert completion.success
            assert recorder.text == "".join(f"{number} " for number in range(40))
        assert (engine.statistics().opened, engine.statistics().reused) == (1, 2)


class Quiet(ms.Observer):
    """An observer with a hook for events. `every_event` decides whether the engine calls it."""

    chunks = 0

    def events_received(self, call: ms.Call, events: Sequence[ms.Event]) -> None:
        self.chunks += 1


@pytest.mark.trio
@pytest.mark.parametrize("every_event", [False, True])
async def test_an_observer_keeps_the_fast_path_without_every_event(
    every_event: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, read = CASES[0], 0
    by_bytes = FastPath.read

    def counted(self: FastPath, data: bytes) -> int:
        nonlocal read
        taken = by_bytes(self, data)
        read += taken
        return taken

    monkeypatch.setattr(FastPath, "read", counted)

    recorder = Recorder()

    async def script(line: Line) -> None:
        await line.request()
        deltas = [delta(case, f"{number} ") for number in range(40)]
        await line.send(b"".join([HEAD, *map(chunk, case.begin), deltas[0]]))
        for number, piece in enumerate(deltas[1:], 1):
            await until(lambda number=number: recorder.text.count(" ") == number)  # type: ignore[misc]
            await line.send(piece)
        await line.send(b"".join([*map(chunk, case.finish), END]))

    observer = Quiet()
    observer.every_event = every_event
    async with open_peer(script) as peer, ms.open_engine([peer.chat], observer=observer) as engine:
        assert (await engine.start_stream(hello(), recorder.on_event).wait()).success
    assert recorder.text == "".join(f"{number} " for number in range(40))
    assert (read > 0, observer.chunks > 0) == (not every_event, every_event)
