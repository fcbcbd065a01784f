"""A lane: one scope with its timer, its log lines and the calls that it sends.

The lane sends a call at the loop's next tick, or at once if the queue is empty. Nothing here is a task.

Knows scopes, timers and the interface of a call (`Sender`). Must not know sockets, requests, nor which calls belong to
which scope (dispatcher.py).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Protocol, cast

from ....providers.errors import ErrorCategory, ProviderError
from ....providers.limits.limit_reports import ReadReport
from ....providers.limits.quota_report import QuotaReport, Refusal
from ....transport.timers import Timer
from ...call.runtime import Due, Runtime, TrafficWatch
from ...call.timeouts import Clock
from ...request.prepared import WallClock
from ..notice import open_notice
from ..queue.permit import Ticket
from .declared import DeclaredLimit
from .limiter_state import Scope
from .quota import Impossible

logger: logging.Logger = logging.getLogger("manystream.traffic")

AT_ONCE = 64
"""The maximum number of calls that are sent or rejected in one tick; the streams are served between two ticks."""

DEFECT_DELAY = 1.0
"""Seconds until a tick that raised is repeated."""

REFUSAL_CODES: dict[Refusal, str] = {Refusal.TOO_LARGE: "request_too_large", Refusal.SPENT: "quota_spent"}
"""Maps the reason why a call can never be sent to the error's `provider_code`."""


class Sender(Protocol):
    """A call, as traffic control sees it. Each method is called at most once per wait."""

    def admitted(self) -> None:
        """Send the call now."""
        ...

    def rejected(self, error: ProviderError) -> None:
        """Fail the call: it can never be sent."""
        ...

    def overdue(self, waiting_for: str) -> None:
        """Fail the call: its time to wait is over."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library: another method raised."""
        ...


class Lane(Due):
    """A scope with its timer.

    scope: the queue and the limits of the lane's calls.
    next_in_line: called when a shared limit has changed, so that another scope may send.
    """

    __slots__ = (
        "_ignored",
        "_is_pumping",
        "_is_scheduled",
        "_notice",
        "_read_report",
        "_row",
        "_runtime",
        "_timer",
        "_wall_clock",
        "next_in_line",
        "scope",
    )

    def __init__(
        self,
        scope: Scope,
        runtime: Runtime,
        row: str,
        read_report: ReadReport,
        wall_clock: WallClock,
        next_in_line: Callable[[DeclaredLimit, Scope], None],
    ) -> None:
        self.scope: Scope = scope
        self.next_in_line: Callable[[DeclaredLimit, Scope], None] = next_in_line
        self._runtime = runtime
        self._row = row
        self._read_report = read_report
        self._wall_clock = wall_clock
        self._timer: Timer | None = None
        self._is_scheduled = False
        self._is_pumping = False
        self._ignored: set[str] = set()
        self._notice = open_notice(runtime, self._send_notice, self.on_defect)

    def __repr__(self) -> str:
        return f"<Lane {self.scope.name}, {self.scope.queue.length} waiting>"

    @property
    def now(self) -> float:
        """Return the time on the engine's clock."""
        return self._runtime.loop.clock()

    # --- sending ---

    def enter(self, ticket: Ticket, now: float, *, again: bool, alone: bool = True) -> None:
        """Queue a call, and send it at once if its limits allow.

        again: it waited before and goes to the head.
        alone: it waits here only. A call that also waits elsewhere is never too late: others of this queue may go
            elsewhere, too.
        """
        scope = self.scope
        if not self._is_pumping and scope.admit_at_once(ticket, now):
            _notify(ticket, _ADMITTED)
            if self._notice is not None:
                self._notice.note()
            return
        sender = cast("Sender", ticket.owner)
        why = scope.never(ticket, now)
        if why is not None:
            sender.rejected(self.never_sent(why))
            return
        scope.add(ticket, now, at_head=again)
        if scope.queue.length == 1:
            self.pump()
            return
        if alone and ticket.deadline < math.inf and scope.is_hopeless(ticket, now):
            seconds, reason = scope.seconds_ahead(ticket, now), scope.reason(ticket, now)
            scope.cancel(ticket, now)
            sender.rejected(_hopeless(ticket.deadline - now, seconds, reason))
        elif ticket.is_first_of_tenant:
            self.schedule()

    def schedule(self) -> None:
        """Send at the next tick the calls that may be sent."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._runtime.soon(self)

    def conclude(self) -> None:
        """Perform the work of the tick."""
        self._is_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Send the calls that may be sent now, and set the timer for the next one."""
        if self._is_pumping:
            return  # a call that this method sent has ended at once; the loop below continues in the outer call
        self._is_pumping = True
        try:
            more = self._pump()
        finally:
            self._is_pumping = False
        if more:
            self.schedule()
        else:
            self._set_timer()
        self._pass_on()
        if self._notice is not None:
            self._notice.note()

    def _pump(self) -> bool:
        """Send some calls. Return True if more may be sent now."""
        scope, now = self.scope, self.now
        for late in scope.queue.expired(now):
            _notify(late, methodcaller("overdue", scope.reason(late, now)))
        for _ in range(AT_ONCE):
            ticket = scope.queue.first(now)
            if ticket is None:
                scope.leave_lines()
                return False
            why = scope.never(ticket, now)
            if why is not None:
                scope.cancel(ticket, now)
                _notify(ticket, methodcaller("rejected", self.never_sent(why)))
                continue
            if scope.admit(now) is None:
                return False
            _notify(ticket, _ADMITTED)
        return True

    def changed(self) -> None:
        """Process a change after which other calls may be sent: a call ended, or a response arrived."""
        if self.scope.queue.length:
            self.schedule()
        if self.scope.limits:
            self._pass_on()
        if self._notice is not None:
            self._notice.note()

    def _pass_on(self) -> None:
        for limit in self.scope.limits:
            self.next_in_line(limit, self.scope)

    def _set_timer(self) -> None:
        when = self.scope.next_time(self.now)
        if self._timer is not None:
            if self._timer.pending and self._timer.when <= when:
                return  # it looks again then, and moves on
            self._timer.cancel()
            self._timer = None
        if when < math.inf:
            self._timer = self._runtime.timers.at(when, self.pump, self.on_defect)

    def on_defect(self, error: Exception) -> None:
        """Schedule another tick after one that raised, so that no call waits forever."""
        self._is_scheduled = False
        logger.error("%r raised: a defect in manystream", self, exc_info=error)
        when = self.now + DEFECT_DELAY
        self._timer = self._runtime.timers.at(when, self.pump, self.on_defect)

    def _send_notice(self, watch: TrafficWatch, now: float) -> bool:
        """Notify the observer of the scope's figures."""
        watch.scope_changed(self.scope.name, self.scope.statistics(now))
        return False

    # --- limits in responses ---

    def report(self, headers: Mapping[str, str], error: ProviderError | None = None) -> QuotaReport:
        """Parse the limits that a response reports. The first response without any is logged once."""
        body = b"" if error is None else error.body
        report = self._read_report(self._row, headers, self._wall_clock(), error, body)
        for name in report.ignored:
            if name not in self._ignored:
                self._ignored.add(name)
                logger.warning("%s: the header %s says nothing (%.60r), ignored", self.scope.name, name, headers[name])
        return report

    def write_news(self) -> None:
        """Log what was learned about the limits."""
        news = self.scope.quota.news
        for line in news:
            logger.info("%s: %s", self.scope.name, line)
        news.clear()

    def never_sent(self, why: Impossible) -> ProviderError:
        """Return the error of a call that can never be sent."""
        return ProviderError(
            f"not sent to {self.scope.name}: {why.why}",
            category=ErrorCategory.RATE_LIMIT,
            provider_code=REFUSAL_CODES[why.refusal],
            retry_after_ms=round(why.retry_after * 1000) if why.retry_after >= 0 else -1,
            retryable=False,
        )


def _hopeless(left: float, seconds: float, reason: str) -> ProviderError:
    """Return the error of a call that could not be sent in time."""
    return ProviderError(
        f"queue timeout: what waits before the call takes about {seconds:.0f} s, and it may wait {left:.6g} s"
        f" (waiting for {reason})",
        category=ErrorCategory.TIMEOUT,
        provider_code=Clock.QUEUE.value,
        retryable=False,
    )


_ADMITTED = methodcaller("admitted")


def _notify(ticket: Ticket, method: Callable[[Sender], object]) -> None:
    """Call a method of a `Sender`. An exception ends only this call."""
    sender = cast("Sender | None", ticket.owner)
    if sender is None:
        return  # the callback of a call that was notified before has ended this one
    try:
        method(sender)
    except Exception as error:
        sender.on_defect(error)
