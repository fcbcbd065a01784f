"""Events framed in any way (in chunks, cut across chunks, several in a chunk, without chunks) use the fast path.

The events are those of chunk decoder, parser and machine.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.one_stream import CASES, END, HEAD, Case, both, cases, chunk, delta, wire

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


FRAMINGS: dict[str, Framing] = {
    "unchunked": unchunked,
    "with length": with_length,
    "many without chunks": many_without_chunks,
    "two in a chunk": two_in_a_chunk,
    **{f"cut at {place}": in_two_chunks(place) for place in (1, 5, 40, 77, 101, -1, -3)},
}


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
@pytest.mark.parametrize("name", ["unchunked", "two in a chunk", "cut at 40"])
def test_every_cut_of_a_framing_delivers_the_same_events(case: Case, name: str) -> None:
    deltas = [case.delta % text for text in (b'"Once"', b'" upon"', b'" a \\"time\\""', b'"\\n"', b'" w\xc3\xb6"')]
    pieces = FRAMINGS[name](case, deltas)
    expected = both(case, pieces).delivered
    opening = pieces[: 1 + len(case.begin) + 2]
    rest = b"".join(pieces[len(opening) :])
    for place in range(len(rest)):
        assert both(case, [*opening, rest[:place], rest[place:]]).delivered == expected


@cases
@pytest.mark.parametrize("name", ["many without chunks", "two in a chunk"])
@pytest.mark.parametrize("events", range(1, 14, 3))
def test_a_stream_cancelled_in_any_framing_keeps_what_was_delivered(case: Case, name: str, events: int) -> None:
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
