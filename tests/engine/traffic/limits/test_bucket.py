"""Token buckets and learned limits, step by step with literal numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.modelled.events import Events
from manystream.engine.traffic.limits.bucket import (
    Bucket,
    BucketSize,
    LearnedBucket,
    ReportedBucket,
    declared_buckets,
    first_rate,
    reported_bucket,
)
from manystream.engine.traffic.limits.limiter import LimiterState
from manystream.engine.traffic.limits.rate_limit import RateLimit
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.limits.charging import charging_of
from manystream.providers.limits.limit_reports import reader_of
from manystream.providers.limits.quota_report import MINUTE, QuotaReport, Refusal, ReportedLimit, Unit
from manystream.ray.rate_leases import EngineRates, LeasedBucket
from manystream.simulator.limit import read_limit
from manystream.simulator.limiter import Limiter, Usage
from manystream.simulator.prompt import APIError


def figures(bucket: Bucket) -> tuple[float, float, float, float]:
    return bucket.rate, bucket.capacity, bucket.level, bucket.at


def test_a_bucket_fills_at_its_rate_up_to_its_capacity() -> None:
    bucket = Bucket(2, 10, 3, 100)
    assert (bucket.fill(101), figures(bucket)) == (5, (2, 10, 5, 101))
    assert (bucket.fill(100.5), figures(bucket)) == (5, (2, 10, 5, 101)), "time does not run backwards"
    assert (bucket.fill(200), figures(bucket)) == (10, (2, 10, 10, 200))
    assert figures(Bucket(2, 10, 30, 0)) == (2, 10, 10, 0), "it is never made with more than it holds"


def test_a_level_above_the_capacity_stays_until_it_is_taken() -> None:
    bucket = Bucket(2, 10, 10, 0)
    bucket.level = 12
    assert (bucket.fill(5), bucket.at) == (12, 5)
    bucket.take(4, 5)
    assert (bucket.level, bucket.fill(6)) == (8, 10)


def test_a_cost_fits_at_the_time_at_which_the_bucket_holds_it() -> None:
    bucket = Bucket(2, 10, 3, 100)
    assert [bucket.ready_at(cost, 100) for cost in (0, 3, 4, 7, 10, 25)] == [100, 100, 100.5, 102, 103.5, 103.5]
    assert bucket.ready_at(10, 103.5) == 103.5


def test_a_millionth_of_the_capacity_may_be_missing() -> None:
    assert Bucket(1, 1000, 999.999, 5).ready_at(1000, 5) == 5
    assert Bucket(1, 1000, 999.998, 5).ready_at(1000, 5) == pytest.approx(5.002)


def test_what_does_not_flow_is_never_there() -> None:
    assert Bucket(0, 10, 3, 0).ready_at(4, 0) == math.inf
    assert Bucket(0, 10, 3, 0).ready_at(3, 0) == 0
    assert Bucket(0, 0, 0, 0).ready_at(5, 7) == 7, "a cost above the capacity fits when the bucket is full"


def test_a_large_cost_makes_the_level_negative() -> None:
    bucket = Bucket(2, 10, 10, 0)
    bucket.take(16, 1)
    assert figures(bucket) == (2, 10, -6, 1)
    assert bucket.ready_at(1, 1) == 4.5
    bucket.take(1, 3)
    assert figures(bucket) == (2, 10, -3, 3)


def test_what_is_given_back_fills_up_to_the_capacity() -> None:
    bucket = Bucket(2, 10, 1, 0)
    bucket.give_back(3, 1)
    assert figures(bucket) == (2, 10, 6, 1)
    bucket.give_back(7, 1)
    assert figures(bucket) == (2, 10, 10, 1)
    bucket.give_back(-4, 2)
    assert figures(bucket) == (2, 10, 6, 2)


def test_a_scaled_bucket_keeps_its_proportions() -> None:
    bucket = Bucket(2, 10, 1, 0)
    bucket.scale(6, 2)
    assert figures(bucket) == (6, 30, 15, 2)
    still = Bucket(0, 10, 4, 0)
    still.scale(2, 1)
    assert figures(still) == (2, 10, 4, 1)


def test_a_lease_gives_five_percent_of_its_window_to_save_up() -> None:
    bucket = LeasedBucket(60, 100)
    assert (figures(bucket), bucket.ends_at, bucket.taken) == ((0, 0, 0, 100), -math.inf, 0)
    bucket.lease(10, 200, 100)
    assert (figures(bucket), bucket.ends_at) == ((10, 30, 0, 100), 200)
    assert bucket.fill(150) == 30
    bucket.lease(4, 300, 150)
    assert figures(bucket) == (4, 12, 12, 150), "a lower rate saves up less"
    bucket.lease(10, 300, 150)
    assert figures(bucket) == (10, 30, 12, 150), "a higher rate gives nothing at once"
    bucket.give_back(-20, 151)
    assert (figures(bucket), bucket.taken) == ((10, 30, 2, 151), 20)
    bucket.lease(0, 400, 151)
    assert figures(bucket) == (0, 0, 0, 151)


def test_a_lease_saves_up_for_one_large_cost_only() -> None:
    bucket = LeasedBucket(60, 0)
    bucket.lease(10, 1000, 0)
    assert bucket.ready_at(500, 0) == 50
    assert (bucket.capacity, bucket.fill(40), bucket.ready_at(500, 40)) == (500, 400, 50)
    bucket.lease(20, 1000, 40)
    assert (bucket.capacity, bucket.ready_at(500, 40)) == (500, 45)
    bucket.take(100, 40)
    assert (figures(bucket), bucket.taken) == ((20, 60, 60, 40), 100)
    assert (bucket.ready_at(1, 40), bucket.capacity) == (40, 60)


def test_a_lease_keeps_no_room_for_a_cost_that_was_taken() -> None:
    bucket = LeasedBucket(1, 0)
    bucket.lease(10, 100, 0)
    assert bucket.ready_at(1, 0) == pytest.approx(0.1)
    bucket.take(1, 0.1)
    assert bucket.capacity == 0.5
    waiting = LeasedBucket(60, 0)
    waiting.lease(10, 1000, 0)
    assert (waiting.ready_at(500, 0), waiting.fill(40)) == (50, 400)
    waiting.lease(0, 1000, 40)
    assert figures(waiting) == (0, 0, 0, 40)


def test_a_lease_that_ends_takes_what_was_saved() -> None:
    bucket = LeasedBucket(60, 0)
    bucket.lease(10, 2, 0)
    assert (bucket.fill(1.5), bucket.ready_at(20, 1.5), bucket.ready_at(19, 1.5)) == (15, math.inf, 1.9)
    bucket.take(40, 1.5)
    assert bucket.level == -25
    assert bucket.fill(2) == -20, "a debt stays"
    assert (figures(bucket), bucket.ready_at(0, 2)) == ((0, 0, -20, 2), math.inf)
    assert bucket.fill(9) == -20
    bucket.lease(10, 20, 9)
    assert bucket.ready_at(5, 9) == 11.5


def test_a_rate_lease_names_its_limits_and_tells_of_changes() -> None:
    rates = EngineRates({"openai": RateLimit(requests_per_second=8, tokens_per_minute=600)}, 0)
    lease = rates.declared["openai"].lease
    assert [(each.name, each.unit, each.window, each.declared, each.whole) for each in lease.buckets] == [
        ("declared requests_per_second of openai", Unit.REQUESTS, 1, True, 8),
        ("declared tokens_per_minute of openai", Unit.TOKENS, 60, True, 600),
    ]
    assert [(each.limit, each.rate) for each in lease.buckets] == [(8, 8), (600, 10)]
    assert (lease.open_until, lease.is_wanted()) == (-math.inf, False)
    rates.receive(None, 5, 0, 0)
    seen: list[float] = []
    lease.listen(lambda: seen.append(lease.open_until))
    rates.receive(None, 7, 0, 0)
    assert (lease.open_until, seen) == (7, [7])


def row(bucket: ReportedBucket) -> tuple[object, ...]:
    return (bucket.name, bucket.unit, bucket.window, figures(bucket.bucket), bucket.declared, bucket.whole)


def test_every_declared_limit_is_a_bucket_of_its_window() -> None:
    limit = RateLimit(
        requests_per_second=0.5, requests_per_minute=60, requests_per_day=86400, tokens_per_minute=600,
        input_tokens_per_minute=1200, output_tokens_per_minute=0.5,
    )  # fmt: skip
    assert [row(bucket) for bucket in declared_buckets(limit, 7, "*")] == [
        ("declared requests_per_second of *", Unit.REQUESTS, 2, (0.5, 1, 1, 7), True, 0),
        ("declared requests_per_minute of *", Unit.REQUESTS, 60, (1, 60, 60, 7), True, 0),
        ("declared requests_per_day of *", Unit.REQUESTS, 86400, (1, 86400, 86400, 7), True, 0),
        ("declared tokens_per_minute of *", Unit.TOKENS, 60, (10, 600, 600, 7), True, 0),
        ("declared input_tokens_per_minute of *", Unit.INPUT_TOKENS, 60, (20, 1200, 1200, 7), True, 0),
        ("declared output_tokens_per_minute of *", Unit.OUTPUT_TOKENS, 60, (0.5 / 60, 0.5, 0.5, 7), True, 0),
    ]
    (one,) = declared_buckets(RateLimit(requests_per_minute=1))
    assert (row(one), one.noted, one.limit, one.rate) == (
        ("declared requests_per_minute", Unit.REQUESTS, 60, (1 / 60, 1, 1, 0), True, 0), 0, 1, 1 / 60,
    )  # fmt: skip


@pytest.mark.parametrize(("window", "capacity"), [(1, 6000), (60, 6000), (3599, 6000), (3600, 360_000)])
def test_a_reported_limit_holds_a_minute_or_a_long_window(window: float, capacity: float) -> None:
    bucket = reported_bucket(ReportedLimit("requests", Unit.REQUESTS, window, 100 * window, 3), 5)
    assert row(bucket) == ("requests", Unit.REQUESTS, window, (100, capacity, capacity, 5), False, 0)


# --- learned limits ---


def test_a_learned_bucket_begins_empty_and_holds_a_second() -> None:
    small, large = LearnedBucket(8, 1, 3), LearnedBucket(8, 20, 3)
    assert (figures(small), figures(large)) == ((8, 8, 0, 3), (8, 20, 0, 3))
    assert (small.cut_at, small.made_at, small.rate, small.backoff) == (3, 3, 8, 0.25)


def test_accepted_calls_of_a_second_raise_it_by_five_percent() -> None:
    learned = LearnedBucket(100, 1, 0)
    rates: list[float] = []
    for now in (1, 1, 1, 1, 1.2, 1.2, 9, 9, 9, 9):
        learned.accept(1, math.inf, now)
        rates.append(round(learned.rate, 4))
    assert rates == [102, 104.04, 105.0804, 105.0804, 106.1312, 106.1312, 108.2538, 110.4189, 111.5231, 111.5231]
    assert learned.capacity == learned.rate


def test_the_growth_of_a_part_of_a_second_is_a_part() -> None:
    learned = LearnedBucket(100, 1, 0)
    learned.accept(1, math.inf, 0.1)
    assert learned.rate == pytest.approx(100.5)
    learned.give_back(500, 0.1)
    level = learned.level
    learned.accept(1, math.inf, 0.1)
    assert (learned.rate, learned.level) == (pytest.approx(100.5), level), "no time has passed"


def test_a_learned_rate_grows_to_its_ceiling_and_fills_before() -> None:
    learned = LearnedBucket(100, 200, 0)
    learned.take(0, 1)
    learned.accept(1, 101, 1.5)
    assert figures(learned) == (101, 200, 150, 1.5)
    learned.accept(1, 101, 2.5)
    assert figures(learned) == (101, 200, 150, 1.5)
    learned.accept(1, 50.5, 3)
    assert figures(learned) == (50.5, 200, 200, 3), "half as much is reported"


def test_a_refusal_after_ten_costs_cuts_and_earlier_ones_hold() -> None:
    learned = LearnedBucket(100, 2, 0)
    for _ in range(9):
        learned.accept(2, 0, 1)
    assert (learned.refuse(2, 0, 2), learned.rate, learned.cut_at, learned.backoff) == (0.25, 100, 2, 0.5)
    learned.accept(2, 0, 3)
    assert (learned.refuse(2, 0, 4), learned.rate, learned.cut_at, learned.backoff) == (0, 70, 4, 0.25)
    assert (learned.refuse(2, 0, 5), learned.rate) == (0.25, 70), "counting has begun again"
    assert (learned.refuse(2, 0, 6), learned.rate) == (0.5, 70)
    assert (learned.refuse(2, 0, 7), learned.rate) == (1, 70), "none was accepted: the server is out of order"
    learned.accept(2, 0, 8)
    assert (learned.refuse(2, 0, 9), learned.rate) == (2, 49)


def test_a_learned_rate_doubles_after_an_outage() -> None:
    learned = LearnedBucket(8, 1, 0)
    assert [learned.refuse(1, 1000, 2) for _ in range(7)] == [0.25, 0.5, 1, 2, 4, 8, 16]
    rates = list[float]()
    for now in (3.5, 3.5, 4.0, 5.0):
        learned.accept(1, 1000, now)
        rates.append(learned.rate)
    assert rates == [16, 16, 24, 48]
    learned.refuse(1, 1000, 5.5)
    learned.accept(1, 1000, 6.5)
    assert learned.rate == pytest.approx(48 * 0.7 * 1.02)


def test_a_learned_rate_is_at_least_a_call_in_ten_seconds() -> None:
    for rate in (0.0, 5e-324, 0.2):
        learned = LearnedBucket(rate, 2, 0, rate)
        assert learned.rate == 0.2
        learned.accept(2, rate, 10)
        assert learned.rate == 0.2, "it may not rise above what the server reports"
        learned.accept(2, math.inf, 20)
        assert learned.rate == pytest.approx(0.4)
    slow = LearnedBucket(0.25, 2, 0)
    for now in range(10):
        slow.accept(2, 0, now)
    slow.refuse(2, 0, 11)
    assert slow.rate == 0.2


@pytest.mark.parametrize(("reported", "rate"), [(0.0, 100), (5e-324, 100), (10, 100), (99, 100 * 20 / 99), (100, 20.4)])
def test_a_learned_rate_follows_the_reported_one(reported: float, rate: float) -> None:
    learned = LearnedBucket(20, 1, 0, reported)
    learned.accept(1, 100, 1)
    assert learned.rate == pytest.approx(min(100, rate * (1.02 if rate < 100 and reported < 100 else 1)))
    before = learned.rate
    learned.accept(1, 10, 1)
    assert before / 10 <= learned.rate <= before / 10 * 1.02
    learned.accept(1, 100, 1)
    assert before <= learned.rate <= before * 1.05, "the report fell and rose again"


@pytest.mark.parametrize(("reported", "rate"), [(69, 69), (71, 71 * 0.7), (100, 70), (math.inf, 70)])
def test_a_reported_fall_larger_than_a_cut_explains_a_refusal(reported: float, rate: float) -> None:
    learned = LearnedBucket(100, 1, 0, 100)
    for _ in range(10):
        learned.accept(1, 100, 1)
    assert learned.refuse(1, reported, 2) == 0
    assert learned.rate == pytest.approx(rate)
    assert (learned.refuse(1, reported, 3), learned.rate) == (0.25, pytest.approx(rate)), "counting has begun again"


def test_a_cut_keeps_room_for_one_call_and_fills_first() -> None:
    learned = LearnedBucket(10, 8, 0)
    for _ in range(10):
        learned.accept(8, 0, 0.5)
    learned.refuse(8, 0, 0.6)
    assert figures(learned) == (7, 8, 6, 0.6)
    learned.fill(9)
    for _ in range(10):
        learned.accept(8, 0, 9)
    learned.refuse(8, 0, 9)
    assert figures(learned) == (pytest.approx(4.9), 8, 8, 9)


def test_a_cut_takes_what_is_above_the_new_capacity() -> None:
    learned = LearnedBucket(10, 1, 0)
    for _ in range(10):
        learned.accept(1, 0, 9)
    learned.fill(9)
    assert (learned.refuse(1, 0, 9), figures(learned)) == (0, (7, 7, 7, 9))


def test_a_hold_leaves_room_for_one_call_at_its_end() -> None:
    learned = LearnedBucket(10, 4, 0)
    learned.give_back(30, 1)
    assert learned.level == 40, "above the capacity"
    learned.hold(4, 3, 1)
    assert (learned.level, learned.ready_at(4, 1)) == (-16, 3)
    learned.hold(4, 2, 1)
    assert learned.level == -16, "an earlier end raises nothing"
    wide = LearnedBucket(10, 4, 0)
    wide.fill(1)
    wide.hold(50, 2, 1)
    assert wide.level == 0, "a cost above the capacity needs a full bucket"
    low = LearnedBucket(10, 4, 0)
    low.hold(4, 0.5, 0.2)
    assert low.level == 1


def test_the_first_rate_is_reported_or_half_of_what_was_sent() -> None:
    assert first_rate(30, 400, 10) == 30
    assert first_rate(math.inf, 400, 10) == 20
    assert first_rate(math.inf, 400, 0.5) == 200


TRIP = 0.005


def report(remaining: float | None, reset: float | None, step: float = 0.001) -> ReportedLimit:
    return ReportedLimit("requests", Unit.REQUESTS, MINUTE, 600, remaining, reset, reset_step=step)


def size_after(*reports: ReportedLimit) -> float:
    size = BucketSize()
    for each in reports:
        size.read(each)
    return size.seconds


def test_the_reset_of_a_minute_shows_a_minute() -> None:
    assert size_after(report(600, 0), report(540, 6), report(300, 30)) == pytest.approx(60, rel=0.01)


def test_a_reset_that_rises_slowly_shows_a_small_bucket() -> None:
    assert size_after(report(594, 0.1), report(474, 2.1)) == pytest.approx(10, rel=0.01)


def test_a_moment_is_compared_with_the_time_of_its_request() -> None:
    """Answers that took 3 s and 1 s: the moments have come nearer meanwhile, or have passed."""
    size = BucketSize()
    first, second = (
        replace(report(remaining, reset), reset_is_moment=True) for remaining, reset in ((594, 0.1 - 3), (294, 5.1 - 1))
    )
    assert (size.read(first, 3), size.read(second, 1)) == (False, True)
    assert size.seconds == pytest.approx(10, rel=0.01)


def test_the_size_is_right_if_others_use_the_key() -> None:
    assert size_after(report(300, 5), report(30, 9.5)) == pytest.approx(10, rel=0.01)


def test_whole_seconds_give_an_upper_bound_that_falls() -> None:
    """The server rounds up."""
    reports = [report(540, 1, 1.0), report(420, 3, 1.0), report(60, 9, 1.0)]
    assert size_after(*reports[:2]) == pytest.approx(15)
    assert size_after(*reports) == pytest.approx(11.25)


@pytest.mark.parametrize(
    "reports",
    [
        [report(600, 50), report(500, 40), report(400, 30), report(600, 60), report(590, 59)],
        [report(500, 1), report(400, 2)],
        [report(500, 1), report(500, 20)],
        [report(None, 5), report(100, None), report(90, 5)],
        [report(100, 5), report(200, 15)],
    ],
    ids=["a window that ends", "too close together", "nothing used", "incomplete", "refilled"],
)
def test_other_resets_show_nothing(reports: list[ReportedLimit]) -> None:
    assert size_after(*reports) == math.inf


class Run:
    """Calls at once against the limits of the simulator, in simulated time.

    accepted: the number of accepted calls.
    refused: the number of refused requests.
    ended: the time of the last response.
    """

    def __init__(self, limit: str, calls: int) -> None:
        self.accepted = self.refused = 0
        self.ended = 0.0
        self._limiter = Limiter([read_limit(limit)])
        self._scope = LimiterState("openai/gpt-5", charging_of("openai-chat"))
        self._events = Events()
        self._read = reader_of("openai-chat")
        for _ in range(calls):
            self._scope.queue.add(Permit(100, 100))
        self._pump()
        self._events.run(600)

    def _pump(self) -> None:
        while isinstance(ticket := self._scope.admit(self._events.now), Permit):
            self._events.at(self._events.now + TRIP, self._arrive, ticket)
        if ticket < math.inf:
            self._events.at(ticket, self._pump)

    def _arrive(self, ticket: Permit) -> None:
        now = self._events.now
        usage = Usage(model="gpt-5", input_tokens=100, cached_tokens=0, output_tokens=10, max_tokens=100)
        try:
            accepted = self._limiter.accept("openai-chat", "key", usage, now, 1e9 + now)
        except APIError as error:
            self.refused += 1
            report = QuotaReport(self._report(error.headers).limits, Refusal.RATE, None, 0.1)
            self._events.at(now + TRIP, self._refuse, ticket, report)
            return
        assert accepted is not None
        self.accepted += 1
        self._events.at(now + TRIP, self._end, ticket, self._report(accepted.headers))

    def _report(self, headers: list[tuple[str, str]]) -> QuotaReport:
        return self._read("openai-chat", {name.lower(): value for name, value in headers}, 1e9, None, b"")

    def _refuse(self, ticket: Permit, report: QuotaReport) -> None:
        self._scope.refuse(ticket, report, self._events.now)
        self._pump()

    def _end(self, ticket: Permit, report: QuotaReport) -> None:
        self.ended = self._events.now
        self._scope.confirm(ticket, report, self.ended)
        self._scope.settle(ticket, None, self.ended)
        self._pump()


@pytest.mark.parametrize(
    "limit",
    ["requests-per-minute=1200 bucket=10", "requests-per-minute=1e6 tokens-per-minute=120000 bucket=10"],
    ids=["requests", "tokens"],
)
def test_a_burst_into_a_small_bucket_is_not_refused(limit: str) -> None:
    """The server holds ten seconds of its limit, 200 calls, and reports it as a part of the minute's number."""
    run = Run(limit, 400)
    assert run.accepted == 400
    assert run.refused <= 3
    assert run.ended <= 1.05 * (400 - 200) / 20
