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
from manystream.ray.shared_budget import AmountPart, AmountReport, SharedBudget, WorkerAmount
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


def needs(needed: int, wanted: int = 0, *, allowed: int = 0, used: int = 0) -> AmountReport:
    return AmountReport(allowed, used, needed, wanted or needed)


def fetch(shared: SharedBudget, worker: int, holder: BudgetHolder) -> AmountPart:
    """Exchange one report and its part, and return the part."""
    part = shared.give(worker, holder.holder.report())
    holder.holder.receive(part)
    return part


def a_budget(usd: float = 1.0) -> SharedBudget:
    return open_shared(Noted(), usd, {})


# --- a worker ---


def test_a_worker_reports_what_its_calls_need_beyond_what_it_has() -> None:
    one = WorkerAmount()
    one.needed, one.wanted = 50, 80
    one.receive(AmountPart(20, 1000))
    assert one.report() == AmountReport(20, 0, 30, 60)
    one.receive(AmountPart(60, 1000))
    assert one.report() == AmountReport(60, 0, 0, 0), "it has enough for the next one"
    one.needed, one.wanted, one.taken = 0, 30, 60
    assert one.report() == AmountReport(60, 0, 0, 0)
    one.needed, one.wanted = 30, 10
    assert one.report() == AmountReport(60, 0, 30, 30)
    one.taken, one.spent = 35, 5
    one.receive(AmountPart(60, 900, recalled=True))
    assert (one.allowed, one.most) == (35, 900)
    assert one.report() == AmountReport(35, 5, 30, 30)
    one.taken = 90
    one.receive(AmountPart(60, 900, recalled=True))
    assert one.allowed == 60, "a call has cost more than it had reserved"


def test_a_worker_uses_what_it_was_given() -> None:
    shared, one = a_budget(1000), BudgetHolder()
    one.call(100.0)
    assert one.running == []
    report = one.holder.report()
    assert (report.needed, report.wanted) == (100 * DOLLARS, 100 * DOLLARS)
    assert fetch(shared, 0, one) == AmountPart(100 * DOLLARS, 1000 * DOLLARS), "as much as its calls can use"
    assert len(one.running) == 1
    one.end(0, 30.0)
    assert (one.holder.free, one.holder.spent) == (70 * DOLLARS, 30 * DOLLARS)
    assert fetch(shared, 0, one).allowed == 100 * DOLLARS, "it needs nothing"
    assert shared.spent == 30


def test_many_waiting_calls_get_a_part_of_what_is_free() -> None:
    shared, one = a_budget(1000), BudgetHolder()
    for _ in range(9):
        one.call(100.0)
    assert fetch(shared, 0, one).allowed == 500 * DOLLARS, "half of what is free"
    assert len(one.running) == 5
    assert fetch(shared, 0, one).allowed == 750 * DOLLARS
    assert len(one.running) == 7


def test_a_worker_returns_its_rest_to_one_that_has_waited() -> None:
    shared, first, second = a_budget(100), BudgetHolder(), BudgetHolder()
    first.call(90.0)
    fetch(shared, 0, first)
    first.end(0, 20.0)
    second.call(40.0)
    assert fetch(shared, 1, second).allowed == 0
    assert fetch(shared, 0, first) == AmountPart(90 * DOLLARS, 100 * DOLLARS, recalled=True)
    assert first.holder.free == 0
    fetch(shared, 0, first)
    assert fetch(shared, 1, second).allowed == 40 * DOLLARS
    assert len(second.running) == 1


def test_a_call_that_never_fits_is_refused_and_others_wait() -> None:
    shared, first, second = a_budget(100), BudgetHolder(), BudgetHolder()
    first.call(60.0)
    fetch(shared, 0, first)
    second.call(80.0)
    fetch(shared, 1, second)
    assert second.refused == 0, "the first may use less than it has reserved"
    first.end(0, 30.0)
    fetch(shared, 0, first)
    fetch(shared, 1, second)
    assert (second.refused, second.running) == (1, [])


def test_a_call_that_costs_more_than_it_reserved_is_counted() -> None:
    shared, one = a_budget(100), BudgetHolder()
    one.call(50.0)
    fetch(shared, 0, one)
    one.end(0, 70.0)
    assert one.holder.free == -20 * DOLLARS
    one.call(10.0)
    report = one.holder.report()
    assert (report.used, report.needed) == (70 * DOLLARS, 30 * DOLLARS)
    assert fetch(shared, 0, one).allowed == 80 * DOLLARS
    assert len(one.running) == 1


# --- the driver ---


def test_a_part_is_half_of_a_worker_s_share_or_what_a_call_needs() -> None:
    shared = a_budget(1000 / DOLLARS)
    assert shared.give(0, needs(10, 2000)) == AmountPart(500, 1000)
    assert shared.give(1, needs(10, 2000)) == AmountPart(125, 1000)
    assert shared.give(1, needs(200, 2000, allowed=125, used=20)) == AmountPart(325, 1000)
    assert shared.give(0, AmountReport(500, 30)) == AmountPart(500, 980)
    assert shared.give(1, needs(175, allowed=325, used=20)) == AmountPart(500, 970), "all that is free"
    assert shared.give(0, needs(1, allowed=500, used=30)) == AmountPart(500, 980)


def test_the_worker_that_has_waited_longest_is_given_more_first() -> None:
    shared = a_budget(100 / DOLLARS)
    shared.give(0, needs(60))
    assert shared.give(1, needs(50)) == AmountPart(0, 100)
    assert shared.give(2, needs(45)) == AmountPart(0, 100, recalled=True), "1 waits longer"
    assert shared.give(0, AmountReport(60, 5)) == AmountPart(60, 100, recalled=True)
    assert shared.give(2, needs(45)) == AmountPart(0, 95, recalled=True)
    assert shared.give(0, AmountReport(10, 5)) == AmountPart(10, 100, recalled=True), "it has returned 50"
    assert shared.give(1, needs(50)) == AmountPart(50, 95)
    assert shared.give(2, AmountReport()) == AmountPart(0, 95), "it needs nothing any more"
    assert shared.give(0, AmountReport(10, 5)) == AmountPart(10, 100)


def test_a_worker_that_needed_more_and_ends_is_not_waited_for() -> None:
    shared = a_budget(100 / DOLLARS)
    for worker in range(2):
        shared.give(worker, needs(200))
    shared.settle(0)
    shared.lose(1, {"q1"})
    assert shared.give(2, needs(60)) == AmountPart(60, 100)


def test_a_worker_that_is_ended_returns_the_rest() -> None:
    shared = a_budget(100 / DOLLARS)
    shared.give(0, needs(60))
    assert shared.recall(0) == AmountPart(60, 100, recalled=True)
    assert shared.recall(1) is None
    shared.note(0, AmountReport(25, 25))
    shared.settle(0)
    shared.settle(0)
    assert shared.give(1, needs(75)) == AmountPart(75, 75)


def test_what_was_used_is_never_taken_as_less() -> None:
    shared = open_shared(Noted(10 / DOLLARS), 100 / DOLLARS, {})
    shared.give(0, needs(20))
    assert shared.give(0, AmountReport(20, 25)).most == 90
    shared.note(0, AmountReport(20, 5))
    assert (shared.spent * DOLLARS, shared.lost) == (pytest.approx(35), 0)
    shared.lose(0, {"q1"})
    assert (shared.spent * DOLLARS, shared.lost) == (pytest.approx(35), 0)
    shared.late(0, ["q1"], AmountReport(20, 15))
    assert (shared.spent * DOLLARS, shared.lost) == (pytest.approx(35), 0), "an earlier report is not forgotten"


def test_a_part_is_written_down_before_it_is_sent(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    assert shared.give(0, needs(DOLLARS // 4)) == AmountPart(DOLLARS // 4, DOLLARS)
    assert noted.amount == about(0.25)
    again = open_shared(noted, 1.0, {})
    assert again.spent == about(0.25), "its worker may have spent it"


def test_records_take_the_place_of_what_was_given(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.give(0, needs(DOLLARS // 4))
    shared.recorded(0.2, failed=False)
    shared.give(0, AmountReport(DOLLARS // 4, DOLLARS // 5))
    assert noted.amount == about(0.05)
    assert open_shared(noted, 1.0, {"q1": 0.2}).spent == about(0.25)
    shared.settle(0)
    shared.close()
    assert noted.amount == pytest.approx(0, abs=1e-9), "the records show everything"


def test_answers_of_a_driver_killed_at_once_count_twice(noted: Noted) -> None:
    """The amount without a record is written after the records, so it is never missing from both."""
    shared = open_shared(noted, 1.0, {})
    shared.give(0, needs(DOLLARS // 4))
    shared.recorded(0.1, failed=False)
    again = open_shared(noted, 1.0, {"q1": 0.1})
    assert again.spent == about(0.35)


def test_what_a_lost_worker_was_given_stays_counted(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.give(0, needs(DOLLARS // 4))
    shared.lose(0, {"q1", "q2"})
    assert (shared.spent, shared.lost) == (0.25, 0.25)
    assert shared.give(1, needs(DOLLARS)).most == 3 * DOLLARS // 4, "a call of a dollar never fits"
    shared.close()
    assert open_shared(noted, 1.0, {}).spent == pytest.approx(0.25)


def test_a_lost_worker_without_rows_has_spent_what_it_reported(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.give(0, needs(DOLLARS // 4))
    shared.give(0, AmountReport(DOLLARS // 4, DOLLARS // 10))
    shared.lose(0, set())
    shared.lose(1, {"q1"})
    assert (shared.spent, shared.lost) == (0.1, 0.0), "worker 1 has not reported, so it was given nothing"


def test_a_lost_worker_that_answers_all_its_rows_is_settled(noted: Noted) -> None:
    shared = open_shared(noted, 1.0, {})
    shared.give(0, needs(DOLLARS // 4))
    shared.lose(0, {"q1", "q2"})
    shared.recorded(0.1, failed=False)
    shared.late(0, ["q1"], AmountReport(DOLLARS // 4, DOLLARS // 10))
    assert (shared.spent, noted.amount) == (0.25, about(0.15))
    shared.late(0, ["q2"], AmountReport(DOLLARS // 4, DOLLARS // 5))
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
    part: AmountPart | None = None
    dead: bool = False

    def receive(self) -> None:
        if self.part is not None and not self.dead:
            self.budget.holder.receive(self.part)
        self.part = None


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
            self.workers.append(Worker(self.count, BudgetHolder()))
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
        """Let one message arrive: a part, or a reply."""
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
        worker.part = self.driver.give(worker.number, report)

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


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 8),
    concurrency=st.integers(1, 40),
    most=st.sampled_from((0.003, 0.01, 0.03)),
)
def test_almost_the_whole_budget_is_used(seed: int, workers: int, concurrency: int, most: float) -> None:
    """Whatever calls cost, less is left than the most that a call may cost, which is a part `most` of the budget."""
    shared, order = a_budget(), random.Random(seed)
    all_of_them = [BudgetHolder() for _ in range(workers)]
    for _ in range(20_000):
        number = order.randrange(workers)
        one = all_of_them[number]
        while len(one.running) + one.waiting < concurrency and one.refused < 10:
            one.call(most * order.uniform(0.5, 1.0))
        if one.running and order.random() < 0.8:
            place = order.randrange(len(one.running))
            one.end(place, order.uniform(0.0, one.running[place].amounts.usd))
        if order.random() < 0.5:
            fetch(shared, number, one)
        if all(each.refused >= 10 and not each.running and not each.waiting for each in all_of_them):
            break
    used = sum(each.used for each in all_of_them)
    assert used == pytest.approx(1.0, abs=most)
    assert used <= 1.0 + 1e-9
