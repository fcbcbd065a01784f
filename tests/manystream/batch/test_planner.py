"""The plan of a batch keeps each deadline that live calls can keep, and its price is near that of perfect knowledge."""

import math
import random

import pytest

from benchmarks import batch_deadlines
from manystream.batch.planner import MARGIN, Planner, UnderWay, Way

HOUR = 3600.0
BATCH = Way("batch", 0.5, ((0.5, 420.0), (0.9, HOUR), (0.99, 24 * HOUR)), stop=600.0)
WINDOW = Way("window", 0.7, ((0.5, HOUR), (0.99, 2 * HOUR)), stop=10.0)
LIVE = Way("live", 1.0)
UNSTOPPABLE = Way("batch", 0.5, ((0.5, 420.0), (0.9, HOUR), (0.99, 8 * HOUR), (1.0, 24 * HOUR)), stop=math.inf)


def planner(*ways: Way, deadline: float | None) -> Planner:
    return Planner(ways, deadline, rate=10.0, tail=20.0)


@pytest.mark.parametrize(
    ("ways", "deadline", "lines", "expected"),
    [
        ((BATCH, LIVE), 6 * HOUR, 1000, {"batch": 1000}),
        ((BATCH, LIVE), None, 1000, {"batch": 1000}),
        ((BATCH, LIVE), 500.0, 1000, {"live": 1000}),  # a cancellation may take longer
        ((BATCH,), 500.0, 1000, {"batch": 1000}),  # the way is fixed
        ((LIVE,), 6 * HOUR, 1000, {"live": 1000}),
        ((WINDOW, LIVE), 6 * HOUR, 1000, {"window": 1000}),
        ((WINDOW, LIVE), 300.0, 1000, {"live": 1000}),
        ((BATCH, WINDOW, LIVE), 6 * HOUR, 1000, {"batch": 1000}),
        ((LIVE, WINDOW, BATCH), 6 * HOUR, 1000, {"batch": 1000}),
        ((BATCH, LIVE), 6 * HOUR, 0, {}),
        ((UNSTOPPABLE, LIVE), 2 * HOUR, 1000, {"live": 1000}),  # one in twelve would miss the deadline
        ((UNSTOPPABLE, LIVE), 9 * HOUR, 1000, {"batch": 1000}),
    ],
)
def test_unsent_lines_go_the_cheapest_way_that_is_in_time(
    ways: tuple[Way, ...], deadline: float | None, lines: int, expected: dict[str, int]
) -> None:
    decision = planner(*ways, deadline=deadline).decide(0.0, unsent=lines, live=0, under_way=())
    assert decision.send == expected
    assert not decision.move


def test_lines_beyond_what_live_calls_can_do_go_the_cheapest_way() -> None:
    decision = planner(BATCH, LIVE, deadline=HOUR).decide(0.0, unsent=100_000, live=0, under_way=())
    assert sum(decision.send.values()) == 100_000
    assert 20_000 < decision.send["live"] <= 36_000
    assert decision.look <= 60.0  # the rate of live calls is known better by then


@pytest.mark.parametrize("concurrency", [1, 5, 100])
@pytest.mark.parametrize("left", [1.0, 30.0, 36.0, 42.0, 60.0])
def test_shortly_before_the_deadline_lines_go_live(concurrency: int, left: float) -> None:
    """No batch is expected to be answered by then, and how long a live call takes is not known yet."""
    for ways in ((BATCH, LIVE), (BATCH, WINDOW, LIVE)):
        plan = Planner(ways, left, rate=concurrency / 10, tail=60.0)
        for lines in (1, 5, 10_000):
            assert plan.decide(0.0, unsent=lines, live=0, under_way=()).send == {"live": lines}
        assert plan.decide(0.0, unsent=0, live=0, under_way=()).send == {}


def test_as_many_lines_go_live_as_begin_at_once() -> None:
    plan = Planner((BATCH, LIVE), 100.0, rate=0.5, tail=60.0)
    assert plan.decide(0.0, unsent=30, live=0, under_way=()).send == {"live": 30}
    assert plan.decide(0.0, unsent=200, live=0, under_way=()).send == {"live": 30, "batch": 170}


def test_a_batch_is_cancelled_while_its_lines_can_still_go_live() -> None:
    plan = planner(BATCH, LIVE, deadline=6 * HOUR)
    batch = UnderWay("b1", "batch", 1000, since=0.0)
    first = plan.decide(10.0, unsent=0, live=0, under_way=[batch])
    latest = 6 * HOUR - MARGIN - 600 - plan.live_seconds(1000)
    assert not first.move
    assert first.look == latest
    assert plan.decide(latest - 1, unsent=0, live=0, under_way=[batch]).move == {}
    assert plan.decide(latest, unsent=0, live=0, under_way=[batch]).move == {"b1": "live"}


def test_what_is_answered_by_now_lets_a_batch_wait_longer() -> None:
    plan = planner(BATCH, LIVE, deadline=6 * HOUR)
    looks = [
        plan.decide(10.0, unsent=0, live=0, under_way=[UnderWay("b1", "batch", lines, since=0.0)]).look
        for lines in (1000, 100, 1)
    ]
    assert looks == sorted(set(looks))


def test_batches_are_cancelled_one_by_one_the_oldest_last() -> None:
    plan = planner(BATCH, LIVE, deadline=6 * HOUR)
    batches = [UnderWay("late", "batch", 30_000, since=5 * HOUR), UnderWay("early", "batch", 30_000, since=0.0)]
    now = 6 * HOUR - MARGIN - 600 - plan.live_seconds(60_000)
    decision = plan.decide(now, unsent=0, live=0, under_way=batches)
    assert len(decision.move) == 1
    (moved,) = decision.move
    left = next(batch for batch in batches if batch.key != moved)
    moving = next(batch for batch in batches if batch.key == moved)
    stopping = UnderWay(moving.key, "batch", moving.lines, moving.since, stopping=True)
    later = plan.decide(now + 1, unsent=0, live=0, under_way=[stopping, left])
    assert not later.move
    assert later.look == 6 * HOUR - MARGIN - 600 - plan.live_seconds(30_000)


def test_what_waits_for_room_among_live_calls_is_looked_at_soon() -> None:
    plan = planner(BATCH, WINDOW, LIVE, deadline=HOUR)
    plan.observe_live(10.0, 20.0)
    window = UnderWay("w1", "window", 100, since=0.0)
    now = HOUR - MARGIN - 10 - plan.live_seconds(100)
    busy = plan.decide(now, unsent=0, live=250, under_way=[window])
    assert (busy.move, busy.look) == ({}, now + 1)
    assert plan.decide(now + 1, unsent=0, live=0, under_way=[window]).move == {"w1": "live"}


def test_what_cannot_be_cancelled_is_not_moved() -> None:
    plan = planner(UNSTOPPABLE, LIVE, deadline=9 * HOUR)
    batch = UnderWay("b1", "batch", 1000, since=0.0)
    for now in (1.0, 8.9 * HOUR, 10 * HOUR):
        assert not plan.decide(now, unsent=0, live=0, under_way=[batch]).move


def test_a_slower_live_rate_than_expected_moves_the_last_moment() -> None:
    plan = planner(BATCH, LIVE, deadline=6 * HOUR)
    batch = UnderWay("b1", "batch", 10_000, since=0.0)
    before = plan.decide(0.0, unsent=0, live=0, under_way=[batch]).look
    plan.observe_live(2.0, 60.0)
    assert plan.decide(0.0, unsent=0, live=0, under_way=[batch]).look < before


def test_a_batch_moves_to_a_window_that_should_be_cheaper() -> None:
    plan = planner(BATCH, WINDOW, LIVE, deadline=10 * HOUR)
    for _ in range(20):
        plan.observe("batch", 30 * HOUR)  # the queue is far longer than the prior
    batch = UnderWay("b1", "batch", 100, since=0.0)
    look = plan.decide(0.0, unsent=0, live=0, under_way=[batch]).look
    assert 7 * HOUR < look < 8 * HOUR
    assert plan.decide(look, unsent=0, live=0, under_way=[batch]).move == {"b1": "window"}


def test_observed_times_correct_the_prior() -> None:
    slow = planner(BATCH, WINDOW, LIVE, deadline=7500.0)
    fast = planner(BATCH, WINDOW, LIVE, deadline=7500.0)
    for _ in range(50):
        slow.observe("batch", 20 * HOUR)
        fast.observe("batch", 300.0)
    assert slow.decide(0.0, unsent=10, live=0, under_way=()).send == {"window": 10}
    assert fast.decide(0.0, unsent=10, live=0, under_way=()).send == {"batch": 10}


def test_after_the_deadline_what_is_left_goes_live() -> None:
    plan = planner(BATCH, LIVE, deadline=100.0)
    decision = plan.decide(200.0, unsent=5, live=0, under_way=[UnderWay("b1", "batch", 10, since=0.0)])
    assert decision.send == {"live": 5}
    assert decision.move == {"b1": "live"}


def test_a_look_is_always_in_the_future() -> None:
    random.seed(7)
    for _ in range(300):
        plan = planner(BATCH, WINDOW, LIVE, deadline=random.uniform(1, 20 * HOUR))
        now = random.uniform(0, 21 * HOUR)
        batches = [
            UnderWay(f"b{n}", random.choice(["batch", "window"]), random.randrange(50_000), random.uniform(0, now))
            for n in range(random.randrange(4))
        ]
        decision = plan.decide(now, unsent=random.randrange(9000), live=random.randrange(900), under_way=batches)
        assert decision.look > now


def test_a_batch_that_live_calls_cannot_replace_goes_on() -> None:
    plan = planner(BATCH, LIVE, deadline=HOUR)
    batch = UnderWay("b1", "batch", 50_000, since=0.0)
    assert plan.decide(0.9 * HOUR, unsent=0, live=0, under_way=[batch]).move == {}
    small = UnderWay("b2", "batch", 5000, since=1.0)  # alone, this one can be replaced
    assert plan.decide(0.62 * HOUR, unsent=0, live=0, under_way=[batch, small]).move == {"b2": "live"}


def test_lines_are_not_split_while_live_calls_may_do_them_all() -> None:
    plan = planner(BATCH, LIVE, deadline=HOUR)
    tight = plan.decide(0.0, unsent=34_000, live=0, under_way=())
    assert tight.send == {"live": 34_000}
    assert tight.look <= 60.0
    plan.observe_live(5.0, 20.0)  # now it is known that they cannot
    assert plan.decide(60.0, unsent=33_000, live=0, under_way=()).send["batch"] > 10_000


def test_ten_models_of_queues_miss_no_deadline_at_a_low_price() -> None:
    totals = batch_deadlines.measure(1000, seed=2)
    assert len(totals) == 10
    assert sum(total.kept for total in totals.values()) > 900
    assert [total.missed for total in totals.values()] == [0] * 10
    assert sum(total.paid for total in totals.values()) <= 1.1 * sum(total.least for total in totals.values())
