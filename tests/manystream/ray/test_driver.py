"""The driver: one journal, and nothing lost or doubled when workers die, freeze and come back.

Its cluster is simulated: time is virtual, and a worker answers each row after some time.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.batch import BatchError, Counters, Journal, Shard, read_lines
from manystream.ray.cluster import ClusterError, Died, Replied, Unreachable
from manystream.ray.driver import ClusterBatch
from manystream.ray.exchange import ActorExchange, Answer, ExchangeError, Offer, Row
from manystream.ray.rate_leases import EngineRates, LeaseRequest
from manystream.ray.watch import READY_SECONDS
from manystream.ray.worker import WorkerReply
from tests.support.batches import line, records, write

ROW_SECONDS = 0.5


@dataclass(slots=True)
class SimulatedWorker:
    """A worker that answers each row half a second after it has started it.

    frozen_until: until then it does nothing; `math.inf` for a worker on a dead machine.
    broken: the failure that it reports.
    rates: its leases.
    sent_at: the time at which each row was asked.
    looked_at: the time until which it has asked rows.
    """

    exchange: ActorExchange
    concurrency: int
    frozen_until: float = 0.0
    broken: str = ""
    final: bool = False
    waiting: list[Row] = field(default_factory=list)
    running: list[tuple[float, Row]] = field(default_factory=list)
    inbox: list[Offer] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    rates: EngineRates | None = None
    sent_at: list[float] = field(default_factory=list)
    looked_at: float = 0.0

    def start_at(self, since: float, now: float) -> float:
        """Return the time from `since` on at which the next row may be asked, and use the lease then."""
        if self.rates is None:
            return now
        bucket = self.rates.declared["*"].lease.buckets[0].bucket
        at = bucket.ready_at(1, since)
        if at <= now:
            bucket.take(1, at)
        return at


class SimulatedCluster:
    """A cluster in virtual time. `happen` is called before each look at the workers."""

    def __init__(self, clock: MockClock, happen: Callable[[SimulatedCluster], None]) -> None:
        self.clock = clock
        self.happen = happen
        self.workers: dict[int, SimulatedWorker] = {}
        self.instead_of: list[int | None] = []
        self.killed: list[int] = []
        self.events: list[Replied | Unreachable | Died] = []
        self.places = 100
        self.limit: ms.RateLimit | None = None

    @property
    def now(self) -> float:
        return self.clock.current_time()

    def start(self, worker: int, concurrency: int, *, instead_of: int | None) -> None:
        rates = EngineRates({"*": self.limit}, self.now) if self.limit is not None else None
        simulated = SimulatedWorker(ActorExchange(self.now), concurrency, rates=rates)
        self.workers[worker] = simulated
        if rates is not None:
            rates.declared["*"].lease.is_wanted = lambda: bool(simulated.waiting)
        self.instead_of.append(instead_of)
        if len(self.workers) > self.places:
            self.workers[worker].frozen_until = float("inf")

    def call(self, worker: int, offer: Offer) -> None:
        self.workers[worker].inbox.append(offer)

    def collect(self, seconds: float) -> list[Replied | Unreachable | Died]:
        self.clock.jump(seconds)
        self.happen(self)
        for number, worker in self.workers.items():
            if self.now >= worker.frozen_until:
                self.work(number, worker)
        events, self.events = self.events, []
        return events

    def work(self, number: int, worker: SimulatedWorker) -> None:
        offers, worker.inbox = worker.inbox, []
        self.run_rows(worker)
        for offer in offers:
            try:
                worker.waiting += worker.exchange.receive(offer, self.now)
            except ExchangeError:
                continue
            request: LeaseRequest | None = None
            if worker.rates is not None:
                worker.rates.receive(offer.lease, worker.exchange.open_until, self.now, self.now)
                request = worker.rates.ask(self.now, self.now)
            reply = worker.exchange.reply(offer.seq, self.now)
            counters = Counters(running=len(worker.running), input_tokens=worker.counters.input_tokens)
            self.events.append(Replied(number, WorkerReply(reply, counters, worker.broken, worker.final, request)))
        self.run_rows(worker)

    def run_rows(self, worker: SimulatedWorker) -> None:
        for entry in [entry for entry in worker.running if entry[0] <= self.now]:
            worker.running.remove(entry)
            worker.counters.input_tokens += 7
            row = entry[1]
            failed = b"fail" in row.data
            error = {"category": "server", "message": "it fails"} if failed else None
            record = json.dumps({"id": row.id, "line": row.number, "error": error}, separators=(",", ":"))
            worker.exchange.add(Answer(row.id, record.encode(), failed))
        at, worker.looked_at = worker.looked_at, self.now
        while worker.waiting and len(worker.running) < worker.concurrency and worker.exchange.may_start(self.now):
            at = worker.start_at(at, self.now)
            if at > self.now:
                break
            row = worker.waiting.pop(0)
            worker.asked.append(str(row.id))
            worker.sent_at.append(at)
            worker.running.append((self.now + ROW_SECONDS, row))

    def kill(self, worker: int) -> None:
        self.killed.append(worker)

    def resources(self) -> str:
        return "2 CPUs are needed, and 1 is free"

    @property
    def asked(self) -> list[str]:
        return [id for worker in self.workers.values() for id in worker.asked]


def nothing(cluster: SimulatedCluster) -> None:
    pass


def at(seconds: float, action: Callable[[SimulatedCluster], None]) -> Callable[[SimulatedCluster], None]:
    """Return a function that calls the action once, after so many virtual seconds."""
    done: list[bool] = []

    def happen(cluster: SimulatedCluster) -> None:
        if cluster.now >= seconds and not done:
            done.append(True)
            action(cluster)

    return happen


@dataclass(slots=True)
class Place:
    """Files of a run, and how to run it."""

    prompts: Path
    answers: Path

    async def run(
        self,
        happen: Callable[[SimulatedCluster], None] = nothing,
        workers: int = 3,
        *,
        places: int = 100,
        limit: ms.RateLimit | None = None,
        **options: object,
    ) -> tuple[ClusterBatch, SimulatedCluster]:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        cluster = SimulatedCluster(clock, happen)
        cluster.places = places
        cluster.limit = limit
        with Journal(self.answers) as journal:
            batch = ClusterBatch(
                cluster, journal, concurrency=[10] * workers, source="p.jsonl", limit=limit, **options,
            )  # fmt: skip
            await batch.run(read_lines(self.prompts))
        return batch, cluster

    @property
    def answered(self) -> list[str]:
        return sorted(str(record["id"]) for record in records(self.answers))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(write(tmp_path / "p.jsonl", [line(f"q{number:04}") for number in range(500)]), tmp_path / "a.jsonl")


EVERY = [f"q{number:04}" for number in range(500)]


async def test_every_row_is_answered_once(place: Place, mock_clock: MockClock) -> None:
    batch, cluster = await place.run()
    assert place.answered == EVERY
    assert sorted(cluster.asked) == EVERY
    counters = batch.counters
    assert (counters.lines, counters.answered, counters.running, counters.input_tokens) == (500, 500, 0, 3500)
    assert (batch.ledger.asked_again, cluster.instead_of, sorted(cluster.killed)) == (0, [None] * 3, [0, 1, 2])


async def test_a_dead_machine_costs_what_was_in_flight_there(place: Place, mock_clock: MockClock) -> None:
    def die(cluster: SimulatedCluster) -> None:
        cluster.workers[1].frozen_until = float("inf")

    batch, cluster = await place.run(at(3.0, die))
    assert place.answered == EVERY
    assert len(cluster.asked) - 500 <= 10, "only the calls in flight at the dead machine are made twice"
    assert batch.ledger.asked_again <= 15
    assert cluster.instead_of == [None, None, None, 1], "a new worker starts, away from that machine"
    assert batch.counters.running == 0


async def test_a_worker_that_ray_reports_dead_is_replaced_at_once(place: Place, mock_clock: MockClock) -> None:
    def die(cluster: SimulatedCluster) -> None:
        cluster.workers[0].frozen_until = float("inf")
        cluster.events.append(Died(0, "its node has died"))

    _, cluster = await place.run(at(2.0, die))
    assert place.answered == EVERY
    assert len(cluster.workers) == 4


@pytest.mark.parametrize("seconds", [1.0, 4.0, 6.0, 8.0, 20.0])
async def test_a_frozen_machine_may_come_back(place: Place, seconds: float, mock_clock: MockClock) -> None:
    def freeze(cluster: SimulatedCluster) -> None:
        cluster.workers[2].frozen_until = cluster.now + seconds

    batch, cluster = await place.run(at(3.0, freeze))
    assert place.answered == EVERY
    assert len(cluster.asked) - 500 <= 10
    assert len(cluster.workers) == (3 if seconds < 4.5 else 4)
    assert batch.counters.answered == 500


async def test_an_unreachable_worker_is_asked_again(place: Place, mock_clock: MockClock) -> None:
    def lose(cluster: SimulatedCluster) -> None:
        cluster.workers[0].inbox.clear()
        cluster.events.append(Unreachable(0))

    batch, cluster = await place.run(at(2.0, lose))
    assert (place.answered, sorted(cluster.asked)) == (EVERY, EVERY)
    assert (len(cluster.workers), batch.ledger.asked_again) == (3, 0)


async def test_failures_and_unreadable_lines_are_in_a_file(tmp_path: Path, mock_clock: MockClock) -> None:
    lines = [line("a"), "no JSON", "", line("a"), line("b", "fail"), line("c")]
    place = Place(write(tmp_path / "p.jsonl", lines), tmp_path / "a.jsonl")
    batch, _ = await place.run()
    assert place.answered == ["a", "c"]
    failures = {record["line"]: record["error"] for record in records(tmp_path / "a.errors.jsonl")}
    assert sorted(failures) == [2, 4, 5]
    counters = batch.counters
    assert (counters.invalid, counters.failed, counters.failures) == (2, 1, {"server": 1})


async def test_a_run_that_is_repeated_asks_only_what_is_missing(place: Place, mock_clock: MockClock) -> None:
    stopping: list[ClusterBatch] = []
    with Journal(place.answers) as journal:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        cluster = SimulatedCluster(clock, at(4.0, lambda cluster: stopping[0].stop()))
        stopping.append(ClusterBatch(cluster, journal, concurrency=[10, 10]))
        await stopping[0].run(read_lines(place.prompts))
    first = place.answered
    assert 0 < len(first) < 500
    batch, again = await place.run(shard=Shard(0, 1))
    assert place.answered == EVERY
    assert not set(again.asked) & set(first)
    assert batch.counters.answered_before == len(first)


async def test_without_any_place_it_says_what_is_free(place: Place, mock_clock: MockClock) -> None:
    with pytest.raises(ClusterError, match="no worker has started: 2 CPUs are needed, and 1 is free"):
        await place.run(places=0)
    assert trio.current_time() < READY_SECONDS + 2


async def test_workers_that_find_no_place_do_not_stop_the_others(tmp_path: Path, mock_clock: MockClock) -> None:
    many = [f"q{number:04}" for number in range(4000)]
    place = Place(write(tmp_path / "p.jsonl", [line(id) for id in many]), tmp_path / "a.jsonl")
    batch, cluster = await place.run(workers=3, places=2)
    assert place.answered == many
    assert trio.current_time() > 4 * READY_SECONDS
    assert len(cluster.workers) <= 5, "each attempt has twice the time of the one before"
    assert batch.ledger.asked_again == 0


async def test_a_reason_that_holds_for_every_worker_ends_the_batch(place: Place, mock_clock: MockClock) -> None:
    def refuse(cluster: SimulatedCluster) -> None:
        for worker in cluster.workers.values():
            worker.broken, worker.final = "the key was refused: HTTP 401", True

    with pytest.raises(BatchError, match="the key was refused: HTTP 401"):
        await place.run(at(1.0, refuse))


async def test_workers_that_die_one_after_another_end_the_batch(place: Place, mock_clock: MockClock) -> None:
    def die(cluster: SimulatedCluster) -> None:
        for number, worker in cluster.workers.items():
            if worker.waiting and worker.frozen_until == 0.0:
                worker.frozen_until = float("inf")
                cluster.events.append(Died(number, "out of memory"))

    with pytest.raises(BatchError, match=r"workers were lost in a row, without an answer between them: out of memory"):
        await place.run(die)


async def test_workers_that_cannot_start_end_the_batch(place: Place, mock_clock: MockClock) -> None:
    def die(cluster: SimulatedCluster) -> None:
        for number, worker in cluster.workers.items():
            if worker.frozen_until == 0.0:
                worker.frozen_until = float("inf")
                cluster.events.append(Died(number, "No module named 'manystream'"))

    with pytest.raises(BatchError, match="No module named 'manystream'"):
        await place.run(die)
    assert trio.current_time() < 10


async def test_a_full_disk_ends_the_batch(place: Place, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "record_encoded", full)
    with pytest.raises(BatchError, match=r"cannot write .*a\.jsonl or a file beside it: No space left on device"):
        await place.run()


async def test_an_input_that_comes_slowly_does_not_stop_the_workers(tmp_path: Path, mock_clock: MockClock) -> None:
    place = Place(tmp_path / "none", tmp_path / "a.jsonl")

    async def lines() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        for number in range(1, 4):
            yield [(number, json.dumps(line(str(number))).encode())]
            await trio.sleep(30)

    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    cluster = SimulatedCluster(clock, nothing)
    with Journal(place.answers) as journal:
        await ClusterBatch(cluster, journal, concurrency=[10, 10]).run(lines())
    assert place.answered == ["1", "2", "3"]
    assert len(cluster.workers) == 2


async def slow_lines(last: int, seconds: float) -> AsyncGenerator[list[tuple[int, bytes]], None]:
    for number in range(1, last + 1):
        yield [(number, json.dumps(line(str(number))).encode())]
        await trio.sleep(seconds)


async def test_a_late_reply_of_an_idle_worker_counts(tmp_path: Path, mock_clock: MockClock) -> None:
    """Its next exchange begins a second later, which is more than 5 seconds after the one that it was late for."""

    def freeze(cluster: SimulatedCluster) -> None:
        worker = cluster.workers[0]
        if worker.inbox and worker.frozen_until + 0.5 < cluster.now and cluster.now > 3:
            worker.frozen_until = cluster.now + 4.6

    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    cluster = SimulatedCluster(clock, freeze)
    with Journal(tmp_path / "a.jsonl") as journal:
        await ClusterBatch(cluster, journal, concurrency=[10, 10]).run(slow_lines(3, 30))
    assert len(cluster.workers) == 2


async def test_places_that_stay_empty_do_not_end_a_slow_batch(tmp_path: Path, mock_clock: MockClock) -> None:
    """Between two answers, five workers of six were tried again several times: none of them was lost."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    cluster = SimulatedCluster(clock, nothing)
    cluster.places = 1
    with Journal(tmp_path / "a.jsonl") as journal:
        batch = ClusterBatch(cluster, journal, concurrency=[10] * 6)
        await batch.run(slow_lines(2, 700))
    assert (batch.counters.answered, batch.counters.lost) == (2, 0)
    assert len(cluster.workers) > 6 + 3 * 6


async def test_an_input_that_cannot_be_read_ends_the_batch(tmp_path: Path, mock_clock: MockClock) -> None:
    place = Place(tmp_path / "missing.jsonl", tmp_path / "a.jsonl")
    with pytest.raises(FileNotFoundError):
        await place.run()


def most_in_a_second(times: list[float]) -> int:
    """Return the most of these times that lie within one second."""
    times = sorted(times)
    return max(sum(1 for at in times[first:] if at < times[first] + 1) for first in range(len(times)))


@pytest.mark.parametrize("fault", ["none", "dead", "frozen for 8 s"])
async def test_all_workers_together_keep_the_limit(tmp_path: Path, fault: str, mock_clock: MockClock) -> None:
    rate, many = 40, [f"q{number:04}" for number in range(1200)]
    place = Place(write(tmp_path / "p.jsonl", [line(id) for id in many]), tmp_path / "a.jsonl")

    def happen(cluster: SimulatedCluster) -> None:
        if fault != "none":
            seconds = float("inf") if fault == "dead" else 8.0
            cluster.workers[1].frozen_until = cluster.now + seconds

    batch, cluster = await place.run(at(15.0, happen), limit=ms.RateLimit(requests_per_second=rate))
    assert place.answered == many
    times = [at for worker in cluster.workers.values() for at in worker.sent_at]
    assert min(times) >= 4, "workers of an earlier driver may still hold leases"
    assert most_in_a_second(times) <= rate * 1.05 + 3
    before = sum(1 for at in times if 10 <= at < 15)
    assert before >= 0.95 * 5 * rate
    if fault != "none":
        after = sum(1 for at in times if 26 <= at < 29)
        assert after >= 0.95 * 3 * rate, "the new worker has the share of the lost one"
    assert batch.counters.answered == 1200
