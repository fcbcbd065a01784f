"""The numbers of the transport: bounds that a server or a program can meet, and times."""

from __future__ import annotations

import pytest

from tests.support.tables import table

NUMBERS: dict[str, object] = {
    "chunked.MAX_CHUNK_BYTES": 1152921504606846975,
    "chunked.MAX_LINE_BYTES": 16384,
    "chunked.SIZES_KNOWN": 4096,
    "coalescing.ACCOUNT_LIMIT": 0.001,
    "coalescing.LEAST_GATHERED": 1.5,
    "coalescing.LONGEST_PAUSE": 0.001,
    "coalescing.WAKE_UP": 0.00006,
    "coalescing.WAKE_UP_SHARE": 0.1,
    "coalescing.WINDOW": 0.05,
    "dial.ATTEMPT_DELAY": 0.25,
    "dial.NAMED_ADDRESSES": 8,
    "early_end.STALE_ROUND_TRIPS": 2,
    "early_end.STALE_SECONDS": 0.05,
    "http1.DRAIN_BYTES": 65536,
    "http1.MAX_BODY_BYTES": 1152921504606846975,
    "http1.RECEIVE_BYTES": 16384,
    "http1.RECEIVE_BYTES_FULL": 131072,
    "loop.HELD_UP_SECONDS": 0.005,
    "loop.LAG_WINDOW": 1.0,
    "loop.MAX_FAILED_TICKS": 10,
    "loop.TICK_EVENTS": 256,
    "outgoing.JOINED_BYTES": 65536,
    "outgoing.SEND_BYTES": 1048576,
    "proxy.DEFAULT_PROXY_PORT": 80,
    "response_head.MAX_HEADER_LINE_BYTES": 98304,
    "response_head.MAX_HEAD_BYTES": 262144,
    "response_head.MAX_HEAD_LINES": 4096,
    "response_head.MAX_INFORMATIONAL": 1000,
    "sse.MAX_EVENT_BYTES": 33554432,
    "sse.STRAY_BYTES": 65536,
    "tls_socket.MAX_RECORD": 16384,
    "tunnel.HEAD_LIMIT": 16384,
    "url.HOST_LIMIT": 253,
}
"""Module and name → the number."""


@pytest.mark.parametrize("place", NUMBERS)
def test_a_bound_is_this_number(place: str) -> None:
    assert table(f"transport.{place}") == NUMBERS[place]
