"""The budget of a batch over a cluster, on the driver's side: what each worker was given, and what the records show.

The journal has the difference between the two before a gift is sent. So a driver that is killed and started again
counts it as spent.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..batch import BatchBudget, Journal
from ..batch.lines import LineId
from ..engine.embedding import UNITS_PER_USD
from .amount_leases import AmountKeeper, AmountReport, Gift, units

SPARE = 0.001
"""The part of the budget that is written down beyond what is needed, so that few gifts need a line of the journal."""


class SharedBudget:
    """The budget of one run.

    journal: the run's journal, which was opened with the budget, and is open.

    is_spent: whether no further row is sent: the budget has refused several in a row.
    """

    def __init__(self, budget: BatchBudget, journal: Journal) -> None:
        self._budget = budget
        self._journal = journal
        self._noted = budget.unrecorded
        self._keeper = AmountKeeper(units(budget.usd), units(budget.spent_before))
        self._recorded = budget.spent_before - budget.unrecorded
        self._reports: dict[int, AmountReport] = {}
        """worker → its last report"""
        self._rows_of_dead: dict[int, set[LineId]] = {}
        self._refused = 0
        """number of rows that the budget did not allow, without an answer between them"""
        self.is_spent: bool = False

    @property
    def spent(self) -> float:
        """The US dollars that were spent in all runs, and those that lost workers may have spent."""
        return self._keeper.used / UNITS_PER_USD

    @property
    def lost(self) -> float:
        """The US dollars that workers which were lost in this run may have spent, beyond what they have reported."""
        return self._keeper.lost / UNITS_PER_USD

    def spent_before(self, id: LineId) -> float:
        """Return the US dollars that a line without an answer has cost in earlier runs."""
        return self._budget.of_line(id, 0.0)

    def recorded(self, dollars: float, *, failed: bool) -> None:
        """Note that the journal has a record of so many US dollars: an answer, or a failure."""
        self._recorded += dollars
        if not failed:
            self._refused = 0

    def refuse(self) -> None:
        """Note that the budget did not allow a row."""
        self._refused += 1
        self.is_spent = self.is_spent or self._refused >= self._budget.unpaid_in_a_row

    def give(self, worker: int, report: AmountReport) -> Gift | None:
        """Return what to send to a worker that has reported. It is written down. Raises `OSError`."""
        self._reports[worker] = report
        gift = self._keeper.report(report)
        self.write()
        return gift

    def note(self, worker: int, report: AmountReport) -> None:
        """Note the report of a worker that gets no more. Raises `OSError`."""
        self._reports[worker] = report
        self._keeper.note(report)
        self.write()

    def recall(self, worker: int) -> Gift | None:
        """Return what to send to a worker that the driver is going to end."""
        report = self._reports.get(worker)
        return None if report is None else self._keeper.recall(report.holder)

    def lose(self, worker: int, rows: set[LineId]) -> None:
        """Note that a worker was given up: what it was given counts as spent, as long as it may still spend it.

        rows: the ids of the rows that it has not answered. Without any, it spends nothing more.
        """
        report = self._reports.get(worker)
        if report is None:
            return
        if not rows:
            self.settle(worker)
            return
        self._keeper.lose(report.holder)
        self._rows_of_dead[worker] = rows

    def late(self, worker: int, answered: Iterable[LineId], report: AmountReport | None) -> None:
        """Note a late reply of a worker that was given up. When it has answered all its rows, it spends nothing more.

        Raises `OSError`.
        """
        rows = self._rows_of_dead.get(worker)
        if rows is None or report is None:
            return
        rows.difference_update(answered)
        if not rows:
            del self._rows_of_dead[worker]
            self._keeper.settle(report.holder, report.used)
        self.write()

    def settle(self, worker: int) -> None:
        """Note that a worker has answered all its rows, and gets no more."""
        report = self._reports.get(worker)
        if report is not None:
            self._keeper.settle(report.holder, report.used)

    def write(self) -> None:
        """Write down what workers were given and no record has, or a little more. Raises `OSError`."""
        unrecorded, spare = self._unrecorded, self._budget.usd * SPARE
        if not unrecorded <= self._noted <= unrecorded + 2 * spare:
            self._noted = max(unrecorded, min(unrecorded + spare, self._budget.usd - self._recorded))
            self._journal.note_unrecorded(self._noted)

    def close(self) -> None:
        """Write the last amount: what lost workers may have spent, and what no record has. Raises `OSError`."""
        self._journal.note_unrecorded(self._unrecorded)

    @property
    def _unrecorded(self) -> float:
        return self._keeper.counted / UNITS_PER_USD - self._recorded
