"""The targets of a route, step by step: which calls wait for them, what is logged, and the figures."""

from __future__ import annotations

import logging
import math
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.traffic.parking import Parking
from manystream.engine.traffic.routing.router import LiveRoute, Place
from manystream.providers.model.options import Priority
from tests.engine.unit_runtime import Call, UnitRuntime


class Access:
    """A key of a provider."""

    def __init__(self, name: str) -> None:
        self.provider = self
        self.name = name


def route(runtime: UnitRuntime, *names: str, **options: Any) -> LiveRoute:
    made = ms.Route("fast", [f"{name}/m" for name in names], **options)
    places = tuple(Place((cast(Any, Access(name)),), "m", made.targets[0]) for name in names)
    return LiveRoute(made, places, cast(Any, runtime))


def fails(one: LiveRoute, place: int = 0, times: int = 5, *, message: str = "down") -> None:
    error = ms.ProviderError(message, category=ms.ErrorCategory.SERVER)
    for _ in range(times):
        one.begin(place, 0.0)
        one.fail(place, 0.0, 0.0, None, error)
        one.end(place, 0.0)


ALL: frozenset[int] = frozenset()


def test_64_parked_calls_look_for_a_target_in_a_tick() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one")
    calls = [Call() for _ in range(150)]
    for call in calls:
        one.park(call, Priority.NORMAL, ALL, 0.0)
    assert (one.parked, repr(one)) == (150, "<LiveRoute fast, 150 waiting>")
    one.schedule()
    one.schedule()
    looked: list[int] = []
    while runtime.tick():
        looked.append(sum(call.reported == ["look"] for call in calls))
    assert looked == [64, 128, 150]
    assert one.parked == 0


def test_parked_calls_look_in_the_order_of_their_priority() -> None:
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
        one.park(Ordered(name), priority, excluded, math.inf)
    assert runtime.timers.times == []
    one.schedule()
    runtime.tick()
    assert order == ["interactive", "interactive 2", "first excluded", "normal", "batch"]
    assert one.parked == 1


def test_parked_calls_look_at_the_earliest_time() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one")
    fails(one)
    times: list[list[float]] = []
    for until in (math.inf, 5.0, 3.0, 9.0):
        one.park(Call(), Priority.NORMAL, ALL, until)
        times.append(runtime.timers.times)
    assert times == [[], [5.0], [3.0], [3.0]]
    runtime.go_to(3.0)
    assert runtime.due == [one]


def test_a_call_that_does_not_wait_any_longer_does_not_look() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one")
    stays, leaves = Call(), Call()
    groups = [one.park(call, Priority.NORMAL, ALL, 0.0) for call in (stays, leaves)]
    one.unpark(leaves, groups[1])
    one.unpark(leaves, groups[1])
    one.schedule()
    runtime.tick()
    assert (stays.reported, leaves.reported, one.parked) == (["look"], [], 0)


def test_a_parked_call_that_raises_ends_alone() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one")
    broken, whole = Call(raises="mine"), Call()
    for call in (broken, whole):
        one.park(call, Priority.NORMAL, ALL, 0.0)
    one.schedule()
    runtime.tick()
    assert (broken.reported, whole.reported) == (["look", "defect: mine"], ["look"])


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
    assert runtime.due == [one]
    runtime.tick()
    assert (waiting.reported, gone.reported) == (["look"], [])


def test_the_log_names_a_target_left_alone_and_back_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "manystream.traffic")
    one = route(UnitRuntime(), "one", "two")
    fails(one, 1, 7, message="it is down")
    one.succeed(1, 0.5, 3.0)
    one.succeed(1, 0.5, 3.0)
    one.complete(1)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "route fast: two/m is left alone for 2 s at a time, after 5 failures in a row; the last one: server,"
            " it is down",
        ),
        ("INFO", "route fast: two/m answers, and is used again"),
    ]
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


def test_a_route_that_raised_goes_on_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one")
    one.schedule()
    runtime.due.clear()
    runtime.loop.time = 10.0
    one.on_defect(RuntimeError("defect"))
    (record,) = caplog.records
    assert record.getMessage() == "<LiveRoute fast, 0 waiting> raised: a defect in manystream"
    assert runtime.timers.times == [11.0]
    runtime.go_to(11.0)
    assert runtime.due == [one]


def test_the_figures_of_a_route_are_complete() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one", "two", hedge=ms.Hedge(1.0))
    new = ms.RouteStatistics(
        tuple(ms.TargetStatistics(target, 0, 0, "closed", None, None, 0.0) for target in ("one/m", "two/m")), 0, 0
    )
    assert one.statistics(0.0) == new
    one.begin(0, 0.0)
    one.succeed(0, 0.5, 0.0)
    one.park(Call(), Priority.NORMAL, ALL, 0.0)
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
    place = Place((cast(Any, Access("one")), cast(Any, Access("one"))))
    first = place.ring("0")
    for number in range(1000):
        assert place.ring(str(number)).count == 2
    assert place.ring("0") is first
    place.ring("1000")
    assert place.ring("0") is not first
    assert place.provider == "one"


def test_parking_counts_its_seconds_and_ends_at_its_deadline() -> None:
    runtime, overdue = UnitRuntime(), list[float]()
    one = route(runtime, "one")
    fails(one)
    parking, call = Parking(one, cast(Any, runtime)), Call()
    assert (parking.waiting_for, parking.end(call, 0.0), parking.seconds) == ("", 0.0, 0.0)

    def begin(now: float, deadline: float) -> None:
        parking.begin(
            call, Priority.NORMAL, ALL, 50.0, now, deadline=deadline, overdue=lambda: overdue.append(runtime.loop.time)
        )

    begin(1.0, math.inf)
    assert (parking.waiting_for, one.parked) == ("a target of fast to be used again", 1)
    assert (parking.end(call, 3.5), parking.seconds, one.parked) == (2.5, 2.5, 0)
    assert (parking.end(call, 9.0), parking.seconds) == (0.0, 2.5)
    begin(10.0, 15.0)
    runtime.go_to(14.9)
    assert overdue == []
    runtime.go_to(15.0)
    assert overdue == [15.0]
    assert (parking.end(call, 15.0), parking.seconds) == (5.0, 7.5)
    begin(20.0, 25.0)
    parking.end(call, 21.0)
    runtime.go_to(30.0)
    assert overdue == [15.0]
