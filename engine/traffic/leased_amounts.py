"""Leases on budgets: a keeper gives amounts that can be used once, such as dollars, to holders in several processes.

A holder may use what it was given, and asks for more before that is used up. Both sides count totals that only grow:
what the keeper gave, what the holder used, and what it returned. So a message that is lost, repeated or late does no
harm: the highest total is the current one.

The keeper's caller writes down what is given before it sends it. After a restart, a new keeper counts what was written
down as used. A keeper counts what a dead holder was given as used, until all answers of that holder are known.

When less is free than a holder needs, the keeper asks the other holders to return what no call has reserved, and gives
it to the holder that has waited longest. So the rest of a budget is never left in parts that are too small for a call.

From top to bottom: what an engine uses, the messages, the keeper and a holder. The callers carry the messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .budgets.amounts import Budget

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


PARTS_PER_HOLDER = 2
"""A gift is at most the free amount, divided by so many times the number of holders, unless a single call needs more.
So the last part of a budget is given in small amounts, and little of it lies unused at holders."""


@dataclass(slots=True, frozen=True)
class Gift:
    """What the keeper sends to a holder.

    holder: the holder's name.
    total: all that the holder was given so far.
    most: the most that the holder may ever use: the limit without what others have used.
    recalled: whether the holder returns what no call has reserved, because others wait for it. Never with a new amount.
    """

    holder: str
    total: int
    most: int
    recalled: bool = False


@dataclass(slots=True, frozen=True)
class AmountReport:
    """What a holder sends to the keeper.

    holder: the holder's name.
    given: all that the holder knows it was given. The keeper gives no more while a gift is on its way.
    used: all that it has used so far.
    returned: all that it has returned so far.
    needed: the amount that its next call needs beyond what it has; 0 if it needs none.
    wanted: about the amount that all its waiting calls need; at least `needed`.
    """

    holder: str
    given: int = 0
    used: int = 0
    returned: int = 0
    needed: int = 0
    wanted: int = 0


@dataclass(slots=True)
class _Account:
    given: int = 0
    used: int = 0
    returned: int = 0

    @property
    def counted(self) -> int:
        """What counts against the budget: all that was given and not returned, the used part included."""
        return max(self.given - self.returned, self.used)


class AmountKeeper:
    """The keeper of one budget. Amounts are whole numbers of a unit that the caller chooses, such as nano-dollars.

    limit: the largest amount that all holders together may use.
    used: what was used before.

    counted: what was used, given to holders, or lost with them. The caller writes it down before it sends a gift.
    used: what was used, as far as holders have reported it, and what was lost with holders.
    lost: what was given to holders that have died, and not reported as used.
    """

    def __init__(self, limit: int, used: int = 0) -> None:
        self.limit = limit
        self.counted: int = used
        self.used: int = used
        self.lost: int = 0
        self._accounts: dict[str, _Account] = {}
        self._dead: dict[str, _Account] = {}
        self._ended: set[str] = set()
        self._needs: dict[str, None] = {}
        """the holders that need more than is free, the one that has waited longest first"""

    def __repr__(self) -> str:
        return f"<AmountKeeper {self.used:,} used, {self.counted:,} counted of {self.limit:,}>"

    @property
    def free(self) -> int:
        """The amount that was not given to any holder."""
        return self.limit - self.counted

    def report(self, report: AmountReport) -> Gift | None:
        """Note a holder's totals, and return what to send; None for a holder that has died or ended."""
        account, holder = self.note(report), report.holder
        if account is None:
            return None
        if report.needed > 0:
            self._needs.setdefault(holder)
        else:
            self._needs.pop(holder, None)
        if report.given == account.given and self._is_next(holder) and report.needed <= self.free:
            self._needs.pop(holder, None)
            part = self.free // (PARTS_PER_HOLDER * len(self._accounts))
            before = account.counted
            account.given += max(report.needed, min(report.wanted, part))
            self.counted += account.counted - before
        knows_all = report.given == account.given
        return self._gift(holder, account, recalled=knows_all and bool(self._needs) and not self._is_next(holder))

    def note(self, report: AmountReport) -> _Account | None:
        """Note a holder's totals, and give nothing. Returns None for a holder that has died or ended."""
        holder = report.holder
        if holder in self._dead or holder in self._ended:
            return None
        account = self._accounts.setdefault(holder, _Account())
        before, used_before = account.counted, account.used
        account.returned = min(max(report.returned, account.returned), account.given)
        account.used = max(report.used, account.used)
        self.counted += account.counted - before
        self.used += account.used - used_before
        return account

    def lose(self, holder: str) -> None:
        """Note that a holder has died: what it was given counts as used."""
        self._needs.pop(holder, None)
        account = self._accounts.pop(holder, None)
        if account is not None:
            self._dead[holder] = account
            self.used += account.counted - account.used
            self.lost += account.counted - account.used

    def settle(self, holder: str, used: int) -> None:
        """Note what a holder has used in all: every answer of it is known, and it makes no more calls. The rest of what
        it was given is free again. The holder may have died before."""
        self._needs.pop(holder, None)
        account = self._dead.pop(holder, None)
        if account is not None:
            self.used -= account.counted - account.used
            self.lost -= account.counted - account.used
        else:
            account = self._accounts.pop(holder, None)
        if account is not None:
            used = max(used, account.used)
            self.used += used - account.used
            self.counted += used - account.counted
        self._ended.add(holder)

    def recall(self, holder: str) -> Gift | None:
        """Return what to send to a holder that is going to end, so that it returns what no call has reserved."""
        account = self._accounts.get(holder)
        return None if account is None else self._gift(holder, account, recalled=True)

    def _is_next(self, holder: str) -> bool:
        """Return whether the holder needs more and has waited longest."""
        return next(iter(self._needs), None) == holder

    def _gift(self, holder: str, account: _Account, *, recalled: bool) -> Gift:
        return Gift(holder, account.given, self.limit - (self.used - account.used), recalled)


class AmountHolder:
    """A holder of a part of a budget, which an engine uses.

    name: the holder's name. It must be new for each process.

    lease: what the engine may use. The engine counts in it what its calls have used and reserved.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lease: AmountLease = AmountLease()
        self._given = 0
        self._returned = 0

    def __repr__(self) -> str:
        lease = self.lease
        return f"<AmountHolder {self.name} {lease.spent:,} used, {lease.taken:,} taken, {lease.free:,} free>"

    def receive(self, gift: Gift) -> None:
        """Note what the keeper has sent, and let the engine use it."""
        is_late = gift.total < self._given
        self._given = max(self._given, gift.total)
        free = self._given - self._returned - self.lease.taken
        if gift.recalled and free > 0 and not is_late:
            self._returned += free
        self.lease.change(self._given - self._returned, self.lease.most if is_late else gift.most)

    def report(self) -> AmountReport:
        """Return the totals for the keeper. Send them regularly: an earlier report may have been lost."""
        lease = self.lease
        needed = max(0, lease.needed - lease.free) if lease.needed else 0
        wanted = max(needed, lease.wanted - lease.free) if needed else 0
        return AmountReport(self.name, self._given, lease.spent, self._returned, needed, wanted)
