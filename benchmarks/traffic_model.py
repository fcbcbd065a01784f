"""Does traffic control use what servers allow? The servers are random, and time is simulated.

    python -m benchmarks.traffic_model [--seed N] [--servers N] [QUESTION…]

The clients use the engine's own quota, queue, routes and hedging. Only time and servers are simulated. Utilisation is
the
work served, relative to that of a client that knows the state of the server and whose calls arrive at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from itertools import product
from statistics import fmean, median

from manystream.engine.traffic.routing.options import Balance, Hedge

from .limit_forms import MODELLED_FORMS
from .modelled import inference_server, quota_run, quota_server, replicas
from .modelled.form_run import FormRun

CALLS_AT_ONCE = 2000
ROUND_TRIPS = (0.002, 0.02, 0.1)

FEW_CALLS = 3.0
"""Servers with fewer calls per second are omitted where processes share a key: there is too little to share."""


def percentile(values: list[float], part: float) -> float:
    """Return the value below which this part of the values is."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def jain(values: list[float]) -> float:
    """Return Jain's index of fairness: 1 if all have the same."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


@cache
def best(seed: int) -> float:
    """Measure a client with full knowledge."""
    return quota_run.best(quota_server.draw(seed)).served


def quotas(seed: int, count: int, processes: int = 1, declared: float = 0.0) -> str:
    """Measure servers with quotas.

    declared: the declared limits, relative to those of the server at the start; 0: none is declared.
    """
    used: list[float] = []
    as_declared: list[float] = []
    refused: list[float] = []
    fair: list[float] = []
    for number in range(seed, seed + count):
        plan = quota_server.draw(number)
        if processes > 1 and plan.calls_per_second < FEW_CALLS:
            continue
        outcomes = quota_run.run(plan, processes, declared)
        served = [outcome.served for outcome in outcomes]
        used.append(min(1.0, sum(served) / max(1e-9, best(number))))
        if declared and (plan.change is None or plan.change[1] <= declared):
            as_declared.append(used[-1])
        refused.append(sum(o.refused for o in outcomes) / max(1, sum(o.sent for o in outcomes)))
        fair.append(jain(served))
    text = f"utilisation {fmean(used):.3f}, 5th percentile {percentile(used, 0.05):.3f}, refused {fmean(refused):.3f}"
    if declared:
        # A client does not send more than its program declared, if the server raises its limit later.
        low = percentile(as_declared, 0.05)
        text += f"; where the declared limit was never too low {fmean(as_declared):.3f}, 5th percentile {low:.3f}"
    return text + (f", Jain {fmean(fair):.3f}" if processes > 1 else f", worst {max(refused):.2f}")


def forms(seed: int, count: int) -> str:
    """Measure 2,000 calls at once in each form of limits, of which nothing is declared. No run differs from another."""
    rows: list[str] = []
    for (name, form), streamed, round_trip in product(MODELLED_FORMS.items(), (True, False), ROUND_TRIPS):
        run = FormRun(form, CALLS_AT_ONCE, round_trip, streamed=streamed)
        refused = run.run().refused
        how = "streamed" if streamed else "unstreamed"
        rows.append(f"{name}, {how}, {round_trip * 1000:g} ms: used {run.used:.3f}, refused {refused:.3f}")
    return "\n  ".join(rows)


def concurrency(seed: int, count: int, *, streamed: bool = True, reports: bool = False) -> str:
    """Measure servers that limit the running calls."""
    plans = [inference_server.draw(number) for number in range(seed, seed + count)]
    outcomes = [inference_server.measure(plan, streamed=streamed, reports=reports) for plan in plans]
    rows: list[str] = []
    for kind in ("batch", "503", "slots", ""):
        some = [outcome for outcome in outcomes if kind in (outcome.plan.kind, "")]
        if not some:
            continue
        parts, times = [o.throughput for o in some], [o.first_token for o in some]
        rows.append(
            f"{kind or 'all'}: throughput {fmean(parts):.3f}, 5th percentile {percentile(parts, 0.05):.3f};"
            f" first token × {median(times):.2f}, 95th percentile × {percentile(times, 0.95):.2f}"
        )
    return "\n  ".join(rows)


def replica_sets(seed: int, count: int) -> str:
    """Measure sets of replicas, and three fixed ones."""
    three = replicas.ReplicaRun(replicas.THREE, Balance.FASTEST).run()
    rows = [f"three: within a second {three.goodput:.3f}, lost {three.calls - len(three.times)}"]
    for balance in (Balance.FASTEST, Balance.WEIGHTED, Balance.STICKY):
        runs = [replicas.ReplicaRun(replicas.draw(number), balance).run() for number in range(seed, seed + count)]
        good = [run.goodput for run in runs]
        kept = sum(run.kept for run in runs) / max(1, sum(run.followed for run in runs))
        row = f"{balance}: within a second {fmean(good):.3f}, 5th percentile {percentile(good, 0.05):.3f}"
        rows.append(row + (f", same replica {kept:.2f}" if balance is Balance.STICKY else ""))
    return "\n  ".join(rows)


def hedging(seed: int, count: int) -> str:
    """Measure hedging: 2 % of the calls are twenty times slower."""
    plain = replicas.ReplicaRun(replicas.TAIL, Balance.FASTEST).run()
    hedged = replicas.ReplicaRun(replicas.TAIL, Balance.FASTEST, Hedge()).run()
    more = hedged.attempts / hedged.calls - 1
    return f"p99 {plain.percentile(0.99):.2f} s, hedged {hedged.percentile(0.99):.2f} s, {more:.3f} more calls"


QUESTIONS: dict[str, Callable[[int, int], str]] = {
    "forms": forms,
    "quotas": quotas,
    "declared": lambda seed, count: quotas(seed, count, declared=1.0),
    "declared_double": lambda seed, count: quotas(seed, count, declared=2.0),
    "two_processes": lambda seed, count: quotas(seed, count, processes=2),
    "concurrency": concurrency,
    "unstreamed": lambda seed, count: concurrency(seed, count, streamed=False),
    "reported_queue": lambda seed, count: concurrency(seed, count, reports=True),
    "replicas": lambda seed, count: replica_sets(seed, max(1, count // 4)),
    "hedging": hedging,
}


def main() -> None:
    """Answer some questions, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1000, help="the first server (default: %(default)s)")
    parser.add_argument("--servers", type=int, default=200, help="how many servers (default: %(default)s)")
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}; default: all")
    options = parser.parse_args()
    for question in options.questions or QUESTIONS:
        if question not in QUESTIONS:
            parser.error(f"no such question: {question}")
        print(f"{question}\n  {QUESTIONS[question](options.seed, options.servers)}", flush=True)


if __name__ == "__main__":
    main()
