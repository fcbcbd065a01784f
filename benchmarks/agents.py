"""What does a whole application cost: 500 agents with tools, in an asyncio program?

Each agent is a task. Its model calls a tool twice and then answers, and every answer is a stream that the agent reads
event by event. Measured: CPU of the client's process, with our asyncio door and with OpenAI's library. They take turns
for several rounds, and the median counts.
"""

from __future__ import annotations

import json
import statistics
from typing import TypedDict

from .answers import Answer, Series
from .clients import OPENAI, OURS
from .command import run_alone
from .runs import DISTURBED, Run, run_program

AGENTS = 500
EVENTS = 80
RATE = 20.0
ROUNDS = 3
LIMIT = 0.1
PLOT = f"an application of {AGENTS} agents"
PROGRAMS = {OURS: "ours_agents", OPENAI: "openai_agents"}


class Found(TypedDict):
    """A client's line of results."""

    cpu_seconds: float
    wall: float
    waited: float
    events: int


def measure(run: Run, module: str) -> Found:
    """Run one client once."""
    arguments = (run.source.origin(), str(AGENTS), str(EVENTS), str(RATE))
    found: Found = json.loads(run_program(run, f"benchmarks.peers.{module}", *arguments, seconds=300))
    return found


def answer(run: Run) -> Answer:
    """Run both clients by turns."""
    result = Answer(f"A whole application: {AGENTS} agents with tools, asyncio")
    costs: dict[str, list[Found]] = {client.label: [] for client in PROGRAMS}
    for _ in range(1 if run.quick else ROUNDS):
        for client, module in PROGRAMS.items():
            costs[client.label].append(measure(run, module))
    medians = {label: statistics.median(each["cpu_seconds"] for each in found) for label, found in costs.items()}
    for label, cost in medians.items():
        ours = label == OURS.label
        result.add(
            label,
            cost,
            "s of CPU",
            ratio=cost / medians[OPENAI.label],
            against=OPENAI.label,
            target=f"≤ {LIMIT:g} × {OPENAI.label}" if ours else "",
            met=cost <= LIMIT * medians[OPENAI.label] if ours else None,
        )
        events = costs[label][0]["events"]
        result.add(f"{label}, per event of content", cost / events * 1e6, "µs/event")
        result.series.append(Series(PLOT, label, [(AGENTS, cost)]))
    disturbed = sum(each["waited"] > DISTURBED * each["wall"] for found in costs.values() for each in found)
    if disturbed:
        result.notes.append(f"other work used one of the two cores in {disturbed} runs")
    return result


if __name__ == "__main__":
    run_alone(answer)
