"""The budget of a batch: US dollars for all runs on one pair of files together.

A line's record has the member `spent_usd`: the US dollars of all its attempts, those of earlier runs included. An
answer that was recorded without a budget has its `cost` instead, or only its token counts.

    budget = BatchBudget(5.0, manystream.cost.price, providers)
    with Journal(Path("answers.jsonl"), budget=budget) as journal:
        traffic = Traffic(budgets=[budget.for_engine()], price=budget.price)
        async with open_engine(providers, traffic=traffic) as engine:
            await Batch(engine, journal, choose_model, budget=budget).run(lines)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .. import Budget, InvalidRequestError, Provider, Usage
from .. import Price as TokenPrice
from ..cost import CURRENCY
from ..engine.embedding import ask_price
from ..providers.json.json_values import JSONObject, integer, mapping, string
from .lines import LineId

UNPAID_IN_A_ROW = 10
"""The number of lines that the budget refuses, without an answer between them, after which no further line is read.

A single line may have a larger cost than the others.
"""

SPENT = "spent_usd"
"""The member of a record that holds the US dollars of all attempts of its line."""


class BatchBudget:
    """The US dollars that the lines of a batch may cost in all runs together.

    usd: the most US dollars.
    price: the price of tokens, as for `Traffic(price=…)`.
    providers: the providers of this run. Answers that were recorded without their cost have these providers' prices.

    uncounted: number of answers of earlier runs whose cost is not known.
    unrecorded: US dollars that no record has: of earlier runs, and of calls that this run has cancelled. The journal
        keeps them in a file.
    unpaid_in_a_row: so many refused lines, without an answer between them, end the intake of lines.
    """

    def __init__(self, usd: float, price: TokenPrice, providers: Iterable[Provider]) -> None:
        self.usd: float = usd
        self.price: TokenPrice = price
        self.uncounted: int = 0
        self.unrecorded: float = 0.0
        self.unpaid_in_a_row: float = UNPAID_IN_A_ROW
        self._providers = {provider.name: provider for provider in providers}
        self._answers = 0.0  # US dollars of lines that earlier runs have answered
        self._failures: dict[LineId, float] = {}  # of lines that have failed in earlier runs

    @property
    def spent_before(self) -> float:
        """The US dollars of earlier runs."""
        return self.unrecorded + self._answers + math.fsum(self._failures.values())

    def for_engine(self) -> Budget:
        """Return a budget of what the earlier runs left. Call this after the journal was opened."""
        left = max(0.0, self.usd - self.spent_before)
        return Budget(usd=lambda tenant: left)  # a function may return 0

    def of_line(self, id: LineId, dollars: float) -> float:
        """Return the US dollars of all attempts of a line. dollars: those of this run."""
        return self._failures.get(id, 0.0) + dollars

    # --- records of earlier runs ---

    def read_answer(self, record: JSONObject) -> None:
        """Count an answer."""
        spent = _dollars(record, SPENT)
        if spent is None:
            spent = self._cost(record)
        if spent is None:
            self.uncounted += 1
        else:
            self._answers += spent

    def read_failure(self, id: LineId, record: JSONObject) -> None:
        """Count a failure of a line without an answer. It includes earlier failures of the line, and replaces them."""
        spent = _dollars(record, SPENT)
        if spent:
            self.note_line(id, spent)

    def note_line(self, id: LineId, dollars: float) -> None:
        """Note the US dollars of the attempts of a line without an answer, in all earlier runs."""
        self._failures[id] = dollars

    def _cost(self, record: JSONObject) -> float | None:
        cost = mapping(record, "cost")
        if cost.get("currency") == CURRENCY:
            return _dollars(cost, "total")
        provider, model = self._providers.get(string(record, "provider") or ""), string(record, "model")
        reported = mapping(record, "usage")
        usage = Usage(
            integer(reported, "input_tokens"),
            integer(reported, "output_tokens"),
            thinking_tokens=integer(reported, "thinking_tokens"),
            cached_tokens=integer(reported, "cached_tokens"),
            cache_write_tokens=integer(reported, "cache_write_tokens"),
        )
        if provider is None or model is None or usage.input_tokens is None or usage.output_tokens is None:
            return None
        try:
            return ask_price(self.price, provider, model, usage)
        except InvalidRequestError:
            return None


def _dollars(record: JSONObject, name: str) -> float | None:
    """Return an amount of at least 0; None if the member is something else."""
    value = record.get(name)
    return float(value) if (type(value) is float or type(value) is int) and 0 <= value < 1e300 else None
