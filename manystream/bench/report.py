"""The result of a load test as a JSON object, for scripts."""

from __future__ import annotations

from dataclasses import asdict

from ..providers.json.json_values import JSONObject
from .figures import Percentiles, Result


def result_object(result: Result) -> JSONObject:
    """Return the result of a run as a JSON object. Times are in seconds; null means that a value is unknown."""
    return {
        "concurrency": result.concurrency,
        "stream": result.stream,
        "seconds": result.seconds,
        "calls": {"ok": result.ok, "failed": result.failed, "unfinished": result.unfinished},
        "calls_per_second": result.calls_per_second,
        "failures": dict(result.failures),
        "first_failure": result.first_failure or None,
        "first_content": _percentiles_object(result.first_content),
        "call": _percentiles_object(result.call),
        "events": result.events,
        "events_per_second": result.events_per_second,
        "output_tokens": result.tokens,
        "output_tokens_per_second": result.tokens_per_second,
        "gap": {"p50": result.gap_p50, "p99": result.gap_p99, "longest": result.gap_longest},
        "client": {
            "cpu_per_event": result.client_per_event,
            "cpu_share": result.client_share,
            "loop_lag": result.loop_lag,
        },
        "simulator": {"cpu_share": result.simulator_share},
        "connections": {"opened": result.connections_opened, "reused": result.connections_reused},
        "interrupted": result.interrupted,
        "silent": result.silent,
        "warnings": list(result.warnings),
    }


def _percentiles_object(spans: Percentiles) -> JSONObject:
    return asdict(spans)
