"""Faults of connecting to a server (rows 47 to 56): addresses, names, descriptors, many calls at once, proxies."""

import errno
import json
import socket
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

import manystream as ms
from manystream.transport import dial
from tests.faults.servers import Proxy, TLSLine, open_proxy, serving_tls
from tests.support.addresses import BLACK_HOLE, LOOPBACK, Names, answering, black_hole, closed_port
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    hello,
    open_descriptors,
    open_peer,
    replies,
    reply_once,
    stream_of,
    until,
)

ROOT = Path(__file__).resolve().parent.parent.parent
STREAM = stream_of(*chat_stream("fine"))
FOUR = ms.Retry(jitter=0)
CONNECT = ms.Timeouts(connect=5)


def provider(host: str, port: int = 80, scheme: str = "http") -> ms.OpenAIChat:
    return ms.OpenAIChat(api_key="sk-canary-secret", base_url=f"{scheme}://{host}:{port}/v1", name="peer")


serve_soundly = replies(STREAM)


async def outcome(to: ms.OpenAIChat, retry: ms.Retry = NO_RETRY) -> tuple[ms.Completion, float]:
    """Make a call; return its completion and its duration, after a check that nothing is left open."""
    before = open_descriptors()
    async with ms.open_engine([to], proxy="", timeouts=CONNECT, retry=retry) as engine:
        started = trio.current_time()
        completion = await engine.start_stream(hello()).wait()
        elapsed = trio.current_time() - started
        await trio.testing.wait_all_tasks_blocked(0.001)
        assert completion.success or engine.statistics().connections == {}
    await until(lambda: open_descriptors() <= before + completion.success)  # the peer's end of a success
    return completion, elapsed


async def test_a_refused_connection(autojump_clock: MockClock) -> None:
    completion, _ = await outcome(provider(LOOPBACK, closed_port()), FOUR)
    assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.NETWORK, "connect")
    assert "ECONNREFUSED" in completion.error.message
    assert completion.attempts == 4  # nothing was sent: a retry is always safe
    assert completion.http_status == 0


async def test_a_black_hole(autojump_clock: MockClock) -> None:
    with black_hole() as port:
        completion, elapsed = await outcome(provider(BLACK_HOLE, port))
    assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "connect")
    assert completion.error.retryable
    assert elapsed == pytest.approx(5, rel=0.1)


@pytest.mark.parametrize("closed", [True, False])
async def test_a_dead_first_address_is_skipped(closed: bool, autojump_clock: MockClock) -> None:
    async with open_peer(serve_soundly) as peer:
        with black_hole() as hole:
            dead = ("::1", closed_port("::1")) if closed else (BLACK_HOLE, hole)
            with answering(Names({"two.test": [dead, (LOOPBACK, peer.port)]})):
                completion, elapsed = await outcome(provider("two.test"))
    assert completion.success
    assert elapsed < (0.05 if closed else 0.4)


async def test_when_all_addresses_fail_each_is_named(autojump_clock: MockClock) -> None:
    ports = [closed_port() for _ in range(3)]
    with answering(Names({"three.test": [(LOOPBACK, port) for port in ports]})):
        completion, _ = await outcome(provider("three.test"))
    assert completion.error.retryable
    for port in ports:
        assert f"{LOOPBACK}:{port} ECONNREFUSED" in completion.error.message


@pytest.mark.parametrize(
    ("answered", "attempts"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), 1),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), 4),
        ([], 1),
        (OSError(errno.EMFILE, "Too many open files"), 4),
        (RuntimeError("can't start new thread"), 4),
    ],
)
async def test_a_failing_lookup(
    answered: Exception | list[tuple[str, int]], attempts: int, autojump_clock: MockClock
) -> None:
    with answering(Names({"gone.test": answered})):
        completion, _ = await outcome(provider("gone.test"), FOUR)
    assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.NETWORK, "dns")
    assert "gone.test" in completion.error.message
    assert "defect" not in completion.error.message
    assert completion.attempts == attempts


async def test_the_connect_timeout_covers_a_slow_lookup(autojump_clock: MockClock) -> None:
    with answering(Names({"slow.test": []}, delay=1000)):
        completion, elapsed = await outcome(provider("slow.test"))
        assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "connect")
        assert "looking up" in completion.error.message
        assert elapsed == pytest.approx(5, rel=0.1)
        async with ms.open_engine([provider("slow.test")], proxy="") as engine:
            call = engine.start_stream(hello())
            await trio.sleep(1)
            call.cancel()
            with trio.fail_after(0.1):
                assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED


EXHAUSTION = """
    import json, resource, socket, sys, trio
    import manystream as ms

    async def main(port):
        ended = []
        provider = ms.OpenAIChat(api_key="k", base_url=f"http://127.0.0.1:{port}/v1")
        request = ms.Request("m", [ms.Message.user("x")], retry=ms.Retry(max_attempts=1))
        async with ms.open_engine([provider], proxy="") as engine:
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            calls = [engine.start_stream(request, None, ended.append) for _ in range(200)]
            for call in calls:
                await call.wait()
            # The server closes each connection after its answer, perhaps only when this call has taken it.
            again = ms.Request("m", [ms.Message.user("x")], retry=ms.Retry(max_attempts=2))
            after = await engine.start_stream(again).wait()
        print(json.dumps({
            "completions": len(ended),
            "successes": sum(completion.success for completion in ended),
            "messages": sorted({completion.error.message for completion in ended if completion.error}),
            "categories": sorted({completion.error_category for completion in ended if completion.error}),
            "after": after.success,
        }))

    trio.run(main, int(sys.argv[1]))
"""


async def test_without_descriptors_only_the_excess_calls_fail() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        await trio.sleep(1)
        await line.send(chunked(*chat_stream("fine")))

    async with open_peer(script) as peer:
        finished = await trio.run_process(
            [sys.executable, "-c", textwrap.dedent(EXHAUSTION), str(peer.port)], capture_stdout=True, cwd=ROOT
        )
    found = json.loads(finished.stdout)
    assert found["completions"] == 200
    assert 20 < found["successes"] < 64
    assert found["categories"] == ["network"]
    assert len(found["messages"]) == 1
    assert "EMFILE" in found["messages"][0]
    assert "ulimit -n" in found["messages"][0]
    assert found["after"]


BLIND = """
    import json, os, resource, trio, trio.testing
    import manystream as ms
    from manystream.transport.tls import TLSConfig, make_context

    async def main():
        provider = ms.OpenAIChat(api_key="k", base_url="https://127.0.0.1:9/v1")
        request = ms.Request("m", [ms.Message.user("x")], retry=ms.Retry(max_attempts=1))
        async with ms.open_engine([provider], proxy="") as engine:
            await trio.testing.wait_all_tasks_blocked()  # the engine imports what calls need
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
            without = await engine.start_stream(request).wait()
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            after = await engine.start_stream(request).wait()
        print(json.dumps([without.error.message, without.error.retryable, after.error.message]))
        kept, fresh = make_context(TLSConfig()), make_context.__wrapped__(TLSConfig())
        print(json.dumps(kept.cert_store_stats() == fresh.cert_store_stats()))

    trio.run(main)
"""


async def test_no_tls_context_is_created_without_a_free_descriptor() -> None:
    """OpenSSL would silently skip the CA files, and the context is cached for the life of the process."""
    finished = await trio.run_process([sys.executable, "-c", textwrap.dedent(BLIND)], capture_stdout=True, cwd=ROOT)
    reports, same = map(json.loads, finished.stdout.splitlines())
    assert "EMFILE" in reports[0]
    assert reports[1] is True
    assert "ECONNREFUSED" in reports[2]
    assert same


async def test_a_thousand_calls_stay_below_the_cap() -> None:
    most = 0

    async def script(line: Line) -> None:
        nonlocal most
        while await line.request():
            most = max(most, sum(other.stream.socket.fileno() >= 0 for other in peer.lines))
            await line.send(STREAM)

    order: list[int] = []
    limits = ms.EngineLimits(pool=ms.PoolLimits(max_connections=50))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=limits, retry=NO_RETRY) as engine:
        calls = [
            engine.start_stream(hello(), None, lambda _, number=number: order.append(number)) for number in range(1000)
        ]
        for call in calls[500:600]:
            call.cancel()  # gives up its place in the queue
        completions = [await call.wait() for call in calls]
        assert engine.statistics().opened <= 50
    assert sum(completion.success for completion in completions) == 900
    assert most <= 50
    waiting = [number for number in order if number >= 50 and not 500 <= number < 600]  # those that had to wait
    place_of = {number: place for place, number in enumerate(sorted(waiting))}
    assert max(abs(place - place_of[number]) for place, number in enumerate(waiting)) < 100  # first come, first served


async def test_the_total_timeout_covers_the_wait_in_the_queue(autojump_clock: MockClock) -> None:
    limits = ms.EngineLimits(pool=ms.PoolLimits(max_per_origin=1))
    clocks = ms.Timeouts(total=30)
    async with (
        open_peer(lambda line: trio.sleep_forever()) as peer,
        ms.open_engine([peer.chat], limits=limits, timeouts=clocks) as engine,
    ):
        engine.start_stream(hello(timeouts=ms.Timeouts(total=1000)))
        completion = await engine.start_stream(hello()).wait()
    assert (completion.error_category, completion.attempts) == (ms.ErrorCategory.TIMEOUT, 1)
    assert "total timeout" in (completion.error_message or "")
    assert "queued" in (completion.error_message or "")


async def test_many_short_connections_leak_nothing() -> None:

    async with open_peer(reply_once(STREAM.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))) as peer:
        before = open_descriptors()
        async with ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
            for _ in range(10):
                calls = [engine.start_stream(hello()) for _ in range(100)]
                assert all([(await call.wait()).success for call in calls])
            assert engine.statistics().opened == 1000
            assert engine.statistics().connections == {}
        await until(lambda: open_descriptors() == before)


async def test_an_error_says_that_no_port_is_left(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    class Portless(socket.socket):
        def connect_ex(self, address: object) -> int:
            return errno.EADDRNOTAVAIL

    class Shim:
        socket = Portless

        def __getattr__(self, name: str) -> object:
            return getattr(socket, name)

    monkeypatch.setattr(dial, "socket", Shim())
    completion, _ = await outcome(provider(LOOPBACK, 9), FOUR)
    assert "EADDRNOTAVAIL" in (completion.error_message or "")
    assert "no free local port" in (completion.error_message or "")
    assert completion.attempts == 4


# --- proxies ---

SECRETS = ("canary-user", "canary-word", "Y2FuYXJ5")


async def through(
    proxy: Proxy, to: ms.OpenAIChat, retry: ms.Retry = NO_RETRY, tls: ms.TLSConfig | None = None
) -> ms.Completion:
    async with ms.open_engine(
        [to], proxy=proxy.url_with("canary-user:canary-word"), retry=retry, timeouts=CONNECT, tls=tls
    ) as engine:
        completion = await engine.start_stream(hello()).wait()
        assert all(secret not in repr(engine) + repr(engine.statistics()) for secret in SECRETS)
    shown = f"{completion!r} {completion.error!r} {completion.error and completion.error.__cause__!r}"
    assert all(secret not in shown for secret in SECRETS)
    return completion


async def test_each_secret_goes_only_to_its_own_server() -> None:
    requests: list[bytes] = []

    async def script(line: TLSLine) -> None:
        while request := await line.request():
            requests.append(request)
            await line.stream.send_all(line.records(STREAM))

    ca = trustme.CA()
    trusted = ms.TLSConfig(ca_data=ca.cert_pem.bytes().decode())
    async with serving_tls(ca, script, "api.test") as server, open_proxy(upstream=server.port) as proxy:
        completion = await through(proxy, provider("api.test", 443, "https"), tls=trusted)
    assert completion.success, completion
    assert server.names == ["api.test"]
    assert proxy.heads[0].startswith(b"CONNECT api.test:443 HTTP/1.1\r\n")
    assert b"proxy-authorization: basic " in proxy.heads[0].lower()
    assert b"sk-canary" not in proxy.heads[0]
    assert b"proxy-authorization" not in requests[0].lower()


GARBAGE: list[tuple[bytes, str, int]] = [
    (b"HTTP/1.1 407 Auth\r\nContent-Length: 0\r\n\r\n", "407", 1),
    (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "403", 1),
    (b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n", "502", 4),
    (b"SSH-2.0-OpenSSH\r\n", "is not HTTP", 1),
    (b"HTTP/1.1 200 OK\r\n\r\nstray", "bytes after its response", 1),
    (b"", "closed the connection without a response", 4),
]


@pytest.mark.parametrize(("reply", "says", "attempts"), GARBAGE, ids=[says for _, says, _ in GARBAGE])
async def test_errors_of_a_proxy_are_shown(reply: bytes, says: str, attempts: int, autojump_clock: MockClock) -> None:
    async with open_proxy(reply=reply, leaves=not reply) as proxy:
        completion = await through(proxy, provider("api.test", 443, "https"), FOUR)
    assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.NETWORK, "proxy")
    assert f"proxy http://127.0.0.1:{proxy.port}" in completion.error.message
    assert says in completion.error.message
    assert completion.attempts == attempts
    assert completion.http_status == 0  # the status is the proxy's and not the provider's


async def test_the_connect_timeout_covers_a_proxy_that_hangs(autojump_clock: MockClock) -> None:
    async with open_proxy(reply=None) as proxy:
        completion = await through(proxy, provider("api.test", 443, "https"))
    assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "connect")
    assert "proxy tunnel" in completion.error.message


async def test_a_tunnel_that_is_reset_is_a_proxy_error(autojump_clock: MockClock) -> None:
    async with open_proxy(reply=b"HTTP/1.1 200 OK\r\n\r\n", resets=True) as proxy:
        completion = await through(proxy, provider("api.test", 443, "https"))
    assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.NETWORK, "proxy")
    assert "broke the tunnel" in completion.error.message


VARIABLES: list[tuple[Callable[[str], dict[str, str]], bool]] = [
    (lambda url: {"http_proxy": url}, True),
    (lambda url: {"HTTP_PROXY": url}, True),
    (lambda url: {"ALL_PROXY": url}, True),
    (lambda url: {"https_proxy": url}, False),
    (lambda url: {"http_proxy": url, "no_proxy": "other.test,.corp,[::1]"}, True),
    (lambda url: {"http_proxy": url, "NO_PROXY": LOOPBACK}, False),
    (lambda url: {"http_proxy": url, "no_proxy": "127.0.0.0/8"}, False),
    (lambda url: {"http_proxy": url, "no_proxy": "*"}, False),
    (lambda url: {"http_proxy": ""}, False),
]


@pytest.mark.parametrize(("variables", "proxied"), VARIABLES)
async def test_the_environment_s_proxy_is_used(variables: Callable[[str], dict[str, str]], proxied: bool) -> None:

    async with (
        open_peer(reply_once(answer(chat_answer("fine")))) as peer,
        open_proxy(upstream=peer.port) as proxy,
        ms.open_engine([peer.chat], environment=variables(proxy.url)) as engine,
    ):
        await engine.request(hello())
    assert len(proxy.heads) == proxied
