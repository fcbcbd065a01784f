"""Amounts that calls use, and budgets of them as a program declares them. Values and their checks only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias

from ....providers.errors import InvalidRequestError
from ....providers.model.rules import described

Allowance: TypeAlias = float | Callable[[str | None], float]
"""An amount, or a function that takes a tenant and returns the tenant's amount."""


class Amounts(NamedTuple):
    """The amounts that calls use or that a budget allows.

    usd: US dollars.
    input_tokens: tokens of prompts.
    output_tokens: tokens of responses, with thinking.
    calls: number of calls.
    """

    usd: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    calls: float = 0.0

    def plus(self, other: Amounts) -> Amounts:
        """Return the sum of both, member by member."""
        return Amounts(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])

    def less(self, other: Amounts) -> Amounts:
        """Return this minus `other`, member by member."""
        return Amounts(self[0] - other[0], self[1] - other[1], self[2] - other[2], self[3] - other[3])


NOTHING = Amounts()
MEMBERS: tuple[str, ...] = Amounts._fields


@dataclass(slots=True, frozen=True, kw_only=True)
class Budget:
    """The amounts that calls may use in total. A call that does not fit is not sent.

    Each of the four amounts is a number above 0, a function that takes a tenant and returns the tenant's number (from 0
    to `math.inf`), or None for no limit. A function is called at the tenant's first call and again before a refusal.

    usd: US dollars. They need `Traffic(price=…)`.
    input_tokens: tokens of prompts.
    output_tokens: tokens of responses, with thinking.
    calls: number of calls.
    per: `engine`: one budget for all calls. `tenant`: one for each tenant. Calls without a tenant share one.
    every: length of a window in seconds. Each window has the full amounts. None: one window without an end.

    Raises `InvalidRequestError` for a wrong value.
    """

    usd: Allowance | None = None
    input_tokens: Allowance | None = None
    output_tokens: Allowance | None = None
    calls: Allowance | None = None
    per: Literal["engine", "tenant"] = "engine"
    every: float | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, member) is None for member in MEMBERS):
            raise InvalidRequestError("budget", f"must limit at least one of {', '.join(MEMBERS)}")
        for name in (*MEMBERS, "every"):
            value: object = getattr(self, name)
            if value is None or (callable(value) and name != "every"):
                continue
            number = amount_of(value)
            if number is None or not 0 < number < math.inf:
                raise InvalidRequestError(f"budget.{name}", f"must be a number above 0, not {described(value)}")
        if self.per not in ("engine", "tenant"):
            raise InvalidRequestError("budget.per", f"must be 'engine' or 'tenant', not {described(self.per)}")

    def limits(self, member: str) -> bool:
        """Return whether it limits an amount, one of `MEMBERS`."""
        return getattr(self, member) is not None


def amount_of(value: object) -> float | None:
    """Return a number of at least 0 as a float, `math.inf` included; None if the value is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):  # a whole number above the largest float; a signalling NaN
        return None
    return number if number >= 0 else None


def limits_of(budget: Budget, tenant: str | None) -> Amounts:
    """Return a tenant's limits; `math.inf` for a member that the budget does not limit.

    Raises `InvalidRequestError` if a function of the budget raises or returns something that is not an amount.
    """
    limits: list[float] = []
    for member in MEMBERS:
        value: Allowance | None = getattr(budget, member)
        if callable(value):
            limits.append(_ask(value, member, tenant))
        else:
            limits.append(math.inf if value is None else float(value))
    return Amounts(*limits)


def _ask(function: Callable[[str | None], float], member: str, tenant: str | None) -> float:
    where = f"budget.{member}"
    try:
        value: object = function(tenant)
    except Exception as error:
        text = f"the function raised {type(error).__name__} for tenant {tenant!r}"
        raise InvalidRequestError(where, text) from error
    number = amount_of(value)
    if number is None:
        must = "must return a number of at least 0"
        raise InvalidRequestError(where, f"the function {must}, not {described(value)} (tenant {tenant!r})")
    return number


@dataclass(slots=True, frozen=True)
class BudgetStatistics:
    """One budget at one moment, for one tenant or for the whole engine.

    budget: the budget.
    tenant: the tenant; None for the whole engine and for calls without a tenant.
    limit: the largest amounts of a window; `math.inf` for an amount that is not limited.
    spent: the amounts that calls used in this window.
    reserved: the amounts that calls under way may use.
    waiting: calls that wait until others leave something over.
    ends_in: seconds until the next window; -1 if there is none.
    """

    budget: Budget
    tenant: str | None
    limit: Amounts
    spent: Amounts
    reserved: Amounts
    waiting: int = 0
    ends_in: float = -1.0
