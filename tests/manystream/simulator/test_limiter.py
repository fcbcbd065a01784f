"""Rate limits of the simulator in virtual time: what each server charges, refuses, settles, reports and gives back."""

from dataclasses import replace

import pytest

from manystream.simulator import KnobError, Limit, LimitCounts
from manystream.simulator import limiter as limiter_module
from manystream.simulator.bucket import Bucket
from manystream.simulator.limit import read_limit
from manystream.simulator.limit_reports import FORMS
from manystream.simulator.limiter import SCOPES_LIMIT, Limiter, Ticket, Usage
from manystream.simulator.prompt import APIError
from manystream.simulator.refusals import REFUSALS
from manystream.simulator.server_rules import DIALECT_SERVERS, SERVERS

WALL = 1_700_000_000.0
USAGE = Usage(model="m", input_tokens=100, cached_tokens=0, output_tokens=50, max_tokens=400)
DIALECTS = {"anthropic": "anthropic", "gemini": "gemini", "vertex": "gemini"}


class World:
    """A limiter and its clock."""

    def __init__(self, *limits: Limit) -> None:
        self.limiter = Limiter(limits)
        self.now = 1000.0

    def ask(self, usage: Usage = USAGE, *, key: str = "k", dialect: str = "openai-chat") -> Ticket | APIError:
        try:
            ticket = self.limiter.accept(dialect, key, usage, self.now, WALL + self.now)
        except APIError as failure:
            return failure
        assert ticket is not None
        return ticket

    def accepted(self, count: int, usage: Usage = USAGE, **where: str) -> int:
        """How many of so many requests are accepted now."""
        return sum(isinstance(self.ask(usage, **where), Ticket) for _ in range(count))

    def end(self, ticket: Ticket | APIError, *, whole: bool = True) -> None:
        assert isinstance(ticket, Ticket)
        self.limiter.end(ticket, self.now, whole=whole)


def test_a_bucket_refills_up_to_its_capacity() -> None:
    bucket = Bucket("requests", 60, 60.0, 10, 0.0)
    bucket.level = 0
    bucket.update(4.0)
    assert (bucket.level, bucket.wait(5, 4.0), bucket.full_after(4.0)) == (4.0, 1.0, 6.0)
    bucket.update(100.0)
    assert bucket.level == 10


def test_a_production_takes_its_tokens_evenly() -> None:
    bucket = Bucket("output_tokens", 60, 60.0, 60, 0.0)
    bucket.produce(100, 10.0, 0.0)
    bucket.update(5.0)
    assert bucket.level == pytest.approx(60 - 5 * 9)
    bucket.update(20.0)
    assert bucket.level == pytest.approx(60 - 100 + 20)


def test_a_production_that_is_stopped_takes_no_more() -> None:
    bucket = Bucket("output_tokens", 60, 60.0, 600, 0.0)
    production = bucket.produce(100, 10.0, 0.0)
    assert production is not None
    bucket.stop(production, 5.0)
    bucket.stop(production, 6.0)
    bucket.update(15.0)
    assert bucket.level == pytest.approx(min(600, 600 - 5 * 9 + 10))


def test_requests_per_minute_hold_a_minute_then_one_per_refill() -> None:
    world = World(Limit(requests_per_minute=60))
    assert world.accepted(100) == 60
    world.now += 5.5
    assert world.accepted(100) == 5


def test_openai_counts_refused_requests_and_others_do_not() -> None:
    for server, expected in (("openai", 0), ("groq", 1)):
        world = World(Limit(server=server, requests_per_minute=60, bucket=1))
        assert world.accepted(1) == 1
        world.now += 0.9
        assert world.accepted(1) == 0
        world.now += 0.2
        assert world.accepted(1) == expected, server


def test_a_short_bucket_holds_only_its_seconds() -> None:
    assert World(Limit(requests_per_minute=600, bucket=10)).accepted(1000) == 100
    assert World(Limit(requests_per_minute=600, bucket=1)).accepted(1000) == 10


def test_enforcement_by_the_second_is_not_reported() -> None:
    world = World(Limit(requests_per_minute=600, by_second=True, server="groq"))
    assert world.accepted(1000) == 10
    limits = World(Limit(requests_per_minute=600, by_second=True))
    ticket = limits.ask()
    assert isinstance(ticket, Ticket)
    assert dict(ticket.headers)["x-ratelimit-remaining-requests"] == "599"


@pytest.mark.parametrize(
    ("server", "accepted"),
    [
        ("openai", 4),  # the larger of max_tokens (400) and input (100): 1,600 of 2,000
        ("azure", 4),  # input and max_tokens: 500
        ("groq", 4),
        ("anthropic", 20),  # a combined limit counts input at the start, and no reservation
        ("gemini", 20),
    ],
)
def test_how_a_limit_of_all_tokens_is_charged(server: str, accepted: int) -> None:
    world = World(Limit(server=server, tokens_per_minute=2000))
    usage = replace(USAGE, max_tokens=400)
    assert world.accepted(100, usage) == (5 if server == "openai" else accepted)


@pytest.mark.parametrize(("server", "left"), [("openai", 600.0), ("azure", 500.0), ("groq", 850.0), ("gemini", 900.0)])
def test_what_a_call_has_cost_in_the_end(server: str, left: float) -> None:
    world = World(Limit(server=server, tokens_per_minute=1000, model="m"))
    world.end(world.ask())
    [(_, counts)] = world.limiter.counts()
    assert 1000 - counts.charged["tokens"] == left


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


def test_gemini_limits_are_per_model_and_shared_by_all_keys() -> None:
    world = World(Limit(requests_per_minute=2))
    assert world.accepted(2, key="a", dialect="gemini") == 2
    assert world.accepted(1, key="b", dialect="gemini") == 0
    assert world.accepted(1, replace(USAGE, model="n"), key="b", dialect="gemini") == 1


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


def test_geminis_day_ends_at_midnight_pacific_time() -> None:
    world = World(Limit(requests_per_day=5, server="gemini"))
    assert world.accepted(6, dialect="gemini") == 5
    midnight = 86_400.0 - (WALL + world.now - 8 * 3600.0) % 86_400.0
    world.now += midnight - 1.0
    assert world.accepted(1, dialect="gemini") == 0
    world.now += 1.5
    assert world.accepted(6, dialect="gemini") == 5


def test_a_request_larger_than_the_whole_limit_is_too_large() -> None:
    for server, status in (("openai", 429), ("groq", 413)):
        failure = World(Limit(server=server, tokens_per_minute=300)).ask()
        assert isinstance(failure, APIError)
        assert (failure.status, failure.code) == (status, "rate_limit_exceeded")
        assert "Request too large for m" in failure.message
        assert not [name for name, _ in failure.headers if name.startswith("retry-after")]


REPORTS: dict[str, dict[str, str]] = {
    "openai": {
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "90000", "x-ratelimit-remaining-tokens": "66000",
        "x-ratelimit-reset-tokens": "16s", "retry-after": "1", "retry-after-ms": "1000",
    },
    "anthropic": {
        "anthropic-ratelimit-requests-limit": "60", "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2023-11-14T22:31:00Z", "anthropic-ratelimit-tokens-limit": "50000",
        "anthropic-ratelimit-tokens-remaining": "44000", "anthropic-ratelimit-tokens-reset": "2023-11-14T22:30:08Z",
        "anthropic-ratelimit-input-tokens-limit": "50000", "anthropic-ratelimit-input-tokens-remaining": "44000",
        "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:30:08Z",
        "anthropic-ratelimit-output-tokens-limit": "50000", "anthropic-ratelimit-output-tokens-remaining": "47000",
        "anthropic-ratelimit-output-tokens-reset": "2023-11-14T22:30:04Z", "retry-after": "1",
    },
    "gemini": {},
    "vertex": {},
    "azure": {
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0", "x-ratelimit-limit-tokens": "90000",
        "x-ratelimit-remaining-tokens": "85000", "x-ratelimit-reset-tokens": "4", "retry-after": "1",
        "retry-after-ms": "1000",
    },
    "groq": {
        "x-ratelimit-limit-tokens": "90000", "x-ratelimit-remaining-tokens": "60000",
        "x-ratelimit-reset-tokens": "20s", "retry-after": "1",
    },
    "cerebras": {
        "x-ratelimit-limit-tokens-minute": "90000", "x-ratelimit-remaining-tokens-minute": "60000",
        "x-ratelimit-reset-tokens-minute": "20", "retry-after": "1",
    },
    "mistral": {
        "x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-req-minute": "0",
        "x-ratelimit-limit-tokens-minute": "90000", "x-ratelimit-remaining-tokens-minute": "60000",
    },
    "deepseek": {},
    "openrouter": {
        "X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1700001060000",
    },
    "together": {
        "x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60",
        "x-tokenlimit-limit": "1500", "x-tokenlimit-remaining": "1000", "retry-after": "1",
    },
    "fireworks": {
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-limit-tokens-prompt": "50000", "x-ratelimit-remaining-tokens-prompt": "42500",
        "x-ratelimit-limit-tokens-generated": "50000", "x-ratelimit-remaining-tokens-generated": "46250",
        "x-ratelimit-over-limit": "yes",
    },
    "vllm": {},
}  # fmt: skip
"""Server → the headers of a refusal after a minute's requests at once, each of 100 tokens in and 50 out."""


@pytest.mark.parametrize("server", REPORTS)
def test_a_refusal_has_the_servers_headers(server: str) -> None:
    world = World(
        Limit(server=server, requests_per_minute=60, tokens_per_minute=90_000, input_tokens_per_minute=50_000,
        output_tokens_per_minute=50_000)
    )  # fmt: skip
    dialect = DIALECTS.get(server, "openai-chat")
    failure: Ticket | APIError = world.ask(dialect=dialect)
    while isinstance(failure, Ticket):
        failure = world.ask(dialect=dialect)
    assert failure.status == (503 if server == "vllm" else 429)
    assert dict(failure.headers) == REPORTS[server]


@pytest.mark.parametrize(
    ("requests_per_day", "reset"),
    [(172_800, "500ms"), (86_400, "1s"), (11_520, "7.5s"), (1_440, "1m0s"), (24, "1h0m0s"), (10, "2h24m0s")],
)
def test_openai_writes_a_reset_as_go_prints_durations(requests_per_day: float, reset: str) -> None:
    ticket = World(Limit(server="openai", requests_per_day=requests_per_day)).ask()
    assert isinstance(ticket, Ticket)
    assert dict(ticket.headers)["x-ratelimit-reset-requests"] == reset


def test_anthropic_rounds_tokens_to_thousands_and_requests_never() -> None:
    world = World(
        Limit(
            server="anthropic", requests_per_minute=4000, input_tokens_per_minute=50_000, output_tokens_per_minute=800
        )
    )
    usage = replace(USAGE, input_tokens=1600, output_tokens=100)
    ticket = world.ask(usage, dialect="anthropic")
    assert isinstance(ticket, Ticket)
    left = {name.split("-", 2)[2]: value for name, value in ticket.headers if name.endswith("-remaining")}
    assert left["requests-remaining"] == "3999"
    assert left["input-tokens-remaining"] == "48000"
    assert 0 < int(left["output-tokens-remaining"]) <= 800, "a limit below a thousand is reported as it is"


def test_litellm_reports_on_unstreamed_responses_only() -> None:
    world = World(Limit(server="litellm", requests_per_minute=60))
    unstreamed, streamed = world.ask(), world.ask(replace(USAGE, streamed=True))
    assert isinstance(unstreamed, Ticket)
    assert isinstance(streamed, Ticket)
    assert streamed.headers == []
    assert dict(unstreamed.headers)["llm_provider-x-ratelimit-remaining-requests"] == "59"


def test_every_row_names_a_form_that_exists() -> None:
    assert {rules.report for rules in SERVERS.values()} <= FORMS.keys()
    assert {rules.error for rules in SERVERS.values()} <= REFUSALS.keys()
    assert set(DIALECT_SERVERS.values()) <= SERVERS.keys()


def test_a_limit_reads_back_from_its_text() -> None:
    limit = Limit(key="a*", server="openai", requests_per_minute=60.5, concurrent=3, by_second=True, bucket=10.0)
    assert read_limit(limit.text) == limit
    assert read_limit("model=gpt-5*, tokens_per_minute=1e6") == Limit(model="gpt-5*", tokens_per_minute=1e6)


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("TRUE", True), ("0", False), ("False", False)]
)
def test_a_switch_of_a_limit_is_read_as_a_switch(text: str, value: bool) -> None:
    assert read_limit(f"concurrent=1 by-second={text}").by_second is value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a limit"),
        ("rpm=60", "requests_per_minute"),
        ("requests-per-minute=0", "above 0"),
        ("requests-per-minute=-1", "above 0"),
        ("tokens-per-minute=nan", "above 0"),
        ("tokens-per-minute=inf", "above 0"),
        ("tokens-per-minute=many", "a number"),
        ("concurrent=1.5", "a number"),
        ("server=nobody", "openai"),
        ("by-second=perhaps", "0 or 1"),
    ],
)
def test_a_limit_that_cannot_be_read_is_an_error(text: str, words: str) -> None:
    with pytest.raises(KnobError, match="limit") as caught:
        read_limit(text)
    assert words in str(caught.value)


# --- accounts: what buckets hold at each moment ---

CACHED = Usage(model="m", input_tokens=100, cached_tokens=30, output_tokens=50, max_tokens=400)
DAY = 86_400.0
TOKENS = Limit(
    requests_per_minute=60, tokens_per_minute=60_000, input_tokens_per_minute=60_000, output_tokens_per_minute=60_000
)


def accepted(limiter: Limiter, usage: Usage = CACHED, *, dialect: str = "openai-chat", key: str = "k") -> Ticket:
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
