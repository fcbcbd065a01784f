"""The intake of a batch: it decides for each line of the input whether this run sends it."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal

from .. import JSONObject
from .journal import INVALID_LINE
from .line_ids import LineIds
from .lines import Line, LineError, LineId, read_line
from .shard import Shard

RECORDED_TEXT = 2000
"""The most characters of an error's message that are recorded."""


@dataclass(slots=True)
class WayFigures:
    """What went one way. The prices are in US dollars, and None where no answer has a price.

    lines: lines with an answer.
    input_tokens: input tokens that the provider reported.
    output_tokens: output tokens that the provider reported, thinking included.
    list_price: what the answers cost at the list price.
    paid: what they cost this way.
    """

    lines: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    list_price: float | None = None
    paid: float | None = None

    @property
    def saved(self) -> float | None:
        """The difference to the list price."""
        return None if self.list_price is None or self.paid is None else self.list_price - self.paid


@dataclass(slots=True)
class Counters:
    """The figures of a run.

    lines: lines that were read so far; in a shard, only the shard's own.
    running: calls that run or wait now.
    answered: lines whose answer was recorded in this run.
    cached: those of them whose answer is one of a cache.
    failed: lines whose failure was recorded in this run.
    invalid: lines that were not sent because they are not valid requests.
    answered_before: lines that were skipped because an earlier run recorded their answer.
    failed_before: lines that were skipped because an earlier run recorded their failure.
    retries: attempts beyond the first of each call.
    input_tokens: input tokens that the providers reported.
    output_tokens: output tokens that the providers reported, thinking included.
    failures: category → number of failed lines.
    cost: currency → cost of the answers that have a price.
    unpriced: number of answers without a price.
    unpriced_reason: why the first of them has none; empty if all have one.
    waiting: those of `running` that wait to be sent; `Batch.count_waiting` sets it.
    away: seconds for which a server has refused or dropped every connection, the longest if there are several; 0 if
        all take them. `Batch.count_waiting` sets it.
    budget: US dollars that all runs together may cost; None for no budget.
    spent: US dollars that count in the budget, those of earlier runs included.
    unpaid: lines that were not sent because the budget did not allow it. They are not recorded.
    lost: workers on a cluster that were given up after they had started.
    lost_usd: US dollars of `spent` that these workers may have spent, and that no record has.
    asked_again: lines that were taken from such a worker and sent by another.
    late: answers that were dropped because their line had an answer of another worker.
    ways: way → what went that way, in all runs with a deadline or a fixed way on these files; empty without these.
    submitted: lines that are in a provider's batches now.
    submissions: the number of these batches.
    missed: seconds between the deadline and the last answer, if that came later; 0 if the deadline is kept.
    notes: what the user should know, such as why lines went live.
    """

    lines: int = 0
    running: int = 0
    answered: int = 0
    cached: int = 0
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
    waiting: int = 0
    away: float = 0.0
    budget: float | None = None
    spent: float = 0.0
    unpaid: int = 0
    lost: int = 0
    lost_usd: float = 0.0
    asked_again: int = 0
    late: int = 0
    ways: dict[str, WayFigures] = field(default_factory=dict[str, WayFigures])
    submitted: int = 0
    submissions: int = 0
    missed: float = 0.0
    notes: list[str] = field(default_factory=list[str])

    @property
    def recorded(self) -> int:
        """The number of lines that have a record of this run."""
        return self.answered + self.failed + self.invalid

    @property
    def ended(self) -> int:
        """The number of lines that are finished or were skipped."""
        return self.recorded + self.answered_before + self.failed_before


@dataclass(slots=True, eq=False, repr=False)
class Intake:
    """The lines of an input that a run sends: those of its shard that have no answer yet."""

    _counters: Counters  # the run's figures. The intake counts the lines that it reads and skips.
    _source: str  # the input's name, for messages
    _answered: Container[LineId]  # ids of lines with an answer
    _failed: Container[LineId]  # ids of lines that failed in earlier runs
    _: KW_ONLY
    retry_failed: bool = False  # whether to send those again
    shard: Shard | None = None  # the part of the input that this run sends; None for the whole input
    _seen: LineIds = field(default_factory=LineIds, init=False)

    def select(self, number: int, data: bytes) -> Line | None:
        """Return the line, or None if it is skipped or of another shard. Raises `LineError`. number: from 1."""
        if self.shard is not None and not self.shard.has(number):
            self._note_foreign(number, data)
            return None
        self._counters.lines += 1
        line = read_line(data, number)
        first = self._seen.setdefault(line.id, number)
        if first != number:
            raise LineError(f"id: {line.id!r} is used twice, first on line {first}", line.id)
        if line.id in self._answered:
            self._counters.answered_before += 1
            return None
        if line.id in self._failed and not self.retry_failed:
            self._counters.failed_before += 1
            return None
        return line

    def refusal(self, number: int, id: LineId | None, message: str) -> JSONObject:
        """Return the record of a line that is not sent."""
        text = f"{self._source} line {number}: {message}"
        return {"id": id, "line": number, "error": {"category": INVALID_LINE, "message": text[:RECORDED_TEXT]}}

    def _note_foreign(self, number: int, data: bytes) -> None:
        """Note the id of a line of another shard: a later line of this shard with the same id is refused."""
        with suppress(Exception):  # the shard that the line belongs to reports the error
            self._seen.setdefault(read_line(data, number).id, number)
