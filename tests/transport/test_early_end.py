"""Responses that end early."""

from typing import Any

import pytest

from manystream.transport.errors import Phase
from tests.transport.test_connection_calls import Part
from tests.transport.test_dial import facts
from tests.transport.test_tls import RESET

BEGIN = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("received", "message", "phase", "true"),
    [
        ([b""], "server disconnected without sending a response", Phase.HEAD, {"eof"}),
        ([RESET], "connection broken: Connection reset by peer", Phase.HEAD, set()),
        ([b"HTT", b""], "connection closed before the response's end", Phase.HEAD, {"eof"}),
        ([BEGIN, b""], "connection closed 7 bytes before the body's end", Phase.BODY, {"eof"}),
        ([BEGIN, RESET], "connection broken: Connection reset by peer", Phase.BODY, set()),
        ([CHUNKED + b"5\r\nab", b""], "connection closed before the response's end", Phase.BODY, {"eof"}),
        ([CHUNKED + b"2\r\nabc"], "expected CR LF after a chunk, got b'c'", Phase.BODY, {"protocol"}),
        ([b"SSH-2.0-x\r\n"], "the response is not HTTP/1.1: b'SSH-2.0-x\\r\\n'", Phase.HEAD, {"protocol"}),
    ],
)
def test_a_response_that_ends_early(received: list[Any], message: str, phase: Phase, true: set[str]) -> None:
    part = Part()
    exchange = part.send()
    part.receive(*received)
    assert facts(exchange.error) == (f"{message} [http://h:80]", phase, "http://h:80", true | {"sent"})
