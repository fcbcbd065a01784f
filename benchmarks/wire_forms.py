"""What does one delivered event cost in each wire form of a chat stream?

Measured: CPU of the client's process per event, at 400 streams of 50 events/s, and the memory of the live streams. Ours
and the floor take turns for several rounds, because the speed of the machine changes. The median counts. The floor
cannot read events that are cut across chunks; that form is compared with our own plain form.
"""

from __future__ import annotations

import statistics

from .answers import Answer
from .clients import FLOOR, OURS
from .command import run_alone
from .runs import Run, measure

STREAMS = 400
LIMITS = {"plain": 1.5, "usage": 1.6, "logprobs": 2.0, "cut": 1.15, "pair": 1.4, "close": 1.4}
"""Wire form → the most that ours may cost: of the floor in the same form; for `cut`, of our own plain form."""


def answer(run: Run) -> Answer:
    """Measure all forms by turns."""
    result = Answer("CPU per delivered event in each wire form, chat, 400 unsaturated streams")
    costs: dict[tuple[str, str], list[float]] = {}
    memory: dict[str, float] = {}
    for _ in range(1 if run.quick else 5):
        for form in LIMITS:
            for client in (OURS,) if form == "cut" else (FLOOR, OURS):
                found = measure(run, client, streams=STREAMS, events=75 if run.quick else 250, form=form).result
                costs.setdefault((form, client.name), []).append(found["cpu_us_per_event"])
                if client is OURS:
                    memory[form] = max(memory.get(form, 0.0), found["rss_live"] / 2**20)
    for form, limit in LIMITS.items():
        against = ("plain", OURS.name) if form == "cut" else (form, FLOOR.name)
        cost, beside = statistics.median(costs[form, OURS.name]), statistics.median(costs[against])
        name = "our plain form" if form == "cut" else "floor"
        result.add(
            form,
            cost,
            "µs/event",
            ratio=cost / beside,
            against=name,
            target=f"≤ {limit:g} ×",
            met=cost <= limit * beside,
        )
    for form, size in memory.items():
        result.add(f"{form}, memory of the process half-way", size, "MiB")
    return result


if __name__ == "__main__":
    run_alone(answer)
