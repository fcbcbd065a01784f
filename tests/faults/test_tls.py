"""Faults of TLS (rows 57 to 63): the servers that the engine trusts, and that it sends nothing to any other."""

import contextlib
import datetime
import ssl
from pathlib import Path

import pytest
import trio
import trustme
from trio.testing import MockClock

import manystream as ms
from manystream.transport.tls import TLSConfig
from manystream.transport.tls_socket import TLSSocket
from tests.faults.servers import LOOPBACK, TLSLine, TLSServer, serving_tls, serving_tls_with
from tests.support.addresses import Names, answering
from tests.support.peers import (
    NO_RETRY,
    Line,
    Recorder,
    chat_answer,
    chat_chunk,
    chat_stream,
    hello,
    open_peer,
    stream_of,
    until,
)

STREAM = stream_of(*chat_stream("fine"))
SSE_UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
FOUR = ms.Retry(jitter=0)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def trust(ca: trustme.CA) -> TLSConfig:
    return TLSConfig(ca_data=ca.cert_pem.bytes().decode())


async def answer_all(line: TLSLine) -> None:
    while await line.request():
        await line.stream.send_all(line.records(STREAM))


async def call(url: str, tls: TLSConfig | None, retry: ms.Retry = FOUR) -> ms.Completion:
    provider = ms.OpenAIChat(api_key="sk-canary-secret", base_url=url)
    timeouts = ms.Timeouts(connect=5, first_byte=20, idle=10)
    async with ms.open_engine([provider], tls=tls, retry=retry, timeouts=timeouts, proxy="") as engine:
        return await engine.start_stream(hello()).wait()


async def refused(certificate: trustme.LeafCert, ca: trustme.CA, host: str) -> str:
    """Return the error's message, after a check that it is permanent and that no byte of the request was sent."""
    requests: list[bytes] = []

    async def script(line: TLSLine) -> None:
        requests.append(await line.request())

    async with serving_tls_with(certificate, script) as server:
        with answering(Names({host: [(LOOPBACK, server.port)]})):
            completion = await call(f"https://{host}:{server.port}/v1", trust(ca))
    assert requests in ([], [b""])  # in TLS 1.3 the server finishes before it learns that its certificate was refused
    assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.NETWORK, "tls")
    assert completion.attempts == 1
    return completion.error.message


async def test_an_unknown_authority(ca: trustme.CA) -> None:
    stranger = trustme.CA()
    assert "certificate verify failed" in await refused(stranger.issue_cert("api.test"), ca, "api.test")


@pytest.mark.parametrize(
    ("identities", "common_name", "host"),
    [
        (["other.test"], None, "api.test"),
        (["*.test.example"], None, "a.b.test.example"),
        (["*.test.example"], None, "test.example"),
        (["api.test"], None, LOOPBACK),
        (["127.0.0.2"], None, LOOPBACK),
        ([], "api.test", "api.test"),
        (["other.test"], "api.test\0.other.test", "api.test"),
    ],
)
async def test_another_name_s_certificate(
    identities: list[str], common_name: str | None, host: str, ca: trustme.CA
) -> None:
    certificate = ca.issue_cert(*identities, common_name=common_name)
    # Python 3.13 and newer refuse a certificate without names before they compare a name.
    words = ("mismatch",) if identities else ("mismatch", "names no host")
    message = await refused(certificate, ca, host)
    assert any(word in message for word in words), message


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("own", [False, True])
async def test_a_refused_client_certificate(own: bool, version: ssl.TLSVersion, ca: trustme.CA, tmp_path: Path) -> None:
    def require_certificate(server: TLSServer, context: ssl.SSLContext) -> None:
        context.maximum_version = version
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=ca.cert_pem.bytes().decode())

    trustme.CA().issue_cert("client@example.test").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "c"))
    shown = ms.ClientCertificate(str(tmp_path / "c")) if own else None
    tls = TLSConfig(ca_data=ca.cert_pem.bytes().decode(), client_certificate=shown)
    async with serving_tls_with(ca.issue_cert(LOOPBACK), answer_all, require_certificate) as server:
        completion = await call(server.url, tls)
    assert (completion.error_category, completion.attempts, server.connections) == (ms.ErrorCategory.NETWORK, 1, 1)
    message = completion.error_message or ""
    if own:
        assert "tlsv1 alert unknown ca (the server refused the client certificate: check TLSConfig(" in message
    elif version is ssl.TLSVersion.TLSv1_3:
        assert "TLS: tlsv13 alert certificate required (the server requires a client certificate: pass TLSC" in message
    assert "_ssl.c" not in message


@pytest.mark.parametrize(("days", "word"), [(-2, "expired"), (2, "not yet valid")])
async def test_an_expired_or_future_certificate(days: int, word: str, ca: trustme.CA) -> None:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    hour = datetime.timedelta(hours=1)
    certificate = ca.issue_cert("api.test", not_before=moment - hour, not_after=moment + hour)
    assert word in await refused(certificate, ca, "api.test")


@pytest.mark.parametrize(("host", "sent_name"), [("api.test", "api.test"), ("api.test.", "api.test"), (LOOPBACK, None)])
async def test_names_are_sent_as_sni_and_addresses_are_not(host: str, sent_name: str | None, ca: trustme.CA) -> None:
    async with serving_tls(ca, answer_all, "api.test", LOOPBACK) as server:
        with answering(Names({host: [(LOOPBACK, server.port)]})):
            completion = await call(f"https://{host}:{server.port}/v1", trust(ca))
    assert completion.success, completion
    assert server.names == [sent_name]


async def test_only_http_1_1_is_offered(ca: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    def prefers_h2(server: TLSServer, context: ssl.SSLContext) -> None:
        context.set_alpn_protocols(["h2", "http/1.1"])

    async with serving_tls(ca, answer_all, configure=prefers_h2) as server:
        assert (await call(server.url, trust(ca))).success
        assert server.protocols == ["http/1.1"]
        # OpenSSL reports a server that chooses a protocol that was not offered; otherwise the transport does.
        monkeypatch.setattr(TLSSocket, "selected_alpn_protocol", lambda _: "h2")
        completion = await call(server.url, trust(ca))
    assert (completion.error.provider_code, completion.attempts) == ("tls", 1)
    assert "the server chose 'h2'" in completion.error.message


async def test_plain_http_on_the_tls_port(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.stream.receive_some(1000)
        await line.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await line.closed_by_peer()

    async with open_peer(script) as peer:
        completion = await call(peer.url.replace("http:", "https:"), None)
    assert (completion.error.provider_code, completion.attempts) == ("tls", 1)
    assert "plain HTTP on this port? then write http://" in completion.error.message


async def test_tls_on_the_plain_port(ca: trustme.CA, autojump_clock: MockClock) -> None:
    async with serving_tls(ca, answer_all) as server:
        completion = await call(server.url.replace("https:", "http:"), None)
    assert completion.error is not None
    assert completion.error_category is ms.ErrorCategory.NETWORK
    # Some servers send an alert, which is recognised; others close without one.
    assert any(
        words in completion.error.message for words in ("TLS on this port? use https://", "without sending a response")
    )


async def test_the_connect_timeout_covers_a_stalled_handshake(autojump_clock: MockClock) -> None:
    async with open_peer(lambda line: line.closed_by_peer()) as peer:
        started = trio.current_time()
        completion = await call(peer.url.replace("http:", "https:"), None, NO_RETRY)
        assert trio.current_time() - started == pytest.approx(5, rel=0.1)
    assert (completion.error_category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "connect")
    assert "TLS handshake with" in completion.error.message
    assert completion.error.retryable


UNCLEAN: list[tuple[str, bytes, bool]] = [
    ("framed and whole", STREAM, True),
    ("whole, the last chunk missing", stream_of(*chat_stream("fine"), end=False), True),
    ("framed and cut", stream_of(chat_chunk("fine"), end=False), False),
    ("until close, whole", SSE_UNTIL_CLOSE + "".join(chat_stream("fine")).encode(), True),
    ("until close, no terminal marker", SSE_UNTIL_CLOSE + chat_chunk("fine").encode(), False),
]


@pytest.mark.parametrize(("wire", "whole"), [row[1:] for row in UNCLEAN], ids=[row[0] for row in UNCLEAN])
async def test_an_end_without_close_notify_does_not_end_a_body(wire: bytes, whole: bool, ca: trustme.CA) -> None:
    """TCP ends without TLS's close_notify alert: an attacker between both sides could have cut the response there."""

    async def script(line: TLSLine) -> None:
        await line.request()
        await line.stream.send_all(line.records(wire))

    recorder = Recorder()
    async with serving_tls(ca, script) as server:
        provider = ms.OpenAIChat(api_key="k", base_url=server.url)
        async with ms.open_engine([provider], tls=trust(ca)) as engine:
            completion = await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    assert completion.success is whole
    assert recorder.text == "fine"
    if not whole:
        assert completion.error_category is ms.ErrorCategory.NETWORK
        assert "truncated stream" in (completion.error_message or "")
        assert completion.attempts == 1  # an event was delivered


async def test_a_close_notify_ends_a_body_on_an_open_connection(ca: trustme.CA, autojump_clock: MockClock) -> None:
    """The kernel reports no further readiness then, so nothing else would wake the call."""

    async def script(line: TLSLine) -> None:
        await line.request()
        goodbye = line.records(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", chat_answer("fine").encode()
        )
        with contextlib.suppress(ssl.SSLWantReadError):
            line.tls.unwrap()
        await line.stream.send_all(goodbye + line.records())
        await line.receive()

    async with serving_tls(ca, script) as server:
        provider = ms.OpenAIChat(api_key="k", base_url=server.url)
        async with ms.open_engine([provider], tls=trust(ca), retry=NO_RETRY) as engine:
            started = trio.current_time()
            completion = await engine.start_request(hello()).wait()
            assert trio.current_time() - started < 1
    assert completion.success, completion
    assert completion.response.text == "fine"


async def test_a_truncated_unstreamed_response_is_an_error(ca: trustme.CA) -> None:
    async def script(line: TLSLine) -> None:
        await line.request()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
        await line.stream.send_all(line.records(head + b'{"id": "c1", "choices": [{"index": 0, "mess'))

    async with serving_tls(ca, script) as server:
        provider = ms.OpenAIChat(api_key="k", base_url=server.url)
        async with ms.open_engine([provider], tls=trust(ca), retry=NO_RETRY) as engine:
            completion = await engine.start_request(hello()).wait()
    assert not completion.success
    assert "perhaps early" in (completion.error_message or "")


def one_by_one(line: TLSLine) -> list[bytes]:
    return [line.records(STREAM[place : place + 1]) for place in range(len(STREAM))]


def all_together(line: TLSLine) -> list[bytes]:
    return [b"".join(one_by_one(line))]


def split_records(line: TLSLine) -> list[bytes]:
    data = line.records(STREAM)
    return [data[place : place + 7] for place in range(0, len(data), 7)]


def large_records(line: TLSLine) -> list[bytes]:
    texts = [f"{number:05} " * 3000 for number in range(20)]
    return [line.records(stream_of(*chat_stream(*texts, "fine")))]


@pytest.mark.parametrize("cut", [one_by_one, all_together, split_records, large_records])
async def test_records_cut_in_any_way_deliver_all_bytes(cut: object, ca: trustme.CA, autojump_clock: MockClock) -> None:
    async def script(line: TLSLine) -> None:
        while await line.request():
            for piece in cut(line):  # type: ignore[operator]
                await line.stream.send_all(piece)

    async with serving_tls(ca, script) as server:
        provider = ms.OpenAIChat(api_key="k", base_url=server.url)
        async with ms.open_engine([provider], tls=trust(ca), retry=NO_RETRY) as engine:
            for _ in range(2):
                completion = await engine.start_stream(hello()).wait()
                assert completion.success, completion
                assert completion.response.text.endswith("fine")
                # The last chunk arrives after the terminal marker.
                await until(lambda: all(origin.idle for origin in engine.statistics().connections.values()))
            assert engine.statistics().reused == 1
