"""Each rule of a quota separately, with literal numbers.

One file because a quota is one state: its rules share the numbers of these tests.
"""

from __future__ import annotations

import math

import pytest

from manystream.engine.traffic.limits.bucket import BucketSize, declared_buckets
from manystream.engine.traffic.limits.quota import Impossible, Quota
from manystream.engine.traffic.limits.rate_limit import RateLimit
from manystream.engine.traffic.queue.fair_queue import Cost, Permit, PermitState
from manystream.providers.limits.charging import Charging, charging_of
from manystream.providers.limits.quota_report import DAY, MINUTE, NOTHING, QuotaReport, Refusal, ReportedLimit, Unit

REQUESTS, TOKENS = Unit.REQUESTS, Unit.TOKENS
PLAIN = Charging()
REFUSED = QuotaReport(refusal=Refusal.RATE)


def a_quota(charging: Charging = PLAIN, **limits: float) -> Quota:
    return Quota(charging, declared=declared_buckets(RateLimit(**limits)) if limits else ())


def send(quota: Quota, now: float, input_tokens: float = 100, max_output: float = 0) -> Permit:
    ticket = Permit(input_tokens, max_output)
    ticket.cost = quota.estimate(Permit(input_tokens, max_output))
    quota.reserve(ticket, now)
    return ticket


def ready_at(quota: Quota, now: float, input_tokens: float = 100) -> float:
    return quota.ready_at(quota.estimate(Permit(input_tokens, 0)), now)


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
    assert (bucket.rate, bucket.capacity, bucket.level) == (1, 60, 38.1)


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
    learned = quota.learned[REQUESTS]
    assert (learned.rate, learned.capacity) == (4, 4)
    assert learned.fill(1.25) == 1.0


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


def test_with_fewer_the_hold_doubles_and_the_rate_is_cut_once() -> None:
    quota = with_learned_rate(9)
    now, seen = 2.0, list[tuple[float, float]]()
    for _ in range(8):
        quota.refuse(send(quota, now), REFUSED, now)
        seen.append((quota.hold_until - now, round(quota.learned[REQUESTS].rate, 2)))
        now += 100
    assert seen == [(0.25, 100), (0.5, 100), (1, 70), (2, 70), (4, 70), (8, 70), (16, 70), (16, 70)]


# 5. Window.


def test_half_a_second_without_a_refusal_confirms() -> None:
    quota = a_quota()
    tickets = [send(quota, 0) for _ in range(10)]
    assert ready_at(quota, 0.5) == 0.5
    assert {ticket.state for ticket in tickets} == {PermitState.CONFIRMED}


def test_the_window_grows_to_three_times_a_known_rate() -> None:
    """The server accepts each call after half a second and allows 60 a second: 3 × 60 × 0.5 calls."""
    quota = a_quota(requests_per_minute=3600)
    for now in range(20):
        for ticket in [send(quota, now) for _ in range(quota.window.size)]:
            quota.confirm(ticket, NOTHING, now + 0.5)
    assert quota.window.size == 90


@pytest.mark.parametrize("limit", [None, 1e6], ids=["no limit", "a limit per day"])
@pytest.mark.parametrize(("ended", "sizes"), [(True, [10, 500, 500, 1010]), (False, [10, 20, 40, 50])])
def test_the_window_grows_with_answers_without_a_rate(ended: bool, sizes: list[int], limit: float | None) -> None:
    """Answers add 50 calls each, as far as a tenth of all calls is sent before a refusal. Heads add one each."""
    quota, found = Quota(PLAIN, declared=declared_buckets(RateLimit(requests_per_day=limit)) if limit else ()), [10]
    for now in range(3):
        for ticket in [send(quota, now) for _ in range(quota.window.size)]:
            quota.confirm(ticket, NOTHING, now + 0.1)
            if ended:
                quota.settle(ticket, None, now + 0.1)
        found.append(quota.window.size)
    assert found == pytest.approx(sizes, abs=10)


def test_after_a_refusal_no_answer_makes_the_window_grow() -> None:
    quota, failing = a_quota(), a_quota()
    quota.refuse(send(quota, 0), QuotaReport(refusal=Refusal.RATE), 0.1)
    for ticket in [send(quota, 9) for _ in range(10)]:
        quota.settle(ticket, None, 9.1)
    for ticket in [send(failing, 9) for _ in range(10)]:
        failing.settle(ticket, None, 9.1, answered=False)
    assert (quota.window.size, failing.window.size) == (20, 20)


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
    assert (quota.estimate(Permit(100, 40)), quota.estimate(Permit(100, 400))) == CHARGES[provider]


def test_output_counted_as_produced_costs_the_learned_mean() -> None:
    quota = a_quota(charging_of("anthropic"))
    for output in (10.0, 20.0, 30.0):
        quota.settled(100, 0, output)
    assert quota.estimate(Permit(100, 4096)) == (1, 100, 20, 120)


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
def test_a_call_is_settled_by_usage(provider: str, used: tuple[float, ...], declared: float, of_server: float) -> None:
    """A declared limit counts what was used, whatever is known of the server's settlement."""
    quota = a_quota(charging_of(provider), tokens_per_minute=1000)
    first = send(quota, 0, 0)
    quota.confirm(first, QuotaReport((ReportedLimit("tokens", TOKENS, MINUTE, 1000, 1000),)), 0)
    ticket = send(quota, 0, 100, 400)
    settled = quota.settled(90, 60, 20)
    assert settled == used
    quota.settle(ticket, settled, 0)
    levels = [level(quota, name, 0) for name in ("declared tokens_per_minute", "tokens")]
    assert levels == pytest.approx([declared, of_server])


def test_more_cached_input_than_input_gives_nothing_back() -> None:
    assert a_quota(charging_of("anthropic")).settled(30, 60, 20) == (1, 0, 20, 20)


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


def test_a_shared_limit_holds_for_all_that_share_it() -> None:
    shared = declared_buckets(RateLimit(requests_per_second=1))
    one, other = Quota(PLAIN, declared=shared), Quota(PLAIN, declared=shared)
    send(one, 0)
    assert ready_at(other, 0) == 1


# 10. What can never go.


def test_an_exhausted_quota_is_tried_again_after_a_minute() -> None:
    quota = a_quota()
    assert quota.refuse(send(quota, 0), QuotaReport(refusal=Refusal.SPENT, hint=11), 1) is Refusal.SPENT
    impossible = quota.never(Permit(1, 1), 2)
    assert (impossible.refusal, impossible.retry_after) == (Refusal.SPENT, 59)
    assert quota.never(Permit(1, 1), 61) is None


# --- what a quota says and does beyond its main rules: words, messages for the log, boundaries, and what is ---


INF = math.inf
RATE = QuotaReport(refusal=Refusal.RATE)


def plain_quota(charging: Charging | None = None, *, adaptive: bool = True, **limits: float) -> Quota:
    declared = declared_buckets(RateLimit(**limits), 0, "*") if limits else ()  # type: ignore[arg-type]
    return Quota(charging or Charging(), declared=declared, adaptive=adaptive)


def cost(tokens: float = 100, output: float = 0) -> Cost:
    return Cost(1, tokens, output, tokens + output)


def send_call(quota: Quota, now: float, tokens: float = 100, output: float = 0) -> Permit:
    ticket = Permit(tokens, output)
    ticket.cost = cost(tokens, output)
    quota.reserve(ticket, now)
    return ticket


def report(unit: Unit, limit: float, remaining: float | None = None, window: float = MINUTE) -> QuotaReport:
    return QuotaReport((ReportedLimit(unit.words, unit, window, limit, remaining),))


def test_a_call_is_counted_from_its_start_to_its_end() -> None:
    quota = plain_quota()
    one, two = send_call(quota, 3, 100, 20), send_call(quota, 4)
    assert (quota.sent, quota.running) == (2, 2)
    assert (one.state, one.sent_at, one.sent_before) == (PermitState.SENT, 3, (1, 100, 20, 120))
    assert (two.sent_at, two.sent_before) == (4, (2, 200, 20, 220))
    quota.confirm(one, NOTHING, 5)
    assert (one.state, quota.running, len(quota.window)) == (PermitState.CONFIRMED, 2, 1)
    quota.settle(one, None, 6)
    quota.settle(two, None, 6)
    assert (quota.sent, quota.running, len(quota.window)) == (2, 0, 0)
    assert (one.state, two.state) == (PermitState.ENDED, PermitState.ENDED)


def test_a_call_that_was_not_sent_counts_as_if_it_had_not_been() -> None:
    quota = plain_quota(requests_per_minute=60)
    quota.confirm(send_call(quota, 0), report(TOKENS, 6000, 5000), 0)
    ticket = send_call(quota, 1, 300)
    quota.release(ticket, 1)
    assert (quota.sent, quota.running, len(quota.window), ticket.state) == (1, 1, 0, PermitState.ENDED)
    assert (quota.level(TOKENS, 1), quota.level(REQUESTS, 1)) == (5100, 60)
    late = send_call(quota, 2)
    assert late.sent_before == (2, 200, 0, 200)


def test_what_a_call_waits_for() -> None:
    quota = plain_quota(requests_per_minute=60)
    for _ in range(60):
        quota.confirm(send_call(quota, 0), NOTHING, 0)
    assert (quota.waits_for(cost(), 0), quota.waits_for(cost(), 1)) == ("declared requests_per_minute of *", "")
    quota.hold_until = 1
    assert quota.waits_for(cost(), 0) == "the end of a pause that the server asked for"
    learned = plain_quota()
    learned.refuse(send_call(learned, 0, 1000), QuotaReport(refusal=Refusal.RATE, refused_by=TOKENS), 1)
    assert [learned.waits_for(cost(1000), now) for now in (1, 2.9, 3)] == ["tokens", "tokens", ""]
    full = plain_quota()
    for _ in range(10):
        send_call(full, 0)
    assert full.waits_for(cost(), 0) == "the first responses"


def test_a_call_fits_at_once_up_to_each_limit() -> None:
    quota = plain_quota(tokens_per_minute=1200)
    assert [quota.fits_at_once(cost(tokens), 0) for tokens in (1200, 1201)] == [True, False]
    send_call(quota, 0, 1000)
    assert [quota.fits_at_once(cost(tokens), 0) for tokens in (200, 210)] == [True, False]
    quota.hold_until = 2
    assert [quota.fits_at_once(cost(1), now) for now in (1.9, 2)] == [False, True]
    quota.spent_until = 3
    assert [quota.fits_at_once(cost(1), now) for now in (2.9, 3)] == [False, True]


def test_only_an_adaptive_quota_learns_and_has_a_window() -> None:
    for adaptive, fits in ((True, False), (False, True)):
        quota = plain_quota(adaptive=adaptive)
        quota.refuse(send_call(quota, 0), QuotaReport(refusal=Refusal.RATE, hint=0), 0)
        for _ in range(2):
            quota.settle(send_call(quota, 1), None, 1)
        assert (quota.fits_at_once(cost(), 1), quota.ready_at(cost(), 1) == 1) == (fits, fits)
        windowed = plain_quota(adaptive=adaptive)
        for _ in range(10):
            send_call(windowed, 0)
        assert (windowed.fits_at_once(cost(), 0), windowed.ready_at(cost(), 0)) == (fits, 0.5 if adaptive else 0)
        assert windowed.fits_at_once(cost(), 0.5)


def test_calls_sent_at_once_use_the_places_of_accepted_ones() -> None:
    quota = plain_quota()
    for _ in range(10):
        send_call(quota, 0)
    fitting = 0
    while fitting < 99 and quota.fits_at_once(cost(), 0.5):
        send_call(quota, 0.5)
        fitting += 1
    assert (fitting, quota.window.size) == (10, 20), "the other places are used over half a second"


def test_the_own_limits_of_a_scope_leave_declared_ones_out() -> None:
    quota = plain_quota(requests_per_minute=60)
    for _ in range(60):
        quota.settle(send_call(quota, 0), None, 0)
    assert (quota.own_ready_at(cost(), 0), quota.ready_at(cost(), 0)) == (0, 1)
    quota.confirm(send_call(quota, 0), report(TOKENS, 6000, 0), 0)
    assert quota.own_ready_at(cost(300), 0) == 3


def test_the_scarcest_limit_of_a_unit_counts() -> None:
    quota = plain_quota(requests_per_minute=60, requests_per_second=2)
    assert (quota.believed_rate(REQUESTS), quota.level(REQUESTS, 0), quota.believed_rate(TOKENS)) == (1, 2, INF)
    quota.refuse(send_call(quota, 0), QuotaReport(refusal=Refusal.RATE, refused_by=TOKENS), 2)
    assert (quota.believed_rate(TOKENS), quota.level(TOKENS, 3)) == (25, 25), "half of 100 in 2 s"
    quota.confirm(send_call(quota, 3), report(TOKENS, 600, 0), 3)
    assert quota.believed_rate(TOKENS) == 10


# --- what can never be sent ---


def test_a_call_larger_than_a_limit_is_refused_in_words() -> None:
    quota = plain_quota(Charging(output="produced"), tokens_per_minute=600)
    assert quota.never(Permit(600, 1000), 0) is None, "output that is produced later may be small"
    assert quota.never(Permit(601, 0), 0) == Impossible(
        "the request is larger than the whole limit: declared tokens_per_minute of * (600)", Refusal.TOO_LARGE, -1.0
    )
    reserved = plain_quota(Charging(), tokens_per_minute=600)
    assert reserved.never(Permit(500, 100), 0) is None
    assert reserved.never(Permit(500, 101), 0) is not None


def test_half_of_the_estimate_must_exceed_a_reported_limit() -> None:
    quota = plain_quota()
    quota.confirm(send_call(quota, 0), report(TOKENS, 600, 600), 0)
    assert quota.never(Permit(1200, 0), 0) is None
    impossible = quota.never(Permit(1202, 0), 0)
    assert impossible.why == "the request is larger than the whole limit: tokens (600)"
    assert quota.never(Permit(1000, 100), 0) is None
    assert quota.never(Permit(1000, 102), 0) is not None


def test_a_used_up_day_fails_a_call_that_would_wait_a_minute() -> None:
    quota = plain_quota()
    quota.confirm(send_call(quota, 0), report(REQUESTS, 8640, 0, DAY), 0)
    assert quota.never(Permit(1, 1), 0) is None, "ten seconds"
    quota.reported["requests"].bucket.level = -5.0
    assert quota.never(Permit(1, 1), 0) is None, "sixty seconds"
    quota.reported["requests"].bucket.level = -5.1
    impossible = quota.never(Permit(1, 1), 0)
    assert (impossible.why, impossible.refusal, impossible.retry_after) == (
        "used up: requests", Refusal.SPENT, pytest.approx(61),
    )  # fmt: skip
    minute = plain_quota(requests_per_minute=0.5)
    send_call(minute, 0)
    assert minute.never(Permit(1, 1), 0) is None


@pytest.mark.parametrize(("window", "is_known"), [(3599.0, False), (3600.0, True)])
def test_an_hour_is_a_long_window(window: float, is_known: bool) -> None:
    quota = plain_quota()
    quota.confirm(send_call(quota, 0), report(REQUESTS, 10, 0, window), 0)
    assert (quota.never(Permit(1, 1), 0) is not None) is is_known


@pytest.mark.parametrize("hint", [None, 0.0, 11.0, 100.0, 2_678_400.0])
def test_a_used_up_quota_is_left_alone_for_a_minute(hint: float | None) -> None:
    quota, until = plain_quota(), 65
    assert quota.refuse(send_call(quota, 0), QuotaReport(refusal=Refusal.SPENT, hint=hint), 5) is Refusal.SPENT
    assert (quota.spent_until, quota.refused, quota.learned, quota.hold_until) == (until, 1, {}, -INF)
    assert quota.news == [f"the provider's quota is used up, next try in {until - 5} s"]
    assert [quota.never(Permit(1, 1), now) is None for now in (until - 0.1, until)] == [False, True]


# --- messages for the log ---


def test_limits_that_are_learned_or_change_are_logged() -> None:
    quota = plain_quota()
    quota.confirm(send_call(quota, 0), report(REQUESTS, 600, 600), 0)
    for limit in (630, 660, 661, 720, 580):
        quota.confirm(send_call(quota, 1), report(REQUESTS, limit), 1)
    quota.refuse(send_call(quota, 2), RATE, 2)
    for _ in range(10):
        quota.confirm(send_call(quota, 3), NOTHING, 3)
    quota.refuse(send_call(quota, 4), RATE, 4)
    quota.refuse(send_call(quota, 5), RATE, 5)
    assert quota.news == [
        "limit reported: requests, 600 in 60 s",
        "limit changed: requests, 661 in 60 s",
        "limit changed: requests, 580 in 60 s",
        "limit learned from a refusal: requests, 9.67 a second",
        "learned limit cut after a refusal: requests, 6.77 a second",
    ]


def test_a_limit_of_another_tier_or_without_adapting_is_not_read() -> None:
    for tier, adaptive, names in (("", True, ["x"]), ("flex", True, []), ("", False, [])):
        limit = ReportedLimit("x", REQUESTS, MINUTE, 60, 60, tier=tier)
        quota = Quota(Charging(), adaptive=adaptive)
        quota.confirm(send_call(quota, 0), QuotaReport((limit,)), 0)
        assert list(quota.reported) == names


# --- first levels and corrections ---


def test_a_limit_without_a_rest_begins_with_what_was_sent_taken() -> None:
    quota = plain_quota()
    tickets = [send_call(quota, 0) for _ in range(3)]
    quota.confirm(tickets[0], report(REQUESTS, 60), 0)
    assert quota.level(REQUESTS, 0) == 57


@pytest.mark.parametrize(("remaining", "level"), [(None, -2), (30, -2), (200, 60)])
def test_a_limit_that_is_reported_late_forgets_old_calls(remaining: float | None, level: float) -> None:
    quota = plain_quota()
    slow = send_call(quota, 0)
    for second in range(1, 101):
        quota.confirm(send_call(quota, second), NOTHING, second)
    quota.confirm(slow, NOTHING, 100)
    for _ in range(2):
        send_call(quota, 101)
    quota._read(report(REQUESTS, 60, remaining), slow, 101)  # pyright: ignore[reportPrivateUsage]
    assert quota.level(REQUESTS, 101) == level


def test_an_unstreamed_response_is_of_its_request_s_time() -> None:
    """What has flowed in since then, and the refused calls that the server did not count, are not taken."""
    quota = plain_quota()
    first = send_call(quota, 0)
    others = [send_call(quota, 0) for _ in range(9)]
    for refused in others[4:]:
        quota.refuse(refused, QuotaReport(refusal=Refusal.NONE), 0.1)
    quota.confirm(first, report(REQUESTS, 60, 20), 3)
    assert quota.level(REQUESTS, 3) == 20 + 3 - 4


def test_what_flows_into_a_full_bucket_is_lost() -> None:
    quota = plain_quota()
    first = send_call(quota, 0)
    for _ in range(9):
        send_call(quota, 99)
    quota.confirm(first, report(REQUESTS, 60, 59), 100)
    assert quota.level(REQUESTS, 100) == 60 - 9


def test_an_earlier_call_s_response_changes_no_limit_back() -> None:
    quota = plain_quota()
    quota.confirm(send_call(quota, 0), report(REQUESTS, 60), 0)
    slow, quick = send_call(quota, 1), send_call(quota, 2)
    quota.confirm(quick, report(REQUESTS, 30), 3)
    quota.confirm(slow, report(REQUESTS, 60), 4)
    assert quota.believed_rate(REQUESTS) == 0.5
    quota.confirm(send_call(quota, 5), report(REQUESTS, 60), 6)
    assert quota.believed_rate(REQUESTS) == 1


def test_a_limit_named_late_by_a_refusal_holds_for_seconds() -> None:
    quota = plain_quota()
    for second in range(1000):
        quota.settle(send_call(quota, second), None, second)
    refused = QuotaReport(report(REQUESTS, 60).limits, Refusal.RATE)
    quota.refuse(send_call(quota, 1000), refused, 1000)
    assert quota.level(REQUESTS, 1000) == 0
    assert quota.ready_at(quota.estimate(Permit(100, 0)), 1000) == 1001


def test_calls_during_a_slow_one_do_not_empty_a_bucket() -> None:
    quota = plain_quota()
    first = ReportedLimit("requests", REQUESTS, 60, 60, 50, 10)
    quota.confirm(send_call(quota, 0), QuotaReport((first,)), 0)
    slow = send_call(quota, 0)
    for second in range(1, 101):
        quota.confirm(send_call(quota, second), NOTHING, second)
    quota.confirm(slow, QuotaReport((ReportedLimit("requests", REQUESTS, 60, 60, 44, 12.5),)), 100)
    assert quota.level(REQUESTS, 100) == 0


def test_a_first_level_is_at_most_the_capacity() -> None:
    quota = plain_quota()
    quota.confirm(send_call(quota, 0), report(REQUESTS, 60, 900), 0)
    assert quota.level(REQUESTS, 0) == 60


def test_a_later_rest_is_read_only_where_settling_is_unknown() -> None:
    for settlement, level in (("unknown", 50), ("usage", 40)):
        quota = plain_quota(Charging(settlement=settlement))  # type: ignore[arg-type]
        quota.confirm(send_call(quota, 0), report(REQUESTS, 60, 41), 0)
        ticket = send_call(quota, 0)
        quota.confirm(ticket, report(REQUESTS, 60, 50), 0)
        assert quota.level(REQUESTS, 0) == level


def test_a_later_rest_raises_up_to_the_capacity() -> None:
    quota = plain_quota(Charging(settlement="unknown"))
    quota.confirm(send_call(quota, 0), report(REQUESTS, 60, 41), 0)
    quota.confirm(send_call(quota, 0), report(REQUESTS, 60, 99), 0)
    assert quota.level(REQUESTS, 0) == 60
    day = plain_quota(Charging(settlement="unknown"))
    day.confirm(send_call(day, 0), report(REQUESTS, 864, 400, DAY), 0)
    day.confirm(send_call(day, 0), report(REQUESTS, 864, 500, DAY), 0)
    assert day.level(REQUESTS, 0) == 500


def resets(remaining: float, reset: float) -> QuotaReport:
    return QuotaReport((ReportedLimit("requests", REQUESTS, MINUTE, 600, remaining, reset, reset_step=0.001),))


@pytest.mark.parametrize("settlement", ["usage", "unknown"])
def test_a_bucket_smaller_than_a_minute_is_believed(settlement: str) -> None:
    """600 a minute, of which the server holds ten seconds: 100. It reports 600 × the part that is left."""
    quota = plain_quota(Charging(settlement=settlement))  # type: ignore[arg-type]
    quota.confirm(send_call(quota, 0), resets(594, 0.1), 0)
    bucket = quota.reported["requests"].bucket
    assert (bucket.capacity, bucket.level) == (600, 594)
    quota.confirm(send_call(quota, 0), resets(294, 5.1), 0)
    capacity = 600 * (5.001 / 0.5) / 60
    assert bucket.capacity == pytest.approx(capacity)
    assert bucket.level == pytest.approx(294 * capacity / 600 - 0.02 * capacity)
    early, late = send_call(quota, 0), send_call(quota, 0)
    send_call(quota, 0)
    level = bucket.level
    quota.confirm(late, resets(540, 1), 0)  # one call later, and `early` may have been overtaken
    raised = 540 * capacity / 600 - 2 - 0.02 * capacity
    assert bucket.level == pytest.approx(raised if settlement == "unknown" else level)
    quota.confirm(early, resets(10, 9.9), 0)
    assert bucket.level == pytest.approx(raised if settlement == "unknown" else level)


def test_the_resets_of_a_full_minute_change_no_level() -> None:
    quota = plain_quota()
    quota.confirm(send_call(quota, 0), resets(540, 6), 0)
    quota.confirm(send_call(quota, 0), resets(240, 36), 0)
    assert (quota.reported["requests"].bucket.capacity, quota.level(REQUESTS, 0)) == (600, 539)


def limit(remaining: float | None, reset: float | None, step: float = 0.0) -> ReportedLimit:
    return ReportedLimit("requests", REQUESTS, MINUTE, 1000, remaining, reset, reset_step=step)


@pytest.mark.parametrize(
    ("reset", "seconds"), [(2.9, INF), (3.0, 20.0), (-0.9, INF), (-1.0, INF)], ids=["short", "two", "fell", "window"]
)
def test_a_rise_of_two_seconds_shows_a_size(reset: float, seconds: float) -> None:
    size = BucketSize()
    assert (size.seconds, size.read(limit(900, 1.0))) == (INF, False)
    assert size.read(limit(800, reset)) is (seconds < INF)
    assert size.seconds == pytest.approx(seconds)
    size.read(limit(600, reset + 100))
    assert size.seconds < INF if reset > -1 else size.seconds == INF, "a fall of two seconds is a window's end"


def test_a_size_is_replaced_by_one_that_is_a_hundredth_smaller() -> None:
    size = BucketSize()
    size.read(limit(1000, 0.0))
    resets_and_steps = ((10.0, 0.0), (9.91, 0.0), (9.9, 0.0), (9.89, 0.0), (9.0, 0.9))
    assert [size.read(limit(500, *each)) for each in resets_and_steps] == [True, False, False, True, False]
    assert size.seconds == pytest.approx(19.78)
    assert size.read(limit(1000, 0.0)) is False
    assert size.read(limit(None, 5.0)) is False
    assert size.read(limit(800, None)) is False
    assert size.read(limit(800, 3.0)) is True
    assert size.seconds == pytest.approx(15)


# --- refusals ---


def test_refusals_without_adapting_double_the_pause() -> None:
    quota, holds = plain_quota(adaptive=False), list[float]()
    for now in range(0, 900, 100):
        quota.refuse(send_call(quota, now), RATE, now)
        holds.append(quota.hold_until - now)
    assert holds == [0.25, 0.5, 1, 2, 4, 8, 16, 16, 16]
    quota.refuse(send_call(quota, 1000), QuotaReport(refusal=Refusal.RATE, hint=100), 1000)
    quota.refuse(send_call(quota, 1001), RATE, 1001)
    assert (quota.hold_until, quota.learned) == (1100, {})
    quota.confirm(send_call(quota, 1200), NOTHING, 1200)
    quota.refuse(send_call(quota, 1300), RATE, 1300)
    assert (quota.hold_until, quota.refused) == (1300.25, 12)


def test_other_refusals_give_back_and_teach_nothing() -> None:
    for refusal in (Refusal.OVERLOAD, Refusal.TOO_LARGE, Refusal.NONE):
        quota = plain_quota(requests_per_minute=60)
        ticket = send_call(quota, 0)
        assert quota.refuse(ticket, QuotaReport(refusal=refusal, hint=9), 0) is refusal
        assert (quota.learned, quota.hold_until, quota.level(REQUESTS, 0), quota.news) == ({}, -INF, 60, [])
        assert (quota.running, len(quota.window), ticket.state) == (0, 0, PermitState.ENDED)


def test_only_later_calls_give_back_to_a_learned_bucket() -> None:
    quota = plain_quota()
    early = send_call(quota, 0)
    refused = send_call(quota, 0)
    quota.refuse(refused, QuotaReport(refusal=Refusal.RATE, hint=0), 1)
    assert quota.learned[REQUESTS].level == 0
    quota.settle(early, Cost(0, 0, 0, 0), 1)
    assert quota.learned[REQUESTS].level == 0, "it took nothing from it"
    late = send_call(quota, 1.5)
    level = quota.learned[REQUESTS].level
    quota.settle(late, Cost(0, 0, 0, 0), 1.5)
    assert quota.learned[REQUESTS].level == level + 1


def test_a_limit_that_a_call_does_not_use_is_not_blamed() -> None:
    quota = plain_quota(output_tokens_per_minute=60, requests_per_minute=60)
    quota.refuse(send_call(quota, 0), RATE, 0)
    assert list(quota.learned) == [REQUESTS]
