"""A worker: an ordinary batch over one engine in a thread of its own. Its rows come from exchanges, and its records
leave in them.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import trio

from .. import InvalidRequestError, JSONObject, Provider, RateLimit, Retry, Route, Traffic, open_engine
from ..batch import Batch, BatchBudget, BatchError, Counters
from ..batch.budget import SPENT
from ..batch.line_file import encoded
from ..batch.lines import ChooseModel, CommonOptions, LineId
from ..batch.prices import price_list
from ..cost import CostExtraError, PriceTable, check_installed, price
from ..engine.embedding import EVERY_CALL, OUTAGE, LeasedBudget
from .exchange import ActorExchange, Answer, Offer, Reply, Row
from .rate_leases import EngineRates, LeaseRequest
from .shared_budget import AmountReport, WorkerAmount

FIRST_ANSWER_SECONDS = 1.0
"""An exchange waits for a first answer as long as this."""

COLLECT_SECONDS = 0.1
"""After the first answer, an exchange collects further ones as long as this, unless too many are there already."""

GATHER_SECONDS = 0.04
"""An exchange collects at least as long as this: it costs both sides the same, whatever it carries."""

UNCONFIRMED_SHARE = 1 / 6
"""A worker whose calls and unconfirmed answers together exceed its concurrency by this part starts no further call.

If the worker is lost, its calls and its unconfirmed answers are asked again, and paid again. So this bounds what one
fault costs. An exchange that could let further calls start returns after `GATHER_SECONDS`.
"""

ROWS_PATH = Path("the rows of this worker")


@dataclass(slots=True, frozen=True)
class WorkerOptions:
    """The options of a batch that each worker needs.

    providers: the providers, with their keys.
    choose_model: as for `Batch`; it must be picklable, such as `ModelChoice`.
    concurrency: calls at a time of this worker.
    attempts: the most attempts of each row.
    limit: the limit on the rate of all workers together; None for none.
    adaptive: whether to learn limits from what servers report and refuse.
    proxy: the proxy's URL; "" for none; None for the environment's.
    monitor: whether `manystream top` can watch the engine.
    priced: whether to record the cost of answers, if the extra `cost` is installed.
    budgeted: whether calls may cost only what exchanges bring.
    prices: prices of the user's own, which precede those of the list; None for none.
    requests: options of the requests of all rows.
    outage: seconds for which rows wait for a server that refuses or drops every connection.
    """

    providers: tuple[Provider, ...]
    choose_model: ChooseModel
    concurrency: int
    attempts: int
    stream: bool
    source: str
    routes: tuple[Route, ...] = ()
    limit: RateLimit | None = None
    adaptive: bool = True
    proxy: str | None = None
    monitor: bool = False
    priced: bool = True
    budgeted: bool = False
    prices: PriceTable | None = None
    requests: CommonOptions = field(default_factory=CommonOptions)
    outage: float = OUTAGE


@dataclass(slots=True, frozen=True)
class WorkerReply:
    """What a worker returns in an exchange.

    failure: why the worker can answer nothing more; empty if it goes on.
    final: whether every other worker would fail for this reason, too.
    request: what it needs of the rate limits; None if what came with the exchange is not in use yet.
    amounts: what it has used of the budget, and needs; None for the same reason, and without a budget.
    """

    reply: Reply
    counters: Counters
    failure: str
    final: bool
    request: LeaseRequest | None = None
    amounts: AmountReport | None = None


class Worker:
    """A batch in a thread of its own. `exchange` may be called from any thread.

    clock: returns the time in seconds.
    """

    def __init__(self, options: WorkerOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._price = partial(price, table=options.prices)
        self._clock = clock
        self._lock = threading.Lock()
        self._first = threading.Condition(self._lock)
        """notified of the first answer of an exchange, of a call that needs more of the budget, and of a failure"""
        self._failed = threading.Condition(self._lock)
        """notified of a failure only: a thread that woke up for each answer would cost more than the answer"""
        self._urgent = threading.Condition(self._lock)
        """notified of a failure, and when further calls wait for the exchange"""
        self._most = options.concurrency + math.ceil(options.concurrency * UNCONFIRMED_SHARE)
        """the most calls and unconfirmed answers together"""
        self._exchange = ActorExchange(clock())
        self._rows: deque[Row] = deque()
        self._counters = Counters()
        self._failure = ""
        self._final = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._rates: EngineRates | None = None
        self._request: LeaseRequest | None = None
        self._in_use = 0
        """the last exchange whose lease and part of the budget are in use"""
        self._batch: Batch | None = None
        self._holder: WorkerAmount | None = None
        self._amounts: AmountReport | None = None
        self._needs_more = False
        """a call has begun to wait for more of the budget since the last reply"""
        self._budget: BatchBudget | None = None
        self._wakeup = trio.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="manystream worker", daemon=True)
        self._thread.start()

    def exchange(self, offer: Offer) -> WorkerReply:
        """Take the rows of an exchange, wait a moment for answers, and return them. Raises `ExchangeError`."""
        with self._lock:
            self._rows += self._exchange.receive(offer, self._clock())
            self._in_trio(lambda: self._go_on(offer))
            if self._first.wait_for(self._need_not_wait, FIRST_ANSWER_SECONDS):
                self._failed.wait_for(lambda: self._failure != "", GATHER_SECONDS)
                self._urgent.wait_for(self._must_return, COLLECT_SECONDS - GATHER_SECONDS)
            reply = self._exchange.reply(offer.seq, self._clock())
            counters = replace(self._counters, cost=dict(self._counters.cost), failures={})
            if self._in_use != offer.seq and not self._failure:
                return WorkerReply(reply, counters, self._failure, self._final)
            self._needs_more = False
            request = replace(self._request, asked_at=reply.sent_at) if self._request is not None else None
            return WorkerReply(reply, counters, self._failure, self._final, request, self._amounts)

    def close(self) -> None:
        """End the batch and its thread. Calls that run are cancelled."""
        with self._lock:
            self._ended = True
            self._in_trio(self._wake)
        self._thread.join()

    def _need_not_wait(self) -> bool:
        """Return whether an exchange need not wait longer for its first answer."""
        busy = bool(self._rows) or self._counters.running > 0
        return self._exchange.has_answers or self._needs_more or self._failure != "" or not busy

    def _must_return(self) -> bool:
        """Return whether an exchange must not collect further answers."""
        return self._failure != "" or (bool(self._rows) and not self._may_owe_more())

    def _may_owe_more(self) -> bool:
        """Return whether one more call may be lost with this worker."""
        return self._counters.running + self._exchange.unconfirmed < self._most

    def _in_trio(self, function: Callable[[], None]) -> None:
        """Call a function in the batch's thread soon. The lock is held."""
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(function)

    # --- the thread of the batch ---

    def _go_on(self, offer: Offer) -> None:
        """An exchange has come: use a new lease and part of the budget, and start calls for some time more."""
        engine_now = trio.current_time()  # before the worker's clock: see `EngineRates`
        if self._rates is not None:
            now = self._clock()
            self._rates.receive(offer.lease, self._exchange.open_until, now, engine_now)
            self._request = self._rates.ask(now, engine_now)
        if self._holder is not None:
            if offer.part is not None and self._in_use != offer.seq:
                self._holder.receive(offer.part)
            self._amounts = self._holder.report()
        self._in_use = offer.seq
        if self._batch is not None:
            self._batch.count_waiting()
        self._wake()

    def _need(self) -> None:
        """A call waits for more of the budget: the next reply says so, soon."""
        assert self._holder is not None
        with self._lock:
            self._amounts = self._holder.report()
            self._needs_more = True
            self._first.notify_all()

    def _wake(self) -> None:
        self._wakeup.set()

    def _run(self) -> None:
        failure, final = "its batch has ended", False
        try:
            trio.run(self._run_batch)
        except (BatchError, InvalidRequestError) as error:
            failure, final = str(error), True
        except BaseException as error:
            failure = f"its batch ended with {error!r}"
        with self._lock:
            self._token = None
            self._failure, self._final = failure, final
            self._first.notify_all()
            self._failed.notify_all()
            self._urgent.notify_all()

    async def _run_batch(self) -> None:
        options = self._options
        retry = Retry(max_attempts=options.attempts, cap=60.0)
        limit = options.limit or RateLimit(concurrent=options.concurrency)
        rates = EngineRates({EVERY_CALL: limit}, trio.current_time())
        traffic = Traffic(rates=rates.declared, routes=options.routes, adaptive=options.adaptive, outage=options.outage)
        if options.budgeted:
            traffic = replace(traffic, budgets=(self._open_budget(),), price=self._price)
        async with open_engine(
            options.providers, retry=retry, proxy=options.proxy, monitor=options.monitor, traffic=traffic
        ) as engine:
            batch = Batch(
                engine,
                _Collector(self._add, self._budget),
                options.choose_model,
                concurrency=options.concurrency,
                stream=options.stream,
                source=options.source,
                provider=options.providers[0].name,
                price=price_list(*options.providers, table=options.prices) if options.priced else None,
                budget=self._budget,
                options=options.requests,
            )
            with self._lock:
                self._counters = batch.counters
                self._batch, self._rates = batch, rates
                self._token = trio.lowlevel.current_trio_token()
            await batch.run(self._lines(batch))

    def _open_budget(self) -> LeasedBudget:
        """Return the engine's budget, of which exchanges bring the amounts. Raises `BatchError`."""
        try:
            check_installed()
        except CostExtraError as error:
            raise BatchError(f"--budget, on a worker's machine: {error}") from None
        self._budget = BatchBudget(math.inf, self._price, self._options.providers)
        self._budget.unpaid_in_a_row = math.inf  # the driver ends the batch
        self._holder = WorkerAmount()
        self._holder.on_need = self._need
        return LeasedBudget.of(self._holder)

    async def _lines(self, batch: Batch) -> AsyncGenerator[list[tuple[int, bytes]], None]:
        """Yield one row at a time, when a call can start at once.

        So no row waits inside the batch, where it would start although the driver has given this worker up.
        """
        while not self._ended:
            self._wakeup = trio.Event()
            room = batch.counters.running < self._options.concurrency and self._may_owe_more()
            if self._rows and room and self._exchange.may_start(self._clock()):
                with self._lock:
                    row = self._rows.popleft()
                if self._budget is not None and row.spent:
                    self._budget.note_line(row.id, row.spent)
                yield [(row.number, row.data)]
            else:
                await self._wakeup.wait()
        batch.stop()

    def _add(self, answer: Answer) -> None:
        with self._lock:
            if self._holder is not None:
                self._amounts = self._holder.report()
            is_first = not self._exchange.has_answers
            self._exchange.add(answer)
            if is_first:
                self._first.notify_all()
            if self._must_return():
                self._urgent.notify_all()
        self._wake()


class _Collector:
    """The records of a worker's batch. They leave in exchanges instead of being written to files."""

    def __init__(self, add: Callable[[Answer], None], budget: BatchBudget | None) -> None:
        self.answered: set[LineId] = set()
        self.failed: set[LineId] = set()
        self.answers_path = ROWS_PATH
        self.errors_path = ROWS_PATH
        self._add = add
        self._budget = budget

    def record_answer(self, id: LineId, record: JSONObject) -> None:
        self._add(Answer(id, encoded(record), False, self._dollars(id, record)))

    def record_failure(self, record: JSONObject) -> None:
        id = record["id"]
        assert isinstance(id, str | int)  # the driver sends no row without one
        self._add(Answer(id, encoded(record), True, self._dollars(id, record)))

    def leave_unpaid(self, id: LineId) -> None:
        self._add(Answer(id, b"", failed=True))

    def _dollars(self, id: LineId, record: JSONObject) -> float:
        """Return the US dollars that the record has beyond those of earlier runs."""
        spent = record.get(SPENT)
        return spent - self._budget.of_line(id, 0.0) if self._budget is not None and type(spent) is float else 0.0
