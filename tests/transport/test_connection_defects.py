"""A connection whose exchange raises, or offers a reader for whole events. The socket does what the test says."""

from typing import Any

import pytest

from tests.support.exchanges import RecordedExchange
from tests.transport.test_connection_calls import HEAD, Part


@pytest.fixture
def part() -> Part:
    return Part()


# --- defects ---


class Raising(RecordedExchange):
    """An exchange one of whose methods raises. log: the calls that it has received."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.log: list[str] = []
        self.method = method

    def note(self, method: str) -> None:
        self.log.append(method)
        if method == self.method:
            raise ValueError(f"a defect in {method}")

    def on_head(self, status: int, headers: Any) -> None:
        self.note("on_head")

    def on_body(self, data: bytes) -> None:
        self.note("on_body")

    def on_end(self) -> None:
        self.note("on_end")

    def on_failure(self, error: Any) -> None:
        self.note("on_failure")

    def on_defect(self, error: Exception) -> None:
        self.log.append(str(error))


@pytest.mark.parametrize(
    ("method", "log", "owner"),
    [
        ("on_head", ["on_head", "a defect in on_head"], ["closed"]),
        ("on_body", ["on_head", "on_body", "a defect in on_body"], ["closed"]),
        ("on_end", ["on_head", "on_body", "on_end", "a defect in on_end"], ["idle"]),
        ("on_failure", ["on_head", "on_body", "on_end"], ["idle"]),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_raising_exchange_is_ended(method: str, log: list[str], owner: list[str], chunked: bool, part: Part) -> None:
    exchange = Raising(method)
    part.connection.send(HEAD, b"{}", exchange)
    head = b"HTTP/1.1 200 OK\r\n"
    length = head + b"Content-Length: 2\r\n\r\nab"
    part.receive(head + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n" if chunked else length)
    assert (exchange.log, part.owner) == (log, owner)


def test_a_failure_that_raises_is_a_defect(part: Part) -> None:
    exchange = Raising("on_failure")
    part.connection.send(HEAD, b"{}", exchange)
    part.receive(b"")
    assert (exchange.log, part.owner) == (["on_failure", "a defect in on_failure"], ["closed"])


def test_a_defect_of_the_connection_ends_its_exchange(part: Part) -> None:
    exchange = Raising("")
    part.connection.send(HEAD, b"{}", exchange)
    part.connection.on_defect(ValueError("a defect"))
    part.connection.on_defect(ValueError("again"))
    assert (exchange.log, part.owner, part.loop.log) == (["a defect"], ["closed"], ["remove"])


def test_a_defect_while_it_is_retired_is_logged(part: Part, caplog: pytest.LogCaptureFixture) -> None:
    exchange = Raising("")
    part.connection.send(HEAD, b"{}", exchange)
    part.connection._on_idle = lambda _: 1 / 0  # type: ignore[assignment,return-value]
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert (exchange.log, part.owner) == (["on_head", "on_end"], ["closed"])
    (record,) = caplog.records
    assert record.getMessage() == "retiring <Connection http://h:80 closed, 1 served> raised: a defect in manystream"
    assert repr(part.connection) == "<Connection http://h:80 closed, 1 served>"


def test_valid_bytes_before_a_bad_chunk_are_delivered(part: Part) -> None:
    exchange = part.send()
    part.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n")
    assert exchange.body == b"ab"
    assert exchange.error is not None
    assert str(exchange.error) == "illegal chunk size line b'zz\\r\\n' [http://h:80]"


def test_a_body_without_a_length_ends_with_the_connection(part: Part) -> None:
    exchange = part.send()
    part.receive(b"HTTP/1.1 200 OK\r\n\r\nab", b"cd", b"")
    assert (exchange.body, exchange.ended, part.owner) == (b"abcd", 1, ["closed"])


def test_a_second_request_needs_an_idle_connection(part: Part) -> None:
    part.send()
    with pytest.raises(AssertionError):
        part.send()


# --- readers of whole events ---


class Fast(RecordedExchange):
    """An exchange that offers a reader for the bytes that follow. took: how much the reader reads of each piece."""

    def __init__(self, one_event: bool = True) -> None:
        super().__init__()
        self.one_event = one_event
        self.cut = False
        self.took: list[int] = []
        self.read_by: list[tuple[str, bytes, bool]] = []

    def on_body(self, data: bytes) -> Any:
        super().on_body(data)
        return self

    def read(self, data: bytes) -> int:
        self.read_by.append(("chunks", data, self.cut))
        return self.took.pop(0)

    def read_events(self, data: bytes) -> int:
        self.read_by.append(("events", data, self.cut))
        return self.took.pop(0)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "one_event", "reads"),
    [
        (b"1\r\na\r\n", True, [("chunks", b"1\r\nb\r\n", False)]),
        (b"1\r\na\r\n1\r\nb\r\n", True, [("chunks", b"1\r\nb\r\n", True)]),
        (b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n", True, []),
        (b"1\r\na\r\n", False, []),
        (b"1\r\na\r\n1\r\n", True, []),
    ],
)
def test_a_reader_gets_chunks_of_one_event(first: bytes, one_event: bool, reads: list[object], part: Part) -> None:
    exchange = Fast(one_event)
    part.connection.send(HEAD, b"{}", exchange)
    part.receive(CHUNKED, first)
    exchange.took = [6]
    part.receive(b"1\r\nb\r\n" if not first.endswith(b"\n1\r\n") else b"b\r\n")
    assert exchange.read_by == reads


def test_what_a_reader_leaves_is_read_in_the_usual_way(part: Part) -> None:
    exchange = Fast()
    part.connection.send(HEAD, b"{}", exchange)
    part.receive(CHUNKED, b"1\r\na\r\n")
    exchange.took = [6, 0]
    part.receive(b"1\r\nb\r\n1\r\nc\r\n", b"0\r\n\r\n")
    assert (exchange.pieces, exchange.ended, part.owner) == ([b"a", b"c"], 1, ["idle"])
    assert part.connection.fast_path is None


def test_a_reader_gets_the_events_of_a_body_without_chunks(part: Part) -> None:
    exchange = Fast(one_event=False)
    part.connection.send(HEAD, b"{}", exchange)
    part.receive(b"HTTP/1.1 200 OK\r\n\r\n", b"a")
    exchange.took = [1, 1]
    part.receive(b"b", b"cd")
    assert exchange.read_by == [("events", b"b", False), ("events", b"cd", False)]
    assert exchange.pieces == [b"a", b"d"]
    part.receive(b"")
    assert (exchange.ended, part.connection.fast_path) == (1, None)


def test_a_body_of_a_known_length_has_no_reader(part: Part) -> None:
    exchange = Fast()
    part.connection.send(HEAD, b"{}", exchange)
    part.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"a", b"b", b"c")
    assert (exchange.read_by, exchange.pieces, part.owner) == ([], [b"a", b"b", b"c"], ["idle"])
