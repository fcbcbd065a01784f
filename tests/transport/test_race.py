"""Connection attempts to several addresses: when each begins, which wins, and what is closed. Time is virtual."""

import errno
import os
import socket
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from manystream.transport import dial as module
from manystream.transport.dial import dial
from manystream.transport.errors import TransportError
from manystream.transport.resolve import Address, Resolver
from manystream.transport.trio_backend import TRIO
from manystream.transport.url import Origin

ORIGIN = Origin("http", "h.test", 80)


class FakeSocket:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Addresses(Resolver):
    """A resolver that finds so many addresses."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    async def resolve(self, host: str, port: int, *, origin: str = "") -> list[Address]:
        return [Address(socket.AF_INET, (str(number), port)) for number in range(self.count)]


class Net:
    """A network. answers: for each address, when it answers after the attempt began, and whether it refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Sequence[tuple[float, bool]]) -> None:
        self.answers = answers
        self.begun: list[float] = []
        self.cancelled: list[int] = []
        self.sockets: dict[int, FakeSocket] = {}
        monkeypatch.setattr(module, "_connect_one", self.connect)

    async def connect(self, address: Address, backend: object) -> FakeSocket:
        number = int(address.sockaddr[0])
        self.begun.append(trio.current_time())
        seconds, refuses = self.answers[number]
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            self.cancelled.append(number)
            raise
        if refuses:
            raise OSError(errno.ECONNREFUSED, "Connection refused")
        self.sockets[number] = FakeSocket()
        return self.sockets[number]


@pytest.mark.parametrize(
    ("answers", "begun", "winner", "ended"),
    [
        ([(5, False)], [0], 0, 5),
        ([(0.2, False), (9, False)], [0], 0, 0.2),
        ([(0.3, False), (9, False), (9, False)], [0, 0.25], 0, 0.3),
        ([(9, False), (0.1, False), (9, False)], [0, 0.25], 1, 0.35),
        ([(0.1, True), (0.1, True), (0.1, False), (9, False)], [0, 0.1, 0.2], 2, 0.3),
        ([(0.4, True), (0.3, False), (9, False)], [0, 0.25, 0.5], 1, 0.55),
        ([(9, False), (9, False), (9, False)], [0, 0.25, 0.5], 0, 9),
    ],
)
async def test_each_attempt_begins_after_a_quarter_second_or_a_failure(
    answers: list[tuple[float, bool]],
    begun: list[float],
    winner: int,
    ended: float,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    net, start = Net(monkeypatch, answers), trio.current_time()
    found: object = await dial(ORIGIN, resolver=Addresses(len(answers)))
    assert found is net.sockets[winner]
    assert [round(at - start, 3) for at in net.begun] == begun
    assert trio.current_time() - start == pytest.approx(ended)
    assert [number for number, sock in net.sockets.items() if sock.is_closed] == []
    refused = {number for number in range(len(begun)) if answers[number][1]}
    assert set(net.cancelled) == set(range(len(begun))) - refused - {winner}


async def test_a_late_failed_attempt_ends_nothing(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    net = Net(monkeypatch, [(1, True), (2, True), (3, False)])
    found: object = await dial(ORIGIN, resolver=Addresses(3))
    assert found is net.sockets[2]


async def test_failures_are_listed_in_their_order(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    Net(monkeypatch, [(2, True), (1, True)])
    with pytest.raises(TransportError) as caught:
        await dial(ORIGIN, resolver=Addresses(2))
    refused = "ECONNREFUSED (Connection refused)"
    assert str(caught.value) == f"cannot connect to http://h.test:80: 1:80 {refused}; 0:80 {refused}"
    cause = caught.value.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert (cause.message, len(cause.exceptions)) == ("connection attempts", 2)


class Plain:
    """A socket that refuses these options."""

    def __init__(self, *refused: int) -> None:
        self.refused = refused
        self.set: list[tuple[int, int, int]] = []

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if option in self.refused:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        self.set.append((level, option, value))


def test_options_that_a_sandbox_refuses_are_left_out() -> None:
    options = list(module.SOCKET_OPTIONS)
    assert (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in options
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) in options
    every = Plain()
    module._set_options(every)  # type: ignore[arg-type]
    assert every.set == options
    some = Plain(socket.SO_KEEPALIVE)
    module._set_options(some)  # type: ignore[arg-type]
    assert [one for one in options if one[1] != socket.SO_KEEPALIVE] == [one for one in options if one in some.set]


async def test_a_connection_is_in_progress_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        sock = await module._connect_one(Address(socket.AF_INET, ("127.0.0.1", port)), TRIO)
        assert (sock.getpeername()[1], sock.getblocking()) == (port, False)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        sock.close()
    made: list[socket.socket] = []
    create = socket.socket

    def make(*arguments: int) -> socket.socket:
        made.append(create(*arguments))
        return made[-1]

    monkeypatch.setattr(module.socket, "socket", make)
    with pytest.raises(ConnectionRefusedError) as caught:
        await module._connect_one(Address(socket.AF_INET, ("127.0.0.1", port)), TRIO)
    assert caught.value.strerror == os.strerror(errno.ECONNREFUSED)
    assert [one.fileno() for one in made] == [-1]
