"""Redaction: the secrets that are removed from a text, in all spellings, and the text that is kept."""

import base64
import html
import itertools
import json
import re
from urllib.parse import quote, unquote

import pytest

from manystream.engine.request.redaction import LONGEST_PART, REDACTED, SHORTEST_KEY, KeyFilter, Redaction, _spellings
from manystream.providers.catalog.dialect import WireRequest
from manystream.providers.catalog.provider import OpenAIChat
from manystream.providers.model.request import Request
from manystream.transport.exchange import WireHead
from tests.support.backtracking import growth
from tests.support.common_runs import longest_common_run

KEY = "sk-proj/Ab1+cd2\"Ef3&gh4<Ij5>kl6'Mn7=op8.Qr9~st0 uv\\wx"


def redaction(
    key: str = KEY, *, headers: dict[str, str] | None = None, target: str = "/v1/x", proxy: str | None = None
) -> Redaction:
    pairs = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return Redaction(key, WireHead(b"POST", target.encode(), pairs), proxy.encode() if proxy is not None else None)


def escaped(text: str, style: str) -> str:
    return "".join(c if c.isalnum() else style.format(ord(c)) for c in text)


SPELLINGS = {
    "as it is": KEY,
    "json": json.dumps(KEY)[1:-1],
    "json within json": json.dumps(json.dumps(KEY)[1:-1])[1:-1],
    "json three levels deep": json.dumps(json.dumps(json.dumps(KEY)[1:-1])[1:-1])[1:-1],
    "php's json": json.dumps(KEY)[1:-1].replace("/", "\\/"),
    ".net's json": escaped(KEY, "\\u{:04X}"),
    "go's json": json.dumps(KEY)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
    "repr": repr(KEY)[1:-1],
    "bytes": repr(KEY.encode())[2:-1],
    "url": quote(KEY, safe=""),
    "url in lower case": escaped(KEY, "%{:02x}"),
    "a form": quote(KEY, safe=" ").replace(" ", "+"),
    "url within a url": quote(quote(KEY, safe=""), safe=""),
    "html": html.escape(KEY),
    "xml": html.escape(KEY).replace("&#x27;", "&apos;"),
    "html by numbers": escaped(KEY, "&#{};"),
    "html by hex": escaped(KEY, "&#x{:X};"),
    "html without semicolons": html.escape(KEY).replace(";", ""),
    "html by numbers without semicolons": escaped(KEY, "&#{}"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_key_is_found_in_every_escape(name: str) -> None:
    said = f"Bearer {SPELLINGS[name]}, and so on"
    assert redaction().hide(said) == f"Bearer {REDACTED}, and so on"
    assert redaction().hide_bytes(said.encode()) == f"Bearer {REDACTED}, and so on".encode()


@pytest.mark.parametrize("before", ["", "u:", "us:", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_key_is_found_within_base64(before: str, encode: object) -> None:
    assert callable(encode)
    said: str = encode(f"{before}{KEY}:x".encode()).decode()
    hidden = redaction().hide(f"Basic {said}")
    assert REDACTED in hidden
    assert len(hidden) < 40


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_truncated_key_leaves_a_few_characters(name: str) -> None:
    """Escapes divide a key into runs; none of the longer runs may stay in the text."""
    secrets, spelled = redaction(), SPELLINGS[name]
    for cut in range(1, len(spelled)):
        for part in (spelled[:cut], spelled[cut:]):
            left = secrets.hide_parts(f"illegal line '{part}…")
            for said in (left, html.unescape(unquote(unquote(left))).replace("\\", "")):
                assert longest_common_run(KEY, said) <= LONGEST_PART, (part, said)


@pytest.mark.parametrize("place", range(1, len(KEY)))
def test_a_stray_backslash_hides_no_part(place: int) -> None:
    """A damaged body, or JSON with unnecessary escapes, may have a backslash anywhere in the key."""
    secrets = redaction()
    for stray in ("\\", "\\" * 3):
        left = secrets.hide_parts(f'bad key "{KEY[:place]}{stray}{KEY[place:]}" was given')
        assert longest_common_run(KEY, left.replace("\\", "")) <= LONGEST_PART, left
        assert left.endswith('" was given')


@pytest.mark.parametrize(("character", "name"), [("&", "amp"), ('"', "quot"), ("'", "apos"), ("<", "lt"), (">", "gt")])
def test_a_truncated_key_is_found_between_named_characters(character: str, name: str) -> None:
    """The runs between the escapes are single characters: the key is found only if the escape is read."""
    secrets = redaction(character.join("sk9182736455"))
    assert "9" not in secrets.hide_parts(f"illegal line 'k{f'&{name};'.join('918273645')}…")


MIXED = {
    "html within json": json.dumps(html.escape(KEY))[1:-1],
    "json within html": html.escape(json.dumps(KEY)[1:-1]),
    "html within a url": quote(html.escape(KEY), safe=""),
    "a url within html": html.escape(quote(KEY, safe="&").replace("%", "&#37;")),
    "html with stray backslashes": html.escape(KEY).replace("&", "\\\\&"),
    "json within html within json": json.dumps(html.escape(json.dumps(KEY)[1:-1]))[1:-1],
}


@pytest.mark.parametrize("name", MIXED)
def test_a_key_in_several_escapes_leaves_a_few_characters(name: str) -> None:
    secrets, spelled = redaction(), MIXED[name]
    for cut in range(1, len(spelled)):
        for part in (spelled[:cut], spelled[cut:]):
            left = secrets.hide_parts(f"illegal line '{part}…")
            assert left.startswith("illegal line ")
            for said in (left, html.unescape(unquote(html.unescape(left))).replace("\\", "")):
                assert longest_common_run(KEY, said) <= LONGEST_PART, (part, said)


SECRETS = {
    "a provider's header": ({"X-Tenant-Token": "tenant-token-1234"}, "tenant-token-1234"),
    "a scheme": ({"Authorization": "Bearer another-key-98765"}, "another-key-98765"),
    "basic credentials": ({"Authorization": "Basic " + base64.b64encode(b"someone9:hunter2x!").decode()}, "hunter2x!"),
    "a user name": ({"Authorization": "Basic " + base64.b64encode(b"someone9:hunter2x!").decode()}, "someone9"),
    "any header": ({"X-Workspace": "ws_0123456789"}, "ws_0123456789"),
    "eight characters": ({"X-Workspace": "ws_01234"}, "ws_01234"),
    "a cookie": ({"Cookie": "sid=12ab"}, "sid=12ab"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_values_of_headers_are_secrets(name: str) -> None:
    headers, secret = SECRETS[name]
    assert redaction(headers=headers).hide(f"no: {secret}") == f"no: {REDACTED}"


def test_the_values_of_a_query_are_secrets() -> None:
    secrets = redaction(target="/v1/x?key=query-key-1&api-version=2025-01-01&sig=ab%2Fcd%2Fef12&bare-token-77")
    assert secrets.hide("query-key-1, ab/cd/ef12, ab%2Fcd%2Fef12, bare-token-77") == ", ".join([REDACTED] * 4)
    assert secrets.hide("api-version 2025-01-01 is too old") == "api-version 2025-01-01 is too old"


def test_a_proxy_s_credentials_are_secrets() -> None:
    proxy = "Basic " + base64.b64encode(b"proxy-user:proxy-password").decode()
    said = redaction(proxy=proxy).hide(f"{proxy} proxy-user:proxy-password")
    assert said == f"Basic {REDACTED} {REDACTED}:{REDACTED}"


@pytest.mark.parametrize("key", ["hunter2", "abc1", "12345", "a-b_c"])
def test_a_short_key_is_redacted_as_a_whole_word(key: str) -> None:
    assert redaction(key).hide(f"key '{key}' is wrong") == f"key '{REDACTED}' is wrong"
    assert redaction(key).hide(f"x{key} {key}x {key}-1") == f"x{key} {key}x {key}-1"


def test_a_key_of_eight_characters_is_redacted_within_words() -> None:
    assert redaction("hunter2x").hide("xhunter2xx user_hunter2x-1") == f"x{REDACTED}x user_{REDACTED}-1"


HARMLESS = [
    ("none", {}, "none of them"),
    ("EMPTY", {}, "the list is EMPTY"),
    ("any", {}, "any model"),
    ("k", {}, "k=1"),
    ("sk-no-key-required", {}, "a model is required"),
    ("not-needed", {}, "streaming is not available, nor needed"),
    ("", {"anthropic-beta": "computer-use-2025-01-24"}, "unexpected value computer-use-2025-01-24"),
    ("", {"X-Request-Id": "0f8fad5b-d9cb-469f"}, "request 0f8fad5b-d9cb-469f failed"),
    ("", {"X-Environment": "production"}, "not for production use"),
    ("", {"X-Priority": "1000"}, "at most 1000 tokens"),
    ("", {"Authorization": "Basic " + base64.b64encode(b"admin:pass-word-99").decode()}, "the admin must allow it"),
    ("", {"Content-Type": "application/json"}, "application/json expected"),
    *[
        ("", {name: "w0rd-4711-abcd"}, "unknown value w0rd-4711-abcd")
        for name in (
            "accept", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version", "content-type",
            "host", "idempotency-key", "openai-beta", "request-id", "traceparent", "tracestate", "user-agent",
            "x-client-request-id", "x-correlation-id", "x-request-id",
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("key", "headers", "said"), HARMLESS)
def test_text_that_is_not_a_secret_is_unchanged(key: str, headers: dict[str, str], said: str) -> None:
    assert redaction(key, headers=headers).hide_parts(said) == said


def test_a_text_without_a_secret_is_the_same_object() -> None:
    said = "nothing here " * 100
    assert redaction().hide(said) is said


@pytest.mark.parametrize("key", ["a/b+c-d.e", "-" * 8 + "x", "\\" * 9 + "a", "%%%%%%%%", "&&&&<<<<", '"' * 9, "abc1"])
def test_a_search_takes_linear_time(key: str) -> None:
    secrets = redaction(key)
    secrets.hide_parts("")
    pattern = re.compile("|".join(_spellings(secrets._secrets())))
    pieces = ("\\", "%25", "%5c", "&#0", "&#92;", "-", key, key[:-1], "\\" + key[0], "a", '\\"')
    for attack in itertools.product(("", key[:1], key[:-1]), pieces, ("", "!", "u00")):
        assert growth(pattern, attack, "search", 12) < 2.0, attack


def test_no_repr_shows_a_header_or_a_query() -> None:
    provider = OpenAIChat("the-key-1234", "https://h.test/v1?sig=query-1234", headers={"X-A": "header-1234"})
    request = Request("m", [], extra_headers={"X-B": "extra-1234"})
    wire = WireRequest("/v1", [("authorization", "Bearer wire-1234")], b"{}")
    assert not re.findall(r"[a-z]+-1234", f"{provider!r} {provider} {request!r} {request} {wire!r} {wire}")
    assert "https://h.test/v1?…" in repr(provider)


FILTERED = (
    ("sk-ab12/cd34+ef", "plain", "sk-ab12/cd34+ef"),
    ("sk-ab12/cd34+ef", "JSON", "sk-ab12\\/cd34\\u002bef"),
    ("sk-ab12/cd34+ef", "a URL", "sk-ab12%2Fcd34%2Bef"),
    ("sk-ab12/cd34+ef", "base64", base64.b64encode(b"sk-ab12/cd34+ef").decode().rstrip("=")),
    ('with "quotes", and more', "plain", 'with "quotes", and more'),
    ("short", "a word", "short"),
)


@pytest.mark.parametrize(("key", "form", "spelled"), FILTERED, ids=[f"{key[:5]}-{form}" for key, form, _ in FILTERED])
def test_a_key_is_removed_at_every_split(key: str, form: str, spelled: str) -> None:
    keys = KeyFilter(frozenset({key}))
    said = f"{spelled} {spelled}"
    data = f'event: a\ndata: {{"x": "{spelled}", "y": "sk-ab1 {spelled}er sk-ab12"}}\n\ndata: {said}\n\n'.encode()
    clean = data.replace(spelled.encode(), REDACTED.encode())
    if len(key) < SHORTEST_KEY:
        clean = clean.replace(f"{REDACTED}er".encode(), f"{key}er".encode())  # part of a word
    for size in (1, 2, 3):
        for at in range(len(data) - size):
            got, beginning = b"", b""
            pieces = (data[:at], data[at : at + size], data[at + size :])
            for number, piece in enumerate(pieces):
                passed, beginning = keys.split(beginning + piece, last=number == 2)
                got += passed
            assert (got, beginning) == (clean, b"")
    assert keys.split(data) == (clean, b"")  # nothing is held back after a blank line


def test_a_filter_holds_back_a_bounded_end() -> None:
    keys = KeyFilter(frozenset({"sk-canary-secret"}))
    image = b"A" * 100_000
    passed, beginning = keys.split(image)
    assert passed + beginning == image
    assert len(beginning) <= 16 * 16
    assert KeyFilter(frozenset()).split(image) == (image, b"")


def test_what_a_client_has_sent_is_no_key() -> None:
    head = [(b"Authorization", b"Bearer sk-canary-secret"), (b"session-id", b"0123456789"), (b"x-tenant", b"team-0123")]
    secrets = Redaction("sk-canary-secret", WireHead(b"POST", b"/", head))
    assert secrets.keys(["0123456789"]) == {"sk-canary-secret"}
    assert secrets.keys([]) == {"sk-canary-secret", "0123456789"}
