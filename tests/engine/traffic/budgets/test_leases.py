"""A part of a shared budget: calls wait until their engine is given more, and are refused if it never can be."""

from __future__ import annotations

import manystream as ms
from manystream.engine.traffic.budgets.amounts import Amounts, limits_of
from manystream.engine.traffic.budgets.budgets import Account, BudgetRefusal, BudgetsState, Claim, Reservation
from manystream.engine.traffic.budgets.leases import UNITS_PER_USD, LeasedBudget
from manystream.ray.shared_budget import AmountPart, WorkerAmount, units
from tests.engine.traffic.budgets.test_budgets_state import claimed, held, lacking, refused


class Place:
    """A lease, the budget of it, and the calls that wait."""

    def __init__(self) -> None:
        self.lease = WorkerAmount()
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
    place.lease.receive(AmountPart(UNITS_PER_USD // 4, UNITS_PER_USD))
    assert place.budgets.has_changed
    assert place.budgets.next(0.0) is None
    place.lease.receive(AmountPart(UNITS_PER_USD // 2, UNITS_PER_USD))
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
    place.lease.receive(AmountPart(0, 3 * UNITS_PER_USD // 10))
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
    place.budgets.withdraw(claim)
    assert (place.lease.needed, place.lease.wanted) == (0, 0)


# --- leases ---


def test_dollars_are_whole_nano_dollars() -> None:
    assert [units(dollars) for dollars in (0, 1, 0.1 + 0.2, 1.4e-9, 1.6e-9)] == [0, 10**9, 3 * 10**8, 1, 2]


def test_a_leased_budget_holds_what_its_lease_allows() -> None:
    lease = WorkerAmount()
    budget = LeasedBudget.of(lease)
    budgets = BudgetsState((ms.Budget(calls=9), budget))
    lease.receive(AmountPart(10**9, 2 * 10**9))
    holding = held(budgets.reserve("a", ms.Amounts(usd=0.75, calls=1), 0))
    assert (lease.taken, lease.spent, limits_of(budget, None).usd, budget.per) == (750_000_000, 0, 1, "engine")
    held(budgets.reserve("a", ms.Amounts(calls=1), 0))  # it costs nothing
    lacking(budgets.reserve(None, ms.Amounts(usd=0.5), 0))
    found = refused(budgets.reserve(None, ms.Amounts(usd=2.5), 0))
    assert (found.member, found.limit, found.needed) == ("usd", 2, 2.5)
    claim = claimed(budgets, ms.Amounts(usd=0.5, calls=1))
    assert budgets.next(0) is None
    assert (lease.needed, lease.wanted) == (500_000_000, 500_000_000)
    claimed(budgets, ms.Amounts(usd=0.25))
    assert budgets.next(0) is None
    assert (lease.needed, lease.wanted) == (500_000_000, 1_000_000_000)
    budgets.settle(holding, ms.Amounts(usd=0.5, calls=1), 0)
    assert (lease.taken, lease.spent) == (500_000_000, 500_000_000)
    found_next = budgets.next(0)
    assert (found_next[0], lease.taken, lease.needed) == (claim, 1_000_000_000, 0)
    assert (budgets.next(0), lease.needed, lease.wanted) == (None, 250_000_000, 250_000_000)


def test_a_change_of_a_lease_lets_its_own_calls_try() -> None:
    lease, other, changes = WorkerAmount(), WorkerAmount(), list[bool]()
    leased = (LeasedBudget.of(lease), LeasedBudget.of(other))
    budgets = BudgetsState(leased, on_change=lambda: changes.append(budgets.has_changed))
    claimed(budgets, ms.Amounts(usd=1))
    assert not budgets.next(0)
    other.receive(AmountPart(10**9, 10**9))
    lease.receive(AmountPart(3 * 10**9, 3 * 10**9))
    assert (changes, budgets.accounts()[0].limits.usd) == ([False, True], 3)
