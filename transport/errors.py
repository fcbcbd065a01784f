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

    phase: where.
    origin: `scheme://host:port`.
    unread: the server cannot have read the request. A kept-alive connection ended so soon after the request was written
        that the end was already under way, and no byte of a response came.
    protocol: the peer broke HTTP (rather than the line breaking).
    sent: whether any byte of the request may have reached the peer.
    permanent: the same attempt would fail the same way (a bad certificate, an unknown host).
    exhausted: this process or this system has no descriptor left.
    """

    def __init__(
        self,
        message: str,
        *,
        phase: Phase,
        origin: str = "",
        unread: bool = False,
        protocol: bool = False,
        sent: bool = False,
        permanent: bool = False,
        exhausted: bool = False,
    ) -> None:
        super().__init__(message)
        self.phase = phase
        self.origin = origin
        self.unread = unread
        self.protocol = protocol
        self.sent = sent
        self.permanent = permanent
        self.exhausted = exhausted


class URLError(ValueError):
    """A base URL that cannot be used. The message says why and shows no user name, password or query."""
