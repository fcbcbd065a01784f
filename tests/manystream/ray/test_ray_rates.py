"""The keeper of shared rates as an actor of Ray, with a fake in Ray's place."""

from __future__ import annotations

import time

import pytest

import manystream as ms
from manystream.providers.errors import InvalidRequestError
from manystream.ray import AskError, ray_rates, share_rates
from manystream.ray.rate_leases import Lease, LeaseRequest
from manystream.ray.ray_rates import RateActor, RayRateLink
from tests.manystream.ray import fake_ray
from tests.manystream.ray.fake_ray import FakeActor, FakeRay


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return fake_ray.install(monkeypatch)


HERE = {"node": "this-node", "soft": False}


# --- shared rates ---

LIMITS = {"*": ms.RateLimit(requests_per_second=5)}


REQUEST = LeaseRequest("e", 3.0, (0.0,), (5.0,))


def test_shared_rates_are_kept_by_an_actor_on_this_node(ray: FakeRay) -> None:
    ray.answer = lambda method, arguments: "ready"
    shared = share_rates(LIMITS)
    (actor,) = ray.actors
    options = {
        "num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "enable_task_events": False,
        "scheduling_strategy": HERE,
    }  # fmt: skip
    assert (actor.of, actor.options, actor.arguments) == (RateActor, options, (LIMITS,))
    assert actor.calls == [("ready", ())]
    assert ray.log == [("init", {}), ("get", 60.0)]
    assert (shared.limits, shared.link._actor) == (LIMITS, actor)  # type: ignore[attr-defined]


def test_a_keeper_that_does_not_start_is_reported(ray: FakeRay) -> None:
    ray.answer = lambda method, arguments: fake_ray.RayError("No node has room.\nmore")
    with pytest.raises(AskError) as caught:
        share_rates(LIMITS)
    assert str(caught.value) == "the keeper of the shared rate limits did not start: No node has room."


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (5, "rates['sim']: must be a RateLimit"),
        (ms.RateLimit(concurrent=3),
            "rates['sim'].concurrent: cannot be shared: give each engine its part in its own `traffic`"),
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_shared_is_named(ray: FakeRay, limit: object, message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        share_rates({"sim": limit})  # type: ignore[dict-item]
    assert (str(caught.value), ray.actors) == (message, [])


def test_an_engine_asks_the_keeper_for_at_most_a_second(ray: FakeRay) -> None:
    lease = Lease(3.0, (5.0,))
    actor = FakeActor(RateActor, {}, ())
    actor.answer = lambda method, arguments: lease
    link = RayRateLink(actor)
    assert link.renew(REQUEST) == lease
    assert (actor.calls, ray.log) == ([("renew", (REQUEST,))], [("get", 1.0)])
    actor.answer = lambda method, arguments: fake_ray.ActorUnavailableError("it starts again")
    assert link.renew(REQUEST) is None


def test_a_keeper_that_was_started_again_waits_for_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(ray_rates.time, "monotonic", lambda: now)
    actor = RateActor(LIMITS)
    assert actor.ready() is None  # type: ignore[func-returns-value]
    assert actor.renew(REQUEST) == Lease(3.0, (0.0,))
    now += 4.0
    assert actor.renew(REQUEST) == Lease(3.0, (5.0,))
    assert time.monotonic() == now
