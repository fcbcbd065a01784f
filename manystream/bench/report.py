"""A run as a JSON object, for scripts and for `manystream bench compare`. docs/guide/bench.md has the schema."""

from __future__ import annotations

from ..providers.json.json_values import JSON, JSONObject
from .figures import NAMES, Summary
from .histogram import Counts, encoded, percentile
from .load import Plan, Result
from .runs import Run
from .validity import FULL_CORE, Calibration, ClientFigures, combined

SCHEMA = "manystream.bench/1"
"""The name and the version of the schema. A version may gain members; none is removed, and none changes."""

PERCENTILES = ("p50", "p90", "p99")
FIGURE_MEMBERS = ("count", "mean", *PERCENTILES, "longest")


def run_object(run: Run) -> JSONObject:
    """Return a run as a JSON object. Times are in seconds; null means that a value is unknown."""
    result, figures = run.result, run.result.figures
    client = combined(result.clients)
    valid = run.verdict.valid
    return {
        "schema": SCHEMA,
        "validity": {
            "valid": valid,
            "reasons": list(run.verdict.reasons),
            "largest_valid_load": run.verdict.largest,
            "load": result.load,
            "load_unit": "calls at a time" if result.plan.arrivals is None else "calls per second",
            "calibration": _calibration(run.calibration),
        },
        "load": _plan(result.plan, len(result.clients)),
        "stream": result.plan.stream,
        "seconds": result.seconds,
        "calls": {
            "due": figures.due,
            "started": figures.started,
            "ok": figures.ok,
            "failed": figures.failures_total,
            "unfinished": result.unfinished,
        },
        "calls_per_second": result.calls_per_second,
        "slo": dict(result.plan.slo) or None,
        "goodput": result.goodput,
        "good_calls": figures.good if result.plan.slo else None,
        "failures": dict(figures.failures),
        "first_failure": figures.first_failure or None,
        **{name: _figure(result, name, valid) for name in NAMES},
        "events": figures.measured_events,
        "events_per_second": result.events_per_second,
        "output_tokens": figures.tokens,
        "output_tokens_per_second": result.tokens_per_second,
        "tokens_reported": figures.ok - figures.unreported,
        "client": _client(client, len(result.clients)),
        "simulator": {"cpu_share": simulator_share(result)},
        "connections": {"opened": result.connections_opened, "reused": result.connections_reused},
        "interrupted": result.interrupted,
        "silent": result.silent,
        "warnings": list(warnings_of(run)),
    }


def _plan(plan: Plan, workers: int) -> JSONObject:
    arrivals, work = plan.arrivals, plan.work
    return {
        "arrivals": "closed" if arrivals is None else "trace" if arrivals.trace is not None else arrivals.kind,
        "concurrency": plan.concurrency,
        "rate": [arrivals.first, arrivals.last] if arrivals is not None and arrivals.trace is None else None,
        "burstiness": arrivals.burstiness if arrivals is not None and arrivals.kind == "gamma" else None,
        "requests": plan.requests,
        "turns": work.turns,
        "think": work.think,
        "seed": work.seed,
        "workers": workers,
    }


def _figure(result: Result, name: str, valid: bool | None) -> JSONObject:
    histograms = result.figures.histograms(name)
    summary = result.figures.summary(name)
    return {
        **summary_object(summary),
        "valid": valid,
        "histograms": [encoded(histogram) for histogram in histograms] if summary.count else [],
    }


def summary_object(summary: Summary) -> JSONObject:
    """Return a figure without its histograms."""
    intervals: JSONObject = {
        name: None if interval is None else [interval.low, interval.high]
        for name, interval in zip(PERCENTILES, summary.intervals, strict=True)
    }
    return {**{name: getattr(summary, name) for name in FIGURE_MEMBERS}, "intervals": intervals}


def _client(client: ClientFigures, processes: int) -> JSONObject:
    return {
        "processes": processes,
        "cpu_share": client.share,
        "busy": client.cpu / max(processes * client.seconds - (client.waited or 0.0), client.cpu, 1e-9),
        "waited": client.waited,
        "loop_lag": client.loop_lag,
        "loop_delay": _delays(client.loop_delays),
        "read_delay": _delays(client.reads),
        "start_delay": _delays(client.starts),
        "retransmits": client.retransmits,
        "descriptors": client.descriptors,
        "descriptor_limit": client.descriptor_limit,
    }


def _delays(counts: Counts) -> JSONObject:
    return {name: percentile(counts, share) for name, share in (("p50", 0.5), ("p99", 0.99))}


def _calibration(calibration: Calibration | None) -> JSON:
    if calibration is None:
        return None
    return {
        "p50": calibration.p50,
        "p99": calibration.p99,
        "busy": calibration.client_busy,
        "simulator_share": calibration.simulator_share,
    }


def simulator_share(result: Result) -> float | None:
    """Return the share of a core that the built-in simulator used; None for another server."""
    return result.simulator_seconds / result.seconds if result.simulator_seconds is not None else None


def warnings_of(run: Run) -> list[str]:
    """Return what a reader of the figures must know, as sentences."""
    result, figures, found = run.result, run.result.figures, list[str]()
    if result.interrupted:
        found.append("interrupted: these are the figures so far")
    if result.silent and result.seconds >= 0.5:
        found.append(
            f"{result.silent:,} of the streams received nothing in the measured time: the server has stalled, or lets"
            " them wait"
        )
    share = simulator_share(result)
    if share is not None and share >= FULL_CORE:
        found.append(
            f"the simulator, one Python process, used {share:.0%} of a core: the figures show the simulator's limit"
        )
    if run.calibration is not None and (run.calibration.simulator_share or 0.0) >= FULL_CORE:
        found.append("the simulator had no core left in the calibration, which so had less load than the run")
    if figures.unreported and result.plan.stream:
        found.append(
            f"{figures.unreported:,} answers had no count of tokens: each of their events with content counts as one"
        )
    retransmits = combined(result.clients).retransmits
    if retransmits:
        found.append(f"the network lost segments of this client: {retransmits:,} were sent again")
    started_late = figures.due - figures.started
    if started_late > 0:
        found.append(
            f"{started_late:,} calls were due and never started: all places were taken, or this client was too slow"
        )
    return found
