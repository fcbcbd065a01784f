"""Budgets: they are never exceeded, in whatever order calls end."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.engine.traffic.budgets.amounts import Amounts, Budget
from manystream.engine.traffic.budgets.budget_state import Account, BudgetRefusal, BudgetsState, Claim, Holding
from manystream.engine.traffic.queue.permit import Permit
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.options import Priority


def reserved(budgets: BudgetsState, amounts: Amounts, tenant: str | None = None, now: float = 0) -> Holding:
    holding = budgets.reserve(tenant, amounts, now)
    assert isinstance(holding, Holding)
    return holding


def test_a_thousand_calls_in_one_tick_cannot_overspend() -> None:
    budgets = BudgetsState((Budget(usd=1.0),))
    results = [budgets.reserve(None, Amounts(usd=0.01), 0) for _ in range(1000)]
    assert sum(isinstance(result, Holding) for result in results) == 100
    assert all(isinstance(result, Account) for result in results[100:])


def test_a_call_waits_only_if_others_could_leave_something_over() -> None:
    budgets = BudgetsState((Budget(output_tokens=100),))
    holding = reserved(budgets, Amounts(output_tokens=80))
    assert isinstance(budgets.reserve(None, Amounts(output_tokens=50), 0), Account)
    budgets.settle(holding, Amounts(output_tokens=60), 0)
    refusal = budgets.reserve(None, Amounts(output_tokens=50), 0)
    assert isinstance(refusal, BudgetRefusal)
    assert (refusal.member, refusal.limit, refusal.spent, refusal.reserved, refusal.retry_after) == (
        "output_tokens", 100, 60, 0, -1,
    )  # fmt: skip
    assert refusal.message == (
        "the engine's budget allows 100 output_tokens: 60 are spent, 0 are reserved, and this call may use 50"
    )
    assert isinstance(budgets.reserve(None, Amounts(output_tokens=40), 0), Holding)


def test_each_tenant_has_its_own_and_calls_without_one_share_one() -> None:
    budgets = BudgetsState((Budget(calls=1, per="tenant"), Budget(calls=3)))
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
    budgets = BudgetsState((Budget(calls=1, every=60),))
    budgets.settle(reserved(budgets, Amounts(calls=1), now=10), Amounts(calls=1), 20)
    refusal = budgets.reserve(None, Amounts(calls=1), 30)
    assert isinstance(refusal, BudgetRefusal)
    assert refusal.retry_after == 40
    assert isinstance(budgets.reserve(None, Amounts(calls=1), 70), Holding)


def test_windows_follow_each_other_without_a_gap() -> None:
    """A window begins a whole number of windows after the first, whenever the next call comes."""
    budgets = BudgetsState((Budget(calls=1, every=60),))
    for now, left in ((10, 60), (200, 50), (249, 1), (250, 60), (1000, 30)):
        result = budgets.reserve(None, Amounts(calls=1), now)
        if now != 249:
            assert isinstance(result, Holding), now
            budgets.settle(result, Amounts(calls=1), now)
            result = budgets.reserve(None, Amounts(calls=1), now)
        assert isinstance(result, BudgetRefusal), now
        assert (result.retry_after, result.spent) == (left, 1)


def test_a_call_that_ends_in_the_next_window_is_counted_there() -> None:
    budgets = BudgetsState((Budget(calls=1, every=60),))
    holding = reserved(budgets, Amounts(calls=1), now=0)
    assert isinstance(budgets.reserve(None, Amounts(calls=1), 70), Account)
    budgets.settle(holding, Amounts(calls=1), 80)
    refusal = budgets.reserve(None, Amounts(calls=1), 90)
    assert isinstance(refusal, BudgetRefusal)
    assert (refusal.spent, refusal.reserved, refusal.needed, refusal.retry_after) == (1, 0, 1, 30)
    assert refusal.message == (
        "the engine's budget allows 1 calls in 60 s: 1 are spent, 0 are reserved, and this call may use 1"
    )


def test_an_amount_may_be_a_function_called_before_a_refusal() -> None:
    plan = {"a": 1.0}
    budgets = BudgetsState((Budget(usd=lambda tenant: plan[str(tenant)], per="tenant"),))
    budgets.settle(reserved(budgets, Amounts(usd=1), "a"), Amounts(usd=1), 0)
    assert isinstance(budgets.reserve("a", Amounts(usd=1), 0), BudgetRefusal)
    plan["a"] = 2
    assert isinstance(budgets.reserve("a", Amounts(usd=1), 0), Holding)


def test_settling_twice_is_settling_once() -> None:
    budgets = BudgetsState((Budget(calls=5),))
    holding = reserved(budgets, Amounts(calls=1))
    budgets.release(holding, 0)
    budgets.settle(holding, Amounts(calls=1), 0)
    assert [(account.spent, account.reserved) for account in budgets.accounts()] == [(Amounts(), Amounts())]


JUNK: list[dict[str, object]] = [
    {},
    {"usd": 0},
    {"usd": -1},
    {"usd": math.nan},
    {"usd": math.inf},
    {"usd": "5"},
    {"calls": True},
    {"calls": 10**400},
    {"input_tokens": [1]},
    {"calls": 1, "every": 0},
    {"calls": 1, "every": -1},
    {"calls": 1, "every": math.inf},
    {"calls": 1, "every": math.cos},
    {"calls": 1, "per": "key"},
    {"calls": 1, "per": ["tenant"]},
]


@pytest.mark.parametrize("options", JUNK, ids=str)
def test_a_budget_with_junk_is_an_error(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match=r"^budget") as caught:
        Budget(**options)  # type: ignore[arg-type]
    assert caught.value.field in {f"budget.{name}" for name in options} | {"budget"}


def broken(tenant: str | None) -> float:
    raise KeyError(tenant)


def returns(value: object) -> Callable[[str | None], object]:
    return lambda tenant: value


@pytest.mark.parametrize("function", [broken, *map(returns, (-1, math.nan, "5", None))])
def test_a_function_that_returns_no_amount_is_an_error(function: Callable[[str | None], float]) -> None:
    budgets = BudgetsState((Budget(calls=1), Budget(usd=function, per="tenant")))
    with pytest.raises(InvalidRequestError, match=r"budget\.usd: the function .*tenant 'a'"):
        budgets.reserve("a", Amounts(usd=1), 0)
    assert [account.reserved for account in budgets.accounts()] == [Amounts()]


def test_a_function_may_return_nothing_or_no_limit() -> None:
    plans = {"free": 0.0, "unlimited": math.inf}
    budgets = BudgetsState((Budget(usd=lambda tenant: plans[str(tenant)], per="tenant"),))
    assert isinstance(budgets.reserve("free", Amounts(usd=1e-6), 0), BudgetRefusal)
    assert isinstance(budgets.reserve("free", Amounts(calls=1), 0), Holding)  # a call that costs nothing
    assert isinstance(budgets.reserve("unlimited", Amounts(usd=1e9), 0), Holding)


def waiting(amounts: Amounts, tenant: str | None = None, *, priority: Priority = Priority.NORMAL) -> Claim:
    return Claim(amounts, Permit(amounts.output_tokens, None, priority=priority, tenant=tenant))


def claim(budgets: BudgetsState, claim: Claim, now: float) -> Holding | BudgetRefusal | None:
    """Reserve, or wait and return None."""
    found = budgets.reserve(claim.permit.tenant, claim.amounts, now)
    if not isinstance(found, Account):
        return found
    budgets.wait(claim, found)
    return None


def test_waiting_calls_go_in_the_order_of_priority_and_by_tenants() -> None:
    budgets = BudgetsState((Budget(output_tokens=100),))
    holding = reserved(budgets, Amounts(output_tokens=100))
    claims = [
        waiting(Amounts(output_tokens=10), "a"),
        waiting(Amounts(output_tokens=10), "a"),
        waiting(Amounts(output_tokens=10), "b"),
        waiting(Amounts(output_tokens=10), "c", priority=Priority.INTERACTIVE),
    ]
    assert [claim(budgets, each, 0) for each in claims] == [None] * 4
    assert budgets.next(0) is None
    budgets.settle(holding, Amounts(output_tokens=65), 0)
    order: list[int] = []
    while found := budgets.next(0):
        assert isinstance(found[1], Holding)
        order.append(claims.index(found[0]))
    assert order == [3, 0, 2]
    assert claims[1].waiting_for == "output_tokens of the engine's budget, reserved by 3 calls, 0 ahead"
    assert claim(budgets, waiting(Amounts(output_tokens=1)), 0) is None  # a smaller one does not overtake it
    budgets.leave(claims[1])
    found = budgets.next(0)
    assert found is not None
    assert isinstance(found[1], Holding)


def test_a_call_that_can_no_longer_fit_is_refused_while_it_waits() -> None:
    budgets = BudgetsState((Budget(calls=5), Budget(output_tokens=100)))
    holding = reserved(budgets, Amounts(output_tokens=100, calls=1))
    waits = waiting(Amounts(output_tokens=10, calls=1))
    assert claim(budgets, waits, 0) is None
    budgets.settle(holding, Amounts(output_tokens=95, calls=1), 0)
    found = budgets.next(0)
    assert found is not None
    assert found[0] is waits
    assert isinstance(found[1], BudgetRefusal)
    assert [(account.waiting, account.holdings) for account in budgets.accounts()] == [(0, 0), (0, 0)]


def test_a_waiting_call_goes_when_the_next_window_begins() -> None:
    budgets = BudgetsState((Budget(calls=1, every=60),))
    reserved(budgets, Amounts(calls=1))
    waits = waiting(Amounts(calls=1))
    assert (claim(budgets, waits, 30), budgets.next_time()) == (None, 60)
    assert budgets.next(60) is None  # what was reserved stays reserved
    assert budgets.next(120) is None
    assert budgets.next_time() == 180
    budgets.leave(waits)
    assert budgets.next_time() == math.inf


@pytest.mark.parametrize("every", [0.1, 0.3, 1 / 3, 7.7])
def test_windows_begin_at_the_time_that_was_said(every: float) -> None:
    """A sum of times is rounded: nothing is looked at twice at the same time."""
    budgets, now = BudgetsState((Budget(calls=1, every=every),)), 1e6 / 3
    reserved(budgets, Amounts(calls=1), now=now)
    claim(budgets, waiting(Amounts(calls=1)), now)
    for _ in range(1_000):
        assert budgets.next(now) is None
        assert budgets.next_time() > now
        now = budgets.next_time()


def test_tenants_without_spending_are_forgotten() -> None:
    budgets = BudgetsState((Budget(calls=1, per="tenant"),))
    budgets.settle(reserved(budgets, Amounts(calls=1), "payer"), Amounts(calls=1), 0)
    for number in range(5_000):
        budgets.release(reserved(budgets, Amounts(calls=1), str(number)), 0)
    assert len(budgets.accounts()) <= 1_001
    assert isinstance(budgets.reserve("payer", Amounts(calls=1), 0), BudgetRefusal)


@settings(derandomize=True, max_examples=200)
@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.sampled_from(["start", "start", "end", "cancel"]), st.integers(0, 300), st.integers(0, 100))),
)
def test_a_budget_is_never_exceeded_whatever_the_order_of_ends(limit: int, steps: list[tuple[str, int, int]]) -> None:
    budgets, running, spent = BudgetsState((Budget(output_tokens=limit),)), list[tuple[Holding, int]](), 0
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


ACTIONS = ["start", "start", "end", "cancel", "leave", "window"]
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 300), st.integers(0, 100)), max_size=80)


class Program:
    """Calls of two tenants under three budgets, in any order."""

    def __init__(self, limit: int) -> None:
        self.now = 0.0
        self.limit = limit
        self.budgets = BudgetsState(
            (
                Budget(output_tokens=limit or 1),
                Budget(output_tokens=lambda tenant: limit / 2, calls=3, per="tenant", every=10),
                Budget(usd=limit / 100 + 1, every=7),
            )
        )
        self.running: list[Holding] = []
        self.waiting: list[Claim] = []

    def step(self, action: str, number: int, part: int) -> None:
        if action == "start":
            amounts = Amounts(usd=number / 100, output_tokens=number, calls=1)
            waits = waiting(amounts, "ab"[number % 2], priority=list(Priority)[number % 3])
            found = claim(self.budgets, waits, self.now)
            if found is None:
                self.waiting.append(waits)
            elif isinstance(found, Holding):
                self.running.append(found)
        elif action in ("end", "cancel") and self.running:
            holding = self.running.pop(number % len(self.running))
            share = part / 100 if action == "end" else 0.0
            used = Amounts(*(amount * share for amount in holding.amounts))
            self.budgets.settle(holding, used, self.now)
        elif action == "leave" and self.waiting:
            self.budgets.leave(self.waiting.pop(number % len(self.waiting)))
        elif action == "window":
            self.now += part / 10
        self.take_turns()

    def take_turns(self) -> None:
        while (found := self.budgets.next(self.now)) is not None:
            self.waiting.remove(found[0])
            if isinstance(found[1], Holding):
                self.running.append(found[1])

    def check(self) -> None:
        for account in self.budgets.accounts():
            taken = account.spent.plus(account.reserved)
            assert all(each <= limit * (1 + 1e-6) for each, limit in zip(taken, account.limits, strict=True))
            assert account.waiting == sum(claim.account is account for claim in self.waiting)
            # No call waits for an account that has room for the one that is next.
            if account.line is not None and not self.budgets.has_changed:
                ticket = account.line.first(self.now)
                assert ticket is not None
                assert isinstance(ticket.owner, Claim)
                assert account.lacking(ticket.owner.amounts, with_reserved=True)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.integers(0, 1000), STEPS)
def test_waiting_calls_never_exceed_a_budget_and_leave_nothing(limit: int, steps: list[tuple[str, int, int]]) -> None:
    program = Program(limit)
    for step in steps:
        program.step(*step)
        program.check()
    # All calls end: no call waits any more, and nothing stays reserved.
    while program.running:
        program.step("end", 0, 50)
        program.check()
    assert program.waiting == []
    assert all(account.reserved == Amounts() for account in program.budgets.accounts())
    assert program.budgets.next_time() == math.inf
