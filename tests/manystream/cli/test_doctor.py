"""The command `manystream doctor`: it names the step that fails and what to do, and never shows a key."""

import contextlib
import re
import ssl
from collections.abc import AsyncIterator

import pytest
import trio
import trustme
from trio.testing import MockClock

import manystream as ms
from manystream.cli.connectivity import Finding, Verdict, check_provider
from manystream.cli.doctor import choose_providers, configured_rows
from manystream.simulator import open_simulator_thread

CANARY = "sk-canary-5ecret"
HOME = {"HOME": "/nonexistent", "MANYSTREAM_CREDENTIALS": ""}
LIST = b'{"data": []}'


def answer(status: str, body: bytes = LIST, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


@contextlib.asynccontextmanager
async def server(
    response: bytes, seen: list[bytes], tls: ssl.SSLContext | None = None, call: bytes = b""
) -> AsyncIterator[int]:
    """Open a server that always sends the same answer, or never answers. `seen` collects the heads of the requests.

    call: the answer to a POST; empty if it is the same.
    """

    async def serve(plain: trio.SocketStream) -> None:
        stream: trio.abc.Stream = plain if tls is None else trio.SSLStream(plain, tls, server_side=True)
        head = b""
        try:
            while b"\r\n\r\n" not in head:
                data = await stream.receive_some(65536)
                if not data:
                    return
                head += data
            seen.append(head)
            if not response:
                await trio.sleep_forever()
            await stream.send_all(call if call and head.startswith(b"POST") else response)
            await stream.receive_some(1)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            plain.socket.close()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        try:
            yield listeners[0].socket.getsockname()[1]
        finally:
            nursery.cancel_scope.cancel()


def steps(findings: list[Finding]) -> list[str]:
    return [f"{finding.verdict.value} {finding.step}" for finding in findings]


async def checked(provider: ms.Provider, limit: float = 60.0, **environment: str) -> list[Finding]:
    """Check a provider and return the findings. Assert that none shows the key."""
    findings = await check_provider(provider, HOME | environment, limit)
    assert all(CANARY not in finding.text for finding in findings)
    return findings


PATHS = [
    (ms.OpenAIChat, "/v1", b"GET /v1/models HTTP/1.1", b"Authorization: Bearer"),
    (ms.OpenAIResponses, "/v1", b"GET /v1/models HTTP/1.1", b"Authorization: Bearer"),
    (ms.Anthropic, "", b"GET /v1/models HTTP/1.1", b"x-api-key:"),
    (ms.Gemini, "", b"GET /v1beta/models HTTP/1.1", b"x-goog-api-key:"),
    (ms.GeminiInteractions, "", b"GET /v1beta/models HTTP/1.1", b"x-goog-api-key:"),
]


@pytest.mark.parametrize(("kind", "path", "line", "header"), PATHS, ids=lambda value: getattr(value, "__name__", ""))
async def test_the_request_has_the_key_and_no_prompt(
    kind: type[ms.Provider], path: str, line: bytes, header: bytes
) -> None:
    seen: list[bytes] = []
    async with server(answer("200 OK"), seen) as port:
        findings = await checked(kind(CANARY, f"http://127.0.0.1:{port}{path}"))
    assert steps(findings) == ["ok key", "ok proxy", "ok connect", "ok answer"]
    assert findings[-1].text.endswith("the server answers, and accepted the key")
    (head,) = seen
    assert head.startswith(line + b"\r\n")
    assert header.lower() in head.lower()
    assert b"content-length" not in head.lower()
    assert b"content-type" not in head.lower()
    assert re.search(r"^HTTP 200 in \d{1,3}(\.\d+)? (µs|ms|s): ", findings[-1].text)
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("status", "verdict", "words"),
    [
        ("401 Unauthorized", Verdict.FAIL, "the key was refused (Bad key [key].)"),
        ("403 Forbidden", Verdict.FAIL, "lacks a permission"),
        ("404 Not Found", Verdict.NOTE, "is the base URL right?"),
        ("429 Too Many Requests", Verdict.NOTE, "rate limit"),
        ("503 Service Unavailable", Verdict.FAIL, "the server failed"),
        ("302 Found", Verdict.FAIL, "the server failed"),
    ],
)
async def test_a_status_is_reported_with_its_meaning(status: str, verdict: Verdict, words: str) -> None:
    body = b'{"error": {"message": "Bad key ' + CANARY.encode() + b'.", "type": "x"}}'
    async with server(answer(status, body), []) as port:
        findings = await checked(ms.OpenAIChat(CANARY, f"http://127.0.0.1:{port}/v1"))
    assert (findings[-1].verdict, findings[-1].step) == (verdict, "answer")
    assert words in findings[-1].text


@pytest.mark.parametrize(
    ("status", "verdict", "text"),
    [
        ("200 OK", "ok", "HTTP 200 in T: the server answers"),
        ("204 No Content", "ok", "HTTP 204 in T: the server answers"),
        ("299 Odd", "ok", "HTTP 299 in T: the server answers"),
        ("300 Multiple Choices", "FAIL", "HTTP 300 in T: the server failed"),
        ("399 Odd", "FAIL", "HTTP 399 in T: the server failed"),
        ("400 Bad Request", "FAIL", "HTTP 400 in T: the server failed (Not so.)"),
        ("401 Unauthorized", "FAIL", "HTTP 401 in T: the key was refused (Not so.)"),
        ("405 Method Not Allowed", "note",
            "HTTP 405 in T: the server answers, but lists no models, so the key was not tried (Not so.)"),
        ("407 Proxy Authentication Required", "FAIL", "HTTP 407 in T: a proxy requires a password (Not so.)"),
    ],
)  # fmt: skip
async def test_a_server_without_a_key_is_not_said_to_accept_one(status: str, verdict: str, text: str) -> None:
    body = b"" if status.startswith("204") else b'{"error": {"message": "Not so."}}'
    async with server(answer(status, body), []) as port:
        findings = await checked(ms.OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1"))
    assert (findings[0].verdict, findings[0].text) == (Verdict.OK, "none is needed")
    assert (findings[-1].verdict.value, re.sub(r"in [^:]+:", "in T:", findings[-1].text)) == (verdict, text)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b"<!doctype html><title>Chat</title>", "FAIL"),
        (b"hello", "FAIL"),
        (b'\r\n {"data": []}', "ok"),
        (b"[]", "ok"),
        (b'{"data": [' + b'{"id": "m"}, ' * 2000, "ok"),
    ],
    ids=["page", "text", "object", "array", "long"],
)
async def test_a_page_for_people_is_not_an_accepted_key(body: bytes, verdict: str) -> None:
    async with server(answer("200 OK", body), []) as port:
        findings = await checked(ms.OpenAIChat(CANARY, f"http://127.0.0.1:{port}"))
    assert findings[-1].verdict.value == verdict
    words = "the server answers, and accepted the key" if verdict == "ok" else "the server takes no calls here: "
    assert words in findings[-1].text


WRONG = [
    (ms.OpenAIChat, "", "POST {url}/chat/completions: is /v1 missing at the end of the base URL?"),
    (ms.OpenAIResponses, "/x", "POST {url}/x/responses: is /v1 missing at the end of the base URL?"),
    (ms.OpenAIChat, "/v1/v1", "POST {url}/v1/v1/chat/completions: is /v1 one too many in the base URL?"),
    (ms.Anthropic, "/x", "POST {url}/x/v1/messages: is the base URL right?"),
    (ms.Gemini, "/x", "POST {url}/x/v1beta/models/any:generateContent: is the base URL right?"),
    (ms.GeminiInteractions, "/x", "POST {url}/x/v1beta/interactions: is the base URL right?"),
]


@pytest.mark.parametrize(("kind", "path", "words"), WRONG)
async def test_a_wrong_base_url_fails_with_the_place_of_calls(kind: type[ms.Provider], path: str, words: str) -> None:
    with open_simulator_thread() as simulator:
        url = f"http://127.0.0.1:{simulator.port}"
        findings = await checked(kind(CANARY, url + path))
    assert (findings[-1].verdict, findings[-1].step) == (Verdict.FAIL, "answer")
    assert words.format(url=url) in findings[-1].text


@pytest.mark.parametrize(("kind", "path"), [row[:2] for row in PATHS])
async def test_the_simulator_lists_its_models(kind: type[ms.Provider], path: str) -> None:
    with open_simulator_thread() as simulator:
        findings = await checked(kind(CANARY, f"http://127.0.0.1:{simulator.port}{path}"))
    assert {finding.verdict for finding in findings} == {Verdict.OK}


@pytest.mark.parametrize(
    ("status", "body", "verdict", "words"),
    [
        ("400 Bad Request", b'{"error": {"message": "model is required"}}', "note", "HTTP 400: the server answers"),
        ("422 Unprocessable", b'{"detail": "model"}', "note", "HTTP 422: the server answers, but lists no models"),
        ("401 Unauthorized", b"", "FAIL", "HTTP 401: the key was refused"),
        ("404 Not Found", b'{"error": {"message": "No model any"}}', "note", "is the base URL right?"),
        ("404 Not Found", b"", "FAIL", "is /v1 missing at the end of the base URL?"),
        ("405 Method Not Allowed", b'{"detail": "Method Not Allowed"}', "FAIL", "POST http://127.0.0.1:"),
        ("200 OK", b"<p>Chat</p>", "FAIL", "the server takes no calls here"),
    ],
)
async def test_a_server_without_models_is_asked_for_a_call(status: str, body: bytes, verdict: str, words: str) -> None:
    seen: list[bytes] = []
    async with server(answer("404 Not Found"), seen, call=answer(status, body)) as port:
        findings = await checked(ms.OpenAIChat(CANARY, f"http://127.0.0.1:{port}/api"))
    assert [head.split(b" HTTP")[0] for head in seen] == [b"GET /api/models", b"POST /api/chat/completions"]
    assert b"\r\ncontent-length: 2\r\n" in seen[1].lower()
    assert (findings[-1].verdict.value, findings[-1].step) == (verdict, "answer")
    assert words in findings[-1].text


async def test_the_source_of_the_key_is_named() -> None:
    async with server(answer("200 OK"), []) as port:
        url = f"http://127.0.0.1:{port}"
        (finding, *_) = await checked(ms.Anthropic(base_url=url), ANTHROPIC_API_KEY=CANARY)
        assert finding.text == "from ANTHROPIC_API_KEY"
        (finding, *_) = await checked(ms.Gemini(base_url=url), GOOGLE_API_KEY=CANARY)
        assert finding.text == "from GOOGLE_API_KEY"


async def test_the_query_of_the_base_url_is_sent() -> None:
    seen: list[bytes] = []
    async with server(answer("200 OK"), seen) as port:
        await checked(ms.OpenAIChat(CANARY, f"http://127.0.0.1:{port}/v1?api-version=2025-01-01"))
    assert seen[0].startswith(b"GET /v1/models?api-version=2025-01-01 HTTP/1.1\r\n")


async def test_an_error_without_a_message_shows_its_status() -> None:
    async with server(answer("503 Service Unavailable", b'{"error": {"message": " "}}'), []) as port:
        findings = await checked(ms.OpenAIChat(CANARY, f"http://127.0.0.1:{port}/v1"))
    assert findings[-1].text.endswith(": the server failed (HTTP 503)")


async def test_a_long_message_of_the_server_is_cut() -> None:
    body = b'{"error": {"message": "' + b"no  " * 200 + b'"}}'
    async with server(answer("503 Service Unavailable", body), []) as port:
        findings = await checked(ms.OpenAIChat(CANARY, f"http://127.0.0.1:{port}/v1"))
    assert findings[-1].text.endswith("the server failed (" + ("no " * 54)[:160] + ")")


async def test_without_a_key_no_connection_is_opened() -> None:
    (finding,) = await checked(ms.Anthropic())
    assert (finding.verdict, finding.step) == (Verdict.FAIL, "key")
    assert "ANTHROPIC_API_KEY" in finding.text


async def test_a_key_with_a_line_break_fails_and_is_not_shown() -> None:
    (finding,) = await checked(ms.Anthropic(), ANTHROPIC_API_KEY=CANARY + "\n")
    assert "line break" in finding.text


async def test_an_unknown_host_fails_at_dns() -> None:
    findings = await checked(ms.OpenAIChat(CANARY, "http://nowhere.invalid/v1"), limit=5.0)
    assert steps(findings) == ["ok key", "ok proxy", "FAIL DNS"]


async def test_a_closed_port_fails_at_connect() -> None:
    findings = await checked(ms.OpenAIChat(CANARY, "http://127.0.0.1:1/v1"))
    assert steps(findings)[-1] == "FAIL connect"


async def test_an_unknown_certificate_authority_fails_at_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with server(answer("200 OK"), [], context) as port:
        findings = await checked(ms.OpenAIChat(CANARY, f"https://127.0.0.1:{port}/v1"))
    assert steps(findings) == ["ok key", "ok proxy", "ok connect", "FAIL TLS"]
    assert "SSL_CERT_FILE" in findings[-1].text


async def test_a_refusing_proxy_is_shown_without_its_password() -> None:
    async with server(answer("407 Proxy Authentication Required"), []) as port:
        findings = await checked(
            ms.OpenAIChat(CANARY, "http://example.test/v1"), http_proxy=f"http://user:{CANARY}@127.0.0.1:{port}"
        )
    assert steps(findings) == ["ok key", "ok proxy", "ok connect", "FAIL tunnel"]
    assert findings[1].text == f"http://127.0.0.1:{port} (http_proxy)"


async def test_an_answer_that_is_not_http_fails() -> None:
    async with server(b"SSH-2.0-OpenSSH_9.6\r\n", []) as port:
        findings = await checked(ms.OpenAIChat(CANARY, f"http://127.0.0.1:{port}/v1"))
    assert steps(findings)[-1] == "FAIL answer"
    assert "not HTTP/1.1" in findings[-1].text


async def test_a_silent_server_fails_at_the_timeout(autojump_clock: MockClock) -> None:
    async with server(b"", []) as port:
        autojump_clock.autojump_threshold = 0.2
        findings = await checked(ms.OpenAIChat(CANARY, f"http://127.0.0.1:{port}/v1"), limit=7.0)
    assert steps(findings)[-1] == "FAIL answer"
    assert findings[-1].text == "not finished within 7 s"


def test_providers_with_a_key_are_checked_once_per_host() -> None:
    assert configured_rows(HOME) == []
    rows = configured_rows(HOME | {"ANTHROPIC_API_KEY": "k", "GOOGLE_API_KEY": "k", "OPENAI_API_KEY": "k"})
    hosts = [row.base_url.split("/")[2] for row in rows]
    assert len(hosts) == len(set(hosts))
    assert {"api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"} <= set(hosts)


def test_an_address_in_the_environment_is_checked() -> None:
    rows = configured_rows(HOME | {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert [row.name for row in rows] == ["openai-chat"]
    for own in ("ANTHROPIC", "GEMINI", "GOOGLE"):  # the key belongs to that address, and goes to no other
        place = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1"}
        rows = configured_rows(HOME | place | {f"{own}_API_KEY": "k"})
        assert [row.name for row in rows] == ["anthropic", "google"]
    (provider,) = choose_providers(["azure"], None, HOME | {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com"})
    assert provider.name == "azure"


async def test_the_address_of_the_environment_is_shown() -> None:
    requests: list[bytes] = []
    async with server(answer("200 OK"), requests) as port:
        variables = HOME | {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1?a=secret", "OPENAI_API_KEY": CANARY}
        (provider,) = choose_providers([], None, variables)
        findings = await check_provider(provider, variables, 60.0)
    assert [(finding.step, finding.text) for finding in findings[:2]] == [
        ("address", f"http://127.0.0.1:{port}/v1?…, from OPENAI_BASE_URL"),
        ("key", "from OPENAI_API_KEY"),
    ]
    assert requests[0].startswith(b"GET /v1/models?a=secret HTTP/1.1\r\n")


def test_a_provider_that_is_named_twice_is_checked_once() -> None:
    names = ["google", "anthropic", "gemini", "google"]
    assert [provider.name for provider in choose_providers(names, None, HOME)] == ["google", "anthropic"]
