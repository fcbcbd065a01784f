"""What does a whole application cost: 500 agents with tools, in an asyncio program?

Each agent is a task. Its model calls a tool twice and then answers, and every answer is a stream that the agent reads
event by event. Measured: CPU of the client's process, with our asyncio door and with OpenAI's library. They take turns
for several rounds, and the median counts.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TypedDict

from .answers import Answer, Series
from .clients import OPENAI, OURS
from .runs import DISTURBED, Run, by_turns, run_program

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
    runs: list[Found] = []

    def cpu(module: str) -> float:
        runs.append(measure(run, module))
        return runs[-1]["cpu_seconds"]

    medians = by_turns(run, {client: partial(cpu, module) for client, module in PROGRAMS.items()}, ROUNDS)
    for client, cost in medians.items():
        beside = (OPENAI.label, medians[OPENAI])
        result.add(client.label, cost, "s of CPU", beside=beside, within=LIMIT if client is OURS else None)
        result.add(f"{client.label}, per event of content", cost / runs[0]["events"] * 1e6, "µs/event")
        result.series.append(Series(PLOT, client.label, [(AGENTS, cost)]))
    disturbed = sum(each["waited"] > DISTURBED * each["wall"] for each in runs)
    if disturbed:
        result.notes.append(f"other work used one of the two cores in {disturbed} runs")
    return result
