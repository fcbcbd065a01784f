"""Which words are secrets: placeholders, names of headers and parameters, schemes, and the lengths that decide."""

from __future__ import annotations

import base64
import json

import pytest

import manystream as ms
from manystream.engine.request.redaction import redacted
from tests.engine.request.test_redaction import redaction

KEY = "sk-0123456789abcdefghijXYZ"


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
    assert redaction(KEY).hide_parts("cut 0123456…") == "cut 0123456…"
    assert redaction(KEY).hide_parts("cut 01234567…") == "cut [key]…"
    assert redaction(KEY).hide_parts(KEY[-8:]) == "[key]"


def test_fifteen_characters_of_another_value_may_remain() -> None:
    secrets = redaction("", headers={"x-workspace": "ws/0123456789abcdefg"})
    assert secrets.hide_parts("cut 0123456789abcde…") == "cut 0123456789abcde…"
    assert secrets.hide_parts("cut 0123456789abcdef…") == "cut [key]…"


def test_a_name_decides_how_much_of_a_value_may_remain() -> None:
    secrets = redaction("", headers={"x-token": "ws/0123456789abcdefg"})
    assert secrets.hide_parts("cut 01234567…") == "cut [key]…"


def test_parts_that_touch_are_hidden_as_one() -> None:
    assert redaction(KEY).hide_parts(f"{KEY[3:12]}{KEY[3:13]}. And {KEY[5:14]}") == "[key]. And [key]"


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
    both = redaction(KEY).covering(redaction("production"))
    assert both.hide(f"{KEY} production") == "[key] [key]"
    assert both.key == KEY
    again = redaction("third-key-1").covering(both)
    assert again.hide(f"{KEY} production third-key-1") == "[key] [key] [key]"


def test_bytes_without_a_secret_are_the_same_object() -> None:
    data = b"nothing \xff here"
    assert redaction(KEY).hide_bytes(data) is data
    assert redaction(KEY).hide_bytes(b"\xff" + KEY.encode() + b"\xfe") == b"\xff[key]\xfe"
