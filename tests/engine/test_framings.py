"""Events framed in any way (in chunks, cut across chunks, several in a chunk, without chunks) use the fast path.

The events are those of chunk decoder, parser and machine.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manystream.engine.call.fast_path import FastPath
from manystream.engine.request.limits import EngineLimits
from manystream.providers.catalog.dialect import DeltaTarget
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.wire.delta_template import Match
from tests.engine.one_stream import CASES, END, HEAD, Case, Stream, both, cases, chunk, cuts, delta, wire

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
    deltas = [case.delta % text for text in (b'"Once"', b'" upon"', b'" a \\"time\\""', b'"\\n"', b'" w\xc3\xb6"')]
    pieces = FRAMINGS[name](case, deltas)
    expected = both(case, pieces).delivered
    opening = pieces[: 1 + len(case.begin) + 2]
    rest = b"".join(pieces[len(opening) :])
    for place in cuts(case, 0, len(rest)):
        assert both(case, [*opening, rest[:place], rest[place:]]).delivered == expected


@cases
def test_a_mismatch_inside_a_chunk_is_read_from_its_place(case: Case) -> None:
    """The chunks of one read: an event cut across two of them, and then an event that differs, whole or cut."""
    odd = b": a comment\n\n" + (case.delta % b'"odd"').replace(b"data: ", b"data:  ")
    usual = case.delta % b'"word "'
    opening = [HEAD, *map(chunk, case.begin), *[chunk(usual[:50]) + chunk(usual[50:])] * 3]
    closing = [*map(chunk, case.finish), END]
    whole = usual + odd + usual
    for place in range(1, len(whole) - 1, 3):
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
