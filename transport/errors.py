"""The errors of the transport: one exception type with the phase in which it happened."""

from __future__ import annotations

import enum


class Phase(enum.StrEnum):
    """The step of an exchange that was running."""

    QUEUE = "queue"
    DNS = "dns"
    CONNECT = "connect"
    PROXY = "proxy"
    TLS = "tls"
    SEND = "send"
    HEAD = "head"
    BODY = "body"


class TransportError(Exception):
    """A connection or an exchange failed. The message names the origin and never contains a header's value.

    phase: the step that failed.
    origin: `scheme://host:port`.
    unread: the server cannot have read the request: the end of a kept-alive connection was found before a byte of the
        request was written.
    protocol: the peer violated HTTP or TLS, as opposed to a connection that was lost.
    sent: any byte of the request may have reached the peer.
    permanent: the same attempt would fail again in the same way (a bad certificate, an unknown host).
    eof: the peer ended the connection in order, before the response was complete.
    exhausted: this process or this machine has no file descriptor left.
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
        eof: bool = False,
    ) -> None:
        super().__init__(message)
        self.phase = phase
        self.origin = origin
        self.unread = unread
        self.protocol = protocol
        self.sent = sent
        self.permanent = permanent
        self.exhausted = exhausted
        self.eof = eof


class URLError(ValueError):
    """A URL that cannot be used. The message gives the reason and contains no user name, password or query."""
