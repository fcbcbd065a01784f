"""The asker of an actor: it makes the calls of blocks over one engine, which has a thread of its own.

Any number of threads may ask blocks at the same time. Their calls share one bound, and start in the order in which the
blocks came. With a journal, a block looks up what was answered before it asks, and ends when its records are written.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Protocol

from .. import Completion, EngineClosedError, EngineOptions, ErrorCategory, InvalidRequestError, Provider, ProviderError
from ..batch.line_file import encoded
from ..batch.lines import Item, LineId
from ..batch.records import answer_record, error_of, failure_record
from ..providers.catalog.selection import select
from ..providers.json.json_values import JSONObject, loads_object
from .exchange import Answer
from .rows import AskedRow, AskError, unsent_record
from .shared_rates import SharedRates, open_sharing_thread

STARTS_AT_ONCE = 64
"""So many calls are started before the streams of others are read again."""

RECORDS_AT_ONCE = 1000
"""So many records go to the journal at a time. Others wait until these are written."""

NOT_RECORDED = frozenset({ErrorCategory.AUTH, ErrorCategory.CANCELLED, ErrorCategory.BUDGET})
"""Failures that say nothing about their row. A later run asks the row again."""


class Journal(Protocol):
    """The journal of a data set, as an actor sees it. `AnswerKeeper` is one."""

    def lookup(self, ids: Sequence[LineId]) -> dict[LineId, bytes]:
        """Return id → record for those ids that have one. Raises an exception if the journal cannot be read."""
        ...

    def record(self, answers: Sequence[Answer]) -> dict[LineId, bytes]:
        """Record answers. Return id → record for the ids that had one. Raises an exception if nothing was written."""
        ...


class _Block:
    """A block whose rows are asked.

    started: the number of rows whose call was started.
    """

    def __init__(self, rows: list[AskedRow]) -> None:
        self.rows = rows
        self.started = 0
        self._left = len(rows)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._failure: BaseException | None = None

    @property
    def is_started(self) -> bool:
        """Whether no further call must be started: each has, or the block has failed."""
        return self.started == len(self.rows) or self._failure is not None

    def end(self, row: AskedRow, record: JSONObject) -> None:
        row.record = record
        with self._lock:  # the engine's thread and the journal's may both end rows
            self._left -= 1
            last = not self._left
        if last:
            self._ended.set()

    def fail(self, failure: BaseException) -> None:
        """End the block: `wait` raises the exception."""
        self._failure = failure
        self._ended.set()

    def wait(self) -> None:
        """Block until each row has a record. Raises what the block has failed with."""
        self._ended.wait()
        if self._failure is not None:
            raise self._failure


class Asker:
    """Makes the calls of blocks. `ask` may be called from any thread.

    providers: the providers that requests may name.
    concurrency: the most calls that run or wait at a time.
    journal: keeps the answers; None for no journal.
    shared: limits that the engine shares with those of other actors; None for none.

    running: the number of calls that run or wait now.

    Raises `InvalidRequestError` for options that cannot work.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        concurrency: int,
        journal: Journal | None,
        options: EngineOptions,
        shared: SharedRates | None = None,
    ) -> None:
        self._concurrency = concurrency
        self._journal = journal
        self._open = ExitStack()
        self._engine, self._thread = self._open.enter_context(open_sharing_thread(providers, shared, **options))
        self._providers = tuple(providers)
        self._names: dict[str, str | None] = {}
        self._waiting: deque[_Block] = deque()
        self.running: int = 0
        self._starting = False
        self._ended: SimpleQueue[tuple[_Block, AskedRow, Completion] | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="manystream journal", daemon=True)
        if journal is not None:
            self._writer.start()

    def ask(self, rows: Sequence[AskedRow]) -> None:
        """Ask the rows of a block that have no record, and wait until each has one. Raises `AskError`."""
        self._look_up(rows)
        asked = [row for row in rows if row.record is None]
        if not asked:
            return
        block = _Block(asked)
        try:
            self._thread.run(lambda: self._add(block))
        except EngineClosedError as error:
            raise _ended(str(error)) from None
        block.wait()

    def close(self) -> None:
        """Close the engine and end its thread. Calls that run are cancelled."""
        try:
            self._open.close()
        finally:
            if self._journal is not None:
                self._ended.put(None)
                self._writer.join()

    def _look_up(self, rows: Sequence[AskedRow]) -> None:
        if self._journal is None:
            return
        known = self._journal.lookup([row.id for row in rows if row.record is None])
        for row in rows:
            if row.record is None and row.id in known:
                row.record = loads_object(known[row.id])

    def _record(self, row: AskedRow, completion: Completion) -> JSONObject:
        """Return the record of a row's call: that of a batch's line, without the number of a line."""
        assert row.request is not None
        item = Item(row.number, row.id, row.request, 0)
        error = error_of(completion)
        if error is None:
            return answer_record(item, completion, self._provider_of(row.request.model))
        record = failure_record(item, completion, error)
        del record["line"]
        return record

    def _provider_of(self, model: str) -> str | None:
        """Return the name of the provider that a model's name selects; None for a route."""
        if model not in self._names:
            try:
                self._names[model] = select(model, self._providers)[0].name
            except InvalidRequestError:
                self._names[model] = None
        return self._names[model]

    # --- the engine's thread ---

    def _add(self, block: _Block) -> None:
        self._waiting.append(block)
        self._start_some()

    def _start_some(self) -> None:
        """Start calls while there is room, at most `STARTS_AT_ONCE`. The rest follows in the next iteration."""
        if self._starting:
            return  # a call has ended while another was started
        self._starting = True
        try:
            for _ in range(STARTS_AT_ONCE):
                if not self._waiting or self.running >= self._concurrency:
                    return
                block = self._waiting[0]
                if block.is_started:
                    self._waiting.popleft()
                    continue
                block.started += 1
                self._start(block, block.rows[block.started - 1])
        finally:
            self._starting = False
        self._thread.soon(self._start_some)

    def _start(self, block: _Block, row: AskedRow) -> None:
        assert row.request is not None

        def on_completion(completion: Completion) -> None:
            self.running -= 1
            self._end(block, row, completion)
            self._start_some()

        self.running += 1
        try:
            self._engine.start_request(row.request, on_completion)
        except InvalidRequestError as error:
            self.running -= 1
            block.end(row, unsent_record(row.id, str(error)))
        except EngineClosedError as error:
            self.running -= 1
            block.fail(_ended(str(error)))
        except Exception as error:  # a defect that one row triggers must not end the data set
            self.running -= 1
            block.end(row, unsent_record(row.id, f"cannot be sent: {error!r}"))

    def _end(self, block: _Block, row: AskedRow, completion: Completion) -> None:
        error = error_of(completion)
        if error is not None and error.category is ErrorCategory.CANCELLED:  # only the engine's end cancels a call
            block.fail(_ended(error.message))
        elif self._journal is None or (error is not None and not is_recorded(error)):
            block.end(row, self._record(row, completion))
        else:
            self._ended.put((block, row, completion))

    # --- the journal's thread ---

    def _write(self) -> None:
        """Write records until the asker is closed. The records that come meanwhile are written together."""
        while (first := self._ended.get()) is not None:
            ended = [first]
            try:
                while len(ended) < RECORDS_AT_ONCE:
                    following = self._ended.get_nowait()
                    if following is None:
                        self._ended.put(None)
                        break
                    ended.append(following)
            except Empty:
                pass
            self._write_some(ended)

    def _write_some(self, ended: list[tuple[_Block, AskedRow, Completion]]) -> None:
        assert self._journal is not None
        try:
            records = [self._record(row, completion) for _, row, completion in ended]
            answers = [
                Answer(row.id, encoded(record), failed=error_of(completion) is not None)
                for (_, row, completion), record in zip(ended, records, strict=True)
            ]
            others = self._journal.record(answers)
            for (block, row, _), record in zip(ended, records, strict=True):
                other = others.get(row.id)
                block.end(row, loads_object(other) if other is not None else record)
        except BaseException as error:  # without it, the blocks would never end
            for block, _, _ in ended:
                block.fail(error)


def _ended(reason: str) -> AskError:
    return AskError(f"the engine of this actor has ended: {reason}")


def is_recorded(error: ProviderError) -> bool:
    """Return whether a journal records a failure, so that later runs do not ask the row again.

    A refused key or a spent quota fails every row. It is no property of the row.
    """
    return error.category not in NOT_RECORDED and (error.category is not ErrorCategory.RATE_LIMIT or error.retryable)
