"""A whole run: the calibration before it, one or several processes, and the verdict on its figures."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import trio

from .. import Engine, Event, InvalidRequestError, ManystreamError, Provider, Request, Retry, TextDelta, open_engine
from ..engine.request.credentials import is_loopback
from ..http_server import allow_many_sockets
from ..simulator import open_simulator
from .arrivals import TraceError
from .figures import Figures
from .histogram import Counts, bucket_of, new_counts, percentile
from .load import Load, Look, Plan, Result
from .moments import CallRecord, Wire, stamping
from .validity import FULL_CORE, Calibration, Verdict, combined, judge
from .work import PROMPT

Pipe: TypeAlias = "Connection[Any, Any]"

SIMULATED_RATE = 50
"""Events per second of a stream in the calibration."""
CALIBRATIONS = 3
"""The most calibrations of one load, if the client is imprecise and had time left."""
SIMULATED_EVENTS = {True: 50, False: 250}
"""Whether the loop is open → events of an answer in the calibration."""


class WorkerError(ManystreamError, RuntimeError):
    """A process of the client ended without a result."""


@dataclass(slots=True, frozen=True)
class Server:
    """The server that is measured.

    model: the provider's name of the model.
    simulator: the process id of the built-in simulator, or None for another server.
    """

    provider: Provider
    model: str
    simulator: int | None = None

    @property
    def shown(self) -> str:
        """The server's URL without a password."""
        url = urlsplit(self.provider.base_url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


@dataclass(slots=True, frozen=True)
class Run:
    """A run and the verdict on it.

    verdict: whether they show the server.
    calibration: what the client added against the simulator; None if that was not measured.
    """

    result: Result
    verdict: Verdict
    calibration: Calibration | None = None


def run_plan(
    server: Server,
    plan: Plan,
    on_look: Callable[[Look], None],
    *,
    calibration: Calibration | None = None,
    workers: int = 1,
    monitor: bool = False,
) -> Run:
    """Measure, and judge the result. Raises `InvalidRequestError`, `TraceError` and `WorkerError`.

    monitor: whether `manystream top` can watch the engine of a single process.
    """
    if workers == 1:
        result = trio.run(measure, server, plan, on_look, CallRecord, monitor)
    else:
        result = _in_processes(server, plan, on_look, workers)
    figures = result.figures
    heard = figures.ok or sum(figures.all_of("ttft").values())
    return Run(result, judge(result.clients, calibration, load=result.load, ok=heard), calibration)


async def measure(
    server: Server,
    plan: Plan,
    on_look: Callable[[Look], None],
    make_record: Callable[[Figures, Wire, int, int | None], CallRecord] = CallRecord,
    monitor: bool = False,
) -> Result:
    """Measure in this process, with an engine of its own. Raises `InvalidRequestError`."""
    url = server.provider.base_url or ""
    proxy = "" if is_loopback(url) else None
    wire = Wire(urlsplit(url).scheme or "https")
    with stamping():
        async with open_engine([server.provider], proxy=proxy, dial=wire.connect, monitor=monitor) as engine:
            await _prepare(engine, Request(plan.work.model, PROMPT, retry=Retry(max_attempts=1)))
            return await Load(engine, plan, wire, on_look, server.simulator, make_record).run()


async def _prepare(engine: Engine, request: Request) -> None:
    """Let the engine import what calls and statistics need, which takes tens of milliseconds. Nothing is sent."""
    engine.statistics()
    call = engine.start_stream(request)
    call.cancel()
    await call.wait()


# --- calibration ---


def calibrate(make_provider: Callable[[str], Provider], dialect: str, plan: Plan, seconds: float) -> Calibration | None:
    """Measure what this client adds at the load of a plan, against the built-in simulator in another process.

    One process makes the load of one process of the plan, and of a trace the busiest part, for so many seconds. What
    other processes disturb is measured again, up to three times. Returns None if nothing arrived. Raises
    `KeyboardInterrupt`.
    """
    found: Calibration | None = None
    plan = replace(plan, arrivals=plan.arrivals and plan.arrivals.busiest(seconds, plan.seconds))
    for _ in range(CALIBRATIONS):
        found = _calibrated(make_provider, dialect, plan, seconds)
        if found is None or not found.is_imprecise or found.client_busy >= FULL_CORE:
            break
    return found


def _calibrated(
    make_provider: Callable[[str], Provider], dialect: str, plan: Plan, seconds: float
) -> Calibration | None:
    stamped = "stamp=1," if plan.stream else ""
    knobs = f"{stamped}rate={SIMULATED_RATE if plan.stream else 0},events={SIMULATED_EVENTS[plan.arrivals is not None]}"
    added = new_counts()
    with open_simulator(knobs, journal=0) as simulator:
        shared_core = not leave_core(simulator.pid)
        provider = make_provider(simulator.base_urls[dialect])
        server = Server(provider, "simulated", simulator.pid)
        work = replace(plan.work, model=f"{provider.name}/simulated", turns=1)
        ramp = min(plan.ramp, seconds)
        shorter = replace(plan, work=work, seconds=seconds, requests=None, ramp=ramp)
        result = trio.run(measure, server, shorter, _unseen, _stamped_records(added))
    if result.interrupted:
        raise KeyboardInterrupt
    client = combined(result.clients)
    p50, p99 = (percentile(added or client.reads, share) for share in (0.5, 0.99))
    if p50 is None or p99 is None:
        return None
    share = result.simulator_seconds / result.seconds if result.simulator_seconds is not None else None
    return Calibration(p50, p99, client.busy, share, shared_core)


def leave_core(process: int) -> bool:
    """Let another process run on other cores, if this one may run on one core only: the other has inherited that.

    process: the process id. Returns False if this system allows no other core.
    """
    if sys.platform != "linux":
        return True
    mine = os.sched_getaffinity(0)
    if len(mine) > 1:
        return True
    try:
        os.sched_setaffinity(process, set(range(os.cpu_count() or 1)) - mine)
    except OSError:
        return False
    return True


def _unseen(_: Look) -> None:
    """Show nothing."""


def _stamped_records(added: Counts) -> Callable[[Figures, Wire, int, int | None], CallRecord]:
    """Return a class of records that count the time from the simulator's send of an event to its noted arrival."""
    offset = time.perf_counter_ns() - time.monotonic_ns()

    class StampedRecord(CallRecord):
        __slots__ = ()

        def on_event(self, event: Event) -> None:
            super().on_event(event)
            if type(event) is TextDelta and event.text.strip().isdecimal():
                added[bucket_of(max(0, self.last - offset - int(event.text)) // 1000)] += 1

    return StampedRecord


# --- several processes ---


def _in_processes(server: Server, plan: Plan, on_look: Callable[[Look], None], workers: int) -> Result:
    """Measure in several processes that start together, and return the sum of their results."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Pipe] = []
    results: list[Result] = []
    looks: dict[Pipe, Look] = {}
    with ExitStack() as opened:
        for part in split(plan, workers):
            pipe, far = context.Pipe()
            process = context.Process(target=_work, args=(far, server, part), daemon=True)
            with _held_interrupts():
                process.start()
            far.close()
            opened.callback(_end, process)
            pipes.append(pipe)
        for pipe in pipes:
            _receive(pipe)  # ready
        opened.enter_context(_forwarded(multiprocessing.active_children()))
        for pipe in pipes:
            pipe.send(None)  # begin
        left = list(pipes)
        while left:
            for pipe in cast("list[Pipe]", wait(left)):
                message = _receive(pipe)
                if isinstance(message, Look):
                    looks[pipe] = message
                    if len(looks) == workers and pipe is pipes[0]:
                        on_look(_sum(list(looks.values())))
                    continue
                left.remove(pipe)
                if isinstance(message, (InvalidRequestError, TraceError)):
                    raise message
                assert isinstance(message, Result)
                results.append(message)
    return merged_result(plan, results)


def split(plan: Plan, workers: int) -> list[Plan]:
    """Return the part of each process: calls at a time and calls are divided, those of an open loop are dealt out."""

    def part(whole: int | None, number: int) -> int | None:
        return None if whole is None else whole // workers + (number < whole % workers)

    return [
        replace(
            plan,
            concurrency=part(plan.concurrency, number),
            requests=part(plan.requests, number),
            share=(number, workers),
            # The processes of an open loop must agree on when the calls are due.
            work=replace(plan.work, seed=plan.work.seed + (number if plan.arrivals is None else 0)),
        )
        for number in range(workers)
    ]


def merged_result(plan: Plan, results: Sequence[Result]) -> Result:
    """Return the sum of the results of several processes."""
    total = Result(plan, Figures(plan.slo), [], max(result.seconds for result in results))
    simulator: list[float] = []
    for result in results:
        total.figures.add(result.figures)
        total.clients += result.clients
        total.unfinished += result.unfinished
        total.silent += result.silent
        total.connections_opened += result.connections_opened
        total.connections_reused += result.connections_reused
        total.interrupted |= result.interrupted
        if result.simulator_seconds is not None:
            simulator.append(result.simulator_seconds)
    total.simulator_seconds = max(simulator, default=None)
    return total


def _work(pipe: Pipe, server: Server, plan: Plan) -> None:
    """Measure one part in this process, which was started for it."""
    try:
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        allow_many_sockets()
        pipe.send("ready")
        pipe.recv()
        pipe.send(trio.run(measure, server, plan, pipe.send))
    except (InvalidRequestError, TraceError) as error:
        pipe.send(error)
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # Ctrl-C before the run had begun, or the first process has ended


def _receive(pipe: Pipe) -> object:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        raise WorkerError("a process of the client ended without a result") from None


def _sum(looks: Sequence[Look]) -> Look:
    return Look(
        max(look.elapsed for look in looks),
        sum(look.running for look in looks),
        sum(look.ok for look in looks),
        sum(look.failed for look in looks),
        sum(look.events for look in looks),
    )


def _end(process: BaseProcess) -> None:
    process.join(0.5)
    if process.is_alive():
        process.terminate()
        process.join()


@contextmanager
def _held_interrupts() -> Generator[None, None, None]:
    """Hold Ctrl-C back, also in the processes that are started in the block, until they let it through."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _forwarded(processes: Sequence[BaseProcess]) -> Generator[None, None, None]:
    """Let Ctrl-C end the run in the other processes, which then send their results."""

    def forward(*_: object) -> None:
        for process in processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGINT)

    before = signal.signal(signal.SIGINT, forward)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
