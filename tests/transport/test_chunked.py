"""Compare the chunk decoder with h11: the same body, the same end and the same verdict at every split.

`chunked.py` documents the intended differences; `differs_by_design` repeats them.
"""

import cProfile
import re
from dataclasses import dataclass

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.transport import chunked
from manystream.transport.chunked import MAX_LINE_BYTES, ChunkDecoder, ChunkError, size_line_length

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

OK, ERROR, INCOMPLETE = "ok", "error", "incomplete"


@dataclass
class Reading:
    """The result of a reader: the body up to where it stopped, the verdict, and the bytes after the body."""

    body: bytes
    verdict: str
    rest: bytes


def read_with_h11(pieces: list[bytes]) -> Reading:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 30)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(HEAD)
    assert isinstance(connection.next_event(), h11.Response)
    body: list[bytes] = []
    ended = False
    try:
        for piece in pieces:
            if not piece:
                continue  # for h11 an empty piece means the connection's end
            connection.receive_data(piece)
            while not ended:
                event = connection.next_event()
                if isinstance(event, h11.Data):
                    body.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    ended = True
                else:
                    break
    except h11.RemoteProtocolError:
        return Reading(b"".join(body), ERROR, b"")
    return Reading(b"".join(body), OK if ended else INCOMPLETE, connection.trailing_data[0] if ended else b"")


def read_with_ours(pieces: list[bytes]) -> Reading:
    decoder = ChunkDecoder()
    body: list[bytes] = []
    try:
        for piece in pieces:
            body.append(decoder.feed(piece))
    except ChunkError as error:
        return Reading(b"".join(body) + error.body, ERROR, b"")
    assert bool(decoder.rest) <= decoder.done
    return Reading(b"".join(body), OK if decoder.done else INCOMPLETE, decoder.rest)


def differs_by_design(wire: bytes, ours: Reading, theirs: Reading) -> bool:
    """Return whether the difference is one that `chunked.py` documents."""
    if re.search(rb"(?:^|\n)(?:[1-9A-Fa-f][0-9A-Fa-f]{15}|[0-9A-Fa-f]{17,20})[ \t;\r]", wire):
        return ours.verdict == ERROR  # a size with too many digits, or beyond the limit
    if ours.verdict == ERROR and any(len(part) >= MAX_LINE_BYTES for part in _bounded(wire)):
        return True  # h11 has no bound for a size line or for the trailers
    if ours.verdict == ERROR and theirs.verdict == INCOMPLETE:
        # The decoder refuses an invalid line at its LF. h11 refuses it, too, but waits for CR LF.
        return read_with_h11([wire + b"\r\n\r\n"]).verdict == ERROR
    if ours.verdict == ERROR:
        return False
    # RFC 9110, 6.5.1: a trailer must not affect framing. h11 validates these two like headers.
    return re.search(rb"(?im)^(content-length|transfer-encoding):", wire) is not None


def _bounded(wire: bytes) -> list[bytes]:
    """Return the parts of the wire that have a bound: the lines, and the possible trailers."""
    return [*wire.split(b"\n"), *re.findall(rb"(?s)(?:^|\n)0+[^\n]*\n(.*)", wire)]


def check(wire: bytes, pieces: list[bytes]) -> None:
    ours, theirs = read_with_ours(pieces), read_with_h11(pieces)
    assert ours == theirs or differs_by_design(wire, ours, theirs), (wire, ours, theirs)


def cut(wire: bytes, places: list[int]) -> list[bytes]:
    """Return the wire cut at those places."""
    ends = sorted({min(place, len(wire)) for place in places} | {len(wire)})
    return [wire[start:end] for start, end in zip([0, *ends], ends, strict=False)]


# --- tables: each row whole, byte by byte, and at every split point ---
ROWS: list[tuple[bytes, str, bytes, bytes]] = [
    (b"0\r\n\r\n", OK, b"", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", OK, b"hello", b""),
    (b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", OK, b"hello world", b""),
    (b"1\r\n\r\r\n1\r\n\n\r\n0\r\n\r\n", OK, b"\r\n", b""),
    (b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", OK, b"0123456789" * 2, b""),
    (b"0005\r\nhello\r\n000\r\n\r\n", OK, b"hello", b""),
    (b"5 \t\r\nhello\r\n0 \r\n\r\n", OK, b"hello", b""),
    (b"5;name=value;x\r\nhello\r\n0;last\r\n\r\n", OK, b"hello", b""),
    (b'5;q="a\rb"\r\nhello\r\n0\r\n\r\n', OK, b"hello", b""),
    (b"0\r\nTrailer: value\r\n\r\n", OK, b"", b""),
    (b"0\r\nA: 1\r\nB:\r\nC: a b \r\n\r\n", OK, b"", b""),
    (b"0\r\nA: 1\r\n folded\r\n\r\n", OK, b"", b""),
    (b"0\r\nA: 1\nB: 2\n\n", OK, b"", b""),
    (b"0\r\n\n", OK, b"", b""),
    (b"0\r\n\r\nHTTP/1.1 200 OK\r\n", OK, b"", b"HTTP/1.1 200 OK\r\n"),
    (b"2\r\nhi\r\n0\r\nA: 1\r\n\r\nrest", OK, b"hi", b"rest"),
    (b"", INCOMPLETE, b"", b""),
    (b"5", INCOMPLETE, b"", b""),
    (b"5\r", INCOMPLETE, b"", b""),
    (b"5\r\nhel", INCOMPLETE, b"hel", b""),
    (b"5\r\nhello", INCOMPLETE, b"hello", b""),
    (b"5\r\nhello\r", INCOMPLETE, b"hello", b""),
    (b"5\r\nhello\r\n", INCOMPLETE, b"hello", b""),
    (b"5\r\nhello\r\n0\r\n", INCOMPLETE, b"hello", b""),
    (b"5\r\nhello\r\n0\r\n\r", INCOMPLETE, b"hello", b""),
    (b"0\r\nA: 1\r\n", INCOMPLETE, b"", b""),
    (b"\r\n", ERROR, b"", b""),
    (b"x\r\n", ERROR, b"", b""),
    (b"-5\r\nhello\r\n", ERROR, b"", b""),
    (b"+5\r\nhello\r\n", ERROR, b"", b""),
    (b"0x5\r\nhello\r\n", ERROR, b"", b""),
    (b"0_5\r\nhello\r\n", ERROR, b"", b""),
    (b" 5\r\nhello\r\n", ERROR, b"", b""),
    (b"5\x00\r\nhello\r\n", ERROR, b"", b""),
    ("５\r\nhello\r\n".encode(), ERROR, b"", b""),
    (b";x\r\nhello\r\n", ERROR, b"", b""),
    (b"5\nhello\r\n", ERROR, b"", b""),
    (b"5;a\nb\r\nhello\r\n", ERROR, b"", b""),
    (b"5\r\nhelloX", ERROR, b"hello", b""),
    (b"5\r\nhello\n", ERROR, b"hello", b""),
    (b"5\r\nhello\rX", ERROR, b"hello", b""),
    (b"5\r\nhello\r\nzz\r\n", ERROR, b"hello", b""),
    (b"2\r\nhi\r\n0\r\nno colon\r\n\r\n", ERROR, b"hi", b""),
    (b"0\r\n folded: first\r\n\r\n", ERROR, b"", b""),
    (b"0\r\nA : 1\r\n\r\n", ERROR, b"", b""),
    (b"0\r\n: 1\r\n\r\n", ERROR, b"", b""),
    (b"0\r\nA: a\x00\r\n\r\n", ERROR, b"", b""),
    (b"0\r\nA: a\x0bb\r\n\r\n", ERROR, b"", b""),
    (b"0\r\nA: a\rb\r\n\r\n", ERROR, b"", b""),
    (b"0\r\nA: 1\r\n fold\x00ed\r\n\r\n", ERROR, b"", b""),
]


@pytest.mark.parametrize(("wire", "verdict", "body", "rest"), ROWS, ids=[ascii(row[0])[1:] for row in ROWS])
def test_every_row_decodes_alike_at_every_split(wire: bytes, verdict: str, body: bytes, rest: bytes) -> None:
    for places in ([], list(range(len(wire))), *([place] for place in range(len(wire)))):
        pieces = cut(wire, places)
        assert read_with_ours(pieces) == Reading(body, verdict, rest), pieces
        check(wire, pieces)


@pytest.mark.parametrize(("wire", "verdict", "body", "rest"), ROWS, ids=[ascii(row[0])[1:] for row in ROWS])
def test_the_rows_agree_with_h11(wire: bytes, verdict: str, body: bytes, rest: bytes) -> None:
    assert read_with_h11([wire]) == Reading(body, verdict, rest) or b"\n" in wire.replace(b"\r\n", b"")


# --- random wires ---
extensions = st.sampled_from([b"", b"", b"", b" ", b"\t ", b";a", b";a=b", b';a="b c"', b"; a = b ;c", b";\xff\r"])

trailers = st.lists(
    st.sampled_from([b"A: 1\r\n", b"b:2\n", b"X-C:\r\n", b"D: a  b\t\r\n", b"E: \xff\r\n",
    b"F: 1\r\n folded\r\n\tmore\n"]), max_size=3,
)  # fmt: skip


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Draw a valid chunked body, and the bytes that it encodes."""
    content, wire = b"", b""
    for data in draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6)):
        size = draw(st.sampled_from([b"%x", b"%X", b"0%x", b"000%X"])) % len(data)
        wire += size + draw(extensions) + b"\r\n" + data + b"\r\n"
        content += data
    wire += draw(st.sampled_from([b"0", b"000"])) + draw(extensions) + b"\r\n"
    wire += b"".join(draw(trailers)) + draw(st.sampled_from([b"\r\n", b"\n"]))
    return wire, content


places = st.lists(st.integers(0, 400), max_size=12)


@given(bodies(), places, st.binary(max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_valid_body_is_decoded_as_by_h11(body: tuple[bytes, bytes], places: list[int], rest: bytes) -> None:
    wire, content = body
    pieces = cut(wire + rest, places)
    assert read_with_ours(pieces) == Reading(content, OK, rest)
    check(wire + rest, pieces)


@given(bodies(), places, st.integers(0, 400))
@settings(max_examples=150, deadline=None)
def test_a_truncated_body_is_decoded_as_by_h11(body: tuple[bytes, bytes], places: list[int], length: int) -> None:
    wire = body[0][:length]
    check(wire, cut(wire, places))


@given(
    bodies(),
    places,
    st.integers(0, 400),
    st.integers(0, 3),
    st.one_of(
        st.binary(max_size=4), st.sampled_from([b"\r\n", b"\n", b"\r", b"0\r\n", b":", b";", b" ", b"\x00", b"g"])
    ),
)
@settings(max_examples=150, deadline=None)
def test_a_damaged_body_is_decoded_as_by_h11(
    body: tuple[bytes, bytes], places: list[int], at: int, removed: int, inserted: bytes
) -> None:
    wire = body[0][:at] + inserted + body[0][at + removed :]
    check(wire, cut(wire, places))


@given(st.text(alphabet="0123fF \t;:aA\r\n\x00", max_size=40), places)
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_decoded_as_by_h11(text: str, places: list[int]) -> None:
    wire = text.encode()
    check(wire, cut(wire, places))


@given(bodies(), st.data())
@settings(deadline=None)
def test_any_split_decodes_as_the_whole(body: tuple[bytes, bytes], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(body[0])))
    wire = body[0][:at] + data.draw(st.binary(max_size=3)) + body[0][at:]
    assert read_with_ours(cut(wire, data.draw(places))) == read_with_ours([wire])


# --- bounds and behaviour that h11 does not have ---
def test_a_size_has_at_most_sixteen_digits() -> None:
    assert read_with_ours([b"0" * 15 + b"2\r\nhi\r\n0\r\n\r\n"]) == Reading(b"hi", OK, b"")
    assert read_with_ours([b"0" * 16 + b"2\r\nhi\r\n0\r\n\r\n"]).verdict == ERROR
    assert read_with_ours([b"F" * 17 + b"\r\n"]).verdict == ERROR


def test_a_size_beyond_the_limit_is_refused_at_once() -> None:
    assert read_with_ours([b"F" * 15 + b"\r\n"]).verdict == INCOMPLETE
    for size in (b"1" + b"0" * 15, b"7" + b"F" * 15, b"F" * 16):
        assert read_with_ours([size + b"\r\n"]).verdict == ERROR
        check(size + b"\r\n", [size, b"\r\n"])


def test_a_huge_size_allocates_no_memory() -> None:
    decoder = ChunkDecoder()
    assert decoder.feed(b"FFFFFFFFFFFFFFF\r\nabc") == b"abc"
    assert decoder.feed(b"d" * 10) == b"d" * 10
    assert not decoder.done


@pytest.mark.parametrize("beginning", [b"5;", b"0\r\nA: "])
@pytest.mark.parametrize("step", [1, 100, MAX_LINE_BYTES])
def test_a_line_without_end_is_refused_at_the_cap(beginning: bytes, step: int) -> None:
    decoder = ChunkDecoder()
    decoder.feed(beginning)
    for _ in range((MAX_LINE_BYTES - len(beginning)) // step):
        decoder.feed(b"x" * step)
    with pytest.raises(ChunkError, match=f"longer than {MAX_LINE_BYTES} bytes"):
        decoder.feed(b"x" * (step + len(beginning)))


@pytest.mark.parametrize("wire", [b"5;%b\r\n", b"0\r\nA: %b\r\n\r\n"], ids=["size line", "trailers"])
@pytest.mark.parametrize("size", [MAX_LINE_BYTES - 100, MAX_LINE_BYTES + 100])
def test_the_cap_of_a_line_holds_at_every_split(wire: bytes, size: int) -> None:
    wire %= b"x" * size
    verdicts = {read_with_ours(cut(wire, places)).verdict for places in ([], [3], [size], list(range(0, size, 1000)))}
    assert len(verdicts) == 1
    assert (verdicts == {ERROR}) == (size > MAX_LINE_BYTES)


def test_a_size_line_of_spaces_costs_linear_time() -> None:
    """A quadratic pattern took 25 s for this line."""
    with pytest.raises(ChunkError):
        ChunkDecoder().feed(b"1;" + b" " * 110_000 + b"\n")


@pytest.mark.parametrize("trailer", [b"Content-Length: 5", b"Content-Length: x", b"Transfer-Encoding: gzip"])
def test_framing_headers_among_the_trailers_are_ignored(trailer: bytes) -> None:
    wire = b"2\r\nhi\r\n0\r\n" + trailer + b"\r\n" + trailer + b"\r\n\r\nrest"
    for place in range(len(wire)):
        assert read_with_ours(cut(wire, [place])) == Reading(b"hi", OK, b"rest")


def test_an_error_quotes_a_bounded_part_of_the_line() -> None:
    with pytest.raises(ChunkError) as caught:
        ChunkDecoder().feed(b"z" * 10_000 + b"\r\n")
    assert len(str(caught.value)) < 200


def test_the_bytes_before_an_error_are_not_lost() -> None:
    decoder = ChunkDecoder()
    with pytest.raises(ChunkError) as caught:
        decoder.feed(b"5\r\nhello\r\n2\r\n!!\r\nnonsense\r\n")
    assert caught.value.body == b"hello!!"


def test_no_stream_adds_to_the_table_of_size_lines() -> None:
    before = dict(chunked.SIZES)
    decoder = ChunkDecoder()
    for number in range(1, 10_000):
        decoder.feed(b"%05x\r\n" % number + b"x" * number + b"\r\n")
    assert before == chunked.SIZES
    assert all(int(line.strip(), 16) == size for line, size in chunked.SIZES.items())
    assert {b"1\r\n", b"ff\r\n", b"FF\r\n", b"fff\r\n"} < chunked.SIZES.keys()


def test_a_body_in_single_bytes_costs_linear_work() -> None:
    """Each byte costs the same number of calls, and no call joins more than a line."""

    def work(count: int) -> int:
        wire = b"40\r\n" + b"x" * 64 + b"\r\n" + b"1\r\nx\r\n" * count + b"0\r\n\r\n"
        decoder, profile, longest = ChunkDecoder(), cProfile.Profile(subcalls=False), 0
        for position in range(len(wire)):
            profile.enable()
            decoder.feed(wire[position : position + 1])
            profile.disable()
            longest = max(longest, decoder._buffered_bytes)  # pyright: ignore[reportPrivateUsage]
        assert decoder.done
        assert 0 < longest <= len(b"40\r\n")
        return sum(entry.callcount for entry in profile.getstats())

    least, most = work(1000), work(8000)
    assert 0 < most <= 8 * least


# --- chunks ---
def decoded(wire: bytes, step: int) -> tuple[bytes, bool, bytes]:
    decoder, body = ChunkDecoder(), b""
    for position in range(0, len(wire), step):
        body += decoder.feed(wire[position : position + step])
    return body, decoder.done, decoder.rest


TOO_LONG = "a chunk size line or trailer section is longer than 16384 bytes"


@pytest.mark.parametrize("step", [100_000, 8000, 16384, 999])
@pytest.mark.parametrize("what", ["size line", "trailers"])
def test_a_line_of_16_kib_is_read_and_no_longer_one(what: str, step: int) -> None:
    for size in (16384, 16385):
        if what == "size line":
            wire = b"2;" + b"x" * (size - 4) + b"\r\nab\r\n0\r\n\r\nrest"
        else:
            wire = b"2\r\nab\r\n0\r\n" + b"t: " + b"x" * (size - 7) + b"\r\n\r\nrest"
        if size == 16384:
            assert decoded(wire, step) == (b"ab", True, b"rest")
        else:
            with pytest.raises(ChunkError) as caught:
                decoded(wire, step)
            assert str(caught.value) == TOO_LONG


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (b"1000000000000000\r\n", "a chunk of 1152921504606846976 bytes is larger than any response"),
        (b"00000000000000001\r\n", "illegal chunk size line b'00000000000000001\\r\\n'"),
        (b"2 ;" + b"x" * 80 + b"\r\n", "illegal chunk size line b'2 ;" + "x" * 57 + "'"),
        (b"-2\r\n", "illegal chunk size line b'-2\\r\\n'"),
        (b"2\n", "illegal chunk size line b'2\\n'"),
        (b"2\r\nabx" + b"y" * 30, "expected CR LF after a chunk, got b'x" + "y" * 19 + "'"),
        (b"2\r\nab\rx", "expected CR LF after a chunk, got b'x'"),
        (b"0\r\nno trailer" + b"x" * 60 + b"\r\n\r\n", "illegal trailer line b'no trailer" + "x" * 50 + "'"),
        (b"0\r\n folded: x\r\n\r\n", "illegal trailer line b' folded: x'"),
    ],
)
def test_a_chunk_that_is_refused_is_quoted(wire: bytes, message: str) -> None:
    with pytest.raises(ChunkError) as caught:
        ChunkDecoder().feed(b"3\r\nabc\r\n" + wire)
    assert (str(caught.value), caught.value.body) == (message, b"abc" + (b"ab" if b"ab" in wire else b""))


def test_the_largest_chunk_is_awaited() -> None:
    decoder = ChunkDecoder()
    assert decoder.feed(b"fffffffffffffff\r\nabc") == b"abc"
    assert (decoder.at_boundary, decoder.done, decoder.whole_chunks) == (False, False, 0)


@pytest.mark.parametrize(
    ("wire", "whole", "boundary"),
    [
        (b"2\r\nab\r\n", 1, True),
        (b"2\r\nab\r\n1\r\nc\r\n", 2, True),
        (b"2\r\nab\r\n1\r\nc\r\n3\r\ndef\r\n", 3, True),
        (b"1001\r\n" + b"x" * 4097 + b"\r\n", 0, True),
        (b"fff\r\n" + b"x" * 4095 + b"\r\n", 1, True),
        (b"2\r\nab\r\n1\r\n", 0, False),
        (b"2\r\nab\r\n1", 0, False),
        (b"2;x\r\nab\r\n", 0, True),
        (b"2\r\nab\r", 0, False),
        (b"2\r\nab\r\n0\r\n", 0, False),
        (b"2\r\nab\r\n0\r\n\r\n", 0, False),
    ],
)
def test_whole_chunks_are_counted(wire: bytes, whole: int, boundary: bool) -> None:
    decoder = ChunkDecoder()
    decoder.feed(wire)
    assert (decoder.whole_chunks, decoder.at_boundary) == (whole, boundary)


def test_a_line_that_is_not_complete_is_held_up_to_16_kib() -> None:
    for before in (b"", b"2\r\nab\r\n"):
        decoder = ChunkDecoder()
        decoder.feed(before)
        decoder.feed(b"2;" + b"x" * 8000)
        assert decoder.feed(b"x" * 8382) == b""
        with pytest.raises(ChunkError, match=TOO_LONG):
            decoder.feed(b"x")


def test_a_chunk_that_is_not_as_long_as_its_size_line_says() -> None:
    with pytest.raises(ChunkError, match="expected CR LF after a chunk, got b'c"):
        ChunkDecoder().feed(b"2\r\nabc\r\n")
    decoder = ChunkDecoder()
    assert [decoder.feed(piece) for piece in (b"7\r\nabc\r\n", b"de", b"\r\n")] == [b"abc\r\n", b"de", b""]
    assert [decoder.feed(piece) for piece in (b"2\r\n", b"ab\r\n", b"1\r\n", b"c\r\n")] == [b"", b"ab", b"", b"c"]
    assert (decoder.at_boundary, decoder.done) == (True, False)


def test_bytes_after_the_body_are_the_rest() -> None:
    decoder = ChunkDecoder()
    assert (decoder.at_boundary, decoder.done, decoder.whole_chunks, decoder.rest) == (True, False, 0, b"")
    assert [decoder.feed(piece) for piece in (b"2\r\nab\r\n0\r", b"\n\r\nx", b"y")] == [b"ab", b"", b""]
    assert (decoder.done, decoder.rest) == (True, b"xy")


def test_the_length_of_a_size_line() -> None:
    wire = b"xx2\r\nab\r\nfff\r\n1000\r\n"
    assert [size_line_length(wire, at) for at in (0, 2, 3, 9, 14, 20)] == [0, 3, 0, 5, 0, 0]
