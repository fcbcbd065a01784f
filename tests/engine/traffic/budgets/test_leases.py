"""A part of a shared budget: calls wait until their engine is given more, and are refused if it never can be."""

from __future__ import annotations

from manystream.engine.traffic.budgets.amounts import Amounts
from manystream.engine.traffic.budgets.budgets import Account, BudgetRefusal, BudgetsState, Claim, Reservation
from manystream.engine.traffic.budgets.leases import UNITS_PER_USD, LeasedBudget
from manystream.ray.amount_leases import Gift, WorkerAmount


class Place:
    """A lease, the budget of it, and the calls that wait."""

    def __init__(self) -> None:
        self.lease = WorkerAmount("a")
        self.budgets = BudgetsState((LeasedBudget.of(self.lease),))
        self.needs: list[int] = []
        self.lease.on_need = lambda: self.needs.append(self.lease.needed)

    def claim(self, dollars: float) -> Claim:
        claim = Claim(Amounts(usd=dollars))
        account = self.budgets.reserve(None, claim.amounts, 0.0)
        assert isinstance(account, Account)
        self.budgets.wait(claim, account)
        assert self.budgets.next(0.0) is None
        return claim


def test_a_call_waits_until_its_engine_is_given_enough() -> None:
    place = Place()
    claim = place.claim(0.5)
    assert place.needs == [UNITS_PER_USD // 2]
    assert claim.waiting_for == "usd of a part of the engine's budget, reserved by 0 calls, 0 ahead"
    place.lease.receive(Gift("a", UNITS_PER_USD // 4, UNITS_PER_USD))
    assert place.budgets.has_changed
    assert place.budgets.next(0.0) is None
    place.lease.receive(Gift("a", UNITS_PER_USD // 2, UNITS_PER_USD))
    found = place.budgets.next(0.0)
    assert found is not None
    assert isinstance(found[1], Reservation)
    assert (place.lease.free, place.lease.needed) == (0, 0)
    place.budgets.settle(found[1], Amounts(usd=0.1), 0.0)
    assert (place.lease.spent, place.lease.free) == (UNITS_PER_USD // 10, 4 * UNITS_PER_USD // 10)
    (figures,) = place.budgets.statistics(0.0)
    assert (figures.limit.usd, figures.spent.usd) == (0.5, 0.1)


def test_a_call_is_refused_if_its_engine_never_gets_enough() -> None:
    place = Place()
    place.claim(0.5)
    place.claim(0.2)
    assert place.lease.wanted == UNITS_PER_USD, "two calls such as the first"
    place.lease.receive(Gift("a", 0, 3 * UNITS_PER_USD // 10))
    found = place.budgets.next(0.0)
    assert isinstance(found[1], BudgetRefusal)
    assert found[1].message == (
        "the engine's budget allows 0.3 usd: 0 are spent, 0 are reserved, and this call may use 0.5"
    )
    assert place.budgets.next(0.0) is None
    assert place.lease.needed == UNITS_PER_USD // 5, "the second one may fit"


def test_a_call_that_leaves_needs_nothing_more() -> None:
    place = Place()
    claim = place.claim(0.5)
    place.budgets.leave(claim)
    assert (place.lease.needed, place.lease.wanted) == (0, 0)
