"""A call as traffic control sees it: what it costs, where it waits, what it holds. One object from queue to end.

And the linked list in which the calls of one tenant wait.

Knows states, fields and links. Must not know what changes them.
"""

from __future__ import annotations

import enum
import math

from ...providers.options import Priority
from .charge import FREE, Cost


class TicketState(enum.IntEnum):
    """Where a ticket stands."""

    NEW = 0
    QUEUED = 1
    SENT = 2
    """Sent, and a refusal may still come: it takes a place in the window."""
    CONFIRMED = 3
    ENDED = 4


class Ticket:
    """One call's place in a queue and, once it is sent, what it has reserved.

    input_tokens, max_output: what the charge is estimated from; `max_output` is None where the request has no limit.
    cost: the charge as it is believed now. It is estimated again when the call's turn comes.
    priority, tenant, deadline: as the caller gave them; the deadline is a time, `math.inf` for none.
    service: tokens that the tenant is charged for it.
    refusals: how often a limit refused it.
    charged: what the quota's buckets hold of it now.
    sent_at: when it was sent last.
    sent_before: what the quota had sent in all when it was sent, it included.
    owner: the caller's own object.
    place: in its tenant's line; the first call has the least.
    """

    __slots__ = (
        "after",
        "before",
        "charged",
        "cost",
        "deadline",
        "input_tokens",
        "line",
        "max_output",
        "owner",
        "place",
        "priority",
        "refusals",
        "sent_at",
        "sent_before",
        "sequence",
        "service",
        "state",
        "tenant",
    )

    def __init__(
        self,
        input_tokens: float,
        max_output: float | None,
        *,
        priority: Priority = Priority.NORMAL,
        tenant: str | None = None,
        deadline: float = math.inf,
        owner: object = None,
    ) -> None:
        self.input_tokens: float = input_tokens
        self.max_output: float | None = max_output
        self.cost: Cost = FREE
        self.priority: Priority = priority
        self.tenant: str | None = tenant
        self.deadline: float = deadline
        self.owner: object = owner
        self.service: float = max(1.0, input_tokens + (max_output or 0.0))
        self.refusals: int = 0
        self.state: TicketState = TicketState.NEW
        self.charged: Cost = FREE
        self.sent_at: float = -math.inf
        self.sent_before: Cost = FREE
        self.sequence: int = 0
        self.place: int = 0
        self.line: TenantLine | None = None
        self.before: Ticket | None = None
        self.after: Ticket | None = None

    @property
    def is_first_of_tenant(self) -> bool:
        """Whether it stands at the head of its tenant's line, so that it may be the next call of all."""
        return self.line is not None and self.line.first is self

    def __repr__(self) -> str:
        return f"Ticket({self.state.name}, {self.priority}, tenant={self.tenant!r}, cost={tuple(self.cost)})"


class TenantLine:
    """The waiting calls of one tenant in one class, as a linked list, so that one in the middle leaves in O(1).

    service: tokens served, on the class's scale. backlog: tokens waiting. length: calls waiting.
    version: which of the heap's entries is the valid one.
    """

    __slots__ = ("backlog", "first", "last", "length", "name", "octave", "service", "version")

    def __init__(self, name: str | None) -> None:
        self.name: str | None = name
        self.service: float = 0.0
        self.backlog: float = 0.0
        self.length: int = 0
        self.version: int = 0
        self.octave: int = 0
        self.first: Ticket | None = None
        self.last: Ticket | None = None

    def append(self, ticket: Ticket) -> None:
        """At the end."""
        ticket.place = 0 if self.last is None else self.last.place + 1
        self._link(self.last, ticket, None)

    def prepend(self, ticket: Ticket) -> None:
        """At the head."""
        ticket.place = 0 if self.first is None else self.first.place - 1
        self._link(None, ticket, self.first)

    def unlink(self, ticket: Ticket) -> None:
        """Wherever it stands."""
        before, after = ticket.before, ticket.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        ticket.before = ticket.after = ticket.line = None
        self._count(-1, ticket)

    def _link(self, before: Ticket | None, ticket: Ticket, after: Ticket | None) -> None:
        ticket.line, ticket.before, ticket.after = self, before, after
        if before is None:
            self.first = ticket
        else:
            before.after = ticket
        if after is None:
            self.last = ticket
        else:
            after.before = ticket
        self._count(1, ticket)

    def _count(self, sign: int, ticket: Ticket) -> None:
        self.length += sign
        self.backlog = self.backlog + sign * ticket.service if self.length else 0.0
