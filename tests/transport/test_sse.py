"""Server-sent events: the WHATWG rules at every split of the bytes.

`reference` is a second, simple parser for whole bodies, written from the standard's text. For random bytes, the parser
must return at every split what `reference` returns.
"""

import base64
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.providers.catalog import dialect
from manystream.transport import sse
from manystream.transport.sse import BARE_BYTES, BARE_LINES, ServerSentEvent, SSEOverflowError, SSEParser, usual_framing

SHARED = "MANYSTREAM_SHARED"
"""The environment variable that names a folder with more vectors (`vectors/sse.json`)."""

Parsed = tuple[list[ServerSentEvent], list[ServerSentEvent]]
"""The results of `feed` and the results of `end`."""


def parse(pieces: list[bytes]) -> Parsed:
    parser = SSEParser()
    fed = [event for piece in pieces for event in parser.feed(piece)]
    return fed, list(parser.end())


def reference(body: bytes) -> Parsed:
    """Parse by the standard's steps (9.2.6), with the three departures that the head of `sse.py` lists."""
    lines = re.split(rb"\r\n|\n|\r", body.removeprefix(b"\xef\xbb\xbf"))
    unfinished = lines.pop()
    fed, bare = list[ServerSentEvent](), list[bytes]()
    name, data, is_first = b"", list[bytes](), False

    def take(line: bytes) -> None:
        nonlocal name, is_first
        field, colon, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if colon and field:
            field = field.lstrip(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field not in (b"id", b"retry") and not line.startswith(b":") and line.strip():
            if colon and re.fullmatch(rb"[A-Za-z0-9_-]*[A-Za-z0-9][A-Za-z0-9_-]*", field) and field.lower() != b"error":
                return
            is_first = is_first if bare else not data
            bare.append(line)

    def dispatched() -> list[ServerSentEvent]:
        nonlocal name
        events = [(name.decode("utf-8", "replace"), b"\n".join(data))] if data else []
        if bare:
            events.insert(0 if is_first else 1, (BARE_LINES, b"\n".join(bare)))
        name = b""
        data.clear()
        bare.clear()
        return events

    for line in lines:
        if line:
            take(line)
        else:
            fed += dispatched()
    if unfinished:
        take(unfinished)
    return fed, dispatched()


def cuts(body: bytes) -> list[list[bytes]]:
    """Return the body whole, byte by byte, byte by byte with empty pieces between, and at each split point."""
    singles = [body[position : position + 1] for position in range(len(body))]
    padded = [piece for single in singles for piece in (single, b"")]
    return [[body], singles, padded, *([body[:place], body[place:]] for place in range(1, len(body)))]


# --- tables ---
BOM = b"\xef\xbb\xbf"

WHOLE: dict[bytes, list[ServerSentEvent]] = {
    # events
    b"data: a\n\n": [("", b"a")],
    b"data: a\n\ndata: b\n\n": [("", b"a"), ("", b"b")],
    b"event: x\ndata: a\n\n": [("x", b"a")],
    b"data: a\nevent: x\n\n": [("x", b"a")],
    b"event: x\nevent: y\ndata: a\n\n": [("y", b"a")],
    b"event: x\nevent:\ndata: a\n\n": [("", b"a")],
    b"event: x\ndata: a\n\ndata: b\n\n": [("x", b"a"), ("", b"b")],
    b"event: x\n\ndata: a\n\n": [("", b"a")],
    b"event: \xc3\xa9\xff\ndata: a\n\n": [("é\ufffd", b"a")],
    b"\n\n\ndata: a\n\n\n\n": [("", b"a")],
    b"": [],
    b"\n": [],
    # data
    b"data: a\ndata: b\n\n": [("", b"a\nb")],
    b"data: a\ndata:\ndata: b\n\n": [("", b"a\n\nb")],
    b"data\n\n": [("", b"")],
    b"data:\n\n": [("", b"")],
    b"data: \n\n": [("", b"")],
    b"data\ndata\n\n": [("", b"\n")],
    b"data:a\n\n": [("", b"a")],
    b"data:  a \n\n": [("", b" a ")],
    b"data:\ta\n\n": [("", b"\ta")],
    b"data: a: b:c\n\n": [("", b"a: b:c")],
    b"data: a\x00b\n\n": [("", b"a\x00b")],
    b'data: {"a": "\\n"}\n\n': [("", b'{"a": "\\n"}')],
    b"data: [DONE]\n\n": [("", b"[DONE]")],
    # line ends
    b"data: a\r\rdata: b\r\r": [("", b"a"), ("", b"b")],
    b"data: a\r\n\r\ndata: b\r\n\r\n": [("", b"a"), ("", b"b")],
    b"data: a\r\n\n": [("", b"a")],
    b"data: a\n\r\n": [("", b"a")],
    b"data: a\n\r": [("", b"a")],
    b"data: a\r\n\r": [("", b"a")],
    b"data: a\r\ndata: b\rdata: c\n\r\n": [("", b"a\nb\nc")],
    b"data: a\r\n\r\n\r\n\r\n": [("", b"a")],
    "data: a\u2028b\u2029c\u0085d\v\f\x1c\n\n".encode(): [("", "a\u2028b\u2029c\u0085d\v\f\x1c".encode())],
    # bytes that must not be decoded before the split
    "data: é😀\n\n".encode(): [("", "é😀".encode())],
    b"data: \xff\xfe\xc3\n\n": [("", b"\xff\xfe\xc3")],
    # the byte order mark
    BOM + b"data: a\n\n": [("", b"a")],
    BOM: [],
    b"data: a\n\n" + b"data: " + BOM + b"b\n\n": [("", b"a"), ("", BOM + b"b")],
    # comments, other fields
    b": ping\n\n": [],
    b":\n\n:\n\n": [],
    b"data: a\n: ping\ndata: b\n\n": [("", b"a\nb")],
    b":data: a\n\n": [],
    b"id: 1\nretry: 10\ndata: a\n\n": [("", b"a")],
    b"id\nretry\n\n": [],
    # spaces before a field name
    b" data: a\n\n": [("", b"a")],
    b"  event: x\n   data:a\n\n": [("x", b"a")],
}

BARE: dict[bytes, Parsed] = {
    b"data : a\n\n": ([(BARE_LINES, b"data : a")], []),
    b"\tdata: a\n\n": ([(BARE_LINES, b"\tdata: a")], []),
    b" data\n\n": ([(BARE_LINES, b" data")], []),
    b"dat\n\n": ([(BARE_LINES, b"dat")], []),
    b"x" + BOM + b"\n\n": ([(BARE_LINES, b"x" + BOM)], []),
    BOM + BOM + b"data: a\n\n": ([(BARE_LINES, BOM + b"data: a")], []),
    b'{"error": {"message": "no"}}\n': ([], [(BARE_LINES, b'{"error": {"message": "no"}}')]),
    b"data: a\n\nInternal\r\nServer Error\r\n": ([("", b"a")], [(BARE_LINES, b"Internal\nServer Error")]),
    # unknown fields, which are ignored, and errors in place of a field, which are not
    b"Data: a\ndatax: a\nx-y_z: 1\n\n": ([], []),
    b"error: no\n\n": ([(BARE_LINES, b"error: no")], []),
    b"Error:no\n\ndata: a\n\n": ([(BARE_LINES, b"Error:no"), ("", b"a")], []),
    # their place among the other events
    b"data: a\noops\ndata: b\n\n": ([("", b"a\nb"), (BARE_LINES, b"oops")], []),
    b"event: x\n{\n}\ndata: b\n\ndata: c\n\n": ([(BARE_LINES, b"{\n}"), ("x", b"b"), ("", b"c")], []),
    b"{}\n\n{}\n: c\n  \n{}\n\n": ([(BARE_LINES, b"{}"), (BARE_LINES, b"{}\n{}")], []),
}

ENDS: dict[bytes, Parsed] = {
    b"data: a": ([], [("", b"a")]),
    b"data: a\n": ([], [("", b"a")]),
    b"data: a\r": ([], [("", b"a")]),
    b"data: a\r\n": ([], [("", b"a")]),
    b"data: a\n\ndata: b\nevent: x": ([("", b"a")], [("x", b"b")]),
    b"data: a\n\ndata": ([("", b"a")], [("", b"")]),
    b"data: a\n\ndat": ([("", b"a")], [(BARE_LINES, b"dat")]),
    b"event: x\n": ([], []),
    b": ping": ([], []),
    b"oops": ([], [(BARE_LINES, b"oops")]),
    BOM[:1]: ([], [(BARE_LINES, BOM[:1])]),
    BOM[:2]: ([], [(BARE_LINES, BOM[:2])]),
    BOM + b"data: a": ([], [("", b"a")]),
    BOM[:2] + b"data: a\n\n": ([(BARE_LINES, BOM[:2] + b"data: a")], []),
}


@pytest.mark.parametrize("body", WHOLE, ids=ascii)
def test_a_body_gives_its_events_at_every_split(body: bytes) -> None:
    for pieces in cuts(body):
        assert parse(pieces) == (WHOLE[body], [])


@pytest.mark.parametrize("body", BARE, ids=ascii)
def test_lines_that_are_no_field_are_events_in_their_place(body: bytes) -> None:
    for pieces in cuts(body):
        assert parse(pieces) == BARE[body]


@pytest.mark.parametrize("body", ENDS, ids=ascii)
def test_end_returns_an_event_without_its_blank_line(body: bytes) -> None:
    for pieces in cuts(body):
        assert parse(pieces) == ENDS[body]


@pytest.mark.parametrize("body", [*WHOLE, *BARE, *ENDS], ids=ascii)
def test_the_reference_agrees_with_the_tables(body: bytes) -> None:
    assert reference(body) == parse([body])


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_returned_at_the_first_byte_of_its_end(line_end: bytes) -> None:
    parser = SSEParser()
    assert parser.feed(b"data: a" + line_end) == []
    assert parser.feed(line_end[:1]) == [("", b"a")]
    assert parser.feed(line_end[1:] + b"data: b" + line_end + line_end) == [("", b"b")]


# --- random bodies ---
line_ends = st.sampled_from([b"\n", b"\r", b"\r\n"])

fields = st.sampled_from(
    b"data: a|data:|data|data:  b|event: x|event|: c|:|id: 1|retry: 5|bare| error: e|x: y| data: d| data| : e||||"
    b"data: \xe2\x80\xa8|data: \xff|data:\x00|\xef\xbb\xbf|\xef\xbb".split(b"|")
)

bodies = st.one_of(
    st.lists(st.tuples(fields, line_ends), max_size=12).map(lambda lines: b"".join(map(b"".join, lines))),
    st.tuples(st.sampled_from([b"", BOM, BOM[:2]]), st.lists(fields | line_ends, max_size=16)).map(
        lambda parts: parts[0] + b"".join(parts[1])
    ),
    st.text(alphabet="data: \nevt:\r\ufeffé", max_size=60).map(str.encode),
    st.binary(max_size=40),
)


@given(bodies, st.lists(st.integers(0, 120), max_size=10))
@settings(max_examples=150, deadline=None)
def test_any_bytes_parse_as_in_the_reference(body: bytes, places: list[int]) -> None:
    ends = [*sorted(min(place, len(body)) for place in places), len(body)]
    pieces = [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert parse(pieces) == reference(body)


@given(bodies)
@settings(deadline=None)
def test_any_bytes_parse_alike_byte_by_byte(body: bytes) -> None:
    assert parse([bytes([byte]) for byte in body]) == reference(body)


# --- bounds ---
@pytest.mark.parametrize(("beginning", "step"), [(b"data: ", b"x"), (b"", b"data:\n"), (b"", b"x")])
def test_an_event_beyond_the_cap_is_refused_as_it_arrives(beginning: bytes, step: bytes) -> None:
    parser = SSEParser(max_event_bytes=1000)
    parser.feed(beginning)
    for _ in range(1000 - len(beginning)):
        parser.feed(step)
    with pytest.raises(SSEOverflowError, match="one event is larger than 1000 bytes"):
        parser.feed(step)


def test_many_events_of_the_cap_s_size_do_not_overflow() -> None:
    parser = SSEParser(max_event_bytes=1000)
    body = (b"data: " + b"x" * 900 + b"\n\n") * 5 + b": " + b"c" * 900 + b"\n"
    assert len(parser.feed(body)) == 5
    parser = SSEParser(max_event_bytes=1000)
    assert sum(len(parser.feed(bytes([byte]))) for byte in body) == 5


def test_comments_do_not_count_towards_an_event() -> None:
    parser = SSEParser(max_event_bytes=100)
    for _ in range(100):
        assert parser.feed(b": ping ping ping\ndata") == []
        assert parser.feed(b"\n\n") == [("", b"")]


def test_events_before_an_overflow_are_returned_first() -> None:
    parser = SSEParser(max_event_bytes=10)
    assert parser.feed(b"data: a\n\ndata: " + b"x" * 20) == [("", b"a")]
    with pytest.raises(SSEOverflowError):
        parser.feed(b"x")


def test_lines_that_are_no_field_are_kept_up_to_their_cap() -> None:
    parser = SSEParser()
    for _ in range(100):
        assert parser.feed(b"oops " * 1000 + b"\n") == []
    (event,) = parser.feed(b"\n")
    assert (event[0], len(event[1])) == (BARE_LINES, BARE_BYTES) == ("\n", 65_536)
    assert event[1].startswith(b"oops oops")
    assert parser.feed(b"more\n\ndata: a\n\n") == [(BARE_LINES, b"more"), ("", b"a")]


@pytest.mark.parametrize(("length", "kept"), [(65_534, b"x" * 65_534 + b"\ny"), (65_535, b"x" * 65_535)])
def test_the_line_that_fills_the_cap_is_the_last(length: int, kept: bytes) -> None:
    assert SSEParser().feed(b"x" * length + b"\nyes\nno\n\n") == [(BARE_LINES, kept)]


def test_stream_machines_know_the_lines_that_are_no_field() -> None:
    assert BARE_LINES == dialect.BARE_LINES


def seconds(pieces: list[bytes]) -> float:
    """Return the least of five measurements of this process's own CPU time, which other processes do not increase."""
    best = float("inf")
    for _ in range(5):
        parser, before = SSEParser(), time.process_time()
        for piece in pieces:
            parser.feed(piece)
        best = min(best, time.process_time() - before)
    return best


@pytest.mark.parametrize(
    "piece", [b"x", b"data: x\n", b"data\n", b": ping\n\n", b"\n", b"\r", b"oops\n", b"data: x\n\n"]
)
def test_time_is_linear_in_the_bytes(piece: bytes) -> None:
    # Eight times the input; a quadratic parser would take sixty-four times as long.
    assert seconds([b"data: "] + [piece] * 32_000) < 30 * seconds([b"data: "] + [piece] * 4_000)


# --- vectors from elsewhere ---
def shared_vectors() -> list[Any]:
    """Return the vectors of the folder that the environment variable names; none if it is not set."""
    folder = os.environ.get(SHARED)
    path = Path(folder, "vectors", "sse.json") if folder else None
    return json.loads(path.read_text("utf-8"))["vectors"] if path and path.exists() else []


LENIENT = frozenset({"wpt-field-parsing"})
"""Vectors in which a space before `data:` makes the field unknown. Our parser accepts it (see the head of `sse.py`)."""


@pytest.mark.skipif(not shared_vectors(), reason=f"{SHARED} names no folder with vectors/sse.json")
def test_external_vectors_give_their_events_at_every_split() -> None:
    for vector in shared_vectors():
        if vector["name"] in LENIENT or "expected" not in vector:
            continue
        expected = [(event["event"], event["data"]) for event in vector["expected"]]
        parts: list[tuple[str, int]] = vector.get("input_parts_b64") or [(vector["input_b64"], 1)]
        body = b"".join(base64.b64decode(part) * count for part, count in parts)
        ways = cuts(body) if len(body) < 4000 else [[body], [bytes([byte]) for byte in body]]
        if "chunks_b64" in vector:
            ways.append([base64.b64decode(chunk) for chunk in vector["chunks_b64"]])
        for pieces in ways:
            fed, _, _ = parse(pieces)
            assert [(name or "message", data.decode("utf-8", "replace")) for name, data in fed] == expected, vector


def kept_by_the_module() -> int:
    """Return the number of values in the module's own tables."""
    tables = [value for name, value in vars(sse).items() if not name.startswith("__")]
    return sum(len(value) for value in tables if isinstance(value, dict | list | set))


def test_one_stream_s_event_names_do_not_slow_down_others() -> None:
    before = kept_by_the_module()
    hostile, other = SSEParser(), SSEParser()
    for parser in (hostile, other):
        parser.feed(b"\n")
    for number in range(1000):
        name = f"{number}" * (number % 50 + 1)
        assert hostile.feed(f"event: {name}\ndata: x\n\n".encode()) == [(name, b"x")]
    assert kept_by_the_module() == before
    assert other.feed(b"event: delta\ndata: x\n\n" * 2) == [("delta", b"x")] * 2
    assert other.feed(b"event: delta\ndata: x\n\n") == [("delta", b"x")]
    assert other.feed(b"data: x\n\n") == [("", b"x")]


def test_a_cr_after_an_event_name_is_not_part_of_it() -> None:
    parser = SSEParser()
    parser.feed(b"\n")
    for _ in range(2):
        assert parser.feed(b"event: a\r\ndata: x\n\n") == [("a", b"x")]


# --- events ---
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_an_event_of_the_cap_is_read_and_no_larger_one(step: int) -> None:
    for size, fits in ((94, True), (95, False)):
        parser, wire = SSEParser(100), b"data: " + b"x" * size
        for position in range(0, len(wire), step):
            if fits or position + step < len(wire):
                assert parser.feed(wire[position : position + step]) == []
                continue
            with pytest.raises(SSEOverflowError) as caught:
                parser.feed(wire[position : position + step])
            assert str(caught.value) == "one event is larger than 100 bytes"
        if fits:
            assert parser.pending == 100
            assert list(parser.feed(b"\n\n")) == [("", b"x" * 94)]
            assert parser.pending == 0


def test_lines_of_data_are_counted_with_their_ends() -> None:
    parser = SSEParser(100)
    assert parser.feed(b"data: abc\ndata: de\nda") == []
    assert parser.pending == 4 + 3 + 2
    assert parser.feed(b"ta:f\n") == []
    assert parser.pending == 9
    assert (parser.at_boundary, list(parser.feed(b"\n"))) == (False, [("", b"abc\nde\nf")])
    assert (parser.pending, parser.at_boundary) == (0, True)


def test_a_call_that_completes_an_event_does_not_overflow() -> None:
    parser = SSEParser(10)
    assert list(parser.feed(b"data: a\n\ndata: " + b"x" * 20)) == [("", b"a")]
    with pytest.raises(SSEOverflowError):
        parser.feed(b"x")


def test_64_kib_of_lines_that_are_no_field_are_kept() -> None:
    parser = SSEParser()
    assert list(parser.feed(b"one\n: comment\nid: 1\nretry: 5\n  two\ndatax: y\n")) == []
    assert list(parser.feed(b"z" * 65536 + b"\nmore\n\n")) == [("\n", b"one\n  two\n" + b"z" * (65536 - 10))]


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b"\xef\xbbdata: a\n\n", [("\n", b"\xef\xbbdata: a")]),
        (b" data: a\n\n", [("", b"a")]),
        (b"data:a\ndata:  b\ndata\n\n", [("", b"a\n b\n")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [("x", b"a"), ("", b"b")]),
        (b"event:x\nevent: y\ndata: a\r\n\r\n", [("y", b"a")]),
        (b"event: x\n\ndata: a\n\n", [("", b"a")]),
        (b"event: \xff\ndata: a\n\n", [("\ufffd", b"a")]),
        (b"data: a\r\rdata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"data: a\nid: 1\n\n", [("", b"a")]),
        (b"id: 1\ndata: a\n\n", [("", b"a")]),
        (b"data: a\rdata: b\n\n", [("", b"a\nb")]),
        (b"data: a\r\ndata: b\r\n\r\n", [("", b"a\nb")]),
        (b"data: a\n\ndata: b\n\ndata: c\n\n", [("", b"a"), ("", b"b"), ("", b"c")]),
        (b"event: x\ndata: a\n\nevent: x\ndata: b\n\nevent: y\ndata: c\n\n", [("x", b"a"), ("x", b"b"), ("y", b"c")]),
        (b"event: x\nevent: y\ndata: a\n\n", [("y", b"a")]),
        (b"xevent: x\ndata: a\n\n", [("", b"a")]),
        (b"event: " + b"n" * 80 + b"\ndata: a\n\n", [("n" * 80, b"a")]),
        (b"data: \n\n", [("", b"")]),
        (b"\n\ndata: a\n\n", [("", b"a")]),
        (b"data: a\n", []),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 1000])
@pytest.mark.parametrize("warm", [False, True])
def test_events_of_any_form_cut_anywhere(wire: bytes, events: list[tuple[str, bytes]], step: int, warm: bool) -> None:
    parser = SSEParser()
    if warm and not wire.startswith(b"\xef"):
        assert list(parser.feed(b"data: first\n\n")) == [("", b"first")]
    found = [event for at in range(0, len(wire), step) for event in parser.feed(wire[at : at + step])]
    assert found == events
    assert list(parser.end()) == ([("", b"a")] if wire == b"data: a\n" else [])


def test_the_end_completes_an_event_and_a_partial_mark() -> None:
    parser = SSEParser()
    parser.feed(b"\xef\xbb")
    assert list(parser.end()) == [("\n", b"\xef\xbb")]
    parser = SSEParser()
    parser.feed(b"event: x\ndata: a")
    assert list(parser.end()) == [("x", b"a")]


@pytest.mark.parametrize(
    ("name", "payload", "wire", "expected"),
    [
        ("", b"a", b"data: a\n\n", (b"data: ", b"\n\n")),
        ("x", b"a", b"data: b\n\nevent: x\ndata: a\r\n\r\n", (b"event: x\ndata: ", b"\r\n\r\n")),
        ("", b"a", b"xdata: a\n\n", None),
        ("", b"a", b"ta: a\n\n", (b"data: ", b"\n\n")),
        ("", b"a", b"\n\n", (b"data: ", b"\n\n")),
        ("", b"a", b"\n", None),
        ("", b"a", b"data:a\n\n", None),
        ("", b"", b"data: \n\n", None),
    ],
)
def test_how_the_last_event_ends(name: str, payload: bytes, wire: bytes, expected: tuple[bytes, bytes] | None) -> None:
    assert usual_framing(name, payload, wire) == expected
