"""Whether an idle keep-alive connection may carry another request: one look at its socket.

Knows what a socket tells without waiting. Must not know HTTP, nor who owns the connection.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable

from .tls_socket import TLSSocket

POLL: Callable[[], select.poll] | None = getattr(select, "poll", None)
"""Windows has no `poll`."""

PEEKED_BYTES = 16 * 1024


def is_quiet(sock: socket.socket | TLSSocket) -> bool:
    """Whether the peer has sent nothing: no byte, no end, no error. One system call.

    Any byte on an idle connection is one that nobody asked for, so it would be read as the next response.
    """
    if isinstance(sock, socket.socket) and POLL is not None:
        # An exception that says "nothing there" takes three times as long, from cold caches.
        poll = POLL()
        poll.register(sock, select.POLLIN)
        return not poll.poll(0)
    try:
        data = sock.recv(1, socket.MSG_PEEK) if isinstance(sock, socket.socket) else sock.recv(PEEKED_BYTES)
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
        return True  # nothing, or only TLS's own records (session tickets)
    except OSError:
        return False
    del data  # bytes nobody asked for, or the end
    return False
