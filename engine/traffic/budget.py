"""Budgets: reserve the largest cost of a call before it is sent, and settle the actual cost when it ended.

Knows amounts, tenants and the time that the caller passes. Must not know prices, quotas or calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, TypeAlias

from ...providers.errors import InvalidRequestError

Allowance: TypeAlias = "float | Callable[[str | None], float]"
"""An amount, or a function that takes a tenant and returns the tenant's amount."""

_ROUNDING = 1e-9


class Amounts(NamedTuple):
    """The amounts that a call uses or that a budget allows.

    usd: US dollars.
    input_tokens: tokens of the prompt.
    output_tokens: tokens of the response.
    calls: number of calls.
    """

    usd: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    calls: float = 0.0

    def plus(self, other: Amounts) -> Amounts:
        """Return the sum of both, member by member."""
        return Amounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def less(self, other: Amounts) -> Amounts:
        """Return this minus `other`, member by member."""
        return Amounts(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING = Amounts()
MEMBERS: tuple[str, ...] = Amounts._fields


@dataclass(slots=True, frozen=True, kw_only=True)
class Budget:
    """The amounts that calls may use in total.

    Each of the four amounts is a number, a function that takes a tenant and returns the tenant's number, or None for
    no limit. The function is called at the tenant's first call and again before a refusal.

    usd: US dollars.
    input_tokens: tokens of prompts.
    output_tokens: tokens of responses.
    calls: number of calls.
    per: "engine": one budget for all calls; "tenant": one for each tenant. Calls without a tenant share one.
    every: length of a window in seconds. Each window has the full amounts. None: one window without an end.
    """

    usd: Allowance | None = None
    input_tokens: Allowance | None = None
    output_tokens: Allowance | None = None
    calls: Allowance | None = None
    per: Literal["engine", "tenant"] = "engine"
    every: float | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, member) is None for member in MEMBERS):
            raise InvalidRequestError("budgets", f"a budget limits at least one of {', '.join(MEMBERS)}")
        for member in fields(self):
            value: object = getattr(self, member.name)
            if member.name != "per" and value is not None and not callable(value):
                check_allowance(member.name, value)
        if self.per not in ("engine", "tenant"):
            raise InvalidRequestError("budgets.per", f'must be "engine" or "tenant", not {self.per!r}')


def check_allowance(name: str, value: object) -> float:
    """Return `value` as a number. Raises `InvalidRequestError` if it is not a finite number of at least 0.

    name: the field of `Budget`, for the message. `every` must be above 0.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if (
        not number
        or not isinstance(value, int | float)
        or not 0 <= value < math.inf
        or (name == "every" and value == 0)
    ):
        least = "above 0" if name == "every" else "of at least 0"
        raise InvalidRequestError(f"budgets.{name}", f"must be a number {least}, not {value!r}")
    return float(value)


@dataclass(slots=True)
class Account:
    """The state of one budget for one tenant.

    budget: the budget that it counts for.
    tenant: the tenant; None for the whole engine and for calls without a tenant.
    limits: the largest amounts of a window; `math.inf` for no limit.
    began: the time at which the current window began.
    spent: the amounts that ended calls used in this window.
    reserved: the amounts that running calls have reserved.
    """

    budget: Budget
    tenant: str | None
    limits: Amounts
    began: float
    spent: Amounts = NOTHING
    reserved: Amounts = NOTHING

    def renew(self, now: float) -> None:
        """Begin the next window if the current one is over. Reserved amounts stay reserved until their calls end."""
        every = self.budget.every
        if every is not None and now - self.began >= every:
            self.began += every * math.floor((now - self.began) / every)
            self.spent = NOTHING

    def ask_again(self) -> None:
        """Call the budget's functions again for the current limits."""
        self.limits = limits_of(self.budget, self.tenant)

    def lacking(self, amounts: Amounts, *, with_reserved: bool) -> str:
        """Return the name of the first member of `amounts` that exceeds its limit; "" if all fit.

        with_reserved: count reserved amounts as spent.
        """
        taken = self.spent.plus(self.reserved) if with_reserved else self.spent
        for name, limit, used, more in zip(MEMBERS, self.limits, taken, amounts, strict=True):
            if used + more > limit * (1 + _ROUNDING):
                return name
        return ""


@dataclass(slots=True, frozen=True)
class BudgetRefusal:
    """The reason why a budget refused a call.

    member: the name of the amount that is used up.
    budget: the budget that refused.
    tenant: the tenant; None for the whole engine and for calls without a tenant.
    limit: the largest amount of the window.
    spent: the amount that ended calls used.
    reserved: the amount that running calls have reserved.
    needed: the amount that the refused call needs.
    retry_after: seconds until the next window; -1 if there is none.
    """

    member: str
    budget: Budget
    tenant: str | None
    limit: float
    spent: float
    reserved: float
    needed: float
    retry_after: float

    @property
    def message(self) -> str:
        """The refusal in words, for an error message."""
        whose = "the engine's budget" if self.budget.per == "engine" else f"the budget of tenant {self.tenant!r}"
        return (
            f"{whose} for {self.member} is spent: the call needs {self.needed:g}, of {self.limit:g} are"
            f" {self.spent:g} spent and {self.reserved:g} reserved"
        )


class Holding:
    """The amounts that one call has reserved in every budget that applies to it.

    accounts: the budgets' accounts; empty after the call was settled.
    amounts: the reserved amounts, the same in each account.
    """

    __slots__ = ("accounts", "amounts")

    def __init__(self, accounts: tuple[Account, ...], amounts: Amounts) -> None:
        self.accounts: tuple[Account, ...] = accounts
        self.amounts: Amounts = amounts


class Budgets:
    """All budgets of an engine.

    budgets: the budgets as the program gave them.
    """

    def __init__(self, budgets: tuple[Budget, ...]) -> None:
        self.budgets = budgets
        self._accounts: dict[tuple[int, str | None], Account] = {}

    def accounts(self) -> tuple[Account, ...]:
        """Return every account that exists so far, for statistics."""
        return tuple(self._accounts.values())

    def reserve(self, tenant: str | None, amounts: Amounts, now: float) -> Holding | BudgetRefusal | None:
        """Reserve the amounts of one call in every budget, or in none.

        Returns a refusal if the call cannot fit in this window. Returns None if the call does not fit now, but may fit
        when other calls end and use less than they reserved.

        amounts: the largest amounts that the call can use.
        """
        accounts = tuple(self._account(place, tenant, now) for place in range(len(self.budgets)))
        waits = False
        for account in accounts:
            if not account.lacking(amounts, with_reserved=True):
                continue
            account.ask_again()
            if account.lacking(amounts, with_reserved=True):
                waits = True
                if member := account.lacking(amounts, with_reserved=False):
                    return _refusal(account, member, amounts, now)
        if waits:
            return None
        for account in accounts:
            account.reserved = account.reserved.plus(amounts)
        return Holding(accounts, amounts)

    def settle(self, holding: Holding, used: Amounts, now: float) -> None:
        """Count the used amounts of an ended call as spent, and release its reservation. A second call does nothing."""
        for account in holding.accounts:
            account.renew(now)
            account.reserved = account.reserved.less(holding.amounts)
            account.spent = account.spent.plus(used)
        holding.accounts = ()

    def release(self, holding: Holding, now: float) -> None:
        """Release the reservation of a call that was not sent."""
        self.settle(holding, NOTHING, now)

    def next_time(self, now: float) -> float:
        """Return the time at which the next window of any budget begins; `math.inf` if there is none."""
        times = (account.began + (account.budget.every or math.inf) for account in self._accounts.values())
        return min((time for time in times if time > now), default=math.inf)

    def _account(self, place: int, tenant: str | None, now: float) -> Account:
        budget = self.budgets[place]
        whose = tenant if budget.per == "tenant" else None
        account = self._accounts.get((place, whose))
        if account is None:
            account = self._accounts[place, whose] = Account(budget, whose, limits_of(budget, whose), now)
        account.renew(now)
        return account


def limits_of(budget: Budget, tenant: str | None) -> Amounts:
    """Return a tenant's limits; `math.inf` for a member that the budget does not limit.

    Raises `InvalidRequestError` if a function of the budget returns something that is not an amount.
    """
    limits: list[float] = []
    for member in MEMBERS:
        value: Allowance | None = getattr(budget, member)
        if value is None:
            limits.append(math.inf)
        else:
            limits.append(check_allowance(member, value(tenant) if callable(value) else value))
    return Amounts(*limits)


def _refusal(account: Account, member: str, amounts: Amounts, now: float) -> BudgetRefusal:
    place, every = MEMBERS.index(member), account.budget.every
    return BudgetRefusal(
        member,
        account.budget,
        account.tenant,
        account.limits[place],
        account.spent[place],
        account.reserved[place],
        amounts[place],
        -1.0 if every is None else account.began + every - now,
    )
