"""Read damaged responses: for any damage, the outcome must be a response or a typed error.

Runs in memory, in worker processes; a seeded sample goes over real sockets (`socket_sample`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.sse import ServerSentEvent, SSEParser

from .corpus import Case
from .cuts import Cut
from .damage import cut, flipped, reordered
from .exchange import DefectLog, exchange, provider_for
from .replay import Reading, is_event_stream, read_body, read_events

BUDGET = 2_000_000
"""The approximate total size of the variants of one body for each kind of damage, in bytes; 0 for no bound."""

SAMPLE = 90
WORKERS = 2
FAULTS_KEPT = 20
"""The maximum number of faults that are reported for one body; more would be similar."""


@dataclass(slots=True)
class Ledger:
    """The counts of what was tried, and the faults."""

    variants: int = 0
    responses: int = 0
    errors: int = 0
    faults: list[str] = field(default_factory=list[str])

    def add(self, other: Ledger) -> None:
        """Add the counts and faults of another ledger."""
        self.variants += other.variants
        self.responses += other.responses
        self.errors += other.errors
        self.faults.extend(other.faults)


def damage_all(cases: Sequence[Case], *, budget: int = BUDGET, workers: int = WORKERS) -> Ledger:
    """Read every body with every kind of damage."""
    total = Ledger()
    largest_first = sorted(cases, key=lambda case: -len(case.body))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for ledger in pool.map(damage_one, largest_first, [budget] * len(cases), chunksize=4):
            total.add(ledger)
    return total


def damage_one(case: Case, budget: int) -> Ledger:
    """Read one body with every kind of damage."""
    ledger, provider = Ledger(), provider_for(case.dialect, case.server)
    dialect = DIALECTS[case.dialect]
    with DefectLog() as log:
        for what, body in (*cut(case.body, budget), *flipped(case.body, budget, case.name)):
            _record(ledger, case, what, partial(read_body, case, provider, body))
        for what, events in reordered(_events_of(case), budget, case.name):
            _record(ledger, case, what, partial(read_events, dialect, provider, events))
        ledger.faults.extend(f"{case.name}: logged {record}" for record in log.take())
    del ledger.faults[FAULTS_KEPT:]
    return ledger


def _events_of(case: Case) -> list[ServerSentEvent]:
    if not is_event_stream(case):
        return []
    parser = SSEParser()
    return [*parser.feed(case.body), *parser.end()]


def _record(ledger: Ledger, case: Case, what: str, read: Callable[[], Reading]) -> None:
    ledger.variants += 1
    try:
        reading = read()
    except Exception as error:
        ledger.faults.append(f"{case.dialect} {case.name}, {what}: {type(error).__name__}: {error}")
        return
    if isinstance(reading.error, ms.ProviderError):
        ledger.errors += 1
    elif reading.response is not None:
        ledger.responses += 1
    else:
        ledger.faults.append(f"{case.dialect} {case.name}, {what}: neither response nor error")


async def socket_sample(cases: Sequence[Case], seed: int) -> Ledger:
    """Read a sample of damaged bodies over real sockets; check for one completion each and no logged defect."""
    chance = random.Random(seed)
    damaged: list[tuple[Case, Cut]] = []
    for case in chance.sample(list(cases), min(SAMPLE, len(cases))):
        size = len(case.body)
        if size > 1:
            body = bytearray(case.body)
            body[chance.randrange(size)] ^= 1 << chance.randrange(8)
            damaged.append((replace(case, body=bytes(body)), Cut("whole")))
            damaged.append((replace(case, body=case.body[: chance.randrange(1, size)]), Cut("whole")))
    ledger = Ledger()
    for record in await exchange(damaged):
        ledger.variants += 1
        ledger.faults.extend(f"{record.case.name} over a socket: {defect}" for defect in record.defects)
        if record.completions != 1 or record.completion is None:
            ledger.faults.append(f"{record.case.name} over a socket: {record.completions} completions")
        elif record.completion.success:
            ledger.responses += 1
        else:
            ledger.errors += 1
    return ledger
