"""The accounts of limits: what buckets hold at each moment, and what each server charges and gives back."""

from dataclasses import replace

import pytest

from manystream.simulator import Limit, LimitCounts
from manystream.simulator import limiter as limiter_module
from manystream.simulator.bucket import Bucket
from manystream.simulator.limiter import Limiter, Ticket, Usage
from manystream.simulator.prompt import APIError

USAGE = Usage(model="m", input_tokens=100, cached_tokens=30, output_tokens=50, max_tokens=400)
DAY = 86_400.0
TOKENS = Limit(
    requests_per_minute=60, tokens_per_minute=60_000, input_tokens_per_minute=60_000, output_tokens_per_minute=60_000
)


def accepted(limiter: Limiter, usage: Usage = USAGE, *, dialect: str = "openai-chat", key: str = "k") -> Ticket:
    ticket = limiter.accept(dialect, key, usage, 1000.0, 0.0)
    assert ticket is not None
    return ticket


def levels(ticket: Ticket) -> list[float]:
    return [bucket.level for bucket in ticket.shares[0].scope.buckets]


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


# --- charges ---

CHARGES: dict[str, tuple[list[float], list[float]]] = {
    # requests, input tokens, output tokens, all tokens: when a call is accepted, and when its answer has been sent
    "openai": ([1, 100, 400, 400], [1, 100, 400, 400]),
    "anthropic": ([1, 100, 50, 100], [1, 70, 50, 120]),
    "gemini": ([1, 100, 0, 100], [1, 100, 0, 100]),
    "vertex": ([1, 100, 0, 100], [1, 100, 0, 100]),
    "azure": ([1, 100, 400, 500], [1, 100, 400, 500]),
    "groq": ([1, 100, 400, 500], [1, 100, 50, 150]),
    "fireworks": ([1, 100, 50, 100], [1, 100, 50, 150]),
    "litellm": ([1, 100, 400, 400], [1, 100, 400, 400]),
    "vllm": ([1, 100, 0, 100], [1, 100, 0, 100]),
}


@pytest.mark.parametrize("server", CHARGES)
def test_a_call_is_charged_and_settled(server: str) -> None:
    names = ("requests", "input_tokens", "output_tokens", "tokens")
    first, last = CHARGES[server]
    full = (
        10 if server == "azure" else 60,
        60_000,
        60_000,
        60_000,
    )  # Azure allows a minute's requests in slices of 10 s
    limit = replace(TOKENS, server=server)
    limiter = Limiter([limit])
    ticket = accepted(limiter)
    order = (first[0], first[3], first[1], first[2])
    assert levels(ticket) == [capacity - cost for capacity, cost in zip(full, order, strict=True)]
    assert limiter.counts() == [(limit, LimitCounts(1, 0, {}, dict(zip(names, first, strict=True))))]
    limiter.end(ticket, 1000.0, whole=True)
    order = (last[0], last[3], last[1], last[2])
    assert levels(ticket) == [capacity - cost for capacity, cost in zip(full, order, strict=True)]
    assert limiter.counts() == [(limit, LimitCounts(1, 0, {}, dict(zip(names, last, strict=True))))]
    broken = accepted(limiter)
    before = levels(broken)
    limiter.end(broken, 1000.0, whole=False)
    assert levels(broken) == before
    assert broken.shares[0].scope.running == 0


def test_what_is_given_back_never_overflows() -> None:
    limiter = Limiter([Limit(server="groq", tokens_per_minute=600)])
    ticket = limiter.accept("openai-chat", "k", USAGE, 1000.0, 0.0)
    assert ticket is not None
    assert levels(ticket) == [100]
    limiter.end(ticket, 1045.0, whole=True)
    assert levels(ticket) == [600]


def test_a_stream_that_ends_early_is_charged_what_it_produced() -> None:
    limiter = Limiter([Limit(server="anthropic", output_tokens_per_minute=600, bucket=60)])
    ticket = accepted(limiter, replace(USAGE, output_tokens=300, delay=5.0, seconds=5.0), dialect="anthropic")
    limiter.end(ticket, 1002.0, whole=False)
    assert levels(ticket) == [600 - 2 * 30 + 2 * 10]


def test_a_failure_takes_a_request_from_all_its_limits() -> None:
    covered, other = Limit(requests_per_minute=600, by_second=True), Limit(model="n", requests_per_minute=600)
    limiter = Limiter([covered, other])
    limiter.fail("openai-chat", "k", USAGE, 1000.0, 0.0)
    ticket = accepted(limiter)
    assert len(ticket.shares) == 1
    assert levels(ticket) == [598]
    assert [bucket.level for bucket in ticket.shares[0].scope.hidden] == [8]


def test_one_limit_counts_the_servers_that_it_covers_together() -> None:
    limit = Limit(requests_per_minute=60, bucket=1)
    limiter = Limiter([limit])
    for dialect in ("openai-chat", "openai-responses", "anthropic"):
        for _ in range(2):
            try:
                limiter.accept(dialect, "k", USAGE, 1000.0, 0.0)
            except APIError:
                continue
    charged = {"requests": 2.0, "input_tokens": 200.0, "output_tokens": 450.0, "tokens": 500.0}
    assert limiter.counts() == [(limit, LimitCounts(2, 4, {"requests": 4}, charged))]


def test_headers_of_the_first_limit_win() -> None:
    limits = [Limit(requests_per_minute=60), Limit(key="k", requests_per_minute=600, tokens_per_minute=6000)]
    assert accepted(Limiter(limits)).headers == [
        ("x-ratelimit-limit-requests", "60"), ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-limit-tokens", "6000"),
        ("x-ratelimit-remaining-tokens", "5600"), ("x-ratelimit-reset-tokens", "4s"),
    ]  # fmt: skip


def test_a_request_must_have_room_in_all_limits() -> None:
    first, second = Limit(requests_per_minute=100), Limit(key="k", requests_per_minute=1)
    limiter = Limiter([first, second])
    accepted(limiter)
    with pytest.raises(APIError):
        accepted(limiter)
    assert [(counts.accepted, counts.refused) for _, counts in limiter.counts()] == [(1, 0), (1, 1)]
    free = accepted(limiter, key="other")
    assert levels(free) == [99]


def test_the_longest_wait_is_reported() -> None:
    limit = Limit(server="groq", requests_per_minute=60, bucket=1, tokens_per_minute=60_000)
    limiter = Limiter([limit])
    accepted(limiter, replace(USAGE, input_tokens=600))
    with pytest.raises(APIError) as caught:
        accepted(limiter, replace(USAGE, input_tokens=200, max_tokens=0))
    assert caught.value.message.endswith("on requests per min (RPM): Limit 60, Used 60, Requested 1."
                                         " Please try again in 1s.")  # fmt: skip


def test_scopes_that_are_used_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "SCOPES_LIMIT", 3)
    limiter = Limiter([Limit(server="groq", requests_per_minute=60, concurrent=9)])
    first = limiter.accept("openai-chat", "running", USAGE, 0.0, 0.0)
    limiter.end(limiter.accept("openai-chat", "full", USAGE, 0.0, 0.0) or accepted(limiter), 0.0, whole=True)
    limiter.end(limiter.accept("openai-chat", "used", USAGE, 100.0, 0.0) or accepted(limiter), 100.0, whole=True)
    assert first is not None
    [state] = limiter._states.values()  # pyright: ignore[reportPrivateUsage]
    assert list(state.scopes) == ["running", "full", "used"]
    limiter.accept("openai-chat", "new", USAGE, 100.0, 0.0)
    assert list(state.scopes) == ["running", "used", "new"]


# --- limits that change ---


def test_a_changed_limit_keeps_its_counts_and_its_calls() -> None:
    before = Limit(requests_per_minute=100, by_second=True)
    limiter = Limiter([before])
    ticket = accepted(limiter)
    after = Limit(requests_per_minute=200, tokens_per_minute=6000, by_second=True)
    limiter.change([after, Limit(key="x", concurrent=1)], 1000.0, 0.0)
    assert limiter.limits == [after, Limit(key="x", concurrent=1)]
    scope = ticket.shares[0].scope
    assert [(bucket.dimension, bucket.limit, bucket.level, bucket.capacity) for bucket in scope.buckets] == [
        ("requests", 200, 198, 200),
        ("tokens", 6000, 6000, 6000),
    ]
    assert [bucket.dimension for bucket in scope.hidden] == ["requests", "tokens"]
    assert scope.hidden[0].limit == 200
    assert [counts.accepted for _, counts in limiter.counts()] == [1, 0]
    assert scope.running == 1
    limiter.change([], 1000.0, 0.0)
    assert (limiter.limits, limiter.counts()) == ([], [])


def test_an_unchanged_limit_is_left_as_it_is() -> None:
    limit = Limit(requests_per_minute=100)
    limiter = Limiter([limit])
    ticket = accepted(limiter)
    buckets = list(ticket.shares[0].scope.buckets)
    limiter.change([limit, Limit(requests_per_minute=7)], 1000.0, 0.0)
    assert ticket.shares[0].scope.buckets == buckets
    assert [counts.accepted for _, counts in limiter.counts()] == [1, 0]
