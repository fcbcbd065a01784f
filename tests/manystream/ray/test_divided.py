"""An actor's part of the limits of all actors: what is divided, and what cannot be."""

import dataclasses

import pytest

import manystream as ms
from manystream.ray.divided import divided

SECRET = "5ecret-5ecret"


PROVIDER = ms.OpenAIChat(SECRET, "http://127.0.0.1:9/v1", name="sim")


LIMIT = ms.RateLimit(requests_per_minute=100, tokens_per_minute=10_000, concurrent=9)


def test_actors_share_rates_and_divide_what_cannot_be_shared() -> None:
    rates = {"sim": LIMIT, "*": ms.RateLimit(requests_per_second=5), "sim/m": ms.RateLimit(concurrent=8)}
    part, shared = divided(ms.Traffic(rates=rates, adaptive=False), [PROVIDER], 4)
    assert part == ms.Traffic(rates={"sim/m": ms.RateLimit(concurrent=2)}, adaptive=False)
    assert shared == {"sim": dataclasses.replace(LIMIT, concurrent=2), "*": ms.RateLimit(requests_per_second=5)}


def test_a_limit_for_several_keys_is_divided() -> None:
    several = ms.OpenAIChat([SECRET, "second"], "http://127.0.0.1:9/v1", name="sim")
    part, shared = divided(ms.Traffic(rates={"sim": LIMIT}), [several], 4)
    assert part.rates == {"sim": ms.RateLimit(requests_per_minute=25, tokens_per_minute=2500, concurrent=2)}
    assert shared == {}


def test_one_actor_keeps_its_limits_and_few_calls_are_divided() -> None:
    traffic = ms.Traffic(rates={"sim": LIMIT})
    assert divided(traffic, [PROVIDER], 1) == (traffic, {})
    part, shared = divided(ms.Traffic(rates={"sim": ms.RateLimit(concurrent=4)}), [PROVIDER], 4)
    assert (part.rates, shared) == ({"sim": ms.RateLimit(concurrent=1)}, {})


def test_an_entry_of_two_providers_is_divided() -> None:
    other = ms.OpenAIChat(SECRET, "http://127.0.0.1:9/v1", name="other")
    part, shared = divided(ms.Traffic(rates={"sim": LIMIT, "other": LIMIT}), [PROVIDER, other], 3)
    assert (part.rates, shared.keys()) == ({}, {"sim", "other"})
    assert shared["sim"] == dataclasses.replace(LIMIT, concurrent=3)


def test_limits_that_cannot_be_divided_are_refused() -> None:
    assert divided(None, [PROVIDER], 4) == (None, {})
    with pytest.raises(ms.InvalidRequestError, match=r"traffic.rates\['sim'\].concurrent: must be at least 1 for each"):
        divided(ms.Traffic(rates={"sim": LIMIT}), [PROVIDER], 10)
    budgets = ms.Traffic(budgets=[ms.Budget(calls=5)])
    assert divided(budgets, [PROVIDER], 1) == (budgets, {})
    with pytest.raises(ms.InvalidRequestError, match=r"traffic.budgets: cannot be divided among 2 actors"):
        divided(budgets, [PROVIDER], 2)
