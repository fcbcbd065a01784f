"""Budgets: reserve the largest cost of a call before it is sent, and settle the actual cost when it ended.

The sum of what was spent and what is reserved never exceeds a budget. A call that does not fit waits, but only while
running calls have reserved what it lacks: they may use less.

An amount may be a function of the program, which may start and cancel calls. So `Budgets.ask` calls all functions that
decide about a call. What follows it reads and changes the accounts, and calls none.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from ....providers.errors import InvalidRequestError
from ..queue.fair_queue import FairQueue
from ..queue.permit import Permit, PermitState
from ..statistics import BudgetStatistics
from .amounts import MEMBERS, NOTHING, Amounts, Budget, limits_of
from .leases import UNITS_PER_USD, AccountLease, LeasedBudget

_ROUNDING = 1e-9

MOST_ACCOUNTS = 1_000
"""At this number of accounts, those without any spending are removed before a new one is made."""


class Account:
    """The state of one budget for one tenant.

    budget: the budget that it counts for.
    tenant: the tenant; None for the whole engine and for calls without a tenant.
    lease: what this engine may use of a shared budget; None: the budget is its own.
    limits: the largest amounts of a window; `math.inf` for no limit.
    is_asked: whether `limits` are known: the budget's functions were asked.
    began: the time at which the current window began.
    spent: the amounts that ended calls used in this window.
    reserved: the amounts that running calls have reserved.
    holdings: the number of these reservations.
    line: the calls that wait for this account; None while none does.
    is_timed: whether `Budgets` looks at it when its window ends.
    """

    __slots__ = (
        "began",
        "budget",
        "holdings",
        "is_asked",
        "is_timed",
        "lease",
        "limits",
        "line",
        "reserved",
        "spent",
        "tenant",
    )

    def __init__(self, budget: Budget, tenant: str | None, now: float, lease: AccountLease | None = None) -> None:
        self.budget: Budget = budget
        self.tenant: str | None = tenant
        self.lease: AccountLease | None = budget.lease if isinstance(budget, LeasedBudget) else lease
        self.limits: Amounts = NOTHING
        self.is_asked: bool = False
        self.began: float = now
        self.spent: Amounts = NOTHING
        self.reserved: Amounts = NOTHING
        self.holdings: int = 0
        self.line: FairQueue | None = None
        self.is_timed: bool = False

    @property
    def waiting(self) -> int:
        """The number of calls that wait for this account."""
        return 0 if self.line is None else self.line.length

    @property
    def ends_at(self) -> float:
        """The time at which the next window begins; `math.inf` if there is none."""
        if self.lease is not None:
            return self.lease.ends_at
        return math.inf if self.budget.every is None else self.began + self.budget.every

    @property
    def is_unused(self) -> bool:
        """True if a new account would be the same."""
        return self.spent == NOTHING and not self.holdings and not self.waiting

    def renew(self, now: float) -> bool:
        """Begin the next window if the current one is over. Reserved amounts stay reserved until their calls end.

        The keeper of a shared budget begins its windows. Here, `spent` is a total that only grows then.
        """
        every = self.budget.every
        if every is None or now < self.ends_at or self.lease is not None:
            return False
        self.began = now - math.fmod(now - self.began, every)
        if self.ends_at <= now:
            self.began = now  # the sum above was rounded
        self.spent = NOTHING
        return True

    def ask(self) -> None:
        """Call the budget's functions for the current limits."""
        self.limits = limits_of(self.budget, self.tenant)
        self.is_asked = True

    def figures(self, now: float) -> BudgetStatistics:
        """Return the account in figures."""
        left = -1.0 if self.budget.every is None else max(0.0, self.ends_at - now)
        return BudgetStatistics(self.budget, self.tenant, self.limits, self._used, self.reserved, self.waiting, left)

    @property
    def _used(self) -> Amounts:
        """What ended calls used in this window: of all engines, if the budget is shared and its keeper says it."""
        return self.spent if self.lease is None or self.lease.spent is None else self.lease.spent

    def lacking(self, amounts: Amounts, *, with_reserved: bool) -> str:
        """Return the name of the first member of `amounts` that exceeds its limit; "" if all fit.

        with_reserved: count reserved amounts as spent. Without them, a shared budget allows what it may ever allow.
        """
        taken = self.spent.plus(self.reserved) if with_reserved else self.spent
        if self.lease is not None:
            return self.lease.lacking(taken, amounts, ever=not with_reserved)
        for name, limit, used, more in zip(MEMBERS, self.limits, taken, amounts, strict=True):
            if more > 0 and used + more > limit * (1 + _ROUNDING):
                return name
        return ""

    def reserve(self, amounts: Amounts) -> None:
        """Reserve the amounts of one call."""
        self.reserved = self.reserved.plus(amounts)
        self.holdings += 1
        if self.lease is not None:
            self.lease.count(self.spent, self.reserved)
            self.lease.satisfy()

    def settle(self, reserved: Amounts, used: Amounts) -> None:
        """Replace the reservation of one call by what it used."""
        self.spent = self.spent.plus(used)
        self.holdings -= 1
        # Exactly nothing remains of the last one, whatever was rounded.
        self.reserved = self.reserved.less(reserved) if self.holdings else NOTHING
        if self.lease is not None:
            self.lease.count(self.spent, self.reserved)

    def keep_waiting(self, now: float) -> None:
        """Note that the next call of the line does not fit now."""
        permit = None if self.line is None or self.lease is None else self.line.first(now)
        if permit is not None and self.lease is not None:
            self.lease.need(self.spent.plus(self.reserved), _claim_of(permit).amounts, self.waiting)


class BudgetRefusal:
    """The reason why a budget refused a call.

    member: the name of the amount that does not fit.
    budget: the budget that refused.
    tenant: the tenant; None for the whole engine and for calls without a tenant.
    limit: the largest amount of the window.
    spent: the amount that ended calls used.
    reserved: the amount that running calls have reserved.
    needed: the amount that the refused call may use.
    retry_after: seconds until the next window; -1 if there is none.
    """

    __slots__ = ("budget", "limit", "member", "needed", "reserved", "retry_after", "spent", "tenant")

    def __init__(self, account: Account, member: str, amounts: Amounts, now: float) -> None:
        place = MEMBERS.index(member)
        self.member: str = member
        self.budget: Budget = account.budget
        self.tenant: str | None = account.tenant
        lease = account.lease
        self.limit: float = account.limits[place]
        if lease is not None and lease.limits is None:
            self.limit = lease.members[place].most / UNITS_PER_USD
        self.spent: float = account.figures(now).spent[place]
        self.reserved: float = account.reserved[place]
        self.needed: float = amounts[place]
        self.retry_after: float = -1.0 if account.budget.every is None else max(0.0, account.ends_at - now)

    @property
    def message(self) -> str:
        """The refusal in words, for an error message."""
        window = "" if self.budget.every is None else f" in {self.budget.every:g} s"
        return (
            f"{whose(self.budget, self.tenant)} allows {self.limit:g} {self.member}{window}: {self.spent:g} are spent,"
            f" {self.reserved:g} are reserved, and this call may use {self.needed:g}"
        )


def whose(budget: Budget, tenant: str | None) -> str:
    """Return the name of a tenant's share of a budget, for messages."""
    return "the engine's budget" if budget.per == "engine" else f"the budget of tenant {tenant!r}"


class Holding:
    """The amounts that one call has reserved in every budget that applies to it.

    accounts: the budgets' accounts; empty after the call was settled.
    amounts: the reserved amounts, the same in each account.
    """

    __slots__ = ("accounts", "amounts")

    def __init__(self, accounts: tuple[Account, ...], amounts: Amounts) -> None:
        self.accounts: tuple[Account, ...] = accounts
        self.amounts: Amounts = amounts


Outcome: TypeAlias = Holding | BudgetRefusal | InvalidRequestError
"""What became of a claim. The error is that of a function of the budget."""


class Claim:
    """A call that waits for a reservation.

    amounts: the largest amounts that it can use.
    permit: its place in a line; its `owner` is the claim.
    account: the account in whose line it is; None while it does not wait.
    owner: an object of the caller, such as the call.
    """

    __slots__ = ("account", "amounts", "owner", "permit")

    def __init__(self, amounts: Amounts, permit: Permit, owner: object = None) -> None:
        self.amounts: Amounts = amounts
        self.permit: Permit = permit
        self.account: Account | None = None
        self.owner: object = owner
        permit.owner = self

    @property
    def waiting_for(self) -> str:
        """What the call waits for, and how many others are ahead, in words; empty if it does not wait."""
        account = self.account
        if account is None or account.line is None:
            return ""
        member = account.lacking(self.amounts, with_reserved=True) or "its turn"
        shared = "" if account.lease is None else "a part of "
        ahead = int(account.line.place(self.permit)[0])
        name = whose(account.budget, account.tenant)
        return f"{member} of {shared}{name}, reserved by {account.holdings} calls, {ahead} ahead"


class BudgetsState:
    """All budgets of an engine, and the calls that wait for one of them.

    budgets: the budgets as the program gave them.
    lease_of: returns the lease on a shared budget (its position) for a tenant; None: the budgets are this engine's own.
    on_lease: called with an account when its lease has changed.
    """

    def __init__(
        self,
        budgets: tuple[Budget, ...],
        lease_of: Callable[[int, str | None], AccountLease] | None = None,
        on_lease: Callable[[Account], None] | None = None,
    ) -> None:
        self.budgets = budgets
        self._lease_of = lease_of
        self._on_lease = on_lease
        self._accounts: dict[tuple[int, str | None], Account] = {}
        self._most = MOST_ACCOUNTS
        self._changed: dict[Account, None] = {}  # accounts with a line, whose next call may fit now, or never
        self._windows: list[tuple[float, int, Account]] = []  # of accounts with a line, by the end of their window
        self._numbers = itertools.count()  # so that the accounts themselves are never compared

    def accounts(self) -> list[Account]:
        """Return every account whose limits are known."""
        return [account for account in self._accounts.values() if account.is_asked]

    # --- before a call is sent ---

    def ask(self, tenant: str | None, amounts: Amounts, now: float) -> tuple[Account, ...]:
        """Return the account of each budget for a tenant, after the budgets' functions were asked: for the limits that
        are not known yet, and again for those that a call exceeds.

        amounts: what the call may use.

        Raises `InvalidRequestError` if a function raises or returns something that is not an amount.
        """
        keys = [(place, tenant if budget.per == "tenant" else None) for place, budget in enumerate(self.budgets)]
        if len(self._accounts) >= self._most and any(key not in self._accounts for key in keys):
            self._forget_unused(now)
        asked: set[Account] = set()
        while True:
            accounts = tuple(self._account(key, now) for key in keys)
            unsure = (
                account
                for account in accounts
                if account not in asked and not (account.is_asked and not account.lacking(amounts, with_reserved=False))
            )
            account = next(unsure, None)
            if account is None:
                return accounts
            asked.add(account)
            account.ask()

    def refusal(self, tenant: str | None, amounts: Amounts, now: float) -> BudgetRefusal | None:
        """Return why a call cannot fit in this window, whatever running calls leave over; None if it may fit. Raises as
        `ask` does."""
        return _never(self.ask(tenant, amounts, now), amounts, now)

    def reserve(self, tenant: str | None, amounts: Amounts, now: float) -> Holding | BudgetRefusal | Account:
        """Reserve the amounts of one call in every budget, or in none.

        Returns a refusal if the call cannot fit in this window. Returns an account for which it may `wait`, if it does
        not fit now, but may fit when other calls end and use less than they reserved, or if others have waited for that
        before.

        amounts: the largest amounts that the call can use.

        Raises as `ask` does.
        """
        return self._decide(self.ask(tenant, amounts, now), amounts, now, is_new=True)

    def wait(self, claim: Claim, account: Account) -> None:
        """Let a call wait for an account, behind the others. `next` returns it when it fits, or never can."""
        self._stand(claim, account, at_head=False)
        self._changed[account] = None

    def leave(self, claim: Claim) -> None:
        """Remove a call from the line in which it waits. May be called again."""
        account = claim.account
        if account is None:
            return
        claim.account = None
        assert account.line is not None
        if claim.permit.state is PermitState.QUEUED:
            account.line.remove(claim.permit)
        if account.line.length:
            self._changed[account] = None
        else:
            account.line = None
            if account.lease is not None:
                account.lease.satisfy()
            self._changed.pop(account, None)

    def next(self, now: float) -> tuple[Claim, Outcome] | None:
        """Take the next waiting call that fits now, or can no longer fit; None if all others must wait on."""
        while self.next_time() <= now:
            account = self._windows[0][2]
            self._renew(account, now)
            heapq.heapreplace(self._windows, (account.ends_at, next(self._numbers), account))
        while self._changed:
            account = next(iter(self._changed))
            permit = None if account.line is None else account.line.first(now)
            if permit is None:
                del self._changed[account]
                continue
            claim = _claim_of(permit)
            try:
                accounts = self.ask(permit.tenant, claim.amounts, now)
            except InvalidRequestError as error:
                if claim.account is None:
                    continue
                self.leave(claim)
                return claim, error
            if claim.account is None:
                continue  # a function of a budget has ended the call
            found = self._decide(accounts, claim.amounts, now)
            if found is account:
                del self._changed[account]
                account.keep_waiting(now)
                continue
            if isinstance(found, Holding):
                assert account.line is not None
                account.line.take(now)
                permit.state = PermitState.ENDED
            self.leave(claim)
            if not isinstance(found, Account):
                return claim, found
            self._stand(claim, found, at_head=True)
            found.keep_waiting(now)
        return None

    def lease_changed(self, budget: Budget) -> None:
        """Note that an engine may use another part of a shared budget."""
        for account in self._accounts.values():
            if account.budget is budget:
                account.ask()
                if account.line is not None:
                    self._changed[account] = None

    def account_changed(self, account: Account) -> None:
        """Note that the engine may use another part of the shared budget of an account."""
        if account.line is not None:
            self._changed[account] = None

    def next_time(self) -> float:
        """Return the time at which a waiting call may fit although no call has ended; `math.inf`: at no set time."""
        while self._windows and self._windows[0][2].line is None:
            heapq.heappop(self._windows)[2].is_timed = False
        return self._windows[0][0] if self._windows else math.inf

    @property
    def has_changed(self) -> bool:
        """True if `next` should be called, because an account changed for which calls wait."""
        return bool(self._changed)

    # --- after a call was sent ---

    def settle(self, holding: Holding, used: Amounts, now: float) -> None:
        """Count the used amounts of an ended call as spent, and release its reservation. A second call does nothing."""
        for account in holding.accounts:
            self._renew(account, now)
            account.settle(holding.amounts, used)
            if account.line is not None:
                self._changed[account] = None
        holding.accounts = ()

    def release(self, holding: Holding, now: float) -> None:
        """Release the reservation of a call that was not sent."""
        self.settle(holding, NOTHING, now)

    def statistics(self, now: float) -> tuple[BudgetStatistics, ...]:
        """Return the figures of every account at the time `now`."""
        found: list[BudgetStatistics] = []
        for account in self.accounts():
            self._renew(account, now)
            found.append(account.figures(now))
        return tuple(found)

    # --- shared by the methods above ---

    @staticmethod
    def _decide(
        accounts: tuple[Account, ...], amounts: Amounts, now: float, *, is_new: bool = False
    ) -> Holding | BudgetRefusal | Account:
        """Reserve the amounts, or return why not: a refusal, or the account for which the call must wait.

        accounts: those that `ask` has returned.
        is_new: it is behind all calls that wait.
        """
        refusal = _never(accounts, amounts, now)
        if refusal is not None:
            return refusal
        for account in accounts:
            if (is_new and account.line) or account.lacking(amounts, with_reserved=True):
                return account
        for account in accounts:
            account.reserve(amounts)
        return Holding(accounts, amounts)

    def _stand(self, claim: Claim, account: Account, *, at_head: bool) -> None:
        if account.line is None:
            account.line = FairQueue()
        if not account.is_timed and account.budget.every is not None and account.lease is None:
            account.is_timed = True
            heapq.heappush(self._windows, (account.ends_at, next(self._numbers), account))
        account.line.add(claim.permit, at_head=at_head)
        claim.account = account

    def _account(self, key: tuple[int, str | None], now: float) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = self._new_account(key[0], key[1], now)
        else:
            self._renew(account, now)
        return account

    def _new_account(self, place: int, tenant: str | None, now: float) -> Account:
        budget = self.budgets[place]
        if self._lease_of is None:
            return Account(budget, tenant, now)
        account = Account(budget, tenant, now, self._lease_of(place, tenant))
        if account.lease is not None and self._on_lease is not None:
            account.lease.listen(partial(self._on_lease, account))
        return account

    def _renew(self, account: Account, now: float) -> None:
        """Begin the next window of an account if it is due. More may fit then."""
        if account.renew(now) and account.line is not None:
            self._changed[account] = None

    def _forget_unused(self, now: float) -> None:
        """Remove the accounts without spending, so that tenants' names from untrusted input do not fill the memory."""
        for account in self._accounts.values():
            account.renew(now)
        for account in self._accounts.values():
            if account.is_unused and account.lease is not None and account.lease.on_forget is not None:
                account.lease.on_forget()
        self._accounts = {key: account for key, account in self._accounts.items() if not account.is_unused}
        self._most = max(MOST_ACCOUNTS, 2 * len(self._accounts))


def _never(accounts: tuple[Account, ...], amounts: Amounts, now: float) -> BudgetRefusal | None:
    """Return why the amounts cannot fit in this window, whatever running calls leave over; None if they may fit."""
    for account in accounts:
        member = account.lacking(amounts, with_reserved=False)
        if member:
            return BudgetRefusal(account, member, amounts, now)
    return None


def _claim_of(permit: Permit) -> Claim:
    assert isinstance(permit.owner, Claim)
    return permit.owner
