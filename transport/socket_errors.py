"""The `OSError`s of sockets that mean that the peer has ended the connection.

Knows the exceptions of `recv` and `send`. Must not know HTTP.
"""

from __future__ import annotations

PEER_RESET = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)
"""Exceptions of `recv` after the peer has ended the connection."""

PEER_GONE = (ConnectionError, TimeoutError)
"""Exceptions of `send` after the peer has ended the connection. Its response may have arrived before."""


def error_text(error: OSError) -> str:
    """Return the system's message for the error; the exception's name if there is none."""
    return error.strerror or type(error).__name__
