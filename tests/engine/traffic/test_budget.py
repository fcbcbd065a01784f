"""Budgets: they are never exceeded, in whatever order calls end."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.engine.traffic.budget import Amounts, Budget, BudgetRefusal, Budgets, Holding
from manystream.providers.errors import InvalidRequestError


def reserved(budgets: Budgets, amounts: Amounts, tenant: str | None = None, now: float = 0) -> Holding:
    holding = budgets.reserve(tenant, amounts, now)
    assert isinstance(holding, Holding)
    return holding


def test_a_thousand_calls_in_one_tick_cannot_overspend() -> None:
    budgets = Budgets((Budget(usd=1.0),))
    results = [budgets.reserve(None, Amounts(usd=0.01), 0) for _ in range(1000)]
    assert sum(isinstance(result, Holding) for result in results) == 100
    assert results[100:] == [None] * 900


def test_a_call_waits_only_if_others_could_leave_something_over() -> None:
    budgets = Budgets((Budget(output_tokens=100),))
    holding = reserved(budgets, Amounts(output_tokens=80))
    assert budgets.reserve(None, Amounts(output_tokens=50), 0) is None
    budgets.settle(holding, Amounts(output_tokens=60), 0)
    refusal = budgets.reserve(None, Amounts(output_tokens=50), 0)
    assert isinstance(refusal, BudgetRefusal)
    assert (refusal.member, refusal.limit, refusal.spent, refusal.reserved, refusal.retry_after) == (
        "output_tokens", 100, 60, 0, -1,
    )  # fmt: skip
    assert "the engine's budget for output_tokens" in refusal.message
    assert isinstance(budgets.reserve(None, Amounts(output_tokens=40), 0), Holding)


def test_each_tenant_has_its_own_and_calls_without_one_share_one() -> None:
    budgets = Budgets((Budget(calls=1, per="tenant"), Budget(calls=3)))
    for tenant in ("a", "b", None):
        budgets.settle(reserved(budgets, Amounts(calls=1), tenant), Amounts(calls=1), 0)
    refusal = budgets.reserve("a", Amounts(calls=1), 0)
    assert isinstance(refusal, BudgetRefusal)
    assert "tenant 'a'" in refusal.message
    refusal = budgets.reserve("c", Amounts(calls=1), 0)
    assert isinstance(refusal, BudgetRefusal)
    assert refusal.budget.per == "engine"
    # What did not fit everywhere is reserved nowhere.
    assert all(account.reserved == Amounts() for account in budgets.accounts())


def test_a_window_begins_anew() -> None:
    budgets = Budgets((Budget(calls=1, every=60),))
    budgets.settle(reserved(budgets, Amounts(calls=1), now=10), Amounts(calls=1), 20)
    refusal = budgets.reserve(None, Amounts(calls=1), 30)
    assert isinstance(refusal, BudgetRefusal)
    assert (refusal.retry_after, budgets.next_time(30)) == (40, 70)
    assert isinstance(budgets.reserve(None, Amounts(calls=1), 70), Holding)


def test_an_amount_may_be_a_function_called_before_a_refusal() -> None:
    plan = {"a": 1.0}
    budgets = Budgets((Budget(usd=lambda tenant: plan[str(tenant)], per="tenant"),))
    budgets.settle(reserved(budgets, Amounts(usd=1), "a"), Amounts(usd=1), 0)
    assert isinstance(budgets.reserve("a", Amounts(usd=1), 0), BudgetRefusal)
    plan["a"] = 2
    assert isinstance(budgets.reserve("a", Amounts(usd=1), 0), Holding)


def test_settling_twice_is_settling_once() -> None:
    budgets = Budgets((Budget(calls=5),))
    holding = reserved(budgets, Amounts(calls=1))
    budgets.release(holding, 0)
    budgets.settle(holding, Amounts(calls=1), 0)
    assert [(account.spent, account.reserved) for account in budgets.accounts()] == [(Amounts(), Amounts())]


@pytest.mark.parametrize(
    "options",
    [{}, {"usd": -1}, {"usd": math.nan}, {"calls": True}, {"calls": 1, "every": 0}, {"calls": 1, "per": "key"}],
)
def test_a_budget_with_junk_is_an_error(options: dict[str, float]) -> None:
    with pytest.raises(InvalidRequestError, match="budgets"):
        Budget(**options)  # type: ignore[arg-type]


@settings(derandomize=True, max_examples=200)
@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.sampled_from(["start", "start", "end", "cancel"]), st.integers(0, 300), st.integers(0, 100))),
)
def test_a_budget_is_never_exceeded_whatever_the_order_of_ends(limit: int, steps: list[tuple[str, int, int]]) -> None:
    budgets, running, spent = Budgets((Budget(output_tokens=limit),)), list[tuple[Holding, int]](), 0
    for action, number, part in steps:
        if action == "start":
            result = budgets.reserve(None, Amounts(output_tokens=number), 0)
            if isinstance(result, Holding):
                running.append((result, number))
        elif running:
            holding, most = running.pop(number % len(running))
            used = most * part // 100 if action == "end" else 0
            budgets.settle(holding, Amounts(output_tokens=used), 0)
            spent += used
        assert spent + sum(most for _, most in running) <= limit
    for holding, _ in running:
        budgets.release(holding, 0)
    assert all(account.reserved == Amounts() for account in budgets.accounts())
