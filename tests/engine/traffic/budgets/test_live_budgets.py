"""The budgets of an engine, step by step: what an attempt may use, what it is charged, and which call goes next."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.call.completion import NO_PRICE_FUNCTION
from manystream.engine.request.addresses import addressed
from manystream.engine.request.limits import EngineLimits
from manystream.engine.request.preparer import Preparer
from manystream.engine.traffic.budgets.amounts import NOTHING, Amounts
from manystream.engine.traffic.budgets.budgets import Account, Budgets, Need, Reservation, Spending
from manystream.providers.model.options import Priority
from manystream.statistics import BudgetStatistics
from tests.engine.unit_runtime import UnitRuntime

CHAT = ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="one")
Price = Callable[[ms.Provider, str, ms.Usage], float | None]


def price(provider: ms.Provider, model: str, usage: ms.Usage) -> float | None:
    """A dollar for each token of output, a hundredth for each of input, two dollars to write one to a cache."""
    tokens = usage.cache_write_tokens or 0
    return (usage.input_tokens or 0) * 0.01 + (usage.output_tokens or 0) * 1.0 + tokens * 2.0


class Owner:
    """A call that waits for a budget, and notes what is reported to it."""

    def __init__(self, name: str = "", *, raises: str = "") -> None:
        self.name = name
        self.raises = raises
        self.reported: list[object] = []

    def _report(self, what: object) -> None:
        self.reported.append(what)
        if self.raises:
            raise RuntimeError(self.raises)

    def funded(self) -> None:
        self._report("funded")

    def unfunded(self, error: ms.ProviderError) -> None:
        self._report(error)

    def on_defect(self, error: Exception) -> None:
        self.reported.append(f"defect: {error}")


def live(
    runtime: UnitRuntime,
    *budgets: ms.Budget,
    price: Price | None = None,
    watch: Callable[[BudgetStatistics], None] | None = None,
) -> Budgets:
    return Budgets(budgets, price, cast(Any, runtime), watch=watch)


def need_of(budgets: Budgets, request: ms.Request) -> Need:
    preparer = Preparer(addressed([CHAT]), {}, EngineLimits(), lambda: "id", lambda: 0.0)
    return budgets.need(request, *preparer.prepare(request, stream=False))


def ask(**options: Any) -> ms.Request:
    return ms.Request("one/m", [ms.Message.user("hello")], **options)


def need(calls: float = 1.0, usd: float = 0.0, tenant: str | None = None, *, output: float = 0.0) -> Need:
    return Need(CHAT, "m", tenant, Amounts(usd=usd, output_tokens=output, calls=calls), 10)


def waiting(budgets: Budgets, owner: Owner, wanted: Need) -> Spending:
    spending = Spending(budgets)
    account = spending.reserve(wanted, 0.0)
    assert isinstance(account, Account)
    spending.wait(wanted, account, owner, Priority.NORMAL, 0.0)
    return spending


# --- what an attempt may use ---


def test_an_attempt_may_use_what_the_budgets_limit() -> None:
    runtime = UnitRuntime()
    request = ask(max_output_tokens=50, tenant="t")
    preparer = Preparer(addressed([CHAT]), {}, EngineLimits(), lambda: "id", lambda: 0.0)
    body = preparer.prepare(request, stream=False)[0].body
    most, usual = math.ceil(len(body) / 3), math.ceil(len(body) / 4)
    by_calls = need_of(live(runtime, ms.Budget(calls=1)), request)
    assert by_calls == Need(CHAT, "m", "t", Amounts(0.0, float(most), 0.0, 1.0), usual)
    by_output = need_of(live(runtime, ms.Budget(output_tokens=1)), request)
    assert by_output.amounts == Amounts(0.0, float(most), 50.0, 1.0)
    by_dollars = need_of(live(runtime, ms.Budget(usd=1), price=price), request)
    assert by_dollars.amounts == Amounts(pytest.approx(50 + most * 0.01), float(most), 50.0, 1.0)
    without = need_of(live(runtime, price=price), request)
    assert without == Need(CHAT, "m", "t", Amounts(calls=1.0), usual)


RESPONSES = ms.OpenAIResponses("k", "http://127.0.0.1:1", name="one")
WINDOWS: list[tuple[Mapping[str, object], float | None]] = [
    ({}, 1.0), ({"durable": True}, 1.0), ({"durable": ms.Durable("2h")}, 0.7), ({"durable": ms.Durable("8h")}, 0.6),
    ({"durable": ms.Durable("soonest")}, 1.0), ({"durable": ms.Durable("5h")}, None),
    ({"durable": True, "extra_body": {"background_options": {"completion_window": "8h"}}}, 0.6),
    ({"durable": True, "extra_body": {"background_options": {"completion_window": [1]}}}, None),
]  # fmt: skip


@pytest.mark.parametrize(("options", "part"), WINDOWS)
def test_a_window_of_time_has_a_part_of_the_price(options: Mapping[str, Any], part: float | None) -> None:
    budgets = live(UnitRuntime(), ms.Budget(usd=1), price=price)
    preparer = Preparer(addressed([RESPONSES]), {}, EngineLimits(), lambda: "id", lambda: 0.0)
    request = ask(max_output_tokens=50, **options)
    needed = budgets.need(request, *preparer.prepare(request, stream=False))
    plain = 50 + needed.amounts.input_tokens * 0.01
    assert needed.amounts.usd == pytest.approx(plain * (1.0 if part is None else part))
    cost = budgets.cost(needed, ms.Usage(input_tokens=100, output_tokens=7))
    if part is None:
        assert cost == "no price is known for the window in which m completes the answer"
    else:
        assert cost == pytest.approx(8.0 * part)


def test_a_prompt_that_may_be_cached_may_cost_what_writing_costs() -> None:
    budgets = live(UnitRuntime(), ms.Budget(usd=1), price=price)
    marked = need_of(budgets, ask(max_output_tokens=1, extra_body={"cache_control": {"type": "ephemeral"}}))
    plain = need_of(budgets, ask(max_output_tokens=1, extra_body={"cache": 1}))
    tokens = marked.amounts.input_tokens
    assert marked.amounts.usd == pytest.approx(1 + tokens * 2.01)
    assert plain.amounts.usd == pytest.approx(1 + plain.amounts.input_tokens * 0.01)


@pytest.mark.parametrize(
    ("model", "extra", "reports"),
    [
        ("m", {}, [None]),
        ("m", {"service_tier": "priority", "top_k": 3}, [{"service_tier": "priority"}]),
        ("m", {"inference_geo": "us", "speed": "fast"}, [{"inference_geo": "us", "speed": "fast"}]),
        ("m", {"serviceTier": "flex"}, [{"serviceTier": "flex"}]),
        ("m", {"metadata": {"speed": "fast", "service_tier": "priority"}}, [None]),
        ("m", {"a": [{"cache_control": {"type": "ephemeral"}}]}, [None, 0]),
        ("m", {"a": [{"cache_control": {"type": "ephemeral", "ttl": "5m"}}]}, [None, 0]),
        ("m", {"a": [{"cache_control": {"type": "ephemeral", "ttl": "1h"}}]}, [None, "all"]),
        ("m", {"a": [{"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}]}, [None, "all"]),
        ("m", {"ttl": "1h"}, [None]),
        ("gpt-5.6", {}, [None, 0]),
        ("gpt-5.5", {}, [None]),
    ],
)
def test_what_a_request_asks_for_has_its_price(model: str, extra: dict[str, Any], reports: list[object]) -> None:
    seen: list[ms.Usage] = []

    def note(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
        seen.append(usage)
        return 1.0

    request = ms.Request(f"one/{model}", [ms.Message.user("hello")], max_output_tokens=1, extra_body=extra)
    most = need_of(live(UnitRuntime(), ms.Budget(usd=1), price=note), request).amounts.input_tokens
    for usage, report in zip(seen, reports, strict=True):
        if report == 0 or report == "all":
            longer = most if report == "all" else 0
            assert (usage.cache_write_tokens, usage.raw) == (
                most, {"cache_creation": {"ephemeral_1h_input_tokens": longer}}
            )  # fmt: skip
        else:
            assert (usage.cache_write_tokens, usage.raw) == (None, report)


def test_an_attempt_whose_most_is_unknown_is_refused() -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        need_of(live(UnitRuntime(), ms.Budget(output_tokens=1)), ask())
    assert str(raised.value) == (
        "max_output_tokens: is needed: a budget limits the output, and the most that 'm' can write is unknown"
    )
    unpriced = live(UnitRuntime(), ms.Budget(usd=1), price=lambda provider, model, usage: None)
    with pytest.raises(ms.InvalidRequestError) as raised:
        need_of(unpriced, ask(max_output_tokens=1))
    assert str(raised.value) == "model: traffic.price knows no price of one/m, and a budget limits usd"
    assert need_of(live(UnitRuntime(), ms.Budget(calls=1, input_tokens=9)), ask()).amounts.output_tokens == 0.0


def test_an_allowance_is_asked_when_a_request_is_prepared() -> None:
    def broken(tenant: str | None) -> float:
        raise ValueError("no file")

    with pytest.raises(ms.InvalidRequestError, match=r"^budget\.calls: "):
        need_of(live(UnitRuntime(), ms.Budget(calls=broken)), ask())


def test_a_price_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
        raise ValueError("sold out")

    budgets = live(UnitRuntime(), price=broken)
    wanted = need()
    why = "traffic.price: raised ValueError for one/m"
    assert [budgets.cost(wanted, ms.Usage(1, 1)) for _ in range(2)] == [why, why]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "an answer has no price: traffic.price: raised ValueError for one/m")
    ]
    assert budgets.cost(wanted, None) == 0.0
    assert live(UnitRuntime()).cost(wanted, None) == NO_PRICE_FUNCTION
    assert live(UnitRuntime()).cost(wanted, ms.Usage(1, 1)) == NO_PRICE_FUNCTION
    assert live(UnitRuntime(), price=price).cost(wanted, ms.Usage(2, 3)) == pytest.approx(3.02)


# --- refusals ---


def test_a_refusal_says_what_is_left_and_when_to_come_back() -> None:
    budgets = live(UnitRuntime(), ms.Budget(calls=2, every=60))
    for _ in range(2):
        found = budgets.reserve(need(), need().amounts, 0.0)
        assert isinstance(found, Reservation)
        budgets.settle(found, Amounts(calls=1), 0.0)
    for error in (budgets.refusal(need(), 10.0), budgets.reserve(need(), need().amounts, 10.0)):
        assert isinstance(error, ms.ProviderError)
        assert (error.message, error.category, error.provider_code, error.retryable, error.retry_after_ms) == (
            "not sent: the engine's budget allows 2 calls in 60 s: 2 are spent, 0 are reserved,"
            " and this call may use 1", ms.ErrorCategory.BUDGET, "budget_spent", False, 50_000,
        )  # fmt: skip
    assert budgets.refusal(need(), 60.0) is None
    endless = live(UnitRuntime(), ms.Budget(calls=1))
    refused = endless.refusal(need(2.0), 0.0)
    assert refused.retry_after_ms == -1
    assert endless.refusal(need(), 0.0) is None


def test_an_allowance_that_fails_later_is_the_call_s_error() -> None:
    answers: list[float] = [1.0]

    def allowance(tenant: str | None) -> float:
        return answers.pop() if answers else -1.0

    budgets = live(UnitRuntime(), ms.Budget(calls=allowance))
    held = budgets.reserve(need(), need().amounts, 0.0)
    assert isinstance(held, Reservation)
    budgets.settle(held, Amounts(calls=1), 0.0)
    for error in (budgets.refusal(need(), 0.0), budgets.reserve(need(), need().amounts, 0.0)):
        assert isinstance(error, ms.ProviderError)
        assert error.message.startswith("not sent: budget.calls: ")
        assert (error.category, error.retryable) == (ms.ErrorCategory.BUDGET, False)
        assert isinstance(error.__cause__, ms.InvalidRequestError)


# --- calls that wait ---


def test_a_waiting_call_goes_on_when_another_one_has_ended() -> None:
    runtime, owner = UnitRuntime(), Owner()
    budgets = live(runtime, ms.Budget(calls=3, output_tokens=100))
    held = budgets.reserve(need(output=80), need(output=80).amounts, 0.0)
    assert isinstance(held, Reservation)
    spending = waiting(budgets, owner, need(output=50))
    assert spending.waiting_for == "output_tokens of the engine's budget, reserved by 1 calls, 0 ahead"
    assert (runtime.tick(), owner.reported) == (1, [])
    budgets.settle(held, Amounts(output_tokens=10, calls=1), 5.0)
    budgets.changed()
    assert len(runtime.due) == 1
    runtime.tick()
    assert owner.reported == ["funded"]
    spending.fund(need(output=50), 5.0)
    assert spending.reservation is not None
    assert spending.reservation.amounts == Amounts(output_tokens=50, calls=1)
    (figures,) = budgets.statistics(5.0)
    assert (figures.spent, figures.reserved, figures.waiting) == (
        Amounts(output_tokens=10, calls=1), Amounts(output_tokens=50, calls=1), 0
    )  # fmt: skip


def test_a_waiting_call_is_refused_when_too_little_is_left() -> None:
    runtime, owner = UnitRuntime(), Owner()
    budgets = live(runtime, ms.Budget(output_tokens=100))
    held = budgets.reserve(need(output=80), need(output=80).amounts, 0.0)
    assert isinstance(held, Reservation)
    waiting(budgets, owner, need(output=50))
    budgets.settle(held, Amounts(output_tokens=60), 0.0)
    runtime.tick()
    (error,) = owner.reported
    assert isinstance(error, ms.ProviderError)
    assert error.message.startswith("not sent: the engine's budget allows 100 output_tokens: 60 are spent")


def test_a_waiting_call_goes_on_in_the_next_window() -> None:
    runtime, owner = UnitRuntime(), Owner()
    budgets = live(runtime, ms.Budget(output_tokens=100, every=60))
    held = budgets.reserve(need(output=30), need(output=30).amounts, 0.0)
    assert isinstance(held, Reservation)
    budgets.settle(held, Amounts(output_tokens=30), 0.0)
    assert isinstance(budgets.reserve(need(output=50), need(output=50).amounts, 0.0), Reservation)
    waiting(budgets, owner, need(output=45))
    runtime.tick()
    assert runtime.timers.times == [60.0]
    runtime.go_to(60.0)
    assert len(owner.reported) == 1
    assert owner.reported[0] == "funded"


def test_a_call_that_left_is_not_told_anything() -> None:
    runtime, gone, stays = UnitRuntime(), Owner(), Owner()
    budgets = live(runtime, ms.Budget(output_tokens=100))
    held = budgets.reserve(need(output=80), need(output=80).amounts, 0.0)
    assert isinstance(held, Reservation)
    leaving = waiting(budgets, gone, need(output=90))
    waiting(budgets, stays, need(output=10))
    leaving.leave(3.0)
    leaving.leave(4.0)
    assert leaving.seconds == 3.0
    runtime.tick()
    assert (gone.reported, len(stays.reported)) == ([], 1)


# --- what one call spends ---


def spend(budgets: Budgets, spending: Spending, wanted: Need, usage: ms.Usage | None) -> Amounts:
    """Reserve and settle an attempt. Returns what the budget has spent."""
    assert spending.reserve(wanted, 0.0) is None
    kept = spending.take()
    assert kept is not None
    spending.settle(wanted, kept, usage, 0.0, sent=True)
    return budgets.statistics(0.0)[0].spent


def test_a_call_is_counted_once_and_its_attempts_are_added() -> None:
    budgets = live(UnitRuntime(), ms.Budget(usd=1000, calls=9), price=price)
    spending = Spending(budgets)
    assert spending.cost == 0.0
    assert spend(budgets, spending, need(usd=9), ms.Usage(100, 2)) == Amounts(3.0, 100, 2, 1)
    assert spending.cost == 3.0
    assert spend(budgets, spending, need(usd=9), ms.Usage(100, 2, thinking_tokens=3)) == Amounts(6.0, 200, 7, 1)
    assert spend(budgets, spending, need(usd=9), None) == Amounts(6.0, 200, 7, 1)
    assert (spending.cost, spending.reservation) == (6.0, None)


def test_an_attempt_without_a_price_counts_as_what_it_reserved() -> None:
    prices: list[float | None] = [None]
    budgets = live(UnitRuntime(), ms.Budget(usd=1000), price=lambda provider, model, usage: prices[0])
    spending = Spending(budgets)
    assert spend(budgets, spending, need(usd=9), ms.Usage(1, 1)) == Amounts(9.0, 1, 1, 1)
    prices[0] = 2.0
    assert spend(budgets, spending, need(usd=9), ms.Usage(1, 1)) == Amounts(11.0, 2, 2, 1)
    assert spending.cost is None
    assert Spending(live(UnitRuntime())).cost is None


def test_an_attempt_that_is_not_sent_gives_back_its_reservation() -> None:
    budgets = live(UnitRuntime(), ms.Budget(calls=1))
    spending = Spending(budgets)
    assert spending.reserve(need(), 0.0) is None
    assert budgets.statistics(0.0)[0].reserved == Amounts(calls=1)
    assert spending.refusal(need(5.0), 0.0) is None  # it has reserved
    kept = spending.reservation
    assert spending.reserve(need(), 0.0) is None  # the same amounts: the reservation is kept
    assert spending.reservation is not None
    assert kept is not None
    assert spending.reservation is kept
    spending.release(0.0)
    spending.release(0.0)
    assert (budgets.statistics(0.0)[0].reserved, budgets.statistics(0.0)[0].spent) == (NOTHING, NOTHING)
    assert spending.refusal(need(5.0), 0.0) is not None


def test_another_target_s_amounts_are_reserved_anew() -> None:
    budgets = live(UnitRuntime(), ms.Budget(output_tokens=100))
    spending, other = Spending(budgets), Spending(budgets)
    assert spending.reserve(need(output=80), 0.0) is None
    assert spending.reserve(need(output=40), 0.0) is None
    assert budgets.statistics(0.0)[0].reserved.output_tokens == 40
    assert isinstance(other.reserve(need(output=70), 0.0), Account)
    refused = other.reserve(need(output=101), 0.0)
    assert isinstance(refused, ms.ProviderError)
    second = other.reserve_beside(need(output=60), 0.0)
    assert second is not None
    assert other.reserve_beside(need(output=1), 0.0) is None
    other.settle(need(output=60), second, None, 0.0, sent=False)
    assert budgets.statistics(0.0)[0].reserved.output_tokens == 40
    assert other.reserve_beside(need(output=60), 0.0) is not None
    tenants = live(UnitRuntime(), ms.Budget(calls=1, per="tenant"))
    moving = Spending(tenants)
    assert moving.reserve(need(tenant="a"), 0.0) is None
    assert moving.reserve(need(tenant="b"), 0.0) is None
    assert [(each.tenant, each.reserved.calls) for each in tenants.statistics(0.0)] == [("a", 0), ("b", 1)]


def test_an_observer_is_told_of_64_accounts_in_a_tick() -> None:
    reported: list[BudgetStatistics] = []
    runtime = UnitRuntime()
    budgets = live(runtime, ms.Budget(calls=5, per="tenant"), watch=reported.append)
    for number in range(150):
        wanted = need(tenant=str(number))
        assert isinstance(budgets.reserve(wanted, wanted.amounts, 0.0), Reservation)
    assert len(runtime.timers.times) == 1
    counts: list[int] = []
    while runtime.timers.times:
        timer = min((each for each in runtime.timers.made if each.pending), key=lambda each: each.when)
        timer.pending = False
        timer.action()
        counts.append(len(reported))
    assert counts == [64, 128, 150]
    assert [each.tenant for each in reported] == [str(number) for number in range(150)]
    assert {(each.reserved.calls, each.spent.calls) for each in reported} == {(1.0, 0.0)}
