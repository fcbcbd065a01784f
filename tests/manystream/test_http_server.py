"""The reader of HTTP/1.1 without sockets: whole requests, its limits, and its messages."""

from __future__ import annotations

import h11
import pytest

from manystream.http_server import BODY_LIMIT, HEAD_LIMIT, BadRequest, HTTPRequest, RequestReader


def read(data: bytes) -> HTTPRequest | None:
    reader = RequestReader()
    reader.feed(data)
    return reader.next_request()


def posted(lines: bytes, body: bytes = b"") -> bytes:
    return b"POST / HTTP/1.1\r\nHost: h\r\n" + lines + b"\r\n" + body


def test_the_limits_are_64_kib_and_64_mib() -> None:
    assert (HEAD_LIMIT, BODY_LIMIT) == (65_536, 67_108_864)


def test_a_request_is_read_whole() -> None:
    head = b"\r\n\r\nPUT /a%20b/%C3%A9?c=d%20e&f=&g=h&g=i HTTP/1.1\r\nHost:\r\n"
    data = head + b"X-One:  two \r\nx-one: Three\r\nY:\r\n\r\nrest"
    reader = RequestReader()
    reader.feed(data)
    request = reader.next_request()
    assert request == HTTPRequest(
        "PUT", "/a%20b/%C3%A9?c=d%20e&f=&g=h&g=i", {"host": "", "x-one": "Three", "y": ""}, body=b"", keep_alive=True
    )
    assert (request.path, request.query) == ("/a b/é", {"c": "d e", "g": "i"})
    assert reader.buffered == 4
    assert HTTPRequest("GET", "/", {}) == HTTPRequest("GET", "/", {}, b"", True)


@pytest.mark.parametrize(
    ("version", "connection", "keep"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: CLOSE, x\r\n", False),
        (b"1.1", b"Connection: keep-alive\r\n", True),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_the_version_and_a_header_say_whether_to_keep(version: bytes, connection: bytes, keep: bool) -> None:
    request = read(b"GET / HTTP/" + version + b"\r\nHost: h\r\n" + connection + b"\r\n")
    assert request.keep_alive is keep


@pytest.mark.parametrize(
    ("target", "expected", "host"),
    [
        (b"http://x:8/a?b=c", "/a?b=c", "x:8"),
        (b"http://x", "/", "x"),
        (b"/http://x/a", "/http://x/a", "given"),
        (b"*", "*", "given"),
    ],
)
def test_the_host_of_an_absolute_target_counts(target: bytes, expected: str, host: str) -> None:
    request = read(b"GET " + target + b" HTTP/1.1\r\nHost: given\r\n\r\n")
    assert (request.target, request.headers["host"]) == (expected, host)


def test_a_body_with_two_framings_is_read_and_closes() -> None:
    request = read(posted(b"Transfer-Encoding: chunked\r\nContent-Length: 9\r\n", b"2\r\nab\r\n0\r\n\r\n"))
    assert (request.body, request.keep_alive) == (b"ab", False)


BROKEN: list[tuple[bytes, int, str]] = [
    (b"GET /\r\n\r\n", 400, "the first line is not an HTTP/1.1 request line"),
    (b"GET / x HTTP/1.1\r\n\r\n", 400, "the first line is not an HTTP/1.1 request line"),
    (b"GET / HTTPS/1.1\r\n\r\n", 400, "the first line is not an HTTP/1.1 request line"),
    (b"GET / HTTP/1.1\r\n\r\n", 400, "there is no Host header, which HTTP/1.1 requires"),
    (posted(b"name\r\n"), 400, "a header line has no name"),
    (posted(b": value\r\n"), 400, "a header line has no name"),
    (posted(b"x: a\rHost: b\r\n"), 400, "the header 'x' has a control character"),
    (posted(b"x: a\nHost: b\r\n"), 400, "the header 'x' has a control character"),
    (posted(b"x: a\0b\r\n"), 400, "the header 'x' has a control character"),
    (posted(b"Host: a\r\nhost: b\r\n"), 400, "there are two host headers with different values"),
    (b"\x16\x03\x01\x02", 400, "the first line is not an HTTP/1.1 request line"),
    (b"GET / HTTP/1.1\nHost: a\n\n", 400, "a line does not end with CR and LF"),
    (b"\nGET / HTTP/1.1", 400, "the first line is not an HTTP/1.1 request line"),
    (posted(b" name: value\r\n"), 400, "a header line has no name"),
    (posted(b"name\t: value\r\n"), 400, "a header line has no name"),
    (posted(b"content-length: +1\r\n"), 400, "content-length '+1' is not a number"),
    (posted("content-length: ²\r\n".encode("latin-1")), 400, "content-length '²' is not a number"),
    (posted(b"content-length:\r\n"), 400, "content-length '' is not a number"),
    (posted(b"content-length: 67108865\r\n"), 413, "the request's body is longer than 67108864 bytes"),
    (posted(b"content-length: " + b"9" * 5000 + b"\r\n"), 413, "the request's body is longer than 67108864 bytes"),
    (posted(b"content-length: " + b"x" * 5000 + b"\r\n"), 400, f"content-length '{'x' * 40}' is not a number"),
    (posted(b"transfer-encoding: Gzip\r\n"), 501, "transfer-encoding 'gzip' is not supported"),
    (posted(b"transfer-encoding: chunked\r\n", b"g\r\n"), 400, "a chunk size is not a hexadecimal number"),
    (posted(b"transfer-encoding: chunked\r\n", b"-6\r\n"), 400, "a chunk size is not a hexadecimal number"),
    (posted(b"transfer-encoding: chunked\r\n", b"-1\r\n"), 400, "a chunk size is not a hexadecimal number"),
    (posted(b"transfer-encoding: chunked\r\n", b"\r\n"), 400, "a chunk size is not a hexadecimal number"),
    (posted(b"transfer-encoding: chunked\r\n", b"4000001\r\n"), 413,
        "the request's body is longer than 67108864 bytes"),
    (posted(b"transfer-encoding: chunked\r\n", b"0x4\r\n"), 400, "a chunk size is not a hexadecimal number"),
    (posted(b"transfer-encoding: chunked\r\n", b"1_0\r\n"), 400, "a chunk size is not a hexadecimal number"),
    (posted(b"transfer-encoding: chunked\r\n", b"+4\r\n"), 400, "a chunk size is not a hexadecimal number"),
    (posted(b"transfer-encoding: chunked\r\n", b"4\r\nbodyX\r\n0\r\n"), 400, "a chunk is longer than its size"),
    (posted(b"transfer-encoding: chunked\r\n", b"0" * 65_536), 400,
        "a line with a chunk size is longer than 65536 bytes"),
    (posted(b"transfer-encoding: chunked\r\n", b"0\r\nx: " + b"y" * 65_536), 431,
        "the request's trailers are longer than 65536 bytes"),
    (posted(b"content-length: 4\r\ncontent-length: 5\r\n"), 400,
        "there are two content-length headers with different values"),
    (posted(b"host: h\r\n"), 400, "there are two host headers"),
    (posted(b"transfer-encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400,
        "there are two transfer-encoding headers"),
    (posted(b"transfer-encoding: \x0bchunked\r\n"), 400, "the header 'transfer-encoding' has a control character"),
    (posted(b"transfer-encoding: chunked\r\n", b"1;a\nb\r\n"), 400, "a chunk size is not a hexadecimal number"),
    (b"x" * 65_537, 431, "the request's head is longer than 65536 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status", "message"), BROKEN)
def test_bytes_that_are_no_request_have_this_error(data: bytes, status: int, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(data)
    assert (caught.value.status, caught.value.message, str(caught.value)) == (status, message, message)


def test_a_head_may_be_as_long_as_the_limit() -> None:
    start, end = b"GET / HTTP/1.1\r\nHost: h\r\nx: ", b"\r\n\r\n"
    padding = b"y" * (HEAD_LIMIT - len(start))
    request = read(start + padding + end)
    assert request.headers == {"host": "h", "x": padding.decode()}
    with pytest.raises(BadRequest, match="head is longer"):
        read(start + padding + b"y" + end)
    assert read(b"x" * HEAD_LIMIT) is None
    reader = RequestReader()
    reader.feed(start + padding + b"y")
    with pytest.raises(BadRequest, match="head is longer"):
        reader.next_request()


def test_a_body_may_be_as_long_as_the_limit() -> None:
    assert read(posted(b"content-length: 67108864\r\n")) is None
    assert read(posted(b"transfer-encoding: chunked\r\n", b"4000000\r\n")) is None
    with pytest.raises(BadRequest, match="the request's body is longer"):
        read(posted(b"transfer-encoding: chunked\r\n", b"4000001\r\n"))


def test_the_limit_of_a_body_holds_for_all_chunks_together() -> None:
    first = posted(b"transfer-encoding: chunked\r\n", b"4\r\nbody\r\n")
    assert read(first + b"3fffffc\r\n") is None
    with pytest.raises(BadRequest, match="the request's body is longer than 67108864 bytes"):
        read(first + b"3fffffd\r\n")


def test_equal_lengths_and_spaces_after_a_size_are_read() -> None:
    request = read(posted(b"content-length: 4\r\nContent-Length: 4\r\n", b"body"))
    assert request.body == b"body"
    request = read(posted(b"content-length: " + b"0" * 5000 + b"4\r\n", b"body"))
    assert request.body == b"body"
    request = read(posted(b"transfer-encoding: chunked\r\n", b"4 \t;x\r\nbody\r\n000\r\n\r\n"))
    assert request.body == b"body"


def test_a_short_request_after_a_long_one_is_found() -> None:
    reader = RequestReader()
    reader.feed(b"GET / HTTP/1.1\r\nHost: h\r\nx: " + b"y" * 200)
    assert reader.next_request() is None
    reader.feed(b"\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert [request.target for _ in range(2) if (request := reader.next_request())] == ["/", "/2"]
    assert reader.next_request() is None


def test_chunks_are_joined_and_their_trailers_dropped() -> None:
    chunks = b"A;x=y\r\n0123456789\r\n1\r\n\n\r\n0;last\r\nTrailer: 1\r\n\r\nGET /"
    reader = RequestReader()
    reader.feed(posted(b"Transfer-Encoding: Chunked\r\ncontent-length: 3\r\n", chunks))
    request = reader.next_request()
    assert request.body == b"0123456789\n"
    assert reader.buffered == 5
    reader.feed(b" HTTP/1.1\r\nHost: h\r\n\r\n")
    following = reader.next_request()
    assert following == HTTPRequest("GET", "/", {"host": "h"})


@pytest.mark.parametrize("lines", [b"content-length: 4\r\n", b"transfer-encoding: chunked\r\n"])
def test_a_client_that_waits_to_continue_is_noticed(lines: bytes) -> None:
    reader = RequestReader()
    assert reader.expects_continue is False
    reader.feed(posted(b"Expect: 100-Continue\r\n" + lines))
    assert reader.next_request() is None
    assert reader.expects_continue
    reader.feed(b"4\r\nbody\r\n0\r\n\r\n" if b"chunked" in lines else b"body")
    request = reader.next_request()
    assert request.body == b"body"
    assert reader.expects_continue is False
    reader.feed(posted(b"expect: something\r\ncontent-length: 4\r\n"))
    assert reader.next_request() is None
    assert reader.expects_continue is False


PLACES: dict[str, tuple[bytes, bytes]] = {
    "before the method": (b"", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
    "in the method": (b"GE", b"T / HTTP/1.1\r\nHost: h\r\n\r\n"),
    "in the target": (b"GET /", b"a HTTP/1.1\r\nHost: h\r\n\r\n"),
    "in the version": (b"GET / HTTP/1.", b"1\r\nHost: h\r\n\r\n"),
    "after the version": (b"GET / HTTP/1.1", b"\r\nHost: h\r\n\r\n"),
    "in a name": (b"GET / HTTP/1.1\r\nHost: h\r\nx", b"y: z\r\n\r\n"),
    "before a colon": (b"GET / HTTP/1.1\r\nHost: h\r\nx", b": z\r\n\r\n"),
    "before a value": (b"GET / HTTP/1.1\r\nHost: h\r\nx: ", b"z\r\n\r\n"),
    "in a value": (b"GET / HTTP/1.1\r\nHost: h\r\nx: a", b"z\r\n\r\n"),
    "before a coding": (posted(b"transfer-encoding: ")[:-2], b"chunked\r\n\r\n0\r\n\r\n"),
    "after a coding": (posted(b"transfer-encoding: chunked")[:-2], b"\r\n\r\n0\r\n\r\n"),
    "before a length": (posted(b"content-length: ")[:-2], b"1\r\n\r\na"),
    "after a length": (posted(b"content-length: 1")[:-2], b"\r\n\r\na"),
    "before a size": (posted(b"transfer-encoding: chunked\r\n"), b"1\r\na\r\n0\r\n\r\n"),
    "after a size": (posted(b"transfer-encoding: chunked\r\n") + b"1", b"\r\na\r\n0\r\n\r\n"),
    "in an extension": (posted(b"transfer-encoding: chunked\r\n") + b"1;a", b"b\r\na\r\n0\r\n\r\n"),
    "after the last size": (posted(b"transfer-encoding: chunked\r\n") + b"0", b"\r\n\r\n"),
    "before a trailer": (posted(b"transfer-encoding: chunked\r\n") + b"0\r\n", b"x: y\r\n\r\n"),
    "in a trailer": (posted(b"transfer-encoding: chunked\r\n") + b"0\r\nx: y", b"z\r\n\r\n"),
    "after a chunk": (posted(b"transfer-encoding: chunked\r\n") + b"1\r\na", b"\r\n0\r\n\r\n"),
}


def h11_reads(data: bytes) -> bool:
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
    server.receive_data(data)
    try:
        while (event := server.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.EndOfMessage):
                return True
    except h11.RemoteProtocolError:
        pass
    return False


@pytest.mark.parametrize("place", PLACES)
def test_what_h11_does_not_read_is_not_read(place: str) -> None:
    """Each byte, and some pairs, in each place. h11 takes a line feed for a line end; this reader does not."""
    before, after = PLACES[place]
    accepted = []
    for added in [bytes([code]) for code in range(256)] + [b"\r\n", b"\n\r", b"\r\r", b" \x0b", b"\n ", b"\r\n "]:
        data = before + added + after
        try:
            request = read(data)
        except BadRequest:
            continue
        if request is not None and not h11_reads(data):
            accepted.append(added)
    assert accepted == ([b"\r\n"] if place == "before the method" else [])  # RFC 9112, 2.2


@pytest.mark.parametrize("line", [b"", b"1;" + b"a" * 60_000, b"3\r\nab", b"0\r\n" + b"x: y\r\n" * 9_000])
def test_no_byte_of_a_chunked_body_is_searched_twice(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(bytearray):
        searched = 0

        def find(self, sub: bytes, start: int = 0, end: int = -1) -> int:  # type: ignore[override]
            Counted.searched += min(len(self), end) - start
            return super().find(sub, start, end)

    reader = RequestReader()
    monkeypatch.setattr(reader, "_buffer", Counted())
    reader.feed(posted(b"transfer-encoding: chunked\r\n") + line)
    for _ in range(1_000):
        assert reader.next_request() is None
        reader.feed(b"a")
        if line.startswith(b"3"):
            break
    assert Counted.searched < 3 * len(line) + 10_000


def test_a_head_is_checked_once() -> None:
    """A body in dribbles behind a long query costs no more than its bytes."""
    reader = RequestReader()
    reader.feed(posted(b"content-length: 4\r\n"))
    assert reader.next_request() is None
    assert reader.take_head() is not None
    for byte in b"bod":
        reader.feed(bytes([byte]))
        assert reader.next_request() is None
        assert reader.take_head() is None
