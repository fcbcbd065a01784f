"""A fair queue of the calls of one limiter that wait to be sent.

Priority classes are served in strict order, except that a class that was passed over for 30 s is served once. Within a
class, the tenant with the least service is next (tenants.py).
"""

from __future__ import annotations

from ....providers.model.options import Priority
from .permit import ENDED, QUEUED, Permit
from .tenants import TenantClass

LONGEST_WAIT = 30.0
"""Seconds after which a class that was passed over is served once."""

STUBBORN = 5
"""After each series of this many refusals, a call goes behind the other calls of its tenant. It may be too large for
this server, and must not block them."""

CLASSES = tuple(Priority)
"""The priority classes, the highest first."""


class FairQueue:
    """The waiting calls of one limiter, by priority and tenant.

    length: the number of waiting calls, equal to `len()`.
    """

    def __init__(self) -> None:
        self._classes = {priority: TenantClass() for priority in CLASSES}
        self._passed_since: dict[Priority, float] = {}
        self.length: int = 0

    def __len__(self) -> int:
        return self.length

    def add(self, permit: Permit, *, at_head: bool = False) -> None:
        """Add a call behind the other calls of its tenant. `at_head`: before them, because it waited before."""
        self._enter(permit, at_head=at_head)

    def pass_through(self, permit: Permit) -> None:
        """Let a call pass that is sent at once: its tenant is charged as for `add` and `take`. The queue must be
        empty."""
        self._classes[permit.priority].pass_through(permit)
        if self._passed_since:
            self._passed_since.pop(permit.priority, None)

    def put_back(self, permit: Permit) -> None:
        """Add a refused call again, before the other calls of its tenant, and give the tenant its service back."""
        self._classes[permit.priority].correct(permit, 0.0)
        permit.refusals += 1
        self._enter(permit, at_head=permit.refusals % STUBBORN > 0)

    def first(self, now: float) -> Permit | None:
        """Return the next call without removing it; None if the queue is empty."""
        if not self.length:
            return None
        return self._classes[self._next_class(now)].first()

    def take(self, now: float) -> Permit:
        """Remove and return the next call, because it is sent. The queue must not be empty."""
        priority = self._next_class(now)
        permit = self._classes[priority].take()
        self.length -= 1
        self._passed_since.pop(priority, None)
        for other, waiting in self._classes.items():
            if waiting.length and other is not priority:
                self._passed_since.setdefault(other, now)
        return permit

    def remove(self, permit: Permit) -> None:
        """Remove a waiting call that was cancelled. Its tenant is not charged."""
        self._classes[permit.priority].remove(permit)
        self.length -= 1
        permit.state = ENDED
        if not self._classes[permit.priority].length:
            self._passed_since.pop(permit.priority, None)

    def correct(self, permit: Permit, tokens: float) -> None:
        """Replace the expected tokens of an ended call by those that it used, in the service of its tenant."""
        self._classes[permit.priority].correct(permit, tokens)

    def place(self, permit: Permit) -> tuple[float, float]:
        """Estimate the number of calls, and of tokens, that are served before a waiting call."""
        calls, tokens = self._classes[permit.priority].place(permit)
        for priority in CLASSES[: CLASSES.index(permit.priority)]:
            calls += self._classes[priority].length
            tokens += self._classes[priority].backlog
        return calls, tokens

    def _next_class(self, now: float) -> Priority:
        highest = next(priority for priority in CLASSES if self._classes[priority].length)
        for priority, since in self._passed_since.items():
            if now - since >= LONGEST_WAIT and self._classes[priority].length:
                return priority
        return highest

    def _enter(self, permit: Permit, *, at_head: bool) -> None:
        self.length += 1
        permit.state = QUEUED
        self._classes[permit.priority].add(permit, at_head=at_head)
