"""The framing of a response."""

import pytest

from manystream.transport.framing import CHUNKED, CLOSE, LENGTH, Framing, framing


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
