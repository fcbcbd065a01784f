"""The exchange between a driver and one actor: rows go to the actor, and answers come back.

There is one call, `exchange(seq, rows) -> answers`. A driver has at most one exchange open with an actor. It counts
them, and repeats an exchange under the same number until a reply comes. So a lost call or a lost reply does no harm:
the actor takes the rows of a number once, and returns the same answers for it each time. The next number tells the
actor that the driver has the answers of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .. import ManystreamError
from ..batch.lines import LineId
from .rate_leases import Lease
from .shared_budget import AmountPart

ORPHANED_SECONDS = 2.5
"""An engine starts nothing after so many seconds without a call."""

CONFIRMED_SECONDS = 4.0
"""An engine starts nothing if its last reply that the driver has confirmed is older than so many seconds.

It is less than `watch.SILENT_SECONDS`: when the driver gives an actor up and sends its rows elsewhere, that actor has
already stopped to start calls. The time of the last call does not suffice. A machine that was frozen finds calls in its
buffers when it goes on, and the driver may have given it up long ago.
"""


class ExchangeError(ManystreamError, RuntimeError):
    """An exchange has a number that this side does not expect. The message names both numbers."""


@dataclass(slots=True, frozen=True)
class Row:
    """A line of a batch's input on its way to an engine.

    number: the line's number, from 1.
    data: the line.
    spent: US dollars of its attempts in earlier runs.
    """

    id: LineId
    number: int
    data: bytes
    spent: float = 0.0


@dataclass(slots=True, frozen=True)
class Answer:
    """The end of a row.

    record: the record for the journal, as JSON in one line without a line end; empty if the row was not sent, because
        the budget did not allow it.
    failed: whether the record belongs to the failures.
    dollars: US dollars of the row's attempts that the record has and no earlier record of the row.
    """

    id: LineId
    record: bytes
    failed: bool
    dollars: float = 0.0

    @property
    def is_unpaid(self) -> bool:
        """Whether the row was not sent, because the budget did not allow it."""
        return not self.record


@dataclass(slots=True, frozen=True)
class Offer:
    """What a driver sends in an exchange.

    seq: the number of the exchange, from 1.
    rows: the rows that the actor takes.
    confirms: `sent_at` of the reply to the exchange before; None in the first exchange.
    lease: the actor's part of each rate limit, as it has asked for it in that reply; None if there is nothing new.
    part: the actor's part of the budget; None if there is nothing new.
    """

    seq: int
    rows: tuple[Row, ...]
    confirms: float | None = None
    lease: Lease | None = None
    part: AmountPart | None = None

    def __reduce__(self) -> tuple[Callable[..., Offer], tuple[object, ...]]:
        rows = [(row.id, row.number, row.data, row.spent) for row in self.rows]
        return _offer, (self.seq, rows, self.confirms, self.lease, self.part)


@dataclass(slots=True, frozen=True)
class Reply:
    """What an actor returns in an exchange.

    answers: the answers since the exchange before.
    sent_at: the time of the reply, by the actor's clock.
    """

    seq: int
    answers: tuple[Answer, ...]
    sent_at: float

    def __reduce__(self) -> tuple[Callable[..., Reply], tuple[object, ...]]:
        answers = [(answer.id, answer.record, answer.failed, answer.dollars) for answer in self.answers]
        return _reply, (self.seq, answers, self.sent_at)


# Rows and answers travel between processes as tuples. Pickling an object of a class costs about ten times as much.


def _offer(
    seq: int,
    rows: Iterable[tuple[LineId, int, bytes, float]],
    confirms: float | None,
    lease: Lease | None,
    part: AmountPart | None,
) -> Offer:
    return Offer(seq, tuple(Row(*row) for row in rows), confirms, lease, part)


def _reply(seq: int, answers: Iterable[tuple[LineId, bytes, bool, float]], sent_at: float) -> Reply:
    return Reply(seq, tuple(Answer(*answer) for answer in answers), sent_at)


@dataclass(slots=True, eq=False, repr=False)
class DriverExchange:
    """The driver's side of the exchanges with one actor."""

    # the exchange without a reply; None if there is none. To repeat it, send it again as it is.
    open: Offer | None = field(default=None, init=False)
    _seq: int = field(default=0, init=False)
    _confirms: float | None = field(default=None, init=False)

    def offer(self, rows: tuple[Row, ...], lease: Lease | None = None, part: AmountPart | None = None) -> Offer:
        """Open the next exchange. Raises `ExchangeError` if the one before has no reply."""
        if self.open is not None:
            raise ExchangeError(f"exchange {self.open.seq} has no reply yet: repeat it")
        self._seq += 1
        self.open = Offer(self._seq, rows, self._confirms, lease, part)
        return self.open

    def accept(self, reply: Reply) -> bool:
        """Return whether this is the first reply to the open exchange, and close it then.

        A repeated exchange may have two replies. The second has the same answers as the first.
        """
        if self.open is None or reply.seq != self.open.seq:
            return False
        self.open = None
        self._confirms = reply.sent_at
        return True


class ActorExchange:
    """The actor's side of the exchanges.

    It is not safe for threads: an actor that serves two calls at a time holds a lock around each method.
    """

    def __init__(self, now: float) -> None:
        self._seq = 0
        self._replied: tuple[Answer, ...] | None = None
        self._answers: list[Answer] = []
        self._called_at = now
        self._confirmed_at = -math.inf

    def receive(self, offer: Offer, now: float) -> tuple[Row, ...]:
        """Return the rows to start: those of a new exchange, and none if the exchange is repeated.

        Raises `ExchangeError` if the driver has already had the reply, or if an exchange is missing.
        """
        self._check(offer.seq, self._seq + 1)
        self._called_at = now
        if offer.seq == self._seq:
            return ()
        if offer.confirms is not None:
            self._confirmed_at = offer.confirms
        self._seq, self._replied = offer.seq, None
        return offer.rows

    def add(self, answer: Answer) -> None:
        """Keep the answer to a row until the driver has it."""
        self._answers.append(answer)

    @property
    def has_answers(self) -> bool:
        """Whether the reply to the current exchange has answers."""
        return bool(self._answers if self._replied is None else self._replied)

    @property
    def unconfirmed(self) -> int:
        """The number of answers of which it is not known whether the driver has them: they are asked again if this
        actor is lost.
        """
        return len(self._answers) + (len(self._replied) if self._replied is not None else 0)

    def reply(self, seq: int, now: float) -> Reply:
        """Return the reply to an exchange that was received. The first call decides which answers it has.

        Raises `ExchangeError` if the driver has already had this reply.
        """
        self._check(seq, self._seq)
        if self._replied is None:
            self._replied = tuple(self._answers)
            self._answers.clear()
        return Reply(seq, self._replied, now)

    @property
    def open_until(self) -> float:
        """The time until which the engine may start calls, unless a call comes: the driver has called, and had a reply,
        a short time before.

        So the rows of the first exchange start after the second.
        """
        return min(self._called_at + ORPHANED_SECONDS, self._confirmed_at + CONFIRMED_SECONDS)

    def may_start(self, now: float) -> bool:
        """Return whether the engine may start a call."""
        return now <= self.open_until

    def _check(self, seq: int, most: int) -> None:
        if not self._seq <= seq <= most or not seq:
            raise ExchangeError(f"exchange {seq} does not follow exchange {self._seq}")
