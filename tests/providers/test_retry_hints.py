"""The server's hint is read from every header that has one. No header raises an exception."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manystream.providers.wire.retry_hints import LONGEST_HINT_MS, duration_ms, hint_in_words, retry_after_ms

NOW = 1_800_000_000.0
LATER = "2027-01-15T08:01:00Z"
"""One minute after `NOW`."""


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, -1),
        ({"retry-after": "2"}, 2000),
        ({"retry-after": " 2 "}, 2000),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after": "1."}, 1000),
        ({"retry-after": "2, 2"}, 2000),
        ({"retry-after": "20s"}, 20_000),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30_000),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0),
        ({"retry-after-ms": "250"}, 250),
        ({"retry-after-ms": "12.6"}, 13),
        ({"retry-after-ms": "250", "retry-after": "1"}, 250),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1000),
        ({"retry-after-ms": "0", "retry-after": "1"}, 0),
        ({"retry-after-ms": "250, 250", "retry-after": "1"}, 250),
        ({"retry-after-ms": "250,300", "retry-after": "1"}, 1000),
        ({"x-ms-retry-after-ms": "250", "retry-after": "1"}, 250),
        ({"x-ms-retry-after-ms": "250", "retry-after-ms": "300"}, 300),
        ({"retry-after-ms": "soon", "x-ms-retry-after-ms": "250"}, 250),
        ({"x-ms-retry-after-ms": "soon", "retry-after": "1"}, 1000),
        ({"x-ratelimit-reset-requests": "2s,2s", "x-ratelimit-remaining-requests": "0, 0"}, 2000),
        ({"retry-after": "3", "x-ratelimit-reset-requests": "6m0s"}, 3000),
        ({"retry-after": "1 minute"}, 60_000),
        ({"retry-after": LATER}, 60_000),
        ({"retry-after": "1800000030"}, 30_000),
        ({"llm_provider-retry-after": "4"}, 4000),
        ({"llm_provider-retry-after-ms": "4", "retry-after": "5"}, 5000),
    ],
)
def test_explicit_hints(headers: dict[str, str], expected: int) -> None:
    assert retry_after_ms(headers, NOW) == expected


@pytest.mark.parametrize(
    "value",
    ["", "-1", "nan", "inf", "Infinity", "1e400", "1e9", "1_000", "٣", "garbage", ",", "0x10", "--", "1 2",
     "Wed, 99 Foo 2015", "9999-99-99"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms", "x-ratelimit-reset-requests"])
def test_absurd_values_are_ignored(name: str, value: str) -> None:
    assert retry_after_ms({name: value}, NOW) in (-1, 0, 1_000_000_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6m0s", 360_000.0),
        ("1s", 1000.0),
        ("20ms", 20.0),
        ("1h2m3.5s", 3_723_500.0),
        ("1m26.4s", 86_400.0),
        ("7.66s", 7660.0),
        ("1d", 86_400_000.0),
        ("3 days 4 hours", 273_600_000.0),
        ("1 hour, 2 minutes and 3.5 seconds", 3_723_500.0),
        ("1 Min 30 Secs", 90_000.0),
        ("1,500 milliseconds", 1500.0),
        ("2 weeks", 1_209_600_000.0),
        ("1s1m", None),
        ("1 2", None),
        ("1 second ago", None),
        ("500us", 0.5),
        ("0", 0.0),
        ("12", 12_000.0),
        ("", None),
        ("s", None),
        ("1x", None),
        ("-1s", None),
    ],
)
def test_durations(text: str, expected: float | None) -> None:
    assert duration_ms(text) == (expected if expected is None else pytest.approx(expected))


def test_an_empty_buckets_reset_is_the_hint() -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}
    assert retry_after_ms(headers, NOW) == 360_000


def test_all_empty_buckets_must_refill() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "20ms",
    }
    assert retry_after_ms(headers, NOW) == 1000


def test_a_bucket_with_something_left_counts_on_429_alone() -> None:
    headers = {"x-ratelimit-remaining-tokens": "966", "x-ratelimit-reset-tokens": "50.34s"}
    assert retry_after_ms(headers, NOW, status=500) == -1
    assert retry_after_ms(headers, NOW, status=429) == 50_340


def test_a_bucket_without_a_remaining_amount_counts() -> None:
    assert retry_after_ms({"x-ratelimit-reset-tokens": "20ms"}, NOW) == 20
    assert retry_after_ms({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "20ms"}, NOW) == 20


def test_anthropic_resets_are_moments() -> None:
    headers = {"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": LATER}
    assert retry_after_ms(headers, NOW) == 60_000
    assert retry_after_ms(headers, NOW + 3600) == 0
    headers["anthropic-ratelimit-input-tokens-remaining"] = "5"
    assert retry_after_ms(headers, NOW) == -1
    assert retry_after_ms(headers, NOW, status=429) == 60_000


def test_a_reset_in_unix_seconds() -> None:
    assert retry_after_ms({"anthropic-ratelimit-unified-reset": str(int(NOW) + 5)}, NOW) == 5000
    assert retry_after_ms({"x-ratelimit-reset-requests": str(int(NOW) + 5)}, NOW) == 5000


IN_40_S = str(round((NOW + 40) * 1000))


@pytest.mark.parametrize(
    ("headers", "status", "expected"),
    [
        ({"x-ratelimit-reset": IN_40_S, "x-ratelimit-remaining": "0"}, 429, 40_000),
        ({"x-ratelimit-reset": IN_40_S}, 429, 40_000),
        ({"x-ratelimit-reset": IN_40_S, "x-ratelimit-remaining": "1"}, 429, -1),
        ({"x-ratelimit-reset": "30"}, 429, 30_000),
        ({"x-ratelimit-reset": str(int(NOW) + 5)}, 429, 5000),
        ({"ratelimit-reset": "30", "ratelimit-remaining": "0"}, 503, 30_000),
        ({"x-rate-limit-reset-tokens": "55", "x-ratelimit-remaining-requests": "9"}, 429, 55_000),
        ({"x-rate-limit-reset-tokens": LATER, "x-rate-limit-remaining-tokens": "7"}, 429, 60_000),
        ({"x-rate-limit-reset-tokens": LATER, "x-rate-limit-remaining-tokens": "7"}, 500, -1),
        ({"llm_provider-x-ratelimit-reset-tokens": "3s", "llm_provider-x-ratelimit-remaining-tokens": "0"}, 500, 3000),
        ({"llm_provider-anthropic-ratelimit-tokens-reset": LATER}, 429, 60_000),
        ({"x-ratelimit-reset": "Fri, 15 Jan 2027 08:01:00 GMT"}, 429, 60_000),
        ({"x-ratelimit-resets": "3", "ratelimit-reset2": "3", "x-ratelimit": "3"}, 429, -1),
    ],
)
def test_every_form_of_a_buckets_reset(headers: dict[str, str], status: int, expected: int) -> None:
    assert retry_after_ms(headers, NOW, status=status) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Please try again in 1 minute.", 60_000),
        ("Try again in 2 hours.", 7_200_000),
        ("Try again in 3 days 4 hours.", 273_600_000),
        ("Limit 500, Used 500. Please try again in 1h2m3s. Visit the page", 3_723_000),
        ("try again in 250ms", 250),
        ("try again in 1.5 s", 1500),
        ("try again in 1 hour and 5 minutes", 3_900_000),
        ("try again in 86,400 seconds", 86_400_000),
        ("Please retry after 3 seconds. Please go here: https://a", 3000),
        ("Please retry your request after 10s", 10_000),
        ("Retry-After: 30", 30_000),
        ("retry after 2", 2000),
        ("retry after 2.", 2000),
        ("retrying in 5s", 5000),
        ("try again in an hour", 3_600_000),
        ("try again in about one minute", 60_000),
        ("try again in 5-10 minutes", 600_000),
        ("try again\nin 4\nseconds", 4000),
        ("Please wait 42 seconds before retrying.", 42_000),
        ("please wait for another 3 min", 180_000),
        ("Your quota will reset after 3h12m2s.", 11_522_000),
        ("Usage limit reached. Resets in 42m.", 2_520_000),
        ("The model is available again in 20 seconds", 20_000),
        ("try again in a while, or retry in 9s", 9000),
        ("try again in a moment", -1),
        ("try again in 40 days", -1),
        ("try again in 2 attempts", -1),
        ("retry after 2027-01-15T08:01:00Z", -1),
        ("try again in 5 months", -1),
        ("try again in 10:30", -1),
        ("please wait 42", -1),
        ("connection reset after 30 seconds", -1),
        ("timed out after 30 seconds", -1),
        ("All retries failed after 30 seconds", -1),
        ("available in 5 regions", -1),
    ],
)
def test_the_words_of_a_message(message: str, expected: int) -> None:
    assert hint_in_words(message) == expected


@given(
    headers=st.dictionaries(
        st.sampled_from(
            ["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens",
             "anthropic-ratelimit-requests-reset", "anthropic-ratelimit-requests-remaining"]
        ),
        st.sampled_from(["", "0", "1s", "1e309", LATER, "Wed, 21 Oct 2015 07:28:00 GMT"])
        | st.text("0123456789eE.:,+- ZTGMWedmsOct", max_size=30),
    ),
    now=st.floats(min_value=0, max_value=4e9),
    status=st.sampled_from([0, 429, 500]),
)  # fmt: skip
def test_no_header_crashes(headers: dict[str, str], now: float, status: int) -> None:
    assert -1 <= retry_after_ms(headers, now, status=status) <= LONGEST_HINT_MS


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2d", 172_800_000.0),
        ("2h", 7_200_000.0),
        ("2m", 120_000.0),
        ("2s", 2000.0),
        ("2ms", 2.0),
        ("2us", 0.002),
        ("2µs", 0.002),
        ("2ns", 0.000002),
        ("1h2m3.5s", 3_723_500.0),
    ],
)
def test_every_unit_of_a_duration(text: str, milliseconds: float) -> None:
    assert duration_ms(text) == pytest.approx(milliseconds, rel=1e-9)
