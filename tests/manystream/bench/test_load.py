"""A load test against an engine whose calls end when the test says, on a clock that jumps."""

import gc
import io
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from manystream.bench import load, validity
from manystream.bench.arrivals import READ_AHEAD, Arrival, Arrivals, TraceError, read_trace
from manystream.bench.histogram import percentile, seconds_of
from manystream.bench.load import Load, Look, Plan, Result
from manystream.bench.moments import Wire
from manystream.bench.validity import process_seconds
from manystream.bench.work import WorkPlan
from manystream.engine import Completion, Engine, Timings
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.events import Event, Start, TextDelta
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.providers.model.request import Request
from manystream.providers.model.response import Response
from manystream.providers.model.tokens import Usage

WORK = WorkPlan("m", "Hi")
OK = Completion(success=True, response=Response(usage=Usage(output_tokens=4)), timings=Timings(finished=0.5))


def failed(category: ErrorCategory, response: Response | None = None) -> Completion:
    error = ProviderError(f"{category.value} it is", category=category)
    return Completion(success=False, response=response, error=error)


async def checkpoints(count: int) -> None:
    for _ in range(count):
        await trio.lowlevel.checkpoint()


class ScriptedEngine:
    """An engine whose calls last `seconds` and end as `ends` says.

    A call with a response receives two events at its start, and another one when it succeeds.

    ends: the completions of the calls, in order; the last one is that of all further calls.
    seconds: how long a call takes.

    starts: the time at which each call was started, in seconds.
    requests: their requests.
    cancelled: the number of calls that were cancelled.
    late: a clock that advances by a second before the second of these calls has ended.
    """

    def __init__(self, *ends: Completion, seconds: float = 1.0, lag: float = 0.25) -> None:
        self.ends = list(ends)
        self.seconds = seconds
        self.lag = lag
        self.starts: list[float] = []
        self.requests: list[Request] = []
        self.cancelled = 0
        self.late: MockClock | None = None

    def statistics(self) -> Any:
        return SimpleNamespace(loop_lag=self.lag, opened=3, reused=4)

    def start_stream(
        self, request: Request, on_event: Callable[[Event], None], on_completion: Callable[[Completion], None]
    ) -> Any:
        assert request.model == "m"
        self.requests.append(request)
        self.starts.append(round(trio.current_time(), 6))
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        scope = trio.CancelScope()

        async def run() -> None:
            if end.response is not None:
                on_event(Start("m", "id"))
                on_event(TextDelta(0, "a"))
            with scope:
                await trio.sleep(self.seconds)
            if scope.cancelled_caught:
                self.cancelled += 1
                if self.late is not None and self.cancelled == 2:
                    await checkpoints(5)
                    self.late.jump(1.0)
                    await checkpoints(5)
                on_completion(failed(ErrorCategory.CANCELLED))
                return
            if end.success:
                on_event(TextDelta(0, "b"))
            on_completion(end)

        trio.lowlevel.spawn_system_task(run)
        return SimpleNamespace(cancel=scope.cancel)

    def start_request(self, request: Request, on_completion: Callable[[Completion], None]) -> Any:
        return self.start_stream(request, lambda _: None, on_completion)


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Let the load test read the clock of trio. The process uses a tenth of a core."""
    clock = SimpleNamespace(
        perf_counter=lambda: 50.0 + trio.current_time(),
        perf_counter_ns=lambda: int((50.0 + trio.current_time()) * 1e9),
        process_time=lambda: 7.0 + trio.current_time() / 10,
    )
    for module in (load, validity):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(load, "make_kernel_timer", lambda: None)
    return autojump_clock


class ClockWire(Wire):
    """Sockets whose bytes arrive when they are read."""

    @property
    def arrived(self) -> int:
        return load.time.perf_counter_ns()

    @arrived.setter
    def arrived(self, _: int) -> None:
        pass


def a_plan(**changes: Any) -> Plan:
    settings: dict[str, Any] = {"work": WORK, "stream": True, "concurrency": 1, "seconds": 10.0}
    return Plan(**settings | changes)


def a_load(engine: ScriptedEngine, plan: Plan, on_look: Callable[[Look], None] = lambda _: None, **more: Any) -> Load:
    return Load(cast("Engine", engine), plan, ClockWire(), on_look, **more)


def failures(result: Result) -> dict[str, int]:
    return dict(result.figures.failures)


def percentiles(result: Result, name: str) -> list[float | None]:
    found = result.figures.summary(name)
    return [found.p50, found.p99, found.longest]


async def run(engine: ScriptedEngine, plan: Plan) -> Result:
    return await a_load(engine, plan).run()


# The start of the calls.


async def test_the_first_calls_are_spread_over_the_ramp(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1000.0)
    result = await run(engine, a_plan(concurrency=10, ramp=0.045))
    assert engine.starts == [0.0, 0.0, 0.01, 0.01, 0.02, 0.02, 0.03, 0.03, 0.04, 0.04]
    assert result.seconds == pytest.approx(10.0)
    assert (result.unfinished, engine.cancelled) == (10, 10)


async def test_a_slow_ramp_starts_one_call_at_once(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1000.0)
    await run(engine, a_plan(concurrency=3, ramp=0.305))
    assert engine.starts == [0.0, 0.2, 0.3]


async def test_without_a_ramp_all_calls_start_at_once(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1000.0)
    await run(engine, a_plan(concurrency=4))
    assert engine.starts == [0.0] * 4
    assert trio.current_time() == pytest.approx(10.0)


async def test_a_ramp_that_is_over_starts_nothing_more(clock: MockClock) -> None:
    engine = ScriptedEngine(failed(ErrorCategory.AUTH), seconds=0.015)
    result = await run(engine, a_plan(concurrency=10, ramp=10.0))
    assert engine.starts == [0.0]
    assert (failures(result), result.seconds) == ({"auth": 1}, pytest.approx(0.02))


async def test_each_call_that_ends_starts_the_next(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1.0)
    result = await run(engine, a_plan(concurrency=2, seconds=3.5))
    assert engine.starts == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert (result.figures.ok, result.unfinished) == (6, 2)


@pytest.mark.parametrize("ramp", [0.0, 0.005])
async def test_a_few_calls_start_in_one_turn_of_the_loop(clock: MockClock, ramp: float) -> None:
    turns: list[int] = []

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            turns.append(len(engine.starts))

    engine = ScriptedEngine(OK, seconds=1.0)
    trio.lowlevel.add_instrument(Turns())
    await run(engine, a_plan(concurrency=50, ramp=ramp, seconds=2.5))
    assert engine.starts == [0.0] * 50 + [1.0] * 50 + [2.0] * 50
    assert max(after - before for before, after in itertools.pairwise(turns)) == load.STARTS_A_TURN


async def test_a_run_ends_with_its_last_request(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1.0)
    result = await run(engine, a_plan(concurrency=2, requests=5, seconds=1000.0))
    assert engine.starts == [0.0, 0.0, 1.0, 1.0, 2.0]
    assert (result.figures.ok, result.unfinished, result.seconds) == (5, 0, pytest.approx(3.0))
    assert trio.current_time() == pytest.approx(3.0)


async def test_fewer_requests_than_places_start_no_more_calls(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1.0)
    result = await run(engine, a_plan(concurrency=5, requests=3, ramp=0.035))
    assert engine.starts == [0.0, 0.02, 0.03]
    assert (result.figures.ok, result.figures.measured_events) == (3, 9), "the measured time begins with the ramp"
    assert result.seconds == pytest.approx(1.03)


async def test_a_ramp_that_leaves_requests_is_not_measured(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1.0)
    result = await run(engine, a_plan(concurrency=3, requests=4, ramp=0.035))
    assert (result.figures.ok, result.figures.measured_events) == (4, 8), (
        "the events of two calls before the window are not counted"
    )
    assert result.seconds == pytest.approx(1.97)


async def test_a_failed_call_of_the_last_requests_ends_the_run(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, failed(ErrorCategory.SERVER), seconds=1.0)
    result = await run(engine, a_plan(requests=2, seconds=1000.0))
    assert (result.figures.ok, failures(result), engine.starts) == (1, {"server": 1}, [0.0, 1.0])
    assert trio.current_time() < 3.0


# Failures.


async def test_the_delay_after_failures_doubles_up_to_two_seconds(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, failed(ErrorCategory.SERVER), seconds=0.001)
    await run(engine, a_plan(seconds=12.0))
    delays = [round(after - before - 0.001, 3) for before, after in zip(engine.starts, engine.starts[1:], strict=False)]
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]


async def test_failures_of_concurrent_calls_count_as_one_round(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, OK, OK, failed(ErrorCategory.SERVER), seconds=0.001)
    await run(engine, a_plan(concurrency=3, seconds=0.16))
    assert engine.starts == [0.0, 0.0, 0.0, 0.001, 0.001, 0.001, 0.052, 0.052, 0.102, 0.153, 0.153]


async def test_the_first_failures_of_a_run_have_the_first_delays(clock: MockClock) -> None:
    server = failed(ErrorCategory.SERVER)
    engine = ScriptedEngine(server, server, server, OK, seconds=1.0)
    await run(engine, a_plan(seconds=5.0))
    assert engine.starts == [0.0, 1.1, 2.3, 3.7, 4.7]


async def test_no_call_starts_while_the_last_ones_end(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1000.0)
    engine.late = clock
    result = await run(engine, a_plan(concurrency=2, seconds=5.0))
    assert (engine.starts, engine.cancelled, result.unfinished) == ([0.0, 0.0], 2, 2)


async def test_a_success_resets_the_delay(clock: MockClock) -> None:
    server = failed(ErrorCategory.SERVER)
    engine = ScriptedEngine(OK, server, server, OK, server, OK, seconds=0.5)
    await run(engine, a_plan(seconds=4.0))
    assert engine.starts == [0.0, 0.5, 1.1, 1.8, 2.3, 2.9, 3.4, 3.9]


async def test_many_failures_in_a_row_keep_the_longest_delay(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "LONGEST_DELAY", 0.01)
    engine = ScriptedEngine(OK, failed(ErrorCategory.SERVER), seconds=0.005)
    result = await run(engine, a_plan(seconds=18.0))
    assert failures(result)["server"] > 1100


@pytest.mark.parametrize(("concurrency", "calls"), [(1, 5), (5, 5), (6, 6)])
async def test_so_many_failures_without_a_success_end_a_run(clock: MockClock, concurrency: int, calls: int) -> None:
    engine = ScriptedEngine(failed(ErrorCategory.SERVER), seconds=0.5)
    result = await run(engine, a_plan(concurrency=concurrency, seconds=1000.0))
    assert failures(result) == {"server": calls}
    assert trio.current_time() < 60.0


@pytest.mark.parametrize("category", [ErrorCategory.AUTH, ErrorCategory.INVALID_ARG, ErrorCategory.NOT_FOUND])
async def test_one_hopeless_failure_ends_a_run(clock: MockClock, category: ErrorCategory) -> None:
    engine = ScriptedEngine(failed(category), seconds=0.5)
    result = await run(engine, a_plan(seconds=1000.0))
    assert (failures(result), result.figures.first_failure) == ({category.value: 1}, f"{category.value} it is")
    assert trio.current_time() == result.seconds == pytest.approx(0.5)
    assert result.clients[0].loop_lag == 0.25


@pytest.mark.parametrize("first", [OK, failed(ErrorCategory.AUTH, Response())])
async def test_after_a_success_or_content_a_run_goes_on(clock: MockClock, first: Completion) -> None:
    engine = ScriptedEngine(first, failed(ErrorCategory.AUTH), seconds=0.5)
    result = await run(engine, a_plan(seconds=60.0))
    assert failures(result)["auth"] > 10
    assert result.seconds == pytest.approx(60.0)


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("loop", ["closed", "open"])
@pytest.mark.parametrize("refused", [1, 2])
async def test_a_request_that_is_refused_here_is_raised_itself(
    clock: MockClock, refused: int, loop: str, turns: int
) -> None:
    class RefusingEngine(ScriptedEngine):
        def start_stream(self, request: Request, on_event: Any, on_completion: Any) -> Any:
            if len(self.starts) + 1 == refused:
                raise InvalidRequestError("model", "no key")
            return super().start_stream(request, on_event, on_completion)

    arrivals = Arrivals(0.1, 0.1) if loop == "open" else None
    plan = a_plan(work=WorkPlan("m", "Hi", turns=turns), arrivals=arrivals, seconds=1000.0)
    with pytest.raises(InvalidRequestError, match=r"^model: no key$"):
        await run(RefusingEngine(OK), plan)
    assert trio.current_time() == (0.0 if refused == 1 else 10.0 if arrivals and turns == 1 else 1.0)


# What is counted.


async def test_the_whole_result_of_a_run(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([1.0, 2.0, 5.0])
    monkeypatch.setattr(validity, "process_seconds", lambda process: {4711: used}[process].__next__())
    engine = ScriptedEngine(OK, OK, failed(ErrorCategory.SERVER), OK, seconds=1.0)
    result = await a_load(engine, a_plan(seconds=4.5, ramp=0.2), simulator=4711).run()
    figures, client = result.figures, result.clients[0]
    assert (result.seconds, client.seconds, client.cpu) == (pytest.approx(4.5), result.seconds, pytest.approx(0.45))
    assert (figures.ok, figures.due, figures.started, failures(result)) == (3, 5, 5, {"server": 1})
    assert (figures.measured_events, figures.tokens, figures.first_failure) == (11, 15, "server it is")
    assert (result.calls_per_second, result.events_per_second) == (
        pytest.approx(3.4 / 4.5, rel=0.001),
        pytest.approx(11 / 4.5),
    )
    assert (result.tokens_per_second, result.goodput, result.load) == (pytest.approx(15 / 4.5), None, 1.0)
    assert percentiles(result, "itl") == percentiles(result, "e2el") == [pytest.approx(1.0, rel=0.001)] * 3
    assert percentiles(result, "ttft") == [pytest.approx(0.0, abs=1e-6)] * 3
    assert (result.unfinished, result.simulator_seconds, client.loop_lag) == (1, 3.0, 0.25)
    assert (result.connections_opened, result.connections_reused, result.interrupted) == (3, 4, False)


async def test_the_larger_share_of_merged_contents_is_counted(clock: MockClock) -> None:
    for merged, merged_first, share in ((2, 0, 2 / 9), (1, 2, 2 / 10)):
        wire = ClockWire()

        def look(look: Look, wire: Wire = wire, merged: int = merged, merged_first: int = merged_first) -> None:
            wire.merged, wire.merged_first = merged, merged_first

        engine = ScriptedEngine(OK, seconds=1.0)
        result = await Load(cast("Engine", engine), a_plan(seconds=9.5), wire, look).run()
        assert result.clients[0].merged == share


async def test_streams_that_stall_are_silent(clock: MockClock) -> None:
    result = await run(ScriptedEngine(OK, seconds=1000.0), a_plan(concurrency=3, seconds=5.0))
    assert (result.silent, result.unfinished, result.figures.failures_total) == (3, 3, 0)


async def test_calls_that_hang_are_not_in_the_rate(clock: MockClock) -> None:
    class HangingEngine(ScriptedEngine):
        """Every third call hangs."""

        def start_stream(self, request: Request, on_event: Any, on_completion: Any) -> Any:
            self.seconds = 1000.0 if len(self.starts) % 3 == 2 else 0.5
            return super().start_stream(request, on_event, on_completion)

    result = await run(HangingEngine(OK), a_plan(concurrency=4, seconds=10.0))
    assert (result.figures.ok, result.unfinished) == (8, 4)
    assert result.calls_per_second == pytest.approx(0.8, rel=0.01)


async def test_a_stream_that_stalls_in_the_window_has_a_long_gap(clock: MockClock) -> None:
    class StallingEngine(ScriptedEngine):
        """Its second call receives nothing after its start."""

        def start_stream(self, request: Request, on_event: Any, on_completion: Any) -> Any:
            self.seconds = 1000.0 if self.starts else 1.0
            return super().start_stream(request, on_event, on_completion)

    result = await run(StallingEngine(OK), a_plan(seconds=5.0))
    assert (result.figures.ok, result.silent) == (1, 0)
    assert percentiles(result, "itl") == [pytest.approx(1.0, abs=0.001), *[pytest.approx(4.0, abs=0.003)] * 2]


async def test_unstreamed_calls_are_never_silent(clock: MockClock) -> None:
    result = await run(ScriptedEngine(OK, seconds=1000.0), a_plan(concurrency=3, seconds=5.0, stream=False))
    assert (result.silent, result.unfinished) == (0, 3)


async def test_calls_that_end_in_the_ramp_are_not_in_the_rate(clock: MockClock) -> None:
    result = await run(ScriptedEngine(OK, seconds=1.0), a_plan(concurrency=2, seconds=1.95, ramp=2.405))
    assert (result.figures.ok, result.calls_per_second) == (5, pytest.approx(2.0, rel=0.001)), (
        "two calls of 1 s at a time"
    )


async def test_a_simulator_is_measured_from_the_ramp_if_that_is_all(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = iter([1.0, 5.0])
    monkeypatch.setattr(validity, "process_seconds", lambda _: next(used))
    result = await a_load(ScriptedEngine(OK), a_plan(requests=1), simulator=1).run()
    assert (result.simulator_seconds, result.clients[0].cpu) == (4.0, pytest.approx(0.1))


async def test_unstreamed_calls_are_events_when_they_end(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, OK, failed(ErrorCategory.SERVER), seconds=1.0)
    result = await run(engine, a_plan(stream=False, seconds=4.0))
    assert (result.figures.ok, result.figures.measured_events, result.figures.tokens) == (2, 2, 8)
    assert (percentiles(result, "itl"), result.simulator_seconds) == ([None] * 3, None)


@pytest.mark.parametrize(("before", "after"), [(None, 2.0), (1.0, None)])
async def test_a_simulator_that_cannot_be_read_has_no_figure(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch, before: float | None, after: float | None
) -> None:
    answers = iter([1.0, before, after])
    monkeypatch.setattr(validity, "process_seconds", lambda _: next(answers))
    result = await a_load(ScriptedEngine(OK), a_plan(seconds=2.5), simulator=1).run()
    assert result.simulator_seconds is None


async def test_the_run_is_shown_four_times_a_second(clock: MockClock) -> None:
    looks: list[tuple[float, int]] = []
    run = a_load(
        ScriptedEngine(OK, seconds=0.6), a_plan(seconds=1.1), lambda look: looks.append((look.elapsed, look.running))
    )
    await run.run()
    assert looks == [(pytest.approx(0.25 * number), 1) for number in (1, 2, 3, 4)]
    assert (run.running, run.interrupted) == ({}, False)


async def test_a_busy_loop_counts_two_windows_after_the_ramp(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1000.0)

    def look(look: Look) -> None:
        engine.lag = 0.25 if look.elapsed < 1.9 else 0.125

    result = await a_load(engine, a_plan(seconds=2.6), look).run()
    assert result.clients[0].loop_lag == 0.125


async def test_a_standstill_of_the_loop_counts_by_its_length(clock: MockClock) -> None:
    """While the loop stands still, the kernel merges the stamps of what arrives: reads alone do not show it."""
    moments = [2.0, 6.0]

    def stand_still(look: Look) -> None:
        if moments and look.elapsed >= moments[0]:
            moments.pop(0)
            clock.jump(0.2)

    result = await a_load(ScriptedEngine(OK, seconds=0.9), a_plan(), stand_still).run()
    delays = result.clients[0].loop_delays
    assert sum(delays.values()) == pytest.approx(1000, abs=2), "one for each 10 ms"
    assert sum(count for bucket, count in delays.items() if seconds_of(bucket) > 0.02) == pytest.approx(36, abs=2)
    assert (percentile(delays, 0.5) or 0.0) < 0.001
    assert percentile(delays, 0.995) == pytest.approx(0.18, abs=0.01)


async def test_ctrl_c_ends_a_run_and_keeps_its_figures(clock: MockClock) -> None:
    def look(look: Look) -> None:
        if look.elapsed > 2.4:
            signal.raise_signal(signal.SIGINT)

    engine = ScriptedEngine(OK, seconds=1.0)
    result = await a_load(engine, a_plan(seconds=1000.0), look).run()
    assert (result.interrupted, result.figures.ok, result.unfinished) == (True, 2, 1)
    assert trio.current_time() < 4.0


# The processor time of another process.


@pytest.mark.parametrize("frozen", [0, 5])
def test_the_collector_is_left_as_it_was(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, partial(calls.append, name))
    before = gc.get_threshold()
    with load.rare_collections():
        assert gc.get_threshold() > before
    assert gc.get_threshold() == before
    assert calls == ["collect", "freeze", *(["unfreeze"] if frozen == 0 else [])]


def test_processor_time_is_that_of_user_and_system(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/proc/7/stat": b"7 (a) b) R 1 2 3 4 5 6 7 8 9 10 250 50 99 99\n", "/proc/8/stat": b"8 (x) R 1\n"}
    monkeypatch.setattr(validity, "open", lambda path, mode: {"rb": io.BytesIO}[mode](files[path]), raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    assert process_seconds(7) == 3.0
    assert process_seconds(8) is None


def test_a_process_that_does_not_exist_has_no_processor_time() -> None:
    assert process_seconds(-1) is None


# Open loops.


def at_rate(first: float, last: float | None = None, **changes: Any) -> Plan:
    arrivals = Arrivals(first, first if last is None else last)
    return a_plan(**{"concurrency": None, "arrivals": arrivals, "seconds": 2.0} | changes)


async def test_calls_start_when_they_are_due_beside_running_ones(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1.4)
    result = await run(engine, at_rate(4.0))
    assert engine.starts == [pytest.approx(number / 4, abs=1e-5) for number in range(8)]
    assert (result.seconds, result.figures.ok, result.unfinished) == (pytest.approx(2.0), 8, 0)
    assert (result.calls_per_second, result.load) == (pytest.approx(4.0), pytest.approx(4.0)), "five ended later"


async def test_a_rate_may_rise(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=0.1)
    await run(engine, at_rate(1.0, 3.0))
    assert engine.starts == [pytest.approx(due, abs=1e-5) for due in (0.0, 0.732051, 1.236068, 1.645751)]


async def test_what_has_no_place_starts_late_and_is_counted(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=0.8)
    result = await run(engine, at_rate(4.0, concurrency=1, seconds=1.0))
    assert engine.starts == [pytest.approx(due, abs=1e-5) for due in (0.0, 0.8, 1.6)]
    assert (result.figures.due, result.figures.started, result.figures.ok, result.unfinished) == (4, 3, 2, 2)
    late, first = percentiles(result, "late"), percentiles(result, "ttft")
    assert late == [pytest.approx(0.55, rel=0.001), *[pytest.approx(1.1, rel=0.001)] * 2]
    assert first[1:] == [pytest.approx(1.25, rel=0.001)] * 2, "a call that never started has waited since it was due"
    assert max(result.clients[0].starts) == 0, "that was not this client's fault"


async def test_calls_that_a_slow_client_starts_late_are_counted(clock: MockClock) -> None:
    class SlowEngine(ScriptedEngine):
        def start_stream(self, *arguments: Any) -> Any:
            clock.jump(0.1)
            return super().start_stream(*arguments)

    engine = SlowEngine(OK, seconds=0.05)
    result = await run(engine, at_rate(1000.0, seconds=1.0))
    figures, starts = result.figures, result.clients[0].starts
    assert (figures.due, sum(figures.all_of("late").values()), sum(starts.values())) == (1000, 1000, 1000)
    assert 10 <= figures.started <= 12
    assert figures.ok == figures.started, "other tasks run between two late starts"
    assert percentile(starts, 0.5) == pytest.approx(0.55, abs=0.1)
    limited = await run(SlowEngine(OK, seconds=0.05), at_rate(1000.0, seconds=1.0, requests=20))
    assert limited.figures.due == 20


async def test_ctrl_c_does_not_wait_for_the_next_call(clock: MockClock) -> None:
    def look(look: Look) -> None:
        signal.raise_signal(signal.SIGINT)

    result = await a_load(ScriptedEngine(OK, seconds=0.1), at_rate(0.02, seconds=500.0), look).run()
    assert (result.interrupted, result.figures.due) == (True, 1)
    assert trio.current_time() < 1.0


async def test_calls_that_never_end_are_cut_after_the_drain(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=1000.0)
    result = await run(engine, at_rate(2.0, seconds=3.0))
    assert (result.unfinished, engine.cancelled, result.figures.ok, result.silent) == (6, 6, 0, 0)
    assert trio.current_time() == pytest.approx(6.0, abs=0.1)
    hanging = await run(ScriptedEngine(failed(ErrorCategory.SERVER), seconds=1000.0), at_rate(2.0, seconds=3.0))
    assert (hanging.unfinished, hanging.silent) == (6, 6), "none received anything"


async def test_an_open_loop_ends_with_its_last_request(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=0.3)
    result = await run(engine, at_rate(10.0, requests=3, seconds=60.0))
    assert (result.figures.due, result.figures.ok, result.seconds) == (3, 3, pytest.approx(0.5, abs=0.01))


async def test_a_trace_is_followed(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, seconds=0.1)
    calls = (Arrival(0.0), Arrival(0.5, 20, 7), Arrival(0.5, 3), Arrival(9.0))
    result = await run(engine, a_plan(concurrency=None, arrivals=Arrivals(trace=calls), seconds=5.0))
    assert engine.starts == [pytest.approx(due, abs=1e-5) for due in (0.0, 0.5, 0.5)]
    assert result.seconds == pytest.approx(0.6)
    assert [request.max_output_tokens for request in engine.requests] == [None, 7, None]
    texts = [
        message.text for request in engine.requests for message in request.messages if not isinstance(message, dict)
    ]
    assert [len(text.split()) for text in texts] == [1, 20, 3]


@pytest.mark.parametrize("seconds", [1.0, 0.0])
async def test_calls_of_a_trace_are_read_when_they_are_due(clock: MockClock, seconds: float) -> None:
    """A call that waits for a place holds back the reading of those after it, so that no trace is kept in memory."""
    read: list[float] = []

    class Calls(tuple[Arrival, ...]):
        def __iter__(self) -> Iterator[Arrival]:
            for arrival in super().__iter__():
                read.append(round(trio.current_time(), 6))
                yield arrival

    calls = Calls(Arrival(number * seconds) for number in range(5))
    engine = ScriptedEngine(OK, seconds=2.0)
    result = await run(engine, a_plan(arrivals=Arrivals(trace=calls), seconds=4.5))
    assert engine.starts == [pytest.approx(start, abs=1e-4) for start in (0.0, 2.0, 4.0, 6.0, 8.0)]
    assert read == [pytest.approx(start, abs=1e-4) for start in (0.0, 0.0, 2.0, 4.0, 6.0)]
    assert (result.figures.due, result.figures.ok, result.unfinished) == (5, 4, 1)
    result = await run(ScriptedEngine(OK, seconds=30.0), a_plan(arrivals=Arrivals(trace=calls), seconds=4.5))
    assert (result.figures.due, result.figures.started, result.unfinished) == (5, 1, 5)


async def test_a_trace_that_was_changed_ends_the_run_with_its_error(clock: MockClock, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("".join(f'{{"timestamp": {number * 1000}}}\n' for number in range(READ_AHEAD + 10)))
    trace, _ = read_trace(path, 1e9)
    with path.open("r+") as file:
        file.write('{"timestamp": "x"}')
    with pytest.raises(TraceError, match=r":1: "):
        await run(ScriptedEngine(OK), a_plan(arrivals=Arrivals(trace=trace), seconds=5000.0))
    path.write_text("".join(f'{{"timestamp": {number * 1000}}}\n' for number in range(READ_AHEAD + 10)) + "x")
    engine = ScriptedEngine(OK, seconds=0.1)
    with pytest.raises(TraceError, match=f":{READ_AHEAD + 11}: "):
        await run(engine, a_plan(arrivals=Arrivals(trace=trace), seconds=5000.0))
    assert len(engine.starts) == 10, "a line is read ahead of each call"


async def test_processes_share_the_calls_of_an_open_loop(clock: MockClock) -> None:
    starts: list[float] = []
    for number in (0, 1, 2):
        engine = ScriptedEngine(OK, seconds=0.1)
        began = trio.current_time()
        await run(engine, at_rate(4.0, share=(number, 3)))
        starts += [start - began for start in engine.starts]
    assert sorted(starts) == [pytest.approx(number / 4, abs=1e-4) for number in range(8)]


async def test_failures_do_not_slow_an_open_loop(clock: MockClock) -> None:
    engine = ScriptedEngine(OK, failed(ErrorCategory.SERVER), seconds=0.01)
    result = await run(engine, at_rate(50.0))
    assert (failures(result), result.figures.due) == ({"server": 99}, 100)
    dead = await run(ScriptedEngine(failed(ErrorCategory.SERVER), seconds=0.01), at_rate(50.0, seconds=60.0))
    assert failures(dead) == {"server": load.OPEN_PATIENCE}
    refused = await run(ScriptedEngine(failed(ErrorCategory.AUTH), seconds=0.01), at_rate(50.0, seconds=60.0))
    assert failures(refused) == {"auth": 1}


async def test_a_rate_at_which_no_call_is_due(clock: MockClock) -> None:
    result = await run(ScriptedEngine(OK), at_rate(0.0, 0.1))
    assert (result.figures.due, result.figures.started) == (1, 1)
    nothing = await run(
        ScriptedEngine(OK), a_plan(concurrency=None, arrivals=Arrivals(trace=(Arrival(50.0),)), seconds=1.0)
    )
    assert (nothing.figures.due, nothing.calls_per_second, nothing.load) == (0, 0.0, 0.0)


async def test_ctrl_c_ends_an_open_loop_and_its_drain(clock: MockClock) -> None:
    for after in (1.4, 3.0):

        def look(look: Look, after: float = after) -> None:
            if look.elapsed > after:
                signal.raise_signal(signal.SIGINT)

        began = trio.current_time()
        result = await a_load(ScriptedEngine(OK, seconds=1000.0), at_rate(4.0, seconds=2.0), look).run()
        assert (result.interrupted, result.unfinished) == (True, 7 if after == 1.4 else 8)
        assert trio.current_time() - began < after + 0.5


# Sessions.


async def test_each_turn_has_the_conversation_so_far(clock: MockClock) -> None:
    work = WorkPlan("m", "Hi", turns=3, think=2.0)
    engine = ScriptedEngine(OK, seconds=1.0)
    result = await run(engine, a_plan(work=work, seconds=8.5))
    assert engine.starts == [0.0, 3.0, 6.0, 7.0], "a session that is over frees its place at once"
    assert [len(request.messages) for request in engine.requests] == [1, 3, 5, 1]
    assert (result.figures.ok, result.unfinished) == (4, 0)


async def test_further_turns_wait_for_a_place_as_other_calls_do(clock: MockClock) -> None:
    work = WorkPlan("m", "Hi", turns=2, think=0.5)
    engine = ScriptedEngine(OK, seconds=1.1)
    result = await run(engine, at_rate(1.0, work=work, concurrency=1, seconds=3.9))
    assert engine.starts == [pytest.approx(start, abs=1e-4) for start in (0.0, 1.1, 2.2, 3.3, 4.4)]
    assert [len(request.messages) for request in engine.requests] == [1, 1, 3, 1, 1], "no turn begins in the drain"
    assert (result.figures.ok, result.unfinished) == (5, 0)


async def test_a_user_who_thinks_is_waited_for(clock: MockClock) -> None:
    work = WorkPlan("m", "Hi", turns=2, think=3.0)
    engine = ScriptedEngine(OK, seconds=0.5)
    result = await run(engine, at_rate(1.0, work=work, requests=4, seconds=2.0))
    assert engine.starts == [pytest.approx(start, abs=0.01) for start in (0.0, 1.0)]
    assert result.figures.ok == 2
    engine = ScriptedEngine(OK, seconds=0.5)
    result = await run(engine, a_plan(work=work, concurrency=2, requests=4, seconds=100.0))
    assert (len(engine.starts), result.figures.ok, result.seconds) == (4, 4, pytest.approx(4.0))


async def test_a_session_ends_with_a_call_that_fails(clock: MockClock) -> None:
    work = WorkPlan("m", "Hi", turns=3)
    engine = ScriptedEngine(OK, failed(ErrorCategory.SERVER), OK, seconds=1.0)
    await run(engine, a_plan(work=work, seconds=4.0))
    assert [len(request.messages) for request in engine.requests] == [1, 3, 1, 3]
