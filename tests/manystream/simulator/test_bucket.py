"""The simulator's token buckets: how much is left, and when there is room."""

from manystream.simulator.bucket import Bucket

DAY = 86_400.0


# --- buckets ---


def test_a_new_bucket_is_full() -> None:
    bucket = Bucket("tokens", 600, 60.0, 300, 5.0)
    assert (bucket.dimension, bucket.limit, bucket.window, bucket.rate, bucket.capacity, bucket.level) == (
        "tokens", 600, 60.0, 10.0, 300, 300,
    )  # fmt: skip
    daily = Bucket("requests", 10, DAY, 10, 5.0, ends=100.0)
    assert (daily.rate, daily.ends, daily.level) == (0.0, 100.0, 10)


def test_a_bucket_forgives_a_millionth() -> None:
    bucket = Bucket("tokens", 1_000_000, 60.0, 1_000_000, 0.0)
    assert bucket.has_room(1_000_001)
    assert not bucket.has_room(1_000_001.5)
    bucket.level = 10
    assert (bucket.has_room(11), bucket.has_room(11.5)) == (True, False)


def test_a_bucket_says_when_there_is_room() -> None:
    bucket = Bucket("tokens", 600, 60.0, 300, 0.0)
    bucket.level = 100
    assert [bucket.wait(cost, 0.0) for cost in (100, 110, 300, 999)] == [0.0, 1.0, 20.0, 20.0]
    assert bucket.full_after(0.0) == 20.0
    daily = Bucket("requests", 10, DAY, 10, 0.0, ends=100.0)
    daily.level = 0
    assert [daily.wait(1, now) for now in (0.0, 60.0, 100.0, 130.0)] == [100.0, 40.0, 0.0, 0.0]


def test_a_bucket_does_not_go_back_in_time() -> None:
    bucket = Bucket("tokens", 60, 60.0, 60, 10.0)
    bucket.level = 0
    seen: list[float] = []
    for now in (12.0, 11.0, 12.5, 13.0):
        bucket.update(now)
        seen.append(bucket.level)
    assert seen == [2.0, 2.0, 2.5, 3.0]


def test_a_daily_bucket_is_full_again_at_its_end() -> None:
    bucket = Bucket("requests", 5, DAY, 5, 0.0, ends=100.0)
    bucket.level = 1
    bucket.update(99.999)
    assert (bucket.level, bucket.ends) == (1, 100.0)
    bucket.update(100.0)
    assert (bucket.level, bucket.ends) == (5, 100.0 + DAY)
    bucket.level = 2
    bucket.update(100.0 + 3.5 * DAY)
    assert (bucket.level, bucket.ends) == (5, 100.0 + 4 * DAY)


def test_productions_overlap_and_end_each_at_its_time() -> None:
    bucket = Bucket("output_tokens", 60, 60.0, 100, 0.0)  # one token a second comes back
    bucket.level = 50
    assert bucket.produce(7, 0.0, 0.0) is None
    assert bucket.level == 43
    long, short = bucket.produce(40, 10.0, 0.0), bucket.produce(10, 5.0, 0.0)
    assert long is not None
    assert short is not None
    assert (long.end, long.rate, short.end, short.rate) == (10.0, 4.0, 5.0, 2.0)
    seen: list[float] = []
    for now in (1.0, 5.0, 6.0, 10.0, 12.0):
        bucket.update(now)
        seen.append(bucket.level)
    assert seen == [38.0, 18.0, 15.0, 3.0, 5.0]


def test_a_production_that_is_stopped_at_its_end_is_over() -> None:
    bucket = Bucket("output_tokens", 60, 60.0, 100, 0.0)
    production = bucket.produce(20, 10.0, 0.0)
    assert production is not None
    bucket.stop(production, 10.0)
    bucket.update(20.0)
    assert bucket.level == 100 - 20 + 10 + 10
    second = bucket.produce(20, 10.0, 20.0)
    assert second is not None
    bucket.stop(second, 22.0)
    assert (second.rate, bucket.level) == (0.0, 98.0)
    bucket.update(31.0)
    assert bucket.level == 100


def test_a_changed_limit_changes_all_in_proportion() -> None:
    bucket = Bucket("tokens", 600, 60.0, 300, 0.0)
    bucket.level = 100
    bucket.change(1800)
    assert (bucket.limit, bucket.rate, bucket.capacity, bucket.level) == (1800, 30.0, 900, 300)
