"""Base URLs: the ones that are accepted, the errors for the others, and the resulting request targets."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.transport.errors import URLError
from manystream.transport.tls import TLSConfig, TLSConfigError, make_context
from manystream.transport.url import BaseURL, Origin, parse_base_url, target

SECRET = "s3cr3t-canary"

ACCEPTED = {
    "https://api.example.com": ("https", "api.example.com", 443, "", ""),
    "https://api.example.com/": ("https", "api.example.com", 443, "", ""),
    "https://api.example.com/v1": ("https", "api.example.com", 443, "/v1", ""),
    "https://api.example.com/v1///": ("https", "api.example.com", 443, "/v1", ""),
    "HTTPS://API.Example.COM/V1": ("https", "api.example.com", 443, "/V1", ""),
    "http://localhost:11434/v1": ("http", "localhost", 11434, "/v1", ""),
    "http://localhost:/v1": ("http", "localhost", 80, "/v1", ""),
    "http://my_service:8000": ("http", "my_service", 8000, "", ""),
    "http://127.0.0.1:8080": ("http", "127.0.0.1", 8080, "", ""),
    "http://[::1]:8080/v1": ("http", "::1", 8080, "/v1", ""),
    "http://[0:0:0:0:0:0:0:1]": ("http", "::1", 80, "", ""),
    "https://example.com.": ("https", "example.com.", 443, "", ""),
    "https://bücher.example/v1": ("https", "xn--bcher-kva.example", 443, "/v1", ""),
    "https://faß.example": ("https", "xn--fa-hia.example", 443, "", ""),
    "https://h/möbel": ("https", "h", 443, "/m%C3%B6bel", ""),
    "https://h/a%20b": ("https", "h", 443, "/a%20b", ""),
    'https://h/a"<b>`{c}|^': ("https", "h", 443, "/a%22%3Cb%3E%60%7Bc%7D%7C%5E", ""),
    "https://h/openai?api-version=2025-01-01": ("https", "h", 443, "/openai", "api-version=2025-01-01"),
    "https://h?a=ü": ("https", "h", 443, "", "a=%C3%BC"),
    "https://h/?": ("https", "h", 443, "", ""),
}

REFUSED = {
    "": "no scheme",
    "api.example.com/v1": "no scheme",
    "localhost:8000": "no scheme",
    "//host/v1": "no scheme",
    "://host": "no scheme",
    "ftp://host": "'ftp' is not supported",
    "ws://host": "'ws' is not supported",
    "file:///etc/passwd": "'file' is not supported",
    "https://": "no host",
    "https:///v1": "no host",
    "https://:443": "no host",
    "https://h:port": "host or port is malformed",
    "https://h:65536": "host or port is malformed",
    "https://h:-1": "host or port is malformed",
    "https://h:+80": "host or port is malformed",
    "https://h:8_0": "host or port is malformed",
    "https://h:0": "port 0",
    "https://h:80:80": "host or port is malformed",
    " https://h": "position 0",
    "https://h ": "position 9",
    "https://h/a b": "position 11",
    "https://h\n": "position 9",
    "https://h/\r\nX-Evil: 1": "position 10",
    "https://h/\t": "position 10",
    "https://h/\x00": "position 10",
    "https://h/\x7f": "position 10",
    "https://h/\u2028": "position 10",
    "https://h/\u200b": "position 10",
    "https://h/\ud800": "position 10",
    f"https://{SECRET}@h/v1": "user name or password",
    f"https://user:{SECRET}@h/v1": "user name or password",
    "https://@h/v1": "user name or password",
    f"https://{SECRET}@h:port/v1": "host or port is malformed",
    f"https://{SECRET}\uff0f@h/v1": "host or port is malformed",
    f"https://h/v1#{SECRET}": "fragment",
    "https://h\\@evil.example": "backslash",
    "https://a..b": "not a host name",
    "https://.a": "not a host name",
    "https://-a": "not a host name",
    "https://a%2eb": "not a host name",
    "https://a*b": "not a host name",
    "https://" + "a" * 64: "not a host name",
    "https://" + "a." * 130 + "b": "not a host name",
    "https://☃\u0338.example": "not a host name",
    "https://127.1": "not an IPv4 address",
    "https://2130706433": "not an IPv4 address",
    "https://0x7f.0.0.1": "not an IPv4 address",
    "https://0x7f000001": "not an IPv4 address",
    "https://256.1.1.1": "not an IPv4 address",
    "https://127.0.0.01": "not an IPv4 address",
    "https://[::1": "host or port is malformed",
    "https://[zz]": "malformed|not an IPv6 address",
    "https://[127.0.0.1]": "malformed|not an IPv6 address",
    "https://[fe80::1%eth0]": "zone",
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_usable_base_url_is_parsed_into_its_parts(text: str) -> None:
    scheme, host, port, path, query = ACCEPTED[text]
    assert parse_base_url(text) == BaseURL(Origin(scheme, host, port), path, query)


@pytest.mark.parametrize("text", REFUSED, ids=ascii)
def test_an_unusable_base_url_error_shows_no_secret(text: str) -> None:
    with pytest.raises(URLError, match=REFUSED[text]) as caught:
        parse_base_url(text)
    assert str(caught.value).startswith("base URL: ")
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)


@given(st.text(alphabet=st.characters(), max_size=30) | st.text(alphabet=string.printable + "ü[]@", max_size=30))
@settings(deadline=None)
def test_any_text_gives_a_base_url_or_a_url_error(tail: str) -> None:
    try:
        base = parse_base_url("https://" + tail)
    except URLError:
        return
    wire = base.origin.host_header + target(base, "/x?y=z")
    assert wire.isascii()
    assert wire.isprintable()
    assert " " not in wire


@given(st.from_regex(r"\Ahttps?://[a-z]{1,9}(:[1-9][0-9]{0,3})?(/[a-z%20é]{0,9}){0,3}(\?[a-z=&ü]{0,9})?\Z"))
@settings(deadline=None)
def test_parsing_a_formatted_base_url_changes_nothing(text: str) -> None:
    base = parse_base_url(text)
    query = f"?{base.query}" if base.query else ""
    assert parse_base_url(f"{base.origin}{base.path}{query}") == base


def test_an_origin_shows_its_port_and_brackets() -> None:
    assert str(Origin("https", "api.example.com", 443)) == "https://api.example.com:443"
    assert str(Origin("http", "::1", 8080)) == "http://[::1]:8080"


def test_the_host_header_omits_the_default_port() -> None:
    assert Origin("https", "h", 443).host_header == "h"
    assert Origin("http", "h", 80).host_header == "h"
    assert Origin("https", "h", 80).host_header == "h:80"
    assert Origin("http", "h", 443).host_header == "h:443"
    assert Origin("https", "::1", 443).host_header == "[::1]"
    assert Origin("https", "::1", 444).host_header == "[::1]:444"
    assert Origin("https", "h", 443).authority == "h:443"


def test_equal_origins_are_one_key() -> None:
    first, second = parse_base_url("https://H/a").origin, parse_base_url("https://h:443/b").origin
    assert {first: 1}[second] == 1


def test_a_query_is_in_no_text() -> None:
    base = parse_base_url(f"https://h/v1?key={SECRET}")
    assert str(base) == "https://h:443/v1?…"
    assert SECRET not in repr(base)


TARGETS = [
    ("https://h", "/chat", "/chat"),
    ("https://h/v1", "/chat", "/v1/chat"),
    ("https://h/v1/", "/chat?stream=1", "/v1/chat?stream=1"),
    ("https://h/v1", "", "/v1"),
    ("https://h", "", "/"),
    ("https://h", "?a=b", "/?a=b"),
    ("https://h/v1?api-version=1", "/chat", "/v1/chat?api-version=1"),
    ("https://h/v1?api-version=1", "/chat?stream=1", "/v1/chat?api-version=1&stream=1"),
    ("https://h/v1?api-version=1", "", "/v1?api-version=1"),
    ("https://h/v1?api-version=1&b", "/chat?api-version=2&b=3&c", "/v1/chat?api-version=1&b&c"),
    ("https://h/v1?api", "/chat?apis=2", "/v1/chat?api&apis=2"),
    ("https://h", "/models/gemini:generate?alt=sse", "/models/gemini:generate?alt=sse"),
    ("https://h", "/a?b?c", "/a?b?c"),
]


@pytest.mark.parametrize(("base", "path", "expected"), TARGETS)
def test_a_target_joins_both_paths_and_both_queries(base: str, path: str, expected: str) -> None:
    assert target(parse_base_url(base), path) == expected


@pytest.mark.parametrize("path", ["chat", "/a b", "/a\r\nX: y", "/a#b", "/ü", "/a\x7f", "/a?b c", "/a?ü"])
def test_a_target_that_would_break_the_request_line_is_refused(path: str) -> None:
    with pytest.raises(URLError, match="request path"):
        target(parse_base_url("https://h/v1"), path)


# --- names, ports and headers ---
def test_a_label_of_63_and_a_name_of_253_characters_are_accepted() -> None:
    name = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert len(name) == 253
    assert parse_base_url(f"https://{name}").origin == Origin("https", name, 443)
    for refused in (f"{name}c", "a" * 64, f"{name}."):
        with pytest.raises(URLError) as caught:
            parse_base_url(f"https://{refused}")
        assert str(caught.value) == f"base URL: {refused[:253]!r} is not a host name"
    assert parse_base_url("http://h:65535").origin.port == 65535
    assert parse_base_url("http://h:1").origin.port == 1


def test_a_long_scheme_is_cut() -> None:
    with pytest.raises(URLError) as caught:
        parse_base_url("s" * 30 + "://h")
    assert str(caught.value) == f"base URL: scheme '{'s' * 20}' is not supported; use https:// or http://"


def test_authorities_that_cannot_be_read_are_named() -> None:
    with pytest.raises(TLSConfigError) as caught:
        make_context(TLSConfig(ca_data="no certificate"))
    assert str(caught.value).startswith("cannot load the CA certificates of ca_data: ")
