"""Who may spend how much: what is reserved before a call is sent and settled when it ended.

Knows amounts, tenants and the time that it is given. Must not know prices, quotas or calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, TypeAlias

from ...providers.errors import InvalidRequestError

Allowance: TypeAlias = "float | Callable[[str | None], float]"
"""An amount, or a function that gives a tenant's."""

_ROUNDING = 1e-9


class Amounts(NamedTuple):
    """What a call uses, or a budget allows. The names are those of `Budget`."""

    usd: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    calls: float = 0.0

    def plus(self, other: Amounts) -> Amounts:
        """The sum, member by member."""
        return Amounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def less(self, other: Amounts) -> Amounts:
        """The difference, member by member."""
        return Amounts(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING = Amounts()
MEMBERS: tuple[str, ...] = Amounts._fields


@dataclass(slots=True, frozen=True, kw_only=True)
class Budget:
    """What may be used in all. None: not limited by this budget.

    usd, input_tokens, output_tokens, calls: an amount, or a function that gives a tenant's; it is asked at the tenant's
        first call and again before a refusal.
    per: whose budget it is: the whole engine's, or each tenant's. Calls without a tenant share one.
    every: seconds after which it begins anew; None: never.
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
    """An amount, if it is a number from 0 on; `every` must be above 0. Raises `InvalidRequestError`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if (
        not number
        or not isinstance(value, int | float)
        or not 0 <= value < math.inf
        or (name == "every" and value == 0)
    ):
        raise InvalidRequestError(f"budgets.{name}", f"must be a number above 0, not {value!r}")
    return float(value)


@dataclass(slots=True)
class Account:
    """One budget as one tenant has it. began: when its window began."""

    budget: Budget
    tenant: str | None
    limits: Amounts
    began: float
    spent: Amounts = NOTHING
    reserved: Amounts = NOTHING

    def renew(self, now: float) -> None:
        """Begin the next window where it is time. What is reserved stays so, and is spent when its calls end."""
        every = self.budget.every
        if every is not None and now - self.began >= every:
            self.began += every * math.floor((now - self.began) / every)
            self.spent = NOTHING

    def ask_again(self) -> None:
        """Ask the functions for the limits."""
        self.limits = limits_of(self.budget, self.tenant)

    def lacking(self, amounts: Amounts, *, with_reserved: bool) -> str:
        """The first member that an amount does not fit, empty where it fits."""
        taken = self.spent.plus(self.reserved) if with_reserved else self.spent
        for name, limit, used, more in zip(MEMBERS, self.limits, taken, amounts, strict=True):
            if used + more > limit * (1 + _ROUNDING):
                return name
        return ""


@dataclass(slots=True, frozen=True)
class BudgetRefusal:
    """Why a call does not fit. member: what is spent. retry_after: seconds to the next window, -1 without one."""

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
        """For a person."""
        whose = "the engine's budget" if self.budget.per == "engine" else f"the budget of tenant {self.tenant!r}"
        return (
            f"{whose} for {self.member} is spent: the call needs {self.needed:g}, of {self.limit:g} are"
            f" {self.spent:g} spent and {self.reserved:g} reserved"
        )


class Holding:
    """What one call has reserved, in every budget that it passes."""

    __slots__ = ("accounts", "amounts")

    def __init__(self, accounts: tuple[Account, ...], amounts: Amounts) -> None:
        self.accounts: tuple[Account, ...] = accounts
        self.amounts: Amounts = amounts


class Budgets:
    """All budgets of an engine."""

    def __init__(self, budgets: tuple[Budget, ...]) -> None:
        self.budgets = budgets
        self._accounts: dict[tuple[int, str | None], Account] = {}

    def accounts(self) -> tuple[Account, ...]:
        """Every account so far, for statistics."""
        return tuple(self._accounts.values())

    def reserve(self, tenant: str | None, amounts: Amounts, now: float) -> Holding | BudgetRefusal | None:
        """Reserve for one call in every budget, or in none.

        amounts: the most that the call can use. Returns None where it does not fit now but may when other calls end
        with less than they have reserved; a refusal where that cannot be.
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
        """A call ended: what it used is spent, the rest of what it had reserved is free. Settling twice is settling
        once."""
        for account in holding.accounts:
            account.renew(now)
            account.reserved = account.reserved.less(holding.amounts)
            account.spent = account.spent.plus(used)
        holding.accounts = ()

    def release(self, holding: Holding, now: float) -> None:
        """A call was not sent: it spent nothing."""
        self.settle(holding, NOTHING, now)

    def next_time(self, now: float) -> float:
        """When the next window of a budget begins; `math.inf` where there is none."""
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
    """A tenant's limits; `math.inf` for a member that the budget does not limit."""
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
