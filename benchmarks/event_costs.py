"""What does one delivered event cost?

Measured: CPU of the client's process per event, at streams of 50 events/s that every client keeps up with; the SDKs do
so at 40. The clients take turns for several rounds, because the speed of a machine changes, and the median counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Literal

from .answers import Answer
from .clients import AIOHTTP, CURL, FLOOR, OPENAI, OURS, Client
from .runs import Result, Run, measure
from .source.load import TOKEN_FORMS

ROUNDS = 5
FEW_ROUNDS = 3
STREAMS: dict[Client, int] = {FLOOR: 400, OURS: 400, CURL: 400, AIOHTTP: 400, OPENAI: 40}
LIMIT = 1.5

SOURCES = {"each event alone": 0, "bursts of a millisecond": 1000}
"""How the source sends → the microseconds for which it gathers events. It usually gathers for half a millisecond."""
ALONE = {50: 1.6, 400: 1.2, 1600: 1.2}
"""Streams → the largest ratio to the floor if each event is sent alone, and wakes both at few streams."""

FORM_LIMITS = {"plain": 1.5, "usage": 1.6, "logprobs": 2.0, "cut": 1.15, "pair": 1.4, "close": 1.4}
"""Wire form → the most that ours may cost: of the floor in the same form; for `cut`, of our own plain form."""
TOKEN_LIMIT = 0.6

Figure = Literal["cpu_us_per_event", "tick_us_per_event", "wake_up_us"]
PARTS: dict[str, tuple[Figure, str]] = {
    "in its tick": ("tick_us_per_event", "µs/event"),
    "to wait and wake up": ("wake_up_us", "µs/tick"),
}
"""Part of the cost of an event, while all streams are live → its figure and unit.

A tick serves the streams that are ready at once. Outside the ticks, the event loop and the system wait and wake up."""

AIO = Client("manystream-aio", "ours", "asyncio, callbacks", OURS.guess, "asyncio")
ITERATED = Client("manystream-iterated", "ours", "trio, iterated", OURS.guess, "iterated")
AIO_ITERATED = Client("manystream-aio-iterated", "ours", "asyncio, iterated", OURS.guess, "asyncio-iterated")
NATIVE = {AIO: (OURS, "trio, callbacks"), AIO_ITERATED: (ITERATED, "trio, iterated")}
"""On asyncio → the program on trio that does the same."""
BRIDGE_LIMIT = 1.15
BRIDGED = (10, 100, 400, 1000)

Case = tuple[Client, int, str, int]
"""Client, streams, wire form, and the source's moment."""


def results(run: Run, cases: list[Case], rounds: int) -> dict[Case, list[Result]]:
    """Return the results of each case. The cases take turns, because the speed of a machine changes."""
    found: dict[Case, list[Result]] = {case: [] for case in cases}
    for _ in range(1 if run.quick else rounds):
        for case, values in found.items():
            client, streams, form, moment = case
            events = 75 if run.quick else 200
            values.append(measure(run, client, streams=streams, events=events, form=form, moment=moment).result)
    return found


def middle(found: list[Result], figure: Figure = "cpu_us_per_event") -> float:
    """Return the median of one figure."""
    return statistics.median(result[figure] for result in found)


def costs(run: Run, cases: list[Case], rounds: int) -> dict[Case, float]:
    """Return the median CPU per event of each case."""
    return {case: middle(found) for case, found in results(run, cases, rounds).items()}


def of_clients(run: Run, streams: Mapping[Client, int], rounds: int, moment: int = -1) -> dict[Client, float]:
    """Return the median CPU per event of each client, in plain chat."""
    cases: list[Case] = [(client, count, "plain", moment) for client, count in streams.items()]
    return {case[0]: cost for case, cost in costs(run, cases, rounds).items()}


def cpu_per_event(run: Run) -> Answer:
    """Measure all clients, the floor first; then ours and the floor with two other sources."""
    result = Answer("CPU per delivered event at 400 unsaturated streams")
    found = of_clients(run, STREAMS, ROUNDS)
    for client, cost in found.items():
        limit = LIMIT if client is OURS else None
        what = f"{client.label}, {STREAMS[client]} streams"
        result.add(what, cost, "µs/event", beside=("floor", found[FLOOR]), within=limit)
    for how, moment in () if run.quick else SOURCES.items():
        for streams, most in ALONE.items():
            cases: list[Case] = [(client, streams, "plain", moment) for client in (FLOOR, OURS)]
            floor, ours = results(run, cases, FEW_ROUNDS).values()
            what, limit = f"manystream, {streams:,} streams, {how}", None if moment else most
            result.add(what, middle(ours), "µs/event", beside=("floor", middle(floor)), within=limit, shown=True)
            for part, (figure, unit) in PARTS.items():
                result.add(f"{what}: {part}", middle(ours, figure), unit, beside=("floor", middle(floor, figure)))
    return result


def wire_forms(run: Run) -> Answer:
    """Measure each wire form of a chat stream. The floor cannot read events that are cut across chunks."""
    result = Answer("CPU per delivered event in each wire form, chat, 400 unsaturated streams")
    cases: list[Case] = [(OURS, 400, form, -1) for form in FORM_LIMITS]
    cases += [(FLOOR, 400, form, -1) for form in FORM_LIMITS if form != "cut"]
    found = costs(run, sorted(cases, key=lambda case: case[2]), FEW_ROUNDS)
    for form, limit in FORM_LIMITS.items():
        beside = ("our plain form", found[OURS, 400, "plain", -1])
        if form != "cut":
            beside = ("floor", found[FLOOR, 400, form, -1])
        result.add(form, found[OURS, 400, form, -1], "µs/event", beside=beside, within=limit)
    return result


def tokens(run: Run) -> Answer:
    """Measure events of one token with its id and log probability, in chat and in vLLM's generate endpoint."""
    result = Answer("CPU per token with its id and log probability, 400 unsaturated streams")
    found = costs(run, [(client, 400, form, -1) for form in TOKEN_FORMS for client in (OURS, AIOHTTP)], FEW_ROUNDS)
    for form in TOKEN_FORMS:
        beside = (AIOHTTP.label, found[AIOHTTP, 400, form, -1])
        result.add(form, found[OURS, 400, form, -1], "µs/event", beside=beside, within=TOKEN_LIMIT)
    return result


def bridges(run: Run) -> Answer:
    """Measure callbacks and iteration on asyncio against the same on trio."""
    result = Answer("Cost of an event on asyncio, beside trio")
    for streams in BRIDGED[2:3] if run.quick else BRIDGED:
        found = of_clients(run, dict.fromkeys((OURS, AIO, ITERATED, AIO_ITERATED), streams), FEW_ROUNDS)
        for client, (native, label) in NATIVE.items():
            what, beside = f"{client.label}, {streams:,} streams", (label, found[native])
            result.add(what, found[client], "µs/event", beside=beside, within=BRIDGE_LIMIT)
    return result
