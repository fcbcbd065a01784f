"""The calls of a batch's lines: each line is read, its call is started, and its end is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import trio

from .. import (
    Call,
    Completion,
    Engine,
    EngineClosedError,
    ErrorCategory,
    InvalidRequestError,
    JSONObject,
    ManystreamError,
    Message,
    OnCompletion,
    ProviderError,
    Request,
    TooManyCallsError,
    Usage,
)
from ..cost import CURRENCY, Cost, Unpriced
from ..engine.embedding import AWAY, REFUSAL_CODES
from ..engine.embedding import REFUSAL_CODE as BUDGET_SPENT
from ..providers.limits.quota_report import Refusal
from .budget import BatchBudget
from .intake import Counters, Intake, WayFigures
from .journal import INVALID_LINE, Records
from .line_file import JournalError
from .lines import ChooseModel, CommonOptions, Item, Line, LineError, LineId, read_item, read_line
from .prices import Price, pays_to_read, priceable
from .records import answer_record, error_of, failure_record, target_of

BATCH = "batch"
"""The way through a provider's batch interface."""

HOPELESS_IN_A_ROW = 10
"""The number of lines, without an answer between them, that end the batch because the quota is exhausted, the server
takes no connection, or the key is refused that was taken before.

A single refusal may be caused by its line.
"""

TOO_LARGE = REFUSAL_CODES[Refusal.TOO_LARGE]
"""The code of a request that is larger than a whole limit. The next line may be smaller."""


class BatchError(ManystreamError, RuntimeError):
    """The batch cannot continue. All answers so far are recorded. The message names the reason."""


@dataclass(slots=True, eq=False)
class LineCalls:
    """The calls of a batch. The members that are not described here are arguments of `Batch`.

    slots: one for each live call at a time.
    scope: cancelled when no further line is to be read.
    failure: why the batch cannot continue.
    is_stopped: whether no further call is to be started.
    """

    engine: Engine
    journal: Records
    intake: Intake
    counters: Counters
    choose_model: ChooseModel
    options: CommonOptions | None
    slots: trio.Semaphore
    stream: bool
    provider: str | None
    price: Price | None
    budget: BatchBudget | None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    failure: BatchError | None = None
    is_stopped: bool = False
    _calls: dict[LineId, Call | None] = field(default_factory=dict[LineId, "Call | None"])
    _idle: trio.Event = field(default_factory=trio.Event)
    _hopeless_lines: int = 0
    _budget_refusals: int = 0

    def stop(self) -> None:
        """Start no more calls, and cancel those that run. `run` returns soon after. A later run can resume."""
        self.is_stopped = True
        self.scope.cancel()
        for id in list(self._calls):
            self.cancel(id)

    def cancel(self, id: LineId) -> None:
        call = self._calls.get(id)
        if call is not None:
            call.cancel()

    async def ended(self) -> None:
        """Wait until the last call has ended. If this is cancelled, the calls are."""
        try:
            await self._no_call_runs()
        except BaseException:
            self.stop()
            with trio.CancelScope(shield=True):  # each cancelled call still ends with a completion
                await self._no_call_runs()
            raise

    async def _no_call_runs(self) -> None:
        while self._calls:
            self._idle = trio.Event()
            await self._idle.wait()

    # --- a line ---

    def read(self, number: int, data: bytes) -> Item | None:
        """Return the line and its request, or None if the line is skipped, invalid or of another shard."""
        line: Line | None = None
        try:
            line = self.intake.select(number, data)
            return read_item(line, self.choose_model, self.options) if line is not None else None
        except LineError as error:
            self._refuse(number, error.id, str(error))
        except Exception as error:  # a defect that one line triggers must not end the batch
            self._refuse(number, line.id if line is not None else None, f"cannot be read: {error!r}")
        return None

    def parse(self, number: int, data: bytes) -> Item:
        """Make the request of a line that was read before."""
        return read_item(read_line(data, number), self.choose_model, self.options)

    def _refuse(self, number: int, id: LineId | None, message: str) -> None:
        self._keep_failure(self.intake.refusal(number, id, message), INVALID_LINE)

    async def start(
        self, item: Item, begin: Callable[[OnCompletion], Call] | None, ended: Callable[[Item, Completion], object]
    ) -> None:
        """Start the call of a line.

        begin: starts it; None for a live call, which waits for one of the slots first.
        ended: gets the completion.
        """
        has_slot = begin is None
        if has_slot:
            await self.slots.acquire()
        if self.is_stopped:  # the call that freed the slot has ended the batch
            if has_slot:
                self.slots.release()
            return

        def on_completion(completion: Completion) -> None:
            if item.id in self._calls:  # otherwise an interrupt during the start has ended the batch
                self._forget(item, has_slot)
                self._end(item, completion, ended)

        engine, request = self.engine, item.request
        self._calls[item.id] = None  # before the start, because a call may end during its start
        self.counters.running += 1
        try:
            if begin is not None:
                call = begin(on_completion)
            elif self.stream:
                call = engine.start_stream(request, None, on_completion)
            else:
                call = engine.start_request(request, on_completion)
        except BaseException as error:
            started = item.id not in self._calls  # then the call has also ended
            if not started:
                self._forget(item, has_slot)  # no completion will follow
            if not isinstance(error, Exception):
                raise
            if not started:
                self._not_started(item, error)
            return
        if item.id in self._calls:
            self._calls[item.id] = call
        if self.is_stopped:
            call.cancel()

    def _not_started(self, item: Item, error: Exception) -> None:
        """Record the line as invalid. Raise `BatchError` if the line did not cause the error."""
        if isinstance(error, EngineClosedError | TooManyCallsError):
            raise BatchError(f"line {item.number} could not be sent: {error}") from None
        if isinstance(error, InvalidRequestError) and error.field == "api_key":
            raise BatchError(str(error)) from None
        reason = str(error) if isinstance(error, InvalidRequestError) else f"cannot be sent: {error!r}"
        self._refuse(item.number, item.id, reason)

    # --- the end of a call ---

    def _end(self, item: Item, completion: Completion, ended: Callable[[Item, Completion], object]) -> None:
        self.counters.retries += max(0, completion.attempts - 1)
        try:
            ended(item, completion)
        except Exception as error:
            # End the batch: the engine would only log the exception, and the answer would be lost without a trace.
            self.fail(f"line {item.number} has ended, but could not be recorded: {error!r}")

    def _forget(self, item: Item, has_slot: bool) -> None:
        del self._calls[item.id]
        self.counters.running -= 1
        if has_slot:
            self.slots.release()
        if not self._calls:
            self._idle.set()

    def record(self, item: Item, completion: Completion, way: str = "", price: float = 1.0) -> bool:
        """Record the end of a line, and count what its way cost. Returns whether it has a record.

        way: empty where all lines go live, and no way is counted.
        price: that of the way, as a part of the list price.
        """
        counters, answered, recorded = self.counters, self.counters.answered, self.counters.recorded
        cost = self._count_cost(item, completion, price)
        self._record_end(item, completion, error_of(completion), cost, way)
        if self.budget is not None and counters.recorded == recorded:
            self.budget.unrecorded += completion.cost or 0.0  # the call was cancelled, or a file could not be written
        usage = completion.response.usage if completion.response is not None else Usage()
        input, output = usage.input_tokens or 0, (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
        counters.input_tokens += input
        counters.output_tokens += output
        if way and counters.answered > answered:
            figures = counters.ways.setdefault(way, WayFigures())
            figures.lines += 1
            figures.input_tokens += input
            figures.output_tokens += output
            if isinstance(cost, Cost) and cost.currency == CURRENCY:
                figures.paid = (figures.paid or 0.0) + float(cost.total)
                figures.list_price = (figures.list_price or 0.0) + float(cost.total) / price
        return counters.recorded > recorded

    def _record_end(
        self, item: Item, completion: Completion, error: ProviderError | None, cost: Cost | Unpriced | None, way: str
    ) -> None:
        spent = self._count_spent(item, completion)
        if error is None:
            self._hopeless_lines = self._budget_refusals = 0
            self.counters.cached += completion.cached
            self._keep_answer(item, answer_record(item, completion, self.provider, cost, spent))
        elif error.category is ErrorCategory.CANCELLED:
            # A cancelled line is not recorded as failed, so a later run sends it.
            if not self.is_stopped:
                self.fail(f"line {item.number} was not answered: {error.message}")
        elif error.provider_code == BUDGET_SPENT and self.budget is not None:
            self._leave_unpaid(item, self.budget)
        elif way != BATCH and (hopeless := self._hopeless(item, error)) is not None:
            # Every further line would fail for this reason. It is not recorded, so a later run sends the line. But the
            # error of a result says nothing of other lines, whose results may be in any order.
            self.fail(f"{hopeless}: {error.message}")
        else:
            self._keep_failure(failure_record(item, completion, error, spent), error.category)

    def _hopeless(self, item: Item, error: ProviderError) -> str | None:
        """Return why further lines would fail, too, or None if they may succeed."""
        # Extra headers of a line may hold a key of that line only.
        if error.http_status == 401 and not item.request.extra_headers:
            reason = "the key was refused"
            if not self.counters.answered:
                return reason
        elif error.provider_code == AWAY:
            by_answer = error.category is ErrorCategory.SERVER
            reason = "the server serves no call" if by_answer else "the server takes no connection"
        elif error.category is ErrorCategory.RATE_LIMIT and not error.retryable and error.provider_code != TOO_LARGE:
            reason = "the quota is exhausted"
        else:
            return None
        self._hopeless_lines += 1
        return reason if self._hopeless_lines >= HOPELESS_IN_A_ROW else None

    def _leave_unpaid(self, item: Item, budget: BatchBudget) -> None:
        """Count a line that the budget refused. After several in a row, read no further line; running calls go on."""
        self.counters.unpaid += 1
        self.journal.leave_unpaid(item.id)
        self._budget_refusals += 1
        if self._budget_refusals >= budget.unpaid_in_a_row:
            self.scope.cancel()

    def _count_spent(self, item: Item, completion: Completion) -> float | None:
        """Count in the budget what all attempts of a call cost. Returns what its line cost in all runs.

        None if there is no budget, or the cost is not known.
        """
        dollars = completion.cost
        if self.budget is None or dollars is None:
            return None
        self.counters.spent += dollars
        return self.budget.of_line(item.id, dollars)

    def count_unrecorded(self, item: Item, completion: Completion) -> None:
        """Count in the budget an answer that was paid and is not recorded, since its line goes on."""
        if self.budget is not None and self._count_spent(item, completion):
            self.budget.unrecorded += completion.cost or 0.0

    def _count_cost(self, item: Item, completion: Completion, part: float) -> Cost | Unpriced | None:
        """Count the cost of a call and return it, or None without a price list.

        A failed call has a cost, too, if its usage was reported.
        """
        response, counters = completion.response, self.counters
        if self.price is None or response is None or completion.cached:
            return None
        if completion.error is not None and response.usage.output_tokens is None:
            return None
        cost: Cost | Unpriced = Unpriced("")
        try:
            target = target_of(completion)
            request = replace(item.request, model=target) if target else item.request
            for form, paid in priceable(response, part):
                cost = self.price(request, form)
                if isinstance(cost, Cost):
                    cost = cost if paid == 1.0 else _part_of(cost, Decimal(str(paid)))
                    break
        except Exception as error:  # the answer must be recorded even if the price list fails
            cost = Unpriced(f"the price list raised {error!r}")
        if isinstance(cost, Cost):
            counters.cost[cost.currency] = counters.cost.get(cost.currency, Decimal(0)) + cost.total
        else:
            counters.unpriced += 1
            counters.unpriced_reason = counters.unpriced_reason or cost.reason
        return cost

    def reading_pays(self, model: str, tokens: int) -> bool:
        """Return whether so many tokens of a prompt are cheaper if they are read from a cache of a model."""
        with suppress(Exception):  # as in `_count_cost`
            return self.price is not None and pays_to_read(self.price, Request(model, [Message.user(".")]), tokens)
        return False

    def _keep_answer(self, item: Item, record: JSONObject) -> None:
        try:
            self.journal.record_answer(item.id, record)
        except (OSError, JournalError) as error:
            self._fail_to_write(self.journal.answers_path, error)
        else:
            self.counters.answered += 1

    def _keep_failure(self, record: JSONObject, category: str) -> None:
        counters = self.counters
        try:
            self.journal.record_failure(record)
        except (OSError, JournalError) as error:
            self._fail_to_write(self.journal.errors_path, error)
        else:
            if category == INVALID_LINE:
                counters.invalid += 1
            else:
                counters.failed += 1
                counters.failures[category] = counters.failures.get(category, 0) + 1

    def _fail_to_write(self, path: Path, error: OSError | JournalError) -> None:
        reason = error.strerror if isinstance(error, OSError) else error
        self.fail(f"cannot write {path}: {reason}")

    def fail(self, reason: str) -> None:
        """End the batch with a reason, the first one that is given."""
        self.failure = self.failure or BatchError(reason)
        self.stop()


def _part_of(cost: Cost, part: Decimal) -> Cost:
    """Return a part of a cost, in all its amounts."""
    amounts = {
        name: getattr(cost, name) * part for name in ("input", "cached", "cache_write", "output", "other", "total")
    }
    return replace(cost, **amounts)
