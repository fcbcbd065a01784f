"""Leases on budgets: a keeper gives amounts that can be used once, such as dollars, to holders in several processes.

A holder may use what it was given, and asks for more before that is used up. Both sides count totals that only grow:
what the keeper gave, what the holder used, and what it returned. So a message that is lost, repeated or late does no
harm: the highest total is the current one.

The keeper's caller writes down what is given before it sends it. After a restart, a new keeper counts what was written
down as used. A keeper counts what a dead holder was given as used, until all answers of that holder are known.

When less is free than a holder needs, the keeper asks the other holders to return what no call has reserved, and gives
it to the holder that has waited longest. So the rest of a budget is never left in parts that are too small for a call.

From top to bottom: a holder, which an engine uses, the messages, and the keeper. The callers carry the messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .amounts import MEMBERS, Amounts, Budget

UNITS_PER_USD = 10**9
"""Amounts are whole numbers of nano-dollars: a sum of fractions would drift."""


def units(dollars: float) -> int:
    """Return US dollars as nano-dollars."""
    return round(dollars * UNITS_PER_USD)


SCALES = (UNITS_PER_USD, 1, 1, 1)
"""For each of `MEMBERS`: the units of one. Tokens and calls are whole."""


class AmountHolder:
    """A holder of a part of one amount of a shared budget, which one engine uses. All methods are for its own thread.

    Amounts in its attributes are in units, and arguments are in what a budget counts: US dollars, tokens or calls.

    name: the holder's name. It must be new for each process.
    scale: the units of one.

    allowed: what calls may use and reserve in total, ended calls included.
    most: what `allowed` can become at most. A call that does not fit into it is refused; others wait.
    spent: what ended calls have used.
    taken: `spent` and what running calls have reserved.
    needed: what the first waiting call adds to `taken`; 0 if no call waits for more.
    wanted: about what all waiting calls add to it.
    ahead: what it asks for before a call waits, the amount that it has and no call has reserved included.
    on_need: called when a call begins to wait for more. The owner of the holder sets it.
    """

    def __init__(self, name: str, scale: int = UNITS_PER_USD) -> None:
        self.name = name
        self._scale = scale
        self.allowed: int = 0
        self.most: float = math.inf
        self.spent: int = 0
        self.taken: int = 0
        self.needed: int = 0
        self.wanted: int = 0
        self.ahead: int = 0
        self.on_need: Callable[[], None] | None = None
        self._on_change: Callable[[], None] | None = None
        self._given = 0
        self._returned = 0

    def __repr__(self) -> str:
        return f"<AmountHolder {self.name} {self.spent:,} used, {self.taken:,} taken, {self.free:,} free>"

    @property
    def free(self) -> int:
        """What calls may reserve. It is negative if a call has used more than it had reserved."""
        return self.allowed - self.taken

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change. The engine does this."""
        self._on_change = on_change

    # --- for the keeper ---

    def receive(self, gift: Gift) -> None:
        """Note what the keeper has sent, and let the engine use it."""
        is_late = gift.total < self._given
        self._given = max(self._given, gift.total)
        free = self._given - self._returned - self.taken
        if gift.recalled and free > 0 and not is_late:
            self._returned += free
        before = self.allowed, self.most
        self.allowed, self.most = self._given - self._returned, self.most if is_late else gift.most
        if (self.allowed, self.most) != before and self._on_change is not None:
            self._on_change()

    def report(self) -> AmountReport:
        """Return the totals for the keeper. Send them regularly: an earlier report may have been lost."""
        needed = max(0, self.needed - self.free) if self.needed else 0
        wanted = max(needed, self.wanted - self.free) if needed else max(0, self.ahead - self.free)
        return AmountReport(self.name, self._given, self.spent, self._returned, needed, wanted)

    # --- for the account of the budget ---

    def count(self, spent: float, reserved: float) -> None:
        """Note what calls have spent and reserved."""
        self.spent, self.taken = self._units(spent), self._units(spent + reserved)

    def satisfy(self) -> None:
        """Note that no call waits for more, as far as is known."""
        self.needed = self.wanted = 0

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

    def _units(self, amount: float) -> int:
        return round(amount * self._scale)


class AccountLease:
    """What an engine may use of all amounts of a shared budget, for one tenant.

    members: position in `MEMBERS` → what the engine has of this amount.
    limits: what the budget allows all engines in a window; None if that is not known here.
    ends_at: the time at which the next window begins; `math.inf` if there is none.
    on_use: called when calls have used or reserved another amount. The owner of the lease sets this and the next two.
    on_need: called when a call begins to wait for more.
    on_forget: called when the engine needs no part of the budget any more.
    """

    __slots__ = ("ends_at", "limits", "members", "on_forget", "on_need", "on_use")

    def __init__(self, members: Mapping[int, AmountHolder], limits: Amounts | None = None) -> None:
        self.members: Mapping[int, AmountHolder] = members
        self.limits: Amounts | None = limits
        self.ends_at: float = math.inf
        self.on_use: Callable[[], object] | None = None
        self.on_need: Callable[[], None] | None = None
        self.on_forget: Callable[[], None] | None = None

    @property
    def spent(self) -> Amounts | None:
        """What all engines have used in the current window, as far as is known; None if the keeper does not say."""
        return None

    def listen(self, on_change: Callable[[], None]) -> None:
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
        has_waited = any(holder.needed for holder in self.members.values())
        for holder in self.members.values():
            holder.satisfy()
        if has_waited and self.on_use is not None:
            self.on_use()

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
        if self.on_use is not None:
            self.on_use()
        if self.on_need is not None:
            self.on_need()


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
    wanted: about the amount that all its waiting calls need, at least `needed`; if none waits, what it will need.
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
    """The keeper of one amount of a budget. Amounts are whole numbers of a unit that the caller chooses.

    limit: the largest amount that all holders together may use.
    used: what was used before.
    unknown: what an earlier keeper had given to holders that may report to this one.
    returning: whether a holder that was lost may come back, and whether those of an earlier keeper may report.
    needs: the holders that need more than is free, the one that has waited longest first. The keepers of several
        amounts of one budget have the same, so that the holder that is next gets all that it needs.

    counted: what was used, given to holders, or lost with them. The caller writes it down before it sends a gift.
    used: what was used, as far as holders have reported it, and what was lost with holders.
    lost: what was given to holders that have died, and not reported as used.
    """

    def __init__(
        self,
        limit: int,
        used: int = 0,
        *,
        unknown: int = 0,
        returning: bool = False,
        needs: dict[str, None] | None = None,
    ) -> None:
        self.limit = limit
        self.counted: int = used + unknown
        self.used: int = used
        self.lost: int = 0
        self._accounts: dict[str, _Account] = {}
        self._dead: dict[str, _Account] = {}
        self._ended: set[str] = set()
        self._unknown = unknown
        self._forgotten = 0
        """the part of `lost` that was given by an earlier keeper, to holders that did not report to this one"""
        self._returning = returning
        self._needs: dict[str, None] = {} if needs is None else needs

    def __repr__(self) -> str:
        return f"<AmountKeeper {self.used:,} used, {self.counted:,} counted of {self.limit:,}>"

    @property
    def free(self) -> int:
        """The amount that was not given to any holder."""
        return self.limit - self.counted

    @property
    def holders(self) -> KeysView[str]:
        """The holders that have reported and live."""
        return self._accounts.keys()

    @property
    def settled(self) -> int:
        """The part of `used` that no living holder has used."""
        return self.used - sum(account.used for account in self._accounts.values())

    def report(self, report: AmountReport, *, waits: bool = False, at_most: float = math.inf) -> Gift | None:
        """Note a holder's totals, and return what to send; None for a holder that has died or ended.

        waits: whether the holder needs more of another amount of this budget.
        at_most: the largest gift, unless a single call needs more.
        """
        account, holder = self.note(report), report.holder
        if account is None:
            return None
        if report.needed > 0 or waits:
            self._needs.setdefault(holder)
        else:
            self._needs.pop(holder, None)
        knows_all = report.given == account.given
        is_next = self._is_next(holder) and report.needed <= self.free if report.needed > 0 else not self._needs
        if knows_all and is_next and report.wanted > 0:
            if not waits:
                self._needs.pop(holder, None)
            part = max(0, self.free) // (PARTS_PER_HOLDER * len(self._accounts))
            before = account.counted
            account.given += max(report.needed, int(min(report.wanted, part, at_most)))
            self.counted += account.counted - before
        knows_all = report.given == account.given
        return self._gift(holder, account, recalled=knows_all and bool(self._needs) and not self._is_next(holder))

    def note(self, report: AmountReport) -> _Account | None:
        """Note a holder's totals, and give nothing. Returns None for a holder that has died or ended."""
        holder = report.holder
        if holder in self._ended or (holder in self._dead and not self._returning):
            return None
        account = self._accounts.get(holder)
        if account is None:
            account = self._accounts[holder] = self._come_back(holder, report)
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

    def lose_unknown(self) -> None:
        """Note that the holders of an earlier keeper that have not reported to this one are dead."""
        self.used += self._unknown
        self.lost += self._unknown
        self._forgotten += self._unknown
        self._unknown = 0

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
        if not self._returning:
            self._ended.add(holder)

    def recall(self, holder: str) -> Gift | None:
        """Return what to send to a holder that is going to end, so that it returns what no call has reserved."""
        account = self._accounts.get(holder)
        return None if account is None else self._gift(holder, account, recalled=True)

    def _come_back(self, holder: str, report: AmountReport) -> _Account:
        """Return the account of a holder that is new, was lost, or had an earlier keeper."""
        account = self._dead.pop(holder, None)
        if account is not None:
            self.used -= account.counted - account.used
            self.lost -= account.counted - account.used
            return account
        if not self._returning:
            return _Account()
        account = _Account(report.given, report.used, report.returned)
        known = min(account.counted, self._unknown)
        forgotten = min(account.counted - known, self._forgotten)
        self._unknown -= known
        self._forgotten -= forgotten
        self.lost -= forgotten
        self.used += account.used - forgotten
        self.counted += account.counted - known - forgotten
        return account

    def _is_next(self, holder: str) -> bool:
        """Return whether the holder needs more and has waited longest."""
        return next(iter(self._needs), None) == holder

    def _gift(self, holder: str, account: _Account, *, recalled: bool) -> Gift:
        return Gift(holder, account.given, self.limit - (self.used - account.used), recalled)


SMALL_PART = 64
"""A gift of a budget of processes on one machine is at most the limit divided by this, unless a single call needs more.
What a killed process was given and has not used is lost, and a further gift costs a millisecond."""


class AmountRecord(NamedTuple):
    """What a later keeper must know of one amount.

    limit: the limit, with what was used before the current window.
    before: what was used before the current window.
    settled: what was used, as far as it is known, by holders that have ended or are lost.
    counted: what was used or given.
    """

    limit: int
    before: int
    settled: int
    counted: int


class SharedAmounts:
    """The keeper of one budget of several processes, for one tenant.

    The amounts are totals that only grow. A new window raises the limit by what was used before it, so that a message
    of an older window does no harm.

    limits: the amounts of one window, by their positions in `MEMBERS`, in units.
    every: the length of a window in seconds; None: one window without an end.
    now: the current time.
    records: what an earlier keeper has written down, by the same positions; None if there was none.
    ends_at: the end of the window then.

    needs: the holders that need more than is free, the one that has waited longest first.
    """

    def __init__(
        self,
        limits: Mapping[int, int],
        every: float | None,
        now: float,
        records: Mapping[int, AmountRecord] | None = None,
        ends_at: float | None = None,
    ) -> None:
        self.limits = limits
        self._every = every
        self.ends_at: float = math.inf if every is None else now + every if ends_at is None else ends_at
        self.needs: dict[str, None] = {}
        self._keepers: dict[int, AmountKeeper] = {}
        self._before: dict[int, int] = {}
        for index, limit in limits.items():
            known = (records or {}).get(index) or AmountRecord(limit, 0, 0, 0)
            unknown = max(0, known.counted - known.settled)
            self._before[index] = known.before
            self._keepers[index] = AmountKeeper(
                known.limit, known.settled, unknown=unknown, returning=True, needs=self.needs
            )

    def report(self, reports: Mapping[int, AmountReport], now: float) -> dict[int, Gift]:
        """Note the totals of one holder, and return what to send. What `records` returns is written down before."""
        self._turn(now)
        needed = {index: report.needed > 0 for index, report in reports.items()}
        gifts: dict[int, Gift] = {}
        for index, report in reports.items():
            waits = any(needed[other] for other in needed if other != index)
            at_most = self.limits[index] / SMALL_PART
            gift = self._keepers[index].report(report, waits=waits, at_most=at_most)
            if gift is not None:
                gifts[index] = gift
        return gifts

    def lose(self, holder: str) -> None:
        """Note that a holder has died: what it was given counts as used."""
        for keeper in self._keepers.values():
            keeper.lose(holder)

    def lose_unknown(self) -> None:
        """Note that the holders of an earlier keeper that have not reported to this one are dead."""
        for keeper in self._keepers.values():
            keeper.lose_unknown()

    def settle(self, reports: Mapping[int, AmountReport]) -> None:
        """Note the last totals of a holder that makes no more calls."""
        for index, report in reports.items():
            self._keepers[index].note(report)
            self._keepers[index].settle(report.holder, report.used)

    @property
    def holders(self) -> set[str]:
        """The holders that have reported and live."""
        return {holder for keeper in self._keepers.values() for holder in keeper.holders}

    @property
    def next(self) -> set[str]:
        """The holder that needs more and has waited longest; empty if none does."""
        return set(list(self.needs)[:1])

    @property
    def free(self) -> list[int]:
        """The amounts that were not given to any holder."""
        return [keeper.free for keeper in self._keepers.values()]

    @property
    def spent(self) -> dict[int, int]:
        """What was used in this window, as far as holders have reported it."""
        return {index: keeper.used - self._before[index] for index, keeper in self._keepers.items()}

    @property
    def records(self) -> dict[int, AmountRecord]:
        """What a later keeper must know."""
        return {
            index: AmountRecord(keeper.limit, self._before[index], keeper.settled, keeper.counted)
            for index, keeper in self._keepers.items()
        }

    def _turn(self, now: float) -> None:
        """Begin the next window if the current one is over."""
        if self._every is None or now < self.ends_at:
            return
        self.ends_at += self._every * (1 + math.floor((now - self.ends_at) / self._every))
        for index, keeper in self._keepers.items():
            self._before[index] = keeper.used
            keeper.limit = keeper.used + self.limits[index]
