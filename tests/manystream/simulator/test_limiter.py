"""Rate limits of the simulator in virtual time: what each server charges, refuses, settles, reports and gives back."""

from dataclasses import replace

import pytest

from manystream.simulator import Limit, LimitCounts
from manystream.simulator import limiter as limiter_module
from manystream.simulator.limiter import SCOPES_LIMIT, Limiter, Ticket, Usage
from manystream.simulator.prompt import APIError
from tests.support.limit_world import CACHED, World, accepted

WALL = 1_700_000_000.0


USAGE = Usage(model="m", input_tokens=100, cached_tokens=0, output_tokens=50, max_tokens=400)


def test_requests_per_minute_hold_a_minute_then_one_per_refill() -> None:
    world = World(Limit(requests_per_minute=60))
    assert world.accepted(100) == 60
    world.now += 5.5
    assert world.accepted(100) == 5


def test_anthropics_output_counts_as_it_is_produced() -> None:
    world = World(Limit(output_tokens_per_minute=600, bucket=1))  # ten tokens a second
    slow = replace(USAGE, output_tokens=100, seconds=10.0, max_tokens=100_000)
    assert world.accepted(3, slow, dialect="anthropic") == 3  # thirty tokens a second are produced
    world.now += 1.0
    assert world.accepted(1, slow, dialect="anthropic") == 0
    world.now += 29.0 + 1.1
    assert world.accepted(1, slow, dialect="anthropic") == 1


def test_output_not_yet_produced_needs_room_for_one_token() -> None:
    world = World(Limit(output_tokens_per_minute=60, bucket=1))  # a bucket of one token
    short = replace(USAGE, output_tokens=1, seconds=0.0)
    assert world.accepted(2, short, dialect="anthropic") == 1
    world.now += 0.9
    assert world.accepted(1, short, dialect="anthropic") == 0
    world.now += 0.2
    assert world.accepted(2, short, dialect="anthropic") == 1


def test_anthropics_cached_input_is_given_back() -> None:
    world = World(Limit(input_tokens_per_minute=1000))
    cached = replace(USAGE, input_tokens=900, cached_tokens=800)
    ticket = world.ask(cached, dialect="anthropic")
    assert world.accepted(1, cached, dialect="anthropic") == 0
    world.end(ticket)
    assert world.accepted(1, cached, dialect="anthropic") == 1


def test_keys_and_models_have_limits_of_their_own() -> None:
    world = World(Limit(key="a*", model="big-*", requests_per_minute=1), Limit(key="b", requests_per_minute=2))
    big = replace(USAGE, model="big-1")
    other = replace(USAGE, model="big-2")
    assert world.accepted(3, big, key="a1") == 1
    assert world.accepted(3, other, key="a1") == 0  # models that one limit covers share it
    assert world.accepted(3, big, key="a2") == 1
    assert world.accepted(3, big, key="b") == 2
    assert world.limiter.accept("openai-chat", "c", USAGE, world.now, WALL) is None


def test_calls_at_a_time() -> None:
    world = World(Limit(server="vllm", concurrent=2))
    tickets = [world.ask(), world.ask()]
    failure = world.ask()
    assert isinstance(failure, APIError)
    assert failure.status == 503
    world.end(tickets[0], whole=False)
    assert world.accepted(2) == 1


def test_the_limits_change_while_calls_run() -> None:
    before = Limit(requests_per_minute=600, concurrent=10_000)
    world = World(before)
    ticket = world.ask()
    assert world.accepted(299) == 299
    world.limiter.change([replace(before, requests_per_minute=60)], world.now, WALL + world.now)
    assert world.accepted(1000) == 30
    world.end(ticket)
    world.limiter.change([replace(before, requests_per_minute=6000)], world.now, WALL + world.now)
    world.now += 1.0
    assert 99 <= world.accepted(1000) <= 101
    [(_, counts)] = world.limiter.counts()
    assert counts.accepted >= 429
    assert counts.refused_by["requests"] == counts.refused > 0


def test_limits_of_one_key_and_model_change_each_for_itself() -> None:
    requests, tokens = Limit(requests_per_minute=100), Limit(tokens_per_minute=100_000)
    world = World(requests, tokens)
    assert world.accepted(50) == 50
    world.limiter.change([Limit(requests_per_minute=10), Limit(tokens_per_minute=1e9)], world.now, WALL + world.now)
    assert world.accepted(50) == 5
    assert [counts.accepted for _, counts in world.limiter.counts()] == [55, 55]


def test_two_equal_limits_are_one() -> None:
    limit = Limit(requests_per_minute=10)
    world = World(limit, limit)
    assert world.accepted(50) == 10
    world.limiter.change([limit, limit], world.now, WALL + world.now)
    assert len(world.limiter.limits) == 1


def test_keys_that_are_not_used_any_more_are_forgotten() -> None:
    world = World(Limit(server="groq", requests_per_minute=60))
    for number in range(3 * SCOPES_LIMIT):
        world.end(world.ask(key=f"key {number}"))
        world.now += 0.1
    assert world.accepted(100, key="key 0") == 60
    [state] = world.limiter._states.values()  # pyright: ignore[reportPrivateUsage]
    assert len(state.scopes) <= SCOPES_LIMIT


def test_a_request_larger_than_the_whole_limit_is_too_large() -> None:
    for server, status in (("openai", 429), ("groq", 413)):
        failure = World(Limit(server=server, tokens_per_minute=300)).ask()
        assert isinstance(failure, APIError)
        assert (failure.status, failure.code) == (status, "rate_limit_exceeded")
        assert "Request too large for m" in failure.message
        assert not [name for name, _ in failure.headers if name.startswith("retry-after")]


TOKENS = Limit(
    requests_per_minute=60, tokens_per_minute=60_000, input_tokens_per_minute=60_000, output_tokens_per_minute=60_000
)


def levels(ticket: Ticket) -> list[float]:
    return [bucket.level for bucket in ticket.shares[0].scope.buckets]


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
    ticket = limiter.accept("openai-chat", "k", CACHED, 1000.0, 0.0)
    assert ticket is not None
    assert levels(ticket) == [100]
    limiter.end(ticket, 1045.0, whole=True)
    assert levels(ticket) == [600]


def test_a_stream_that_ends_early_is_charged_what_it_produced() -> None:
    limiter = Limiter([Limit(server="anthropic", output_tokens_per_minute=600, bucket=60)])
    ticket = accepted(limiter, replace(CACHED, output_tokens=300, delay=5.0, seconds=5.0), dialect="anthropic")
    limiter.end(ticket, 1002.0, whole=False)
    assert levels(ticket) == [600 - 2 * 30 + 2 * 10]


def test_a_failure_takes_a_request_from_all_its_limits() -> None:
    covered, other = Limit(requests_per_minute=600, by_second=True), Limit(model="n", requests_per_minute=600)
    limiter = Limiter([covered, other])
    limiter.fail("openai-chat", "k", CACHED, 1000.0, 0.0)
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
                limiter.accept(dialect, "k", CACHED, 1000.0, 0.0)
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
    accepted(limiter, replace(CACHED, input_tokens=600))
    with pytest.raises(APIError) as caught:
        accepted(limiter, replace(CACHED, input_tokens=200, max_tokens=0))
    assert caught.value.message.endswith("on requests per min (RPM): Limit 60, Used 60, Requested 1."
                                         " Please try again in 1s.")  # fmt: skip


def test_scopes_that_are_used_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "SCOPES_LIMIT", 3)
    limiter = Limiter([Limit(server="groq", requests_per_minute=60, concurrent=9)])
    first = limiter.accept("openai-chat", "running", CACHED, 0.0, 0.0)
    limiter.end(limiter.accept("openai-chat", "full", CACHED, 0.0, 0.0) or accepted(limiter), 0.0, whole=True)
    limiter.end(limiter.accept("openai-chat", "used", CACHED, 100.0, 0.0) or accepted(limiter), 100.0, whole=True)
    assert first is not None
    [state] = limiter._states.values()  # pyright: ignore[reportPrivateUsage]
    assert list(state.scopes) == ["running", "full", "used"]
    limiter.accept("openai-chat", "new", CACHED, 100.0, 0.0)
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
