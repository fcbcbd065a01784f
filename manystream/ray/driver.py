"""The driver: a batch whose calls are made by workers on other processes and machines.

It hands out rows, records the answers in one journal, and replaces workers that do not reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import KW_ONLY, InitVar, dataclass, field
from decimal import Decimal

import trio

from .. import RateLimit
from ..batch import BatchBudget, BatchError, Counters, Journal, JournalError, LineError, Shard
from ..batch.intake import Intake
from ..batch.journal import INVALID_LINE
from ..batch.line_file import encoded
from ..batch.printed import PrintedRecords
from ..engine.embedding import EVERY_CALL
from ..providers.json.json_values import JSONObject, loads_object, mapping, string
from .cluster import Cluster, ClusterError, Died, Replied, Unreachable
from .exchange import Answer, DriverExchange, Row
from .ledger import Ledger
from .rate_leases import Lease, RateKeeper
from .shared_budget import AmountPart, SharedBudget
from .watch import READY_SECONDS, Watch
from .worker import WorkerReply

COLLECT_SECONDS = 0.1
"""The driver waits for replies as long as this before it looks after the other tasks."""

IDLE_SECONDS = 1.0
"""A worker without rows is called as often as this, so that it may start calls at once when it gets some."""

REPEAT_SECONDS = 0.25
"""An exchange with a worker that cannot be reached is repeated after this time."""

LAST_REPLIES_SECONDS = 2.0
"""A batch that is stopped waits as long as this for the replies that are on their way."""

LOST_PER_WORKER = 3
"""The batch ends when so many workers per place were lost in a row without an answer between them: a row may kill
them."""

MOST_STARTS = 16
"""A worker that takes the place of one that was never ready has twice its time, up to so many times `READY_SECONDS`. So
workers on a busy machine are not ended again and again while they start."""

ADDED = ("running", "waiting", "retries", "input_tokens", "output_tokens", "unpriced")
"""The counters of workers that are added."""

AHEAD_BYTES = 16 * 1024 * 1024
"""The driver reads the input ahead of the workers by about so many bytes. A run that is resumed skips lines faster."""

Lines = AsyncGenerator[list[tuple[int, bytes]], None]


@dataclass(slots=True, eq=False, repr=False)
class _Input:
    """The lines of the input that were read ahead. A task reads them, because a pipe or a slow disk may block."""

    ended: bool = field(default=False, init=False)  # whether all lines were read and taken
    failure: OSError | None = field(default=None, init=False)  # why the input could not be read further, or None
    _pieces: deque[list[tuple[int, bytes]]] = field(default_factory=deque[list[tuple[int, bytes]]], init=False)
    _bytes: int = field(default=0, init=False)
    _taken: trio.Event = field(default_factory=trio.Event, init=False)
    _read_all: bool = field(default=False, init=False)

    async def read(self, lines: Lines) -> None:
        """Read all lines, at most `AHEAD_BYTES` ahead and the piece that was read last."""
        try:
            async with aclosing(lines):
                async for some in lines:
                    self._pieces.append(some)
                    self._bytes += sum(len(data) for _, data in some)
                    while self._bytes > AHEAD_BYTES:
                        self._taken = trio.Event()
                        await self._taken.wait()
        except OSError as error:
            self.failure = error
        self._read_all = True

    def take(self) -> list[tuple[int, bytes]] | None:
        """Return the next lines, or None if there are none yet or any more."""
        if not self._pieces:
            self.ended = self._read_all
            return None
        some = self._pieces.popleft()
        self._bytes -= sum(len(data) for _, data in some)
        self._taken.set()
        return some


@dataclass(slots=True, eq=False)
class _Worker:
    """One worker, as the driver knows it.

    starts: so many times `READY_SECONDS` may pass until it is ready.
    lease, part: what goes to it with the next exchange: a lease on rates, and its part of the budget.
    call_at: when it is called again, if it has no rows or could not be reached.
    is_lost: it was given up. It may reply nevertheless.
    """

    number: int
    concurrency: int
    starts: int
    link: DriverExchange = field(default_factory=DriverExchange)
    figures: Counters = field(default_factory=Counters)
    lease: Lease | None = None
    part: AmountPart | None = None
    call_at: float | None = None
    is_ready: bool = False
    is_lost: bool = False


@dataclass(slots=True, eq=False, repr=False)
class ClusterBatch:
    """One run over an input, as `Batch` is on one core."""

    _cluster: Cluster  # starts and calls the workers
    _journal: Journal | PrintedRecords  # receives the answers and failures; it must be open
    _: KW_ONLY
    concurrency: list[int]  # for each worker, the most calls that it makes at a time
    retry_failed: InitVar[bool] = False  # whether to send lines again that failed in earlier runs
    source: InitVar[str] = "input"  # the input's name, for messages
    shard: InitVar[Shard | None] = None  # the part of the input that this run sends; None for the whole input
    # the limit on the rate of all workers together; None for none. The workers get leases on parts of it.
    limit: RateLimit | None = None
    # what the lines may cost in all runs together; None for no budget. The journal was opened with it. The workers get
    # parts of it.
    budget: InitVar[BatchBudget | None] = None
    # the figures of the run, summed up over the workers
    counters: Counters = field(default_factory=Counters, init=False)
    ledger: Ledger = field(default_factory=Ledger, init=False)  # the rows that are not answered yet
    _intake: Intake = field(init=False)
    _keeper: RateKeeper = field(init=False)
    _budget: SharedBudget | None = field(default=None, init=False)
    _workers: list[_Worker] = field(default_factory=list[_Worker], init=False)  # by number, also those that are lost
    _came: bool = field(default=False, init=False)
    _lost: int = field(default=0, init=False)  # workers that were lost since the last answer
    _stopped: bool = field(default=False, init=False)

    def __post_init__(self, retry_failed: bool, source: str, shard: Shard | None, budget: BatchBudget | None) -> None:
        self._intake = Intake(
            self.counters, source, self._journal.answered, self._journal.failed, retry_failed=retry_failed, shard=shard
        )
        if budget is not None:
            if not isinstance(self._journal, Journal):
                raise BatchError("a budget over several workers needs a journal, since it is written down there")
            self._budget = SharedBudget(budget, self._journal)
        if budget is not None:
            self.counters.budget, self.counters.spent = budget.usd, budget.spent_before

    def stop(self) -> None:
        """Start no more calls. `run` returns soon after. A later run can resume."""
        self._stopped = True

    async def run(self, lines: Lines) -> None:
        """Send all lines and wait until the last row is answered. Raises `BatchError`, `ClusterError` and `OSError`."""
        failure: Exception | None = None
        input = _Input()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(input.read, lines)
            try:
                await self._drive(input)
            except (BatchError, ClusterError) as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is None and not self._stopped:
            failure = input.failure
        if failure is not None:  # raised here, since the nursery would wrap it
            raise failure

    # --- the loop ---

    async def _drive(self, input: _Input) -> None:
        watch = Watch(trio.current_time())
        limits = {EVERY_CALL: self.limit} if self.limit is not None else {}
        self._keeper = RateKeeper(limits, trio.current_time())
        try:
            while not self._stopped and not self.ledger.done:
                for concurrency in self.concurrency[len(self._live) :]:
                    self._start(concurrency, None, watch, 1)
                self._call(watch)
                await self._collect(watch)
                self._give_up_overdue(watch)
                await trio.lowlevel.checkpoint()
                self._read(input)
            if self._stopped:
                await self._collect_last(watch)
        finally:
            for worker in self._live:
                self._cluster.kill(worker.number)
            self._close_budget()

    @property
    def _live(self) -> list[_Worker]:
        """The workers that were not given up."""
        return [worker for worker in self._workers if not worker.is_lost]

    def _close_budget(self) -> None:
        """Write down what workers that are ended while they have rows may have spent."""
        if self._budget is None:
            return
        for worker in self._live:
            if not self.ledger.out_at(worker.number):
                self._budget.settle(worker.number)
        self._count_spent(self._budget)
        try:
            self._budget.close()
        except OSError as error:
            raise self._cannot_write(error) from None

    def _read(self, input: _Input) -> None:
        """Take as many lines as the workers can take, and as are there. If the budget is spent, take no more."""
        if self._budget is not None and self._budget.is_spent:
            self.counters.unpaid += self.ledger.drop_waiting()
            self.ledger.ended = True
            return
        while self.ledger.lacking or not self.ledger.waiting:
            some = input.take()
            if some is None:
                self.ledger.ended = input.ended
                return
            self.ledger.add(row for number, data in some if (row := self._row(number, data)) is not None)

    def _row(self, number: int, data: bytes) -> Row | None:
        try:
            line = self._intake.select(number, data)
            spent = self._budget.spent_before(line.id) if self._budget is not None and line is not None else 0.0
            return Row(line.id, number, data, spent) if line is not None else None
        except LineError as error:
            refusal = self._intake.refusal(number, error.id, str(error))
        self._record([], [(refusal, encoded(refusal))])
        return None

    def _start(self, concurrency: int, instead_of: int | None, watch: Watch, starts: int) -> None:
        worker = _Worker(len(self._workers), concurrency, starts)
        self._workers.append(worker)
        self._cluster.start(worker.number, concurrency, instead_of=instead_of)
        watch.started(worker.number, trio.current_time(), starts * READY_SECONDS)
        self._cluster.call(worker.number, worker.link.offer(()))

    def _call(self, watch: Watch) -> None:
        """Open an exchange with each ready worker that has none, and repeat those that have failed."""
        now = trio.current_time()
        for worker in self._live:
            number, link, at = worker.number, worker.link, worker.call_at
            if link.open is not None:
                if at is not None and now >= at:
                    worker.call_at = None
                    self._cluster.call(number, link.open)
                continue
            rows = self.ledger.hand_out(number)
            if rows or self.ledger.out_at(number) or at is None or now >= at:
                watch.asked(number, now)
                offer = link.offer(rows, worker.lease, worker.part)
                worker.lease, worker.part, worker.call_at = None, None, None
                self._cluster.call(number, offer)

    async def _collect(self, watch: Watch) -> None:
        for event in await trio.to_thread.run_sync(self._cluster.collect, COLLECT_SECONDS):
            match event:
                case Replied(number, reply):
                    self._replied(self._workers[number], reply, watch)
                case Unreachable(number):
                    self._workers[number].call_at = trio.current_time() + REPEAT_SECONDS
                case Died(number, reason):
                    self._replace(self._workers[number], reason, watch)

    async def _collect_last(self, watch: Watch) -> None:
        """Record the answers that are on their way, so that a later run does not pay for them again."""
        ending: set[int] = set()
        with trio.move_on_after(LAST_REPLIES_SECONDS):
            while True:
                self._call_last(ending)
                if all(worker.link.open is None for worker in self._live if worker.is_ready):
                    return
                await self._collect(watch)

    def _call_last(self, ending: set[int]) -> None:
        """Ask the workers once to return what they do not use of the budget. ending: those that were asked."""
        if self._budget is None:
            return
        for worker in self._live:
            number = worker.number
            if worker.is_ready and number not in ending and worker.link.open is None:
                ending.add(number)
                self._cluster.call(number, worker.link.offer((), None, self._budget.recall(number)))

    # --- workers ---

    def _replied(self, worker: _Worker, reply: WorkerReply, watch: Watch) -> None:
        """Record the answers. A worker that was given up may reply, too: its answers count if they are the first."""
        if not worker.link.accept(reply.reply):
            return
        self._accept(reply.reply.answers, is_late=worker.is_lost)
        self._count_figures(worker, reply.counters)
        self._give(worker, reply)
        if worker.is_lost:
            return
        self._came = True
        watch.replied(worker.number)
        if reply.request is not None:
            worker.lease = self._keeper.renew(reply.request, trio.current_time())
        if not worker.is_ready:
            worker.is_ready = True
            self.ledger.add_actor(worker.number, worker.concurrency)
        if reply.failure and reply.final:
            raise BatchError(reply.failure)
        if reply.failure:
            self._replace(worker, reply.failure, watch)
        elif not self.ledger.out_at(worker.number):
            worker.call_at = trio.current_time() + IDLE_SECONDS

    def _give(self, worker: _Worker, reply: WorkerReply) -> None:
        """Give a worker its part of the budget, after it was written down."""
        if self._budget is None:
            return
        try:
            if worker.is_lost:
                self._budget.late(worker.number, [answer.id for answer in reply.reply.answers], reply.amounts)
            elif reply.amounts is not None and (self._stopped or reply.failure):
                self._budget.note(worker.number, reply.amounts)
            elif reply.amounts is not None:
                worker.part = self._budget.give(worker.number, reply.amounts)
        except OSError as error:
            raise self._cannot_write(error) from None
        self._count_spent(self._budget)

    def _give_up_overdue(self, watch: Watch) -> None:
        overdue = watch.overdue(trio.current_time())
        if overdue and not self._came and len(overdue) == len(self._live):
            raise ClusterError(f"no worker has started: {self._cluster.resources()}")
        for worker in map(self._workers.__getitem__, overdue):
            self._replace(worker, "it did not reply" if worker.is_ready else "", watch)

    def _replace(self, worker: _Worker, reason: str, watch: Watch) -> None:
        """Give a worker up: its rows are asked again, and a new worker has its place.

        reason: why it was lost; empty if it was never ready.
        """
        number, figures = worker.number, worker.figures
        if worker.is_lost:
            return
        worker.is_lost = True
        watch.forget(number)
        self._cluster.kill(number)
        if self._budget is not None:
            self._budget.lose(number, self.ledger.ids_at(number))
        self.counters.asked_again += self.ledger.give_up(number)
        self.counters.lost += worker.is_ready
        self.counters.running -= figures.running
        self.counters.waiting -= figures.waiting
        figures.running = figures.waiting = 0
        figures.away = 0.0
        if worker.is_ready or reason:  # otherwise it found no place, and others may be working
            self._lost += 1
        if self._lost > LOST_PER_WORKER * len(self.concurrency):
            raise BatchError(f"{self._lost} workers were lost in a row, without an answer between them: {reason}")
        if worker.is_ready:
            self._start(worker.concurrency, number, watch, 1)
        else:
            self._start(worker.concurrency, None, watch, min(2 * worker.starts, MOST_STARTS))

    # --- answers and figures ---

    def _accept(self, answers: tuple[Answer, ...], *, is_late: bool) -> None:
        """Record answers. is_late: whether their worker was given up. Another one may pay for what it could not."""
        first = self.ledger.accept([answer for answer in answers if not (is_late and answer.is_unpaid)])
        self.counters.late = self.ledger.late
        if first:
            self._lost = 0
        self._record(
            [(answer.id, answer.record) for answer in first if not answer.failed],
            [(loads_object(answer.record), answer.record) for answer in first if answer.failed and answer.record],
        )
        if self._budget is not None:
            for answer in first:
                if answer.is_unpaid:
                    self.counters.unpaid += 1
                    self._budget.refuse()
                else:
                    self._budget.recorded(answer.dollars, failed=answer.failed)

    def _record(self, answers: list[tuple[str | int, bytes]], failures: list[tuple[JSONObject, bytes]]) -> None:
        try:
            self._journal.record_encoded(answers, [record for _, record in failures])
        except (OSError, JournalError) as error:
            raise self._cannot_write(error) from None
        self.counters.answered += len(answers)
        for record, _ in failures:
            category = string(mapping(record, "error"), "category") or ""
            if category == INVALID_LINE:
                self.counters.invalid += 1
            else:
                self.counters.failed += 1
                self.counters.failures[category] = self.counters.failures.get(category, 0) + 1

    def _cannot_write(self, error: OSError | JournalError) -> BatchError:
        path, reason = self._journal.answers_path, error.strerror if isinstance(error, OSError) else error
        return BatchError(f"cannot write {path} or a file beside it: {reason}")

    def _count_spent(self, budget: SharedBudget) -> None:
        self.counters.spent, self.counters.lost_usd = budget.spent, budget.lost

    def _count_figures(self, worker: _Worker, now: Counters) -> None:
        """Add what a worker has counted since its last reply."""
        before, total, worker.figures = worker.figures, self.counters, now
        if worker.is_lost:
            now.running = now.waiting = 0
            now.away = 0.0
        if now.away or total.away:
            total.away = max(each.figures.away for each in self._workers)
        for name in ADDED:
            setattr(total, name, getattr(total, name) + getattr(now, name) - getattr(before, name))
        total.unpriced_reason = total.unpriced_reason or now.unpriced_reason
        for currency, amount in now.cost.items():
            more = amount - before.cost.get(currency, Decimal(0))
            total.cost[currency] = total.cost.get(currency, Decimal(0)) + more
