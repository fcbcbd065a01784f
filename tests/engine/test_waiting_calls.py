"""Calls that wait for traffic control, step by step: in a lane, for a target, and what observers are told."""

from __future__ import annotations

import logging
import math
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.lane import Lane
from manystream.engine.live_route import LiveRoute, Place
from manystream.engine.notice import Notice, open_notice
from manystream.engine.parking import Parking
from manystream.engine.traffic.declared import DeclaredLimit
from manystream.engine.traffic.scope import Scope
from manystream.engine.traffic.ticket import Ticket
from manystream.providers.charging import charging_of
from manystream.providers.limit_reports import reader_of
from manystream.providers.options import Priority
from tests.engine.unit_runtime import UnitRuntime


class Call:
    """A call that notes what it is told."""

    def __init__(self, name: str = "", *, raises: str = "") -> None:
        self.name = name
        self.told: list[object] = []
        self.raises = raises

    def _tell(self, what: object) -> None:
        self.told.append(what)
        if self.raises:
            raise RuntimeError(self.raises)

    def admitted(self) -> None:
        self._tell("admitted")

    def rejected(self, error: ms.ProviderError) -> None:
        self._tell(error)

    def overdue(self, waiting_for: str) -> None:
        self._tell(f"overdue: {waiting_for}")

    def look_again(self) -> None:
        self._tell("look")

    def on_defect(self, error: Exception) -> None:
        self.told.append(f"defect: {error}")


class Watch:
    """An observer that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def scope_changed(self, scope: str, statistics: ms.ScopeStatistics) -> None:
        self.told.append((scope, statistics.waiting, statistics.running))

    def route_changed(self, route: str, statistics: ms.RouteStatistics) -> None:
        self.told.append((route, statistics.waiting, statistics.targets[0].outstanding))


# --- lanes ---


def lane(runtime: UnitRuntime, *limits: DeclaredLimit, told: list[object] | None = None, adaptive: bool = True) -> Lane:
    scope = Scope("one/m", charging_of("openai-chat"), limits=limits, adaptive=adaptive)

    def next_in_line(limit: DeclaredLimit, scope: Scope) -> None:
        if told is not None:
            told.append((limit, scope))

    reader = reader_of("openai-chat")
    return Lane(scope, cast(Any, runtime), "openai-chat", reader, lambda: 0.0, cast(Any, next_in_line))


def declared(**rates: float) -> DeclaredLimit:
    return DeclaredLimit("one", ms.RateLimit(**rates), 0.0)  # type: ignore[arg-type]


def enter(
    lane: Lane, call: Call, *, deadline: float = math.inf, again: bool = False, tokens: float = 1.0, **options: Any
) -> Ticket:
    ticket = Ticket(tokens, 1, deadline=deadline, **options)
    ticket.owner = cast(Any, call)
    lane.enter(ticket, lane.now, again=again)
    return ticket


def test_a_lane_sends_64_calls_in_a_tick() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, adaptive=False)
    calls = [Call() for _ in range(150)]
    one._is_pumping = True
    for call in calls:
        enter(one, call)
    one._is_pumping = False
    assert repr(one) == "<Lane one/m, 150 waiting>"
    sent: list[int] = []
    one.pump()
    sent.append(sum(call.told == ["admitted"] for call in calls))
    while runtime.tick():
        sent.append(sum(call.told == ["admitted"] for call in calls))
    assert sent == [64, 128, 150]


def test_a_lane_s_timer_sends_the_next_call() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=6))
    calls = [Call() for _ in range(9)]
    for call in calls:
        enter(one, call)
    assert [len(call.told) for call in calls] == [1] * 6 + [0] * 3
    assert runtime.timers.times == [10.0]
    runtime.go_to(9.9)
    assert calls[6].told == []
    runtime.go_to(10.1)
    assert [call.told for call in calls[6:]] == [["admitted"], [], []]
    assert runtime.timers.times == [20.0]
    runtime.go_to(31)
    assert [call.told for call in calls[6:]] == [["admitted"]] * 3
    assert runtime.timers.times == []


def test_a_call_that_waited_before_goes_to_the_head() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=1))
    order: list[str] = []

    class Ordered(Call):
        def admitted(self) -> None:
            order.append(self.name)

    for name, again in (("a", False), ("b", False), ("c", False), ("again", True)):
        enter(one, Ordered(name), again=again)
    runtime.go_to(200)
    assert order == ["a", "again", "b", "c"]


def test_a_call_whose_time_is_over_is_told_what_it_waited_for() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=1))
    enter(one, Call())
    late, later = Call(), Call()
    enter(one, late, deadline=30.0)
    enter(one, later)
    assert runtime.timers.times == [30.0]
    runtime.go_to(29.9)
    assert late.told == []
    runtime.go_to(30.0)
    assert (late.told, later.told) == (["overdue: declared requests_per_minute of one"], [])
    runtime.go_to(60.1)
    assert later.told == ["admitted"]


def test_a_call_that_cannot_be_sent_in_time_fails_at_once() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=60))
    for _ in range(70):
        enter(one, Call())
    late, early, alone = Call(), Call(), Call()
    enter(one, late, deadline=5.0)
    (error,) = late.told
    assert isinstance(error, ms.ProviderError)
    assert error.message == (
        "queue timeout: what waits before the call takes about 10 s, and it may wait 5 s"
        " (waiting for the first responses of one/m)"
    )
    assert (error.category, error.provider_code, error.retryable) == (ms.ErrorCategory.TIMEOUT, "queue", False)
    enter(one, early, deadline=500.0)
    assert early.told == []
    ticket = Ticket(1.0, 1, deadline=5.0)
    ticket.owner = cast(Any, alone)
    one.enter(ticket, 0.0, again=False, alone=False)
    assert alone.told == []  # it also waits elsewhere


def test_a_call_larger_than_a_limit_is_never_sent() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(tokens_per_minute=100))
    call = Call()
    enter(one, call, tokens=1000.0)
    (error,) = call.told
    assert isinstance(error, ms.ProviderError)
    assert (error.message, error.category, error.provider_code, error.retryable, error.retry_after_ms) == (
        "not sent to one/m: the request is larger than the whole limit: declared tokens_per_minute of one (100)",
        ms.ErrorCategory.RATE_LIMIT,
        "request_too_large",
        False,
        -1,
    )
    assert one.scope.queue.length == 0


def test_a_call_that_raises_ends_alone() -> None:
    runtime = UnitRuntime()
    one = lane(runtime)
    broken, whole = Call(raises="mine"), Call()
    one._is_pumping = True
    for call in (broken, whole):
        enter(one, call)
    one._is_pumping = False
    one.pump()
    assert (broken.told, whole.told) == (["admitted", "defect: mine"], ["admitted"])


def test_a_lane_that_raised_goes_on_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=1))
    enter(one, Call())
    waiting = Call()
    enter(one, waiting)
    runtime.loop.time = 70.0
    one.schedule()
    one.schedule()
    assert len(runtime.due) == 1
    error = RuntimeError("defect")
    one.on_defect(error)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("manystream.traffic", logging.ERROR)
    assert record.getMessage() == "<Lane one/m, 1 waiting> raised: a defect in manystream"
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert runtime.timers.times[-1] == 71.0
    runtime.due.clear()
    one.schedule()
    assert len(runtime.due) == 1
    runtime.go_to(71.0)
    assert waiting.told == ["admitted"]


def test_a_change_is_passed_on_to_the_scopes_that_share_a_limit() -> None:
    runtime, told = UnitRuntime(), list[object]()
    shared = declared(requests_per_minute=1)
    one = lane(runtime, shared, told=told)
    one.changed()
    assert (told, runtime.due) == ([(shared, one.scope)], [])
    enter(one, Call())
    enter(one, Call())
    told.clear()
    one.changed()
    assert (told, runtime.due) == ([(shared, one.scope)], [one])
    told.clear()
    one.pump()
    assert told == [(shared, one.scope)]


def test_an_observer_is_told_of_each_change_of_a_lane() -> None:
    watch = Watch()
    runtime = UnitRuntime(watch)
    one = lane(runtime, declared(requests_per_minute=1))
    enter(one, Call())
    runtime.go_to(0.0)
    assert watch.told == [("one/m", 0, 1)]
    enter(one, Call())
    runtime.go_to(0.9)
    assert len(watch.told) == 1
    runtime.go_to(1.0)
    assert watch.told[1:] == [("one/m", 1, 1)]
    runtime.go_to(30.0)
    one.changed()
    runtime.go_to(30.0)
    assert watch.told[2:] == [("one/m", 1, 1)]


def test_a_strange_header_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    one = lane(UnitRuntime())
    for _ in range(2):
        one.report({"x-ratelimit-limit-requests": "-" * 100, "x-ratelimit-remaining-requests": "1"})
    assert [record.getMessage() for record in caplog.records] == [
        f"one/m: the header x-ratelimit-limit-requests says nothing ('{'-' * 59}), ignored"
    ]


# --- notices ---


def test_a_notice_is_sent_at_the_tick_after_a_change_and_once_a_second() -> None:
    sent: list[float] = []
    more = [True, False, False, False]
    runtime = UnitRuntime(watch := object())

    def send(to: object, now: float) -> bool:
        assert to is watch
        sent.append(now)
        return more.pop(0)

    notice = open_notice(cast(Any, runtime), send, lambda error: None)
    assert isinstance(notice, Notice)
    runtime.loop.time = 7.0
    notice.note()
    notice.note()
    assert (runtime.timers.times, sent) == ([7.0], [])
    runtime.go_to(7.0)
    assert sent == [7.0, 7.0]  # it had more to send
    runtime.go_to(7.5)
    notice.note()
    notice.note()
    assert runtime.timers.times == [8.0]
    runtime.go_to(20.0)
    assert sent == [7.0, 7.0, 8.0]
    notice.note()
    assert runtime.timers.times == [20.0]
    runtime.watch = None
    runtime.go_to(21.0)
    assert sent == [7.0, 7.0, 8.0]


def test_without_an_observer_there_is_no_notice() -> None:
    assert open_notice(cast(Any, UnitRuntime()), lambda to, now: False, lambda error: None) is None


# --- routes ---


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
        looked.append(sum(call.told == ["look"] for call in calls))
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
    assert (stays.told, leaves.told, one.parked) == (["look"], [], 0)


def test_a_parked_call_that_raises_ends_alone() -> None:
    runtime = UnitRuntime()
    one = route(runtime, "one")
    broken, whole = Call(raises="mine"), Call()
    for call in (broken, whole):
        one.park(call, Priority.NORMAL, ALL, 0.0)
    one.schedule()
    runtime.tick()
    assert (broken.told, whole.told) == (["look", "defect: mine"], ["look"])


def test_calls_that_wait_for_room_look_again_when_a_target_is_left_alone() -> None:
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
    assert (waiting.told, gone.told) == (["look"], [])


def test_the_log_says_once_which_target_is_left_alone_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
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
