"""Compare the head reader with h11 at every split; and check the bounds that h11 does not have."""

import h11
import pytest

from manystream.transport.response_head import (
    MAX_HEAD_BYTES,
    MAX_HEADER_LINE_BYTES,
    MAX_INFORMATIONAL,
    HeadError,
    HeadReader,
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
