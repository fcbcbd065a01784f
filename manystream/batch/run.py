"""A batch: lines in, calls at a bounded concurrency and pace, records out as they complete.

Knows engines and journals. Must not know how a line is written or a file is kept, nor who looks on: whoever wants to
show progress reads `counters`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

import trio

from ..cost import Cost, Unpriced
from ..engine.call import Call
from ..engine.callbacks import check_callback
from ..engine.completion import Completion
from ..engine.core import Engine
from ..engine.errors import EngineClosedError, TooManyCallsError
from ..providers.errors import ErrorCategory, InvalidRequestError, ManystreamError, ProviderError
from ..providers.json_values import JSONObject
from ..providers.request import Request
from ..providers.response import Response
from ..providers.usage import Usage
from .journal import INVALID_LINE, Journal
from .line_file import JournalError
from .lines import ChooseModel, Item, LineError, LineId, read_item, read_line
from .pace import Pace, TokenEstimate

Price: TypeAlias = "Callable[[Request, Response], Cost | Unpriced]"
"""From what was asked and answered to what it cost (`manystream/cost.py` has some)."""

RECORDED_TEXT = 2000
"""Characters of an error's message that are kept."""

SPENT_IN_A_ROW = 10
"""So many refusals for a spent quota, with no answer between them, end the batch: one alone may be its line's fault."""


class BatchError(ManystreamError, RuntimeError):
    """The batch cannot go on. What was done is kept; the message says what to do."""


@dataclass(slots=True)
class Counters:
    """A run in figures.

    lines: read so far.
    running: calls that run now.
    answered, failed, invalid: lines of this run whose answer, failure or refusal is in the files. An invalid line was
        never sent.
    answered_before, failed_before: lines that were passed over.
    retries: attempts beyond the first.
    input_tokens, output_tokens: as far as the providers report them.
    failures: failed lines by category.
    cost: of the answers that have a price, by currency.
    unpriced, unpriced_reason: answers that have none, and the first reason.
    """

    lines: int = 0
    running: int = 0
    answered: int = 0
    failed: int = 0
    invalid: int = 0
    answered_before: int = 0
    failed_before: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    cost: dict[str, Decimal] = field(default_factory=dict[str, Decimal])
    unpriced: int = 0
    unpriced_reason: str = ""

    @property
    def ended(self) -> int:
        """Lines that need nothing more."""
        return self.answered + self.failed + self.invalid + self.answered_before + self.failed_before


class Batch:
    """One run over an input.

    choose_model: what is asked for a line that names this model (or none). concurrency: calls at a time. pace: how
    fast they may start. stream: ask for streams, which keep a connection alive under long answers. retry_failed: try
    what failed in earlier runs again. source: the input's name, for messages. price: what an answer cost; without it
    nothing is said of cost.
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        choose_model: ChooseModel,
        *,
        concurrency: int = 100,
        pace: Pace | None = None,
        stream: bool = False,
        retry_failed: bool = False,
        source: str = "input",
        provider: str | None = None,
        price: Price | None = None,
    ) -> None:
        check_callback("choose_model", choose_model)
        check_callback("price", price)
        self.counters: Counters = Counters()
        self._engine = engine
        self._journal = journal
        self._choose_model = choose_model
        self._slots = trio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._pace = pace
        self._estimate = TokenEstimate()
        self._stream = stream
        self._retry_failed = retry_failed
        self._source = source
        self._provider = provider
        self._price = price
        self._seen: dict[LineId, int] = {}
        self._calls: dict[LineId, Call | None] = {}
        self._scope = trio.CancelScope()
        self._idle = trio.Event()
        self._spent = 0
        self._stopped = False
        self._failure: BatchError | None = None

    async def run(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
        """Work through the lines (`read_lines`) and wait for the last call. Raises `BatchError`.

        However this ends, no call of the batch runs afterwards, and nothing more is written to the journal. Where it is
        cancelled or interrupted, its calls are cancelled; where the lines cannot be read further, or no further call
        can be started, those that run are waited for, since they are paid for.
        """
        try:
            with self._scope:
                async with aclosing(lines):
                    async for some in lines:
                        for number, data in some:
                            item = self._read(number, data)
                            if item is not None:
                                await self._start(item)
        except BaseException as error:
            if not isinstance(error, Exception):
                self.stop()
            raise
        finally:
            await self._last_call_ended()
        if self._failure is not None:
            raise self._failure

    async def _last_call_ended(self) -> None:
        try:
            await self._no_call_runs()
        except BaseException:
            self.stop()
            with trio.CancelScope(shield=True):  # each call has its end, also when all of them were cancelled
                await self._no_call_runs()
            raise

    async def _no_call_runs(self) -> None:
        while self._calls:
            self._idle = trio.Event()
            await self._idle.wait()

    def stop(self) -> None:
        """Start no more, and cancel what runs: a later run will do it. `run` returns soon after."""
        self._stopped = True
        self._scope.cancel()
        for call in list(self._calls.values()):
            if call is not None:
                call.cancel()

    # --- a line ---

    def _read(self, number: int, data: bytes) -> Item | None:
        """The line's request, unless it needs none."""
        self.counters.lines += 1
        id: LineId | None = None
        try:
            line = read_line(data, number)
            id = line.id
            first = self._seen.setdefault(line.id, number)
            if first != number:
                raise LineError(f"id: {line.id!r} is there twice, first on line {first}", line.id)
            if line.id in self._journal.answered:
                self.counters.answered_before += 1
                return None
            if line.id in self._journal.failed and not self._retry_failed:
                self.counters.failed_before += 1
                return None
            return read_item(line, self._choose_model)
        except LineError as error:
            self._refuse(number, error.id, str(error))
        except Exception as error:  # a line's fault is that line's, whatever it is
            self._refuse(number, id, f"cannot be read: {error!r}")
        return None

    def _refuse(self, number: int, id: LineId | None, message: str) -> None:
        text = f"{self._source} line {number}: {message}"
        told: JSONObject = {"category": INVALID_LINE, "message": text[:RECORDED_TEXT]}
        self._keep_failure({"id": id, "line": number, "error": told}, INVALID_LINE)

    async def _start(self, item: Item) -> None:
        await self._slots.acquire()
        tokens = self._estimate.tokens(item.size, item.request.max_output_tokens)
        if self._pace is not None:
            while (delay := self._pace.delay(trio.current_time(), tokens)) > 0:
                await trio.sleep(delay)
            self._pace.start(trio.current_time(), tokens)

        def on_completion(completion: Completion) -> None:
            self._end(item, tokens, completion)

        engine, request = self._engine, item.request
        self._calls[item.id] = None  # registered first: a call may end while it is being started
        self.counters.running += 1
        try:
            if self._stream:
                call = engine.start_stream(request, None, on_completion)
            else:
                call = engine.start_request(request, on_completion)
        except BaseException as error:
            started = item.id not in self._calls  # it has ended, too
            if not started:
                self._forget(item)  # there is no call that would end
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
        """Refuse the line, or raise `BatchError` where its fault is not the line's."""
        if isinstance(error, EngineClosedError | TooManyCallsError):
            raise BatchError(f"line {item.number} could not be asked: {error}") from None
        if isinstance(error, InvalidRequestError) and error.field == "api_key":
            raise BatchError(str(error)) from None
        reason = str(error) if isinstance(error, InvalidRequestError) else f"cannot be sent: {error!r}"
        self._refuse(item.number, item.id, reason)

    # --- its end ---

    def _end(self, item: Item, tokens: float, completion: Completion) -> None:
        self._forget(item)
        self.counters.retries += max(0, completion.attempts - 1)
        try:
            self._record(item, completion)
            self._count_tokens(item, tokens, completion)
        except Exception as error:
            # The engine would log it, and the answer would be lost unseen.
            self._fail(BatchError(f"line {item.number} ended and could not be recorded: {error!r}"))

    def _forget(self, item: Item) -> None:
        del self._calls[item.id]
        self.counters.running -= 1
        self._slots.release()
        if not self._calls:
            self._idle.set()

    def _record(self, item: Item, completion: Completion) -> None:
        error = completion.error
        cost = self._count_cost(item, completion)
        if error is None:
            self._spent = 0
            self._keep_answer(item, completion, cost)
        elif error.category is ErrorCategory.CANCELLED:
            # Not done, and no failure: a later run will do it.
            if not self._stopped:
                self._fail(BatchError(f"line {item.number} was not answered: {error.message}"))
        elif (hopeless := self._hopeless(item, error)) is not None:
            # Every further line would end so. None of them is recorded: once it is mended, they will be asked.
            self._fail(BatchError(f"{hopeless}: {error.message}"))
        else:
            self._keep_failure(failure_record(item, completion, error), error.category)

    def _hopeless(self, item: Item, error: ProviderError) -> str | None:
        """Why there is no use in asking further, in words; None where there may be."""
        # A line with headers of its own may have brought a wrong key of its own.
        if error.http_status == 401 and not self.counters.answered and not item.request.extra_headers:
            return "the key was refused"
        if error.category is ErrorCategory.RATE_LIMIT and not error.retryable:
            self._spent += 1
            if self._spent >= SPENT_IN_A_ROW:
                return "the quota is spent"
        return None

    def _count_tokens(self, item: Item, estimated: float, completion: Completion) -> None:
        usage = completion.response.usage if completion.response is not None else Usage()
        output = (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
        self.counters.input_tokens += usage.input_tokens or 0
        self.counters.output_tokens += output
        known = usage.output_tokens is not None
        self._estimate.learn(item.size, usage.input_tokens, output if known else None)
        if self._pace is not None and known:
            self._pace.settle(estimated, usage.total_tokens or (usage.input_tokens or 0) + output)

    def _count_cost(self, item: Item, completion: Completion) -> Cost | Unpriced | None:
        """Add what it cost, also where it failed part-way: then as far as its usage was told."""
        response, counters = completion.response, self.counters
        if self._price is None or response is None:
            return None
        if completion.error is not None and response.usage.output_tokens is None:
            return None
        try:
            cost = self._price(item.request, response)
        except Exception as error:  # the answer is there and paid for, whatever the price list makes of it
            cost = Unpriced(f"the price list raised {error!r}")
        if isinstance(cost, Cost):
            counters.cost[cost.currency] = counters.cost.get(cost.currency, Decimal(0)) + cost.total
        else:
            counters.unpriced += 1
            counters.unpriced_reason = counters.unpriced_reason or cost.reason
        return cost

    def _keep_answer(self, item: Item, completion: Completion, cost: Cost | Unpriced | None) -> None:
        try:
            self._journal.record_answer(item.id, answer_record(item, completion, self._provider, cost))
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


def answer_record(
    item: Item, completion: Completion, provider: str | None, cost: Cost | Unpriced | None = None
) -> JSONObject:
    """An answer's line. Without a price list it has no `cost`; where that has no price, `cost` is null."""
    response = completion.response
    assert response is not None
    record: JSONObject = {
        "id": item.id,
        "provider": provider,
        "model": response.model or item.request.model,
        "text": response.text,
        "thinking": response.thinking or None,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "complete": call.complete}
            for call in response.tool_calls
        ],
        "finish_reason": response.finish_reason.value,
        "usage": _usage(response.usage),
        "error": None,
        "attempts": completion.attempts,
        "seconds": _seconds(completion),
        "request_id": completion.request_id,
    }
    if cost is not None:
        record["cost"] = {"currency": cost.currency, "total": float(cost.total)} if isinstance(cost, Cost) else None
    if item.request.response_schema is not None:
        record["parsed"] = response.parsed
    if response.refusal:
        record["refusal"] = response.refusal
    if response.warnings:
        record["warnings"] = list(response.warnings)
    return record


def failure_record(item: Item, completion: Completion, error: ProviderError) -> JSONObject:
    """A failure's line; `text` is what had arrived."""
    return {
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


def _usage(usage: Usage) -> JSONObject:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "thinking_tokens": usage.thinking_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "total_tokens": usage.total_tokens,
    }


def _seconds(completion: Completion) -> float | None:
    finished = completion.timings.finished
    return round(finished, 3) if finished is not None else None
