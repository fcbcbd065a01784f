"""The budget of a batch over a cluster: the driver gives parts of it, which can be used once, to its workers.

A worker may use what it was given, and asks for more before that is used up. The exchanges of a worker follow one after
the other, and a reply has a report only after the part that came with its offer is in use. So the last report, and what
was given since, are all that the worker may spend. A worker that was given up may spend it as long as it has rows.

When less is free than a worker needs, the driver asks the others to return what no call has reserved, and gives it to
the worker that has waited longest. So the rest of a budget is never left in parts that are too small for a call.

The journal has the difference between what was given and what the records show before a part is sent. So a driver that
is killed and started again counts it as spent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..batch import BatchBudget, Journal
from ..batch.lines import LineId
from ..engine.embedding import UNITS_PER_USD, AmountHolder

SPARE = 0.001
"""The part of the budget that is written down beyond what is needed, so that few parts need a line of the journal."""

PARTS_PER_WORKER = 2
"""A worker is given at most the free amount, divided by so many times the number of workers, unless a single call needs
more. So the last part of a budget is given in small amounts, and little of it lies unused at workers."""


def units(dollars: float) -> int:
    """Return US dollars as nano-dollars."""
    return round(dollars * UNITS_PER_USD)


@dataclass(slots=True, frozen=True)
class AmountPart:
    """What the driver sends to a worker, in units.

    allowed: what its calls may use and reserve in all, ended calls included.
    most: what that can become at most: the limit without what others have used.
    recalled: whether the worker returns what no call has reserved, because others wait for it.
    """

    allowed: int
    most: int
    recalled: bool = False


@dataclass(slots=True, frozen=True)
class AmountReport:
    """What a worker sends to the driver, in units.

    allowed: what its calls may use and reserve in all.
    used: what they have used so far.
    needed: what its next call needs beyond that; 0 if it needs nothing.
    wanted: about what all its waiting calls need, at least `needed`.
    """

    allowed: int = 0
    used: int = 0
    needed: int = 0
    wanted: int = 0


class WorkerAmount(AmountHolder):
    """The part of a budget that a worker's engine uses."""

    def receive(self, part: AmountPart) -> None:
        """Let the engine use what the driver has sent. Call this once for each part."""
        before = self.allowed, self.most
        self.allowed: int = min(part.allowed, self.taken) if part.recalled else part.allowed
        self.most: float = part.most
        if (self.allowed, self.most) != before:
            self.changed()

    def report(self) -> AmountReport:
        """Return what the driver must know."""
        needed = max(0, self.needed - self.free) if self.needed else 0
        wanted = max(needed, self.wanted - self.free) if needed else 0
        return AmountReport(self.allowed, self.spent, needed, wanted)


@dataclass(slots=True)
class _Account:
    """What a worker may spend, and has spent. rows: those that a worker which was given up has not answered."""

    allowed: int = 0
    used: int = 0
    rows: set[LineId] | None = None

    @property
    def counted(self) -> int:
        """What counts against the budget."""
        return max(self.allowed, self.used)


class SharedBudget:
    """The budget of one run.

    journal: the run's journal, which was opened with the budget, and is open.

    is_spent: whether no further row is sent: the budget has refused several in a row.
    """

    def __init__(self, budget: BatchBudget, journal: Journal) -> None:
        self._budget = budget
        self._journal = journal
        self._noted = budget.unrecorded
        self._recorded = budget.spent_before - budget.unrecorded
        self._limit = units(budget.usd)
        self._settled = units(budget.spent_before)
        """what was spent in earlier runs, and by workers that spend nothing more"""
        self._accounts: dict[int, _Account] = {}
        self._needs: dict[int, None] = {}
        """the workers that need more than is free, the one that has waited longest first"""
        self._refused = 0
        """number of rows that the budget did not allow, without an answer between them"""
        self.is_spent: bool = False

    @property
    def spent(self) -> float:
        """The US dollars that were spent in all runs, and those that lost workers may have spent."""
        return self._used / UNITS_PER_USD

    @property
    def lost(self) -> float:
        """The US dollars that workers which were lost in this run may have spent, beyond what they have reported."""
        return self._lost / UNITS_PER_USD

    @property
    def _counted(self) -> int:
        """What was spent, given to workers, or lost with them."""
        return self._settled + sum(account.counted for account in self._accounts.values())

    @property
    def _used(self) -> int:
        return self._settled + self._lost + sum(account.used for account in self._accounts.values())

    @property
    def _lost(self) -> int:
        lost = [account for account in self._accounts.values() if account.rows is not None]
        return sum(account.counted - account.used for account in lost)

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

    def give(self, worker: int, report: AmountReport) -> AmountPart:
        """Return what to send to a worker that has reported. It is written down. Raises `OSError`."""
        account, more = self._read(worker, report), 0
        if report.needed:
            self._needs.setdefault(worker)
        else:
            self._needs.pop(worker, None)
        is_next, free = next(iter(self._needs), None) == worker, self._limit - self._counted
        if is_next and report.needed <= free:
            del self._needs[worker]
            living = sum(account.rows is None for account in self._accounts.values())
            more = max(report.needed, min(report.wanted, free // (PARTS_PER_WORKER * living)))
            account.allowed += more
        self.write()
        return self._part(account, recalled=bool(self._needs) and not more and not is_next)

    def note(self, worker: int, report: AmountReport) -> None:
        """Note the report of a worker that gets no more. Raises `OSError`."""
        self._read(worker, report)
        self.write()

    def recall(self, worker: int) -> AmountPart | None:
        """Return what to send to a worker that the driver is going to end."""
        account = self._accounts.get(worker)
        return None if account is None else self._part(account, recalled=True)

    def lose(self, worker: int, rows: set[LineId]) -> None:
        """Note that a worker was given up: what it was given counts as spent, as long as it may still spend it.

        rows: the ids of the rows that it has not answered. Without any, it spends nothing more.
        """
        self._needs.pop(worker, None)
        if not rows:
            self.settle(worker)
        elif worker in self._accounts:
            self._accounts[worker].rows = rows

    def late(self, worker: int, answered: Iterable[LineId], report: AmountReport | None) -> None:
        """Note a late reply of a worker that was given up. When it has answered all its rows, it spends nothing more.

        Raises `OSError`.
        """
        account = self._accounts.get(worker)
        if account is None or account.rows is None or report is None:
            return
        account.rows.difference_update(answered)
        if not account.rows:
            account.used = max(report.used, account.used)
            self.settle(worker)
        self.write()

    def settle(self, worker: int) -> None:
        """Note that a worker has answered all its rows, and gets no more. The rest of what it was given is free."""
        account = self._accounts.pop(worker, None)
        self._needs.pop(worker, None)
        self._settled += account.used if account is not None else 0

    def write(self) -> None:
        """Write down what workers were given and no record has, or a little more. Raises `OSError`."""
        unrecorded, spare = self._unrecorded, self._budget.usd * SPARE
        if not unrecorded <= self._noted <= unrecorded + 2 * spare:
            self._noted = max(unrecorded, min(unrecorded + spare, self._budget.usd - self._recorded))
            self._journal.note_unrecorded(self._noted)

    def close(self) -> None:
        """Write the last amount: what lost workers may have spent, and what no record has. Raises `OSError`."""
        self._journal.note_unrecorded(self._unrecorded)

    def _read(self, worker: int, report: AmountReport) -> _Account:
        account = self._accounts.setdefault(worker, _Account())
        account.allowed, account.used = report.allowed, max(report.used, account.used)
        return account

    def _part(self, account: _Account, *, recalled: bool) -> AmountPart:
        return AmountPart(account.allowed, self._limit - (self._used - account.used), recalled)

    @property
    def _unrecorded(self) -> float:
        return self._counted / UNITS_PER_USD - self._recorded
