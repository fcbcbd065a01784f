"""Check without waiting whether an idle keep-alive connection can carry another request."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable

from .tls_socket import TLSSocket

POLL: Callable[[], select.poll] | None = getattr(select, "poll", None)
"""`select.poll`; None on Windows, which has none."""

PEEKED_BYTES = 16 * 1024
"""Bytes read from a TLS connection to see whether it delivers data."""


def is_quiet(sock: socket.socket | TLSSocket) -> bool:
    """Return whether an idle socket has nothing to read: no byte, no end of stream, no error. One system call.

    A byte on an idle connection belongs to no request; it would be read as the next response.
    """
    if isinstance(sock, socket.socket) and POLL is not None:
        # A `recv` that raises BlockingIOError takes three times as long when the caches are cold.
        poll = POLL()
        poll.register(sock, select.POLLIN)
        return not poll.poll(0)
    try:
        data = sock.recv(1, socket.MSG_PEEK) if isinstance(sock, socket.socket) else sock.recv(PEEKED_BYTES)
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
        return True  # nothing to read, or only records of TLS itself (session tickets)
    except OSError:
        return False
    del data  # bytes that belong to no request, or the end of the stream
    return False
