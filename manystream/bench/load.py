"""A load test: it makes calls until the time is over or all calls were made.

In a closed loop a number of calls runs at a time, and each that ends starts the next one. After a failed call there is
a delay, so that a dead server does not receive requests without a pause. In an open loop calls start when they are due
(`arrivals.py`), whether or not others have ended.
"""

from __future__ import annotations

import gc
import math
import signal
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, takewhile
from typing import TypeAlias

import trio

from .. import Call, Completion, Engine, ErrorCategory, InvalidRequestError, Response
from ..transport.kernel_timer import KernelTimer, make_kernel_timer
from ..transport.loop import LAG_WINDOW
from .arrivals import Arrival, Arrivals, TraceError
from .figures import Figures, Slo
from .histogram import bucket_of, mean, new_counts, percentile
from .moments import CallRecord, Wire
from .validity import ClientFigures, Meter
from .work import Session, Work, WorkPlan

LOOK_SECONDS = 0.25
"""The interval of progress updates, in seconds."""
WINDOWS = 20
"""The number of windows of a run, from which confidence intervals are computed. None is shorter than `LOOK_SECONDS`."""
BEAT_NANOSECONDS = 10_000_000
"""The interval of the alarm by whose lateness a standstill of the loop is found, in nanoseconds."""
MOST_BEHIND_NANOSECONDS = 20_000_000
"""A client that is so late with its calls lets the other tasks run between two of them, in nanoseconds."""
MOST_MISSED = 1_000_000
"""The most calls that are counted which were due and were not started in time."""
RAMP_STEP = 0.01
"""The interval at which calls are started during the ramp, in seconds."""
STARTS_A_TURN = 8
"""The most calls of a closed loop that start in one turn of the loop. Streams that began together end together, and to
start a thousand calls at once would keep the others from being read for a quarter of a second."""
LAG_MEMORY = 2 * LAG_WINDOW
"""The time, in seconds, after which the engine's loop lag no longer includes iterations of the ramp."""
FIRST_DELAY, LONGEST_DELAY = 0.05, 2.0
"""The first and the longest delay after a failed call, in seconds. Repeated failures double the delay."""
HOPELESS = frozenset({ErrorCategory.AUTH, ErrorCategory.INVALID_ARG, ErrorCategory.NOT_FOUND})
"""Categories of errors that every further call would have, too."""
PATIENCE, OPEN_PATIENCE = 5, 100
"""The run ends after so many failures without a success. In a closed loop it allows one for each call at a time."""
LONGEST_DRAIN = 60.0
"""How long calls of an open loop may run after the measured time, in seconds, if that time was not longer."""


Alarm: TypeAlias = "Callable[[int], Awaitable[None]]"
"""An async function that waits until a time in nanoseconds of `time.perf_counter_ns`."""


@dataclass(slots=True, frozen=True)
class Plan:
    """The settings of a run.

    work: what the calls ask.
    concurrency: calls at a time; in an open loop the most calls at a time, None for no bound.
    seconds: how long to measure after the ramp.
    requests: the number of calls; None for as many as the time allows.
    ramp: the time over which the first calls of a closed loop are started, in seconds.
    arrivals: when the calls of an open loop are due; None for a closed loop.
    slo: the service level objective; empty for none.
    share: this process's number and the number of processes. It makes every n-th call of an open loop.
    """

    work: WorkPlan
    stream: bool
    concurrency: int | None
    seconds: float
    requests: int | None = None
    ramp: float = 0.0
    arrivals: Arrivals | None = None
    slo: Slo = field(default_factory=dict[str, float])
    share: tuple[int, int] = (0, 1)


@dataclass(slots=True)
class Result:
    """The result of one run. All times are in seconds.

    clients: what each process of the client used.
    seconds: the length of the measured time.
    unfinished: calls that the end of the run cut off, or that never started.
    silent: streams that received no content in the measured time.
    simulator_seconds: processor time of the simulator in the measured time; None if it is unknown.
    connections_reused: how often a connection was used again.
    """

    plan: Plan
    figures: Figures
    clients: list[ClientFigures]
    seconds: float
    unfinished: int = 0
    silent: int = 0
    simulator_seconds: float | None = None
    connections_opened: int = 0
    connections_reused: int = 0
    interrupted: bool = False

    @property
    def calls_per_second(self) -> float:
        """Successful calls per second.

        In a closed loop a call that the measured time cuts counts by its part, as the time that calls ran divided by
        the mean time of a call; one that ran longer than all that ended does not count. In an open loop the calls that
        were due count, at most as fast as they ended.
        """
        figures = self.figures
        if self.plan.arrivals is None:
            usual = mean(figures.all_of("e2el"))
            return figures.call_time / 1e9 / usual / self.seconds if usual else 0.0
        ends = (figures.last_end - figures.first_end) / 1e9
        rate = figures.ok / self.seconds
        return min(rate, (figures.ok - 1) / ends) if ends > 0 else rate

    @property
    def goodput(self) -> float | None:
        """Calls per second that kept the objective; None without one."""
        if not self.plan.slo:
            return None
        return self.calls_per_second * self.figures.good / self.figures.ok if self.figures.ok else 0.0

    @property
    def events_per_second(self) -> float:
        """Events per second of the measured time. An unstreamed answer is one event."""
        return self.figures.measured_events / self.seconds

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens per second of the measured time."""
        tokens = self.figures.tokens
        return tokens / self.seconds if tokens else None

    @property
    def load(self) -> float:
        """The load that was reached: calls at a time of a closed loop, calls started per second of an open one."""
        if self.plan.arrivals is None:
            return float(self.plan.concurrency or 1)
        return self.figures.started / self.seconds


@dataclass(slots=True, frozen=True)
class Look:
    """The progress of a run at one moment.

    elapsed: seconds since its start.
    events: events in the measured time.
    """

    elapsed: float
    running: int
    ok: int
    failed: int
    events: int


class Load:
    """One run of a load test.

    wire: notes the moments at which the engine's sockets send and receive.
    on_look: called a few times per second, to show progress.
    simulator: the process id of the simulator that answers, or None.

    began: when the run was made, in seconds of `time.perf_counter`.
    running: number of the call → call, for the calls that run.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        wire: Wire,
        on_look: Callable[[Look], None],
        simulator: int | None = None,
        make_record: Callable[[Figures, Wire, int, int | None], CallRecord] = CallRecord,
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._wire = wire
        self._on_look = on_look
        self._make_record = make_record
        self._work = Work(plan.work)
        self.figures: Figures = Figures(plan.slo)
        self.began: float = time.perf_counter()
        self.running: dict[int, Call] = {}
        self.interrupted: bool = False
        self._records: dict[int, CallRecord] = {}
        self._started = 0
        self._failures_in_a_row = 0
        self._places = trio.lowlevel.ParkingLot()  # of an open loop: calls that wait for the end of another one
        self._full_until = 0  # when the latest place became free that a call waited for, in nanoseconds
        self._blocked: Iterator[int] = iter(())  # when the calls were due, or are due, of which the first has no place
        self._free = 0  # places of a closed loop in which a session is to start
        self._freed = trio.Event()
        self._refused: InvalidRequestError | TraceError | None = None
        self._arriving = plan.arrivals is not None
        self._resting = 0  # sessions between two calls, and places after a failed call
        self._draining = False  # the measured time of an open loop is over, and calls that still run may end
        self._meter = Meter(simulator)
        self._over = trio.Event()
        self._nursery: trio.Nursery | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since this object was made."""
        return time.perf_counter() - self.began

    async def run(self) -> Result:
        """Make the calls and return the result. Ctrl-C ends the run early.

        Raises `InvalidRequestError`, and `TraceError` if a trace was changed since it was checked.
        """
        async with trio.open_nursery() as self._nursery:
            nursery = self._nursery
            nursery.start_soon(self._end_on_signal)
            nursery.start_soon(self._look)
            with rare_collections():
                nursery.start_soon(self._beat)
                result = await (self._measure_closed() if self._plan.arrivals is None else self._measure_open())
            self._end()
            for call in list(self.running.values()):
                call.cancel()
            while self.running:
                await trio.sleep(0)
            nursery.cancel_scope.cancel()
        if self._refused is not None:
            raise self._refused  # here, since the nursery would wrap it
        return result

    # --- a closed loop ---

    async def _measure_closed(self) -> Result:
        assert self._nursery is not None
        self._nursery.start_soon(self._fill_places)
        await self._ramp()
        self._open_windows()
        with trio.move_on_after(self._plan.seconds):
            await self._over.wait()
        return self._close_windows()

    async def _ramp(self) -> None:
        plan = self._plan
        places = plan.concurrency or 1
        if plan.requests is not None:
            places = min(places, plan.requests)
        opened = 0
        while opened < places and not self._over.is_set():
            share = 1.0 if plan.ramp <= 0 else min(1.0, (self.elapsed + RAMP_STEP) / plan.ramp)
            due = max(1, math.floor(places * share))
            begun, opened = opened, min(due, opened + STARTS_A_TURN)
            for _ in range(begun, opened):
                self._next_session()
            if opened < places:
                await trio.sleep(RAMP_STEP if opened == due else 0)

    def _free_place(self) -> None:
        """Let a session start soon in a place that has become free."""
        self._free += 1
        self._freed.set()

    async def _fill_places(self) -> None:
        """Start a session in each free place, a few in each turn of the loop."""
        while True:
            await self._freed.wait()
            for _ in range(min(self._free, STARTS_A_TURN)):
                self._free -= 1
                self._next_session()
            if not self._free:
                self._freed = trio.Event()

    def _next_session(self) -> None:
        if self._may_start():
            self.figures.due += 1
            self._start(self._work.session())

    def _may_start(self) -> bool:
        plan = self._plan
        if self._over.is_set() or self._draining or (plan.requests is not None and self._started >= plan.requests):
            if not (self.running or self._resting or self._arriving or self._over.is_set()):
                self._end()
            return False
        return True

    # --- an open loop ---

    async def _measure_open(self) -> Result:
        plan, calls = self._plan, self._arrivals()
        assert self._nursery is not None
        calls = chain(list(islice(calls, 1)), calls)  # a trace is read ahead before the time begins
        self._open_windows()
        self._nursery.start_soon(self._arrive, calls, time.perf_counter_ns())
        with trio.move_on_after(plan.seconds):
            await self._over.wait()
        result = self._close_windows()
        self._draining = True
        with trio.move_on_after(min(max(plan.seconds, 1.0), LONGEST_DRAIN)):
            if not self._is_idle:
                await self._over.wait()
        return self._with_ends(result)

    @property
    def _is_idle(self) -> bool:
        return not (self._arriving or self.running or (self._resting and not self._draining))

    def _arrivals(self) -> Iterator[Arrival]:
        """Yield the calls of this process. A trace that cannot be read any more ends the run."""
        plan, (number, processes) = self._plan, self._plan.share
        assert plan.arrivals is not None
        try:
            for arrival in islice(plan.arrivals.calls(plan.seconds, plan.work.seed), number, None, processes):
                if plan.requests is not None and self.figures.due >= plan.requests:
                    return
                yield arrival
        except TraceError as error:
            self._refused = error
            self._end()

    async def _arrive(self, calls: Iterator[Arrival], began: int) -> None:
        """Start the calls when they are due, or when there is a place. began: when the run began, in nanoseconds."""

        def when(arrival: Arrival) -> int:
            return began + int(arrival.due * 1e9)

        end = began + int(self._plan.seconds * 1e9)
        with open_alarm() as alarm:
            for arrival in calls:
                due, session = when(arrival), self._work.session(arrival)
                waited = due <= self._full_until  # only for a place
                if not waited:
                    await alarm(due)
                if self._over.is_set():
                    return
                if not waited and time.perf_counter_ns() >= end:
                    for missed in islice(chain((arrival,), calls), MOST_MISSED):
                        self._count_missed(when(missed))
                    break
                self.figures.due += 1
                if self._is_full:
                    self._blocked = map(when, chain((arrival,), calls))
                    await self._place()
                    self._blocked = iter(())
                self._start(session, due=due)
        self._arriving = False
        if self._is_idle:
            self._end()

    @property
    def _is_full(self) -> bool:
        """Whether all places of an open loop are taken."""
        plan = self._plan
        return plan.arrivals is not None and plan.concurrency is not None and len(self.running) >= plan.concurrency

    async def _place(self) -> None:
        """Wait until there is a place for a call."""
        while self._is_full:
            await self._places.park()

    def _count_missed(self, due: int) -> None:
        """Count a call that this client was too slow to start."""
        late = time.perf_counter_ns() - due
        self.figures.due += 1
        self.figures.count("late", late)
        self._meter.starts[bucket_of(late // 1000)] += 1

    # --- calls ---

    def _start(self, session: Session, *, due: int | None = None) -> None:
        """Start the next call of a session. due: when it was due, in an open loop."""
        self._started += 1
        self.figures.started += 1
        number = self._started
        begun = time.perf_counter_ns()
        if due is not None:
            self.figures.count("late", begun - due)
            delay = begun - max(due, self._full_until)  # this client's own
            self._meter.starts[bucket_of(max(0, delay) // 1000)] += 1
        record = self._make_record(self.figures, self._wire, begun, due)

        def on_completion(completion: Completion) -> None:
            del self.running[number]
            self._records.pop(number, None)
            record.on_completion(completion)
            self._ended(completion, session)

        self._records[number] = record
        try:
            if self._plan.stream:
                call = self._engine.start_stream(session.request, record.on_event, on_completion)
            else:
                call = self._engine.start_request(session.request, on_completion)
        except InvalidRequestError as error:
            self._refused = error
            self._end()
            return
        self.running[number] = call

    def _ended(self, completion: Completion, session: Session) -> None:
        if self._over.is_set():
            return
        if self._places:
            self._full_until = self._wire.arrived if completion.error is None else time.perf_counter_ns()
            self._places.unpark()
        if completion.error is not None:
            self._failed(completion.error.category)
        else:
            self._failures_in_a_row = 0
            if not self._plan.stream:
                self.figures.events += 1
            self._succeeded(completion.response, session)
        if self._plan.arrivals is not None and self._is_idle:
            self._end()

    def _succeeded(self, response: Response | None, session: Session) -> None:
        if session.advance(response):
            due = time.perf_counter_ns() + int(self._plan.work.think * 1e9)
            self._rest(self._plan.work.think, partial(self._next_turn, session, due))
        elif self._plan.arrivals is None:
            self._free_place()

    def _next_turn(self, session: Session, due: int) -> None:
        """Start the next call of a session, after the time that its user thinks. due: when it is due."""
        if self._may_start():
            self.figures.due += 1
            self._start(session, due=None if self._plan.arrivals is None else due)
        else:
            self._places.unpark()  # for a call that is not the next one of a session

    def _failed(self, category: ErrorCategory) -> None:
        plan = self._plan
        self._failures_in_a_row += 1
        figures = self.figures
        patience = max(PATIENCE, plan.concurrency or 1) if plan.arrivals is None else OPEN_PATIENCE
        enough = category in HOPELESS or figures.failures_total >= patience
        if not figures.ok and not figures.heard and enough:
            self._end()
            return
        if plan.arrivals is None:
            rounds = self._failures_in_a_row // (plan.concurrency or 1)
            self._rest(min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(rounds, 10)), self._free_place)

    def _rest(self, seconds: float, then: Callable[[], None]) -> None:
        """Call a function later."""
        assert self._nursery is not None, "calls end only while the run lasts"
        self._resting += 1
        self._nursery.start_soon(self._later, seconds, then)

    async def _later(self, seconds: float, then: Callable[[], None]) -> None:
        await trio.sleep(seconds)
        await self._place()
        self._resting -= 1
        then()

    def _end(self) -> None:
        """End the run: no call is started any more."""
        self._over.set()

    async def _end_on_signal(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                self.interrupted = True
                self._end()

    # --- figures ---

    def _open_windows(self) -> None:
        """Begin the measured time.

        If the ramp has started all calls of the run, or the run is over, it is measured from its start: after the ramp
        there may be nothing left to measure.
        """
        ramp_is_all = self._over.is_set() or self._started == self._plan.requests
        self.figures.open_windows(from_start=ramp_is_all)
        if ramp_is_all:
            return
        self.figures.opened_at = time.perf_counter_ns()
        self._meter.restart()
        self._wire.delays, self._wire.merged, self._wire.together = new_counts(), 0, 0

    def _close_windows(self) -> Result:
        """End the measured time, and return its result."""
        self.figures.close_windows()
        wire = self._wire
        itl, ttft = self.figures.all_of("itl"), self.figures.all_of("ttft")
        gaps, firsts = max(sum(itl.values()), 1), max(sum(ttft.values()), 1)
        client = self._meter.figures(wire.delays, wire.all_retransmits())
        client.merged = max(wire.merged / gaps, wire.merged_first / firsts)
        client.together, client.gap = wire.together / gaps, mean(itl) or 0.0
        statistics = self._engine.statistics()
        client.loop_lag = client.loop_lag or statistics.loop_lag
        return self._with_ends(
            Result(
                plan=self._plan,
                figures=self.figures,
                clients=[client],
                seconds=client.seconds,
                simulator_seconds=self._meter.simulator_seconds,
                connections_opened=statistics.opened,
                connections_reused=statistics.reused,
            ),
            last=self._plan.arrivals is None,
        )

    def _with_ends(self, result: Result, *, last: bool = True) -> Result:
        """Add what is known when no call is waited for any more. last: whether that is now."""
        if last:
            result.unfinished = self._count_cut()
            result.silent = self._silent_streams()
            result.interrupted = self.interrupted
        return result

    def _silent_streams(self) -> int:
        """Return the number of streams without content in the measured time, or in an open loop since their start."""
        if not self._plan.stream:
            return 0
        if self._plan.arrivals is not None:
            return sum(not record.last for record in self._records.values())
        opened = round(self._meter.began * 1e9)
        return sum((record.last or record.begun) <= opened for record in self._records.values())

    def _count_cut(self) -> int:
        """Count the waits that the end cuts. Returns the number of calls that it cut or that found no place."""
        now, opened, unfinished = time.perf_counter_ns(), self.figures.opened_at, len(self.running)
        longest = (percentile(self.figures.all_of("e2el"), 1.0) or 0.0) * 1e9
        for record in self._records.values():
            if now - record.begun <= longest:  # else the server may have stalled
                self.figures.call_time += now - max(record.begun, opened)

        def waits() -> Iterator[tuple[str, int]]:
            nonlocal unfinished
            for record in self._records.values():
                yield ("itl", now - record.last) if record.last else ("ttft", now - record.origin)
            for number, due in enumerate(takewhile(now.__gt__, islice(self._blocked, MOST_MISSED))):
                self.figures.due += number > 0  # the first one was counted when it was due
                unfinished += 1
                yield "ttft", now - due

        self.figures.count_cut(waits())
        return unfinished

    async def _look(self) -> None:
        length = max(LOOK_SECONDS, self._plan.seconds / WINDOWS)
        while True:
            await trio.sleep(LOOK_SECONDS)
            since = time.perf_counter() - self._meter.began
            if since > LAG_MEMORY:
                self._meter.loop_lag = max(self._meter.loop_lag, self._engine.statistics().loop_lag)
            self._meter.look()
            windows = self.figures.windows
            if windows and self.figures.window is windows[-1] and since >= length * len(windows):
                self.figures.next_window()
            figures = self.figures
            self._on_look(Look(self.elapsed, len(self.running), figures.ok, figures.failures_total, figures.events))

    async def _beat(self) -> None:
        """Note how late the loop is for a regular alarm. An alarm that is missed counts, too."""
        due = time.perf_counter_ns()
        with open_alarm() as alarm:
            while True:
                due += BEAT_NANOSECONDS
                await alarm(due)
                for missed in range(time.perf_counter_ns() - due, -1, -BEAT_NANOSECONDS):
                    self._meter.loop_delays[bucket_of(missed // 1000)] += 1
                    due += BEAT_NANOSECONDS
                due -= BEAT_NANOSECONDS


@contextmanager
def rare_collections() -> Generator[None, None, None]:
    """Let the garbage collector run rarely, and leave out all that exists: a full collection would delay streams."""
    before = gc.get_threshold()
    frozen = gc.get_freeze_count()  # a program that left out objects itself, such as the tests, keeps them out
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 1000, 100)  # an ended call leaves nothing in cycles, so that collections find next to nothing
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()


@contextmanager
def open_alarm() -> Generator[Alarm, None, None]:
    """Return an alarm. The event loop rounds its own timeouts up to a millisecond on Linux; an alarm does not."""
    timer = make_kernel_timer()
    try:
        yield partial(_wait_until, timer)
    finally:
        if timer is not None:
            timer.close()


async def _wait_until(timer: KernelTimer | None, due: int) -> None:
    if time.perf_counter_ns() - due > MOST_BEHIND_NANOSECONDS:
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.checkpoint_if_cancelled()
    while (left := due - time.perf_counter_ns()) > 0:
        if timer is None:
            await trio.sleep(left / 1e9)
        else:
            timer.start(min(left / 1e9, 0.9))
            await trio.lowlevel.wait_readable(timer.fileno())
