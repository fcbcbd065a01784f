"""The permit of a call in traffic control, and the linked list in which the calls of one tenant wait.

A call has one permit from the queue to its end.
"""

from __future__ import annotations

import enum
import math

from ....providers.model.options import Priority
from .cost import FREE, Cost, Mean

NEVER = -math.inf
"""The time of what has not happened. All permits share it."""


class PermitState(enum.IntEnum):
    """The state of a permit."""

    NEW = 0
    """The call is not queued yet."""
    QUEUED = 1
    """The call waits in a queue."""
    SENT = 2
    """The call was sent and may still be refused. It takes a place in the window."""
    CONFIRMED = 3
    """The server accepted the call."""
    ENDED = 4
    """The call ended, was refused or was cancelled."""


NEW, QUEUED, SENT = PermitState.NEW, PermitState.QUEUED, PermitState.SENT
CONFIRMED, ENDED = PermitState.CONFIRMED, PermitState.ENDED
"""The states, for the path of every call. CPython 3.11 needs a thousand instructions to find a member in its enum."""

UNDER_WAY = (SENT, CONFIRMED)
"""The states of a call that was sent and has not ended."""


class Permit:
    """The place of one call in a queue and, after the call was sent, its reserved cost.

    input_tokens: the estimated tokens of the prompt.
    max_output: the request's limit for output tokens; None if it has none.
    cost: the charge as it was estimated when the call was last sent.
    priority: the priority class.
    tenant: the tenant; None if the request names none.
    owner: an object of the caller, such as the call.
    size: tokens of the prompt and of the reserved output, by which the queue counts what waits ahead of a call.
    refusals: the number of times that a limit refused the call.
    state: the current state.
    sent_at: the time at which the call was last sent.
    sent_before: the total cost that the quota had sent when this call was sent, including this call.
    place: while it waits, it orders the calls in a tenant's line; the first call has the lowest number. While the call
        is under way: its number among the calls to its address, in the order of sending.
    line: the line of its tenant, while it waits or is under way; else None.
    before: the previous call in the line.
    after: the next call in the line.
    """

    __slots__ = (
        "after",
        "before",
        "cost",
        "input_tokens",
        "line",
        "max_output",
        "owner",
        "place",
        "priority",
        "refusals",
        "sent_at",
        "sent_before",
        "size",
        "state",
        "tenant",
    )

    def __init__(
        self,
        input_tokens: float,
        max_output: float | None,
        priority: Priority = Priority.NORMAL,
        tenant: str | None = None,
        owner: object = None,
    ) -> None:
        self.input_tokens: float = input_tokens
        self.max_output: float | None = max_output
        self.cost: Cost = FREE
        self.priority: Priority = priority
        self.tenant: str | None = tenant
        self.owner: object = owner
        self.size: float = max(1.0, input_tokens + (max_output or 0.0))
        self.refusals: int = 0
        self.state: PermitState = NEW
        self.sent_at: float = NEVER
        self.sent_before: Cost = FREE
        self.place: int = 0
        self.line: TenantLine | None = None
        self.before: Permit | None = None
        self.after: Permit | None = None

    @property
    def charged(self) -> Cost:
        """The cost that was taken from the quota's buckets and not returned."""
        return self.cost if self.state in UNDER_WAY else FREE

    @property
    def is_first_of_tenant(self) -> bool:
        """True if the call is the first in its tenant's line. Only such a call can be the next of the queue."""
        return self.line is not None and self.line.first is self

    def __repr__(self) -> str:
        return f"Permit({self.state.name}, {self.priority}, tenant={self.tenant!r}, cost={tuple(self.cost)})"


class TenantLine:
    """The waiting calls of one tenant in one class, as a linked list, so that a call leaves the middle in O(1).

    name: the tenant's name; None for calls without a tenant.
    service: the tokens served. When the line's first call arrives, it is raised to the least of the other tenants.
    excess: the tokens that the tenant's ended calls used beyond the estimate of their input.
    backlog: the tokens of the waiting calls.
    length: the number of waiting calls.
    version: the number of the tenant's valid entry in the heap of its class; 0: none.
    octave: the exponent of the power of two above the backlog.
    first: the first waiting call.
    last: the last waiting call.
    """

    __slots__ = ("backlog", "excess", "first", "last", "length", "name", "octave", "service", "version")

    def __init__(self, name: str | None) -> None:
        self.name: str | None = name
        self.service: float = 0.0
        self.excess: Mean = Mean()
        self.backlog: float = 0.0
        self.length: int = 0
        self.version: int = 0
        self.octave: int = 0
        self.first: Permit | None = None
        self.last: Permit | None = None

    def expected(self, permit: Permit) -> float:
        """Return the tokens that a call of this tenant is expected to use."""
        return max(1.0, permit.input_tokens + self.excess.value)

    def append(self, permit: Permit) -> None:
        """Add a call at the end of the line."""
        permit.place = 0 if self.last is None else self.last.place + 1
        self._link(self.last, permit, None)

    def prepend(self, permit: Permit) -> None:
        """Add a call at the head of the line."""
        permit.place = 0 if self.first is None else self.first.place - 1
        self._link(None, permit, self.first)

    def unlink(self, permit: Permit) -> None:
        """Remove a call from any place in the line."""
        before, after = permit.before, permit.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        permit.before = permit.after = permit.line = None
        self._count(-1, permit)

    def _link(self, before: Permit | None, permit: Permit, after: Permit | None) -> None:
        permit.line, permit.before, permit.after = self, before, after
        if before is None:
            self.first = permit
        else:
            before.after = permit
        if after is None:
            self.last = permit
        else:
            after.before = permit
        self._count(1, permit)

    def _count(self, sign: int, permit: Permit) -> None:
        self.length += sign
        self.backlog = self.backlog + sign * permit.size if self.length else 0.0
