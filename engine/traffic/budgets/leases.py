"""What an engine has of budgets that it shares with others, as the accounts of its budgets see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .amounts import MEMBERS, Amounts, Budget

UNITS_PER_USD = 10**9
"""Amounts are whole numbers of nano-dollars: a sum of fractions would drift."""

SCALES = (UNITS_PER_USD, 1, 1, 1)
"""For each of `MEMBERS`: the units of one. Tokens and calls are whole."""


class AmountHolder:
    """What one engine has of one amount of a shared budget. All methods are for the engine's own thread.

    Amounts in its attributes are in units, and arguments are in what a budget counts: US dollars, tokens or calls.

    scale: the units of one.

    allowed: what calls may use and reserve in total, ended calls included.
    most: what `allowed` can become at most. A call that does not fit into it is refused; others wait.
    spent: what ended calls have used.
    taken: `spent` and what running calls have reserved.
    needed: what the first waiting call adds to `taken`; 0 if no call waits for more.
    wanted: about what all waiting calls add to it.
    on_need: called when a call begins to wait for more. The owner of the holder sets it.
    """

    def __init__(self, scale: int = UNITS_PER_USD) -> None:
        self._scale = scale
        self.allowed: int = 0
        self.most: float = math.inf
        self.spent: int = 0
        self.taken: int = 0
        self.needed: int = 0
        self.wanted: int = 0
        self.on_need: Callable[[], None] | None = None
        self._on_change: Callable[[], object] | None = None

    @property
    def free(self) -> int:
        """What calls may reserve. It is negative if a call has used more than it had reserved."""
        return self.allowed - self.taken

    def listen(self, on_change: Callable[[], object]) -> None:
        """Call `on_change` after each change. The engine does this."""
        self._on_change = on_change

    def changed(self) -> None:
        if self._on_change is not None:
            self._on_change()

    def count(self, spent: float, reserved: float) -> None:
        """Note what calls have spent and reserved."""
        self.spent, self.taken = self._units(spent), self._units(spent + reserved)

    def lacks(self, amount: float, *, ever: bool) -> bool:
        """Return whether calls may not use so much in total.

        ever: whether they never may; otherwise now.
        """
        return self._units(amount) > (self.most if ever else self.allowed)

    def need(self, amount: float, calls: int) -> None:
        """Note that a call waits for more.

        amount: what calls have spent and reserved when it is sent.
        calls: the number of waiting calls.
        """
        self.needed = max(1, self._units(amount) - self.taken)
        self.wanted = calls * self.needed
        if self.on_need is not None:
            self.on_need()

    def satisfy(self) -> None:
        """Note that no call waits for more, as far as is known."""
        self.needed = self.wanted = 0

    def _units(self, amount: float) -> int:
        return round(amount * self._scale)


class AccountLease:
    """What an engine may use of all amounts of a shared budget, for one tenant.

    members: position in `MEMBERS` → what the engine has of this amount.
    limits: what the budget allows all engines in a window; None if that is not known here.
    ends_at: the time at which the next window begins; `math.inf` if there is none.
    on_use: called when calls have used or reserved another amount. The owner of the lease sets it and the next one.
    on_forget: called when the engine needs no part of the budget any more.
    """

    __slots__ = ("ends_at", "limits", "members", "on_forget", "on_use")

    def __init__(self, members: Mapping[int, AmountHolder], limits: Amounts | None = None) -> None:
        self.members: Mapping[int, AmountHolder] = members
        self.limits: Amounts | None = limits
        self.ends_at: float = math.inf
        self.on_use: Callable[[], object] | None = None
        self.on_forget: Callable[[], None] | None = None

    @property
    def spent(self) -> Amounts | None:
        """What all engines have used in the current window, as far as is known; None if that is not known here."""
        return None

    def listen(self, on_change: Callable[[], object]) -> None:
        """Call `on_change` after each change. The engine does this."""
        for holder in self.members.values():
            holder.listen(on_change)

    def count(self, spent: Amounts, reserved: Amounts) -> None:
        """Note what calls have spent and reserved."""
        for index, holder in self.members.items():
            holder.count(spent[index], reserved[index])
        if self.on_use is not None:
            self.on_use()

    def satisfy(self) -> None:
        """Note that no call waits for more, as far as is known."""
        for holder in self.members.values():
            holder.satisfy()

    def lacking(self, taken: Amounts, more: Amounts, *, ever: bool) -> str:
        """Return the name of the first amount that calls may not use beside what is taken; "" if they may use all.

        ever: whether they never may; otherwise now.
        """
        for index, holder in self.members.items():
            if more[index] > 0 and holder.lacks(taken[index] + more[index], ever=ever):
                return MEMBERS[index]
        return ""

    def need(self, taken: Amounts, more: Amounts, calls: int) -> None:
        """Note that a call waits for more.

        taken: what calls have spent and reserved.
        more: what the first waiting call adds to it.
        calls: the number of waiting calls.
        """
        for index, holder in self.members.items():
            if more[index] > 0 and holder.lacks(taken[index] + more[index], ever=False):
                holder.need(taken[index] + more[index], calls)
            else:
                holder.satisfy()


@dataclass(slots=True, frozen=True, kw_only=True)
class LeasedBudget(Budget):
    """A budget in US dollars of which one engine may use what it has leased: `LeasedBudget.of(holder)`.

    lease: what the engine may use.
    """

    lease: AccountLease

    @classmethod
    def of(cls, holder: AmountHolder) -> LeasedBudget:
        """Return the budget of what a holder has."""
        return cls(usd=lambda tenant: holder.allowed / UNITS_PER_USD, lease=AccountLease({0: holder}))
