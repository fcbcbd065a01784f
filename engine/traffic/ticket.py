"""A call as traffic control sees it: what it costs, where it waits, what it holds. One object from queue to end.

Knows states and fields. Must not know what changes them.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING

from .charge import FREE, Cost

if TYPE_CHECKING:
    from .tenants import TenantLine


class Priority(enum.StrEnum):
    """Which calls go first. The order of the members is the order of service."""

    INTERACTIVE = "interactive"
    NORMAL = "normal"
    BATCH = "batch"


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
        self.line: TenantLine | None = None
        self.before: Ticket | None = None
        self.after: Ticket | None = None

    def __repr__(self) -> str:
        return f"Ticket({self.state.name}, {self.priority}, tenant={self.tenant!r}, cost={tuple(self.cost)})"
