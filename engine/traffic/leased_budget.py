"""A budget that is shared with engines in other processes. This engine uses the amount that it was given of it.

Knows amounts. Must not know who divides the budget, nor how amounts arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .amounts import Budget

UNITS_PER_USD = 10**9
"""Amounts are whole numbers of nano-dollars: a sum of fractions would drift."""


def units(dollars: float) -> int:
    """Return US dollars as nano-dollars."""
    return round(dollars * UNITS_PER_USD)


class AmountLease:
    """What an engine may use of a shared budget, in nano-dollars. All methods are for the engine's own thread.

    allowed: what calls may use and reserve in total, ended calls included.
    most: what `allowed` can become at most. A call that does not fit into it is refused; others wait.
    spent: what ended calls have used.
    taken: `spent` and what running calls have reserved.
    needed: what the first waiting call adds to `taken`; 0 if no call waits for more.
    wanted: about what all waiting calls add to it.
    on_need: called when a call begins to wait for more. The owner of the lease sets it.
    """

    __slots__ = ("_on_change", "allowed", "most", "needed", "on_need", "spent", "taken", "wanted")

    def __init__(self) -> None:
        self.allowed: int = 0
        self.most: float = math.inf
        self.spent: int = 0
        self.taken: int = 0
        self.needed: int = 0
        self.wanted: int = 0
        self.on_need: Callable[[], None] | None = None
        self._on_change: Callable[[], None] | None = None

    @property
    def free(self) -> int:
        """What calls may reserve. It is negative if a call has used more than it had reserved."""
        return self.allowed - self.taken

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change. The engine does this."""
        self._on_change = on_change

    def change(self, allowed: int, most: float) -> None:
        """Change what the engine may use. Its owner calls this."""
        if (allowed, most) == (self.allowed, self.most):
            return
        self.allowed, self.most = allowed, most
        if self._on_change is not None:
            self._on_change()

    # --- for the account of the budget ---

    def count(self, spent: float, reserved: float) -> None:
        """Note what calls have spent and reserved, in US dollars."""
        self.spent, self.taken = units(spent), units(spent + reserved)

    def satisfy(self) -> None:
        """Note that no call waits for more, as far as is known."""
        self.needed = self.wanted = 0

    def lacks(self, dollars: float, *, ever: bool) -> bool:
        """Return whether calls may not use so many US dollars in total.

        ever: whether they never may; otherwise now.
        """
        return units(dollars) > (self.most if ever else self.allowed)

    def need(self, dollars: float, calls: int) -> None:
        """Note that a call waits for more.

        dollars: what calls have spent and reserved when it is sent, in US dollars.
        calls: the number of waiting calls.
        """
        self.needed = max(1, units(dollars) - self.taken)
        self.wanted = calls * self.needed
        if self.on_need is not None:
            self.on_need()


@dataclass(slots=True, frozen=True, kw_only=True)
class LeasedBudget(Budget):
    """A budget in US dollars of which one engine may use what it has leased: `LeasedBudget.of(lease)`.

    lease: what the engine may use.
    """

    lease: AmountLease

    @classmethod
    def of(cls, lease: AmountLease) -> LeasedBudget:
        """Return the budget of a lease."""
        return cls(usd=lambda tenant: max(0, lease.allowed) / UNITS_PER_USD, lease=lease)
