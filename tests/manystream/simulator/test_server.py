"""The server's sockets: how they are opened, what is read from them, what ends the loop, and that all are closed."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest

from manystream.http_server import HTTPRequest
from manystream.simulator import Knobs, Server, Settings
from manystream.simulator.program import Program
from manystream.simulator.service import ServiceSettings

from .raw_client import body_of, path_of, request_bytes
from .virtual_server import VirtualServer

PACED = Settings(service=ServiceSettings(knobs=Knobs(events=100, rate=8.0)))


def chat(directive: str = "") -> bytes:
    return request_bytes(path_of("openai-chat"), body_of("openai-chat", stream=True), directive=directive)


def test_a_server_listens_on_a_free_port_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[tuple[object, ...], dict[str, object]]] = []
    create = socket.create_server

    def create_server(*arguments: Any, **options: Any) -> socket.socket:
        calls.append((arguments, options))
        return create(*arguments, **options)

    monkeypatch.setattr(socket, "create_server", create_server)
    server = Server(Settings())
    thread = threading.Thread(target=server.run)
    thread.start()
    assert calls == [((("127.0.0.1", 0),), {"family": socket.AF_INET, "backlog": 4096})]
    assert server.host == "127.0.0.1"
    assert server.port > 0
    socket.create_connection((server.host, server.port)).close()
    server.stop()
    thread.join()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port))
    parts: list[Any] = [
        server.http.sock, server._waker, server._wakes,  # pyright: ignore[reportPrivateUsage]
    ]  # fmt: skip
    assert [part.fileno() for part in parts] == [-1, -1, -1]
    assert server.loop.selector.get_map() is None
    assert Settings() == Settings(host="127.0.0.1", port=0, service=ServiceSettings())


def test_the_listener_never_blocks() -> None:
    server = Server(Settings())
    assert server.http.sock.getblocking() is False
    server.http.on_readable()
    server._close()  # pyright: ignore[reportPrivateUsage]


def test_a_clients_socket_never_blocks_and_sends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = VirtualServer(monkeypatch)
    client = world.connect()
    seen: list[object] = []
    world.at(1.0, lambda: seen.append((client.pipe.getblocking(), list(client.pipe.options))))
    world.at(2.0, lambda: seen.append(world.server.statistics.connections))
    world.run()
    assert seen == [(False, [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]), 1]
    assert client.pipe.fileno() == -1
    assert client.closed_at == 2000


def test_the_loop_ends_when_the_watched_pipe_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    world = VirtualServer(monkeypatch, PACED)
    reader, writer = os.pipe()
    world.server.watch(reader)
    client = world.connect()
    client.send(chat())
    world.at(1.01, lambda: os.write(writer, b"anything"))
    world.at(1.51, lambda: os.close(writer))
    world.at(9.0, lambda: None)
    world.run()
    os.close(reader)
    assert client.times[-1] == 1501
    assert client.closed_at == 1510
    assert world.milliseconds == 1510


def test_a_server_that_stops_closes_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    world = VirtualServer(monkeypatch, PACED)
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        client.send(chat())
    world.at(0.6, world.server.stop)
    world.run()
    assert {(client.times[-1], client.closed_at) for client in clients} == {(501, 600)}
    assert (world.server.statistics.connections, world.server.statistics.most_live) == (0, 3)


def test_a_reading_that_fails_is_a_client_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    world = VirtualServer(monkeypatch, PACED)
    client = world.connect()
    client.send(chat())
    sizes: list[int] = []

    def break_line() -> None:
        def recv(size: int, flags: int = 0) -> bytes:
            sizes.append(size)
            raise ConnectionResetError if len(sizes) > 1 else BlockingIOError

        changed: Any = client.pipe
        changed.recv = recv
        client.send(b"x")

    world.at(0.3, break_line)
    world.run()
    assert sizes == [65_536, 65_536]
    assert world.server.statistics.aborted == 1
    assert client.closed_at == 300


def test_a_request_that_raises_costs_its_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = VirtualServer(monkeypatch, PACED)
    answer = world.server.service.answer

    def answer_or_raise(request: HTTPRequest) -> Program:
        if request.path == "/defect":
            raise ValueError("a defect")
        return answer(request)

    monkeypatch.setattr(world.server.service, "answer", answer_or_raise)
    client, other = world.connect(), world.connect()
    client.send(b"GET /defect HTTP/1.1\r\nhost: x\r\n\r\n")
    other.send(chat())
    world.run()
    received = b"".join(data for _, data in client.received)
    assert received.startswith(b"HTTP/1.1 500 ")
    assert b"the simulator raised ValueError" in received
    assert client.closed_at is not None
    assert other.times[-1] > 1000
    assert "a defect in the simulator" in caplog.text


def test_a_pause_of_the_socket_loses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    world = VirtualServer(monkeypatch, Settings(service=ServiceSettings(knobs=Knobs(events=5, rate=8.0))))
    client, other = world.connect(), world.connect()
    client.send(chat())
    other.send(chat())

    def block() -> None:
        client.pipe.blocks = 2

    world.at(0.3, block)
    world.run()
    assert client.received == other.received, "after the pause, no event is sent before its time"
    assert client.times == [0, 126, 251, 376, 501, 626, 751, 876]
    assert world.server.statistics.completed == 2
    assert world.server.statistics.bytes_sent == 2 * len(other.data)
