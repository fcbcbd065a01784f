"""What can go wrong on the way: one exception, its phase, and what is known about it.

Knows phases and sockets' errors. Must not know models, nor retry policy: it only says what happened, where,
and how far the exchange had come.
"""

from __future__ import annotations

import enum


class Phase(enum.StrEnum):
    """How far an exchange had come."""

    QUEUE = "queue"
    DNS = "dns"
    CONNECT = "connect"
    PROXY = "proxy"
    TLS = "tls"
    SEND = "send"
    HEAD = "head"
    BODY = "body"


class TransportError(Exception):
    """A connection or an exchange failed. The message names phase and origin, and never a header's value.

    phase: where. origin: `scheme://host:port`. reused: the connection had served before.
    received: response bytes that had arrived, up to the end of its head.
    protocol: the peer broke HTTP (rather than the line breaking).
    sent: whether any byte of the request may have reached the peer.
    permanent: the same attempt would fail the same way (a bad certificate, an unknown host).
    """

    def __init__(
        self,
        message: str,
        *,
        phase: Phase,
        origin: str = "",
        reused: bool = False,
        received: int = 0,
        protocol: bool = False,
        sent: bool = False,
        permanent: bool = False,
    ) -> None:
        super().__init__(message)
        self.phase = phase
        self.origin = origin
        self.reused = reused
        self.received = received
        self.protocol = protocol
        self.sent = sent
        self.permanent = permanent


class URLError(ValueError):
    """A base URL that cannot be used. The message says why and shows no user name, password or query."""
