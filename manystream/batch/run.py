"""A batch: it reads lines, makes calls at a bounded concurrency, and records each answer or failure.

A program that shows progress reads `Batch.counters`.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import asdict
from datetime import datetime
from typing import Literal, TypeAlias

import trio

from .. import Engine, InvalidRequestError
from ..engine.embedding import check_callback
from .budget import BatchBudget
from .calls import BatchError as BatchError
from .calls import LineCalls
from .intake import Counters, Intake
from .journal import Journal, Records, submissions_path
from .lines import ChooseModel, CommonOptions
from .prices import Price
from .shard import Shard

WayName: TypeAlias = Literal["batch", "window", "live"]


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
        intake = Intake(self.counters, source, journal.answered, journal.failed, retry_failed=retry_failed, shard=shard)
        slots = trio.Semaphore(concurrency)
        self._calls = LineCalls(
            engine, journal, intake, self.counters, choose_model, options, slots, stream, provider, price, budget
        )
        self._engine = engine
        self._journal = journal
        self._concurrency = concurrency
        self._by = None if by is None else _deadline(by)
        self._via = via

    async def run(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
        """Send all lines and wait until the last call has ended. Raises `BatchError`.

        lines: what `read_lines` yields.

        After this has returned or raised, no call of the batch runs, and nothing more is written to the journal. If it
        is cancelled or interrupted, it cancels its calls. If the lines cannot be read further, or no further call can
        be started, it waits for the running calls, since they are paid for.
        """
        try:
            with self._calls.scope:
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
            await self._calls.ended()
        if self._calls.failure is not None:
            raise self._calls.failure

    async def _run_live(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
        async with aclosing(lines):
            async for some in lines:
                for number, data in some:
                    item = self._calls.read(number, data)
                    if item is not None:
                        await self._calls.start(item, None, self._calls.record)

    async def _run_ways(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
        from .submissions import Submissions
        from .ways import WaysRun

        if not isinstance(self._journal, Journal):
            raise BatchError(
                "a deadline or a fixed way needs a journal, from which a later run takes what is under way"
            )
        left = None if self._by is None else self._by - time.time()
        submissions = Submissions(submissions_path(self._journal.answers_path))
        try:
            for id in [id for id in submissions.windows if id in self._journal.answered]:
                submissions.forget(id)  # a run was killed before it had noted that
            ways = WaysRun(
                self._calls,
                submissions,
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

    def stop(self) -> None:
        """Start no more calls, and cancel those that run. `run` returns soon after. A later run can resume."""
        self._calls.stop()

    def count_waiting(self) -> None:
        """Set `counters.waiting` and `counters.away`. Without `traffic` in the engine, they stay 0."""
        limiters = self._engine.statistics().traffic.limiters.values()
        sent = sum(limiter.running for limiter in limiters)
        self.counters.waiting = max(0, self.counters.running - sent) if limiters else 0
        self.counters.away = max((limiter.away for limiter in limiters), default=0.0)


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
