"""The words and numbers of HTTP and TLS that the tables of the transport have.

They are copied from the RFCs and from OpenSSL. A new word needs a line here.
"""

from __future__ import annotations

import pytest

from tests.support.tables import table

TABLES: dict[str, object] = {
    "dial._SOCKET_OPTIONS": (
        ("IPPROTO_TCP", "TCP_NODELAY", 1),
        ("SOL_SOCKET", "SO_KEEPALIVE", 1),
        ("IPPROTO_TCP", "TCP_KEEPIDLE", 60),
        ("IPPROTO_TCP", "TCP_KEEPALIVE", 60),
        ("IPPROTO_TCP", "TCP_KEEPINTVL", 60),
        ("IPPROTO_TCP", "TCP_KEEPCNT", 5),
        ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 120000),
    ),
    "exchange.METHODS_WITH_BODY": {b"PATCH", b"POST", b"PUT"},
    "framing.BODILESS": {204, 205, 304},
    "headers.CONNECTION_HEADERS": {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    },
    "proxy.ENVIRONMENT_VARIABLES": {
        "https": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
        "http": ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"),
    },
    "sse.CLOSINGS": (b"\n\n", b"\r\n\r\n"),
    "tls.NOT_TLS_REASONS": {
        "BAD_RECORD_TYPE",
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "UNSUPPORTED_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    },
    "tunnel.TRANSIENT_STATUSES": {408, 425, 429, 500, 502, 503, 504},
    "url.DEFAULT_PORTS": {"http": 80, "https": 443},
    "response_head._FOLDS": (b"\n ", b"\n\t"),
}
"""Module and name of a table → its whole content."""


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_these_words_and_no_others(place: str) -> None:
    assert table(f"transport.{place}") == TABLES[place]
