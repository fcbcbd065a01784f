"""How each server charges and enforces its limits."""

from dataclasses import replace

import pytest

from manystream.simulator import Limit
from manystream.simulator.limiter import Ticket, Usage
from tests.support.limit_world import World

WALL = 1_700_000_000.0


USAGE = Usage(model="m", input_tokens=100, cached_tokens=0, output_tokens=50, max_tokens=400)


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


def test_gemini_limits_are_per_model_and_shared_by_all_keys() -> None:
    world = World(Limit(requests_per_minute=2))
    assert world.accepted(2, key="a", dialect="gemini") == 2
    assert world.accepted(1, key="b", dialect="gemini") == 0
    assert world.accepted(1, replace(USAGE, model="n"), key="b", dialect="gemini") == 1


def test_geminis_day_ends_at_midnight_pacific_time() -> None:
    world = World(Limit(requests_per_day=5, server="gemini"))
    assert world.accepted(6, dialect="gemini") == 5
    midnight = 86_400.0 - (WALL + world.now - 8 * 3600.0) % 86_400.0
    world.now += midnight - 1.0
    assert world.accepted(1, dialect="gemini") == 0
    world.now += 1.5
    assert world.accepted(6, dialect="gemini") == 5
