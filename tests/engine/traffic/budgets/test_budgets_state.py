"""Budgets: they are never exceeded, in whatever order calls end."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.engine.traffic.budgets.budgets import Account, BudgetRefusal, BudgetsState, Claim, Reservation
from manystream.engine.traffic.queue.fair_queue import PermitState
from manystream.statistics import BudgetStatistics


def reserved(budgets: BudgetsState, amounts: ms.Amounts, tenant: str | None = None, now: float = 0) -> Reservation:
    holding = budgets.reserve(tenant, amounts, now)
    assert isinstance(holding, Reservation)
    return holding


def test_a_thousand_calls_in_one_tick_cannot_overspend() -> None:
    budgets = BudgetsState((ms.Budget(usd=1.0),))
    results = [budgets.reserve(None, ms.Amounts(usd=0.01), 0) for _ in range(1000)]
    assert sum(isinstance(result, Reservation) for result in results) == 100
    assert all(isinstance(result, Account) for result in results[100:])


def test_a_call_waits_only_if_others_could_leave_something_over() -> None:
    budgets = BudgetsState((ms.Budget(output_tokens=100),))
    holding = reserved(budgets, ms.Amounts(output_tokens=80))
    assert isinstance(budgets.reserve(None, ms.Amounts(output_tokens=50), 0), Account)
    budgets.settle(holding, ms.Amounts(output_tokens=60), 0)
    refusal = budgets.reserve(None, ms.Amounts(output_tokens=50), 0)
    assert isinstance(refusal, BudgetRefusal)
    assert (refusal.member, refusal.limit, refusal.spent, refusal.reserved, refusal.retry_after) == (
        "output_tokens", 100, 60, 0, -1,
    )  # fmt: skip
    assert refusal.message == (
        "the engine's budget allows 100 output_tokens: 60 are spent, 0 are reserved, and this call may use 50"
    )
    assert isinstance(budgets.reserve(None, ms.Amounts(output_tokens=40), 0), Reservation)


def test_each_tenant_has_its_own_and_calls_without_one_share_one() -> None:
    budgets = BudgetsState((ms.Budget(calls=1, per="tenant"), ms.Budget(calls=3)))
    for tenant in ("a", "b", None):
        budgets.settle(reserved(budgets, ms.Amounts(calls=1), tenant), ms.Amounts(calls=1), 0)
    refusal = budgets.reserve("a", ms.Amounts(calls=1), 0)
    assert isinstance(refusal, BudgetRefusal)
    assert "tenant 'a'" in refusal.message
    refusal = budgets.reserve("c", ms.Amounts(calls=1), 0)
    assert isinstance(refusal, BudgetRefusal)
    assert refusal.budget.per == "engine"
    # What did not fit everywhere is reserved nowhere.
    assert all(account.reserved == ms.Amounts() for account in budgets.accounts())


def test_windows_follow_each_other_without_a_gap() -> None:
    """A window begins a whole number of windows after the first, whenever the next call comes."""
    budgets = BudgetsState((ms.Budget(calls=1, every=60),))
    for now, left in ((10, 60), (200, 50), (249, 1), (250, 60), (1000, 30)):
        result = budgets.reserve(None, ms.Amounts(calls=1), now)
        if now != 249:
            assert isinstance(result, Reservation), now
            budgets.settle(result, ms.Amounts(calls=1), now)
            result = budgets.reserve(None, ms.Amounts(calls=1), now)
        assert isinstance(result, BudgetRefusal), now
        assert (result.retry_after, result.spent) == (left, 1)


def test_a_call_that_ends_in_the_next_window_is_counted_there() -> None:
    budgets = BudgetsState((ms.Budget(calls=1, every=60),))
    holding = reserved(budgets, ms.Amounts(calls=1), now=0)
    assert isinstance(budgets.reserve(None, ms.Amounts(calls=1), 70), Account)
    budgets.settle(holding, ms.Amounts(calls=1), 80)
    refusal = budgets.reserve(None, ms.Amounts(calls=1), 90)
    assert isinstance(refusal, BudgetRefusal)
    assert (refusal.spent, refusal.reserved, refusal.needed, refusal.retry_after) == (1, 0, 1, 30)
    assert refusal.message == (
        "the engine's budget allows 1 calls in 60 s: 1 are spent, 0 are reserved, and this call may use 1"
    )


def test_an_amount_may_be_a_function_called_before_a_refusal() -> None:
    plan = {"a": 1.0}
    budgets = BudgetsState((ms.Budget(usd=lambda tenant: plan[str(tenant)], per="tenant"),))
    budgets.settle(reserved(budgets, ms.Amounts(usd=1), "a"), ms.Amounts(usd=1), 0)
    assert isinstance(budgets.reserve("a", ms.Amounts(usd=1), 0), BudgetRefusal)
    plan["a"] = 2
    assert isinstance(budgets.reserve("a", ms.Amounts(usd=1), 0), Reservation)


def test_settling_twice_is_settling_once() -> None:
    budgets = BudgetsState((ms.Budget(calls=5),))
    holding = reserved(budgets, ms.Amounts(calls=1))
    budgets.settle(holding, ms.Amounts(), 0)
    budgets.settle(holding, ms.Amounts(calls=1), 0)
    assert [(account.spent, account.reserved) for account in budgets.accounts()] == [(ms.Amounts(), ms.Amounts())]


def broken(tenant: str | None) -> float:
    raise KeyError(tenant)


def returns(value: object) -> Callable[[str | None], object]:
    return lambda tenant: value


@pytest.mark.parametrize("function", [broken, *map(returns, (-1, math.nan, "5", None))])
def test_a_function_that_returns_no_amount_is_an_error(function: Callable[[str | None], float]) -> None:
    budgets = BudgetsState((ms.Budget(calls=1), ms.Budget(usd=function, per="tenant")))
    with pytest.raises(ms.InvalidRequestError, match=r"budget\.usd: the function .*tenant 'a'"):
        budgets.reserve("a", ms.Amounts(usd=1), 0)
    assert [account.reserved for account in budgets.accounts()] == [ms.Amounts()]


def test_a_function_may_return_nothing_or_no_limit() -> None:
    plans = {"free": 0.0, "unlimited": math.inf}
    budgets = BudgetsState((ms.Budget(usd=lambda tenant: plans[str(tenant)], per="tenant"),))
    assert isinstance(budgets.reserve("free", ms.Amounts(usd=1e-6), 0), BudgetRefusal)
    assert isinstance(budgets.reserve("free", ms.Amounts(calls=1), 0), Reservation)  # a call that costs nothing
    assert isinstance(budgets.reserve("unlimited", ms.Amounts(usd=1e9), 0), Reservation)


def waiting(amounts: ms.Amounts, tenant: str | None = None, *, priority: ms.Priority = ms.Priority.NORMAL) -> Claim:
    return Claim(amounts, priority, tenant)


def claim(budgets: BudgetsState, claim: Claim, now: float) -> Reservation | BudgetRefusal | None:
    """Reserve, or wait and return None."""
    found = budgets.reserve(claim.tenant, claim.amounts, now)
    if not isinstance(found, Account):
        return found
    budgets.wait(claim, found)
    return None


def test_waiting_calls_go_by_priority_and_by_tenants() -> None:
    budgets = BudgetsState((ms.Budget(output_tokens=100),))
    holding = reserved(budgets, ms.Amounts(output_tokens=100))
    claims = [
        waiting(ms.Amounts(output_tokens=10), "a"),
        waiting(ms.Amounts(output_tokens=10), "a"),
        waiting(ms.Amounts(output_tokens=10), "b"),
        waiting(ms.Amounts(output_tokens=10), "c", priority=ms.Priority.INTERACTIVE),
    ]
    assert [claim(budgets, each, 0) for each in claims] == [None] * 4
    assert budgets.next(0) is None
    budgets.settle(holding, ms.Amounts(output_tokens=65), 0)
    order: list[int] = []
    while found := budgets.next(0):
        assert isinstance(found[1], Reservation)
        order.append(claims.index(found[0]))
    assert order == [3, 0, 2]
    assert claims[1].waiting_for == "output_tokens of the engine's budget, reserved by 3 calls, 0 ahead"
    assert claim(budgets, waiting(ms.Amounts(output_tokens=1)), 0) is None  # a smaller one does not overtake it
    budgets.withdraw(claims[1])
    found = budgets.next(0)
    assert found is not None
    assert isinstance(found[1], Reservation)


def test_a_call_that_can_no_longer_fit_is_refused_while_it_waits() -> None:
    budgets = BudgetsState((ms.Budget(calls=5), ms.Budget(output_tokens=100)))
    holding = reserved(budgets, ms.Amounts(output_tokens=100, calls=1))
    waits = waiting(ms.Amounts(output_tokens=10, calls=1))
    assert claim(budgets, waits, 0) is None
    budgets.settle(holding, ms.Amounts(output_tokens=95, calls=1), 0)
    found = budgets.next(0)
    assert found[0] is waits
    assert isinstance(found[1], BudgetRefusal)
    assert [(account.waiting, account.reservations) for account in budgets.accounts()] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("every", [0.1, 0.3, 1 / 3, 7.7])
def test_windows_begin_at_the_time_that_was_said(every: float) -> None:
    """A sum of times is rounded: nothing is looked at twice at the same time."""
    budgets, now = BudgetsState((ms.Budget(calls=1, every=every),)), 1e6 / 3
    reserved(budgets, ms.Amounts(calls=1), now=now)
    claim(budgets, waiting(ms.Amounts(calls=1)), now)
    for _ in range(1_000):
        assert budgets.next(now) is None
        assert budgets.next_time() > now
        now = budgets.next_time()


def test_tenants_without_spending_are_forgotten() -> None:
    budgets = BudgetsState((ms.Budget(calls=1, per="tenant"),))
    budgets.settle(reserved(budgets, ms.Amounts(calls=1), "payer"), ms.Amounts(calls=1), 0)
    for number in range(5_000):
        budgets.settle(reserved(budgets, ms.Amounts(calls=1), str(number)), ms.Amounts(), 0)
    assert len(budgets.accounts()) <= 1_001
    assert isinstance(budgets.reserve("payer", ms.Amounts(calls=1), 0), BudgetRefusal)


@settings(derandomize=True, max_examples=200)
@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.sampled_from(["start", "start", "end", "cancel"]), st.integers(0, 300), st.integers(0, 100))),
)
def test_a_budget_is_never_exceeded_whatever_the_order_of_ends(limit: int, steps: list[tuple[str, int, int]]) -> None:
    budgets, running, spent = BudgetsState((ms.Budget(output_tokens=limit),)), list[tuple[Reservation, int]](), 0
    for action, number, part in steps:
        if action == "start":
            result = budgets.reserve(None, ms.Amounts(output_tokens=number), 0)
            if isinstance(result, Reservation):
                running.append((result, number))
        elif running:
            holding, most = running.pop(number % len(running))
            used = most * part // 100 if action == "end" else 0
            budgets.settle(holding, ms.Amounts(output_tokens=used), 0)
            spent += used
        assert spent + sum(most for _, most in running) <= limit
    for holding, _ in running:
        budgets.settle(holding, ms.Amounts(), 0)
    assert all(account.reserved == ms.Amounts() for account in budgets.accounts())


ACTIONS = ["start", "start", "end", "cancel", "leave", "window"]


STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 300), st.integers(0, 100)), max_size=80)


class Program:
    """Calls of two tenants under three budgets, in any order."""

    def __init__(self, limit: int) -> None:
        self.now = 0.0
        self.limit = limit
        self.budgets = BudgetsState(
            (
                ms.Budget(output_tokens=limit or 1),
                ms.Budget(output_tokens=lambda tenant: limit / 2, calls=3, per="tenant", every=10),
                ms.Budget(usd=limit / 100 + 1, every=7),
            )
        )
        self.running: list[Reservation] = []
        self.waiting: list[Claim] = []

    def step(self, action: str, number: int, part: int) -> None:
        if action == "start":
            amounts = ms.Amounts(usd=number / 100, output_tokens=number, calls=1)
            waits = waiting(amounts, "ab"[number % 2], priority=list(ms.Priority)[number % 3])
            found = claim(self.budgets, waits, self.now)
            if found is None:
                self.waiting.append(waits)
            elif isinstance(found, Reservation):
                self.running.append(found)
        elif action in ("end", "cancel") and self.running:
            holding = self.running.pop(number % len(self.running))
            share = part / 100 if action == "end" else 0.0
            used = ms.Amounts(*(amount * share for amount in holding.amounts))
            self.budgets.settle(holding, used, self.now)
        elif action == "leave" and self.waiting:
            self.budgets.withdraw(self.waiting.pop(number % len(self.waiting)))
        elif action == "window":
            self.now += part / 10
        self.take_turns()

    def take_turns(self) -> None:
        while (found := self.budgets.next(self.now)) is not None:
            self.waiting.remove(found[0])
            if isinstance(found[1], Reservation):
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
                assert isinstance(ticket, Claim)
                assert account.lacking(ticket.amounts, with_reserved=True)


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
    assert all(account.reserved == ms.Amounts() for account in program.budgets.accounts())
    assert program.budgets.next_time() == math.inf


# --- budgets: each amount, boundaries, the order of several budgets, leases, figures, and the words of errors ---


INF = math.inf


def held(found: object) -> Reservation:
    assert isinstance(found, Reservation)
    return found


def refused(found: object) -> BudgetRefusal:
    assert isinstance(found, BudgetRefusal)
    return found


def lacking(found: object) -> Account:
    assert isinstance(found, Account)
    return found


def claimed(budgets: BudgetsState, amounts: ms.Amounts, now: float = 0, *, tenant: str | None = None) -> Claim:
    claim = Claim(amounts, tenant=tenant)
    budgets.wait(claim, lacking(budgets.reserve(tenant, amounts, now)))
    return claim


# --- reservations ---


@pytest.mark.parametrize("member", ["usd", "input_tokens", "output_tokens", "calls"])
def test_each_amount_is_counted_for_itself(member: str) -> None:
    budgets = BudgetsState((ms.Budget(**{member: 10}),))  # type: ignore[arg-type]
    one = held(budgets.reserve(None, ms.Amounts(**{member: 6}), 0))
    others = ms.Amounts(1e9, 1e9, 1e9, 1e9)._replace(**{member: 4})
    held(budgets.reserve(None, others, 0))
    lacking(budgets.reserve(None, ms.Amounts(**{member: 0.5}), 0))
    assert budgets.reserve(None, ms.Amounts(), 0) is not None
    found = refused(budgets.reserve(None, ms.Amounts(**{member: 10.5}), 0))
    assert (found.member, found.limit, found.spent, found.reserved, found.needed, found.tenant, found.retry_after) == (
        member, 10, 0, 10, 10.5, None, -1,
    )  # fmt: skip
    budgets.settle(one, ms.Amounts(**{member: 2.5}), 0)
    assert refused(budgets.reserve(None, ms.Amounts(**{member: 8}), 0)).spent == 2.5


def test_a_billionth_too_much_is_rounding() -> None:
    assert isinstance(BudgetsState((ms.Budget(usd=1),)).reserve(None, ms.Amounts(usd=1 + 5e-10), 0), Reservation)
    assert isinstance(BudgetsState((ms.Budget(usd=1),)).reserve(None, ms.Amounts(usd=1 + 2e-9), 0), BudgetRefusal)


def test_nothing_remains_reserved_of_the_last_call() -> None:
    budgets = BudgetsState((ms.Budget(usd=1),))
    holdings = [held(budgets.reserve(None, ms.Amounts(usd=usd), 0)) for usd in (0.1, 0.2, 0.3)]
    for holding in holdings:
        budgets.settle(holding, ms.Amounts(usd=0.01), 0)
    (account,) = budgets.accounts()
    assert (account.reserved, account.reservations, account.spent.usd) == ((0, 0, 0, 0), 0, pytest.approx(0.03))


def test_a_refusal_is_looked_up_without_reserving() -> None:
    budgets = BudgetsState((ms.Budget(calls=2), ms.Budget(usd=1, per="tenant", every=60)))
    assert budgets.refusal("a", ms.Amounts(usd=1, calls=2), 0) is None
    found = budgets.refusal("a", ms.Amounts(usd=1.5, calls=1), 10)
    assert found.message == (
        "the budget of tenant 'a' allows 1 usd in 60 s: 0 are spent, 0 are reserved, and this call may use 1.5"
    )
    assert (found.budget, found.tenant, found.retry_after) == (budgets.budgets[1], "a", 50)
    assert [account.reservations for account in budgets.accounts()] == [0, 0]


def test_the_figures_of_every_account() -> None:
    whole, each = ms.Budget(calls=5), ms.Budget(output_tokens=100, per="tenant", every=60)
    budgets = BudgetsState((whole, each))
    held(budgets.reserve("a", ms.Amounts(0, 0, 60, 1), 10))
    claimed(budgets, ms.Amounts(0, 0, 50, 1), 20, tenant="a")
    held(budgets.reserve("b", ms.Amounts(0, 0, 60, 1), 30))
    assert budgets.statistics(40) == (
        BudgetStatistics(whole, None, ms.Amounts(INF, INF, INF, 5), ms.Amounts(), ms.Amounts(0, 0, 120, 2), 0, -1.0),
        BudgetStatistics(each, "a", ms.Amounts(INF, INF, 100, INF), ms.Amounts(), ms.Amounts(0, 0, 60, 1), 1, 30),
        BudgetStatistics(each, "b", ms.Amounts(INF, INF, 100, INF), ms.Amounts(), ms.Amounts(0, 0, 60, 1), 0, 50),
    )
    assert [figures.ends_in for figures in budgets.statistics(100)] == [-1, 30, 50]
    assert BudgetStatistics(whole, None, ms.Amounts(), ms.Amounts(), ms.Amounts()).ends_in == -1
    assert BudgetStatistics(whole, None, ms.Amounts(), ms.Amounts(), ms.Amounts()).waiting == 0


def test_a_window_ends_exactly_after_its_seconds() -> None:
    budgets = BudgetsState((ms.Budget(calls=1, every=60),))
    budgets.settle(held(budgets.reserve(None, ms.Amounts(calls=1), 5)), ms.Amounts(calls=1), 6)
    assert refused(budgets.reserve(None, ms.Amounts(calls=1), 64.9)).retry_after == pytest.approx(0.1)
    assert isinstance(budgets.reserve(None, ms.Amounts(calls=1), 65), Reservation)


# --- calls that wait ---


def test_a_waiting_call_is_behind_those_that_wait() -> None:
    budgets = BudgetsState((ms.Budget(calls=10, output_tokens=100),))
    holding = held(budgets.reserve(None, ms.Amounts(output_tokens=100, calls=1), 0))
    one = claimed(budgets, ms.Amounts(output_tokens=80, calls=1))
    two = claimed(budgets, ms.Amounts(calls=1))
    assert one.waiting_for == "output_tokens of the engine's budget, reserved by 1 calls, 0 ahead"
    assert two.waiting_for == "its turn of the engine's budget, reserved by 1 calls, 1 ahead"
    lacking(budgets.reserve(None, ms.Amounts(calls=1), 0))
    assert (one.account, one.state, budgets.has_changed) == (budgets.accounts()[0], PermitState.QUEUED, True)
    assert (budgets.next(0), budgets.has_changed) == (None, False)
    budgets.settle(holding, ms.Amounts(output_tokens=10), 0)
    assert budgets.has_changed
    found = [budgets.next(0), budgets.next(0), budgets.next(0)]
    assert [each and each[0] for each in found] == [one, two, None]
    assert (one.account, one.waiting_for, one.state) == (None, "", PermitState.ENDED)
    assert (budgets.accounts()[0].reservations, budgets.accounts()[0].line, budgets.has_changed) == (2, None, False)


def test_a_call_moves_on_to_the_budget_that_it_lacks_next() -> None:
    first, second = ms.Budget(calls=1), ms.Budget(output_tokens=100)
    budgets = BudgetsState((first, second))
    call = held(budgets.reserve(None, ms.Amounts(calls=1), 0))
    tokens = held(budgets.reserve(None, ms.Amounts(output_tokens=100), 0))
    claim = claimed(budgets, ms.Amounts(output_tokens=50, calls=1))
    assert claim.waiting_for == "calls of the engine's budget, reserved by 2 calls, 0 ahead"
    budgets.settle(call, ms.Amounts(), 0)
    assert budgets.next(0) is None
    assert claim.waiting_for == "output_tokens of the engine's budget, reserved by 1 calls, 0 ahead"
    assert [account.waiting for account in budgets.accounts()] == [0, 1]
    budgets.settle(tokens, ms.Amounts(output_tokens=50), 0)
    found = budgets.next(0)
    assert found[0] is claim
    assert held(found[1]).amounts == ms.Amounts(output_tokens=50, calls=1)
    assert [account.reservations for account in budgets.accounts()] == [1, 1]


def test_a_call_that_leaves_lets_the_next_one_try() -> None:
    budgets = BudgetsState((ms.Budget(output_tokens=100),))
    held(budgets.reserve(None, ms.Amounts(output_tokens=60), 0))
    large, small = claimed(budgets, ms.Amounts(output_tokens=90)), claimed(budgets, ms.Amounts(output_tokens=30))
    assert budgets.next(0) is None
    budgets.withdraw(large)
    budgets.withdraw(large)
    found = budgets.next(0)
    assert found[0] is small
    assert large.state is PermitState.ENDED


def test_the_next_look_at_budgets_is_at_a_window_s_end() -> None:
    budgets = BudgetsState((ms.Budget(calls=1, per="tenant", every=60), ms.Budget(output_tokens=10)))
    assert budgets.next_time() == INF
    held(budgets.reserve("a", ms.Amounts(output_tokens=10, calls=1), 0))
    claimed(budgets, ms.Amounts(calls=1), 5, tenant="a")
    claimed(budgets, ms.Amounts(output_tokens=1), 6, tenant="b")
    assert budgets.next_time() == 60
    assert (budgets.next(59), budgets.has_changed, budgets.accounts()[0].began) == (None, False, 0)
    assert (budgets.next(60), budgets.accounts()[0].began, budgets.next_time()) == (None, 60, 120)


def test_thousands_of_windows_end_one_by_one() -> None:
    """What a look costs does not depend on the number of tenants that wait."""
    budgets = BudgetsState((ms.Budget(calls=1, per="tenant", every=3600),))
    claims: list[Claim] = []
    for number in range(3_000):
        tenant, now = str(number), number / 1000
        held(budgets.reserve(tenant, ms.Amounts(calls=1), now))
        claims.append(claimed(budgets, ms.Amounts(calls=1), now, tenant=tenant))
    assert budgets.next(4) is None
    for claim in claims[:2_990]:
        budgets.withdraw(claim)
    assert budgets.next_time() == 3602.99
    assert len(budgets._windows) == 10


@pytest.mark.parametrize("look", [BudgetsState.statistics, lambda budgets, now: budgets.ask(None, ms.Amounts(), now)])
def test_any_look_at_a_new_window_lets_waiting_calls_try(look: Callable[[BudgetsState, float], object]) -> None:
    budgets = BudgetsState((ms.Budget(calls=2, every=60),))
    held(budgets.reserve(None, ms.Amounts(calls=1), 0))
    budgets.settle(held(budgets.reserve(None, ms.Amounts(calls=1), 0)), ms.Amounts(calls=1), 0)
    claim = claimed(budgets, ms.Amounts(calls=1), 59)
    assert budgets.next(59) is None
    look(budgets, 59.9)
    assert not budgets.has_changed
    look(budgets, 60)
    found = budgets.next(60)
    assert found[0] is claim


def test_a_function_that_fails_ends_the_call_that_waits() -> None:
    plan: dict[str | None, object] = {"a": 1.0}
    budgets = BudgetsState((ms.Budget(calls=1), ms.Budget(usd=lambda tenant: plan[tenant], per="tenant")))  # type: ignore[arg-type, return-value]
    holding = held(budgets.reserve("a", ms.Amounts(usd=1, calls=1), 0))
    claim = claimed(budgets, ms.Amounts(usd=0.5, calls=1), tenant="a")
    plan["a"] = "none"
    budgets.settle(holding, ms.Amounts(usd=1), 0)
    found = budgets.next(0)
    assert found[0] is claim
    assert isinstance(found[1], ms.InvalidRequestError)
    assert (claim.account, budgets.accounts()[0].line, budgets.next(0)) == (None, None, None)


def test_accounts_in_use_are_not_forgotten() -> None:
    budgets = BudgetsState((ms.Budget(calls=2, per="tenant", every=60),))
    held(budgets.reserve("runs", ms.Amounts(calls=2), 0))
    claimed(budgets, ms.Amounts(calls=1), tenant="runs")
    budgets.settle(held(budgets.reserve("spent", ms.Amounts(calls=1), 0)), ms.Amounts(calls=1), 0)
    for number in range(998):
        budgets.ask(f"t{number}", ms.Amounts(), 1)
    assert len(budgets.accounts()) == 1000
    budgets.ask("one more", ms.Amounts(), 1)
    assert [account.tenant for account in budgets.accounts()] == ["runs", "spent", "one more"]
    for number in range(997):
        budgets.ask(f"t{number}", ms.Amounts(), 61)
    budgets.ask("another", ms.Amounts(), 61)
    assert [account.tenant for account in budgets.accounts()] == ["runs", "another"], "a new window began"


def test_many_accounts_in_use_are_looked_through_seldom() -> None:
    budgets = BudgetsState((ms.Budget(calls=2, per="tenant"),))
    for number in range(1000):
        held(budgets.reserve(f"t{number}", ms.Amounts(calls=1), 0))
    for number in range(1000):
        budgets.ask(f"u{number}", ms.Amounts(), 0)
    assert len(budgets.accounts()) == 2000
    budgets.ask("one more", ms.Amounts(), 0)
    assert len(budgets.accounts()) == 1001
