"""A response head means the same here as in h11's own parser, whatever bytes a server sends."""

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.transport.response_head import parse_head

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


@settings(derandomize=True, max_examples=400)
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
