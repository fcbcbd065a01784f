"""A holder of a part of a budget, with the account of an engine that uses it, and calls that cost what a test says."""

from __future__ import annotations

import manystream as ms
from manystream.engine.traffic.budgets.budgets import Account, BudgetRefusal, BudgetsState, Claim, Reservation
from manystream.engine.traffic.budgets.leases import UNITS_PER_USD, LeasedBudget
from manystream.ray.shared_budget import WorkerAmount

DOLLARS = UNITS_PER_USD


class BudgetHolder:
    """A holder whose calls wait, run and end.

    running: what each running call has reserved.
    waiting: the number of waiting calls.
    refused: the number of calls that can never be paid for.
    used: the US dollars of ended calls.
    """

    def __init__(self) -> None:
        self.holder: WorkerAmount = WorkerAmount()
        self.running: list[Reservation] = []
        self.waiting: int = 0
        self.refused: int = 0
        self.used: float = 0.0
        self._budgets = BudgetsState((LeasedBudget.of(self.holder),), on_change=self._go_on)

    def call(self, dollars: float) -> None:
        """Start a call that costs at most so many US dollars. It may have to wait."""
        claim = Claim(ms.Amounts(usd=dollars))
        found = self._budgets.reserve(None, claim.amounts, 0.0)
        if isinstance(found, Account):
            self._budgets.wait(claim, found)
            self.waiting += 1
        self._note(found)
        self._go_on()

    def end(self, place: int, dollars: float) -> None:
        """End a running call, which has cost so many US dollars."""
        self.used += dollars
        self._budgets.settle(self.running.pop(place), ms.Amounts(usd=dollars), 0.0)
        self._go_on()

    def _go_on(self) -> None:
        while (found := self._budgets.next(0.0)) is not None:
            self.waiting -= 1
            self._note(found[1])

    def _note(self, found: object) -> None:
        if isinstance(found, Reservation):
            self.running.append(found)
        elif isinstance(found, BudgetRefusal):
            self.refused += 1
