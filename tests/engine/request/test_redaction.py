"""Redaction: the secrets that are removed from a text, in all spellings, and the text that is kept."""

from __future__ import annotations

import base64
import html
import itertools
import json
import re
from urllib.parse import quote, unquote

import pytest

import manystream as ms
from manystream.engine.request.redaction import (
    LONGEST_PART,
    REDACTED,
    SHORTEST_KEY,
    KeyFilter,
    Redaction,
    _spellings,
    redacted,
)
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


WORD_KEY = "sk-0123456789abcdefghijXYZ"


def hidden(secret: str, said: str = "", **heads: object) -> str:
    return redaction("", **heads).hide(said or f"about {secret} there")  # type: ignore[arg-type]


PLACEHOLDERS = [
    "apikey", "dummy", "empty", "fake", "local", "no-key", "none", "null", "ollama", "secret", "test", "token",
    "unused", "Token", "EMPTY",
]  # fmt: skip


@pytest.mark.parametrize("word", PLACEHOLDERS)
def test_a_placeholder_key_stays_in_a_text(word: str) -> None:
    assert redaction(word).hide(f"about {word} there") == f"about {word} there"
    assert redaction(f"{word}7").hide(f"about {word}7 there") == "about [key] there"


@pytest.mark.parametrize(("key", "shown"), [("ab1", "about ab1 there"), ("ab12", "about [key] there")])
def test_a_key_of_four_characters_is_the_shortest(key: str, shown: str) -> None:
    assert redaction(key).hide(f"about {key} there") == shown


SECRET_NAMES = [
    "authorization", "x-auth", "api-key", "x-token", "client-secret", "passwd", "pass", "cookie", "x-session",
    "credential-id", "x-signature",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_word_is_a_secret_where_the_name_says_so(name: str) -> None:
    """`production` is a word of many errors; as the value of such a header it is a key."""
    assert hidden("production", headers={name: "production"}) == "about [key] there"
    assert hidden("w0rd", headers={name: "w0rd"}) == "about [key] there"
    assert hidden("production", target=f"/v1/x?{name}=production") == "about [key] there"


@pytest.mark.parametrize("value", ["production", "PRODUCTION", "Production", "w0rd123"])
def test_a_word_or_a_short_value_is_no_secret_elsewhere(value: str) -> None:
    assert hidden(value, headers={"x-environment": value}) == f"about {value} there"
    assert hidden(value, target=f"/v1/x?environment={value}") == f"about {value} there"


@pytest.mark.parametrize(
    ("headers", "code", "shown"),
    [
        ({"x-on-limit": "rate_limit_exceeded"}, "rate_limit_exceeded", "rate_limit_exceeded"),
        ({"x-on-limit": "retry rate_limit_exceeded"}, "rate_limit_exceeded", "rate_limit_exceeded"),
        ({"x-trace": "ab_12345678"}, "ab_12345678", "[key]"),
        ({"x-api-key": "horse_battery_staple"}, "horse_battery_staple", "[key]"),
        ({"x-api-key": "horse_battery_staple"}, "bad.horse_batt", "bad.[key]"),
    ],
)
def test_a_code_of_words_is_kept_unless_a_key_has_it(headers: dict[str, str], code: str, shown: str) -> None:
    error = ms.ProviderError("no", category=ms.ErrorCategory.SERVER, provider_code=code)
    assert redacted(error, redaction("", headers=headers)).provider_code == shown


@pytest.mark.parametrize("value", ["proDuction", "w0rd1234", "two words", "pro-duction"])
def test_other_values_of_eight_characters_are_secrets(value: str) -> None:
    assert hidden(value, headers={"x-environment": value}) == "about [key] there"


@pytest.mark.parametrize(
    ("name", "shown"), [("alt", "about w0rd-4711 there"), ("api-version", "about w0rd-4711 there"),
                        ("beta", "about w0rd-4711 there"), ("alpha", "about [key] there")]
)  # fmt: skip
def test_harmless_parameters_of_a_query(name: str, shown: str) -> None:
    assert hidden("w0rd-4711", target=f"/v1/x?{name}=w0rd-4711") == shown


def test_a_parameter_without_a_value_is_a_key() -> None:
    assert hidden("production", target="/v1/x?production") == "about [key] there"
    assert hidden("/v1/production/x", target="/v1/production/x") == "about /v1/production/x there"


@pytest.mark.parametrize("scheme", ["Bearer", "Token", "ApiKey", "Key", "bearer", "KEY"])
def test_a_scheme_is_no_part_of_the_secret(scheme: str) -> None:
    assert hidden("w0rd-4711", headers={"Authorization": f"{scheme}  w0rd-4711 "}) == "about [key] there"


def test_basic_credentials_are_hidden_with_their_parts() -> None:
    encoded = base64.b64encode(b"someone9:pass-word").decode()
    said = f"Basic {encoded}, someone9, pass-word"
    assert hidden("", said, headers={"Authorization": f"Basic {encoded}"}) == "Basic [key], [key], [key]"


def test_basic_credentials_that_are_no_base64_are_hidden() -> None:
    assert hidden("no*base64*", headers={"Authorization": "Basic no*base64*"}) == "about [key] there"


@pytest.mark.parametrize(("user", "shown"), [("admin12", "admin12"), ("admin123", "[key]")])
def test_a_user_name_of_eight_characters_is_a_secret(user: str, shown: str) -> None:
    encoded = base64.b64encode(f"{user}:pass-word".encode()).decode()
    assert hidden("", f"for {user}", headers={"Authorization": f"Basic {encoded}"}) == f"for {shown}"


def test_a_colon_in_a_password_belongs_to_it() -> None:
    encoded = base64.b64encode(b"u:pass:word").decode()
    assert hidden("pass:word", headers={"Authorization": f"Basic {encoded}"}) == "about [key] there"


# --- parts that a truncation leaves ---


def test_seven_characters_of_a_key_may_remain() -> None:
    assert redaction(WORD_KEY).hide_parts("cut 0123456…") == "cut 0123456…"
    assert redaction(WORD_KEY).hide_parts("cut 01234567…") == "cut [key]…"
    assert redaction(WORD_KEY).hide_parts(WORD_KEY[-8:]) == "[key]"


def test_fifteen_characters_of_another_value_may_remain() -> None:
    secrets = redaction("", headers={"x-workspace": "ws/0123456789abcdefg"})
    assert secrets.hide_parts("cut 0123456789abcde…") == "cut 0123456789abcde…"
    assert secrets.hide_parts("cut 0123456789abcdef…") == "cut [key]…"


def test_a_name_decides_how_much_of_a_value_may_remain() -> None:
    secrets = redaction("", headers={"x-token": "ws/0123456789abcdefg"})
    assert secrets.hide_parts("cut 01234567…") == "cut [key]…"


def test_parts_that_touch_are_hidden_as_one() -> None:
    assert (
        redaction(WORD_KEY).hide_parts(f"{WORD_KEY[3:12]}{WORD_KEY[3:13]}. And {WORD_KEY[5:14]}") == "[key]. And [key]"
    )


def test_a_part_that_is_a_word_stays() -> None:
    secrets = redaction("sk-informationinformation-9")
    assert secrets.hide_parts("information…") == "information…"
    assert secrets.hide_parts("mation-9…") == "[key]…"


def test_a_short_key_is_not_searched_in_base64() -> None:
    said = base64.b64encode(b"hunter2").decode()
    assert redaction("hunter2").hide_parts(f"cut {said}") == f"cut {said}"
    assert redaction("hunter2x").hide_parts(base64.b64encode(b"hunter2x").decode()[:9]) == "[key]"


def test_a_part_is_found_below_four_escapes() -> None:
    """A server may quote JSON within JSON; each level doubles the backslashes."""
    key = '"'.join("0123456789abcdefgh")
    said = key[:20]
    for _ in range(4):
        said = json.dumps(said)[1:-1]
    assert "5" not in redaction(key).hide_parts(f"cut {said}")


def test_an_earlier_key_is_hidden_like_the_current_one() -> None:
    both = redaction(WORD_KEY).covering(redaction("production"))
    assert both.hide(f"{WORD_KEY} production") == "[key] [key]"
    assert both.key == WORD_KEY
    again = redaction("third-key-1").covering(both)
    assert again.hide(f"{WORD_KEY} production third-key-1") == "[key] [key] [key]"


def test_bytes_without_a_secret_are_the_same_object() -> None:
    data = b"nothing \xff here"
    assert redaction(WORD_KEY).hide_bytes(data) is data
    assert redaction(WORD_KEY).hide_bytes(b"\xff" + WORD_KEY.encode() + b"\xfe") == b"\xff[key]\xfe"
