"""The bounds of the transport's parsers: just below, at and above, whole and cut into pieces."""

import h11
import pytest

from manystream.transport.chunked import ChunkDecoder, ChunkError, size_line_length
from manystream.transport.errors import URLError
from manystream.transport.framing import CHUNKED, CLOSE, LENGTH, Framing, framing
from manystream.transport.headers import HeaderError, find, headers_to_mapping, validate_headers
from manystream.transport.response_head import HeadError, HeadReader
from manystream.transport.sse import SSEOverflowError, SSEParser, usual_framing
from manystream.transport.url import Origin, parse_base_url

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


# --- heads ---


def head(wire: bytes) -> h11.Response | None:
    return HeadReader().feed(wire)


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "malformed response: no response line received"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "malformed response: illegal status line: b'HTTP/1.1 20 OK'"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "malformed response: illegal header line: b'no colon'"),
        (b"HTTP/1.1 200 OK\r\n x\r\n\r\n", "malformed response: continuation line at start of headers"),
        (b"HTTP/1.1 101 Switching\r\n\r\n",
            "malformed response: the server switches to another protocol, which was not asked for"),
        (b"HTTP/1.1 100 C\r\n\r\nHTTP/2.0 200 OK\r\n\r\n", "the response is not HTTP/1.1: HTTP/2.0"),
        (b"HTTP/2 200\r\n", "the response is not HTTP/1.1: b'HTTP/2 200\\r\\n'"),
        (b"\x15\x03\x01", "the response is not HTTP/1.1 (TLS on this port? use https://): b'\\x15\\x03\\x01'"),
        (b"\x16", "the response is not HTTP/1.1 (TLS on this port? use https://): b'\\x16'"),
        (b"S" * 70, "the response is not HTTP/1.1: b'" + "S" * 60 + "'"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 300 + b"\r\n\r\n",
            "malformed response: " + ("illegal header line: b'" + "x" * 300)[:200]),
    ],
)  # fmt: skip
def test_a_head_that_is_refused_is_quoted(wire: bytes, message: str) -> None:
    with pytest.raises(HeadError) as caught:
        head(wire)
    assert (str(caught.value), caught.value.quotes) == (message, True)


def test_a_head_has_its_parts() -> None:
    reader = HeadReader()
    assert (
        reader.feed(b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.0 299 \r\nX-y:  a \t\r\nF: one\r\n \ttwo\r\n\r\nbo")
        is not None
    )
    reader = HeadReader()
    response = reader.feed(b"HTTP/1.1 200\nX-y:a\n\nbody")
    assert (response.status_code, response.reason, response.http_version) == (200, b"", b"1.1")
    assert (list(response.headers), reader.rest) == ([(b"x-y", b"a")], b"body")
    folded = head(b"HTTP/1.0 299 Two words\r\nX: one\r\n \t two\r\n\tthree\r\nY:\r\n\r\n")
    assert (folded.reason, folded.http_version) == (b"Two words", b"1.0")
    assert list(folded.headers) == [(b"x", b"one two three"), (b"y", b"")]


@pytest.mark.parametrize(("size", "message"), [(262144, ""), (262145, "the response head is larger than 262144 bytes")])
def test_a_head_of_256_kib_is_read_and_no_larger_one(size: int, message: str) -> None:
    begin = b"HTTP/1.1 200 OK\r\n" + (b"x: " + b"y" * 50_000 + b"\r\n") * 5
    complete = begin + b"z: " + b"z" * (size - len(begin) - 7) + b"\r\n\r\n"
    assert len(complete) == size
    for pieces in ([complete], [complete[:-1], b"\n"], [complete[:1000], complete[1000:]]):
        reader = HeadReader()
        for piece in pieces[:-1]:
            assert reader.feed(piece) is None
        if message:
            with pytest.raises(HeadError) as caught:
                reader.feed(pieces[-1])
            assert (str(caught.value), caught.value.quotes) == (message, False)
        else:
            assert reader.feed(pieces[-1]) is not None
    reader = HeadReader()
    incomplete = complete[:-4] + b"zzzz"
    if message:
        with pytest.raises(HeadError, match=message):
            reader.feed(incomplete)
    else:
        assert reader.feed(incomplete) is None


def test_heads_before_the_final_one_count_for_its_size_and_lines() -> None:
    hints = b"HTTP/1.1 103 Hints\r\nx: " + b"y" * 80_000 + b"\r\n\r\n"
    reader = HeadReader()
    assert reader.feed(hints * 3) is None
    with pytest.raises(HeadError, match="larger than 262144 bytes"):
        reader.feed(hints)
    lines = b"HTTP/1.1 103 Hints\r\n" + b"a:b\r\n" * 2046 + b"\r\n"
    assert HeadReader().feed(lines + lines.replace(b"103", b"200")) is not None, "4096 lines"
    with pytest.raises(HeadError, match="more than 4096 lines"):
        HeadReader().feed(lines + lines.replace(b"103", b"200").replace(b"Hints\r\n", b"Hints\r\nc:d\r\n"))


@pytest.mark.parametrize(
    ("size", "complete", "fits"),
    [(98304, False, True), (98305, False, False), (98303, True, True), (98304, True, False)],
)
def test_a_header_line_of_96_kib(size: int, complete: bool, fits: bool) -> None:
    line = b"x: " + b"y" * (size - 3)
    wire = b"HTTP/1.1 200 OK\r\na: b\r\n" + (line[:-1] + b"\r\n\r\n" if complete else line)
    for pieces in ([wire], [wire[:40_000], wire[40_000:]]):
        reader = HeadReader()
        for piece in pieces[:-1]:
            assert reader.feed(piece) is None
        if fits:
            assert (reader.feed(pieces[-1]) is not None) == complete
        else:
            with pytest.raises(HeadError, match="a response header line is longer than 98304 bytes"):
                reader.feed(pieces[-1])


@pytest.mark.parametrize(
    ("method", "status", "version", "headers", "expected"),
    [
        (b"POST", 200, b"1.1", {b"content-length": b"5"}, Framing(LENGTH, 5, True)),
        (b"POST", 200, b"1.1", {b"content-length": b"0"}, Framing(LENGTH, 0, True)),
        (b"POST", 200, b"1.0", {b"content-length": b"5"}, Framing(LENGTH, 5, False)),
        (b"POST", 200, b"1.1", {b"content-length": b"5", b"connection": b"x, Close "}, Framing(LENGTH, 5, False)),
        (b"POST", 200, b"1.1", {b"content-length": b"5", b"connection": b"keep-alive"}, Framing(LENGTH, 5, True)),
        (b"POST", 200, b"1.1", {b"content-length": b"5", b"other": b"close"}, Framing(LENGTH, 5, True)),
        (b"POST", 200, b"1.1", {b"transfer-encoding": b"chunked"}, Framing(CHUNKED, 0, True)),
        (b"POST", 200, b"1.1", {b"transfer-encoding": b"chunked", b"content-length": b"0"}, Framing(CHUNKED, 0, False)),
        (b"POST", 200, b"1.1", {}, Framing(CLOSE, 0, False)),
        (b"HEAD", 200, b"1.1", {b"content-length": b"5"}, Framing(LENGTH, 0, True)),
        (b"HEAD", 200, b"1.0", {}, Framing(LENGTH, 0, False)),
        (b"POST", 204, b"1.1", {}, Framing(LENGTH, 0, True)),
        (b"POST", 204, b"1.1", {b"content-length": b"0"}, Framing(LENGTH, 0, True)),
        (b"POST", 304, b"1.1", {b"content-length": b"5"}, Framing(LENGTH, 0, False)),
        (b"POST", 205, b"1.1", {b"transfer-encoding": b"chunked"}, Framing(LENGTH, 0, False)),
        (b"POST", 204, b"1.1", {b"connection": b"close"}, Framing(LENGTH, 0, False)),
    ],
)
def test_the_framing_of_a_response(
    method: bytes, status: int, version: bytes, headers: dict[bytes, bytes], expected: Framing
) -> None:
    assert framing(method, status, version, headers.items()) == expected


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


# --- names, ports and headers ---


def test_a_label_of_63_and_a_name_of_253_characters_are_accepted() -> None:
    name = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert len(name) == 253
    assert parse_base_url(f"https://{name}").origin == Origin("https", name, 443)
    for refused in (f"{name}c", "a" * 64, f"{name}."):
        with pytest.raises(URLError) as caught:
            parse_base_url(f"https://{refused}")
        assert str(caught.value) == f"base URL: {refused[:253]!r} is not a host name"
    assert parse_base_url("http://h:65535").origin.port == 65535
    assert parse_base_url("http://h:1").origin.port == 1


def test_a_long_scheme_is_cut() -> None:
    with pytest.raises(URLError) as caught:
        parse_base_url("s" * 30 + "://h")
    assert str(caught.value) == f"base URL: scheme '{'s' * 20}' is not supported; use https:// or http://"


def test_a_header_that_is_refused_is_named() -> None:
    for name, value, message in (
        ("n" * 70 + " ", "v", f"header name '{'n' * 60}'…: only letters, digits and !#$%&'*+-.^_`|~ are allowed"),
        ("", "v", "header name '': only letters, digits and !#$%&'*+-.^_`|~ are allowed"),
        (" x", "v", "header name ''…: only letters, digits and !#$%&'*+-.^_`|~ are allowed"),
        ("Host", "v", "header 'Host': the connection sets it itself; leave it out"),
        ("k", "ab\n", "header 'k': the value contains a line break (was it read from a file that ends with one?) at"
         " position 2"),
        ("k", "\r", "header 'k': the value contains a line break (was it read from a file that ends with one?) at"
         " position 0"),
        ("k", "a\0", "header 'k': the value contains a NUL character at position 1"),
        ("k", "a\x7f", "header 'k': the value contains a control character at position 1"),
        ("k", "é", "header 'k': the value contains a character that is not ASCII at position 0"),
        ("k", "v\t", "header 'k': the value begins or ends with white space; remove it"),
        ("k", " v", "header 'k': the value begins or ends with white space; remove it"),
    ):  # fmt: skip
        with pytest.raises(HeaderError) as caught:
            validate_headers([(name, value)], forbidden={"host"})
        assert str(caught.value) == message
    assert validate_headers([("A", "x\ty"), ("a", "")]) == [(b"A", b"x\ty"), (b"a", b"")]
    pairs = [(b"A", b"1"), (b"b", b"2"), (b"a", b"\xe9")]
    assert (find(pairs, b"a"), find(pairs, b"b"), find(pairs, b"c")) == (b"1", b"2", None)
    assert headers_to_mapping(pairs) == {"a": "1, é", "b": "2"}
