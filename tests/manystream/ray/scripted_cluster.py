"""A cluster whose workers do what a test says. Time is virtual, and moves by a tick with each look."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import trio
from trio.testing import MockClock

from manystream.batch import Counters, Journal
from manystream.ray.cluster import Died, Replied, Unreachable
from manystream.ray.driver import ClusterBatch
from manystream.ray.exchange import Answer, Offer, Reply, Row
from manystream.ray.rate_leases import LeaseRequest
from manystream.ray.shared_budget import AmountReport
from manystream.ray.worker import WorkerReply
from tests.support.batches import line

TICK = 1 / 16
Events = list[Replied | Unreachable | Died]


def answer(id: str | int, dollars: float = 0.0) -> Answer:
    return Answer(id, json.dumps({"id": id, "text": "yes"}).encode(), failed=False, dollars=dollars)


def failure(id: str | int, category: str = "server", dollars: float = 0.0) -> Answer:
    record = {"id": id, "error": {"category": category}}
    return Answer(id, json.dumps(record).encode(), failed=True, dollars=dollars)


def unpaid(id: str | int) -> Answer:
    return Answer(id, b"", failed=True)


def reply(
    worker: int,
    seq: int,
    *answers: Answer,
    counters: Counters | None = None,
    failure: str = "",
    final: bool = False,
    request: LeaseRequest | None = None,
    amounts: AmountReport | None = None,
) -> Replied:
    counters = counters or Counters()
    return Replied(worker, WorkerReply(Reply(seq, answers, seq / 2), counters, failure, final, request, amounts))


class ScriptedCluster:
    """A cluster.

    on_look: called at each look; returns what has happened. By default, every call is answered at the next look, and
        so is each of its rows.
    log: what the driver has done: (time, what, worker, …).
    offers: the calls that were not answered yet, with their workers.
    """

    def __init__(
        self, clock: MockClock, on_look: Callable[[ScriptedCluster], Events] | None = None, tick: float = TICK
    ) -> None:
        self.clock = clock
        self.tick = tick
        self.on_look = on_look or ScriptedCluster.answer_all
        self.log: list[tuple[object, ...]] = []
        self.offers: list[tuple[int, Offer]] = []
        self.all_offers: list[tuple[int, Offer]] = []

    @property
    def now(self) -> float:
        return self.clock.current_time()

    @property
    def ticks(self) -> int:
        """The number of looks so far."""
        return round(self.now / self.tick)

    def start(self, worker: int, concurrency: int, *, instead_of: int | None) -> None:
        self.log.append((self.now, "start", worker, concurrency, instead_of))

    def call(self, worker: int, offer: Offer) -> None:
        self.log.append((self.now, "call", worker, offer.seq, *(row.id for row in offer.rows)))
        self.offers.append((worker, offer))
        self.all_offers.append((worker, offer))

    def collect(self, seconds: float) -> Events:
        assert seconds == 0.1
        self.clock.jump(self.tick)
        return self.on_look(self)

    def answer_all(self) -> Events:
        offers, self.offers = self.offers, []
        return [reply(worker, offer.seq, *(answer(row.id) for row in offer.rows)) for worker, offer in offers]

    def answer_ready(self) -> Events:
        """Reply to calls without rows only."""
        empty = [(worker, offer) for worker, offer in self.offers if not offer.rows]
        self.offers = [(worker, offer) for worker, offer in self.offers if offer.rows]
        return [reply(worker, offer.seq) for worker, offer in empty]

    def kill(self, worker: int) -> None:
        self.log.append((self.now, "kill", worker))

    def resources(self) -> str:
        return "one has no place"

    def rows_at(self, worker: int) -> list[Row]:
        """Return all rows that a worker was sent."""
        return [row for at, offer in self.all_offers if at == worker for row in offer.rows]


async def lines(count: int, *, every: float = 0.0, first: int = 1) -> AsyncGenerator[list[tuple[int, bytes]], None]:
    """Yield lines with the ids `q1`, `q2` … together, or one each so many seconds, shortly before a tick."""
    some = [(number, json.dumps(line(f"q{number}")).encode()) for number in range(first, first + count)]
    if not every:
        yield some
        return
    for number, one in enumerate(some, 1):
        yield [one]
        await trio.sleep_until(number * every - TICK / 4)


async def run(
    folder: Path,
    on_look: Callable[[ScriptedCluster], Events] | None = None,
    *,
    count: int = 0,
    input: AsyncGenerator[list[tuple[int, bytes]], None] | None = None,
    concurrency: tuple[int, ...] = (2,),
    journal: Journal | None = None,
    made: list[tuple[ClusterBatch, ScriptedCluster]] | None = None,
    tick: float = TICK,
    **options: object,
) -> tuple[ClusterBatch, ScriptedCluster]:
    """Run a batch. made: receives the batch and the cluster before the batch runs."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    cluster = ScriptedCluster(clock, on_look, tick)
    with journal or Journal(folder / "a.jsonl") as opened:
        batch = ClusterBatch(cluster, opened, concurrency=list(concurrency), **options)  # type: ignore[arg-type]
        if made is not None:
            made.append((batch, cluster))
        await batch.run(input or lines(count))
    return batch, cluster
