"""Each rule of a quota separately, with literal numbers."""

from __future__ import annotations

import math

import pytest

from manystream.engine.traffic.limits.quota import Quota
from manystream.engine.traffic.limits.rate_limit import RateLimit
from manystream.engine.traffic.limits.reported import declared_buckets
from manystream.engine.traffic.queue.permit import Permit, PermitState
from manystream.providers.errors import InvalidRequestError
from manystream.providers.limits.charging import Charging, charging_of
from manystream.providers.limits.quota_report import DAY, MINUTE, NOTHING, QuotaReport, Refusal, ReportedLimit, Unit

REQUESTS, TOKENS = Unit.REQUESTS, Unit.TOKENS
PLAIN = Charging()
REFUSED = QuotaReport(refusal=Refusal.RATE)


def a_quota(charging: Charging = PLAIN, **limits: float) -> Quota:
    return Quota(charging, declared=declared_buckets(RateLimit(**limits)) if limits else ())


def send(quota: Quota, now: float, input_tokens: float = 100, max_output: float = 0) -> Permit:
    ticket = Permit(input_tokens, max_output)
    ticket.cost = quota.charger.estimate(input_tokens, max_output)
    quota.reserve(ticket, now)
    return ticket


def ready_at(quota: Quota, now: float, input_tokens: float = 100) -> float:
    return quota.ready_at(quota.charger.estimate(input_tokens, 0), now)


def requests(limit: float, remaining: float | None = None, window: float = MINUTE) -> QuotaReport:
    return QuotaReport((ReportedLimit("requests", REQUESTS, window, limit, remaining),))


def level(quota: Quota, name: str, now: float) -> float:
    return quota.reported[name].bucket.fill(now)


# 1. Reported bucket.


def test_the_first_level_is_the_rest_minus_calls_sent_since() -> None:
    quota = a_quota()
    first = send(quota, 0)
    send(quota, 0.01)
    send(quota, 0.02)
    quota.confirm(first, requests(60, 40), 0.1)
    bucket = quota.reported["requests"].bucket
    assert (bucket.rate, bucket.capacity, bucket.level) == (1, 60, 38)


def test_a_rest_is_without_calls_that_may_have_been_overtaken() -> None:
    quota = Quota(charging_of("openai-chat"))
    first, second, third = (send(quota, 0) for _ in range(3))
    quota.confirm(first, requests(60, 59), 0)
    assert level(quota, "requests", 0) == 57
    fifth = [send(quota, 0), send(quota, 0)][1]
    quota.confirm(fifth, requests(60, 58), 0)  # the server has received two of five calls
    assert level(quota, "requests", 0) == 55
    quota.confirm(second, requests(60, 57), 0)
    quota.confirm(third, requests(60, 56), 0)
    assert level(quota, "requests", 0) == 55


def test_later_rests_are_not_read() -> None:
    quota = a_quota()
    quota.confirm(send(quota, 0), requests(60, 40), 0)
    quota.confirm(send(quota, 0), requests(60, 10), 0)
    quota.confirm(send(quota, 0), requests(60, 60), 0)
    assert level(quota, "requests", 0) == 38


def test_a_changed_limit_scales_rate_level_and_capacity() -> None:
    quota = a_quota()
    quota.confirm(send(quota, 0), requests(60, 40), 0)
    quota.confirm(send(quota, 0), requests(30), 0)
    bucket = quota.reported["requests"].bucket
    assert (bucket.rate, bucket.capacity, bucket.level) == (0.5, 30, 19.5)


@pytest.mark.parametrize(
    "report", [requests(0, 0), requests(0), QuotaReport((ReportedLimit("x", REQUESTS, MINUTE, None, 5),))]
)
def test_a_rest_without_a_limit_is_ignored(report: QuotaReport) -> None:
    quota = a_quota()
    quota.confirm(send(quota, 0), report, 0)
    assert quota.reported == {}


def test_a_limit_of_another_tier_is_ignored() -> None:
    quota = a_quota()
    limit = ReportedLimit("input-tokens", Unit.INPUT_TOKENS, MINUTE, 100, 0, tier="priority")
    quota.confirm(send(quota, 0), QuotaReport((limit,)), 0)
    assert quota.reported == {}


def test_an_empty_bucket_says_when_there_is_room() -> None:
    quota = a_quota()
    quota.confirm(send(quota, 0), requests(60, 0), 0)
    assert ready_at(quota, 0) == 1.0
    assert ready_at(quota, 1.0) == 1.0


def test_a_daily_limit_is_one_bucket_and_not_spread_over_the_day() -> None:
    quota = a_quota()
    quota.confirm(send(quota, 0), requests(1000, 500, DAY), 0)
    bucket = quota.reported["requests"].bucket
    assert (bucket.capacity, bucket.level) == (1000, 500)


# 2. Learned bucket.


def test_the_first_refusal_makes_a_bucket_at_the_reported_rate() -> None:
    quota = a_quota()
    quota.confirm(send(quota, 0), requests(240, 240), 0)
    quota.refuse(send(quota, 1), REFUSED, 1)
    learned = quota.learned[REQUESTS].bucket
    assert (learned.rate, learned.capacity) == (4, 4)
    assert learned.fill(1.25) == 1.0


def test_without_a_reported_limit_it_has_half_of_what_was_sent() -> None:
    quota = a_quota()
    for count in range(10):
        quota.confirm(send(quota, count / 2), NOTHING, count / 2)
    quota.refuse(send(quota, 5), REFUSED, 5.5)
    assert quota.learned[REQUESTS].rate == 1.0


def test_no_header_lifts_it() -> None:
    quota = a_quota()
    quota.refuse(send(quota, 0), REFUSED, 0)
    rate = quota.learned[REQUESTS].rate
    quota.confirm(send(quota, 10), requests(6000, 6000), 10)
    assert quota.learned[REQUESTS].rate == pytest.approx(rate * 1.02)


# 3. Cut. 4. Growth.


def with_learned_rate(accepted: int) -> Quota:
    """A quota that has learned 100 requests a second at time 0, and had calls accepted at time 1."""
    quota = a_quota()
    quota.confirm(send(quota, 0), requests(6000, 6000), 0)
    quota.refuse(send(quota, 0), REFUSED, 0)
    for ticket in [send(quota, 1) for _ in range(accepted)]:
        quota.confirm(ticket, NOTHING, 1)
    return quota


def test_a_refusal_after_ten_costs_cuts_the_rate_once() -> None:
    quota = with_learned_rate(10)
    one, other = send(quota, 2), send(quota, 2)
    quota.refuse(one, REFUSED, 2.1)
    assert quota.learned[REQUESTS].rate == pytest.approx(70)
    quota.refuse(other, REFUSED, 2.1)
    assert quota.learned[REQUESTS].rate == pytest.approx(70)


def test_with_fewer_the_hold_doubles_and_the_rate_is_cut_once() -> None:
    quota = with_learned_rate(9)
    now, seen = 2.0, list[tuple[float, float]]()
    for _ in range(8):
        quota.refuse(send(quota, now), REFUSED, now)
        seen.append((quota.hold_until - now, round(quota.learned[REQUESTS].rate, 2)))
        now += 100
    assert seen == [(0.25, 100), (0.5, 100), (1, 70), (2, 70), (4, 70), (8, 70), (16, 70), (16, 70)]


def test_growth_is_two_percent_a_call_up_to_the_limit() -> None:
    quota = with_learned_rate(10)
    quota.refuse(send(quota, 2), REFUSED, 2)
    rates = list[float]()
    for now in (3.0, 3.0, 3.0, 3.0, 4.0):
        quota.confirm(send(quota, now), NOTHING, now)
        rates.append(quota.learned[REQUESTS].rate / 70)
    assert rates == pytest.approx([1.02, 1.0404, 1.0404 * 1.01, 1.0404 * 1.01, 1.0404 * 1.01 * 1.02])
    for second in range(5, 60):
        quota.confirm(send(quota, second), NOTHING, second)
    assert quota.learned[REQUESTS].rate == 100


# 5. Window.


def test_ten_calls_may_be_unconfirmed() -> None:
    quota = a_quota()
    tickets = [send(quota, 0) for _ in range(10)]
    assert ready_at(quota, 0.25) == 0.5
    quota.confirm(tickets[0], NOTHING, 0.3)
    assert quota.window.size == 11
    assert ready_at(quota, 0.3) == 0.3


def test_half_a_second_without_a_refusal_confirms() -> None:
    quota = a_quota()
    tickets = [send(quota, 0) for _ in range(10)]
    assert ready_at(quota, 0.5) == 0.5
    assert {ticket.state for ticket in tickets} == {PermitState.CONFIRMED}


def test_the_window_grows_only_while_half_of_it_is_used() -> None:
    quota = a_quota()
    for now in range(20):
        quota.confirm(send(quota, now), NOTHING, now)
    assert quota.window.size == 10


def test_above_32_the_window_grows_by_32_a_round_trip() -> None:
    quota, sizes = a_quota(requests_per_minute=60_000), list[int]()
    for now in range(6):
        for ticket in [send(quota, now) for _ in range(quota.window.size)]:
            quota.confirm(ticket, NOTHING, now + 0.1)
        sizes.append(quota.window.size)
    assert sizes == [20, 39, 63, 89, 117, 145]


def test_the_window_grows_no_further_than_three_times_a_known_rate() -> None:
    """The server accepts each call after half a second and allows 60 a second: 3 × 60 × 0.5 calls."""
    quota = a_quota(requests_per_minute=3600)
    for now in range(20):
        for ticket in [send(quota, now) for _ in range(quota.window.size)]:
            quota.confirm(ticket, NOTHING, now + 0.5)
    assert quota.window.size == 90


def test_the_window_of_a_fast_server_with_a_known_rate_stays_small() -> None:
    quota = a_quota(requests_per_minute=3600)
    for step in range(200):
        for ticket in [send(quota, step) for _ in range(quota.window.size)]:
            quota.confirm(ticket, NOTHING, step + 0.005)
    assert quota.window.size <= 32


@pytest.mark.parametrize("limit", [None, 1e6], ids=["no limit", "a limit per day"])
@pytest.mark.parametrize("whole", [False, True])
def test_nothing_slows_the_window_down_where_no_rate_is_known(whole: bool, limit: float | None) -> None:
    """Streams add a call each up to 32, and 32 in a round trip above that; whole answers add 16 calls each."""
    quota, sizes = Quota(PLAIN, declared=declared_buckets(RateLimit(requests_per_day=limit)) if limit else ()), [10]
    for now in range(3):
        for ticket in [send(quota, now) for _ in range(quota.window.size)]:
            quota.confirm(ticket, NOTHING, now + 0.1, whole=whole)
        sizes.append(quota.window.size)
    assert sizes == ([10, 170, 2890, 49130] if whole else [10, 20, 39, 63])


# 6. Hold.


@pytest.mark.parametrize(("hint", "hold"), [(None, 0.125), (0.5, 0.5), (3600.0, 5.0)])
def test_the_hint_is_obeyed_for_five_seconds_at_most(hint: float | None, hold: float) -> None:
    quota = a_quota()
    quota.refuse(send(quota, 0), QuotaReport(refusal=Refusal.RATE, hint=hint), 1)
    assert quota.hold_until == 1 + hold
    assert ready_at(quota, 1) >= 1 + hold


def test_after_the_hold_there_is_room_for_one_call() -> None:
    quota = with_learned_rate(10)
    quota.refuse(send(quota, 2), QuotaReport(refusal=Refusal.RATE, hint=2), 2)
    assert ready_at(quota, 2) == 4
    send(quota, 4)
    assert ready_at(quota, 4) == pytest.approx(4 + 1 / 70)


# 7. Charge and settle.


CHARGES = {
    "openai-chat": ((1, 100, 40, 100), (1, 100, 400, 400)),
    "azure": ((1, 100, 40, 140), (1, 100, 400, 500)),
    "anthropic": ((1, 100, 40, 140), (1, 100, 400, 500)),
    "google": ((1, 100, 40, 140), (1, 100, 400, 500)),
    "groq": ((1, 100, 40, 140), (1, 100, 400, 500)),
}


@pytest.mark.parametrize("provider", CHARGES)
def test_what_a_call_costs(provider: str) -> None:
    quota = a_quota(charging_of(provider))
    assert (quota.charger.estimate(100, 40), quota.charger.estimate(100, 400)) == CHARGES[provider]


def test_output_counted_as_produced_costs_the_learned_mean() -> None:
    charger = a_quota(charging_of("anthropic")).charger
    for output in (10.0, 20.0, 30.0):
        charger.settled(100, 0, output)
    assert charger.estimate(100, 4096) == (1, 100, 20, 120)


@pytest.mark.parametrize(
    ("provider", "used", "declared", "of_server"),
    [
        ("openai-chat", (1, 90, 20, 110), 890, 600),
        ("azure", (1, 90, 20, 110), 890, 500),
        ("anthropic", (1, 30, 20, 50), 950, 950),
        ("google", (1, 90, 20, 110), 890, 890),
        ("vllm", (1, 90, 20, 110), 890, 890),
        ("groq", (1, 90, 20, 110), 890, 890),
    ],
)
def test_a_call_is_settled_by_its_usage(
    provider: str, used: tuple[float, ...], declared: float, of_server: float
) -> None:
    """A declared limit counts what was used, whatever is known of the server's settlement."""
    quota = a_quota(charging_of(provider), tokens_per_minute=1000)
    first = send(quota, 0, 0)
    quota.confirm(first, QuotaReport((ReportedLimit("tokens", TOKENS, MINUTE, 1000, 1000),)), 0)
    ticket = send(quota, 0, 100, 400)
    settled = quota.charger.settled(90, 60, 20)
    assert settled == used
    quota.settle(ticket, settled, 0)
    levels = [level(quota, name, 0) for name in ("declared tokens_per_minute", "tokens")]
    assert levels == pytest.approx([declared, of_server])


def test_a_refused_call_is_given_back_except_openais_requests() -> None:
    for charging, left in ((PLAIN, 60), (charging_of("openai-chat"), 59)):
        quota = a_quota(charging, requests_per_minute=60, tokens_per_minute=600)
        quota.refuse(send(quota, 0), REFUSED, 0)
        assert level(quota, "declared requests_per_minute", 0) == left
        assert level(quota, "declared tokens_per_minute", 0) == 600


def test_an_unknown_settlement_can_only_raise_the_level() -> None:
    def tokens(remaining: float) -> QuotaReport:
        return QuotaReport((ReportedLimit("tokens", TOKENS, MINUTE, 600, remaining),))

    quota = a_quota(charging_of("openai-chat"))
    quota.confirm(send(quota, 0), tokens(300), 0)
    ticket = send(quota, 0)
    send(quota, 0)
    quota.confirm(ticket, tokens(500), 0)
    assert level(quota, "tokens", 0) == 400
    quota.confirm(send(quota, 0), tokens(10), 0)
    assert level(quota, "tokens", 0) == 300


# 8. Whose limit a refusal is.


def test_a_refusal_is_attributed_to_one_limit() -> None:
    named = a_quota()
    named.refuse(send(named, 0), QuotaReport(refusal=Refusal.RATE, refused_by=TOKENS), 0)
    assert list(named.learned) == [TOKENS]
    least = a_quota(requests_per_minute=60, tokens_per_minute=600)
    least.refuse(send(least, 0), REFUSED, 0)
    assert list(least.learned) == [TOKENS]
    neither = a_quota()
    neither.refuse(send(neither, 0), REFUSED, 0)
    assert list(neither.learned) == [REQUESTS]


def test_the_next_scarce_limit_is_blamed_after_the_first() -> None:
    """The server refuses by its requests and does not name them; its tokens look scarcer."""
    quota = a_quota(requests_per_minute=600, tokens_per_minute=6000)
    for now in (0, 10, 20):
        quota.refuse(send(quota, now), REFUSED, now + 1)
    assert list(quota.learned) == [TOKENS, REQUESTS]
    quota.refuse(send(quota, 30), REFUSED, 31)
    assert list(quota.learned) == [TOKENS, REQUESTS]
    for now in range(40, 52):
        quota.confirm(send(quota, now), NOTHING, now)
    before = quota.learned[TOKENS].rate
    quota.refuse(send(quota, 60), REFUSED, 61)
    assert quota.learned[TOKENS].rate < before


# 9. Declared limits.


def test_less_than_one_request_in_a_window_is_one_in_a_longer_time() -> None:
    quota = a_quota(requests_per_second=0.5)
    assert quota.never(Permit(100, 0), 0) is None
    send(quota, 0)
    assert ready_at(quota, 0) == 2


def test_a_declared_limit_is_full_at_the_start() -> None:
    quota = a_quota(requests_per_second=2)
    for _ in range(2):
        send(quota, 5)
    assert ready_at(quota, 5) == 5.5


def test_a_shared_limit_holds_for_all_that_share_it() -> None:
    shared = declared_buckets(RateLimit(requests_per_second=1))
    one, other = Quota(PLAIN, declared=shared), Quota(PLAIN, declared=shared)
    send(one, 0)
    assert ready_at(other, 0) == 1


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "60"])
def test_a_limit_that_is_no_number_above_zero_is_an_error(value: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"rates\.requests_per_minute"):
        RateLimit(requests_per_minute=value)


def test_without_adapting_only_declared_limits_and_hints_hold() -> None:
    quota = Quota(PLAIN, declared=declared_buckets(RateLimit(requests_per_minute=6000)), adaptive=False)
    for _ in range(50):
        send(quota, 0)
    quota.refuse(send(quota, 0), QuotaReport(refusal=Refusal.RATE, hint=2), 0)
    assert (quota.learned, ready_at(quota, 0), ready_at(quota, 2)) == ({}, 2, 2)


# 10. What can never go.


def test_an_exhausted_quota_is_tried_again_after_a_minute() -> None:
    quota = a_quota()
    assert quota.refuse(send(quota, 0), QuotaReport(refusal=Refusal.SPENT, hint=11), 1) is Refusal.SPENT
    cost = quota.charger.estimate(1, 1)
    impossible = quota.impossible(cost, 2)
    assert impossible is not None
    assert (impossible.refusal, impossible.retry_after) == (Refusal.SPENT, 59)
    assert quota.impossible(cost, 61) is None


def test_a_request_larger_than_a_declared_limit_can_never_go() -> None:
    quota = a_quota(tokens_per_minute=1000)
    impossible = quota.impossible(quota.charger.estimate(900, 200), 0)
    assert impossible is not None
    assert impossible.refusal is Refusal.TOO_LARGE
    assert "tokens_per_minute" in impossible.why


def test_a_used_up_day_is_said_at_once() -> None:
    quota = a_quota(requests_per_day=2)
    cost = quota.charger.estimate(1, 1)
    assert quota.impossible(cost, 0) is None
    send(quota, 0)
    send(quota, 0)
    impossible = quota.impossible(cost, 0)
    assert impossible is not None
    assert impossible.retry_after == pytest.approx(43200)
