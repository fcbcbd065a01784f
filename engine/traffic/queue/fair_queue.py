"""A fair queue of the calls of one scope that wait to be sent.

Priority classes are served in strict order, except that a class that was passed over for 30 s is served once. Within a
class, the tenant with the least service is next (tenants.py).
"""

from __future__ import annotations

from ....providers.model.options import Priority
from .permit import ENDED, QUEUED, Ticket
from .tenants import TenantClass

LONGEST_WAIT = 30.0
"""Seconds after which a class that was passed over is served once."""

STUBBORN = 5
"""After each series of this many refusals, a call goes behind the other calls of its tenant. It may be too large for
this server, and must not block them."""

CLASSES = tuple(Priority)
"""The priority classes, the highest first."""


class FairQueue:
    """The waiting calls of one scope, by priority and tenant.

    length: the number of waiting calls, equal to `len()`.
    """

    def __init__(self) -> None:
        self._classes = {priority: TenantClass() for priority in CLASSES}
        self._passed_since: dict[Priority, float] = {}
        self.length: int = 0

    def __len__(self) -> int:
        return self.length

    def add(self, ticket: Ticket, *, at_head: bool = False) -> None:
        """Add a call behind the other calls of its tenant. `at_head`: before them, because it waited before."""
        self._enter(ticket, at_head=at_head)

    def pass_through(self, ticket: Ticket) -> None:
        """Let a call pass that is sent at once: its tenant is charged as for `add` and `take`. The queue must be
        empty."""
        self._classes[ticket.priority].pass_through(ticket)
        if self._passed_since:
            self._passed_since.pop(ticket.priority, None)

    def put_back(self, ticket: Ticket) -> None:
        """Add a refused call again, before the other calls of its tenant, and give the tenant its service back."""
        self._classes[ticket.priority].correct(ticket, 0.0)
        ticket.refusals += 1
        self._enter(ticket, at_head=ticket.refusals % STUBBORN > 0)

    def first(self, now: float) -> Ticket | None:
        """Return the next call without removing it; None if the queue is empty."""
        if not self.length:
            return None
        return self._classes[self._next_class(now)].first()

    def take(self, now: float) -> Ticket:
        """Remove and return the next call, because it is sent. The queue must not be empty."""
        priority = self._next_class(now)
        ticket = self._classes[priority].take()
        self.length -= 1
        self._passed_since.pop(priority, None)
        for other, waiting in self._classes.items():
            if waiting.length and other is not priority:
                self._passed_since.setdefault(other, now)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """Remove a waiting call that was cancelled. Its tenant is not charged."""
        self._classes[ticket.priority].remove(ticket)
        self.length -= 1
        ticket.state = ENDED
        if not self._classes[ticket.priority].length:
            self._passed_since.pop(ticket.priority, None)

    def correct(self, ticket: Ticket, tokens: float) -> None:
        """Replace the expected tokens of an ended call by those that it used, in the service of its tenant."""
        self._classes[ticket.priority].correct(ticket, tokens)

    def place(self, ticket: Ticket) -> tuple[float, float]:
        """Estimate the number of calls, and of tokens, that are served before a waiting call."""
        calls, tokens = self._classes[ticket.priority].place(ticket)
        for priority in CLASSES[: CLASSES.index(ticket.priority)]:
            calls += self._classes[priority].length
            tokens += self._classes[priority].backlog
        return calls, tokens

    def _next_class(self, now: float) -> Priority:
        highest = next(priority for priority in CLASSES if self._classes[priority].length)
        for priority, since in self._passed_since.items():
            if now - since >= LONGEST_WAIT and self._classes[priority].length:
                return priority
        return highest

    def _enter(self, ticket: Ticket, *, at_head: bool) -> None:
        self.length += 1
        ticket.state = QUEUED
        self._classes[ticket.priority].add(ticket, at_head=at_head)
