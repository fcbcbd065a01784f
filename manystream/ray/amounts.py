"""Budgets over several machines: amounts that can be used once, such as dollars, given to holders by a keeper.

A holder may use what it was given, and asks for more before that is used up. Both sides count totals that only grow:
what the keeper gave, what the holder used, and what it returned. So a message that is lost, repeated or late does no
harm: the highest total is the current one.

The keeper's caller writes each gift down before it sends it. After a restart, the keeper counts what was written down
as given. It counts what a dead holder was given as used, until all answers of that holder are known.

Knows amounts and names. Must not know prices, calls, time, or how messages travel. Rates, which can be used again each
second, are in `leases.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PARTS_PER_HOLDER = 2
"""A gift is at most the free amount, divided by so many times the number of holders. So the last part of a budget is
given in small amounts, and little of it lies unused at holders."""


@dataclass(slots=True, frozen=True)
class Gift:
    """What the keeper writes down and then sends.

    holder: the holder's name.
    total: all that the holder was given so far, this gift included.
    """

    holder: str
    total: int


@dataclass(slots=True, frozen=True)
class AmountReport:
    """What a holder sends to the keeper.

    holder: the holder's name.
    given: all that the holder knows it was given. The keeper gives no more while a gift is on its way.
    used: all that it has used so far.
    returned: all that it has returned so far.
    needed: the amount that its next call needs beyond what it has; 0 if it needs none.
    """

    holder: str
    given: int
    used: int
    returned: int
    needed: int


@dataclass(slots=True)
class _Account:
    given: int = 0
    used: int = 0
    returned: int = 0

    @property
    def held(self) -> int:
        """What counts against the budget: all that was given and not returned, the used part included."""
        return self.given - self.returned


class AmountKeeper:
    """The keeper of one budget. Amounts are whole numbers of a unit that the caller chooses, such as micro-dollars.

    limit: the largest amount that all holders together may use.
    used: what was used by holders that are not in `gifts`.
    gifts: what an earlier keeper has written down.
    """

    def __init__(self, limit: int, used: int = 0, gifts: Iterable[Gift] = ()) -> None:
        self.limit = limit
        self._committed = used
        self._accounts: dict[str, _Account] = {}
        self._settled: set[str] = set()
        for gift in gifts:
            self._give(gift)

    def __repr__(self) -> str:
        return f"<AmountKeeper {self._committed:,} of {self.limit:,} given or used>"

    @property
    def free(self) -> int:
        """The amount that was not given to any holder."""
        return self.limit - self._committed

    def report(self, report: AmountReport) -> Gift | None:
        """Note a holder's totals, and return what to write down and then to send; None if there is nothing to send.

        A call that needs more than is free gets nothing. It may fit after other holders have returned something.
        """
        if report.holder in self._settled:
            return None
        account = self._accounts.setdefault(report.holder, _Account())
        returned = min(max(report.returned, account.returned), account.given)
        self._committed -= returned - account.returned
        account.returned, account.used = returned, max(report.used, account.used)
        gift = Gift(report.holder, account.given)
        if report.given < account.given:
            return gift  # the holder has not received it yet
        if not 0 < report.needed <= self.free:
            return None
        part = self.free // (PARTS_PER_HOLDER * len(self._accounts))
        gift = Gift(report.holder, account.given + max(report.needed, part))
        self._give(gift)
        return gift

    def settle(self, holder: str, used: int) -> None:
        """Note what a holder that has ended has used in all: every answer of it is known. The rest is free again.

        Until then, all that it was given counts as used.
        """
        account = self._accounts.pop(holder, None)
        if account is not None:
            self._committed -= account.held - max(used, account.used)
        self._settled.add(holder)

    def _give(self, gift: Gift) -> None:
        account = self._accounts.setdefault(gift.holder, _Account())
        more = max(0, gift.total - account.given)
        account.given += more
        self._committed += more


class AmountHolder:
    """A holder of a part of a budget. A call reserves the most that it can cost, and settles what it has cost.

    name: the holder's name. It must be new for each process.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._given = 0
        self._used = 0
        self._reserved = 0
        self._returned = 0
        self._needed = 0

    def __repr__(self) -> str:
        return f"<AmountHolder {self.name} {self._used:,} used, {self._reserved:,} reserved, {self.free:,} free>"

    @property
    def free(self) -> int:
        """The amount that calls may reserve."""
        return self._given - self._returned - self._used - self._reserved

    def receive(self, gift: Gift) -> None:
        """Note what the keeper has given in all."""
        self._given = max(self._given, gift.total)

    def reserve(self, amount: int) -> bool:
        """Reserve an amount for a call, and return whether it fits. If it does not, the next report asks for more."""
        if amount <= self.free:
            self._reserved += amount
            self._needed = 0
            return True
        self._needed = amount
        return False

    def settle(self, reserved: int, used: int) -> None:
        """Note the end of a call that had reserved an amount, and has used another.

        A call should not use more than it has reserved. If it does, the excess counts as used nevertheless.
        """
        self._reserved -= reserved
        self._used += used

    def return_rest(self) -> None:
        """Return what is free, because no call needs it. Send a report after this."""
        self._returned += max(0, self.free)
        self._needed = 0

    def report(self) -> AmountReport:
        """Return the totals for the keeper. Send them regularly: an earlier report may have been lost."""
        needed = max(0, self._needed - self.free) if self._needed else 0
        return AmountReport(self.name, self._given, self._used, self._returned, needed)
