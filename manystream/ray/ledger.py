"""The driver's ledger: which rows wait, which are out at which actor, and which are answered.

The first answer to a row counts. A row is asked again when its actor is given up, and its former actor may answer it
nevertheless.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..batch.lines import LineId
from .exchange import Answer, Row

AHEAD = 1.5
"""The rows that are out at an actor, as a multiple of the calls that it makes at a time. The surplus keeps the engine
busy until the next exchange."""


@dataclass(slots=True)
class _Account:
    """The rows at one actor.

    most: the most rows that may be out at it.
    out: id → row.
    """

    most: int
    out: dict[LineId, Row] = field(default_factory=dict[LineId, Row])


@dataclass(slots=True, eq=False, repr=False)
class Ledger:
    """The rows of a batch that are not answered yet."""

    # whether the input has no more rows. The last rows are then spread evenly over the actors.
    ended: bool = field(default=False, init=False)
    answered: int = field(default=0, init=False)  # number of rows whose answer was accepted
    late: int = field(default=0, init=False)  # number of answers that were dropped because their row had an answer
    asked_again: int = field(default=0, init=False)  # number of rows that were taken from an actor that was given up
    _actors: dict[int, _Account] = field(default_factory=dict[int, _Account], init=False)
    _waiting: deque[Row] = field(default_factory=deque[Row], init=False)
    # id → the actor where the row is out, or None if it waits. An answered row is not in it.
    _place: dict[LineId, int | None] = field(default_factory=dict[LineId, int | None], init=False)
    _count_waiting: int = field(default=0, init=False)

    @property
    def waiting(self) -> int:
        """The number of rows that wait for an actor."""
        return self._count_waiting

    @property
    def out(self) -> int:
        """The number of rows that are out at actors."""
        return len(self._place) - self._count_waiting

    @property
    def done(self) -> bool:
        """Whether every row of the input is answered."""
        return self.ended and not self._place

    @property
    def lacking(self) -> int:
        """The number of rows that the actors would take beyond those that wait. Read so many from the input."""
        room = sum(self.room(actor) for actor in self._actors)
        return 0 if self.ended else max(0, room - self.waiting)

    # --- actors ---

    def add_actor(self, actor: int, concurrency: int) -> None:
        """Add an actor that makes so many calls at a time."""
        self._actors[actor] = _Account(max(1, math.floor(concurrency * AHEAD)))

    def out_at(self, actor: int) -> int:
        """Return the number of rows that are out at an actor; 0 if it was given up."""
        account = self._actors.get(actor)
        return len(account.out) if account is not None else 0

    def ids_at(self, actor: int) -> set[LineId]:
        account = self._actors.get(actor)
        return set(account.out) if account is not None else set()

    def room(self, actor: int) -> int:
        """Return the number of rows that an actor may take; 0 if it was given up."""
        account = self._actors.get(actor)
        return account.most - len(account.out) if account is not None else 0

    def give_up(self, actor: int) -> int:
        """Remove an actor. Its rows wait again, before all others. Return their number."""
        account = self._actors.pop(actor, None)
        if account is None:
            return 0
        for id, row in reversed(account.out.items()):
            self._place[id] = None
            self._waiting.appendleft(row)
        count = len(account.out)
        self._count_waiting += count
        self.asked_again += count
        return count

    # --- rows ---

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows of the input. Each id must be new: the reader of the input refuses an id that is used twice."""
        for row in rows:
            if row.id in self._place:
                raise ValueError(f"row {row.number}: {row.id!r} is already in the ledger")
            self._place[row.id] = None
            self._waiting.append(row)
            self._count_waiting += 1

    def drop_waiting(self) -> int:
        """Remove the rows that wait, because no more rows are sent. Return their number."""
        dropped = [row.id for row in self._waiting if self._place.get(row.id, 0) is None]
        for id in dropped:
            del self._place[id]
        self._waiting.clear()
        self._count_waiting = 0
        return len(dropped)

    def hand_out(self, actor: int) -> tuple[Row, ...]:
        """Return the rows that go to an actor now. They are out at it from now on."""
        account = self._actors.get(actor)
        if account is None:
            return ()
        count = self.room(actor)
        if self.ended:
            count = min(count, math.ceil(self.waiting / len(self._actors)))
        rows: list[Row] = []
        while len(rows) < count and self._waiting:
            row = self._waiting.popleft()
            if self._place.get(row.id, actor) is None:  # otherwise its former actor has answered it
                self._place[row.id] = actor
                account.out[row.id] = row
                rows.append(row)
        self._count_waiting -= len(rows)
        return tuple(rows)

    def accept(self, answers: Iterable[Answer]) -> list[Answer]:
        """Return the answers that count, to be recorded. An actor that was given up may have sent them, too."""
        first: list[Answer] = []
        for answer in answers:
            if answer.id not in self._place:
                self.late += 1
                continue
            actor = self._place.pop(answer.id)
            if actor is None:
                self._count_waiting -= 1
            else:
                del self._actors[actor].out[answer.id]
            first.append(answer)
        self.answered += len(first)
        return first
