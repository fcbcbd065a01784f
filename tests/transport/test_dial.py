"""Dialling: the address that wins, the message of each failure, and that no outcome leaves a socket open."""

import errno
import os
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

from manystream.transport import dial as dial_module
from manystream.transport.backend import Backend
from manystream.transport.dial import ATTEMPT_DELAY, SOCKET_OPTIONS, dial
from manystream.transport.errors import Phase, TransportError
from manystream.transport.proxy import parse_proxy_url
from manystream.transport.resolve import Address, Resolver, interleaved
from manystream.transport.tls import TLSConfig, make_context
from manystream.transport.tls_socket import TLSSocket
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


# --- happy eyeballs ---


def test_address_families_alternate_from_the_first_one() -> None:
    def addresses(text: str) -> list[Address]:
        return [
            Address(socket.AF_INET6, (name, 1, 0, 0)) if name.isupper() else Address(socket.AF_INET, (name, 1))
            for name in text
        ]

    def order(text: str) -> str:
        return "".join(str(address.sockaddr[0]) for address in interleaved(addresses(text)))

    assert order("") == ""
    assert order("a") == "a"
    assert order("abAB") == "aAbB"
    assert order("ABCa") == "AaBC"
    assert order("Aabc") == "Aabc"


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


async def test_a_lookup_without_descriptors_reports_exhaustion() -> None:
    with answering(Names({NAME: OSError(errno.EMFILE, os.strerror(errno.EMFILE))})):
        error = await failure(Origin("http", NAME, 80), Phase.DNS)
    assert str(error).startswith(f"cannot look up '{NAME}': EMFILE (Too many open files: this process has")
    assert not error.permanent


# --- names ---


@pytest.mark.parametrize(
    ("code", "permanent"),
    [(socket.EAI_NONAME, True), (socket.EAI_NODATA, True), (socket.EAI_AGAIN, False), (socket.EAI_FAIL, False)],
)
async def test_a_failed_lookup_is_permanent_only_for_an_unknown_host(code: int, permanent: bool) -> None:
    with answering(Names({NAME: socket.gaierror(code, "the resolver's words")})):
        error = await failure(Origin("http", NAME, 80), Phase.DNS)
    assert str(error) == f"cannot look up '{NAME}': the resolver's words"
    assert error.permanent is permanent


async def test_an_empty_result_is_a_failed_lookup() -> None:
    with answering(Names({NAME: []})):
        error = await failure(Origin("http", NAME, 80), Phase.DNS)
    assert "no address" in str(error)


async def test_localhost_is_looked_up_by_the_system() -> None:
    async with serving(echo) as port:
        with await dial(Origin("http", "localhost", port)) as sock:
            assert await echoes(sock)


async def test_concurrent_lookups_of_one_name_share_one_query(autojump_clock: MockClock) -> None:
    resolver, answers = Resolver(), list[list[Address]]()

    async def ask(name: str) -> None:
        answers.append(await resolver.resolve(name, 80))

    table: dict[str, list[tuple[str, int]] | OSError] = {NAME: [(LOOPBACK, 80)], "other.test": [("127.0.0.2", 80)]}
    with answering(Names(table, delay=5)) as names:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(ask, NAME)
            nursery.start_soon(ask, "other.test")
            await trio.testing.wait_all_tasks_blocked()
            assert repr(resolver) == "<Resolver running=2>"
        assert sorted(names.asked) == sorted([NAME, "other.test"])  # the scheduler decides which comes first
        assert answers.count([Address(socket.AF_INET, (LOOPBACK, 80))]) == 100
        await ask(NAME)
        assert names.asked[2:] == [NAME]
    assert repr(resolver) == "<Resolver running=0>"


async def test_a_failed_shared_lookup_names_each_caller_s_origin(autojump_clock: MockClock) -> None:
    resolver, errors = Resolver(), list[TransportError]()

    async def ask(origin: str) -> None:
        with pytest.raises(TransportError) as caught:
            await resolver.resolve(NAME, 80, origin=origin)
        errors.append(caught.value)

    with answering(Names({NAME: socket.gaierror(socket.EAI_NONAME, "unknown")}, delay=5)) as names:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ask, f"http://{number}")
    assert names.asked == [NAME]
    assert sorted(error.origin for error in errors) == ["http://0", "http://1", "http://2"]
    assert all(error.permanent for error in errors)


async def test_a_cancelled_lookup_is_repeated_for_the_next_caller(autojump_clock: MockClock) -> None:
    resolver, answers = Resolver(), list[list[Address]]()

    async def ask() -> None:
        answers.append(await resolver.resolve(NAME, 80))

    with answering(Names({NAME: [(LOOPBACK, 80)]}, delay=5)) as names:
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(2):
                nursery.start_soon(_later, 1, ask)
                nursery.start_soon(_later, 1, ask)
                await ask()
    assert names.asked == [NAME, NAME]
    assert len(answers) == 2


async def _later(seconds: float, function: Callable[[], Awaitable[None]]) -> None:
    await trio.sleep(seconds)
    await function()


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


async def test_cancelling_a_lookup_returns_at_once() -> None:
    with answering(Names({NAME: []}, delay=3600)):
        await cancelled_in(Phase.DNS, Origin("http", NAME, 80))


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
