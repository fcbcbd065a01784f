"""The steps of a connectivity check, with a clock that advances by a second at each look, and answers in pieces."""

import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
import trustme

import manystream as ms
from manystream.cli import connectivity
from manystream.cli.connectivity import Verdict, _Answer, check_provider
from manystream.transport.errors import Phase, TransportError
from manystream.transport.tls import TLSConfig, TLSConfigError

HOME = {"HOME": "/nonexistent", "MANYSTREAM_CREDENTIALS": ""}
KEY = "sk-canary-5ecret"


class Ticking:
    """Stands in for `trio`: each look at the clock is a second later than the last one."""

    def __init__(self) -> None:
        self.now = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(trio, name)

    def current_time(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture(autouse=True)
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectivity, "trio", Ticking())


@contextlib.asynccontextmanager
async def serve(
    *pieces: bytes, tls: ssl.SSLContext | None = None, silent: bool = True
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Open a server that answers with these pieces, each after the last one was received; then it is silent or ends.

    Yield the port and the list of the requests.
    """
    heads: list[bytes] = []

    async def answer(plain: trio.SocketStream) -> None:
        stream: trio.abc.Stream = plain if tls is None else trio.SSLStream(plain, tls, server_side=True)
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            heads.append(await stream.receive_some(65536))
            for piece in pieces:
                await stream.send_all(piece)
                await trio.testing.wait_all_tasks_blocked(0.02)
            if silent:
                await stream.receive_some(1)
        plain.socket.close()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, listeners)
        yield listeners[0].socket.getsockname()[1], heads
        nursery.cancel_scope.cancel()


async def shown(provider: ms.Provider, limit: float = 30.0, **environment: str) -> list[tuple[str, str, str]]:
    findings = await check_provider(provider, HOME | environment, limit)
    return [(finding.verdict.value, finding.step, finding.text) for finding in findings]


def head(status: str, length: int) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n".encode()


OK = head("200 OK", 2) + b"{}"


async def test_the_whole_list_of_findings_over_http() -> None:
    async with serve(OK) as (port, heads):
        found = await shown(ms.OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1"), OPENAI_API_KEY=KEY)
    assert found == [
        ("ok", "key", "from OPENAI_API_KEY"), ("ok", "proxy", "none"), ("ok", "connect", "in 1.00 s"),
        ("ok", "answer", "HTTP 200 in 1.00 s: the server answers, and accepted the key"),
    ]  # fmt: skip
    (request,) = heads
    line, *lines = request.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert line == "GET /v1/models HTTP/1.1"
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
    assert (headers["host"], headers["authorization"]) == (f"127.0.0.1:{port}", f"Bearer {KEY}")
    assert not {"content-type", "content-length", "transfer-encoding"} & headers.keys()


@pytest.mark.parametrize(("days", "verdict", "text"), [(90.4, "ok", "90 days"), (10.4, "note", "10 days")])
async def test_the_whole_list_of_findings_over_tls(
    days: float, verdict: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_after=ends).configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setattr(connectivity, "TLSConfig", lambda: TLSConfig(ca_file=str(tmp_path / "ca.pem")))
    async with serve(OK, tls=context) as (port, _):
        found = await shown(ms.OpenAIChat(KEY, f"https://127.0.0.1:{port}/v1"))
    assert found == [
        ("ok", "key", "from the credentials file"), ("ok", "proxy", "none"), ("ok", "connect", "in 1.00 s"),
        ("ok", "TLS", "in 1.00 s"), (verdict, "TLS", f"TLSv1.3, the certificate expires in {text}"),
        ("ok", "answer", "HTTP 200 in 1.00 s: the server answers, and accepted the key"),
    ]  # fmt: skip


async def test_a_body_is_read_until_it_is_too_long() -> None:
    async with serve(head("200 OK", 1 << 20), b"[" + b"x" * 16 * 1024) as (port, _):
        found = await shown(ms.OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1"))
    assert found[-1] == ("ok", "answer", "HTTP 200 in 1.00 s: the server answers")


async def test_a_message_that_comes_in_pieces_is_shown() -> None:
    body = b'{"padding": "' + b"x" * 12_000 + b'", "error": {"message": "Out of order."}}'
    answer = head("503 Service Unavailable", len(body)) + body
    async with serve(answer[:6000], answer[6000:]) as (port, _):
        found = await shown(ms.OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1"))
    assert found[-1] == ("FAIL", "answer", "HTTP 503 in 1.00 s: the server failed (Out of order.)")


async def test_a_body_that_is_cut_does_not_hide_the_status() -> None:
    async with serve(head("200 OK", 100) + b"{", silent=False) as (port, _):
        found = await shown(ms.OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1"))
    assert found[-1] == ("ok", "answer", "HTTP 200 in 1.00 s: the server answers")


async def test_a_server_that_hangs_up_fails() -> None:
    async with serve(silent=False) as (port, _):
        found = await shown(ms.OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1"))
    assert found[-1][:2] == ("FAIL", "answer")
    assert "127.0.0.1" in found[-1][2]


@pytest.mark.parametrize(
    ("kind", "path", "line"),
    [
        (ms.OpenAIResponses, "/x/responses", "GET /x/models HTTP/1.1"),
        (ms.OpenAIResponses, "/responses/x", "GET /responses/x/models HTTP/1.1"),
        (ms.Anthropic, "/messages/x", "GET /messages/x/v1/models HTTP/1.1"),
        (ms.Gemini, "/models/x", "GET /models/x/v1beta/models HTTP/1.1"),
    ],
)
async def test_only_the_end_of_a_path_is_replaced(kind: type[ms.Provider], path: str, line: str) -> None:
    async with serve(OK) as (port, heads):
        await shown(kind(KEY, f"http://127.0.0.1:{port}{path}"))
    assert heads[0].decode().partition("\r\n")[0] == line


async def test_the_proxy_is_used_and_shown() -> None:
    async with serve(b"HTTP/1.1 200 OK\r\n\r\n", OK) as (port, heads):
        found = await shown(ms.OpenAIChat(KEY, "http://example.test/v1"), http_proxy=f"http://127.0.0.1:{port}")
    assert found[1] == ("ok", "proxy", f"http://127.0.0.1:{port} (http_proxy)")
    assert [step for _, step, _ in found][:4] == ["key", "proxy", "connect", "tunnel"]
    assert heads[0].startswith(b"CONNECT example.test:80 HTTP/1.1\r\n")


async def test_a_base_url_that_is_none_fails_at_the_key() -> None:
    found = await shown(ms.OpenAIChat(KEY, "127.0.0.1:8080"))
    assert [(verdict, step) for verdict, step, _ in found] == [("FAIL", "key")]
    assert "base_url" in found[0][2]


def test_a_defect_of_the_exchange_is_its_failure() -> None:
    async def defect() -> _Answer:
        answer = _Answer()
        answer.on_defect(ValueError("secret"))
        await answer.ended.wait()
        return answer

    answer = trio.run(defect)
    assert (str(answer.failure), answer.failure.phase) == ("internal error: ValueError", Phase.BODY)


async def test_the_step_of_a_failure_is_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[Verdict, str, str]] = []
    for phase in (Phase.DNS, Phase.CONNECT, Phase.PROXY, Phase.TLS, Phase.SEND, Phase.HEAD, Phase.BODY):

        async def dial(*_: object, phase: Phase = phase, **__: object) -> Any:
            raise TransportError("no\x1b", phase=phase)

        monkeypatch.setattr(connectivity, "dial", dial)
        *_, last = await check_provider(ms.OpenAIChat(KEY, "http://127.0.0.1:1/v1"), HOME, 5.0)
        found.append((last.verdict, last.step, last.text))
    steps = ["DNS", "connect", "tunnel", "TLS", "answer", "answer", "answer"]
    assert found == [(Verdict.FAIL, step, "no\ufffd") for step in steps]


async def test_settings_that_cannot_be_used_fail_at_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await shown(ms.OpenAIChat(KEY, "http://h/v1"), http_proxy="ftp://p")
    assert [(verdict, step) for verdict, step, _ in found] == [("ok", "key"), ("FAIL", "proxy")]

    def make_context(_: TLSConfig) -> None:
        raise TLSConfigError("no such file")

    monkeypatch.setattr(connectivity, "make_context", make_context)
    *_, last = await shown(ms.OpenAIChat(KEY, "https://h/v1"))
    assert last == ("FAIL", "TLS", "no such file")


@pytest.mark.parametrize(
    ("seconds", "verdict", "days"),
    [(14 * 86400 - 1, Verdict.NOTE, 14), (14 * 86400, Verdict.NOTE, 14), (14 * 86400 + 1, Verdict.OK, 14)],
)
def test_a_certificate_is_a_note_for_two_weeks(
    seconds: int, verdict: Verdict, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = "Jan  5 09:34:43 2018 GMT"
    now = ssl.cert_time_to_seconds(ends) - seconds
    monkeypatch.setattr(connectivity, "time", SimpleNamespace(time=lambda: now))
    check = connectivity._ConnectivityCheck(ms.OpenAIChat(KEY), HOME)
    check._look_at_certificate(SimpleNamespace(expires=lambda: ends, version=lambda: "TLSv1.2"))  # type: ignore[arg-type]
    (finding,) = check.findings
    assert (finding.verdict, finding.text) == (verdict, f"TLSv1.2, the certificate expires in {days} days")


def test_a_certificate_without_an_end_is_not_reported() -> None:
    check = connectivity._ConnectivityCheck(ms.OpenAIChat(KEY), HOME)
    check._look_at_certificate(SimpleNamespace(expires=lambda: None))  # type: ignore[arg-type]
    assert check.findings == []
