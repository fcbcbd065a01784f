"""Lookups: shared, cancelled and failed."""

import errno
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from manystream.transport import resolve
from manystream.transport.dial import dial
from manystream.transport.errors import Phase, TransportError
from manystream.transport.resolve import LOCAL_HINTS, Address, Resolver, interleaved
from manystream.transport.url import Origin
from tests.support.addresses import (
    LOOPBACK,
    Names,
    answering,
    echo,
    echoes,
    serving,
)
from tests.transport.test_dial import NAME, cancelled_in, dial_failure, failure


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


async def test_cancelling_a_lookup_returns_at_once() -> None:
    with answering(Names({NAME: []}, delay=3600)):
        await cancelled_in(Phase.DNS, Origin("http", NAME, 80))


class FailingBackend:
    """A backend on which lookups end with this."""

    def __init__(self, found: object) -> None:
        self.found = found

    event = staticmethod(trio.Event)

    async def getaddrinfo(self, host: str, port: int) -> Sequence[object]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("found", "text", "true"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known", {"permanent"}),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary dial_failure"), "Temporary dial_failure", set()),
        (OSError(errno.EMFILE, "Too many"), f"EMFILE (Too many: {resolve.LOCAL_HINTS[errno.EMFILE]})", {"exhausted"}),
        (OSError(errno.EIO, "Input/output error"), "EIO (Input/output error)", set()),
        (UnicodeError("label too long"), "not a host name", {"permanent"}),
        ([], "the result contains no address", {"permanent"}),
        ([(socket.AF_INET6, 1, 6, "", (10, b"x"))], "the result contains no address", {"permanent"}),
    ],
)
async def test_a_failing_lookup(found: object, text: str, true: set[str]) -> None:
    resolver = Resolver(FailingBackend(found))  # type: ignore[arg-type]
    error = await dial_failure(lambda: resolver.resolve("h.test", 80, origin="http://h.test:80"))
    assert error == (f"cannot look up 'h.test': {text}", Phase.DNS, "http://h.test:80", true)
    assert repr(resolver) == "<Resolver running=0>"


async def test_a_lookup_without_a_descriptor_says_nothing_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    resolver = Resolver(FailingBackend(socket.gaierror(socket.EAI_NONAME, "Name unknown")))  # type: ignore[arg-type]
    monkeypatch.setattr(resolve.socket, "socket", none_left)
    *_, true = await dial_failure(lambda: resolver.resolve("h.test", 80))
    assert true == {"exhausted"}


async def test_addresses_are_tried_with_families_by_turns() -> None:
    entries = [
        (socket.AF_INET6, 1, 6, "", ("::1", 80, 0, 0)), (socket.AF_INET6, 1, 6, "", ("::2", 80, 0, 3)),
        (socket.AF_INET6, 1, 6, "", ("::1", 80, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", 80)),
    ]  # fmt: skip
    found = await Resolver(FailingBackend(entries)).resolve("h.test", 80)  # type: ignore[arg-type]
    assert found == [
        Address(socket.AF_INET6, ("::1", 80, 0, 0)),
        Address(socket.AF_INET, ("127.0.0.1", 80)),
        Address(socket.AF_INET6, ("::2", 80, 0, 3)),
    ]
    assert [str(address) for address in found] == ["[::1]:80", "127.0.0.1:80", "[::2]:80"]
    assert resolve.literal_address("::1", 80) == found[0]
    assert resolve.literal_address("127.0.0.1", 80) == found[1]
    assert resolve.literal_address("h.test", 80) is None


def test_the_hints_for_errors_of_this_machine() -> None:
    words = {
        errno.EMFILE: "process has no file descriptor left; raise `ulimit -n`",
        errno.ENFILE: "machine has no file descriptor left",
        errno.EADDRNOTAVAIL: "no free local port",
        errno.ENETUNREACH: "no route",
        errno.EACCES: "a rule of this machine forbids it",
        errno.EPERM: "a rule of this machine forbids it",
    }
    assert words.keys() == LOCAL_HINTS.keys()
    assert all(hint in LOCAL_HINTS[number] for number, hint in words.items())
