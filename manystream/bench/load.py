"""A load test: it keeps a number of calls running until the time is over or all calls were made.

Callbacks drive it: when a call ends, the next one starts. After a failed call there is a delay, so that a dead server
does not receive requests without a pause.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import trio

from ..engine import Call, Completion, Engine
from ..providers.errors import InvalidRequestError
from ..providers.model.provider_error import ErrorCategory
from ..providers.model.request import Request
from ..transport.loop import LAG_WINDOW
from .figures import Figures, Result, StreamWatch, percentiles, warnings_of

LOOK_SECONDS = 0.25
"""The interval of progress updates, in seconds."""
RAMP_STEP = 0.01
"""The interval at which calls are started during the ramp, in seconds."""
LAG_MEMORY = 2 * LAG_WINDOW
"""The time, in seconds, after which the engine's loop lag no longer includes iterations of the ramp."""
FIRST_DELAY, LONGEST_DELAY = 0.05, 2.0
"""The first and the longest delay after a failed call, in seconds. Repeated failures double the delay."""
HOPELESS = frozenset({ErrorCategory.AUTH, ErrorCategory.INVALID_ARG, ErrorCategory.NOT_FOUND})
"""Categories of errors that every further call would have, too."""
PATIENCE = 5
"""The run ends after so many failures without a success, or after one for each concurrent call if these are more."""


@dataclass(slots=True, frozen=True)
class Plan:
    """The settings of a run.

    request: the request that every call sends.
    stream: whether the calls are streamed.
    concurrency: calls at a time.
    seconds: how long to measure after the ramp.
    requests: the number of calls; None for as many as the time allows.
    ramp: the time over which the first calls are started, in seconds.
    """

    request: Request
    stream: bool
    concurrency: int
    seconds: float
    requests: int | None
    ramp: float


class Load:
    """One run of a load test.

    engine: makes the calls.
    plan: the settings.
    on_look: called with this object a few times per second, to show progress.
    simulator: the process id of the simulator that answers, or None.

    figures: the figures so far.
    began: when the run was made, in seconds of `time.perf_counter`.
    running: number of the call → call, for the calls that run.
    interrupted: whether Ctrl-C ended the run.
    """

    def __init__(
        self, engine: Engine, plan: Plan, on_look: Callable[[Load], None], simulator: int | None = None
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._on_look = on_look
        self._simulator = simulator
        self.figures: Figures = Figures()
        self.began: float = time.perf_counter()
        self.running: dict[int, Call] = {}
        self.interrupted: bool = False
        self._watches: dict[int, StreamWatch] = {}
        self._started = 0
        self._failures_in_a_row = 0
        self._window = self.began
        self._client_before = time.process_time()
        self._simulator_before = self._simulator_seconds()
        self._over = trio.Event()
        self._nursery: trio.Nursery | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since this object was made."""
        return time.perf_counter() - self.began

    async def run(self) -> Result:
        """Make the calls and return the result. Ctrl-C ends the run early. Raises `InvalidRequestError`."""
        failure: InvalidRequestError | None = None
        async with trio.open_nursery() as self._nursery:
            nursery = self._nursery
            nursery.start_soon(self._end_on_signal)
            nursery.start_soon(self._look)
            try:
                await self._ramp()
            except InvalidRequestError as error:
                failure = error
                self._over.set()
            self._open_window()
            with trio.move_on_after(self._plan.seconds):
                await self._over.wait()
            result = self._result()
            self._over.set()
            for call in list(self.running.values()):
                call.cancel()
            while self.running:
                await trio.sleep(0)
            nursery.cancel_scope.cancel()
        if failure is not None:  # raised here, since the nursery would wrap it
            raise failure
        return result

    # --- calls ---

    async def _ramp(self) -> None:
        plan = self._plan
        places = plan.concurrency if plan.requests is None else min(plan.concurrency, plan.requests)
        opened = 0
        while opened < places and not self._over.is_set():
            share = 1.0 if plan.ramp <= 0 else min(1.0, (self.elapsed + RAMP_STEP) / plan.ramp)
            due = max(1, math.floor(places * share))
            for _ in range(opened, due):
                self._start()
            opened = due
            if opened < places:
                await trio.sleep(RAMP_STEP)

    def _start(self) -> None:
        plan = self._plan
        if self._over.is_set() or (plan.requests is not None and self._started >= plan.requests):
            if not self.running and not self._over.is_set():
                self._over.set()
            return
        self._started += 1
        number = self._started

        watch = StreamWatch(self.figures, time.perf_counter_ns)
        if plan.stream:
            self._watches[number] = watch

        def on_completion(completion: Completion) -> None:
            del self.running[number]
            self._watches.pop(number, None)
            self._ended(completion, watch.events if plan.stream else 1)

        if plan.stream:
            call = self._engine.start_stream(plan.request, watch.on_event, on_completion)
        else:
            call = self._engine.start_request(plan.request, on_completion)
        self.running[number] = call

    def _ended(self, completion: Completion, events: int) -> None:
        self.figures.on_completion(completion, events)
        if self._over.is_set():
            return
        if completion.error is None:
            self._failures_in_a_row = 0
            if not self._plan.stream:
                self.figures.events += 1
            self._start()
            return
        self._failures_in_a_row += 1
        without_success = not self.figures.ok and not self.figures.first_contents
        enough = completion.error.category in HOPELESS or self.figures.failed >= max(PATIENCE, self._plan.concurrency)
        if without_success and enough:
            self._over.set()
            return
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures_in_a_row // self._plan.concurrency, 10))
        assert self._nursery is not None, "calls end only while the run lasts"
        self._nursery.start_soon(self._start_after, delay)

    async def _start_after(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self._start()

    async def _end_on_signal(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                self.interrupted = True
                self._over.set()

    # --- figures ---

    def _open_window(self) -> None:
        """Begin the window in which events, gaps and processor time are measured. Call this after the ramp.

        If the ramp has started all calls of the run, the window begins with the ramp: after it there may be nothing
        left to measure.
        """
        if self._over.is_set() or self._started == self._plan.requests:
            return
        self.figures.open_window()
        self._window = time.perf_counter()
        self._client_before = time.process_time()
        self._simulator_before = self._simulator_seconds()

    async def _look(self) -> None:
        while True:
            await trio.sleep(LOOK_SECONDS)
            if time.perf_counter() - self._window > LAG_MEMORY:
                self.figures.loop_lag = max(self.figures.loop_lag, self._engine.statistics().loop_lag)
            self._on_look(self)

    def _simulator_seconds(self) -> float | None:
        return process_seconds(self._simulator) if self._simulator is not None else None

    def _result(self) -> Result:
        figures = self.figures
        seconds = max(time.perf_counter() - self._window, 1e-6)
        client = time.process_time() - self._client_before
        after = self._simulator_seconds()
        simulator = after - self._simulator_before if after is not None and self._simulator_before is not None else None
        statistics = self._engine.statistics()
        lag = figures.loop_lag or statistics.loop_lag
        silent = figures.end_window(self._watches.values(), round(self._window * 1e9), time.perf_counter_ns())
        return Result(
            concurrency=self._plan.concurrency,
            seconds=seconds,
            stream=self._plan.stream,
            ok=figures.ok,
            calls_per_second=(figures.ok - figures.ok_before_window) / seconds,
            unfinished=len(self.running),
            failures=dict(figures.failures),
            first_failure=figures.first_failure,
            first_content=percentiles(figures.first_contents),
            call=percentiles(figures.call_seconds),
            events=figures.events,
            tokens=figures.tokens,
            gap_p50=figures.gap(0.5),
            gap_p99=figures.gap(0.99),
            gap_longest=figures.longest_gap / 1e9 if figures.longest_gap else None,
            client_seconds=client,
            simulator_seconds=simulator,
            loop_lag=lag,
            connections_opened=statistics.opened,
            connections_reused=statistics.reused,
            interrupted=self.interrupted,
            silent=silent,
            warnings=warnings_of(
                seconds=seconds,
                client_share=client / seconds,
                simulator_share=simulator / seconds if simulator is not None else None,
                loop_lag=lag,
                silent=silent,
            ),
        )


def process_seconds(process: int) -> float | None:
    """Return the processor time of a process in seconds, or None if it cannot be read from /proc (see proc(5)).

    process: the process id.
    """
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
