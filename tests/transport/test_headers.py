"""Headers: how they are checked, sent and found."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.transport.headers import CONNECTION_HEADERS, HeaderError, find, headers_to_mapping, validate_headers

SECRET = "sk-canary-0123456789"

BAD_VALUES = {
    f"Bearer {SECRET}\n": r"line break \(was it read from a file.* at position 27",
    f"Bearer {SECRET}\r\nX-Evil: 1": "line break", f"{SECRET}\x00": "NUL", f"{SECRET}\x1b[0m": "control character",
    f"{SECRET}\x7f": "control character", f"ключ-{SECRET}": "not ASCII at position 0",
    f"{SECRET}é": "not ASCII at position 20", f"{SECRET}\ud800": "not ASCII",
    f"{SECRET} ": "begins or ends with white space", f"\t{SECRET}": "begins or ends with white space",
}  # fmt: skip

BAD_NAMES = ["", " ", "a b", "a:", "é", "a\n", f"x: y\r\nauthorization: {SECRET}", "a\x00"]


def test_good_headers_are_encoded_in_order_with_their_case() -> None:
    pairs = [("X-Api-Key", SECRET), ("accept", "text/event-stream, */*;q=0.1"), ("X-Empty", ""), ("x-tab", "a\tb")]
    assert validate_headers(pairs) == [(name.encode(), value.encode()) for name, value in pairs]


@pytest.mark.parametrize("value", BAD_VALUES, ids=ascii)
def test_an_error_names_the_header_and_not_its_bad_value(value: str) -> None:
    with pytest.raises(HeaderError, match=BAD_VALUES[value]) as caught:
        validate_headers([("accept", "a"), ("authorization", value)])
    assert "'authorization'" in str(caught.value)
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_an_error_shows_only_the_token_of_a_bad_name(name: str) -> None:
    with pytest.raises(HeaderError, match="header name") as caught:
        validate_headers([(name, "value")])
    assert SECRET not in repr(caught.value)
    assert "\n" not in str(caught.value)


def test_the_connection_headers_are_these() -> None:
    assert sorted(CONNECTION_HEADERS) == [
        "connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONNECTION_HEADERS))
def test_connection_headers_can_be_forbidden(name: str) -> None:
    with pytest.raises(HeaderError, match="the connection sets it itself"):
        validate_headers([(name.title(), "1")], forbidden=CONNECTION_HEADERS)
    assert validate_headers([(name, "1")])


@given(st.text(max_size=8), st.text(max_size=12))
@settings(deadline=None)
def test_h11_accepts_every_accepted_header(name: str, value: str) -> None:
    try:
        headers = validate_headers([(name, value)], forbidden=CONNECTION_HEADERS)
    except HeaderError:
        return
    request = h11.Request(method="POST", target="/", headers=[(b"host", b"h"), *headers])
    assert h11.Connection(h11.CLIENT).send(request)


@given(st.from_regex(r"\A[a-z-]{1,9}\Z"), st.from_regex(r"\A[!-~]{1,9}([ \t][!-~]{1,9})?\Z"))
@settings(deadline=None)
def test_plain_headers_are_accepted(name: str, value: str) -> None:
    assert validate_headers([(name, value)]) == [(name.encode(), value.encode())]


def test_the_first_header_of_a_name_is_found_in_any_case() -> None:
    headers = [(b"Server", b"s"), (b"Retry-After", b"1"), (b"retry-after", b"2")]
    assert find(headers, b"retry-after") == b"1"
    assert find(headers, b"retry") is None
    assert find([], b"retry-after") is None


def test_a_mapping_has_lower_case_names_and_joins_repeated_ones() -> None:
    headers = [(b"Vary", b"a"), (b"X-Id", b"1"), (b"vary", b"b"), (b"X-Latin", b"\xe9")]
    assert headers_to_mapping(headers) == {"vary": "a, b", "x-id": "1", "x-latin": "é"}


def test_a_header_that_is_refused_is_named() -> None:
    for name, value, message in (
        ("n" * 70 + " ", "v", f"header name '{'n' * 60}'…: only letters, digits and !#$%&'*+-.^_`|~ are allowed"),
        ("", "v", "header name '': only letters, digits and !#$%&'*+-.^_`|~ are allowed"),
        (" x", "v", "header name ''…: only letters, digits and !#$%&'*+-.^_`|~ are allowed"),
        ("Host", "v", "header 'Host': the connection sets it itself; leave it out"),
        ("k", "ab\n", "header 'k': the value contains a line break (was it read from a file that ends with one?) at"
         " position 2"),
        ("k", "\r", "header 'k': the value contains a line break (was it read from a file that ends with one?) at"
         " position 0"),
        ("k", "a\0", "header 'k': the value contains a NUL character at position 1"),
        ("k", "a\x7f", "header 'k': the value contains a control character at position 1"),
        ("k", "é", "header 'k': the value contains a character that is not ASCII at position 0"),
        ("k", "v\t", "header 'k': the value begins or ends with white space; remove it"),
        ("k", " v", "header 'k': the value begins or ends with white space; remove it"),
    ):  # fmt: skip
        with pytest.raises(HeaderError) as caught:
            validate_headers([(name, value)], forbidden={"host"})
        assert str(caught.value) == message
    assert validate_headers([("A", "x\ty"), ("a", "")]) == [(b"A", b"x\ty"), (b"a", b"")]
    pairs = [(b"A", b"1"), (b"b", b"2"), (b"a", b"\xe9")]
    assert (find(pairs, b"a"), find(pairs, b"b"), find(pairs, b"c")) == (b"1", b"2", None)
    assert headers_to_mapping(pairs) == {"a": "1, é", "b": "2"}
