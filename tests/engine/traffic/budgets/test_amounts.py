"""Budgets and prices that are wrong, and what a budget must know of a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.traffic.budgets.amounts import Amounts, amount_of, limits_of
from tests.engine.traffic.budgets.test_budgets_state import INF
from tests.support.charged import Charged, ask, of, open_charged


async def test_an_amount_is_asked_first_and_before_a_refusal(autojump_clock: MockClock) -> None:
    plan, asked = {"alice": 1.0}, list[str | None]()

    def calls_of(tenant: str | None) -> float:
        asked.append(tenant)
        return plan[str(tenant)]

    async with open_charged(Charged(), ms.Budget(calls=calls_of, per="tenant")) as engine:
        assert (await engine.start_stream(ask(tenant="alice")).wait()).success
        assert asked == ["alice"]
        assert (await engine.start_stream(ask(tenant="alice")).wait()).error_category is ms.ErrorCategory.BUDGET
        plan["alice"] = 2
        assert (await engine.start_stream(ask(tenant="alice")).wait()).success
        with pytest.raises(ms.InvalidRequestError, match=r"budget\.calls: the function raised KeyError"):
            engine.start_stream(ask(tenant="nobody"))
        del plan["alice"]
        failed = await engine.start_stream(ask(tenant="alice")).wait()
        figures = of(engine)
    assert failed.error.message == "not sent: budget.calls: the function raised KeyError for tenant 'alice'"
    assert failed.error.category is ms.ErrorCategory.BUDGET
    assert (figures.tenant, figures.spent.calls, figures.reserved) == ("alice", 2, Amounts())


async def test_the_output_must_be_limited_where_a_budget_limits_it(autojump_clock: MockClock) -> None:
    async with open_charged(Charged(), ms.Budget(usd=1.0)) as engine:
        with pytest.raises(ms.InvalidRequestError, match="max_output_tokens: is needed") as caught:
            engine.start_stream(ask(most=None))
        assert caught.value.field == "max_output_tokens"
        limited = ask(most=None, extra_body={"max_tokens": 40})
        assert (await engine.start_stream(limited).wait()).success
    async with open_charged(Charged(), ms.Budget(calls=10, input_tokens=10_000)) as engine:
        assert (await engine.start_stream(ask(most=None)).wait()).success


async def test_several_choices_are_reserved(autojump_clock: MockClock) -> None:
    async with open_charged(Charged(seconds=5), ms.Budget(output_tokens=10_000)) as engine:
        engine.start_stream(ask(extra_body={"n": 7}))
        await trio.sleep(1)
        assert of(engine).reserved.output_tokens == 700


async def test_a_call_without_a_price_is_refused_by_a_usd_budget(autojump_clock: MockClock) -> None:
    async with open_charged(Charged(), ms.Budget(usd=1.0)) as engine:
        with pytest.raises(ms.InvalidRequestError, match=r"model: traffic\.price knows no price of openai/other"):
            engine.start_stream(ask("openai/other"))
        assert (await engine.start_stream(ask()).wait()).success


def raises(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
    raise KeyError(provider.api_key)


def returns(value: object) -> Callable[[ms.Provider, str, ms.Usage], object]:
    return lambda provider, model, usage: value


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raises, "traffic.price: raised KeyError for openai/m"),
        (returns(math.nan), "must return a number of US dollars, at least 0, or None, not nan"),
        (returns(-1.0), "not -1.0"),
        (returns("0.1"), "not '0.1'"),
        (returns(True), "not True"),
        (returns(math.inf), "not inf"),
    ],
)
async def test_a_price_that_is_no_price(autojump_clock: MockClock, function: Callable[..., float], words: str) -> None:
    async with open_charged(Charged(), ms.Budget(usd=1.0), price=function) as engine:
        with pytest.raises(ms.InvalidRequestError) as caught:
            engine.start_stream(ask())
        assert engine.statistics().calls == {}
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)
    async with open_charged(Charged(), price=function) as engine:  # no budget depends on it
        completion = await engine.start_stream(ask()).wait()
    assert (completion.success, completion.cost) == (True, None)
    assert words in completion.cost_unknown


async def test_a_price_that_fails_only_at_the_end_counts_as_reserved(autojump_clock: MockClock) -> None:
    def once(provider: ms.Provider, model: str, usage: ms.Usage) -> Decimal:
        if usage.output_tokens != 100:
            raise ValueError("sold out")
        return Decimal("0.25")

    async with open_charged(Charged(), ms.Budget(usd=1.0), price=once) as engine:
        completion = await engine.start_stream(ask()).wait()
        assert (completion.success, completion.cost) == (True, None)
        assert completion.cost_unknown == "traffic.price: raised ValueError for openai/m"
        assert of(engine).spent.usd == 0.25
        assert of(engine).reserved == Amounts()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budgets": [ms.Budget(usd=1)]}, r"traffic\.price: is needed for a budget in usd"),
        ({"budgets": ms.Budget(calls=1)}, r"traffic\.budgets: must be a list of Budget.*use \[budget\]"),
        ({"budgets": [1]}, r"traffic\.budgets\[0\]"),
        ({"price": 3}, r"traffic\.price: must be a function or None"),
    ],
)
async def test_wrong_options(options: dict[str, object], words: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=words):
        ms.Traffic(**options)  # type: ignore[arg-type]


# --- amounts ---


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        (0, 0.0), (0.0, 0.0), (3, 3.0), (Decimal("0.5"), 0.5), (INF, INF), (-1e-9, None), (True, None), (False, None),
        ("1", None), (None, None), (10**400, None), (math.nan, None), (Decimal("sNaN"), None), (Decimal("NaN"), None),
    ],
)  # fmt: skip
def test_what_is_an_amount(value: object, amount: float | None) -> None:
    found = amount_of(value)
    assert found == amount
    assert found is None or type(found) is float


WRONG: list[tuple[dict[str, object], str]] = [
    ({}, "budget: must limit at least one of usd, input_tokens, output_tokens, calls"),
    ({"every": 5}, "budget: must limit at least one of usd, input_tokens, output_tokens, calls"),
    ({"usd": 0}, "budget.usd: must be a number above 0, not 0"),
    ({"calls": INF}, "budget.calls: must be a number above 0, not inf"),
    ({"calls": 1, "every": 0}, "budget.every: must be a number above 0, not 0"),
    ({"calls": 1, "every": math.cos}, "budget.every: must be a number above 0, not builtin_function_or_method"),
    ({"calls": 1, "per": "key"}, "budget.per: must be 'engine' or 'tenant', not 'key'"),
    ({"calls": 1, "per": ["tenant"]}, "budget.per: must be 'engine' or 'tenant', not list"),
    ({"calls": 10**400}, "budget.calls: must be a number above 0, not a larger int"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_a_wrong_budget_is_an_error_in_words(options: dict[str, object], words: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        ms.Budget(**options)  # type: ignore[arg-type]
    assert str(caught.value) == words


def test_the_limits_of_a_tenant() -> None:
    budget = ms.Budget(usd=lambda tenant: Decimal("0.5"), calls=3, per="tenant")  # type: ignore[arg-type, return-value]
    assert limits_of(budget, "a") == (0.5, INF, INF, 3)
    for function, words in (
        (lambda tenant: 1 / 0, "budget.usd: the function raised ZeroDivisionError for tenant 'a'"),
        (lambda tenant: "5", "budget.usd: the function must return a number of at least 0, not '5' (tenant 'a')"),
    ):
        with pytest.raises(ms.InvalidRequestError) as caught:
            limits_of(ms.Budget(usd=function), "a")  # type: ignore[arg-type]
        assert str(caught.value) == words
