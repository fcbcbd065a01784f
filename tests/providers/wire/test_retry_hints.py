"""The server's hint is read from every header that has one, also at the edges; no header raises an exception."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.limits.limit_reports import read_plain_report, reader_of
from manystream.providers.limits.quota_report import QuotaReport, Refusal, ReportedLimit, Unit
from manystream.providers.limits.rate_headers import HeaderRow, amount, read_rows, seconds_until
from manystream.providers.wire.retry_hints import (
    LONGEST_HINT_MS,
    duration_ms,
    hint_in_words,
    hint_ms,
    retry_after_ms,
    unrepeated,
)

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
        ({"retry-after": "20, 30"}, 20_000),
        ({"retry-after": "soon, 30"}, -1),
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
        ("2µs", 0.002),
        ("2ns", 0.000002),
        ("0", 0.0),
        ("12", 12_000.0),
        ("", None),
        ("s", None),
        ("1x", None),
        ("-1s", None),
    ],
)
def test_durations(text: str, expected: float | None) -> None:
    assert duration_ms(text) == (expected if expected is None else pytest.approx(expected, abs=0))


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


MONTH_MS = 2_678_400_000
"""31 days."""


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2678400", MONTH_MS),
        ("2678400.001", -1),
        ("31d", MONTH_MS),
        ("31d1ms", -1),
        ("0", 0),
        ("0.0004", 0),
        ("0.0006", 1),
        (" 1s ", 1000),
        (" 1 ", 1000),
        ("1e2", 100_000),
        ("1s 2s", -1),
        ("-1", -1),
        ("", -1),
    ],
)
def test_a_hint_in_a_body(text: str, hint: int) -> None:
    assert hint_ms(text) == hint
    assert retry_after_ms({"retry-after": text}, NOW) == hint


def test_a_hint_in_milliseconds_is_at_most_a_month() -> None:
    assert retry_after_ms({"retry-after-ms": str(MONTH_MS)}, NOW) == MONTH_MS
    assert retry_after_ms({"retry-after-ms": str(MONTH_MS + 1)}, NOW) == -1
    assert retry_after_ms({"retry-after-ms": " 5 "}, NOW) == 5


@pytest.mark.parametrize(
    "date",
    [
        "Fri, 15 Jan 2027 08:01:00 GMT", " Fri, 15 Jan 2027 08:01:00 GMT ", "Fri, 15 Jan 2027 08:01:00 -0000",
        "Fri, 15 Jan 2027 10:01:00 +0200",
    ],
)  # fmt: skip
def test_a_date_is_counted_from_now(date: str) -> None:
    assert retry_after_ms({"retry-after": date}, NOW) == 60_000
    assert retry_after_ms({"retry-after": date}, NOW + 59.5) == 500
    assert retry_after_ms({"retry-after": date}, NOW + 61) == 0


@pytest.mark.parametrize("moment", ["2027-01-15T08:01:00", "2027-01-15T08:01:00Z", " 2027-01-15T10:01:00+02:00 "])
@pytest.mark.parametrize("zone", ["UTC", "XYZ-5"])
def test_a_time_without_a_zone_is_in_utc(moment: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", zone)
        time.tzset()
        hints = [
            retry_after_ms({"anthropic-ratelimit-requests-reset": moment}, NOW),
            retry_after_ms({"retry-after": "Fri, 15 Jan 2027 08:01:00 -0000"}, NOW),
        ]
        seconds = seconds_until(moment, NOW)
    time.tzset()
    assert (hints, seconds) == ([60_000, 60_000], 60)


def test_a_bare_number_since_2001_is_a_time() -> None:
    for name in ("anthropic-ratelimit-a-reset", "x-ratelimit-reset-a"):
        assert retry_after_ms({name: "1000000000"}, 999_999_990.0) == 10_000
        assert retry_after_ms({name: "999999999"}, 999_999_990.0) == -1
        assert retry_after_ms({name: "1000000000"}, 1_000_000_001.0) == 0
        assert retry_after_ms({name: "1000000000"}, 1_000_086_401.0) == -1
        assert retry_after_ms({name: "90"}, NOW) == 90_000
    assert retry_after_ms({"x-ratelimit-reset-a": "1000002s"}, NOW) == 1_000_002_000
    assert retry_after_ms({"x-ratelimit-reset-a": "2027-01-15T08:01:00Z"}, NOW) == 60_000


def test_buckets_of_both_forms_are_read() -> None:
    empty = {
        "anthropic-ratelimit-a-reset": "2027-01-15T08:00:02Z", "anthropic-ratelimit-a-remaining": "0",
        "x-ratelimit-reset-b": "3s", "x-ratelimit-remaining-b": "0", "x-ratelimit-reset-c": "9s",
        "x-ratelimit-remaining-c": "1", "x-ratelimit-reset-d": "1s", "x-ratelimit-reset-e": "soon",
        "x-ratelimit-remaining-e": "0", "other-x-ratelimit-reset-f": "99s",
    }  # fmt: skip
    assert retry_after_ms(empty, NOW) == 3000
    assert retry_after_ms({**empty, "x-ratelimit-remaining-b": "0.5"}, NOW) == 2000
    left = {name: "1" if "remaining" in name else value for name, value in empty.items()}
    assert retry_after_ms(left, NOW) == 1000
    del left["x-ratelimit-reset-d"]
    assert retry_after_ms(left, NOW) == -1
    assert retry_after_ms(left, NOW, status=428) == -1
    assert retry_after_ms(left, NOW, status=429) == 2000


def test_a_repeated_value_counts_once() -> None:
    assert [unrepeated(text) for text in ("a", "a,a", " a , a", "a,b", "", ",")] == ["a", "a", "a", "a,b", "", ""]


# --- limits ---
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1e15", 1e15),
        ("1.1e15", None),
        ("-0.1", None),
        ("1_0", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        (None, None),
        ("x", None),
        ("2.5", 2.5),
    ],
)
def test_an_amount(text: str | None, number: float | None) -> None:
    assert amount(text) == number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360),
        ("1.5", 1.5),
        ("30", 30),
        ("x", None),
        ("", None),
        (None, None),
        ("2678400", 2_678_400),
        ("2678401", None),
        ("1800000001500", 1.5),
        ("1799913600000", -86_400),
        ("1799913599000", None),
        ("1800000030", 30),
        ("1799913600", -86_400),
        ("1799913599", None),
        ("2027-01-15T08:00:30Z", 30),
        ("2027-01-14T08:00:00Z", -86_400),
        ("2027-01-14T07:59:59Z", None),
        ("2027-02-15T08:00:00Z", 2_678_400),
        ("2027-02-15T08:00:01Z", None),
        ("9999-12-31T23:59:59-12:00", None),
        ("Fri, 15 Jan 2027 08:01:00 GMT", 60),
    ],
)
def test_the_seconds_until_a_reset(text: str | None, seconds: float | None) -> None:
    assert seconds_until(text, NOW) == seconds


ROW = HeaderRow("requests", Unit.REQUESTS, "limit", "left", "reset")


def read(row: HeaderRow, **headers: str) -> tuple[tuple[ReportedLimit, ...], list[str]]:
    ignored: list[str] = []
    return read_rows([row], headers, NOW, ignored), ignored


def test_a_row_of_headers_is_a_limit() -> None:
    assert HeaderRow("requests", Unit.REQUESTS, "limit", "left", "reset", 60.0, False, "") == ROW
    limit = ReportedLimit("requests", Unit.REQUESTS, 60.0, 9.0, 4.0, 2.0)
    assert read(ROW, limit="9", left="4", reset="2s") == ((limit,), [])
    assert read(ROW, reset="2s") == ((), [])
    assert read(ROW, limit="9") == ((ReportedLimit("requests", Unit.REQUESTS, 60.0, 9.0),), [])
    assert read(ROW, left="4") == ((), ["left"])
    assert read(ROW, limit="0", left="0", reset="x") == ((), ["limit"])
    limit = ReportedLimit("requests", Unit.REQUESTS, 60.0, 9.0)
    assert read(ROW, limit="9", left="x", reset="soon") == ((limit,), ["left", "reset"])


def test_a_late_reset_shows_a_limit_per_day() -> None:
    daily = HeaderRow("tokens", Unit.TOKENS, "limit", "left", "reset", may_be_daily=True, tier="fast")
    assert read(daily, limit="9", reset="600s")[0] == (
        ReportedLimit("tokens", Unit.TOKENS, 60.0, 9.0, None, 600.0, "fast"),
    )
    assert read(daily, limit="9", reset="601s")[0] == (
        ReportedLimit("tokens per day", Unit.TOKENS, 86_400.0, 9.0, None, 601.0, "fast"),
    )
    assert read(ROW, limit="9", reset="601s")[0] == (ReportedLimit("requests", Unit.REQUESTS, 60.0, 9.0, None, 601.0),)


@pytest.mark.parametrize(
    ("reset", "step", "is_moment"),
    [
        ("2s", 1.0, False),
        ("2", 1.0, False),
        ("2.5s", 0.001, False),
        ("20ms", 0.001, False),
        ("23h18m29.144s", 0.001, False),
        ("2 minutes", 1.0, False),
        ("1800000001500", 0.001, True),
        ("1800000002", 1.0, True),
        ("2027-01-15T08:00:30.5Z", 1.0, True),
        ("2027-01-15T08:00:30Z", 1.0, True),
        ("2027-01-15T08:59:30+01:00", 1.0, True),
        ("Fri, 15 Jan 2027 08:01:00 GMT", 1.0, True),
        ("soon", 1.0, False),
        ("", 1.0, False),
    ],
)
def test_the_precision_of_a_reset_and_whether_it_is_a_moment(reset: str, step: float, is_moment: bool) -> None:
    ((limit,), _) = read(ROW, limit="9", reset=reset)
    assert (limit.reset_step, limit.reset_is_moment) == (step, is_moment)


def reported(category: ms.ErrorCategory, **facts: object) -> QuotaReport:
    error = ms.ProviderError("m", category=category, **facts)  # type: ignore[arg-type]
    return read_plain_report("mine", {"retry-after": "9"}, NOW, error, b"")


def test_a_dialect_of_a_program_reports_what_its_errors_say() -> None:
    rate = ms.ErrorCategory.RATE_LIMIT
    assert reader_of("mine") is read_plain_report
    assert read_plain_report("mine", {}, NOW, None, b"") == QuotaReport((), Refusal.NONE, None, None, ())
    assert reported(rate, retry_after_ms=1500) == QuotaReport((), Refusal.RATE, None, 1.5)
    assert reported(rate, retry_after_ms=0) == QuotaReport((), Refusal.RATE, None, 0.0)
    assert reported(rate) == QuotaReport((), Refusal.RATE, None, None)
    assert reported(rate, retryable=False) == QuotaReport((), Refusal.SPENT, None, None)
    for status, refusal in ((503, Refusal.OVERLOAD), (529, Refusal.OVERLOAD), (500, Refusal.NONE), (429, Refusal.NONE)):
        assert reported(ms.ErrorCategory.SERVER, http_status=status) == QuotaReport((), refusal, None, None)


def test_the_words_of_limits() -> None:
    assert [unit.words for unit in Unit] == ["requests", "input tokens", "output tokens", "tokens"]
    assert [int(unit) for unit in Unit] == [0, 1, 2, 3]
    assert [refusal.value for refusal in Refusal] == ["none", "rate", "overload", "too_large", "spent"]


@pytest.mark.parametrize(
    ("message", "milliseconds"),
    [
        ("Please try again in two minutes.", 120_000),
        ("try again in forty-five seconds", 45_000),
        ("Try again in half an hour", 1_800_000),
        ("try again in ~5 minutes", 300_000),
        ("try again in less than a minute", 60_000),
        ("Please try again in 00:01:30", 90_000),
        ("back off for 10 seconds", 10_000),
        ("cooldown: 30s", 30_000),
        ("next request allowed in 12 seconds", 12_000),
        ("Request again in 20 s", 20_000),
        ("You will regain access on 2027-01-15 at 08:01 UTC.", 60_000),
        ("Try again at 2027-01-15T10:01:30.5+02:00", 90_500),
        ("quota resets at 2027-01-15 08:02:00", 120_000),
        ("in twenty seconds the connection reset after 30 seconds", -1),
        ("two minutes", -1),
        ("a cool downtown for 3 days", -1),
        ("access on 2027-01-15", -1),
        ("try again in 1:2", -1),
    ],
)
def test_a_wait_has_many_words(message: str, milliseconds: int) -> None:
    assert hint_in_words(message, NOW) == milliseconds


def test_a_time_in_words_needs_a_clock() -> None:
    assert hint_in_words("Try again at 2027-01-15T08:01:00Z") == -1


@pytest.mark.parametrize(
    ("headers", "milliseconds"),
    [
        ({"x-retry-after": "30"}, 30_000),
        ({"x-ratelimit-retry-after": "1m"}, 60_000),
        ({"x-ms-retry-after-ms": "2500"}, 2_500),
        ({"retry-after-seconds": "30", "retry-after": "20"}, 20_000),
        ({"x-ratelimit-requests-reset": "30", "x-ratelimit-requests-remaining": "0"}, 30_000),
        ({"ratelimit": '"default";r=0;t=30'}, 30_000),
        ({"ratelimit": '"burst";r=4;t=3, "day";r=0;t=30'}, 30_000),
        ({"ratelimit": "limit=10, remaining=0, reset=30"}, 30_000),
        ({"ratelimit": '"default";r=7'}, -1),
        ({"ratelimit": '"default";r=7;t=99999999'}, -1),
        ({"no-retry-after": "30"}, -1),
    ],
)
def test_a_wait_has_many_headers(headers: dict[str, str], milliseconds: int) -> None:
    assert retry_after_ms(headers, NOW, status=429) == milliseconds


NOVEMBER = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:25Z", "anthropic-ratelimit-tokens-remaining": "0"},
            5000),
        # A bucket that is not empty causes no wait.
        ({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:25Z", "anthropic-ratelimit-tokens-remaining": "9"}, -1),
        ({"x-ratelimit-reset-tokens": "6s", "x-ratelimit-remaining-tokens": "0"}, 6000),
        ({"x-ratelimit-reset-tokens": "6s", "x-ratelimit-remaining-tokens": "9"}, -1),
    ],
)  # fmt: skip
def test_only_an_empty_buckets_reset_is_a_hint(headers: dict[str, str], hint: int) -> None:
    assert retry_after_ms(headers, NOVEMBER, status=503) == hint
