"""The targets of a route, step by step: which calls wait for them, what is logged, and the figures."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.traffic.limits.host import Host
from manystream.engine.traffic.routing.router import Router, RouteTarget
from manystream.providers.model.options import Priority
from manystream.statistics import RouteStatistics, TargetStatistics
from tests.engine.unit_runtime import Call, UnitRuntime


class Access:
    """A key of a provider."""

    def __init__(self, name: str) -> None:
        self.provider = self
        self.name = name


def route(runtime: UnitRuntime, *names: str, **options: Any) -> Router:
    made = ms.Route("fast", [f"{name}/m" for name in names], **options)
    targets = tuple(RouteTarget((cast(Any, Access(name)),), Host(name), "m", made.targets[0]) for name in names)
    return Router(made, targets, cast(Any, runtime))


def fails(one: Router, place: int = 0, times: int = 5, *, message: str = "down") -> None:
    error = ms.ProviderError(message, category=ms.ErrorCategory.SERVER)
    for _ in range(times):
        number = one.begin(place, 0.0)
        one.fail(place, number, 0.0, None, error)
        one.end(place, number)


ALL: frozenset[int] = frozenset()


def test_held_calls_look_in_the_order_of_their_priority() -> None:
    runtime, order = UnitRuntime(), list[str]()

    class Ordered(Call):
        def look_again(self) -> None:
            order.append(self.name)

    one = route(runtime, "one", "two")
    groups = (
        ("batch", Priority.BATCH, ALL), ("normal", Priority.NORMAL, ALL), ("interactive", Priority.INTERACTIVE, ALL),
        ("first excluded", Priority.INTERACTIVE, frozenset({0})), ("interactive 2", Priority.INTERACTIVE, ALL),
        ("all excluded", Priority.INTERACTIVE, frozenset({0, 1})),
    )  # fmt: skip
    for name, priority, excluded in groups:
        one.hold(Ordered(name), priority, excluded)
    runtime.tick()
    assert order == ["interactive", "interactive 2", "first excluded", "normal", "batch"]
    assert one.held == 1


def test_held_calls_look_when_the_pause_of_a_target_ends() -> None:
    runtime = UnitRuntime()
    one, call = route(runtime, "one"), Call()
    fails(one)
    assert (one.held, repr(one)) == (0, "<Router fast, 0 waiting>")
    one.hold(call, Priority.NORMAL, ALL)
    runtime.tick()
    assert (one.held, runtime.timers.times) == (1, [2.0])
    runtime.go_to(2.0)
    assert (one.held, call.reported) == (0, ["look"])


def test_a_call_that_does_not_wait_any_longer_does_not_look() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one")
    stays, leaves = Call(), Call()
    groups = [one.hold(call, Priority.NORMAL, ALL) for call in (stays, leaves)]
    one.end_hold(leaves, groups[1])
    one.end_hold(leaves, groups[1])
    runtime.tick()
    assert (stays.reported, leaves.reported, one.held) == (["look"], [], 0)


def test_calls_waiting_for_room_look_again_at_an_open_breaker() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one", "two")
    waiting, gone = Call(), Call()
    for call in (waiting, gone):
        one.wait_for_room(call)
    one.leave(gone)
    fails(one, times=4)
    assert runtime.due == []
    fails(one, times=1)
    assert runtime.tick() == 1
    assert (waiting.reported, gone.reported) == (["look"], [])


def test_the_log_names_a_target_left_alone_and_back_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "manystream.traffic")
    one = route(UnitRuntime(), "one", "two")
    fails(one, 1, 7, message="it is down")
    probe = one.begin(1, 3.0)
    one.succeed(1, probe, 0.5, 3.0)
    one.succeed(1, probe, 0.5, 3.0)
    one.complete(1, probe)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING",
        "route fast: two/m is left alone for 2 s at a time: 5 of its last 5 calls failed; the latest: server,"
        " it is down"), ("INFO", "route fast: two/m answers, and is used again"),
    ]  # fmt: skip
    caplog.clear()
    for balance in ("fastest", "sticky"):
        fails(route(UnitRuntime(), "one", "two", balance=balance), 0, 7)
    assert caplog.records == []


def test_a_target_that_cannot_take_requests_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    one = route(UnitRuntime(), "one", "two")
    for place in (0, 1, 0, 1):
        one.cannot_take(place, ValueError("no tools"))
    assert [record.getMessage() for record in caplog.records] == [
        "route fast: one/m cannot take a request: no tools",
        "route fast: two/m cannot take a request: no tools",
    ]


def test_the_figures_of_a_route_are_complete() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one", "two", hedge=ms.Hedge(1.0))
    new = RouteStatistics(
        tuple(TargetStatistics(target, 0, 0, "closed", None, None, 0.0) for target in ("one/m", "two/m")), 0, 0
    )
    assert one.statistics(0.0) == new
    one.succeed(0, one.begin(0, 0.0), 0.5, 0.0)
    one.hold(Call(), Priority.NORMAL, ALL)
    fails(one, 1)
    first, second = one.statistics(1.0).targets
    assert (first.outstanding, first.seconds, first.breaker, first.failures) == (1, 0.5, "closed", 0.0)
    assert first.score is not None
    assert (second.outstanding, second.breaker) == (0, "open")
    assert second.failures == pytest.approx(1 - 0.9**5)
    assert one.statistics(1.0).waiting == 1
    assert one.statistics(2.0).targets[1].breaker == "probing"
    fastest = route(runtime, "one", balance="fastest")
    fails(fastest)
    assert fastest.statistics(1.0).targets[0].breaker == "closed"


def test_a_place_keeps_the_keys_of_a_thousand_models() -> None:
    target = RouteTarget((cast(Any, Access("one")), cast(Any, Access("one"))), Host("one"))
    first = target.ring("0")
    for number in range(1000):
        assert target.ring(str(number)).count == 2
    assert target.ring("0") is first
    target.ring("1000")
    assert target.ring("0") is not first
    assert target.provider == "one"
