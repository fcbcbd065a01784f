"""A lane: one scope with its pump, its log lines and the calls that it sends.

The lane sends a call at the loop's next tick, or at once if the queue is empty. Nothing here is a task.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, cast

from ....providers.errors import ErrorCategory, ProviderError
from ....providers.limits.limit_reports import ReadReport
from ....providers.limits.quota_report import QuotaReport, Refusal
from ....providers.model.response import Response
from ...call.runtime import Runtime, TrafficWatch
from ...call.timeouts import Clock
from ...request.prepared import WallClock
from ..notice import open_notice
from ..pump import Notification, Pump
from ..queue.permit import Ticket
from .charge import credible
from .declared import DeclaredLimit
from .host import is_lost
from .limiter_state import Scope
from .quota import Impossible

logger: logging.Logger = logging.getLogger("manystream.traffic")

REFUSAL_CODES: dict[Refusal, str] = {Refusal.TOO_LARGE: "request_too_large", Refusal.SPENT: "quota_spent"}
"""Maps the reason why a call can never be sent to the error's `provider_code`."""


class Sender(Protocol):
    """A call, as its limiter sees it. One of the first two methods is called, once per wait."""

    def admitted(self, permit: Ticket) -> None:
        """Send the call now."""
        ...

    def rejected(self, permit: Ticket, error: ProviderError) -> None:
        """Fail the call: it can never be sent."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library: another method raised."""
        ...


class Lane:
    """A scope with its pump.

    scope: the queue and the limits of the lane's calls.
    next_in_line: called when a shared limit has changed, so that another scope may send.
    """

    __slots__ = (
        "_ignored",
        "_notice",
        "_pump",
        "_read_report",
        "_row",
        "_runtime",
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
        self._pump: Pump = Pump(self, runtime)
        self._ignored: set[str] = set()
        self._notice = open_notice(runtime, self._send_notice, self._pump.on_defect)

    def __repr__(self) -> str:
        return f"<Lane {self.scope.name}, {self.scope.queue.length} waiting>"

    @property
    def now(self) -> float:
        """Return the time on the engine's clock."""
        return self._runtime.loop.clock()

    # --- sending ---

    def enter(self, ticket: Ticket, now: float, *, again: bool, deadline: float = math.inf) -> None:
        """Queue a call, and send it at once if its limits allow.

        again: it waited before and goes to the head.
        deadline: the time at which its wait ends. The call fails now if that is much too early. A call that also waits
            elsewhere is never too late: others of this queue may go elsewhere, too.
        """
        scope, sender = self.scope, _sender(ticket)
        if not self._pump.is_running and scope.admit_at_once(ticket, now):
            sender.admitted(ticket)
            self._note()
            return
        why = self.why_never(ticket, now)
        if why is not None:
            sender.rejected(ticket, why)
            return
        scope.add(ticket, now, at_head=again)
        if scope.queue.length == 1:
            self._pump.run()
            return
        if scope.is_hopeless(ticket, deadline, now):
            seconds, reason = scope.seconds_ahead(ticket, now), scope.reason(ticket, now)
            scope.cancel(ticket, now)
            sender.rejected(ticket, _hopeless(deadline - now, seconds, reason))
        elif ticket.is_first_of_tenant:
            self._pump.schedule()

    def schedule(self) -> None:
        """Send at the next tick the calls that may be sent."""
        self._pump.schedule()

    def take(self, now: float) -> Notification | None:
        """Take the next call that may be sent, or never can be, out of the queue. None if all calls must wait."""
        scope = self.scope
        ticket = scope.queue.first(now)
        if ticket is None:
            scope.leave_lines()
        else:
            why = self.why_never(ticket, now)
            if why is not None:
                sender = _sender(ticket)
                scope.cancel(ticket, now)
                return partial(sender.rejected, ticket, why), sender.on_defect
            if scope.admit(now) is not None:
                sender = _sender(ticket)
                return partial(sender.admitted, ticket), sender.on_defect
        self._pass_on()
        self._note()
        return None

    def next_time(self, now: float) -> float:
        """Return the time at which the next call may be sent, unless a call ends earlier."""
        return self.scope.next_time(now)

    def host_changed(self) -> None:
        """Process a change of the server's address: it takes connections or not, or another call may ask."""
        if self.scope.queue.length:
            self._pump.schedule()
        self._note()

    def changed(self) -> None:
        """Process a change after which other calls may be sent: a call ended, or a response arrived."""
        if self.scope.queue.length:
            self._pump.schedule()
        self._pass_on()
        self._note()

    def _pass_on(self) -> None:
        for limit in self.scope.limits:
            self.next_in_line(limit, self.scope)

    def _note(self) -> None:
        if self._notice is not None:
            self._notice.note()

    def _send_notice(self, watch: TrafficWatch, now: float) -> bool:
        """Notify the observer of the scope's figures."""
        watch.scope_changed(self.scope.name, self.scope.statistics(now))
        return False

    # --- the end of a call ---

    def confirm(self, ticket: Ticket, headers: Mapping[str, str], *, whole: bool) -> None:
        """The head of a successful response came to a call that is under way. `whole`: it is no stream."""
        self.scope.confirm(ticket, self.report(headers), self.now, whole=whole)
        self.write_news()
        self.changed()

    def settle(self, ticket: Ticket, response: Response | None, now: float) -> None:
        """A call that was under way has ended. response: what it received."""
        usage = None if response is None else credible(response.usage)
        if usage is None or usage.input_tokens is None:
            self.scope.settle(ticket, None, now)
        else:
            output = (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
            charge = self.scope.quota.charger.settled(usage.input_tokens, usage.cached_tokens or 0, output)
            self.scope.settle(ticket, charge, now, tokens=usage.input_tokens + output, output=output)
        self.changed()

    def give_back(
        self, ticket: Ticket, error: ProviderError, headers: Mapping[str, str], *, sent: bool, again: bool
    ) -> Refusal:
        """A call that was under way has failed. Return which kind of limit refused it.

        sent: the request may have reached the server.
        again: the call waits here again after a refusal.
        """
        scope, now = self.scope, self.now
        refusal = Refusal.NONE
        if is_lost(error):
            scope.lose(ticket, error, now, sent=sent)
        elif not sent:
            scope.cancel(ticket, now)
        else:
            report = self.report(headers, error)
            if report.refusal is not Refusal.OVERLOAD or scope.concurrency is not None:
                refusal = report.refusal  # else the server is overloaded, independent of this key's limits
            if refusal is Refusal.NONE:
                scope.fail(ticket, report, now, answered=error.http_status > 0)
            else:
                scope.refuse(ticket, report, now, again=again)
            self.write_news()
        self.changed()
        return refusal

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

    def why_never(self, ticket: Ticket, now: float) -> ProviderError | None:
        """Return why a call can never be sent, or has waited for the server in vain; None if it can wait."""
        given_up = self.scope.host.given_up(now)
        if given_up is not None:
            return given_up
        why = self.scope.never(ticket, now)
        return None if why is None else self.never_sent(why)

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


def _sender(ticket: Ticket) -> Sender:
    return cast("Sender", ticket.owner)
