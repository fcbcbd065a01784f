"""Does an event cost more when more streams are open?

The number of events per second is the same for 100 to 10,000 streams. The figure shows a selector that visits all its
sockets, a sweep that visits all streams too often, or a queue that is searched.
"""

from __future__ import annotations

from functools import partial

from .answers import Answer, Series
from .clients import FLOOR, OURS, Client
from .runs import Run, by_turns, measure

EVENTS_PER_SECOND = 10_000
EVENTS_PER_STREAM = 12
"""Events per stream, at least: the beginning and the end of a stream must be a small part of the run."""
SECONDS = 5
STREAMS = (100, 300, 1000, 3000, 10_000)
LIMIT = 1.2
ROUNDS = 3


def cost(run: Run, client: Client, streams: int) -> float:
    """Return CPU per event in µs while all streams are live."""
    rate = EVENTS_PER_SECOND / streams
    events = max(EVENTS_PER_STREAM, round(rate * (2 if run.quick else SECONDS)))
    found = measure(run, client, streams=streams, events=events, rate=rate, spread=0)
    return found.result["steady_us_per_event"]


def answer(run: Run) -> Answer:
    """Measure ours and the floor, because the kernel's own share grows, too."""
    result = Answer("Cost per event as the number of open streams grows")
    steps = (STREAMS[0], STREAMS[-1]) if run.quick else STREAMS
    clients = (OURS,) if run.quick else (FLOOR, OURS)
    cases = {(client, streams): partial(cost, run, client, streams) for client in clients for streams in steps}
    found = by_turns(run, cases, ROUNDS)
    costs = {client: [found[client, streams] for streams in steps] for client in clients}
    for client in clients:
        points = [(float(streams), found) for streams, found in zip(steps, costs[client], strict=True)]
        result.series.append(Series("cost per event over open streams", client.label, points))
    for place, streams in enumerate(steps if FLOOR in costs else ()):
        result.add(f"floor, {streams:,} streams", costs[FLOOR][place], "µs/event")
    for place, streams in enumerate(steps):
        last = streams == steps[-1]
        growth = costs[OURS][place] / costs[OURS][0]
        result.add(
            f"manystream, {streams:,} streams",
            costs[OURS][place],
            "µs/event",
            ratio=growth,
            against=f"at {steps[0]} streams",
            target=f"≤ {LIMIT:g} × at {steps[0]}" if last else "",
            met=growth <= LIMIT if last else None,
        )
    return result
