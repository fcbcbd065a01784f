"""A run as a JSON object, for scripts and for all reports. docs/guide/bench.md has the schema."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

from ..providers.json.json_values import JSON, JSONObject, items, mapping
from .figures import NAMES, Slo
from .histogram import Counts, decoded, encoded, percentile
from .load import Plan, Result
from .runs import Run
from .search import Search
from .validity import BUSY_CORE, Calibration, ClientFigures, combined

SCHEMA = "manystream.bench/1"
"""The name and the version of the schema. A version may gain members; none is removed, and none changes."""

PERCENTILES = ("p50", "p90", "p99")
FIGURE_MEMBERS = ("count", "mean", *PERCENTILES, "longest")
STAMPS: dict[JSON, str] = {True: "VALID", False: "INVALID", None: "NOT JUDGED"}
"""Member `valid` of a result → its stamp."""


# --- reading ---


def number(page: JSONObject, path: str) -> float | None:
    """Return the number at a path of members, such as `ttft.p99`, or None."""
    found: JSON = page
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, (int, float)) else None


def numbers(page: JSONObject, name: str) -> list[float]:
    return [value for value in items(page, name) if isinstance(value, (int, float))]


def texts(page: JSONObject, name: str) -> list[str]:
    return [text for text in items(page, name) if isinstance(text, str)]


def is_valid(page: JSONObject) -> bool | None:
    """Return whether a result is marked as valid; None if it was not judged."""
    found = mapping(page, "validity").get("valid")
    return found if isinstance(found, bool) else None


def histograms(page: JSONObject, name: str) -> list[Counts]:
    """Return the histograms of a figure, one for each window. Raises `ValueError`."""
    return [decoded(text) for text in texts(mapping(page, name), "histograms")]


# --- writing ---


def run_object(run: Run) -> JSONObject:
    """Return a run as a JSON object. Times are in seconds; null means that a value is unknown."""
    result, figures, verdict = run.result, run.result.figures, run.verdict
    client = combined(result.clients)
    return {
        "schema": SCHEMA,
        "validity": {
            "valid": verdict.valid,
            "reasons": list(verdict.reasons),
            "largest_valid_load": verdict.largest,
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
        **{name: _figure(result, name, verdict.valid) for name in NAMES},
        "events": figures.measured_events,
        "events_per_second": result.events_per_second,
        "output_tokens": figures.tokens,
        "output_tokens_per_second": result.tokens_per_second,
        "tokens_reported": figures.ok - figures.unreported,
        "client": _client(client, len(result.clients)),
        "simulator": {"cpu_share": _simulator_share(result)},
        "connections": {"opened": result.connections_opened, "reused": result.connections_reused},
        "interrupted": result.interrupted,
        "silent": result.silent,
        "warnings": list(_warnings(run)),
    }


def provenance(version: str) -> JSONObject:
    """Return when and where a result is made. version: that of the library."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
    }


def search_object(search: Search, slo: Slo) -> JSONObject:
    """Return a search and each of its steps as a JSON object."""
    return {
        "slo": dict(slo),
        "attain": search.attain,
        "highest_rate": search.best,
        "certain": search.certain,
        "limited_by_client": search.limited_by_client,
        "interrupted": search.interrupted,
        "steps": [
            {
                **run_object(step.run),
                "offered_rate": step.rate,
                "attained": step.share,
                "attained_at_least": step.bounds[0],
                "keeps": step.keeps(search.attain),
            }
            for step in sorted(search.steps, key=lambda step: step.rate)
            if step.runs
        ],
    }


def _plan(plan: Plan, workers: int) -> JSONObject:
    arrivals, work = plan.arrivals, plan.work
    return {
        "arrivals": "closed" if arrivals is None else "trace" if arrivals.trace is not None else arrivals.kind,
        "concurrency": plan.concurrency,
        "rate": [arrivals.first, arrivals.last] if arrivals is not None and arrivals.trace is None else None,
        "burstiness": arrivals.burstiness if arrivals is not None and arrivals.kind == "gamma" else None,
        "requests": plan.requests,
        "trace": len(arrivals.trace) if arrivals is not None and arrivals.trace is not None else None,
        "prompts": len(work.prompts) or None,
        "input": str(work.input) if work.input else None,
        "output": str(work.output) if work.output else None,
        "prefix": work.prefix,
        "turns": work.turns,
        "think": work.think,
        "seed": work.seed,
        "workers": workers,
    }


def _figure(result: Result, name: str, valid: bool | None) -> JSONObject:
    summary = result.figures.summary(name)
    intervals: JSONObject = {
        word: interval and list(interval) for word, interval in zip(PERCENTILES, summary.intervals, strict=True)
    }
    return {
        **{member: getattr(summary, member) for member in FIGURE_MEMBERS},
        "intervals": intervals,
        "valid": valid,
        "histograms": [encoded(counts) for counts in result.figures.histograms(name)] if summary.count else [],
    }


def _client(client: ClientFigures, processes: int) -> JSONObject:
    names = ("waited", "loop_lag", "merged", "together", "retransmits", "descriptors", "descriptor_limit")
    delays = (("loop_delay", client.loop_delays), ("read_delay", client.reads), ("start_delay", client.starts))
    return {
        "processes": processes,
        "cpu_share": client.share,
        "busy": client.cpu / max(processes * client.seconds - (client.waited or 0.0), client.cpu, 1e-9),
        **{name: getattr(client, name) for name in names},
        **{name: {"p50": percentile(counts, 0.5), "p99": percentile(counts, 0.99)} for name, counts in delays},
    }


def _calibration(found: Calibration | None) -> JSON:
    if found is None:
        return None
    share = found.simulator_share
    return {"p50": found.p50, "p99": found.p99, "busy": found.client_busy, "simulator_share": share}


def _simulator_share(result: Result) -> float | None:
    """Return the share of a core that the built-in simulator used; None for another server."""
    return result.simulator_seconds / result.seconds if result.simulator_seconds is not None else None


def _warnings(run: Run) -> list[str]:
    """Return what a reader of the figures must know, as sentences."""
    result, figures = run.result, run.result.figures
    share = _simulator_share(result) or 0.0
    calibrated = (run.calibration and run.calibration.simulator_share) or 0.0
    retransmits = combined(result.clients).retransmits or 0
    never = figures.due - figures.started
    notes = (
        (result.interrupted, "interrupted: these are the figures so far"),
        (result.silent and result.seconds >= 0.5,
         f"{result.silent:,} of the streams received nothing in the measured time: the server has stalled, or lets"
         " them wait"),
        (result.plan.slo and result.unfinished and not figures.ok and not figures.failures,
         "no call ended in the measured time, so none kept the objective: use more --seconds"),
        (share >= BUSY_CORE,
         f"the simulator, one Python process, used {share:.0%} of a core: the figures show the simulator's limit"),
        (run.calibration and run.calibration.shared_core,
         "in the calibration the simulator had to run on the client's core"),
        (calibrated >= BUSY_CORE,
         "the simulator had no core left in the calibration, which so had less load than the run"),
        (figures.unreported and result.plan.stream,
         f"{figures.unreported:,} answers had no count of tokens: each of their events with content counts as one"),
        (figures.at_once * 100 > figures.ok and result.plan.stream,
         f"{figures.at_once:,} of {figures.ok:,} answers came in one event: the server does not stream them, and they"
         " have no time per output token"),
        (retransmits, f"the network lost segments of this client: {retransmits:,} were sent again"),
        (never > 0,
         f"{never:,} calls were due and never started: all places were taken, or this client was too slow"),
    )  # fmt: skip
    return [note for is_so, note in notes if is_so]
