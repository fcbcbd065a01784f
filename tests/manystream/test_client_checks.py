"""What a client's transport checks before it sends a request, and which failure each error is."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from types import ModuleType

import pytest

import manystream as ms
from manystream.sdk_clients.client_transport import (
    ClientTransport,
    _checked_origin,
    _headers,
    _target,
    _timeouts,
    _trace,
)
from manystream.sdk_clients.faults import ClientTransportError, Fault, translated
from manystream.sdk_clients.transfer import BUFFERED_BYTES, NetworkStream, Timeouts
from manystream.transport.errors import Phase, TransportError
from manystream.transport.url import Origin

ORIGIN = Origin("https", "example.org", 443, "")


def checked(*headers: tuple[bytes, bytes]) -> tuple[list[tuple[bytes, bytes]], int | None, bool]:
    return _headers(headers, ORIGIN)


def test_headers_go_out_as_they_are_with_host_first() -> None:
    given = [(b"Accept", b"*/*"), (b"HOST", b"other.org"), (b"X-Empty", b""), (b"X-Bytes", b"\xe9\tx")]
    assert checked(*given) == ([given[1], given[0], *given[2:]], None, False)
    assert checked() == ([(b"Host", b"example.org")], None, False)
    assert _headers((), Origin("http", "example.org", 8080, ""))[0] == [(b"Host", b"example.org:8080")]


@pytest.mark.parametrize(
    ("value", "last"),
    [(b"close", True), (b"Close", True), (b"keep-alive, CLOSE ,x", True), (b"keep-alive", False), (b"closed", False)],
)
def test_a_connection_that_the_client_ends_is_noticed(value: bytes, last: bool) -> None:
    header = (b"Connection", value)
    assert checked(header) == ([(b"Host", b"example.org"), header], None, last)
    assert checked(header, (b"connection", b"x"))[2] is last


def test_the_length_of_a_body_is_read_and_left_out() -> None:
    assert checked((b"Content-Length", b"12"), (b"content-length", b"12")) == ([(b"Host", b"example.org")], 12, False)
    assert checked((b"Transfer-Encoding", b"Chunked"))[:2] == ([(b"Host", b"example.org")], None)
    assert checked((b"Content-Length", b"0"))[1] == 0
    assert checked((b"Content-Length", b"9" * 18))[1] == 10**18 - 1


LENGTH = "Content-Length is not a number, or there are two different ones"
ILLEGAL = "illegal value of the header 'X': it has a line break, a control character or outer white space"
WRONG: list[tuple[list[tuple[bytes, bytes]], str]] = [
    ([(b"Content-Length", b"-1")], LENGTH),
    ([(b"Content-Length", b"")], LENGTH),
    ([(b"Content-Length", b"9" * 19)], LENGTH),
    ([(b"Content-Length", b"1"), (b"Content-Length", b"2")], LENGTH),
    ([(b"Upgrade", b"h2c")], "Upgrade is not supported: this transport speaks HTTP/1.1 only"),
    ([(b"Transfer-Encoding", b"gzip")], "Transfer-Encoding is not supported, except for chunked"),
    ([(b"Host", b"a"), (b"host", b"a")], "the request has more than one Host header"),
    ([(b"a b", b"")], "illegal header name b'a b'"),
    ([(b"", b"")], "illegal header name b''"),
    ([(b":" * 99, b"")], f"illegal header name b'{':' * 60}'"),
    ([(b"A", b"fine"), (b"X", b"a\nb")], ILLEGAL),
    *(([(b"X", value)], ILLEGAL) for value in (b"a\rb", b"\0", b"\x7f", b"\x1f", b" a", b"a ", b"\ta", b"a\t", b"\n")),
    ([(b"Y" * 99, b" ")], ILLEGAL.replace("X", "Y" * 60)),
]


@pytest.mark.parametrize(("headers", "words"), WRONG, ids=repr)
def test_a_header_that_http_forbids_is_refused_in_words(headers: list[tuple[bytes, bytes]], words: str) -> None:
    with pytest.raises(ClientTransportError) as caught:
        checked(*headers)
    assert (caught.value.fault, str(caught.value)) == (Fault.LOCAL, words)


FORBIDDEN = "the method or the request target has a character that HTTP forbids"


@pytest.mark.parametrize(
    ("method", "scheme", "host", "fault", "words"),
    [
        (b"GET", "ftp", b"h", Fault.UNSUPPORTED, "the scheme 'ftp' is not supported: use https:// or http://"),
        (b"GET", "x" * 30, b"h", Fault.UNSUPPORTED,
            f"the scheme '{'x' * 20}' is not supported: use https:// or http://"),
        (b"CONNECT", "http", b"h", Fault.LOCAL, "CONNECT is not supported: pass proxy= to Transport for a tunnel"),
        (b"G T", "http", b"h", Fault.LOCAL, FORBIDDEN),
        (b"", "http", b"h", Fault.LOCAL, FORBIDDEN),
        (b"GET", "http", b"", Fault.UNSUPPORTED, "the URL has no host"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_sent(method: bytes, scheme: str, host: bytes, fault: Fault, words: str) -> None:
    with pytest.raises(ClientTransportError) as caught:
        _checked_origin(method, (scheme, host, None, b"/"), {})
    assert (caught.value.fault, str(caught.value)) == (fault, words)


@pytest.mark.parametrize(
    ("scheme", "port", "extensions", "expected"),
    [
        ("https", None, {}, Origin("https", "h", 443, "")),
        ("http", None, {}, Origin("http", "h", 80, "")),
        ("http", 0, {"sni_hostname": None}, Origin("http", "h", 0, "")),
        ("https", 8443, {"sni_hostname": "a.org"}, Origin("https", "h", 8443, "a.org")),
        ("https", 8443, {"sni_hostname": b"b.org"}, Origin("https", "h", 8443, "b.org")),
    ],
)
def test_where_a_request_goes(scheme: str, port: int | None, extensions: dict[str, object], expected: Origin) -> None:
    found = _checked_origin(b"PATCH", (scheme, b"h", port, b"/"), extensions)
    assert found == expected
    assert found is _checked_origin(b"GET", (scheme, b"h", port, b"/x"), extensions)


def test_a_target_is_the_urls_or_the_clients_own() -> None:
    assert (_target(b"/a?b", {}), _target(b"/a", {"target": b"*"})) == (b"/a?b", b"*")
    for url, extensions in ((b"/a b", {}), (b"", {}), (b"/", {"target": "/x"}), (b"/", {"target": b"\xe9"})):
        with pytest.raises(ClientTransportError) as caught:
            _target(url, extensions)
        assert (caught.value.fault, str(caught.value)) == (Fault.LOCAL, FORBIDDEN)


def test_the_timeouts_of_a_client() -> None:
    given = {"pool": 1, "connect": 2.5, "read": None, "write": "x"}
    assert _timeouts({"timeout": given}) == Timeouts(pool=1, connect=2.5, read=math.inf, write=math.inf)
    assert _timeouts({"timeout": {"read": 3, "write": 4}}) == Timeouts(math.inf, math.inf, read=3, write=4)
    assert _timeouts({"timeout": 5}) == _timeouts({}) == Timeouts(math.inf, math.inf, math.inf, math.inf)
    for name in ("pool", "connect", "read", "write"):
        with pytest.raises(ClientTransportError, match=f"the timeout '{name}' must be a number of seconds, not NaN"):
            _timeouts({"timeout": {**given, name: math.nan}})
    with pytest.raises(ms.InvalidRequestError, match=r"limits\.idle_expiry"):
        ClientTransport(ms.PoolLimits(idle_expiry=math.nan), None, None, True, {})
    assert (_trace({"trace": print}), _trace({"trace": 3}), _trace({})) == (print, None, None)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("how", ["lost", "protocol", "eof"])
def test_which_failure_an_error_of_the_transport_is(phase: Phase, how: str) -> None:
    error = TransportError("words", phase=phase, protocol=how == "protocol", eof=how == "eof")
    plain = {"proxy": Fault.PROXY, "send": Fault.WRITE, "head": Fault.READ, "body": Fault.READ}.get(
        phase, Fault.CONNECT
    )
    expected = Fault.REMOTE if how == "eof" or (how == "protocol" and plain is Fault.READ) else plain
    found = translated(error)
    assert (found.fault, str(found), found.__cause__) == (expected, "words", error)


def test_the_words_of_faults() -> None:
    assert [fault.value for fault in Fault] == [
        "pool timeout", "connect timeout", "write timeout", "read timeout", "connect", "proxy", "write", "read",
        "remote protocol", "local protocol", "unsupported protocol", "defect",
    ]  # fmt: skip
    assert BUFFERED_BYTES == 262_144


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limits": 3}, "limits must be a manystream.PoolLimits, not int"),
        ({"tls": "x"}, "tls must be a manystream.TLSConfig, not str"),
        ({"proxy": 3}, "proxy must be a URL as text, not int"),
        ({"proxy": ms.PoolLimits()}, "proxy must be a URL as text, not manystream.PoolLimits"),
        ({"colour": 3}, "Transport has no option 'colour'"),
        ({"uds": "x"}, "Transport has no option 'uds': a Unix socket is not supported"),
    ],
)
def test_a_wrong_option_is_refused_in_words(adapter: ModuleType, options: dict[str, object], words: str) -> None:
    with pytest.raises(TypeError) as caught:
        adapter.Transport(**options)
    assert str(caught.value) == words


async def closed_at_once(transport: ClientTransport) -> str:
    await transport.close()
    await transport.close()
    return repr(transport)


async def test_a_transport_says_what_it_is(adapter: ModuleType) -> None:
    transport = adapter.Transport(proxy="http://127.0.0.1:9", trust_env=False)
    assert repr(transport) == "<Transport unused>"
    assert await closed_at_once(transport._core) == "<Transport closed>"
    assert NetworkStream(None).get_extra_info("socket") is None


async def words_of(use: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(RuntimeError) as caught:
        await use()
    return str(caught.value)


async def ask(core: ClientTransport) -> object:
    return await core.send(b"GET", ("http", b"127.0.0.1", 9, b"/"), [], b"", {})


async def test_a_closed_transport_says_so() -> None:
    core = ClientTransport(None, None, None, False, {})
    await core.close()
    assert await words_of(lambda: ask(core)) == "this transport is closed: create a client with a new Transport()"


def test_a_transport_of_another_event_loop_says_so() -> None:
    core = ClientTransport(None, None, None, False, {})
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        with pytest.raises(ClientTransportError):
            first.run_until_complete(ask(core))
        assert second.run_until_complete(words_of(lambda: ask(core))) == (
            "this transport belongs to another event loop, which was not closed: create a client with its own"
            " Transport() for each event loop"
        )
        assert second.run_until_complete(words_of(core.close)) == (
            "this transport belongs to another event loop: close its client there"
        )
        assert repr(core).startswith("<Transport <Pool")
        first.run_until_complete(core.close())
        assert repr(core) == "<Transport closed>"
    finally:
        first.close()
        second.close()


def test_a_transport_without_an_event_loop_says_so() -> None:
    core = ClientTransport(None, None, None, False, {})
    with pytest.raises(RuntimeError) as caught:
        ask(core).__await__().send(None)  # type: ignore[attr-defined]
    assert str(caught.value) == ("this transport needs a running asyncio or trio event loop: use the async client")
