"""Results of load tests with known figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from manystream.bench.figures import Figures
from manystream.bench.histogram import bucket_of, mean, new_counts
from manystream.bench.load import Plan, Result
from manystream.bench.runs import Run
from manystream.bench.validity import Calibration, ClientFigures, Verdict, judge
from manystream.bench.work import WorkPlan

MICROSECONDS = 1e6
QUIET = Calibration(0.00003, 0.0002, 0.3)
"""A client that adds next to nothing."""


def figures(
    spans: Mapping[str, Sequence[float]],
    *,
    ok: int = 0,
    good: int = 0,
    failures: Mapping[str, int] | None = None,
    windows: int = 1,
    slo: Mapping[str, float] | None = None,
) -> Figures:
    """Return figures whose spans, in seconds, are spread over the windows in turn."""
    found = Figures(slo)
    found.open_windows(from_start=False)
    for _ in range(windows - 1):
        found.next_window()
    for name, values in spans.items():
        for number, value in enumerate(values):
            found.windows[number % windows].spans[name][bucket_of(round(value * MICROSECONDS))] += 1
    found.windows[0].ok, found.windows[0].good = ok, good
    found.failures.update(failures or {})
    found.call_time = round(ok * (mean(found.all_of("e2el")) or 0.0) * 1e9)
    found.due = found.started = ok + found.failures_total
    return found


def client(
    seconds: float = 10.0,
    cpu: float = 1.0,
    *,
    reads: float | None = 0.0001,
    starts: Sequence[float] = (0.0001,),
    loops: Sequence[float] = (0.0001,),
    **more: Any,
) -> ClientFigures:
    """Return the figures of a process. reads: how late it was. starts, loops: how late its calls and its loop were."""
    counts = {"reads": new_counts(), "starts": new_counts(), "loop_delays": new_counts()}
    for name, delays in (("reads", [] if reads is None else [reads] * 100), ("starts", starts), ("loop_delays", loops)):
        for delay in delays:
            counts[name][bucket_of(round(delay * MICROSECONDS))] += 1
    return ClientFigures(seconds, cpu, **counts, **more)


def result(found: Figures, *, seconds: float = 10.0, **more: Any) -> Result:
    """Return a result. more: attributes of the result, the plan or the only process."""
    plan_names, client_names = set(Plan.__slots__), {*ClientFigures.__slots__, "cpu"} - {"seconds"}
    plan: dict[str, Any] = {"work": WorkPlan("m"), "stream": True, "concurrency": 2000, "seconds": seconds}
    plan |= {name: value for name, value in more.items() if name in plan_names}
    used = {name: value for name, value in more.items() if name in client_names}
    rest = {name: value for name, value in more.items() if name not in plan_names | client_names}
    clients = rest.pop("clients", [client(seconds, **used)])
    return Result(Plan(**plan), found, clients, seconds, **rest)


def run(found: Result, calibration: Calibration | None = None) -> Run:
    """Return a result with its verdict."""
    heard = found.figures.ok or sum(found.figures.all_of("ttft").values())
    return Run(found, judge(found.clients, calibration or QUIET, load=found.load, ok=heard), calibration)


def whole_run() -> Run:
    """Return a run that has every figure."""
    spans = {
        "ttfb": [0.05] * 20,
        "ttft": [0.1] * 10 + [0.2] * 10,
        "tpot": [0.02] * 20,
        "itl": [0.02] * 98 + [0.05] * 2,
        "e2el": [1.5] * 20,
    }
    found = figures(spans, ok=12345, good=12000, failures={"server": 1000, "network": 3}, windows=10, slo={"ttft": 0.2})
    found.first_failure = "the server\x1b failed"
    found.events = 1_000_000
    found.ended_tokens, found.ended_events = 20, 10
    found.close_windows()
    done = result(
        found, slo={"ttft": 0.2}, unfinished=2000, connections_opened=2001, connections_reused=10344, loop_lag=0.0125
    )
    return run(done, Calibration(0.00003, 0.0002, 0.4, 0.3))


NOT_JUDGED = Verdict(None, ("no call succeeded",))
