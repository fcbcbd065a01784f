"""Response heads and headers: read as by h11 at every split, bounded in cost, and how headers are sent and found."""

from __future__ import annotations

import cProfile
import tracemalloc

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.transport.response_head import (
    HEAD_TOO_LARGE,
    MAX_HEAD_BYTES,
    MAX_HEAD_LINES,
    MAX_HEADER_LINE_BYTES,
    MAX_INFORMATIONAL,
    TOO_MANY_LINES,
    HeadError,
    HeadReader,
    parse_head,
)

HEADS = [
    b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", b"HTTP/1.1 200 OK\nA: b\n\n", b"HTTP/1.1 200\r\n\r\n",
    b"HTTP/1.0 503 Busy\r\nRetry-After:\t 1\t\r\nA:\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
    b"HTTP/1.1 100 Continue\n\nHTTP/1.1 204 No\r\n\r\n",
]  # fmt: skip

BROKEN = [
    b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nA b\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n",
    b"HTTP/1.1 101 Other\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nSSH-2.0 hello\r\n\r\n", b"HTTP/1.1 200 OK\r\n folded: first\r\n\r\n",
]  # fmt: skip


def read_with_h11(data: bytes) -> h11.Response:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "any"), ("Content-Length", "0")]))
    connection.receive_data(data)
    event = connection.next_event()
    while isinstance(event, h11.InformationalResponse):
        event = connection.next_event()
    assert isinstance(event, h11.Response), event
    return event


def read_in_pieces(wire: bytes, step: int) -> h11.Response | None:
    """Feed the wire in pieces; return the reader's result for the last piece."""
    reader, read = HeadReader(), None
    for place in range(0, len(wire), step):
        assert read is None
        read = reader.feed(wire[place : place + step])
    return read


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_a_head_is_parsed_as_by_h11_at_every_split(head: bytes, step: int) -> None:
    reader = HeadReader()
    pieces = [head[place : place + step] for place in range(0, len(head), step)]
    for piece in pieces[:-1]:
        assert reader.feed(piece) is None
    response = reader.feed(pieces[-1] + b"body\r\n\r\n")
    assert response == read_with_h11(head)
    assert reader.rest == b"body\r\n\r\n"


@pytest.mark.parametrize("head", BROKEN)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_what_h11_refuses_is_refused(head: bytes, step: int) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        read_with_h11(head)
    with pytest.raises(HeadError) as caught:
        read_in_pieces(head, step)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("step", [1000, 10_000_000])
@pytest.mark.parametrize(
    ("beginning", "piece", "says"),
    [
        (b"HTTP/1.1 200 ", b"x", "header line is longer"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"x", "header line is longer"),
        (b"HTTP/1.1 200 OK\r\n", b"A: bcdefgh\r\n", "head is larger"),
        (b"HTTP/1.1 200 OK\r\nA:", b" ", "header line is longer"),
        (b"HTTP/1.1 200 OK\r\nA:", b"\r\n ", "head is larger"),
        (b"", b"HTTP/1.1 103 Hints\r\n\r\n", f"more than {MAX_INFORMATIONAL}"),
    ],
)
def test_the_size_of_a_head_is_bounded(beginning: bytes, piece: bytes, says: str, step: int) -> None:
    wire = beginning + piece * (2 * MAX_HEAD_BYTES // len(piece))
    with pytest.raises(HeadError, match=says) as caught:
        read_in_pieces(wire, step)
    assert not caught.value.quotes


@pytest.mark.parametrize("size", [MAX_HEADER_LINE_BYTES, MAX_HEADER_LINE_BYTES + 1])
@pytest.mark.parametrize("step", [1000, 10_000_000])
def test_the_bound_of_a_line_holds_at_every_split(size: int, step: int) -> None:
    wire = b"HTTP/1.1 200 OK\r\nA: " + b"x" * (size - 5) + b"\r\nB: c\r\n\r\n"
    assert max(len(line) + 1 for line in wire.split(b"\n")) == size
    if size <= MAX_HEADER_LINE_BYTES:
        assert read_in_pieces(wire, step) is not None
        return
    with pytest.raises(HeadError, match="header line is longer"):
        read_in_pieces(wire, step)


@pytest.mark.parametrize("padding", [b" ", b"\t", b"\r\n "], ids=["spaces", "tabs", "folds"])
@pytest.mark.parametrize("value", [b"b", b"b\x00"], ids=["legal", "illegal"])
def test_white_space_around_a_value_takes_linear_time(padding: bytes, value: bytes) -> None:
    """h11's pattern for a whole line would take minutes for each of these."""
    many = padding * (MAX_HEADER_LINE_BYTES // 4 if len(padding) == 1 else 1000)
    head = b"HTTP/1.1 200 OK\r\nA:" + many + value + many + b"c" + many + b"\r\n\r\n"
    if b"\x00" in value:
        with pytest.raises(HeadError, match="header value"):
            HeadReader().feed(head)
        return
    read = HeadReader().feed(head)
    assert read is not None
    # A folded line without a value is one space (RFC 9112, 5.2).
    assert read.headers[0] == (b"a", b"b" + many.replace(b"\r\n ", b" ") + b"c")


def test_a_head_may_come_byte_by_byte() -> None:
    """A head of a quarter of a megabyte takes linear time."""
    wire = b"HTTP/1.1 200 OK\r\n" + (b"A: " + b"x" * 55 + b"\r\n") * 4_000 + b"\r\n"
    assert read_in_pieces(wire, 1) is not None


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["first head", "after 100 Continue"])
def test_another_version_of_http_is_refused(before: bytes) -> None:
    with pytest.raises(HeadError, match=r"the response is not HTTP/1\.1"):
        read_in_pieces(before + b"HTTP/2.1 200 OK\r\nContent-Length: 5\r\n\r\n", 1000)


Meaning = tuple[bytes, int, bytes, list[tuple[bytes, bytes]]]

STATUS_LINES = (
    b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.0 404 Not \t Found", b"HTTP/1.1 100 Continue",
    b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 103 Early Hints", b"HTTP/1.1 099 Low", b"HTTP/1.1 599 \xe4\xf6",
    b"HTTP/1.1 999 High", b"HTTP/2.0 200 OK", b"HTTP/1.1  200 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1\t200 OK",
    b"HTTP/1.1 200OK", b"HTTP/1.1 200 a\x01b", b"HTTP/1.1 200 a\x0bb", b"http/1.1 200 OK", b" HTTP/1.1 200 OK", b"",
)  # fmt: skip

HEADER_LINES = (
    b"content-type: text/event-stream", b"Content-Length: 5", b"content-length: 5, 5", b"content-length: 5, 6",
    b"content-length: -5", b"content-length: +5", b"content-length: 99999999999999999999999",
    b"Transfer-Encoding: chunked", b"transfer-encoding: Chunked", b"transfer-encoding: gzip, chunked", b"x-empty:",
    b"x-blank: \t ", b"x-padded: \t value \t", b"x-inner: a \t b", b"x-colon: a:b: c", b"x-latin: caf\xe9",
    b"x-nul: a\x00b", b"x-control: a\x01b", b"x-tab-form: a\x0bb", b"x-return: a\rb", b"x-delete: a\x7fb", b": no name",
    b"no colon", b"space before : value", b"(comment): value", b"caf\xe9: value", b" folded", b"\tfolded \t again",
    b"  ", b"set-cookie: a=1", b"set-cookie: b=2",
)  # fmt: skip

ENDS = (b"\r\n", b"\n", b"\r\r\n")


def by_h11(head: bytes) -> Meaning | None:
    """Return what h11's parser reads; None if it refuses the head."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    parser.send(h11.Request(method="POST", target="/", headers=[("Host", "any"), ("Content-Length", "0")]))
    parser.receive_data(head)
    try:
        event = parser.next_event()
    except h11.RemoteProtocolError:
        return None
    assert isinstance(event, h11.Response | h11.InformationalResponse)
    return event.http_version, event.status_code, event.reason, list(event.headers)


def by_lines(head: bytes) -> Meaning | None:
    """Return what `parse_head` reads; None if it refuses the head."""
    try:
        event = parse_head(head)
    except (h11.LocalProtocolError, ValueError):
        return None
    return event.http_version, event.status_code, event.reason, list(event.headers)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("line", STATUS_LINES)
def test_each_status_line_means_what_it_means_to_h11(line: bytes, end: bytes) -> None:
    head = line + end + b"a: b" + end + b"\r\n"
    assert by_lines(head) == by_h11(head)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("line", HEADER_LINES)
def test_each_header_line_means_what_it_means_to_h11(line: bytes, end: bytes) -> None:
    for head in (
        b"HTTP/1.1 200 OK" + end + line + end + b"\r\n",
        b"HTTP/1.1 200 OK" + end + b"first: one" + end + line + end + b"last: one" + end + b"\n",
    ):
        assert by_lines(head) == by_h11(head)


@settings(derandomize=True, max_examples=150)
@given(
    st.sampled_from(STATUS_LINES),
    st.lists(st.tuples(st.sampled_from(HEADER_LINES), st.sampled_from(ENDS)), max_size=6),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
)
def test_a_damaged_head_means_what_it_means_to_h11(
    status_line: bytes, lines: list[tuple[bytes, bytes]], damage: list[tuple[int, int]]
) -> None:
    head = bytearray(status_line + b"\r\n" + b"".join(line + end for line, end in lines))
    for place, byte in damage:
        head[place % len(head)] = byte
    whole = bytes(head)
    for blank in (b"\n\r\n", b"\n\n"):  # the caller gives a head up to its first blank line
        whole = whole.partition(blank)[0]
    whole = whole.rstrip(b"\r\n") + b"\r\n\r\n"
    if not whole.startswith((b"\r\n", b"\n")):
        assert by_lines(whole) == by_h11(whole)


def test_the_server_cannot_switch_to_another_protocol() -> None:
    with pytest.raises(ValueError, match="another protocol"):
        parse_head(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n")


STATUS = b"HTTP/1.1 200 OK\r\n"

EARLY = b"HTTP/1.1 103 Early\r\n"

READ = 16 * 1024


def outcome(data: bytes, size: int = READ) -> str:
    """Feed a head in reads of this size; return the error message, or the bytes after the head."""
    reader = HeadReader()
    for start in range(0, len(data), size):
        try:
            head = reader.feed(data[start : start + size])
        except HeadError as error:
            return str(error)
        if head is not None:
            return (reader.rest + data[start + size :]).decode()
    return "more is awaited"


@pytest.mark.parametrize("size", [1, 7, READ])
def test_lines_of_a_body_do_not_count(size: int) -> None:
    body = b"\n" * (2 * MAX_HEAD_LINES)
    assert outcome(STATUS + b"A: b\r\n\r\n" + body, size) == body.decode()


@pytest.mark.parametrize("size", [1, 5, READ])
@pytest.mark.parametrize("over", [0, 1])
def test_the_number_of_lines_of_a_head_is_bounded(over: int, size: int) -> None:
    lines = MAX_HEAD_LINES - 2 + over  # besides the status line and the blank line
    data = STATUS + b"a:\n" * lines + b"\r\nbody\n\n"
    assert outcome(data, size) == (TOO_MANY_LINES if over else "body\n\n")


def test_the_lines_of_informational_heads_count_together() -> None:
    early = EARLY + b"a:\n" * 500 + b"\r\n"
    assert outcome(early * 5 + STATUS + b"\r\nx") == "x"
    assert outcome(early * 10 + STATUS + b"\r\nx") == TOO_MANY_LINES


def test_the_bytes_of_informational_heads_count_together() -> None:
    early = EARLY + b"a: " + b"x" * 90_000 + b"\r\n\r\n"
    assert outcome(early * 5 + STATUS + b"\r\n") == HEAD_TOO_LARGE


HOSTILE = {
    "short lines": STATUS + b"a:\n" * 330_000,
    "short lines, twice": EARLY + b"a:\n" * 2000 + b"\n" + STATUS + b"a:\n" * 330_000,
    "folded lines": STATUS + b"a: b\n" + b" \n" * 500_000,
    "short informational heads": b"HTTP/1.1 103 \n\n" * 66_000,
    "informational heads of short lines": (EARLY + b"a:\n" * 1000 + b"\n") * 330,
    "one long line": STATUS + b"a: " + b"x" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("size", [100, READ])
def test_a_megabyte_of_heads_costs_a_bounded_amount(name: str, size: int) -> None:
    profile = cProfile.Profile()
    tracemalloc.start()
    try:
        profile.enable()
        error = outcome(HOSTILE[name], size)
        profile.disable()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "response head" in error or "informational" in error, error
    assert sum(entry.callcount for entry in profile.getstats()) < 400_000
    assert peak < 10 * MAX_HEAD_BYTES


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
