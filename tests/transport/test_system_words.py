"""Numbers and names of OpenSSL, the operating system and HTTP, compared with copies of their definitions."""

import errno
import socket

import pytest

from manystream.transport import dial
from manystream.transport.dial import SOCKET_OPTIONS
from manystream.transport.exchange import METHODS_WITH_BODY, WireHead
from manystream.transport.resolve import LOCAL_HINTS
from manystream.transport.tls import NOT_TLS_REASONS, VERIFY_HINTS
from manystream.transport.tunnel import STATUS_HINTS, TRANSIENT_STATUSES

CLOCK = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED (openssl/x509_vfy.h)."""

PRIVATE_CA = (18, 19, 20, 21)
"""DEPTH_ZERO_SELF_SIGNED_CERT, SELF_SIGNED_CERT_IN_CHAIN, UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
UNABLE_TO_VERIFY_LEAF_SIGNATURE."""

OTHER_NAME = (62, 64)
"""HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH."""

NO_NAME = (87,)
"""EMPTY_SUBJECT_ALT_NAME."""

STRICT = (80, 81, 82, 83, 84, 85, 86, 88, 89, 90, 91, 92, 93)
"""The other errors that OpenSSL reports under X509_V_FLAG_X509_STRICT only, from PATHLEN_INVALID_FOR_NON_CA to
EXTENSIONS_REQUIRE_VERSION_3."""


def test_every_verification_error_has_its_hint() -> None:
    words = {
        "clock": CLOCK, "CA is private": PRIVATE_CA, "name that is in the certificate": OTHER_NAME,
        "renew it with a subjectAltName": NO_NAME, "RFC 5280": STRICT,
    }  # fmt: skip
    assert {number for numbers in words.values() for number in numbers} == VERIFY_HINTS.keys()
    for word, numbers in words.items():
        assert all(word in VERIFY_HINTS[number] for number in numbers)


def test_the_hints_for_errors_of_this_machine() -> None:
    words = {
        errno.EMFILE: "process has no file descriptor left; raise `ulimit -n`",
        errno.ENFILE: "machine has no file descriptor left",
        errno.EADDRNOTAVAIL: "no free local port",
        errno.ENETUNREACH: "no route",
        errno.EACCES: "a rule of this machine forbids it",
        errno.EPERM: "a rule of this machine forbids it",
    }
    assert words.keys() == LOCAL_HINTS.keys()
    assert all(hint in LOCAL_HINTS[number] for number, hint in words.items())


def test_the_openssl_reasons_for_bytes_that_are_not_tls() -> None:
    reasons = {
        "BAD_RECORD_TYPE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL",
        "UNSUPPORTED_PROTOCOL", "WRONG_VERSION_NUMBER",
    }  # fmt: skip
    assert reasons == NOT_TLS_REASONS


def test_the_proxy_statuses_that_are_retried() -> None:
    assert {408, 425, 429, 500, 502, 503, 504} == TRANSIENT_STATUSES
    assert STATUS_HINTS.keys() == {403, 405}
    assert "rules" in STATUS_HINTS[403]
    assert "tunnels" in STATUS_HINTS[405]


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH"])
def test_an_empty_body_of_a_post_has_a_content_length(method: bytes) -> None:
    assert {b"POST", b"PUT", b"PATCH"} == METHODS_WITH_BODY
    head = WireHead(method, b"/", [(b"Host", b"h")])
    assert b"\r\ncontent-length: 0\r\n" in head.encode(0).lower()
    assert b"content-length" not in WireHead(b"GET", b"/", [(b"Host", b"h")]).encode(0).lower()


def test_the_keep_alive_options_are_these() -> None:
    """The socket options on Linux. Other systems have fewer of them, or other names."""
    wanted = [
        ("IPPROTO_TCP", "TCP_NODELAY", 1), ("SOL_SOCKET", "SO_KEEPALIVE", 1), ("IPPROTO_TCP", "TCP_KEEPIDLE", 60),
        ("IPPROTO_TCP", "TCP_KEEPALIVE", 60), ("IPPROTO_TCP", "TCP_KEEPINTVL", 60), ("IPPROTO_TCP", "TCP_KEEPCNT", 5),
        ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 120_000),
    ]  # fmt: skip
    here = [(getattr(socket, level), getattr(socket, name), value) for level, name, value in wanted
            if hasattr(socket, name)]  # fmt: skip
    assert [*SOCKET_OPTIONS] == here
    assert [*dial._SOCKET_OPTIONS] == wanted  # pyright: ignore[reportPrivateUsage]
