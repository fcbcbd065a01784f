"""A batch: it reads lines, makes calls at a bounded concurrency, and records each answer or failure.

A program that shows progress reads `Batch.counters`.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import asdict, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, TypeAlias

import trio

from ..cost import CURRENCY, Cost, Unpriced
from ..engine.call.callbacks import OnCompletion, check_callback
from ..engine.call.completion import Completion
from ..engine.call.handle import Call
from ..engine.frontends.engine import Engine
from ..engine.request.errors import EngineClosedError, TooManyCallsError
from ..engine.traffic.admission import OK
from ..engine.traffic.budgets.budgets import REFUSAL_CODE as BUDGET_SPENT
from ..engine.traffic.limits.host import AWAY
from ..engine.traffic.limits.limiter import REFUSAL_CODES
from ..providers.errors import InvalidRequestError, ManystreamError
from ..providers.json.json_values import JSONObject
from ..providers.limits.quota_report import Refusal
from ..providers.model.provider_error import ErrorCategory, ProviderError
from ..providers.model.response import Response
from ..providers.model.structured import json_of
from ..providers.model.tokens import Usage
from .budget import SPENT, BatchBudget
from .intake import RECORDED_TEXT, Counters, Intake, WayFigures
from .journal import INVALID_LINE, Journal, Records, submissions_path
from .line_file import JournalError
from .lines import USAGE_MEMBERS, ChooseModel, CommonOptions, Item, Line, LineError, LineId, read_item, read_line
from .prices import Price, has_batch_price
from .shard import Shard

WayName: TypeAlias = Literal["batch", "window", "live"]

HOPELESS_IN_A_ROW = 10
"""The number of lines, without an answer between them, that end the batch because the quota is exhausted or the server
takes no connection.

A single refusal may be caused by its line.
"""

TOO_LARGE = REFUSAL_CODES[Refusal.TOO_LARGE]
"""The code of a request that is larger than a whole limit. The next line may be smaller."""


class BatchError(ManystreamError, RuntimeError):
    """The batch cannot continue. All answers so far are recorded. The message names the reason."""


class Batch:
    """One run over an input.

    engine: makes the calls.
    journal: receives the answers and failures; it must be open.
    choose_model: maps the model that a line names (or None) to the model that the request is sent to.
    concurrency: the most calls that run or wait at a time. How fast they are sent is decided by the engine's `traffic`.
    stream: whether to request streams, which keep a connection alive during long answers.
    retry_failed: whether to send lines again that failed in earlier runs.
    source: the input's name, for messages.
    provider: the value of `provider` in the recorded answers, where the engine has no `traffic`. With `traffic`, it is
        the provider that answered.
    price: returns the cost of an answer; if None, no cost is recorded.
    shard: the part of the input that this run sends; None for the whole input.
    options: options of every line's request, whatever the line says, such as `{"temperature": 0.0}`.
    budget: counts what the lines cost. The engine has `budget.for_engine()` among its budgets, and refuses a line that
        does not fit. Such a line is not recorded, so a later run sends it.
    by: the time at which all answers should be there: a `datetime`, which is local time without a zone, or Unix
        seconds. Each line goes the cheapest way that can be expected to keep it: the provider's batch interface, a
        window of OpenAI's, or live. None: all lines go live, unless there is `via`.
    via: the only way: `"batch"`, `"window"` or `"live"`. It needs a `Journal`, as `by` does.

    counters: the run's figures (`Counters`).
    """

    def __init__(
        self,
        engine: Engine,
        journal: Records,
        choose_model: ChooseModel,
        *,
        concurrency: int = 100,
        stream: bool = False,
        retry_failed: bool = False,
        source: str = "input",
        provider: str | None = None,
        price: Price | None = None,
        shard: Shard | None = None,
        budget: BatchBudget | None = None,
        options: CommonOptions | None = None,
        by: datetime | float | None = None,
        via: WayName | None = None,
    ) -> None:
        if via not in (None, "batch", "window", "live"):
            raise InvalidRequestError("via", f"must be 'batch', 'window' or 'live', not {via!r}")
        check_callback("choose_model", choose_model)
        check_callback("price", price)
        self.counters: Counters = Counters()
        if budget is not None:
            self.counters.budget, self.counters.spent = budget.usd, budget.spent_before
        self._intake = Intake(
            self.counters, source, journal.answered, journal.failed, retry_failed=retry_failed, shard=shard
        )
        self._engine = engine
        self._journal = journal
        self._choose_model = choose_model
        self._options = options
        self._slots = trio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._stream = stream
        self._provider = provider
        self._price = price
        self._calls: dict[LineId, Call | None] = {}
        self._scope = trio.CancelScope()
        self._idle = trio.Event()
        self._budget = budget
        self._hopeless_lines = 0
        self._budget_refusals = 0
        self._by = None if by is None else _deadline(by)
        self._via = via
        self._stopped = False
        self._failure: BatchError | None = None

    async def run(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
        """Send all lines and wait until the last call has ended. Raises `BatchError`.

        lines: what `read_lines` yields.

        After this has returned or raised, no call of the batch runs, and nothing more is written to the journal. If it
        is cancelled or interrupted, it cancels its calls. If the lines cannot be read further, or no further call can
        be started, it waits for the running calls, since they are paid for.
        """
        try:
            with self._scope:
                if self._by is not None or self._via is not None:
                    await self._run_ways(lines)
                else:
                    self._check_submissions()
                    await self._run_live(lines)
        except BaseException as error:
            if not isinstance(error, Exception):
                self.stop()
            raise
        finally:
            await self._last_call_ended()
        if self._failure is not None:
            raise self._failure

    async def _run_live(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
        async with aclosing(lines):
            async for some in lines:
                for number, data in some:
                    item = self._read(number, data)
                    if item is not None:
                        await self._start(item, None, self._record_live)

    async def _run_ways(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
        from .submissions import Submissions
        from .ways import LiveWay, WaysRun

        if not isinstance(self._journal, Journal):
            raise BatchError(
                "a deadline or a fixed way needs a journal, from which a later run takes what is under way"
            )
        left = None if self._by is None else self._by - time.time()
        live = LiveWay(
            self._read,
            lambda number, data: read_item(read_line(data, number), self._choose_model, self._options),
            self._start,
            self._cancel,
            self._record_on_way,
            lambda reason: self._fail(BatchError(reason)),
        )
        submissions = Submissions(submissions_path(self._journal.answers_path))
        try:
            for id in [id for id in submissions.windows if id in self._journal.answered]:
                submissions.forget(id)  # a run was killed before it had noted that
            ways = WaysRun(
                self._engine,
                submissions,
                live,
                self.counters,
                deadline=None if left is None else trio.current_time() + left,
                via=self._via,
                concurrency=self._concurrency,
            )
            await ways.run(lines)
        finally:
            with suppress(OSError):
                submissions.note_figures({name: asdict(way) for name, way in self.counters.ways.items()})
            self.counters.ways = submissions.ways
            submissions.close()

    def _check_submissions(self) -> None:
        """Raise `BatchError` if lines are in a provider's batches: they would be sent and paid for twice."""
        path = submissions_path(self._journal.answers_path)
        if not isinstance(self._journal, Journal) or not path.exists():
            return
        from .submissions import Submissions

        found = Submissions.peek(path)
        under_way = sum(submission.lines for submission in found.open.values())
        in_windows = sum(id not in self._journal.answered for id in found.windows)
        if under_way or in_windows:
            where = "batches" if under_way else "windows"
            raise BatchError(
                f"{under_way + in_windows:,} lines are in {where} of a provider ({path}): give the deadline or the way"
                " of the run before (--by or --via), which takes their answers"
            )

    async def _last_call_ended(self) -> None:
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

    def stop(self) -> None:
        """Start no more calls, and cancel those that run. `run` returns soon after. A later run can resume."""
        self._stopped = True
        self._scope.cancel()
        for id in list(self._calls):
            self._cancel(id)

    def _cancel(self, id: LineId) -> None:
        call = self._calls.get(id)
        if call is not None:
            call.cancel()

    def count_waiting(self) -> None:
        """Set `counters.waiting` and `counters.away`. Without `traffic` in the engine, they stay 0."""
        limiters = self._engine.statistics().traffic.limiters.values()
        sent = sum(limiter.running for limiter in limiters)
        self.counters.waiting = max(0, self.counters.running - sent) if limiters else 0
        self.counters.away = max((limiter.away for limiter in limiters), default=0.0)

    # --- a line ---

    def _read(self, number: int, data: bytes) -> Item | None:
        """Return the line and its request, or None if the line is skipped, invalid or of another shard."""
        line: Line | None = None
        try:
            line = self._intake.select(number, data)
            return read_item(line, self._choose_model, self._options) if line is not None else None
        except LineError as error:
            self._refuse(number, error.id, str(error))
        except Exception as error:  # a defect that one line triggers must not end the batch
            self._refuse(number, line.id if line is not None else None, f"cannot be read: {error!r}")
        return None

    def _refuse(self, number: int, id: LineId | None, message: str) -> None:
        self._keep_failure(self._intake.refusal(number, id, message), INVALID_LINE)

    async def _start(
        self, item: Item, begin: Callable[[OnCompletion], Call] | None, ended: Callable[[Item, Completion], None]
    ) -> None:
        """Start the call of a line.

        begin: starts it; None for a live call, which waits for one of the slots first.
        ended: gets the completion.
        """
        has_slot = begin is None
        if has_slot:
            await self._slots.acquire()
        if self._stopped:  # the call that freed the slot has ended the batch
            if has_slot:
                self._slots.release()
            return

        def on_completion(completion: Completion) -> None:
            if item.id in self._calls:  # otherwise an interrupt during the start has ended the batch
                self._forget(item, has_slot)
                self._end(item, completion, ended)

        engine, request = self._engine, item.request
        self._calls[item.id] = None  # before the start, because a call may end during its start
        self.counters.running += 1
        try:
            if begin is not None:
                call = begin(on_completion)
            elif self._stream:
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
        if self._stopped:
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

    def _end(self, item: Item, completion: Completion, ended: Callable[[Item, Completion], None]) -> None:
        self.counters.retries += max(0, completion.attempts - 1)
        try:
            ended(item, completion)
        except Exception as error:
            # End the batch: the engine would only log the exception, and the answer would be lost without a trace.
            self._fail(BatchError(f"line {item.number} has ended, but could not be recorded: {error!r}"))

    def _forget(self, item: Item, has_slot: bool) -> None:
        del self._calls[item.id]
        self.counters.running -= 1
        if has_slot:
            self._slots.release()
        if not self._calls:
            self._idle.set()

    def _record_live(self, item: Item, completion: Completion) -> None:
        self._record(item, completion, 1.0)

    def _record_on_way(self, item: Item, completion: Completion, way: str, price: float) -> bool:
        """Record the end of a line, and count what its way cost. Returns whether it has a record.

        price: that of the way, as a part of the list price.
        """
        before, recorded_before = self.counters.answered, self.counters.recorded
        paid = self._record(item, completion, price, may_end=way != "batch")
        if self.counters.answered > before and completion.response is not None:
            figures = self.counters.ways.setdefault(way, WayFigures())
            usage = completion.response.usage
            figures.lines += 1
            figures.input_tokens += usage.input_tokens or 0
            figures.output_tokens += (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
            if paid is not None:
                figures.paid = (figures.paid or 0.0) + paid
                figures.list_price = (figures.list_price or 0.0) + paid / price
        return self.counters.recorded > recorded_before

    def _record(self, item: Item, completion: Completion, part: float, *, may_end: bool = True) -> float | None:
        """Record the end of a line, whose price is a part of the list price. Returns the US dollars, if known.

        may_end: whether its error may end the batch. That of a result says nothing of other lines, in whatever order.
        """
        before = self.counters.recorded
        cost = self._count_cost(item, completion, part)
        self._record_end(item, completion, error_of(completion), cost, may_end=may_end)
        if self._budget is not None and self.counters.recorded == before:
            self._budget.unrecorded += completion.cost or 0.0  # the call was cancelled, or a file could not be written
        usage = completion.response.usage if completion.response is not None else Usage()
        self.counters.input_tokens += usage.input_tokens or 0
        self.counters.output_tokens += (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
        return float(cost.total) if isinstance(cost, Cost) and cost.currency == CURRENCY else None

    def _record_end(
        self,
        item: Item,
        completion: Completion,
        error: ProviderError | None,
        cost: Cost | Unpriced | None,
        *,
        may_end: bool,
    ) -> None:
        spent = self._count_spent(item, completion)
        if error is None:
            self._hopeless_lines = self._budget_refusals = 0
            self.counters.cached += completion.cached
            self._keep_answer(item, answer_record(item, completion, self._provider, cost, spent))
        elif error.category is ErrorCategory.CANCELLED:
            # A cancelled line is not recorded as failed, so a later run sends it.
            if not self._stopped:
                self._fail(BatchError(f"line {item.number} was not answered: {error.message}"))
        elif error.provider_code == BUDGET_SPENT and self._budget is not None:
            self._leave_unpaid(item, self._budget)
        elif may_end and (hopeless := self._hopeless(item, error)) is not None:
            # Every further line would fail for this reason. It is not recorded, so a later run sends the line.
            self._fail(BatchError(f"{hopeless}: {error.message}"))
        else:
            self._keep_failure(failure_record(item, completion, error, spent), error.category)

    def _hopeless(self, item: Item, error: ProviderError) -> str | None:
        """Return why further lines would fail, too, or None if they may succeed."""
        # Extra headers of a line may hold a key of that line only.
        if error.http_status == 401 and not self.counters.answered and not item.request.extra_headers:
            return "the key was refused"
        if error.provider_code == AWAY:
            reason = "the server takes no connection"
        elif error.category is ErrorCategory.RATE_LIMIT and not error.retryable and error.provider_code != TOO_LARGE:
            reason = "the quota is exhausted"
        else:
            return None
        self._hopeless_lines += 1
        return reason if self._hopeless_lines >= HOPELESS_IN_A_ROW else None

    def _leave_unpaid(self, item: Item, budget: BatchBudget) -> None:
        """Count a line that the budget refused. After several in a row, read no further line; running calls go on."""
        self.counters.unpaid += 1
        self._journal.leave_unpaid(item.id)
        self._budget_refusals += 1
        if self._budget_refusals >= budget.unpaid_in_a_row:
            self._scope.cancel()

    def _count_spent(self, item: Item, completion: Completion) -> float | None:
        """Count in the budget what all attempts of a call cost. Returns what its line cost in all runs.

        None if there is no budget, or the cost is not known.
        """
        dollars = completion.cost
        if self._budget is None or dollars is None:
            return None
        self.counters.spent += dollars
        return self._budget.of_line(item.id, dollars)

    def _count_cost(self, item: Item, completion: Completion, part: float) -> Cost | Unpriced | None:
        """Count the cost of a call and return it, or None without a price list.

        A failed call has a cost, too, if its usage was reported.
        """
        response, counters = completion.response, self.counters
        if self._price is None or response is None or completion.cached:
            return None
        if completion.error is not None and response.usage.output_tokens is None:
            return None
        try:
            target = target_of(completion)
            cost = self._price(replace(item.request, model=target) if target else item.request, response)
        except Exception as error:  # the answer must be recorded even if the price list fails
            cost = Unpriced(f"the price list raised {error!r}")
        if isinstance(cost, Cost):
            if part != 1.0 and not has_batch_price(response):
                cost = _part_of(cost, Decimal(str(part)))
            counters.cost[cost.currency] = counters.cost.get(cost.currency, Decimal(0)) + cost.total
        else:
            counters.unpriced += 1
            counters.unpriced_reason = counters.unpriced_reason or cost.reason
        return cost

    def _keep_answer(self, item: Item, record: JSONObject) -> None:
        try:
            self._journal.record_answer(item.id, record)
        except (OSError, JournalError) as error:
            self._fail_to_write(self._journal.answers_path, error)
        else:
            self.counters.answered += 1

    def _keep_failure(self, record: JSONObject, category: str) -> None:
        counters = self.counters
        try:
            self._journal.record_failure(record)
        except (OSError, JournalError) as error:
            self._fail_to_write(self._journal.errors_path, error)
        else:
            if category == INVALID_LINE:
                counters.invalid += 1
            else:
                counters.failed += 1
                counters.failures[category] = counters.failures.get(category, 0) + 1

    def _fail_to_write(self, path: Path, error: OSError | JournalError) -> None:
        reason = error.strerror if isinstance(error, OSError) else error
        self._fail(BatchError(f"cannot write {path}: {reason}"))

    def _fail(self, failure: BatchError) -> None:
        if self._failure is None:
            self._failure = failure
        self.stop()


def _deadline(by: datetime | float) -> float:
    """Return a deadline in Unix seconds. Raises `InvalidRequestError` for one that is none, or has passed."""
    try:
        moment = by if isinstance(by, datetime) else datetime.fromtimestamp(by if type(by) is not bool else math.nan)
        seconds = moment.timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        raise InvalidRequestError("by", f"must be a datetime, or Unix seconds, not {by!r}") from None
    if seconds <= time.time():
        raise InvalidRequestError("by", f"has passed: {moment.astimezone().isoformat(' ', 'seconds')}")
    return seconds


def _part_of(cost: Cost, part: Decimal) -> Cost:
    """Return a part of a cost, in all its amounts."""
    amounts = {
        name: getattr(cost, name) * part for name in ("input", "cached", "cache_write", "output", "other", "total")
    }
    return replace(cost, **amounts)


def target_of(completion: Completion) -> str:
    """Return which target answered a call, as `provider/model`; empty without `traffic` in the engine."""
    return next((attempt.target for attempt in reversed(completion.attempt_records) if attempt.outcome == OK), "")


def error_of(completion: Completion) -> ProviderError | None:
    """Return why a call's answer is none for its line: the call's error, or that the answer does not fit the type that
    is the request's `response_schema`. None for an answer.
    """
    response = completion.response
    if completion.error is not None or response is None or response.parse_error is None:
        return completion.error
    reason = f"the answer does not fit the response schema: {response.parse_error}"
    return ProviderError(
        reason, category=ErrorCategory.UNKNOWN, http_status=200, retryable=False, body=response.text.encode()
    )


def answer_record(
    item: Item,
    completion: Completion,
    provider: str | None,
    cost: Cost | Unpriced | None = None,
    spent: float | None = None,
) -> JSONObject:
    """Return the record of an answer.

    item: the line that was answered.
    completion: the call's completion, with a response.
    provider: the value of the member `provider`, if the completion does not name who answered.
    cost: the answer's cost; `Unpriced` is written as null, and None leaves out the member `cost`.
    spent: US dollars of all attempts of the line; None leaves out the member.
    """
    response = completion.response
    assert response is not None
    target = target_of(completion)
    record: JSONObject = {
        "id": item.id,
        "provider": target.partition("/")[0] or provider,
        "model": response.model or target or item.request.model,
        **_said(response),
        "usage": {name: getattr(response.usage, name) for name in USAGE_MEMBERS},
        "error": None,
        "attempts": completion.attempts,
        "seconds": _seconds(completion),
        "request_id": completion.request_id,
    }
    if completion.cached:
        record["cached"] = True
    if cost is not None:
        record["cost"] = {"currency": cost.currency, "total": float(cost.total)} if isinstance(cost, Cost) else None
    if spent is not None:
        record[SPENT] = spent
    if item.request.response_schema is not None:
        record["parsed"] = json_of(response, item.request.response_schema)
    if response.refusal:
        record["refusal"] = response.refusal
    if response.warnings:
        record["warnings"] = list(response.warnings)
    return record | _asked_for(item, response) | item.columns


def failure_record(item: Item, completion: Completion, error: ProviderError, spent: float | None = None) -> JSONObject:
    """Return the record of a failure. Its members `text` and `provider_data` are the part of the answer that had
    arrived.

    spent: US dollars of all attempts of the line; None or 0 leaves out the member.
    """
    record: JSONObject = {
        "id": item.id,
        "line": item.number,
        "error": {
            "category": error.category.value,
            "message": error.message[:RECORDED_TEXT],
            "http_status": error.http_status,
            "provider_code": error.provider_code,
            "retryable": error.retryable,
        },
        "text": completion.response.text if completion.response is not None else None,
        "attempts": completion.attempts,
        "seconds": _seconds(completion),
        "request_id": completion.request_id,
    }
    if spent:
        record[SPENT] = spent
    return record | _asked_for(item, completion.response) | item.columns


def _said(response: Response) -> JSONObject:
    return {
        "text": response.text,
        "thinking": response.thinking or None,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "complete": call.complete}
            for call in response.tool_calls
        ],
        "finish_reason": response.finish_reason.value,
    }


def _asked_for(item: Item, response: Response | None) -> JSONObject:
    """Return the members `choices` (the other ones), `tokens`, and `provider_data`: what else an answer has.

    The last is left out for a line that asks for nothing of the provider's own: it holds members of every answer,
    too.
    """
    asked: JSONObject = {}
    if response is not None and response.others:
        asked["choices"] = [_said(other) | _asked_for(item, other) for other in response.others]
    if response is not None and response.tokens is not None:
        asked["tokens"] = response.tokens.to_json()
    if response is not None and response.provider_data and (item.request.extra_body or item.request.logprobs):
        asked["provider_data"] = response.provider_data
    return asked


def _seconds(completion: Completion) -> float | None:
    finished = completion.timings.finished
    return round(finished, 3) if finished is not None else None
