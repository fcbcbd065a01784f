"""Runs one client once, on its own core, and reads its line of results. A run is bounded and stopped by its handle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, TypeVar

from .clients import Client
from .cores import CLIENT_AND_SOURCE, pinned
from .environment import ROOT, clients_variables
from .peers.common import raise_priority
from .source.process import LATE_LIMIT_MS, Source, Statistics

Result = TypedDict(
    "Result",
    {
        "streams": int,
        "streams_completed": int,
        "events": int,
        "p50_ms": float,
        "p99_ms": float,
        "p99.9_ms": float,
        "max_ms": float,
        "later_p99_ms": float,
        "cpu_seconds": float,
        "setup_cpu_seconds": float,
        "wall": float,
        "waited": float,
        "cpu_us_per_event": float,
        "steady_us_per_event": float,
        "steady_p99_ms": float,
        "tick_us_per_event": float,
        "wake_up_us": float,
        "rss_before": int,
        "rss_live": int,
        "peak_rss": int,
        "collect_before_ms": float,
        "collect_live_ms": float,
        "failures": list[str],
    },
)
"""A client's line of results; see `Recorder.report` in peers/common.py."""


DISTURBED = 0.03
"""The largest part of a run in which client or source may be ready without its core. Above it, the run is repeated."""
ATTEMPTS = 4
LONGEST_SECONDS = 300.0


class RunError(RuntimeError):
    """A run of a client gave no result: it failed, or took too long."""


@dataclass(frozen=True, slots=True)
class Run:
    """The input of every question: the running source, the clients' interpreter, and whether to be quick."""

    source: Source
    python: str
    quick: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of one client, and the source's statistics of that run."""

    result: Result
    source: Statistics

    @property
    def source_was_late(self) -> bool:
        """Whether the source was late against its own schedule. Then the run does not show the client's limit."""
        return self.source["late_p99_ms"] > LATE_LIMIT_MS

    @property
    def disturbed(self) -> bool:
        """Whether other work used one of the two cores for too long."""
        return max(self.result["waited"], self.source["waited"]) > DISTURBED * self.result["wall"]

    @property
    def complete(self) -> bool:
        """Whether every stream ended with every event."""
        return self.result["streams_completed"] == self.result["streams"] and not self.source["aborted"]


def run_program(run: Run, module: str, *arguments: str, seconds: float) -> str:
    """Return the standard output of `python -m MODULE`, on the client's core. Raises `RunError`."""
    with pinned(CLIENT_AND_SOURCE[0]):
        process = subprocess.Popen(
            [run.python, "-m", module, *arguments],
            env=clients_variables(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that its priority can be raised; see raise_priority in peers/common.py
        )
    try:
        output, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RunError(f"{module} was stopped after {seconds:.0f} seconds") from None
    if process.returncode or not output:
        print(complaint, file=sys.stderr)
        raise RunError(f"{module} failed: {(complaint.splitlines() or ['without a word'])[-1]}")
    return output


def run_command(command: Sequence[str], folder: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the standard output of a client that is no peer, which runs on the client's core. Empty: it failed.

    environment: its variables; None: those of the clients.
    """
    with pinned(CLIENT_AND_SOURCE[0]):
        process = subprocess.Popen(
            command,
            env=environment or clients_variables(),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
    raise_priority(process.pid)
    try:
        output, _ = process.communicate(timeout=LONGEST_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
    return output


def measure(
    run: Run,
    client: Client,
    *,
    streams: int,
    events: int = 250,
    rate: float = 50.0,
    dialect: str = "chat",
    tls: bool = False,
    spread: int = 1000,
    mode: str = "stream",
    size: int = 0,
    delay: int = 0,
    form: str = "plain",
    behind: float = 0.0,
    collect: bool = False,
    moment: int = -1,
) -> Measured:
    """Run one client once. Repeats the run if other work on the machine disturbs it. Raises `RunError`.

    behind: how many seconds the client may need in addition, because it reads more slowly than the source sends.
    collect: whether the client times full collections of the garbage collector.
    moment: microseconds for which the source gathers events; see `Task` in peers/common.py.
    """
    arguments = {
        "url": run.source.origin(tls=tls),
        "streams": streams,
        "events": events,
        "rate": rate,
        "dialect": dialect,
        "spread": spread,
        "mode": mode,
        "size": size,
        "delay": delay,
        "form": form,
        "collect": int(collect),
        "over": client.over,
        "moment": moment,
    }
    if tls:
        arguments["ca"] = str(run.source.certificate)
    expected = events / rate + spread / 1000 if mode == "stream" else 20 + delay / 1000 * events / streams
    found: list[Measured] = []
    while len(found) < (1 if run.quick else ATTEMPTS) and all(measured.disturbed for measured in found):
        run.source.reset()
        output = run_program(
            run,
            f"benchmarks.peers.{client.module}",
            *(f"--{name}={value}" for name, value in arguments.items()),
            seconds=expected * 2 + 10 + streams / 200 + behind,
        )
        found.append(Measured(json.loads(output), run.source.reset()))
    return min(found, key=lambda measured: measured.result["waited"] + measured.source["waited"])


Case = TypeVar("Case")


def by_turns(run: Run, cases: Mapping[Case, Callable[[], float]], rounds: int) -> dict[Case, float]:
    """Return the median of each case. The cases take turns, because the speed of a machine changes. Quick: once."""
    found: dict[Case, list[float]] = {case: [] for case in cases}
    for _ in range(1 if run.quick else rounds):
        for case, measured in cases.items():
            found[case].append(measured())
    return {case: statistics.median(values) for case, values in found.items()}
