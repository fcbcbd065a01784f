"""Dialling: the address that wins, the message of each failure, and that no outcome leaves a socket open."""

import errno
import os
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

from manystream.transport import dial as dial_module
from manystream.transport import dial as module
from manystream.transport.backend import Backend
from manystream.transport.dial import ATTEMPT_DELAY, SOCKET_OPTIONS, dial, dial_options
from manystream.transport.errors import Phase, TransportError
from manystream.transport.proxy import ProxyConfig, parse_proxy_url
from manystream.transport.resolve import Address, Resolver
from manystream.transport.tls import TLSConfig, make_context
from manystream.transport.tls_socket import TLSSocket
from manystream.transport.trio_backend import TRIO
from manystream.transport.url import Origin
from tests.support.addresses import (
    BLACK_HOLE,
    LOOPBACK,
    Names,
    TLSPeer,
    answering,
    black_hole,
    closed_port,
    echo,
    echoes,
    hang,
    open_sockets,
    serving,
)

pytestmark = pytest.mark.usefixtures("no_leak")

NAME = "api.example.test"

IPV6 = "::1"


async def failure(origin: Origin, phase: Phase) -> TransportError:
    """Dial and return the error with which the dial must end."""
    with pytest.raises(TransportError) as caught, trio.fail_after(5):
        await dial(origin)
    assert caught.value.phase is phase
    assert caught.value.origin == str(origin)
    assert not caught.value.sent
    return caught.value


# --- the result of a dial ---
async def test_a_socket_is_non_blocking_and_has_its_options() -> None:
    async with serving(echo) as port:
        with await dial(Origin("http", LOOPBACK, port)) as sock:
            assert type(sock) is socket.socket
            assert sock.gettimeout() == 0
            assert not sock.get_inheritable()
            assert await echoes(sock)
            for level, option, value in SOCKET_OPTIONS:
                assert sock.getsockopt(level, option) == value
    assert (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in SOCKET_OPTIONS
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) in SOCKET_OPTIONS
    assert (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60) in SOCKET_OPTIONS


@pytest.mark.parametrize("host", [LOOPBACK, IPV6])
async def test_an_address_is_dialled_without_a_lookup(host: str) -> None:
    phases = list[Phase]()
    async with serving(echo, host) as port:
        with answering(Names({})), await dial(Origin("http", host, port), on_phase=phases.append) as sock:
            assert await echoes(sock)
    assert phases == [Phase.CONNECT]


async def test_https_returns_a_tls_socket_after_its_handshake(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    peer, phases = TLSPeer(ca.issue_cert(NAME)), list[Phase]()
    async with serving(peer.serve) as port:
        with answering(Names({NAME: [(LOOPBACK, port)]})):
            origin = Origin("https", NAME, port)
            with await dial(origin, tls_context=trusting, on_phase=phases.append) as sock:
                assert isinstance(sock, TLSSocket)
                assert await echoes(sock)
    assert phases == [Phase.DNS, Phase.CONNECT, Phase.TLS]
    assert peer.names == [NAME]


async def test_https_without_a_context_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="needs a tls_context"):
        await dial(Origin("https", NAME, 443))


async def test_a_context_is_not_used_for_plain_http(trusting: ssl.SSLContext) -> None:
    async with serving(echo) as port:
        with await dial(Origin("http", LOOPBACK, port), tls_context=trusting) as sock:
            assert type(sock) is socket.socket


async def test_a_tls_error_names_the_origin(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    async with serving(TLSPeer(ca.issue_cert("other.example.test")).serve) as port:
        names = answering(Names({NAME: [(LOOPBACK, port)]}))
        with names, pytest.raises(TransportError, match=f"TLS with https://{NAME}:{port}: ") as caught:
            await dial(Origin("https", NAME, port), tls_context=trusting)
    assert caught.value.phase is Phase.TLS


async def test_a_dead_first_address_costs_one_attempt_delay() -> None:
    with black_hole() as dead:
        async with serving(echo) as port:
            with answering(Names({NAME: [(BLACK_HOLE, dead), (LOOPBACK, port)]})):
                before = trio.current_time()
                with await dial(Origin("http", NAME, port)) as sock:
                    took = trio.current_time() - before
                    assert sock.getpeername() == (LOOPBACK, port)
    assert ATTEMPT_DELAY <= took < ATTEMPT_DELAY + 5


async def test_a_refused_first_address_costs_no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial_module, "ATTEMPT_DELAY", 3600)
    async with serving(echo) as port:
        names = answering(Names({NAME: [(IPV6, closed_port(IPV6)), (LOOPBACK, port)]}))
        with names, trio.fail_after(10), await dial(Origin("http", NAME, port)) as sock:
            assert sock.getpeername() == (LOOPBACK, port)


async def test_the_first_to_connect_wins_and_the_others_are_closed() -> None:
    before = open_sockets()
    with black_hole() as dead:
        async with serving(hang) as port:
            table = {NAME: [(BLACK_HOLE, dead), (BLACK_HOLE, dead), (LOOPBACK, port), (LOOPBACK, port)]}
            with answering(Names(dict(table))):
                held = open_sockets()
                with await dial(Origin("http", NAME, port)):
                    await trio.testing.wait_all_tasks_blocked()
                    assert len(open_sockets() - held) == 2  # the client's and the server's
    assert open_sockets() <= before


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[trio.Event, list[socket.socket]]]:
    """Delay all connection attempts until the event is set: then all succeed in one iteration of the scheduler."""
    event, made = trio.Event(), list[socket.socket]()

    async def connect_at_the_gate(address: Address, _: Backend) -> socket.socket:
        await event.wait()
        made.append(socket.socket())
        return made[-1]

    monkeypatch.setattr(dial_module, "_connect_one", connect_at_the_gate)
    yield event, made
    for sock in made:
        sock.close()


async def test_of_two_connected_in_one_iteration_one_is_closed(
    gate: tuple[trio.Event, list[socket.socket]], autojump_clock: MockClock
) -> None:
    event, made = gate
    with answering(Names({NAME: [(LOOPBACK, 1), (LOOPBACK, 2)]})):
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def set_later() -> None:
                await trio.sleep(ATTEMPT_DELAY * 4)
                event.set()

            winner = await dial(Origin("http", NAME, 1))
    assert [sock.fileno() == -1 for sock in made] == [False, True]
    assert winner is made[0]


@pytest.mark.parametrize("seconds", [ATTEMPT_DELAY / 2, ATTEMPT_DELAY * 4])
async def test_a_dial_cancelled_as_it_connects_leaks_no_socket(
    gate: tuple[trio.Event, list[socket.socket]], autojump_clock: MockClock, seconds: float
) -> None:
    event, made = gate
    returned = list[socket.socket]()
    with answering(Names({NAME: [(LOOPBACK, 1), (LOOPBACK, 2)]})):
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def set_later() -> None:
                await trio.sleep(seconds)
                event.set()
                nursery.cancel_scope.cancel()

            returned.append(await dial(Origin("http", NAME, 1)))
    assert made
    assert [sock for sock in made if sock.fileno() != -1] == returned


# --- connections that fail ---
async def test_a_refused_connection_is_named_with_address_and_errno() -> None:
    port = closed_port()
    error = await failure(Origin("http", LOOPBACK, port), Phase.CONNECT)
    assert str(error) == (
        f"cannot connect to http://127.0.0.1:{port}: 127.0.0.1:{port} ECONNREFUSED (Connection refused)"
    )
    assert not error.permanent


async def test_when_every_address_fails_one_error_lists_them_all() -> None:
    ports = [closed_port(), closed_port(), closed_port(IPV6)]
    addresses = [(LOOPBACK, ports[0]), ("127.0.0.2", ports[1]), (IPV6, ports[2])]
    with answering(Names({NAME: list(addresses)})):
        error = await failure(Origin("http", NAME, 80), Phase.CONNECT)
    refused = "ECONNREFUSED (Connection refused)"
    assert str(error) == (
        f"cannot connect to http://{NAME}:80: "
        f"127.0.0.1:{ports[0]} {refused}; [::1]:{ports[2]} {refused}; 127.0.0.2:{ports[1]} {refused}"
    )
    assert repr(error.__cause__).count("ConnectionRefusedError") == 3


async def test_an_unreachable_proxy_is_named_without_its_password() -> None:
    port = closed_port()
    proxy = parse_proxy_url(f"http://canary-user:canary-password@127.0.0.1:{port}")
    with pytest.raises(TransportError, match=f"cannot connect to proxy http://127.0.0.1:{port} for https://") as caught:
        await dial(Origin("https", NAME, 443), tls_context=make_context(TLSConfig()), proxy=proxy)
    assert caught.value.phase is Phase.CONNECT
    assert "canary" not in repr(caught.value)


@pytest.fixture
def no_descriptors() -> Iterator[Callable[[], None]]:
    """Return a function that occupies all free file descriptors until the test ends."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def take_away() -> None:
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))

    yield take_away
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_a_dial_without_descriptors_reports_exhaustion(no_descriptors: Callable[[], None]) -> None:
    no_descriptors()
    error = await failure(Origin("http", LOOPBACK, 80), Phase.CONNECT)
    assert "EMFILE (Too many open files: this process has no file descriptor left; raise `ulimit -n`" in str(error)
    assert not error.permanent


# --- cancelling, at each step ---
async def cancelled_in(phase: Phase, origin: Origin, **options: object) -> None:
    """Dial, cancel when the step has begun and is blocked, and check that no socket was leaked."""
    before, phases = open_sockets(), list[Phase]()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def cancel_when_still() -> None:
            while not phases or phases[-1] is not phase:
                await trio.sleep(0.001)
            await trio.sleep(0.02)
            nursery.cancel_scope.cancel()

        await dial(origin, on_phase=phases.append, **options)  # type: ignore[arg-type]
    assert nursery.cancel_scope.cancelled_caught
    assert phases[-1] is phase
    # The server closes its end one iteration later; the client's end must be closed now.
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert open_sockets() <= before


@pytest.mark.parametrize("count", [1, 3])
async def test_cancelling_a_connection_attempt_leaves_no_socket(count: int) -> None:
    with black_hole() as dead, answering(Names({NAME: [(BLACK_HOLE, dead)] * count})):
        await cancelled_in(Phase.CONNECT, Origin("http", NAME, 80))


async def test_cancelling_a_tunnel_leaves_no_socket() -> None:
    async with serving(hang) as port:
        proxy = parse_proxy_url(f"http://127.0.0.1:{port}")
        await cancelled_in(Phase.PROXY, Origin("http", NAME, 80), proxy=proxy)


async def test_cancelling_a_handshake_leaves_no_socket(trusting: ssl.SSLContext) -> None:
    async with serving(hang) as port:
        await cancelled_in(Phase.TLS, Origin("https", LOOPBACK, port), tls_context=trusting)


async def test_a_dial_cancelled_before_it_begins_opens_nothing() -> None:
    async with serving(hang) as port:
        with trio.CancelScope() as scope:
            scope.cancel()
            await dial(Origin("http", LOOPBACK, port))
    assert scope.cancelled_caught


async def test_an_exception_from_on_phase_leaves_no_socket() -> None:
    def fail_at(wanted: Phase) -> Callable[[Phase], None]:
        def on_phase(phase: Phase) -> None:
            if phase is wanted:
                raise RuntimeError(phase)

        return on_phase

    async with serving(hang) as port:
        proxy = parse_proxy_url(f"http://127.0.0.1:{port}")
        for phase in (Phase.CONNECT, Phase.PROXY):
            with pytest.raises(RuntimeError):
                await dial(Origin("http", LOOPBACK, port), proxy=proxy, on_phase=fail_at(phase))


async def test_a_caller_s_timeout_ends_a_dial_to_a_black_hole() -> None:
    with black_hole() as dead:
        before = trio.current_time()
        with trio.move_on_after(0.2) as scope:
            await dial(Origin("http", BLACK_HOLE, dead))
    assert scope.cancelled_caught
    assert trio.current_time() - before < 5


PLAIN_ORIGIN = Origin("http", "h.test", 80)

SECURE = Origin("https", "h.test", 443)

PROXY = ProxyConfig(Origin("http", "p.test", 3128))

MEMBERS = ("unread", "protocol", "sent", "permanent", "exhausted", "eof")


def facts(error: BaseException | None) -> tuple[str, Phase, str, set[str]]:
    """Return an error's message, phase and origin, and the names of its members that are true."""
    assert isinstance(error, TransportError)
    return str(error), error.phase, error.origin, {name for name in MEMBERS if getattr(error, name)}


async def dial_failure(of: Callable[[], Awaitable[object]]) -> tuple[str, Phase, str, set[str]]:
    with pytest.raises(TransportError) as caught:
        await of()
    return facts(caught.value)


# --- dialling ---
def opens(result: object) -> Callable[[str, int], Awaitable[Any]]:
    async def connect(host: str, port: int) -> object:
        assert (host, port) == ("h.test", 80)
        if isinstance(result, Exception):
            raise result
        return result

    return connect


@pytest.mark.parametrize(
    ("result", "text", "true"),
    [
        (OSError(errno.ECONNREFUSED, "Connection refused"), "dial raised ECONNREFUSED (Connection refused)", set()),
        (ValueError("no such unit"), "dial raised ValueError: no such unit", {"permanent"}),
        (5, "dial must return a connected stream socket, not int", {"permanent"}),
    ],
)  # fmt: skip
async def test_an_error_of_the_program_s_own_dial(result: object, text: str, true: set[str]) -> None:
    found = await dial_failure(lambda: dial(PLAIN_ORIGIN, connect=opens(result)))
    assert found == (f"cannot connect to http://h.test:80: {text}", Phase.CONNECT, "http://h.test:80", true)


async def test_a_datagram_socket_is_no_connection() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        text, *_ = await dial_failure(lambda: dial(PLAIN_ORIGIN, connect=opens(sock)))
    assert text == "cannot connect to http://h.test:80: dial must return a connected stream socket, not socket"


async def test_the_program_s_own_dial_is_the_only_step() -> None:
    ours, theirs = socket.socketpair()
    phases: list[Phase] = []
    with theirs:
        sock = await dial(PLAIN_ORIGIN, connect=opens(ours), proxy=PROXY, on_phase=phases.append)
        assert sock is ours
        assert ours.getblocking() is False
        assert phases == [Phase.CONNECT]
        sock.close()
    with pytest.raises(ValueError, match="needs a tls_context"):
        await dial(SECURE)


@pytest.mark.parametrize(("count", "more"), [(8, ""), (9, "; and 1 more addresses"), (12, "; and 4 more addresses")])
async def test_eight_addresses_are_named(count: int, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(address: Address, backend: object) -> socket.socket:
        raise OSError(errno.EMFILE if address.sockaddr[0] == "10.0.0.9" else errno.ECONNREFUSED, "No")

    class Many(Resolver):
        async def resolve(self, host: str, port: int, *, origin: str = "") -> list[Address]:
            assert (host, port, origin) == ("p.test", 3128, "http://h.test:80")
            return [Address(socket.AF_INET, (f"10.0.0.{number}", 80)) for number in range(1, count + 1)]

    monkeypatch.setattr(dial_module, "_connect_one", refuse)
    phases: list[Phase] = []
    tried = "; ".join(f"10.0.0.{number}:80 ECONNREFUSED (No)" for number in range(1, 9))
    assert await dial_failure(lambda: dial(PLAIN_ORIGIN, resolver=Many(), proxy=PROXY, on_phase=phases.append)) == (
        f"cannot connect to proxy http://p.test:3128 for http://h.test:80: {tried}{more}", Phase.CONNECT,
        "http://h.test:80", {"exhausted"} if count > 8 else set(),
    )  # fmt: skip
    assert phases == [Phase.DNS, Phase.CONNECT]


def test_options_of_a_dial_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError) as caught:
        dial_options(PLAIN_ORIGIN, TLSConfig(), None, {"http_proxy": "socks5://p"})
    assert facts(caught.value)[1:] == (Phase.CONNECT, "http://h.test:80", {"permanent"})
    with pytest.raises(TransportError) as caught:
        dial_options(SECURE, TLSConfig(ca_file="/nonexistent/ca.pem"), PROXY, {})
    assert facts(caught.value) == (
        "cannot load the CA certificates of /nonexistent/ca.pem: No such file or directory", Phase.CONNECT,
        "https://h.test:443", {"permanent"},
    )  # fmt: skip

    def none_left(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(TransportError) as caught:
        dial_options(SECURE, TLSConfig(ca_data="never read"), None, {})
    assert facts(caught.value) == (
        "cannot set up TLS for https://h.test:443: EIO (Input/output error)", Phase.TLS, "https://h.test:443", set(),
    )  # fmt: skip
    assert dial_options(PLAIN_ORIGIN, TLSConfig(ca_file="/nonexistent"), PROXY, {"http_proxy": "x"}) == (None, PROXY)
    assert dial_options(PLAIN_ORIGIN, TLSConfig(), None, {"http_proxy": "http://p.test:3128"}) == (None, PROXY)


def test_the_keep_alive_options_are_these() -> None:
    """The socket options on Linux. Other systems have fewer of them, or other names."""
    wanted = [
        ("IPPROTO_TCP", "TCP_NODELAY", 1), ("SOL_SOCKET", "SO_KEEPALIVE", 1), ("IPPROTO_TCP", "TCP_KEEPIDLE", 60),
        ("IPPROTO_TCP", "TCP_KEEPALIVE", 60), ("IPPROTO_TCP", "TCP_KEEPINTVL", 60), ("IPPROTO_TCP", "TCP_KEEPCNT", 5),
        ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 120_000),
    ]  # fmt: skip
    here = [(getattr(socket, level), getattr(socket, name), value) for level, name, value in wanted
            if hasattr(socket, name)]  # fmt: skip
    assert [*SOCKET_OPTIONS] == here
    assert [*dial_module._SOCKET_OPTIONS] == wanted  # pyright: ignore[reportPrivateUsage]


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
