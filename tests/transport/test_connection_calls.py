"""A connection's system calls and its calls of the loop, one by one, on a socket that does what the test says."""

from typing import Any

import pytest

from manystream.transport.errors import Phase
from manystream.transport.exchange import WireHead
from manystream.transport.http1 import Connection, State
from manystream.transport.outgoing import Upload
from tests.support.exchanges import RecordedExchange

HEAD = WireHead(b"POST", b"/", [(b"Host", b"h")])
WIRE = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"


class Socket:
    """A socket. accept: how many bytes each `send` takes, or what it raises; all bytes after that."""

    def __init__(self) -> None:
        self.accept: list[int | Exception] = []
        self.sent: list[bytes] = []
        self.incoming: list[bytes | Exception] = []
        self.limits: list[int] = []
        self.is_closed = False

    def send(self, data: bytes) -> int:
        room = self.accept.pop(0) if self.accept else len(data)
        if isinstance(room, Exception):
            raise room
        self.sent.append(bytes(data[:room]))
        return min(room, len(data))

    def recv(self, size: int) -> bytes:
        self.limits.append(size)
        data = self.incoming.pop(0)
        if isinstance(data, Exception):
            raise data
        assert len(data) <= size
        return data

    def close(self) -> None:
        self.is_closed = True


class Loop:
    """A loop. log: what it was asked to watch; time: what its clock shows."""

    def __init__(self) -> None:
        self.time = self.now = 100.0
        self.log: list[str] = []
        self.bytes_sent = self.bytes_received = 0

    def clock(self) -> float:
        self.now = self.time
        return self.now

    def add(self, connection: Connection) -> None:
        self.log.append("add")

    def remove(self, connection: Connection) -> None:
        self.log.append("remove")

    def watch(self, connection: Connection, *, read: bool, write: bool) -> None:
        self.log.append("read" * read + " write" * write)


class Part:
    """A connection with its loop and socket. owner: what was reported to the owner."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.sock = Socket()
        self.owner: list[str] = []
        loop: Any = self.loop
        sock: Any = self.sock
        self.connection = Connection(
            sock, "http://h:80", loop, lambda _: self.owner.append("idle"), lambda _: self.owner.append("closed"),
            lambda _: self.owner.append("draining"),
        )  # fmt: skip
        self.loop.log.clear()

    def send(self, body: bytes = b"{}", head: WireHead = HEAD) -> RecordedExchange:
        exchange = RecordedExchange()
        self.connection.send(head, body, exchange, "call 1")
        return exchange

    def receive(self, *pieces: bytes | Exception) -> None:
        for piece in pieces:
            self.sock.incoming.append(piece)
            self.connection.on_readable()


@pytest.fixture
def part() -> Part:
    return Part()


def test_a_request_is_one_write_and_ends_with_its_response(part: Part) -> None:
    part.loop.time = 101.0
    exchange = part.send()
    connection = part.connection
    assert part.sock.sent == [WIRE]
    assert (connection.sent_at, connection.last_activity, connection.label) == (101.0, 101.0, "call 1")
    assert part.loop.bytes_sent == len(WIRE)
    part.loop.now = 102.0
    response = b"HTTP/1.1 200 Fine\r\nContent-Length: 3\r\n\r\nabc"
    part.receive(response[:20], response[20:])
    assert (exchange.status, exchange.body, exchange.ended) == (200, b"abc", 1)
    assert (connection.version, connection.reason, connection.received) == (b"1.1", b"Fine", len(response))
    assert (connection.last_activity, connection.idle_since, connection.served) == (102.0, 102.0, 1)
    assert (part.loop.bytes_received, part.loop.log, part.owner) == (len(response), [], ["idle"])
    part.send()
    assert (connection.received, connection.state) == (0, State.HEAD)


def test_a_connection_carries_any_number_of_exchanges(part: Part) -> None:
    for _ in range(1500):
        exchange = part.send()
        part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert exchange.ended
    assert part.connection.served == 1500


def test_a_request_that_the_kernel_takes_in_parts(part: Part) -> None:
    part.sock.accept = [10, BlockingIOError()]
    part.send()
    connection, reported = part.connection, list[str]()
    assert connection.notify_sent(lambda: reported.append("sent"))
    assert (part.sock.sent, part.loop.log, connection.sent_at) == ([WIRE[:10]], ["read write"], None)
    part.loop.now = part.loop.time = 103.0
    part.sock.accept = [5, BlockingIOError()]
    connection.on_writable()
    assert (connection.last_activity, connection.sent_at, reported) == (103.0, None, [])
    assert part.loop.log == ["read write"] * 2
    part.loop.time = 104.0
    connection.on_writable()
    assert (b"".join(part.sock.sent), connection.sent_at, connection.last_activity) == (WIRE, 104.0, 104.0)
    assert (part.loop.log[2:], reported, part.loop.bytes_sent) == (["read"], ["sent"], len(WIRE))
    assert not connection.notify_sent(lambda: reported.append("again"))
    connection.on_writable()
    assert reported == ["sent"]


@pytest.mark.parametrize(("size", "writes"), [(65536, 1), (65537, 2)])
def test_a_body_of_64_kib_is_sent_with_its_head(size: int, writes: int, part: Part) -> None:
    part.send(b"x" * size)
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size
    assert b"".join(part.sock.sent) == head + b"x" * size
    assert len(part.sock.sent) == writes


def test_a_mebibyte_is_sent_at_once(part: Part) -> None:
    body = b"x" * (2 * 1024 * 1024 + 5)
    part.send(body)
    head = len(part.sock.sent[0])
    assert [len(piece) for piece in part.sock.sent] == [head, 1024 * 1024 - head]
    assert part.loop.log == ["read write"]
    part.connection.on_writable()
    assert (len(part.sock.sent[2]), part.connection.sent_at) == (1024 * 1024, None)
    part.connection.on_writable()
    assert (len(part.sock.sent), len(part.sock.sent[3])) == (4, 5 + head)
    assert part.connection.sent_at == 100.0


def test_reads_grow_while_they_are_full(part: Part) -> None:
    part.send()
    full, larger = 16384, 131072
    begin = b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n"
    sizes = [full, larger, full, full - 1, full - 1, full]
    pieces = [begin + b"x" * (full - len(begin)), *(b"x" * size for size in sizes[1:])]
    part.receive(*pieces)
    part.receive(BlockingIOError(), InterruptedError())
    assert part.sock.limits == [full, larger, larger, larger, full, full, larger, larger]
    assert part.connection.state is State.BODY


@pytest.mark.parametrize("end", [b"", ConnectionResetError(), BrokenPipeError()], ids=["FIN", "RST", "EPIPE"])
@pytest.mark.parametrize(
    ("served", "accept", "unread"),
    [
        (1, [BrokenPipeError()], True),
        (1, [ConnectionResetError()], True),
        (1, [BlockingIOError()], True),
        (1, [BlockingIOError(), BrokenPipeError()], True),
        (1, [], False),
        (1, [1, BlockingIOError()], False),
        (1, [1, BrokenPipeError()], False),
        (0, [BrokenPipeError()], False),
        (0, [], False),
    ],
)
def test_a_request_is_unread_where_no_byte_was_written(
    served: int, accept: list[int | Exception], unread: bool, end: bytes | Exception, part: Part
) -> None:
    """However soon the connection ends: the server may have read what was written."""
    for _ in range(served):
        part.send()
        part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    part.sock.accept = list(accept)
    exchange = part.send()
    while part.sock.accept:
        part.connection.on_writable()
    part.receive(end)
    assert (exchange.error.unread, exchange.error.phase) == (unread, Phase.HEAD)
    assert (part.owner[-1], part.loop.log[-1], part.sock.is_closed) == ("closed", "remove", True)


def test_a_request_is_read_where_its_connection_sent_a_byte(part: Part) -> None:
    part.send()
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    part.sock.accept = [BrokenPipeError()]
    exchange = part.send()
    part.receive(b"H", b"")
    assert not exchange.error.unread


@pytest.mark.parametrize(("size", "closed"), [(2**60 - 1, False), (2**60, True)])
def test_a_body_larger_than_any_is_refused(size: int, closed: bool, part: Part) -> None:
    exchange = part.send()
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    assert part.connection.closed == closed
    if closed:
        assert exchange.error is not None
        assert f"malformed response: a body of {size} bytes" in str(exchange.error)
        assert exchange.error.protocol


@pytest.mark.parametrize(("size", "state"), [(65536, State.BODY), (65537, State.CLOSED)])
def test_64_kib_of_a_body_are_drained(size: int, state: State, part: Part) -> None:
    part.send()
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nx")
    part.connection.drain()
    assert part.owner == ["draining"]
    for _ in range(4):
        part.receive(b"x" * 16384)
    assert part.connection.state is State.BODY
    if size > 65536:
        part.receive(b"x")
    assert part.connection.state is state


def test_a_drained_body_that_ends_frees_the_connection(part: Part) -> None:
    part.send()
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nx")
    part.connection.pause()
    part.loop.time = 105.0
    part.connection.drain()
    assert (part.loop.log, part.connection.last_activity) == (["", "read"], 105.0)
    part.receive(b"yz")
    assert part.owner == ["draining", "idle"]


def test_a_body_that_ends_with_the_connection_is_not_drained(part: Part) -> None:
    part.send()
    part.receive(b"HTTP/1.1 200 OK\r\n\r\nx")
    part.connection.drain()
    assert (part.owner, part.loop.log) == (["closed"], ["remove"])
    part.connection.close()
    assert (part.owner, part.loop.log) == (["closed"], ["remove"])


def test_a_response_that_has_not_begun_is_not_drained(part: Part) -> None:
    part.send()
    part.connection.drain()
    assert (part.owner, part.loop.log) == (["closed"], ["remove"])


def test_a_paused_connection_reads_and_watches_nothing(part: Part) -> None:
    part.sock.accept = [1, BlockingIOError()]
    part.send()
    part.connection.pause()
    part.connection.pause()
    assert part.loop.log == ["read write", " write"]
    part.connection.on_writable()
    part.connection.resume()
    part.connection.resume()
    assert part.loop.log == ["read write", " write", "", "read"]
    part.connection.close()
    part.connection.pause()
    assert not part.connection.paused


def test_a_refusal_before_the_end_of_the_request_stops_it(part: Part) -> None:
    part.sock.accept = [1, BlockingIOError()]
    exchange = part.send()
    part.loop.time = 107.0
    part.receive(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno")
    assert (exchange.status, exchange.body, exchange.ended) == (400, b"no", 1)
    assert (part.connection.sent_at, part.owner) == (107.0, ["closed"])


def test_an_early_answer_does_not_stop_the_request(part: Part) -> None:
    part.sock.accept = [1, BlockingIOError()]
    part.send()
    part.receive(b"HTTP/1.1 399 Odd\r\nContent-Length: 2\r\n\r\nn")
    part.connection.on_writable()
    assert b"".join(part.sock.sent) == WIRE
    part.receive(b"o")
    assert part.owner == ["idle"]


def test_a_write_that_fails_is_reported_when_it_is_writable(part: Part) -> None:
    part.sock.accept = [OSError(99, "Cannot assign requested address")]
    exchange = part.send()
    assert (exchange.error, part.loop.log, part.connection.sent_at) == (None, ["read write"], 100.0)
    part.connection.on_writable()
    assert exchange.error is not None
    assert "sending failed: Cannot assign requested address" in str(exchange.error)
    assert (exchange.error.phase, part.owner) == (Phase.SEND, ["closed"])


def test_a_reset_found_by_a_write_is_reported_by_the_read(part: Part) -> None:
    part.sock.accept = [ConnectionResetError(104, "Connection reset by peer")]
    exchange = part.send()
    assert (exchange.error, part.loop.log) == (None, [])
    part.receive(b"")
    assert exchange.error is not None
    assert "Connection reset by peer" in str(exchange.error)


def test_bytes_on_an_idle_connection_close_it(part: Part) -> None:
    part.receive(b"x")
    assert (part.owner, part.sock.is_closed) == (["closed"], True)


def test_a_response_after_which_bytes_follow_is_the_last(part: Part) -> None:
    exchange = part.send()
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy")
    assert (exchange.body, exchange.ended, part.owner) == (b"x", 1, ["closed"])


def test_a_request_that_announced_the_end_closes(part: Part) -> None:
    part.send()
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx")
    part.connection.retire_after_response()
    part.receive(b"y")
    assert part.owner == ["closed"]


# --- a body in pieces ---


def upload(part: Part, size: int | None) -> Upload:
    return part.connection.send_streamed(HEAD, size, RecordedExchange(), "call 2")


def test_a_body_in_chunks_is_sent_piece_by_piece(part: Part) -> None:
    sending = upload(part, None)
    assert (part.connection.sent_at, sending.open, part.connection.label) == (None, True, "call 2")
    sending.send(b"x" * 26)
    sending.send(b"")
    sending.end()
    sending.end()
    sending.send(b"late")
    assert part.sock.sent == [
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1a\r\n" + b"x" * 26 + b"\r\n",
        b"0\r\n\r\n",
    ]
    assert (part.connection.sent_at, sending.open) == (100.0, False)
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert part.owner == ["idle"]


def test_a_body_of_a_known_length_has_no_chunks(part: Part) -> None:
    sending = upload(part, 5)
    part.sock.accept = [2, BlockingIOError()]
    sending.send(b"hello")
    reported: list[str] = []
    assert part.connection.notify_sent(lambda: reported.append("sent"))
    part.loop.now = 109.0
    part.connection.on_writable()
    assert (reported, part.connection.last_activity) == (["sent"], 100.0)
    sending.end()
    assert b"".join(part.sock.sent) == b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
    assert part.connection.sent_at == 100.0


def test_a_response_before_the_end_of_a_body_is_the_last(part: Part) -> None:
    sending = upload(part, None)
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert part.owner == ["closed"]
    assert not sending.open
