"""The fast path: chunks that match the delta template give the same events as decoder, parser and machine.

So do events that are framed in any other way, or read in pieces.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manystream as ms
from manystream.engine.call.fast_path import FastPath
from manystream.engine.request.limits import EngineLimits
from manystream.providers.catalog.dialect import DeltaTarget
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.wire.delta_template import Match
from manystream.transport.sse import SSEParser, usual_framing
from tests.engine.one_stream import CASES, END, HEAD, VARIANTS, Case, Stream, both, cases, chunk, cuts, delta, wire
from tests.support.peers import Line, Recorder, hello, open_peer, until


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
    pieces = wire(case, (delta(case, text) for text in ("Once", " upon", ' a "time"\n', " wö")))
    whole = b"".join(pieces)
    expected = both(case, pieces).delivered
    start = len(HEAD)
    for place in cuts(case, start, len(whole)):
        assert Stream(case, True).read([whole[:start], whole[start:place], whole[place:]]).delivered == expected
    # Deltas as servers send them, then a cut.
    before = len(b"".join([HEAD, *map(chunk, case.begin), *pieces[1 + len(case.begin) :][:2]]))
    opening = pieces[: 1 + len(case.begin) + 2]
    for place in cuts(case, before, len(whole)):
        assert Stream(case, True).read([*opening, whole[before:place], whole[place:]]).delivered == expected


@cases
def test_a_chunk_that_differs_leaves_the_fast_path(case: Case) -> None:
    """Each byte of a chunk is changed, removed or doubled: the events must be those of the slow path.

    For the fullest form of a dialect: every change at every place of the text, and a third of the changes at each other
    place, in turn. For the other forms, one change at each place, in turn.
    """
    usual = delta(case, 'some "text" here')
    text = range(usual.index(b'"some') - 1, usual.index(b'here"') + 6)
    opening = [HEAD, *map(chunk, case.begin), delta(case, "Once"), delta(case, " upon"), delta(case, " a")]
    closing = b"".join([delta(case, " time"), *map(chunk, case.finish), END])
    for place in range(len(usual)):
        changes = (b"", usual[place : place + 1] * 2, b'"', b"\\", b"7", b"\n", b"\r", b"\x01", b"\xff")
        step = 9 if case in VARIANTS else 1 if place in text else 3
        for byte in changes[place % step :: step]:
            both(case, [*opening, usual[:place] + byte + usual[place + 1 :], closing])


@cases
@pytest.mark.parametrize("events", range(1, 9))
def test_a_stream_cancelled_in_a_read_keeps_delivered_events(case: Case, events: int) -> None:
    deltas = [delta(case, f"{number} ") for number in range(8)]
    pieces = [HEAD, *map(chunk, case.begin), *deltas[:2], b"".join(deltas[2:])]
    short = both(case, pieces, cancel_after=events)
    assert len(short.events) == events


@pytest.mark.parametrize("whole", [True, False], ids=["ended", "broken"])
@pytest.mark.parametrize("per_read", [1, 3, 50])
def test_the_latest_usage_of_matched_chunks_is_kept(per_read: int, whole: bool) -> None:
    """Gemini sends the usage so far with every chunk; the last one counts on both paths."""
    case = CASES[-1]
    deltas = [
        chunk((case.delta % b'"more "').replace(b'Count":777}', b'Count":%d}' % (100 + number))) for number in range(50)
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
    assert usual_framing("", b"{}", b": a comment\n\ndata: {}\n\n") == (b"data: ", b"\n\n")
    assert usual_framing("", b"{}", b"data: 1\n\ndata: {}\n\n") == (b"data: ", b"\n\n")
    assert usual_framing("e", b"{}", b"event: e\ndata: {}\n\n") == (b"event: e\ndata: ", b"\n\n")
    # The end of an event that came in pieces.
    assert usual_framing("", b"{}", b"{}\n\n") == (b"data: ", b"\n\n")
    assert usual_framing("e", b"{}", b"data: {}\n\n") == (b"event: e\ndata: ", b"\n\n")
    assert usual_framing("e", b"{}", b"}\r\n\r\n") == (b"event: e\ndata: ", b"\r\n\r\n")
    for name, wire_text in (
        ("", b"data:{}\n\n"),
        ("", b"id: 1\ndata: {}\n\n"),
        ("", b"data: {}\n\n: a comment\n\n"),
        ("", b"id: 1\n\nid: 2\ndata: {}\n\n"),
        ("", b"data: {}\n"),
        ("", b"[]\n\n"),
        ("", b"\n"),
        ("e", b"data: {}\nevent: e\n\n"),
        ("e", b"event: f\ndata: {}\n\n"),
    ):
        assert usual_framing(name, b"{}", wire_text) is None


@cases
@pytest.mark.parametrize("empty", [b"data: \n\n", b"data:\n\n", b"event: ping\ndata: \n\n", b": ping\n\n"])
def test_an_event_without_data_after_two_deltas_is_ignored(case: Case, empty: bytes) -> None:
    """A server writes two deltas at once, and then an empty event to keep the connection open."""
    two = chunk(b"".join(case.delta % text for text in (b'"Once"', b'" upon"')))
    fast = both(case, wire(case, [two, chunk(empty), *(delta(case, text) for text in (" a", " time"))]))
    assert "Once upon a time" in fast.outcome


async def test_an_engine_uses_the_fast_path_and_ends_normally() -> None:
    case = CASES[1]

    async def script(line: Line) -> None:
        for _ in range(3):
            await line.request()
            *pieces, last, end = wire(case, (delta(case, f"{number} ") for number in range(40)))
            for piece in (*pieces, last + end):  # the call ends with `last`; the connection is free after `end`
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


@pytest.mark.parametrize("every_event", [False, True])
async def test_an_observer_of_some_keeps_the_fast_path(every_event: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "asked", [{"logprobs": True, "top_logprobs": 0}, {"return_logprob": True}, {}, {"logprobs": False}]
)
async def test_log_probabilities_are_kept_if_they_were_asked_for(asked: dict[str, ms.JSON], streamed: bool) -> None:
    case = next(case for case in CASES if str(case) == "openai-chat logprobs")
    message = b'{"choices":[{"index":0,"message":{"content":"a"},"logprobs":{"content":[{"token":"a"}]}}]}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(message) + message

    async def script(line: Line) -> None:
        await line.request()
        for piece in wire(case, (delta(case, f"{number} ") for number in range(40))) if streamed else [answer]:
            await line.send(piece)

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        request = hello(extra_body=asked)
        completion = await (engine.start_stream(request) if streamed else engine.start_request(request)).wait()
    kept = completion.response.provider_data.get("logprobs")
    if any(asked.values()):
        assert isinstance(kept, dict)
        assert isinstance(kept["content"], list)
        assert len(kept["content"]) == (40 if streamed else 1)
    else:
        assert kept is None


PLENTY = 1 << 40


def event(text: str) -> bytes:
    members = {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: " + json.dumps(members, separators=(",", ":")).encode() + b"\n\n"


class Reader:
    """A fast path that knows the template, and the texts that it delivered."""

    def __init__(self, *, max_event_bytes: int = 1 << 20) -> None:
        provider = ms.OpenAIChat("key")
        self.machine = DIALECTS["openai-chat"].machine(provider, lambda: "id", EngineLimits())
        self.body = SimpleNamespace(bytes_left=PLENTY)
        self.path = FastPath(self.machine, cast(Any, self.body), max_event_bytes)
        self.sse = SSEParser()
        self.texts: list[str] = []
        assert self.path.read(chunk(event("a"))) == 0
        assert self.path.read_events(event("a")) == 0
        assert self.usual(event("a")) in (None, self.path)
        assert self.usual(event("b")) is self.path

    def usual(self, data: bytes) -> FastPath | None:
        """Read events on the usual path."""
        events = self.sse.feed(data)
        for name, payload in events:
            self.machine.feed(name, payload)
        return self.path.follow(events, data, self)

    def deliver_matches(self, target: Any, matches: Iterable[Any]) -> None:
        self.texts += [target.accept(match).text for match in matches]

    @property
    def counted(self) -> int:
        """The bytes that were counted by the fast path."""
        return PLENTY - self.body.bytes_left


def cut_event(text: str, place: int) -> bytes:
    whole = event(text)
    return chunk(whole[:place]) + chunk(whole[place:])


def test_cut_events_of_another_form_are_left() -> None:
    whole = event("one")
    first, second = chunk(whole[:50]), chunk(whole[50:])
    for data in (
        chunk(whole),
        first.replace(b"\r\n", b"\n\n", 1) + second,
        first[:-2] + b"--" + second,
        first[:-2] + b"\r-" + second,
        first[:-2] + b"-\n" + second,
        first + b"0\r\n\r\n",
        first + b"zz\r\n" + second,
        chunk(whole[:50]) + chunk(whole[51:]),
    ):
        reader = Reader()
        reader.path.cut = True
        good = cut_event("good", 50)
        assert (reader.path.read(good + data), reader.texts) == (len(good), ["good"]), data
        assert reader.counted == len(event("good"))


def test_a_beginning_that_may_hold_an_event_is_not_kept() -> None:
    for rest in (b"data: {\n", b"data: {\r", b": ping", b"id: 1", b"data:{"):
        reader = Reader()
        assert reader.path.read_events(event("one") + rest) == len(event("one")), rest
        assert (reader.path.beginning_bytes, reader.texts) == (0, ["one"])
        assert reader.path.read_events(rest) == 0


def test_a_beginning_has_the_size_of_an_event_at_most() -> None:
    for most, kept in ((69, 0), (70, 70)):
        reader = Reader(max_event_bytes=most)
        part = event("x" * 100)[:70]
        assert reader.path.read_events(event("one") + part) == len(event("one")) + kept
        assert reader.path.beginning_bytes == kept


def test_events_behind_another_form_are_left() -> None:
    reader = Reader()
    other = b'data: {"choices":[]}\n\n'
    assert reader.path.read_events(event("one") + other + event("two")) == len(event("one"))
    assert reader.path.read_events(other + event("two")) == 0
    assert reader.texts == ["one"]


def test_a_new_form_needs_a_new_template() -> None:
    reader = Reader()
    assert reader.path.follow([], b"", reader) in (None, reader.path)
    other = event("x").replace(b'"model":"m"', b'"model":"n"')
    assert reader.path.read(chunk(other)) == 0
    assert reader.usual(other) is reader.path
    assert reader.path.read(chunk(other)) == len(chunk(other))
    assert reader.path.read(chunk(event("x"))) == 0


CLOSING_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


Framing: TypeAlias = Callable[[Case, Sequence[bytes]], list[bytes]]
"""A case and its deltas as body bytes → a complete response in pieces, each received by one read."""


def events_of(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
    return [*case.begin, *deltas, *case.finish]


def unchunked(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
    return [CLOSING_HEAD, *events_of(case, deltas)]


def with_length(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
    events = events_of(case, deltas)
    head = CLOSING_HEAD.replace(b"connection: close", b"content-length: %d" % len(b"".join(events)))
    return [head, *events]


def many_without_chunks(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
    events = events_of(case, deltas)
    return [CLOSING_HEAD, *(b"".join(events[begin : begin + 5]) for begin in range(0, len(events), 5))]


def two_in_a_chunk(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
    events = events_of(case, deltas)
    return [HEAD, *(chunk(b"".join(events[begin : begin + 2])) for begin in range(0, len(events), 2)), END]


def in_two_chunks(place: int) -> Framing:
    """Return a framing that cuts each event across two chunks, in one read."""

    def framed(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
        parts = ((event[:place], event[place:]) for event in events_of(case, deltas))
        return [HEAD, *(b"".join(map(chunk, filter(None, pair))) for pair in parts), END]

    return framed


def in_two_reads(place: int) -> Framing:
    """Return a framing that cuts each event across two chunks, each in a read of its own."""

    def framed(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
        parts = ((event[:place], event[place:]) for event in events_of(case, deltas))
        return [HEAD, *(chunk(part) for pair in parts for part in pair if part), END]

    return framed


def without_chunks_in_two_reads(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
    parts = ((event[:60], event[60:]) for event in events_of(case, deltas))
    return [CLOSING_HEAD, *(part for pair in parts for part in pair)]


def ends_shifted(case: Case, deltas: Sequence[bytes]) -> list[bytes]:
    """Return some events, then chunks of the size of two events that each end inside an event."""
    events = events_of(case, deltas)
    first, body = events[: len(case.begin) + 2], b"".join(events[len(case.begin) + 2 :])
    size = 2 * len(deltas[0])
    places = range(60, len(body), size)
    return [HEAD, *map(chunk, first), chunk(body[:60]), *(chunk(body[begin : begin + size]) for begin in places), END]


FRAMINGS: dict[str, Framing] = {
    "unchunked": unchunked, "with length": with_length, "many without chunks": many_without_chunks,
    "two in a chunk": two_in_a_chunk, **{f"cut at {place}": in_two_chunks(place) for place in (1, 5, 40, 77, 101, -1,
    -3)}, **{f"two reads, cut at {place}": in_two_reads(place) for place in (1, 5, 40, 77, 101)},
    "without chunks, two reads": without_chunks_in_two_reads, "ends shifted": ends_shifted,
}  # fmt: skip


def growing(case: Case, number: int) -> bytes:
    """Return a delta whose numbers grow."""
    return (case.delta % b'"word "').replace(b"777", b"%d" % (700 + number))


@cases
@pytest.mark.parametrize("name", FRAMINGS)
def test_any_framing_uses_the_fast_path(case: Case, name: str) -> None:
    deltas = [growing(case, number) for number in range(50)]
    short = both(case, FRAMINGS[name](case, deltas))
    assert sum("Delta" in event for event in short.events) == 50
    assert short.by_machine <= len(case.begin) + 7 + len(case.finish)


@cases
@pytest.mark.parametrize("name", ["one in a chunk", "two in a chunk", "cut at 40", "two reads, cut at 40", "unchunked"])
def test_the_limit_on_a_response_s_size_holds_on_both_paths(case: Case, name: str) -> None:
    deltas = [case.delta % (b'"%d "' % number) for number in range(300)]
    whole = FRAMINGS[name](case, deltas) if name in FRAMINGS else wire(case, map(chunk, deltas))
    first, body = whole[: len(case.begin) + 9], b"".join(whole[len(case.begin) + 9 :])  # until the template is known
    for size, limit in itertools.product((77, 1_000, 10**9), (1_000, 10_000, 30_000)):
        reads = [*first, *(body[begin : begin + size] for begin in range(0, len(body), size))]
        limits = EngineLimits(max_response_bytes=limit)
        outcomes = [Stream(case, fast, limits=limits).read(reads).outcome for fast in (True, False)]
        assert "larger than" in outcomes[0]
        assert outcomes[0] == outcomes[1], (size, limit)


@cases
def test_the_framing_may_change(case: Case) -> None:
    """A proxy joins and cuts chunks as it likes: the events are the same, and none is lost."""
    events = [growing(case, number) for number in range(40)]
    one = [chunk(event) for event in events[:8]]
    two = [chunk(b"".join(events[begin : begin + 2])) for begin in range(8, 16, 2)]
    cut = [chunk(event[:50]) + chunk(event[50:]) for event in events[16:24]]
    apart = [piece for event in events[24:32] for piece in (chunk(event[:50]), chunk(event[50:]))]
    again = [chunk(event) for event in events[32:]]
    short = both(case, wire(case, [*one, *two, *cut, *apart, *again]))
    assert sum("Delta" in event for event in short.events) == 40


@cases
@pytest.mark.parametrize("name", ["unchunked", "two in a chunk", "cut at 40", "two reads, cut at 40"])
def test_every_cut_of_a_framing_delivers_the_same_events(case: Case, name: str) -> None:
    deltas = [case.delta % text for text in (b'"Once"', b'" upon"', b'" a \\"time\\"\\n"', b'" w\xc3\xb6"')]
    pieces = FRAMINGS[name](case, deltas)
    expected = both(case, pieces).delivered
    opening = pieces[: 1 + len(case.begin) + 2]
    rest = b"".join(pieces[len(opening) :])
    for place in cuts(case, 0, len(rest)):
        assert Stream(case, True).read([*opening, rest[:place], rest[place:]]).delivered == expected


@cases
def test_a_mismatch_inside_a_chunk_is_read_from_its_place(case: Case) -> None:
    """The chunks of one read: an event cut across two of them, and then an event that differs, whole or cut."""
    odd = b": a comment\n\n" + (case.delta % b'"odd"').replace(b"data: ", b"data:  ")
    usual = case.delta % b'"word "'
    opening = [HEAD, *map(chunk, case.begin), *[chunk(usual[:50]) + chunk(usual[50:])] * 3]
    closing = [*map(chunk, case.finish), END]
    whole = usual + odd + usual
    for place in range(1, len(whole) - 1, 9 if case in VARIANTS else 3):
        for second in (place + 1, len(whole) - 1):
            pieces = (whole[:place], whole[place:second], whole[second:])
            both(case, [*opening, b"".join(map(chunk, filter(None, pieces))), *closing])


@cases
@pytest.mark.parametrize("end", [b"", b"\r", b"\n", b"\r\r", b"\n\r", b"\r\n\r"])
def test_an_event_is_delivered_as_soon_as_it_is_complete(case: Case, end: bytes) -> None:
    """The beginning of an event is kept only if it contains no event: a CR ends a line as well."""
    usual = case.delta % b'"word "'
    event = usual.rstrip(b"\r\n") + end
    pieces = [HEAD, *map(chunk, [*case.begin, usual, usual]), chunk(usual[:60]) + chunk(usual[60:]), chunk(event)]
    both(case, pieces, cancel_after=4 + len(case.begin[:1]))
    both(case, pieces)  # the connection ends here


@cases
@pytest.mark.parametrize("limit", [100, 150, 200, 300, 10_000])
def test_the_limit_on_an_event_s_size_holds_for_one_in_pieces(case: Case, limit: int) -> None:
    usual = case.delta % b'"word "'
    long = case.delta % (b'"%b"' % (b"x" * 500))
    opening = [HEAD, *map(chunk, [*case.begin, usual, usual]), chunk(usual[:60]) + chunk(usual[60:])]
    pieces = [*opening, *(chunk(long[begin : begin + 90]) for begin in range(0, len(long), 90))]
    outcomes = [
        Stream(case, fast, limits=EngineLimits(max_event_bytes=limit)).read(pieces).delivered for fast in (True, False)
    ]
    assert outcomes[0] == outcomes[1]


def test_the_beginning_of_an_event_is_kept_once() -> None:
    case = CASES[0]
    machine = DIALECTS[case.provider.dialect].machine(case.provider, lambda: "id")
    usual = case.delta % b'"word "'
    machine.feed("", usual[6:-2])
    path, size, delivered = FastPath(machine, cast(Any, SimpleNamespace(bytes_left=2**30))), len(usual), 0

    class Receiver:
        def deliver_matches(self, target: DeltaTarget, matches: Iterable[Match]) -> None:
            nonlocal delivered
            delivered += len(list(matches))

    assert path.follow([("", usual[6:-2])], usual, Receiver()) is path
    assert path.read_events(usual[:60]) == path.beginning_bytes == 60
    assert (path.read_events(usual[60:]), path.beginning_bytes, delivered) == (size - 60, 0, 1)
    assert path.read_events(usual + usual + usual[:9]) == 2 * size + 9
    assert (path.beginning_bytes, delivered) == (9, 3)
    assert path.read_events(usual[9:20]) == 0  # not joined a second time: the SSE parser reads it
    assert (path.take_beginning(), path.beginning_bytes) == (usual[:9], 0)


@cases
@pytest.mark.parametrize("name", ["many without chunks", "two in a chunk", "two reads, cut at 40"])
@pytest.mark.parametrize("events", range(1, 14, 3))
def test_a_cancelled_stream_keeps_what_was_delivered(case: Case, name: str, events: int) -> None:
    pieces = FRAMINGS[name](case, [growing(case, number) for number in range(20)])
    assert len(both(case, pieces, cancel_after=events).events) == events


@given(
    st.lists(st.text(min_size=0, max_size=20), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from(CASES),
    st.lists(st.integers(0, 2**16), max_size=6),
    st.sampled_from([None, *FRAMINGS.values()]),
)
def test_any_texts_cut_anywhere_agree_with_the_slow_path(
    texts: list[str], ascii_only: bool, case: Case, cuts: list[int], framing: Framing | None
) -> None:
    if framing is None:
        head, *body = wire(case, (delta(case, text, ascii_only=ascii_only) for text in texts))
    else:
        written = [json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for text in texts]
        head, *body = framing(case, [case.delta % text for text in written])
    whole = b"".join(body)
    places = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    both(case, [head, *(whole[start:end] for start, end in itertools.pairwise(places))])
