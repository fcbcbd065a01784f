"""Proxies: the choice of the proxy, the CONNECT request, and error messages that contain no password."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.transport.errors import URLError
from manystream.transport.proxy import ProxyConfig, choose_proxy, is_excepted, parse_proxy_url
from manystream.transport.url import Origin, parse_base_url

pytestmark = pytest.mark.usefixtures("no_leak")

NAME = "api.example.test"

ORIGIN = Origin("https", NAME, 443)

USER, PASSWORD = "canary-user", "canary-p@ss:word"

CREDENTIALS = f"{USER}:canary-p%40ss%3Aword"

TOKEN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

SECRETS = (USER, "canary-p", TOKEN)


def assert_shows_no_secret(error: BaseException) -> None:
    """Check that neither the error nor its causes quote the user name, the password or the header."""
    seen: BaseException | None = error
    while seen is not None:
        shown = f"{seen!r} {seen} {vars(seen)}"
        assert not any(secret in shown for secret in SECRETS)
        seen = seen.__cause__ or seen.__context__


# --- the URL ---
@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://proxy.test:3128", Origin("http", "proxy.test", 3128)),
        ("http://proxy.test:3128/", Origin("http", "proxy.test", 3128)),
        ("http://proxy.test", Origin("http", "proxy.test", 80)),
        ("proxy.test:3128", Origin("http", "proxy.test", 3128)),
        ("HTTP://[::1]:3128", Origin("http", "::1", 3128)),
    ],
)
def test_a_proxy_url_is_an_origin(text: str, origin: Origin) -> None:
    assert parse_proxy_url(text) == ProxyConfig(origin)


def test_credentials_become_a_basic_authorization_not_shown() -> None:
    for text in (f"http://{CREDENTIALS}@proxy.test:3128", f"{CREDENTIALS}@proxy.test:3128"):
        proxy = parse_proxy_url(text)
        assert proxy.authorization == b"Basic " + TOKEN.encode()
        assert str(proxy) == "http://proxy.test:3128"
        assert not any(secret in f"{proxy!r} {proxy}" for secret in SECRETS)


def test_a_user_name_alone_has_an_empty_password() -> None:
    assert parse_proxy_url("http://u@h").authorization == b"Basic " + base64.b64encode(b"u:")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"https://{CREDENTIALS}@proxy.test", "'https' is not supported; only http://"),
        (f"socks5://{CREDENTIALS}@proxy.test", "'socks5' is not supported"),
        (f"http://{CREDENTIALS}@proxy.test/path", "path, query or fragment"),
        (f"http://{CREDENTIALS}@proxy.test?{PASSWORD}", "path, query or fragment"),
        (f"http://{CREDENTIALS}@proxy.test:port", "the host or port is malformed; write http://host:port$"),
        (f"http://{CREDENTIALS}@", "no host"),
        (f"http://{CREDENTIALS}@pro xy", "space"),
        (f"http://{CREDENTIALS}@proxy.test\r\nX: y", "line break"),
        ("http://canary-p%3A:x@proxy.test", "cannot contain a colon"),
        ("", "no host"),
    ],
)
def test_an_unusable_proxy_url_is_refused_without_its_password(text: str, reason: str) -> None:
    with pytest.raises(URLError, match=reason) as caught:
        parse_proxy_url(text, "HTTPS_PROXY")
    assert str(caught.value).startswith("HTTPS_PROXY: ")
    assert_shows_no_secret(caught.value)


# --- the environment ---
HTTPS, HTTP = ORIGIN, Origin("http", NAME, 8000)


@pytest.mark.parametrize(
    ("origin", "environment", "expected"),
    [
        (HTTPS, {}, None),
        (HTTPS, {"HTTPS_PROXY": "http://a:1"}, "http://a:1"),
        (HTTPS, {"https_proxy": "http://a:1"}, "http://a:1"),
        (HTTPS, {"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:1"}, "http://a:1"),
        (HTTPS, {"https_proxy": "", "HTTPS_PROXY": "http://b:1", "ALL_PROXY": "http://c:1"}, None),
        (HTTPS, {"HTTP_PROXY": "http://a:1"}, None),
        (HTTPS, {"ALL_PROXY": "http://c:1"}, "http://c:1"),
        (HTTPS, {"all_proxy": "http://c:1", "HTTPS_PROXY": "http://a:1"}, "http://a:1"),
        (HTTPS, {"ALL_PROXY": "socks5://c:1", "HTTPS_PROXY": "http://a:1"}, "http://a:1"),
        (HTTP, {"HTTPS_PROXY": "http://a:1"}, None),
        (HTTP, {"HTTP_PROXY": "http://a:1"}, "http://a:1"),
        (HTTP, {"http_proxy": "a:1"}, "http://a:1"),
        (HTTP, {"ALL_PROXY": " http://c:1 "}, "http://c:1"),
        (HTTP, {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}, None),
        (HTTP, {"http_proxy": "http://a:1", "REQUEST_METHOD": "GET"}, "http://a:1"),
        (HTTPS, {"HTTPS_PROXY": "http://a:1", "NO_PROXY": ".example.test"}, None),
        (HTTPS, {"HTTPS_PROXY": "http://a:1", "no_proxy": "", "NO_PROXY": "*"}, "http://a:1"),
        (HTTPS, {"HTTPS_PROXY": "http://a:1", "no_proxy": "other.test"}, "http://a:1"),
        (HTTPS, {"HTTPS_PROXY": "socks5://a:1", "no_proxy": "*"}, None),
        (parse_base_url("https://x").origin, {"HTTPS_PROXY": "http://a:1"}, "http://a:1"),
    ],
)
def test_the_environment_names_the_proxy(origin: Origin, environment: dict[str, str], expected: str | None) -> None:
    proxy = choose_proxy(origin, environment)
    assert (None if proxy is None else str(proxy.origin)) == expected
    if proxy is not None:
        assert str(proxy) == f"{expected} ({proxy.variable})"
        assert proxy.variable in environment


def test_an_unusable_variable_is_an_error_that_names_it() -> None:
    with pytest.raises(URLError, match="HTTPS_PROXY: scheme 'socks5'") as caught:
        choose_proxy(HTTPS, {"HTTPS_PROXY": f"socks5://{CREDENTIALS}@h"})
    assert_shows_no_secret(caught.value)


@pytest.mark.parametrize(
    ("no_proxy", "url", "expected"),
    [
        ("", "https://h", False),
        (" , ,", "https://h", False),
        ("*", "https://h", True),
        ("a,*", "https://h", True),
        ("example.test", "https://example.test", True),
        ("Example.TEST", "https://example.test", True),
        ("example.test", "https://example.test.", True),
        ("example.test.", "https://example.test", True),
        ("example.test", "https://api.example.test", True),
        (".example.test", "https://api.example.test", True),
        (".example.test", "https://example.test", True),
        ("*.example.test", "https://api.example.test", True),
        ("*.example.test", "https://example.test", True),
        ("*.example.test:8443", "https://api.example.test", False),
        ("*.example.test", "https://badexample.test", False),
        ("*example.test", "https://badexample.test", False),
        ("*.", "https://example.test", False),
        ("example.test", "https://badexample.test", False),
        ("api.example.test", "https://example.test", False),
        ("a b,c\texample.test", "https://example.test", True),
        ("example.test:443", "https://example.test", True),
        ("example.test:8443", "https://example.test", False),
        ("example.test:8443", "https://example.test:8443", True),
        ("example.test:", "https://example.test", False),
        ("example.test:" + "9" * 5000, "https://example.test", False),
        (".", "https://example.test", False),
        ("127.0.0.1", "http://127.0.0.1:8000", True),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("127.0.0.1:8001", "http://127.0.0.1:8000", False),
        ("127.0.0.1", "http://127.0.0.11", False),
        ("10.0.0.0/8", "http://10.1.2.3", True),
        ("10.0.0.1/8", "http://10.1.2.3", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.0.0.0/8", "https://ten.example.test", False),
        ("10.0.0.0/99", "http://10.1.2.3", False),
        ("0.0.1", "http://127.0.0.1", False),
        ("[::1]", "http://[::1]:8000", True),
        ("::1", "http://[::1]:8000", True),
        ("[::1]:8000", "http://[::1]:8000", True),
        ("[::1]:8001", "http://[::1]:8000", False),
        ("fd00::/8", "http://[fd12::1]", True),
        ("fd00::/8", "http://[fe80::1]", False),
        ("fd00::/8", "http://127.0.0.1", False),
    ],
)
def test_no_proxy_matches_hosts_suffixes_ports_and_networks(no_proxy: str, url: str, expected: bool) -> None:
    assert is_excepted(parse_base_url(url).origin, no_proxy) is expected


@given(st.text(alphabet="a.:/[]*0123 ,-é", max_size=20))
@settings(deadline=None)
def test_any_no_proxy_is_read_without_error(no_proxy: str) -> None:
    """None of these texts matches the host, except `*`, which matches every host."""
    assert "*" in no_proxy or not is_excepted(parse_base_url("https://never.example").origin, no_proxy)
    for url in ("https://a", "http://10.0.0.1", "http://[::1]:3"):
        assert is_excepted(parse_base_url(url).origin, no_proxy) in (True, False)
        assert is_excepted(parse_base_url(url).origin, f"{no_proxy},*") is True
