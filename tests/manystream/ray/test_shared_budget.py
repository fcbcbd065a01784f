"""The budget of a batch over a cluster: never more than the limit is spent, whatever happens to workers and drivers.

Workers are accounts of real engines whose calls cost what the test says. The journal is a dict and an amount.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.batch import BatchBudget
from manystream.ray.amount_leases import AmountReport, Gift
from manystream.ray.shared_budget import SharedBudget
from tests.support.budget_holder import DOLLARS, BudgetHolder


def no_price(*arguments: object) -> float:
    raise AssertionError("no record needs a price")


@dataclass(slots=True)
class Noted:
    """What journals have of it: the amount that no record has."""

    amount: float = 0.0

    def note_unrecorded(self, dollars: float) -> None:
        self.amount = dollars


SPARE = 0.001
"""The part of a budget that may be written down beyond what is needed."""


def open_shared(noted: Noted, usd: float, records: dict[str, float]) -> SharedBudget:
    budget = BatchBudget(usd, no_price, ())
    for dollars in records.values():
        budget.read_answer({"spent_usd": dollars})
    budget.unrecorded = noted.amount
    return SharedBudget(budget, noted)  # type: ignore[arg-type]


@pytest.fixture
def noted() -> Noted:
    return Noted()


def about(dollars: float) -> object:
    """A little more than this is as good."""
    return pytest.approx(dollars + SPARE / 2, abs=0.51 * SPARE)


def test_a_gift_is_written_down_before_it_is_sent(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    gift = shared.give(0, AmountReport("w", needed=DOLLARS // 4, wanted=DOLLARS // 4))
    assert gift == Gift("w", DOLLARS // 4, DOLLARS)
    assert noted.amount == about(0.25)
    again = open_shared(noted, 1.0, {})
    assert again.spent == about(0.25), "its worker may have spent it"


def test_records_take_the_place_of_what_was_given(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.give(0, AmountReport("w", needed=DOLLARS // 4, wanted=DOLLARS // 4))
    shared.recorded(0.2, failed=False)
    shared.give(0, AmountReport("w", DOLLARS // 4, DOLLARS // 5))
    assert noted.amount == about(0.05)
    assert open_shared(noted, 1.0, {"q1": 0.2}).spent == about(0.25)
    shared.settle(0)
    shared.close()
    assert noted.amount == pytest.approx(0, abs=1e-9), "the records show everything"


def test_answers_of_a_driver_killed_at_once_count_twice(noted: Noted) -> None:
    """The amount without a record is written after the records, so it is never missing from both."""
    shared = open_shared(noted, 1.0, {})
    shared.give(0, AmountReport("w", needed=DOLLARS // 4, wanted=DOLLARS // 4))
    shared.recorded(0.1, failed=False)
    again = open_shared(noted, 1.0, {"q1": 0.1})
    assert again.spent == about(0.35)


def test_what_a_lost_worker_was_given_stays_counted(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.give(0, AmountReport("w", needed=DOLLARS // 4, wanted=DOLLARS // 4))
    shared.lose(0, {"q1", "q2"})
    assert (shared.spent, shared.lost) == (0.25, 0.25)
    shared.close()
    assert open_shared(noted, 1.0, {}).spent == pytest.approx(0.25)


def test_a_lost_worker_without_rows_has_spent_what_it_reported(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.give(0, AmountReport("w", needed=DOLLARS // 4, wanted=DOLLARS // 4))
    shared.give(0, AmountReport("w", DOLLARS // 4, DOLLARS // 10))
    shared.lose(0, set())
    shared.lose(1, {"q1"})
    assert (shared.spent, shared.lost) == (0.1, 0.0), "worker 1 has not reported, so it was given nothing"


def test_a_lost_worker_that_answers_all_its_rows_is_settled(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.give(0, AmountReport("w", needed=DOLLARS // 4, wanted=DOLLARS // 4))
    shared.lose(0, {"q1", "q2"})
    shared.recorded(0.1, failed=False)
    shared.late(0, ["q1"], AmountReport("w", DOLLARS // 4, DOLLARS // 10))
    assert (shared.spent, noted.amount) == (0.25, about(0.15))
    shared.late(0, ["q2"], AmountReport("w", DOLLARS // 4, DOLLARS // 5))
    assert (shared.spent, shared.lost) == (0.2, 0.0)
    assert noted.amount == about(0.1), "the answer to q2 was late, and has no record"


def test_rows_that_are_refused_in_a_row_end_the_run(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.refuse()
    shared.recorded(0.1, failed=False)
    for _ in range(9):
        shared.refuse()
    shared.recorded(0.0, failed=True)
    assert not shared.is_spent
    shared.refuse()
    assert shared.is_spent
    shared.recorded(0.1, failed=False)
    assert shared.is_spent, "no further row is sent, although a call that ran has ended well"


@dataclass(slots=True)
class Worker:
    """A worker, the exchange that is under way, and the answers that the driver does not have yet."""

    number: int
    budget: BudgetHolder
    answers: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    reply: tuple[list[tuple[str, float]], AmountReport] | None = None
    gift: Gift | None = None
    dead: bool = False

    def receive(self) -> None:
        if self.gift is not None and not self.dead:
            self.budget.holder.receive(self.gift)


@dataclass(slots=True)
class World:
    """A driver, its workers, a journal, and faults: workers that die or are given up, drivers that are killed."""

    random: random.Random
    limit: float
    noted: Noted
    driver: SharedBudget = field(init=False)
    records: dict[str, float] = field(default_factory=dict[str, float])
    workers: list[Worker] = field(default_factory=list[Worker])
    everybody: list[Worker] = field(default_factory=list[Worker])
    count: int = 0
    deadly: float = 0.02
    """how often the driver is killed while it handles a reply"""
    twice: float = 0.0
    """the dollars of answers that drivers had recorded when they were killed, before they wrote anything beside the
    records: the next one counts them as recorded and as given"""

    def __post_init__(self) -> None:
        self.driver = open_shared(self.noted, self.limit, self.records)

    @property
    def cost(self) -> float:
        """What all calls have cost, and what running calls may cost."""
        used = sum(worker.budget.used for worker in self.everybody)
        return used + sum(one.amounts.usd for worker in self.everybody for one in worker.budget.running)

    def step(self) -> None:
        few = (*(4 * [self.join]), self.die, self.give_up, self.kill_driver)
        self.random.choice((*few, *(20 * [self.call, self.end, self.exchange])))()
        assert self.cost <= self.limit * (1 + 1e-6)
        assert self.driver.spent <= (self.limit + self.twice) * (1 + 1e-6)

    def one(self) -> Worker | None:
        return self.random.choice(self.workers) if self.workers else None

    def join(self) -> None:
        if len(self.workers) < 5:
            self.count += 1
            self.workers.append(Worker(self.count, BudgetHolder(f"w{self.count}")))
            self.everybody.append(self.workers[-1])

    def call(self) -> None:
        """Start a call. A worker of a driver that was killed may start calls for some time, too."""
        worker = self.random.choice(self.everybody) if self.everybody else None
        if worker is not None and not worker.dead:
            worker.budget.call(self.limit * self.random.choice((0.001, 0.01, 0.1, 0.3)) * self.random.random())

    def end(self) -> None:
        worker = self.random.choice(self.everybody) if self.everybody else None
        if worker is None or not worker.budget.running or worker.dead:
            return
        self.count += 1
        dollars = self.random.choice((0.0, 0.5, 1.0)) * worker.budget.running[0].amounts.usd
        worker.budget.end(0, dollars)
        worker.answers.append((f"q{self.count}", dollars))

    def exchange(self) -> None:
        """Let one message arrive: a gift, or a reply."""
        worker = self.one()
        if worker is None or worker.dead:
            return
        if worker.reply is None:
            worker.receive()
            worker.reply, worker.answers = (worker.answers, worker.budget.holder.report()), []
            return
        answers, report = worker.reply
        worker.reply = None
        recorded = 0.0
        for id, dollars in answers:
            if self.random.random() < 0.9:  # otherwise another worker has answered the row before
                self.records[id] = dollars
                self.driver.recorded(dollars, failed=False)
                recorded += dollars
        if self.random.random() < self.deadly:
            self.twice += recorded
            self.kill_driver()  # before it has written anything beside the records
            return
        worker.gift = self.driver.give(worker.number, report)

    def die(self) -> None:
        """End a worker with its calls, which have cost a part of what they reserved. Nobody learns what."""
        worker = self.one()
        if worker is None:
            return
        for _ in list(worker.budget.running):
            worker.budget.end(0, self.random.random() * worker.budget.running[0].amounts.usd)
        worker.budget.running.clear()
        worker.dead = True
        self.lose(worker)

    def give_up(self) -> None:
        """Give a worker up that lives on. Its replies arrive too late, or never."""
        worker = self.one()
        if worker is None:
            return
        self.lose(worker)
        if self.random.random() < 0.5 and worker.reply is not None:
            answers, report = worker.reply
            self.driver.late(worker.number, [id for id, _ in answers], report)

    def lose(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.receive()  # it was on its way
        self.driver.lose(worker.number, {"a row without an answer"})

    def kill_driver(self) -> None:
        """Start a new driver. The workers of the old one go on for some time, and nobody asks them."""
        for worker in self.workers:
            worker.receive()  # it was on its way
        self.workers.clear()
        self.driver = open_shared(self.noted, self.limit, self.records)

    def use_the_rest(self) -> None:
        """Let every process that lives start calls as long as it may, and a new worker spend what the driver has."""
        for worker in self.everybody:
            if not worker.dead:
                for _ in range(40):
                    worker.budget.call(self.limit / 100)
        self.workers.clear()
        self.deadly = 0.0
        self.join()
        for _ in range(110):
            self.workers[0].budget.call(self.limit / 100)
            self.exchange()
            self.exchange()
        assert self.cost <= self.limit * (1 + 1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), limit=st.sampled_from((0.001, 1.0, 5000.0)))
def test_the_limit_holds_always(seed: int, limit: float) -> None:
    world = World(random.Random(seed), limit, Noted())
    for _ in range(300):
        world.step()
    world.use_the_rest()
