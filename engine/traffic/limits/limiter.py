"""A limiter: what shares one quota, with its pump, its log lines and the calls that it sends.

The limiter sends a call at the loop's next tick, or at once if the queue is empty. Nothing here is a task.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, cast

from ....providers.errors import ErrorCategory, ProviderError
from ....providers.limits.limit_reports import ReadReport
from ....providers.limits.quota_report import QuotaReport, Refusal
from ....providers.model.response import Response
from ...call.runtime import Runtime, TrafficWatch
from ...call.timeouts import Clock
from ...request.prepared import WallClock
from ..queue.permit import Permit
from ..queue.pump import Notification, Pump, open_notice
from .charge import credible
from .declared import DeclaredLimit
from .host import is_lost
from .limiter_state import LimiterState
from .quota import Impossible

logger: logging.Logger = logging.getLogger("manystream.traffic")

REFUSAL_CODES: dict[Refusal, str] = {Refusal.TOO_LARGE: "request_too_large", Refusal.SPENT: "quota_spent"}
"""Maps the reason why a call can never be sent to the error's `provider_code`."""


class Sender(Protocol):
    """A call, as its limiter sees it. One of the first two methods is called, once per wait."""

    def admitted(self, permit: Permit) -> None:
        """Send the call now."""
        ...

    def rejected(self, permit: Permit, error: ProviderError) -> None:
        """Fail the call: it can never be sent."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library: another method raised."""
        ...


class Limiter:
    """What shares one quota: a state, a pump and a log.

    state: the queue and the limits of its calls.
    next_in_line: called when a shared limit has changed, so that another limiter may send.
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
        "state",
    )

    def __init__(
        self,
        state: LimiterState,
        runtime: Runtime,
        row: str,
        read_report: ReadReport,
        wall_clock: WallClock,
        next_in_line: Callable[[DeclaredLimit, LimiterState], None],
    ) -> None:
        self.state: LimiterState = state
        self.next_in_line: Callable[[DeclaredLimit, LimiterState], None] = next_in_line
        self._runtime = runtime
        self._row = row
        self._read_report = read_report
        self._wall_clock = wall_clock
        self._pump: Pump = Pump(self, runtime)
        self._ignored: set[str] = set()
        self._notice = open_notice(runtime, self._send_notice, self._pump.on_defect)

    def __repr__(self) -> str:
        return f"<Limiter {self.state.name}, {self.state.queue.length} waiting>"

    @property
    def now(self) -> float:
        """Return the time on the engine's clock."""
        return self._runtime.loop.clock()

    # --- sending ---

    def enter(self, permit: Permit, now: float, *, again: bool, deadline: float = math.inf) -> None:
        """Queue a call, and send it at once if its limits allow.

        again: it waited before and goes to the head.
        deadline: the time at which its wait ends. The call fails now if that is much too early. A call that also waits
            elsewhere is never too late: others of this queue may go elsewhere, too.
        """
        state, sender = self.state, cast("Sender", permit.owner)
        if not self._pump.is_running and state.admit_at_once(permit, now):
            sender.admitted(permit)
            if self._notice is not None:
                self._notice.note()
            return
        why = self.why_never(permit, now)
        if why is not None:
            sender.rejected(permit, why)
            return
        state.add(permit, now, at_head=again)
        if state.queue.length == 1:
            self._pump.run()
            return
        if state.is_hopeless(permit, deadline, now):
            seconds, reason = state.seconds_ahead(permit, now), state.reason(permit, now)
            state.cancel(permit, now)
            sender.rejected(permit, _hopeless(deadline - now, seconds, reason))
        elif permit.is_first_of_tenant:
            self._pump.schedule()

    def schedule(self) -> None:
        """Send at the next tick the calls that may be sent."""
        self._pump.schedule()

    def take(self, now: float) -> Notification | None:
        """Take the next call that may be sent, or never can be, out of the queue. None if all calls must wait."""
        state = self.state
        permit = state.queue.first(now)
        if permit is None:
            state.leave_lines()
        else:
            why = self.why_never(permit, now)
            if why is not None:
                sender = cast("Sender", permit.owner)
                state.cancel(permit, now)
                return partial(sender.rejected, permit, why), sender.on_defect
            if state.admit(now) is not None:
                sender = cast("Sender", permit.owner)
                return partial(sender.admitted, permit), sender.on_defect
        self._pass_on(state.pop_left())
        self._note()
        return None

    def next_time(self, now: float) -> float:
        """Return the time at which the next call may be sent, unless a call ends earlier."""
        at = self.state.next_time(now)
        self._pass_on(self.state.pop_left())
        return at

    def host_changed(self) -> None:
        """Process a change of the server's address: it takes connections or not, or another call may ask."""
        if self.state.queue.length:
            self._pump.schedule()
        self._note()

    def changed(self) -> None:
        """Process a change after which other calls may be sent: a call ended, or a response arrived."""
        if self.state.queue.length:
            self._pump.schedule()
        self._pass_on(self.state.limits)
        self._note()

    def _pass_on(self, limits: Sequence[DeclaredLimit]) -> None:
        """Let the first limiter in the line of each of some limits look whether it may send.

        One that has waited in vain passes on no limit whose line it has not left: two limiters, each the first in a
        line, would wake each other for ever.
        """
        for limit in limits:
            self.next_in_line(limit, self.state)

    def _note(self) -> None:
        if self._notice is not None:
            self._notice.note()

    def _send_notice(self, watch: TrafficWatch, now: float) -> bool:
        """Notify the observer of the limiter's figures."""
        watch.limiter_changed(self.state.name, self.state.statistics(now))
        return False

    # --- the end of a call ---

    def confirm(self, permit: Permit, headers: Mapping[str, str], *, whole: bool) -> None:
        """The head of a successful response came to a call that is under way. `whole`: it is no stream."""
        self.state.confirm(permit, self.report(headers), self.now, whole=whole)
        self.write_news()
        self.changed()

    def settle(self, permit: Permit, response: Response | None, now: float) -> None:
        """A call that was under way has ended. response: what it received."""
        usage = None if response is None else credible(response.usage)
        if usage is None or usage.input_tokens is None:
            self.state.settle(permit, None, now)
        else:
            output = (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
            charge = self.state.quota.charger.settled(usage.input_tokens, usage.cached_tokens or 0, output)
            self.state.settle(permit, charge, now, tokens=usage.input_tokens + output, output=output)
        self.changed()

    def give_back(
        self, permit: Permit, error: ProviderError, headers: Mapping[str, str], *, sent: bool, again: bool
    ) -> Refusal:
        """A call that was under way has failed. Return which kind of limit refused it.

        sent: the request may have reached the server.
        again: the call waits here again after a refusal.
        """
        state, now = self.state, self.now
        refusal = Refusal.NONE
        if is_lost(error):
            state.lose(permit, error, now, sent=sent)
        elif not sent:
            state.cancel(permit, now)
        else:
            report = self.report(headers, error)
            if report.refusal is not Refusal.OVERLOAD or state.concurrency is not None:
                refusal = report.refusal  # else the server is overloaded, independent of this key's limits
            if refusal is Refusal.NONE:
                state.fail(permit, report, now, answered=error.http_status > 0)
            else:
                state.refuse(permit, report, now, again=again)
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
                logger.warning("%s: the header %s says nothing (%.60r), ignored", self.state.name, name, headers[name])
        return report

    def write_news(self) -> None:
        """Log what was learned about the limits."""
        news = self.state.quota.news
        for line in news:
            logger.info("%s: %s", self.state.name, line)
        news.clear()

    def why_never(self, permit: Permit, now: float) -> ProviderError | None:
        """Return why a call can never be sent, or has waited for the server in vain; None if it can wait."""
        given_up = self.state.host.given_up(now)
        if given_up is not None:
            return given_up
        why = self.state.never(permit, now)
        return None if why is None else self.never_sent(why)

    def never_sent(self, why: Impossible) -> ProviderError:
        """Return the error of a call that can never be sent."""
        return ProviderError(
            f"not sent to {self.state.name}: {why.why}",
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
