"""Whether an idle socket has nothing to read, with and without `poll`; and the event loop that runs."""

import socket
import ssl
from typing import Any

import pytest

from manystream.transport import http1
from manystream.transport.http1 import is_quiet


@pytest.mark.parametrize("poll", [True, False])
def test_a_byte_or_an_end_is_not_quiet(poll: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not poll:
        monkeypatch.setattr(http1, "POLL", None)
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        assert is_quiet(near)
        far.send(b"x")
        assert not is_quiet(near)
        assert not is_quiet(near), "the byte is not taken"
        assert near.recv(10) == b"x"
        assert is_quiet(near)
        far.close()
        assert not is_quiet(near)


class Secured:
    """A TLS connection whose `recv` does this."""

    def __init__(self, result: bytes | Exception) -> None:
        self.result = result

    def recv(self, size: int) -> bytes:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    ("result", "quiet"),
    [
        (b"", False),
        (b"x", False),
        (BlockingIOError(), True),
        (InterruptedError(), True),
        (ssl.SSLWantReadError(), True),
        (ConnectionResetError(), False),
        (ssl.SSLError(), False),
    ],
)
def test_a_tls_connection_is_read(result: bytes | Exception, quiet: bool) -> None:
    sock: Any = Secured(result)
    assert is_quiet(sock) == quiet
