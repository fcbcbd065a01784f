"""Hints and limits in headers at their edges: the longest, the oldest, those without a time zone."""

from __future__ import annotations

import time

import pytest

from manystream.providers.errors import ErrorCategory, ProviderError
from manystream.providers.limits.limit_reports import read_plain_report, reader_of
from manystream.providers.limits.quota_report import QuotaReport, Refusal, ReportedLimit, Unit
from manystream.providers.limits.rate_headers import HeaderRow, amount, read_rows, seconds_until
from manystream.providers.wire.retry_hints import hint_in_words, hint_ms, retry_after_ms, unrepeated

NOW = 1_800_000_000.0
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
        "Fri, 15 Jan 2027 08:01:00 GMT",
        " Fri, 15 Jan 2027 08:01:00 GMT ",
        "Fri, 15 Jan 2027 08:01:00 -0000",
        "Fri, 15 Jan 2027 10:01:00 +0200",
    ],
)
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


def test_the_first_of_several_hints_counts() -> None:
    assert retry_after_ms({"retry-after": "20, 30"}, NOW) == 20_000
    assert retry_after_ms({"retry-after": "soon, 30"}, NOW) == -1


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
        "anthropic-ratelimit-a-reset": "2027-01-15T08:00:02Z",
        "anthropic-ratelimit-a-remaining": "0",
        "x-ratelimit-reset-b": "3s",
        "x-ratelimit-remaining-b": "0",
        "x-ratelimit-reset-c": "9s",
        "x-ratelimit-remaining-c": "1",
        "x-ratelimit-reset-d": "1s",
        "x-ratelimit-reset-e": "soon",
        "x-ratelimit-remaining-e": "0",
        "other-x-ratelimit-reset-f": "99s",
    }
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
        ("1799913600000", 0),
        ("1799913599000", None),
        ("1800000030", 30),
        ("1799913600", 0),
        ("1799913599", None),
        ("2027-01-15T08:00:30Z", 30),
        ("2027-01-14T08:00:00Z", 0),
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
    ("reset", "step"),
    [
        ("2s", 1.0),
        ("2.5s", 0.001),
        ("20ms", 0.001),
        ("1800000001500", 0.001),
        ("1800000002", 1.0),
        ("2027-01-15T08:00:30.5Z", 1.0),
    ],
)
def test_the_precision_of_a_reset(reset: str, step: float) -> None:
    ((limit,), _) = read(ROW, limit="9", reset=reset)
    assert limit.reset_step == step


def reported(category: ErrorCategory, **facts: object) -> QuotaReport:
    error = ProviderError("m", category=category, **facts)  # type: ignore[arg-type]
    return read_plain_report("mine", {"retry-after": "9"}, NOW, error, b"")


def test_a_dialect_of_a_program_reports_what_its_errors_say() -> None:
    rate = ErrorCategory.RATE_LIMIT
    assert reader_of("mine") is read_plain_report
    assert read_plain_report("mine", {}, NOW, None, b"") == QuotaReport((), Refusal.NONE, None, None, ())
    assert reported(rate, retry_after_ms=1500) == QuotaReport((), Refusal.RATE, None, 1.5)
    assert reported(rate, retry_after_ms=0) == QuotaReport((), Refusal.RATE, None, 0.0)
    assert reported(rate) == QuotaReport((), Refusal.RATE, None, None)
    assert reported(rate, retryable=False) == QuotaReport((), Refusal.SPENT, None, None)
    for status, refusal in ((503, Refusal.OVERLOAD), (529, Refusal.OVERLOAD), (500, Refusal.NONE), (429, Refusal.NONE)):
        assert reported(ErrorCategory.SERVER, http_status=status) == QuotaReport((), refusal, None, None)


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
