"""The bytes of a response, frame by frame, with the faults and the pace that knobs ask for."""

from __future__ import annotations

import dataclasses

import pytest

from manystream.http_server import http_head
from manystream.simulator import Knobs
from manystream.simulator.program import (
    Ending,
    Program,
    Template,
    complete,
    no_response,
    position_of,
    streamed,
    unstreamed,
    with_headers,
)

HEAD = b"HTTP/1.1 200 OK\r\nA: b\r\ntransfer-encoding: chunked\r\n\r\n"
CLOSING_HEAD = b"HTTP/1.1 200 OK\r\nA: b\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
EVENTS = [b"data: {}\n\n", b"event: x\ndata: {1}\n\n", b"data: {}\n\n"]
FIRST, SECOND, THIRD = b"a\r\ndata: {}\n\n\r\n", b"14\r\nevent: x\ndata: {1}\n\n\r\n", b"a\r\ndata: {}\n\n\r\n"
LAST = b"0\r\n\r\n"
BODY = b'{"a":"0123456789"}'


def stream(knobs: Knobs, *, keep: bool = True) -> Program:
    return streamed([("A", "b")], EVENTS, knobs, error_events=[b"error\n\n", b"end\n\n"], ping=b": hi\n\n", keep=keep)


def single(knobs: Knobs, *, keep: bool = True) -> Program:
    return unstreamed([("A", "b")], BODY, knobs, error_body=b"{error}", keep=keep)


def sized(length: int, body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nA: b\r\ncontent-length: %d\r\n%b\r\n%b" % (length, more, body)


def test_a_stream_is_one_frame_for_each_event() -> None:
    assert stream(Knobs()) == Program(
        [HEAD + FIRST, SECOND, THIRD + LAST], templates={}, events=3, interval=0.0, delay=0.0, ending=Ending.KEEP,
        ping=b"6\r\n: hi\n\n\r\n", ping_interval=0.0, frames_per_send=64, counted=True, following=None, usage=None,
        ticket=None,
    )  # fmt: skip


def test_a_program_is_one_answer_without_pauses_by_default() -> None:
    assert Program([b"x"]) == Program(
        [b"x"], templates={}, events=0, interval=0.0, delay=0.0, ending=Ending.KEEP, ping=b"", ping_interval=0.0,
        frames_per_send=64, counted=True, following=None, usage=None, ticket=None,
    )  # fmt: skip


def test_a_stream_has_the_pace_of_its_knobs() -> None:
    paced = stream(Knobs(rate=20, delay=1.5, ping=3))
    assert (paced.interval, paced.delay, paced.ping_interval) == (pytest.approx(0.05), 1.5, 3)
    cut = stream(Knobs(rate=20, chunk=25))
    assert cut.interval == pytest.approx(3 / 20 / 2), "40 bytes are two chunks, in the time of three events"
    assert (cut.frames, cut.events, cut.frames_per_send) == (
        [HEAD + b"19\r\ndata: {}\n\nevent: x\ndata: \r\n", b"f\r\n{1}\n\ndata: {}\n\n\r\n" + LAST],
        3,
        1,
    )


def test_a_ping_is_sent_by_streams_that_have_one() -> None:
    assert streamed([], EVENTS, Knobs()).ping == b""


def test_a_client_that_closes_gets_a_closing_head() -> None:
    closing = stream(Knobs(), keep=False)
    assert (closing.frames, closing.ending) == ([CLOSING_HEAD + FIRST, SECOND, THIRD + LAST], Ending.CLOSE)
    assert stream(Knobs(stall=1), keep=False).ending is Ending.STALL
    assert stream(Knobs(truncate=1), keep=False).ending is Ending.CLOSE
    assert stream(Knobs(reset=1), keep=False).ending is Ending.RESET


FAULTS: list[tuple[dict[str, int], list[bytes], Ending]] = [
    ({"cut": 0}, [HEAD], Ending.CLOSE),
    ({"cut": 1}, [HEAD + FIRST], Ending.CLOSE),
    ({"cut": 3}, [HEAD + FIRST, SECOND, THIRD], Ending.CLOSE),
    ({"cut": 9}, [HEAD + FIRST, SECOND, THIRD], Ending.CLOSE),
    ({"cut": -1}, [HEAD + FIRST, SECOND], Ending.CLOSE),
    ({"cut": -9}, [HEAD], Ending.CLOSE),
    ({"reset": 2}, [HEAD + FIRST, SECOND], Ending.RESET),
    ({"stall": 2}, [HEAD + FIRST, SECOND], Ending.STALL),
    ({"truncate": 2}, [HEAD + FIRST, SECOND + LAST], Ending.KEEP),
    ({"truncate": 0}, [HEAD + LAST], Ending.KEEP),
    ({"cut": 2, "reset": 1}, [HEAD + FIRST, SECOND], Ending.CLOSE),
    ({"reset": 2, "stall": 1}, [HEAD + FIRST, SECOND], Ending.RESET),
    ({"stall": 2, "truncate": 1}, [HEAD + FIRST, SECOND], Ending.STALL),
    ({"malformed": 0}, [HEAD + b"9\r\ndata: {\n\n\r\n", SECOND, THIRD + LAST], Ending.KEEP),
    ({"malformed": 1}, [HEAD + FIRST, b"12\r\nevent: x\ndata: {\n\n\r\n", THIRD + LAST], Ending.KEEP),
    ({"malformed": 3}, [HEAD + FIRST, SECOND, b"9\r\ndata: {\n\n\r\n" + LAST], Ending.KEEP),
    ({"malformed": -3}, [HEAD + b"9\r\ndata: {\n\n\r\n", SECOND, THIRD + LAST], Ending.KEEP),
    ({"error": 0}, [HEAD + b"7\r\nerror\n\n\r\n", b"5\r\nend\n\n\r\n" + LAST], Ending.KEEP),
    ({"error": 1}, [HEAD + FIRST, b"7\r\nerror\n\n\r\n", b"5\r\nend\n\n\r\n" + LAST], Ending.KEEP),
    ({"error": -1}, [HEAD + FIRST, SECOND, b"7\r\nerror\n\n\r\n", b"5\r\nend\n\n\r\n" + LAST], Ending.KEEP),
    ({"error": 1, "cut": 2}, [HEAD + FIRST, b"7\r\nerror\n\n\r\n"], Ending.CLOSE),
    ({"error": 1, "truncate": -1}, [HEAD + FIRST, b"7\r\nerror\n\n\r\n" + LAST], Ending.KEEP),
]
"""Knobs → the frames of a stream of three events, and what follows them."""


@pytest.mark.parametrize(("knobs", "frames", "ending"), FAULTS)
def test_a_fault_changes_these_frames(knobs: dict[str, int], frames: list[bytes], ending: Ending) -> None:
    program = stream(Knobs(**knobs))  # type: ignore[arg-type]
    assert (program.frames, program.ending) == (frames, ending)
    count = sum(frame.removeprefix(HEAD).removesuffix(LAST) != b"" for frame in frames)
    assert program.events == count


def test_a_broken_event_keeps_half_of_its_data() -> None:
    def broken(event: bytes) -> bytes:
        frame = streamed([], [event], Knobs(malformed=0)).frames[0]
        return frame.partition(b"\r\n\r\n")[2].partition(b"\r\n")[2].removesuffix(b"\r\n" + LAST)

    assert broken(b"data: 123456\r\n\r\n") == b"data: 123\r\n\r\n"
    assert broken(b"data: 12345\n\n") == b"data: 12\n\n"
    assert broken(b"data: 1\n\n") == b"data: 1\n\n"
    assert broken(b"data: data: 1234\n\n") == b"data: data: 12\n\n"
    assert broken(b'[{"a":1}') == b'[{"a'
    assert broken(b',\r\n{"a":1}') == b',\r\n{"'


def test_an_unstreamed_answer_is_one_frame() -> None:
    assert single(Knobs(delay=2)) == Program([sized(18, BODY)], delay=2, frames_per_send=64)
    closing = single(Knobs(), keep=False)
    assert closing == Program([sized(18, BODY, b"connection: close\r\n")], ending=Ending.CLOSE)


def test_an_unstreamed_answer_in_chunks() -> None:
    program = single(Knobs(chunk=8, rate=5))
    assert program.frames == [HEAD, b'8\r\n{"a":"01\r\n', b"8\r\n23456789\r\n", b'2\r\n"}\r\n', LAST]
    assert (program.frames_per_send, program.interval, program.ending, program.events) == (1, 0.0, Ending.KEEP, 0)
    assert single(Knobs(chunk=8, cut=9)).frames == [HEAD, b'8\r\n{"a":"01\r\n', b"1\r\n2\r\n", b""]
    assert single(Knobs(chunk=18), keep=False).frames == [CLOSING_HEAD, b"12\r\n" + BODY + b"\r\n", LAST]


BODY_FAULTS: list[tuple[dict[str, int], bytes, Ending]] = [
    ({"cut": 5}, sized(18, BODY[:5]), Ending.CLOSE),
    ({"reset": -1}, sized(18, BODY[:17]), Ending.RESET),
    ({"stall": 0}, sized(18, b""), Ending.STALL),
    ({"truncate": 5}, sized(5, BODY[:5]), Ending.KEEP),
    ({"malformed": 4}, sized(4, BODY[:4]), Ending.KEEP),
    ({"malformed": 4, "cut": 2}, sized(4, BODY[:2]), Ending.CLOSE),
    ({"error": 3}, sized(7, b"{error}"), Ending.KEEP),
    ({"error": 3, "cut": -2}, sized(7, b"{erro"), Ending.CLOSE),
]
"""Knobs → the only frame of an unstreamed answer of 18 bytes, and what follows it."""


@pytest.mark.parametrize(("knobs", "frame", "ending"), BODY_FAULTS)
def test_a_fault_changes_an_unstreamed_answer(knobs: dict[str, int], frame: bytes, ending: Ending) -> None:
    program = single(Knobs(**knobs))  # type: ignore[arg-type]
    assert (program.frames, program.ending) == ([frame], ending)


@pytest.mark.parametrize(
    ("position", "count", "place"),
    [(0, 5, 0), (4, 5, 4), (5, 5, 5), (6, 5, 5), (-1, 5, 4), (-5, 5, 0), (-6, 5, 0), (0, 0, 0), (-1, 0, 0)],
)
def test_a_position_counts_from_either_end(position: int, count: int, place: int) -> None:
    assert position_of(position, count) == place


def test_a_complete_response_is_not_counted_as_an_answer() -> None:
    kept = complete(404, [("A", "b")], b"no", delay=0.5)
    frame = b"HTTP/1.1 404 Not Found\r\nA: b\r\ncontent-length: 2\r\n\r\nno"
    assert kept == Program([frame], delay=0.5, ending=Ending.KEEP, counted=False)
    closing = complete(404, [("A", "b")], b"no", keep=False)
    frame = b"HTTP/1.1 404 Not Found\r\nA: b\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno"
    assert closing == Program([frame], delay=0.0, ending=Ending.CLOSE, counted=False)


def test_no_response_is_an_answer_that_closes() -> None:
    assert no_response(0.25) == Program([b""], delay=0.25, ending=Ending.CLOSE, counted=True)


def test_a_head_is_latin_1() -> None:
    assert http_head(299, [("Name", "é")]) == b"HTTP/1.1 299 Unknown\r\nName: \xe9\r\n\r\n"


# --- headers that are added, and stamps ---


def test_headers_are_added_behind_the_status_line() -> None:
    program = Program([b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nx", b"y"], delay=1.0, ending=Ending.STALL)
    changed = with_headers(program, [("C", "é"), ("D", "50%")])
    assert changed == dataclasses.replace(
        program, frames=[b"HTTP/1.1 200 OK\r\nC: \xe9\r\nD: 50%\r\nA: b\r\n\r\nx", b"y"]
    )
    assert with_headers(program, []) is program
    assert with_headers(Program([b""]), [("C", "d")]) == Program([b""])


STAMPS = [b"data: stamp-00000000000000 100%\n\n", b"data: x\n\n", b"stamp-00000000000001 stamp-00000000000000"]


def test_a_stamp_is_made_when_its_event_is_sent() -> None:
    program = with_headers(streamed([], STAMPS, Knobs(stamp=True)), [("D", "50%")])
    assert sorted(program.templates) == [0, 2]
    stamps: list[int] = []
    head = b"HTTP/1.1 200 OK\r\nD: 50%\r\ntransfer-encoding: chunked\r\n\r\n"
    assert program.templates[0].render(stamps, 12) == head + b"21\r\ndata: 00000000000000000012 100%\n\n\r\n"
    assert program.templates[2].render(stamps, 34) == b"29\r\n00000000000000000034 00000000000000000012\r\n" + LAST
    assert stamps == [12, 34]
    assert [len(program.frames[place]) for place in (0, 2)] == [
        len(head + b"21\r\ndata: 00000000000000000012 100%\n\n\r\n"),
        len(b"29\r\n00000000000000000034 00000000000000000012\r\n" + LAST),
    ]
    assert streamed([], STAMPS, Knobs()).templates == {}


def test_a_template_fills_in_the_stamps_that_were_left_out() -> None:
    stamps = [7]
    assert Template(b"%d", (2,)).render(stamps, 9) == b"9"
    assert stamps == [7, 9, 9]
    assert Template(b"%d", (0,)).render(stamps, 10) == b"7"
    assert stamps == [7, 9, 9]


def test_an_unstreamed_answer_may_have_stamps() -> None:
    body = b"stamp-00000000000000"
    assert sorted(unstreamed([], body, Knobs(stamp=True)).templates) == [0]
    assert unstreamed([], body, Knobs()).templates == {}
