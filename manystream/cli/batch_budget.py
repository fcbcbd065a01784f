"""`manystream batch --budget`: check the price of every model before the first line is sent; report a spent budget."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path

from .. import Usage
from ..batch import BatchBudget, Counters
from ..cost import CURRENCY, PriceTable, Unpriced, price, price_usage
from .answer import need_prices, price_reason
from .batch_targets import Destination
from .output.errors import CommandError
from .output.terminal import counted, harmless, money

SAMPLE = Usage(1_000, 1_000, total_tokens=2_000)
"""The tokens whose price is asked for each model before the first line is sent."""


def check_prices(option: str, *, simulated: bool) -> None:
    """Raise `CommandError` where there are no prices."""
    if simulated:
        raise CommandError(f"{option} needs a --model: the simulator's answers have no price", status=2)
    need_prices(option)


def open_budget(usd: float | None, destination: Destination, table: PriceTable | None) -> BatchBudget | None:
    """Return the budget of a run; None without the option. Raises `CommandError` for a model without a price.

    table: prices of the user's own, which precede those of the list.
    """
    if usd is None:
        return None
    by_name = {provider.name: provider for provider in destination.providers}
    for target in _targets(destination):
        name, _, model = target.partition("/")
        found = price_usage(SAMPLE, model, by_name[name], table=table)
        if isinstance(found, Unpriced):
            raise CommandError(f"--budget: {price_reason(found.reason)} (--prices)", status=2)
    return BatchBudget(usd, partial(price, table=table), destination.providers)


def _targets(destination: Destination) -> Sequence[str]:
    """Return the models of all lines as `provider/model`; none if each line names its own."""
    if destination.routes:
        return [target.model for route in destination.routes for target in route.targets]
    model = destination.choose_model(None)
    return () if model is None else (model,)


def budget_notice(budget: BatchBudget, answers: Path) -> str:
    """Return a line about what the files already hold; empty if they hold nothing."""
    parts: list[str] = []
    if budget.spent_before:
        parts.append(f"{dollars(budget.spent_before)} of {dollars(budget.usd)} are spent")
    if budget.unrecorded:
        parts.append(f"{dollars(budget.unrecorded)} of that is for calls whose end is not known")
    if budget.uncounted:
        what = counted(budget.uncounted, "answer without a known cost is", "answers without a known cost are")
        parts.append(f"{what} not counted")
    return f"Budget: {', and '.join(parts)} ({harmless(str(answers))})" if parts else ""


def budget_report(counters: Counters, total: int | None) -> str:
    """Return the line that reports a spent budget. total: the lines of the input; None if that is unknown."""
    left = "the other lines are"
    if total is not None:
        left = counted(total - counters.ended, "line is", "lines are")
    return (
        f"The budget is spent: {left} not sent, since the largest cost of a line did not fit into the rest"
        f" ({spent_text(counters)} spent). The same command with a larger --budget goes on."
    )


def spent_text(counters: Counters) -> str:
    """Return what is spent of the budget, such as `$0.80 of $1.00`; empty without a budget."""
    return "" if counters.budget is None else f"{dollars(counters.spent)} of {dollars(counters.budget)}"


def dollars(amount: float) -> str:
    """Return an amount of US dollars for a person."""
    return money(Decimal(amount), CURRENCY)
