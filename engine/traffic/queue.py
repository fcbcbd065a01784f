"""The calls of one scope that wait to be sent, and which of them is next.

Classes go in strict order, but a class that was passed over for 30 s gets the next place, one. Within a class the
tenant with the least service goes next (see `tenants`).

Knows tickets and the time that it is given. Must not know limits, timers or calls.
"""

from __future__ import annotations

import heapq
import math

from ...providers.options import Priority
from .tenants import TenantClass
from .ticket import Ticket, TicketState

LONGEST_WAIT = 30.0
"""Seconds after which a class that was passed over gets one place."""

HOPELESS = 1.5
"""A call is given up early where what is ahead of it takes this many times longer than it can wait."""

STUBBORN = 5
"""A call that was refused this often goes behind the others of its tenant: it may be too large for this server, and
must not keep them waiting."""

CLASSES = tuple(Priority)


class FairQueue:
    """Waiting calls.

    length: how many; `len()` says the same.
    """

    def __init__(self) -> None:
        self._classes = {priority: TenantClass() for priority in CLASSES}
        self._passed_since: dict[Priority, float] = {}
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._with_deadline = 0
        self._sequence = 0
        self.length: int = 0

    def __len__(self) -> int:
        return self.length

    def add(self, ticket: Ticket, *, at_head: bool = False) -> None:
        """A call begins to wait, behind the others of its tenant. at_head: before them, because it waited before."""
        self._enter(ticket, at_head=at_head)

    def put_back(self, ticket: Ticket) -> None:
        """A call that was sent was refused: it waits again, before the others of its tenant, whose service is given
        back."""
        self._classes[ticket.priority].serve(ticket.tenant, -ticket.service)
        ticket.refusals += 1
        self._enter(ticket, at_head=ticket.refusals % STUBBORN > 0)

    def first(self, now: float) -> Ticket | None:
        """The call that is next; None where none waits."""
        if not self.length:
            return None
        return self._classes[self._next_class(now)].first()

    def take(self, now: float) -> Ticket:
        """Remove the next call, because it is sent. There must be one."""
        priority = self._next_class(now)
        line = self._classes[priority]
        ticket = line.first()
        line.serve(ticket.tenant, ticket.service, taken=True)
        self._drop(ticket)
        self._passed_since.pop(priority, None)
        for other, waiting in self._classes.items():
            if waiting.length and other is not priority:
                self._passed_since.setdefault(other, now)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """A waiting call is cancelled. Nothing of it stays."""
        self._drop(ticket)
        ticket.state = TicketState.ENDED
        if not self._classes[ticket.priority].length:
            self._passed_since.pop(ticket.priority, None)

    def correct(self, ticket: Ticket, tokens: float) -> None:
        """A call that was sent ended with this many tokens: its tenant's service becomes that."""
        self._classes[ticket.priority].serve(ticket.tenant, tokens - ticket.service)
        ticket.service = tokens

    def next_deadline(self) -> float:
        """When the first waiting call's time is up; `math.inf` where none has a deadline."""
        while self._deadlines and not self._is_waiting(self._deadlines[0]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else math.inf

    def expired(self, now: float) -> list[Ticket]:
        """The calls whose time is up. They wait no longer."""
        found: list[Ticket] = []
        while self.next_deadline() <= now:
            ticket = self._deadlines[0][2]
            self.remove(ticket)
            found.append(ticket)
        return found

    def ahead(self, ticket: Ticket) -> float:
        """Tokens that are served before a call that has just begun to wait."""
        higher = CLASSES[: CLASSES.index(ticket.priority)]
        own = self._classes[ticket.priority].ahead(ticket)
        return own + sum(self._classes[priority].backlog for priority in higher)

    def place(self, ticket: Ticket) -> tuple[float, float]:
        """About how many calls, and tokens, are served before a waiting call."""
        calls, tokens = self._classes[ticket.priority].place(ticket)
        for priority in CLASSES[: CLASSES.index(ticket.priority)]:
            calls += self._classes[priority].length
            tokens += self._classes[priority].backlog
        return calls, tokens

    def is_hopeless(self, ticket: Ticket, tokens_per_second: float, now: float) -> bool:
        """Whether a call that has just begun to wait cannot go before its deadline, by a wide margin.

        tokens_per_second: what is believed to be possible; `math.inf` where no rate is known, and then it is False.
        """
        if not 0 < tokens_per_second < math.inf or ticket.deadline == math.inf:
            return False
        return self.ahead(ticket) / tokens_per_second > HOPELESS * (ticket.deadline - now)

    def _next_class(self, now: float) -> Priority:
        highest = next(priority for priority in CLASSES if self._classes[priority].length)
        for priority, since in self._passed_since.items():
            if now - since >= LONGEST_WAIT and self._classes[priority].length:
                return priority
        return highest

    def _enter(self, ticket: Ticket, *, at_head: bool) -> None:
        self._sequence += 1
        self.length += 1
        ticket.sequence = self._sequence
        ticket.state = TicketState.QUEUED
        self._classes[ticket.priority].add(ticket, at_head=at_head)
        if ticket.deadline < math.inf:
            self._with_deadline += 1
            heapq.heappush(self._deadlines, (ticket.deadline, ticket.sequence, ticket))

    def _drop(self, ticket: Ticket) -> None:
        self.length -= 1
        self._classes[ticket.priority].remove(ticket)
        if ticket.deadline < math.inf:
            self._with_deadline -= 1
            ticket.sequence = 0
            if len(self._deadlines) > 2 * self._with_deadline + 32:
                self._deadlines = [entry for entry in self._deadlines if self._is_waiting(entry)]
                heapq.heapify(self._deadlines)

    @staticmethod
    def _is_waiting(entry: tuple[float, int, Ticket]) -> bool:
        return entry[1] == entry[2].sequence
