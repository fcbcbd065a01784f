"""Whether an idle socket has nothing to read, with and without `poll`; and the event loop that runs."""

import asyncio
import socket
import ssl
from typing import Any

import pytest
import trio

from manystream.transport import http1
from manystream.transport.asyncio_backend import AsyncioBackend
from manystream.transport.http1 import is_quiet
from manystream.transport.running import EventLoop, running_event_loop
from manystream.transport.trio_backend import TrioBackend


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


# --- the event loop that runs ---


def test_the_event_loop_that_runs_is_known() -> None:
    assert running_event_loop() is None
    found: list[EventLoop] = []

    async def look() -> None:
        for _ in range(2):
            one = running_event_loop()
            assert not one.ended
            found.append(one)

    trio.run(look)
    asyncio.run(look())
    assert [one.ended for one in found] == [True] * 4
    assert found[0] == found[1]
    assert hash(found[0]) == hash(found[1])
    assert found[1] != found[2]
    assert found[2] == found[3]
    assert found[0] != "another thing"
    assert isinstance(found[0].backend(lambda error: None), TrioBackend)
    assert isinstance(found[2].backend(lambda error: None), AsyncioBackend)
