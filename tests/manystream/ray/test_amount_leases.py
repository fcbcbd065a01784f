"""Budgets as amounts: gifts, reports, and what a holder returns. What happens to them by faults is in
`test_shared_budget.py`."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.ray.amount_leases import AmountKeeper, AmountReport, Gift, WorkerAmount
from tests.support.budget_holder import DOLLARS, BudgetHolder


def fetch(keeper: AmountKeeper, holder: WorkerAmount) -> Gift:
    """Exchange one report and its gift, and return the gift."""
    gift = keeper.report(holder.report())
    assert gift is not None
    holder.receive(gift)
    return gift


def test_a_holder_uses_what_it_was_given() -> None:
    keeper, one = AmountKeeper(1000 * DOLLARS), BudgetHolder("a")
    one.call(100.0)
    assert one.running == []
    report = one.holder.report()
    assert (report.needed, report.wanted) == (100 * DOLLARS, 100 * DOLLARS)
    assert fetch(keeper, one.holder) == Gift("a", 100 * DOLLARS, 1000 * DOLLARS), "as much as its calls can use"
    assert len(one.running) == 1
    one.end(0, 30.0)
    assert (one.holder.free, one.holder.spent, keeper.free) == (70 * DOLLARS, 30 * DOLLARS, 900 * DOLLARS)
    assert fetch(keeper, one.holder).total == 100 * DOLLARS, "it needs nothing"
    assert keeper.used == 30 * DOLLARS


def test_many_waiting_calls_get_a_part_of_what_is_free() -> None:
    keeper, one = AmountKeeper(1000 * DOLLARS), BudgetHolder("a")
    for _ in range(9):
        one.call(100.0)
    assert fetch(keeper, one.holder).total == 500 * DOLLARS, "half of what is free"
    assert len(one.running) == 5
    assert fetch(keeper, one.holder).total == 750 * DOLLARS
    assert len(one.running) == 7


def test_a_holder_returns_its_rest_to_one_that_has_waited() -> None:
    keeper, first, second = AmountKeeper(100 * DOLLARS), BudgetHolder("a"), BudgetHolder("b")
    first.call(90.0)
    fetch(keeper, first.holder)
    first.end(0, 20.0)
    second.call(40.0)
    assert fetch(keeper, second.holder).total == 0
    assert fetch(keeper, first.holder) == Gift("a", 90 * DOLLARS, 100 * DOLLARS, recalled=True)
    assert first.holder.free == 0
    fetch(keeper, first.holder)
    assert fetch(keeper, second.holder).total == 40 * DOLLARS
    assert (len(second.running), keeper.free) == (1, 40 * DOLLARS)


def test_a_call_that_never_fits_is_refused_and_others_wait() -> None:
    keeper, first, second = AmountKeeper(100 * DOLLARS), BudgetHolder("a"), BudgetHolder("b")
    first.call(60.0)
    fetch(keeper, first.holder)
    second.call(80.0)
    fetch(keeper, second.holder)
    assert second.refused == 0, "the first may use less than it has reserved"
    first.end(0, 30.0)
    fetch(keeper, first.holder)
    fetch(keeper, second.holder)
    assert (second.refused, second.running) == (1, [])


def test_a_gift_that_was_lost_is_sent_again_and_not_added() -> None:
    keeper, one = AmountKeeper(1000), WorkerAmount("a")
    lost = keeper.report(AmountReport("a", needed=100, wanted=100))
    again = keeper.report(AmountReport("a", needed=100, wanted=100))
    assert again == lost
    for _ in range(2):
        one.receive(Gift("a", 100, 1000))
    assert lost == Gift("a", 100, 1000)
    assert (one.allowed, keeper.free) == (100, 900)


def test_late_messages_lower_no_total() -> None:
    keeper, one = AmountKeeper(100), WorkerAmount("a")
    keeper.report(AmountReport("a", needed=100, wanted=100))
    keeper.report(AmountReport("a", 100, 20, 50))
    keeper.report(AmountReport("a", 100, 10, 0))
    assert (keeper.free, keeper.used) == (50, 20)
    one.receive(Gift("a", 100, 100))
    one.receive(Gift("a", 50, 80, recalled=True))
    assert (one.allowed, one.most) == (100, 100)


def test_a_gift_is_half_of_a_holder_s_part_or_what_a_call_needs() -> None:
    keeper = AmountKeeper(1000)
    assert keeper.report(AmountReport("a", needed=10, wanted=2000)) == Gift("a", 500, 1000)
    assert keeper.report(AmountReport("b", needed=10, wanted=2000)) == Gift("b", 125, 1000)
    assert keeper.report(AmountReport("b", 125, 20, needed=200, wanted=2000)) == Gift("b", 325, 1000)
    assert keeper.report(AmountReport("a", 500, 30)) == Gift("a", 500, 980)
    assert (keeper.counted, keeper.used, keeper.free) == (825, 50, 175)
    assert keeper.report(AmountReport("b", 325, 20, needed=175, wanted=175)) == Gift("b", 500, 970), "all that is free"
    assert keeper.free == 0


def test_a_holder_returns_nothing_while_its_gift_is_on_its_way() -> None:
    keeper = AmountKeeper(100)
    keeper.report(AmountReport("a", needed=60, wanted=60))
    assert keeper.report(AmountReport("b", needed=50, wanted=50)) == Gift("b", 0, 100)
    assert keeper.report(AmountReport("c", needed=45, wanted=45)) == Gift("c", 0, 100, recalled=True), "b waits longer"
    assert keeper.report(AmountReport("a", 0, 0)) == Gift("a", 60, 100)
    assert keeper.report(AmountReport("a", 60, 5)) == Gift("a", 60, 100, recalled=True)
    assert keeper.report(AmountReport("a", 60, 5, 50)) == Gift("a", 60, 100, recalled=True)
    assert keeper.report(AmountReport("c", needed=45, wanted=45)) == Gift("c", 0, 95, recalled=True)
    assert keeper.report(AmountReport("b", needed=50, wanted=50)) == Gift("b", 50, 95)
    assert keeper.report(AmountReport("c", needed=0)) == Gift("c", 0, 95), "nobody needs more"
    assert keeper.report(AmountReport("a", 60, 5, 50)) == Gift("a", 60, 100)


def test_a_holder_that_needed_more_and_ends_is_not_waited_for() -> None:
    keeper = AmountKeeper(100)
    for holder in "ab":
        keeper.report(AmountReport(holder, needed=200))
    keeper.settle("a", 0)
    keeper.lose("b")
    keeper.lose("unknown")
    assert keeper.report(AmountReport("c", needed=60, wanted=60)) == Gift("c", 60, 100)


def test_what_ends_with_more_than_it_was_given_is_counted() -> None:
    keeper = AmountKeeper(100, used=10)
    keeper.report(AmountReport("a", needed=20, wanted=20))
    keeper.report(AmountReport("a", 20, 25))
    assert (keeper.counted, keeper.used, keeper.free) == (35, 35, 65)
    keeper.report(AmountReport("a", 20, 5, 90))
    assert (keeper.counted, keeper.used) == (35, 35), "more than was given cannot be returned"
    keeper.lose("a")
    assert (keeper.counted, keeper.used, keeper.lost) == (35, 35, 0)
    keeper.settle("a", 15)
    assert (keeper.counted, keeper.used, keeper.lost) == (35, 35, 0), "an earlier report is not forgotten"


def test_a_holder_reports_what_its_calls_need_beyond_what_it_has() -> None:
    one = WorkerAmount("a")
    one.needed, one.wanted = 50, 80
    one.receive(Gift("a", 20, 1000))
    assert one.report() == AmountReport("a", 20, 0, 0, 30, 60)
    one.receive(Gift("a", 60, 1000))
    assert one.report() == AmountReport("a", 60, 0, 0, 0, 0), "it has enough for the next one"
    one.needed, one.wanted, one.taken = 0, 30, 60
    assert one.report() == AmountReport("a", 60, 0, 0, 0, 0)
    one.needed, one.wanted = 30, 10
    assert one.report() == AmountReport("a", 60, 0, 0, 30, 30)
    one.taken, one.spent = 35, 5
    one.receive(Gift("a", 60, 900, recalled=True))
    assert (one.allowed, one.most) == (35, 900)
    assert one.report() == AmountReport("a", 60, 5, 25, 30, 30)


def test_the_amount_of_a_dead_holder_counts_as_used() -> None:
    keeper = AmountKeeper(100)
    keeper.report(AmountReport("a", needed=60, wanted=60))
    keeper.report(AmountReport("a", 60, 10))
    keeper.lose("a")
    assert (keeper.free, keeper.used, keeper.lost) == (40, 60, 50)
    assert keeper.report(AmountReport("a", 60, 25, needed=60)) is None, "it is no holder any more"
    other = keeper.report(AmountReport("b", needed=50, wanted=50))
    assert other == Gift("b", 0, 40), "a call of 50 never fits"
    keeper.settle("a", 25)
    assert (keeper.free, keeper.used, keeper.lost) == (75, 25, 0)
    keeper.settle("a", 25)
    assert keeper.free == 75


def test_a_holder_that_ends_returns_the_rest() -> None:
    keeper = AmountKeeper(100)
    keeper.report(AmountReport("a", needed=60, wanted=60))
    assert keeper.recall("a") == Gift("a", 60, 100, recalled=True)
    assert keeper.recall("b") is None
    keeper.settle("a", 25)
    assert (keeper.free, keeper.used, keeper.counted) == (75, 25, 25)
    assert keeper.report(AmountReport("a", 60, 25, needed=1)) is None


def test_a_call_that_costs_more_than_it_reserved_is_counted() -> None:
    keeper, one = AmountKeeper(100 * DOLLARS), BudgetHolder("a")
    one.call(50.0)
    fetch(keeper, one.holder)
    one.end(0, 70.0)
    assert one.holder.free == -20 * DOLLARS
    one.call(10.0)
    report = one.holder.report()
    assert (report.used, report.needed) == (70 * DOLLARS, 30 * DOLLARS)
    fetch(keeper, one.holder)
    assert (len(one.running), keeper.counted) == (1, 80 * DOLLARS)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    holders=st.integers(1, 8),
    concurrency=st.integers(1, 40),
    most=st.sampled_from((0.003, 0.01, 0.03)),
)
def test_almost_the_whole_budget_is_used(seed: int, holders: int, concurrency: int, most: float) -> None:
    """Whatever calls cost, less is left than the most that a call may cost, which is a part `most` of the budget."""
    keeper, order = AmountKeeper(DOLLARS), random.Random(seed)
    all_of_them = [BudgetHolder(f"h{number}") for number in range(holders)]
    for _ in range(20_000):
        one = order.choice(all_of_them)
        while len(one.running) + one.waiting < concurrency and one.refused < 10:
            one.call(most * order.uniform(0.5, 1.0))
        if one.running and order.random() < 0.8:
            place = order.randrange(len(one.running))
            one.end(place, order.uniform(0.0, one.running[place].amounts.usd))
        if order.random() < 0.5:
            fetch(keeper, one.holder)
        if all(each.refused >= 10 and not each.running and not each.waiting for each in all_of_them):
            break
    used = sum(each.used for each in all_of_them)
    assert used == pytest.approx(1.0, abs=most)
    assert used <= 1.0 + 1e-9
