"""What does a token cost whose id and log probability are asked for?

Measured: CPU of the client's process per event, each with one token, at 400 streams of 50 events/s, in chat and in
vLLM's generate endpoint. Ours and a loop written by hand with aiohttp and orjson take turns for several rounds, because
the speed of the machine changes. The median counts.
"""

from __future__ import annotations

import statistics

from .answers import Answer
from .clients import AIOHTTP, OURS
from .command import run_alone
from .runs import Run, measure
from .source.load import TOKEN_FORMS

STREAMS = 400
LIMIT = 0.6


def answer(run: Run) -> Answer:
    """Measure both forms by turns."""
    result = Answer("CPU per token with its id and log probability, 400 unsaturated streams")
    costs: dict[tuple[str, str], list[float]] = {}
    for _ in range(1 if run.quick else 5):
        for form in TOKEN_FORMS:
            for client in (OURS, AIOHTTP):
                found = measure(run, client, streams=STREAMS, events=75 if run.quick else 250, form=form).result
                costs.setdefault((form, client.name), []).append(found["cpu_us_per_event"])
    for form in TOKEN_FORMS:
        cost, beside = (statistics.median(costs[form, client.name]) for client in (OURS, AIOHTTP))
        result.add(
            form,
            cost,
            "µs/event",
            ratio=cost / beside,
            against=AIOHTTP.label,
            target=f"≤ {LIMIT:g} ×",
            met=cost <= LIMIT * beside,
        )
    return result


if __name__ == "__main__":
    run_alone(answer)
