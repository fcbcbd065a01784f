"""`open_engine(dial=…)`: the program opens the socket itself, over a Unix socket or to another host than the URL's."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.portal import open_portal
from tests.support.peers import Peer, answer, chat_answer, hello, open_peer, replies

ELSEWHERE = "http://models.invalid:8123/v1"
"""A host that DNS does not know: only `dial` can reach it."""


script = replies(answer(chat_answer("by another way")))


class Way:
    """A dial function that connects to the peer for any host and port, and records them."""

    def __init__(self, peer: Peer) -> None:
        self.address = ("127.0.0.1", int(peer.origin.rpartition(":")[2]))
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> socket.socket | trio.socket.SocketType:
        self.asked.append((host, port))
        sock = trio.socket.socket()
        await sock.connect(self.address)
        return sock


async def test_dial_gets_host_and_port_without_dns_or_proxy() -> None:
    async with open_peer(script) as peer:
        way, provider = Way(peer), ms.OpenAIChat("key", ELSEWHERE, name="sim")
        environment = {"http_proxy": "http://127.0.0.1:9"}
        async with ms.open_engine([provider], dial=way, environment=environment) as engine:
            for _ in range(2):
                assert (await engine.request(hello())).text == "by another way"
        assert way.asked == [("models.invalid", 8123)]  # the second call reused the connection


async def test_a_server_behind_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "server")

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer(chat_answer("from a file")))

    async def dial(host: str, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        return sock

    listening = trio.socket.socket(socket.AF_UNIX)
    await listening.bind(path)
    listening.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listening)])
        async with ms.open_engine([ms.OpenAIChat("key", ELSEWHERE)], dial=dial) as engine:
            assert (await engine.request(hello())).text == "from a file"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("fault", "message", "retried"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "dial raised ECONNREFUSED (Connection refused)", True),
        (ValueError("no such tunnel"), "dial raised ValueError: no such tunnel", False),
        (None, "dial must return a connected stream socket, not NoneType", False),
        (OSError("the tunnel is down"), "dial raised OSError: the tunnel is down", True),
        (trio.TooSlowError(), "dial raised TooSlowError", False),
    ],
    ids=["refused", "a mistake", "no socket", "no number", "no text"],
)
async def test_a_dial_that_fails_fails_the_attempt_with_the_reason(
    fault: Exception | None, message: str, retried: bool, autojump_clock: object
) -> None:
    async def dial(host: str, port: int) -> socket.socket:
        if fault is not None:
            raise fault
        return None  # type: ignore[return-value]

    async with ms.open_engine([ms.OpenAIChat("key", ELSEWHERE)], dial=dial) as engine:
        completion = await engine.start_request(hello()).wait()
    assert completion.error.category is ms.ErrorCategory.NETWORK
    assert message in completion.error.message
    assert "http://models.invalid:8123" in completion.error.message
    assert (completion.attempts > 1) is retried


async def test_a_dial_that_returns_a_closed_socket_is_named() -> None:
    async def dial(host: str, port: int) -> socket.socket:
        sock = socket.socket()
        sock.close()
        return sock

    async with ms.open_engine([ms.OpenAIChat("key", ELSEWHERE)], dial=dial) as engine:
        completion = await engine.start_request(hello()).wait()
    assert (completion.error_category, completion.attempts) == (ms.ErrorCategory.NETWORK, 1)
    assert "dial must return a connected stream socket, not a closed one" in (completion.error_message or "")


async def test_a_dial_that_is_not_async_is_named_and_its_socket_closed() -> None:
    opened: list[socket.socket] = []

    def dial(host: str, port: int) -> socket.socket:
        opened.append(socket.socket())
        return opened[0]

    async with ms.open_engine([ms.OpenAIChat("key", ELSEWHERE)], dial=dial) as engine:  # type: ignore[arg-type]
        completion = await engine.start_request(hello()).wait()
    assert (completion.error_category, completion.attempts) == (ms.ErrorCategory.NETWORK, 1)
    assert "dial must be an async function, but it returned socket" in (completion.error_message or "")
    assert opened[0].fileno() == -1


async def test_cancelling_a_call_cancels_its_dial() -> None:
    opening, cancelled = trio.Event(), trio.Event()

    async def dial(host: str, port: int) -> socket.socket:
        opening.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError("it slept")

    async with ms.open_engine([ms.OpenAIChat("key", ELSEWHERE)], dial=dial) as engine:
        call = engine.start_request(hello())
        await opening.wait()
        call.cancel()
        assert not (await call.wait()).success
    assert cancelled.is_set()


async def test_asyncio_and_portal_engines_accept_dial() -> None:
    async with open_peer(script) as peer:
        way, provider = Way(peer), ms.OpenAIChat("key", ELSEWHERE)

        def with_a_portal() -> str:
            with open_portal([provider], dial=way) as portal:
                return portal.request(hello()).text

        async def dial(host: str, port: int) -> socket.socket:
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, way.address)
            return sock

        async def on_asyncio() -> str:
            async with ms.open_engine([provider], dial=dial) as engine:
                return (await engine.request(hello())).text

        assert await trio.to_thread.run_sync(with_a_portal) == "by another way"
        assert await trio.to_thread.run_sync(asyncio.run, on_asyncio()) == "by another way"
