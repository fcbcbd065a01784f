"""A learned limit for the calls that run at a time, for servers that report no limit and queue or refuse excess calls.

Many inference servers report how many calls run and wait there. The limit then follows these figures: it doubles while
nothing waits, and is what runs and a tenth while more waits. Where the server runs the same number each time that calls
wait, it is what runs: a free place shows itself. Clients of one server see the same figures. Each cuts its own calls by
the same part, and each adds the same number, so that their numbers become equal. The figures of one of
several replicas at an address hold for all as far as they are proportions, and the median of the latest reports is what
most replicas say.

Without such reports, the algorithm compares the time to the first token with the shortest time seen for a prompt of
that size. By Little's law, the number of calls that wait inside the server is the number of running calls, times the
part of a call's duration by which the first token was late. That is so if the server's steps take as long with one call
as with many. Where they do not, fewer calls at a time would give fewer tokens: the limit is not cut below what is
needed for nearly the most calls per second.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean, median, median_low

from ....providers.limits.server_load import ServerLoad
from ...call.next_step import hinted_pause
from ..queue.fair_queue import Permit
from .rate_limit import LimitSource

START = 8
"""The limit before anything is learned."""

SLOW = 3.0
"""A first token that takes more than this many times the shortest time has waited in the server's queue."""

IN_USE = 0.8
"""The limit grows only while at least this part of it is in use."""

LEAST_ROUND = 4
"""A round lasts until this many calls have ended, or as many as the limit if that is more."""

GROWTH = 0.05
"""The part of the limit that a good round adds to it, at least one call."""

QUICK = 1.25
"""An unstreamed answer that takes at most this many times the shortest time per token adds one call to the limit before
the first cut, so that it doubles in the time of an answer."""

SLOW_GROWTH = 0.15
"""What any other unstreamed answer adds."""

NEARLY = 0.95
"""A limit that gives this part of the most calls per second is as good as a larger one."""

LEAST_KEPT = 600.0
"""Seconds after which the next measured time replaces a shortest time."""

HOLD = 0.5
"""Seconds without new calls after a refusal that names no time."""

LONGEST_HOLD = 5.0
"""The longest hold in seconds. After it the limit, which the refusal has cut, bounds what is sent."""

LATEST = 3
"""The number of reports whose median holds."""

SPARE = 0.1
"""So many calls may wait in the server, as a part of those that run there: a free place is used at once."""

LEAST_REPORTED = 4
"""The least limit by such reports. Answers of a single token end before a report counts them as running."""

SHARE = 1 / 64
"""The part of the calls that run in the server by which each of its clients grows with each report, while some wait."""

LATE = 0.5
"""With a report that took more seconds the limit does not double, and grows by a quarter."""

REPORTS_KEPT = 10.0
"""Seconds after which the earlier reports say nothing of the server's queue."""

REFUSED_LATELY = 60.0
"""Seconds after a refusal in which the limit does not double: something in front of the server refuses."""

_SIZES = 64
_SHORTEST = 1e-6


class LeastTimes:
    """The shortest times seen, by half octave of input size. A time of a longer prompt also holds for shorter ones."""

    __slots__ = ("_least", "_seen_at")

    def __init__(self) -> None:
        self._least = [math.inf] * _SIZES
        self._seen_at = [-math.inf] * _SIZES

    def measure(self, size: float, time: float, now: float) -> float:
        """Record `time` and return the shortest time for this size, which may be `time` itself.

        size: input tokens.
        time: seconds.
        now: the current time; shortest times older than `LEAST_KEPT` are ignored.
        """
        octave = min(_SIZES - 1, int(2.0 * math.log2(max(1.0, size))))
        if time <= self._least[octave] or now - self._seen_at[octave] > LEAST_KEPT:
            self._least[octave] = max(time, _SHORTEST)
            self._seen_at[octave] = now
        since = now - LEAST_KEPT
        known = zip(self._least[octave:], self._seen_at[octave:], strict=True)
        return min(least for least, seen_at in known if seen_at >= since)


@dataclass(slots=True)
class _Running:
    """A running call. `sent_at`: when it was sent; minus infinity if its times are not judged."""

    sent_at: float
    ratio: float = 0.0
    excess: float = 0.0


@dataclass(slots=True, frozen=True)
class _Report:
    """What the server said, and when.

    running: the calls of all clients that run there.
    queued: what waits there, as a part of what runs.
    fits: our calls that would run if each client sent only what runs.
    ended: our calls that had ended until then.
    """

    running: float
    queued: float
    fits: float
    ended: int


@dataclass(slots=True)
class _Ended:
    ratio: float
    excess: float
    total: float


class Concurrency:
    """The limit for the running calls of one limiter.

    at_most: the declared limit; `math.inf` if there is none.
    limit: calls that may run at a time now.
    source: where the limit comes from.
    load: what the server said last of its queue; None if it has not, or not lately though it was asked.
    loaded_at: when it said so.
    hold_until: the time before which no call is sent.
    """

    def __init__(self, *, at_most: int | None = None) -> None:
        self.at_most: float = math.inf if at_most is None else float(at_most)
        self.limit: float = min(float(START), self.at_most)
        self.source: LimitSource = "learned"
        self.load: ServerLoad | None = None
        self.loaded_at: float = -math.inf
        self.hold_until: float = -math.inf
        self._reports: deque[_Report] = deque(maxlen=LATEST)
        self._places = math.inf  # the calls that run in the server each time that some wait; infinity: not so
        self._calls_ended = 0
        self._calm = LATEST  # the reports in a row by which nothing waits
        self._calls: dict[Permit, _Running] = {}
        self._least_to_token = LeastTimes()
        self._least_per_token = LeastTimes()
        self._round: list[_Ended] = []
        self._rates: dict[int, float] = {}  # half octave of the limit → what ended per second under it
        self._ended = 0.0  # calls since the last round, or their tokens
        self._is_by_tokens = False  # the rates are those of tokens: the answers are unstreamed
        self._round_size = START
        self._round_at = math.inf  # when the last round ended; infinity: the calls since then ran under another limit
        self._cut_at = -math.inf
        self._used_at = -math.inf  # when enough of the limit was in use
        self._before = 0.0  # the limit before the refusals since it last grew
        self._refusals = 0  # in a row; those of calls that ran together count as one
        self._refused_at = -math.inf

    @property
    def running(self) -> int:
        return len(self._calls)

    def ready_at(self, now: float) -> float:
        """Return the time at which one more call may be sent; `math.inf` if a running call must end first."""
        if self.running >= int(self.limit):
            return math.inf
        return max(now, self.hold_until)

    def start(self, permit: Permit, now: float) -> None:
        """Record that a call is sent."""
        self._calls[permit] = _Running(now)
        if self._is_in_use():
            self._used_at = now

    def first_token(self, permit: Permit, now: float) -> None:
        """Record the first token of a streamed response. Comments and empty deltas are not tokens."""
        call = self._calls.get(permit)
        self._refusals = 0
        if self.load is not None or call is None or call.ratio > 0 or call.sent_at == -math.inf:
            return
        time = now - call.sent_at
        least = self._least_to_token.measure(permit.cost.input_tokens, time, now)
        self._judge(call, time, least, in_use=self._used_at >= call.sent_at)

    def end(self, permit: Permit, now: float, output_tokens: float = 0.0) -> None:
        """Record the end of a call. `output_tokens`: those of an unstreamed response; 0 if unknown or streamed."""
        call = self._calls.pop(permit, None)
        self._calls_ended += 1
        self._refusals = 0
        if self._is_by_tokens != (output_tokens > 0):
            self._is_by_tokens, self._round_at = output_tokens > 0, math.inf
            self._rates.clear()
        self._ended += output_tokens or 1.0
        if self.load is not None or call is None or call.sent_at <= self._cut_at:
            return
        # Not only now: calls that end together, or are seen together by a program that was late, are sent again later.
        in_use = self._used_at >= call.sent_at
        total = now - call.sent_at
        if call.ratio == 0 and output_tokens > 0:
            least = self._least_per_token.measure(1.0, total / output_tokens, now)
            expected = least * output_tokens
            growth = 1.0 if total <= QUICK * expected else SLOW_GROWTH
            self._judge(call, total, expected, in_use=in_use, growth=growth)
        self._round.append(_Ended(call.ratio, call.excess, total))
        if len(self._round) >= self._round_size:
            self._end_round(in_use, now)

    def refuse(self, permit: Permit, hint: float | None, now: float) -> None:
        """Record that the server refused a call because too many run. `hint`: seconds to wait, from the server."""
        call = self._calls.pop(permit, None)
        if call is not None and call.sent_at > self._refused_at:
            self._refusals += 1
            self._refused_at = now
        hold = HOLD if hint is None else hinted_pause(hint, self._refusals - 1, LONGEST_HOLD)
        self.hold_until = max(self.hold_until, now + hold)
        if call is not None and call.sent_at > self._cut_at:
            self._before = max(self._before, self.limit)
            self._cut(float(self.running), now)
            # What larger limits gave is no reason to go back to them.
            self._rates = {
                octave: rate for octave, rate in self._rates.items() if octave <= 2.0 * math.log2(self.limit)
            }

    def report(self, load: ServerLoad, now: float, seconds: float = 0.0) -> None:
        """Follow what the server says of its queue. The calls are not judged by their times from now on.

        seconds: how long it took to say so. If that is long, calls wait in front of what it counts.
        """
        if now - self.loaded_at > REPORTS_KEPT:
            self._reports.clear()
        self.load, self.loaded_at, in_use = load, now, self._is_in_use()
        if load.running is None or load.waiting is None:
            self.source, self.limit = "reported", max(1.0, min(self.at_most, load.slots or 1.0))
            return
        self.source = "server_queue"
        queued = load.waiting / max(1.0, load.running)
        self._reports.append(_Report(load.running, queued, self.running / (1.0 + queued), self._calls_ended))
        usual = median_low(report.queued for report in self._reports)
        share = max(1.0, SHARE * load.running)
        self._calm = self._calm + 1 if usual == 0.0 else 0
        self._find_places(load.running)
        is_full = load.running == self._places
        if min(queued, usual) > (2.0 * share / load.running if is_full else SPARE):
            fits = max(report.fits for report in self._reports) * (1.0 if is_full else 1.0 + SPARE)
            self.limit = min(self.limit, self.at_most, max(fits + share, LEAST_REPORTED))
        elif in_use and self._calm == 0 and self._places == math.inf:
            self._grow(share)
        elif in_use and queued == 0.0:
            doubles = self._calm >= LATEST and now - self._refused_at > REFUSED_LATELY
            self._grow((self.limit if seconds <= LATE else self.limit / 4.0) if doubles else share / 4.0)

    def _find_places(self, running: float) -> None:
        """Note whether the server ran the same number of calls in each of the latest reports, while calls waited there
        and others ended. A number that changes meanwhile is not fixed."""
        if len(self._reports) < LATEST or not all(report.queued > 0.0 for report in self._reports):
            self._places = math.inf if running > self._places else self._places
        elif any(report.running != self._places for report in self._reports):
            is_same = all(report.running == running >= 1.0 for report in self._reports)
            while_calls_end = len({report.ended for report in self._reports}) == LATEST
            self._places = running if is_same and while_calls_end else math.inf

    def no_report(self) -> None:
        """Go by the times of calls: the server did not say how many wait there."""
        self.load, self.source, self._round_at = None, "learned", math.inf
        self._reports.clear()
        self._round.clear()

    def forget_refusals(self) -> None:
        """Go back to the limit before the latest refusals: the server runs no call, so they say nothing about it."""
        self.limit = max(self.limit, self._before)

    def leave(self, permit: Permit) -> None:
        """Remove a call that ended for a reason unrelated to concurrency: cancelled, or refused by a quota."""
        self._calls.pop(permit, None)

    def interrupt(self) -> None:
        """Judge none of the running calls: the program has paused the server, and their times contain the pause."""
        self._round_at = math.inf
        for call in self._calls.values():
            call.sent_at = -math.inf

    def _judge(self, call: _Running, time: float, least: float, *, in_use: bool, growth: float = 1.0) -> None:
        """Compare the time of a first token, or of a whole answer, with the least; grow before the first cut."""
        call.ratio = max(_SHORTEST, time / max(_SHORTEST, least))
        call.excess = max(0.0, time - least)
        if self._cut_at == -math.inf and call.ratio <= SLOW and in_use:
            self._grow(growth)

    def _end_round(self, in_use: bool, now: float) -> None:
        ended, self._round = self._round, []
        if in_use and now > self._round_at:
            octave, rate = round(2.0 * math.log2(self.limit)), self._ended / (now - self._round_at)
            self._rates[octave] = (self._rates.get(octave, rate) + rate) / 2.0
        self._round_at, self._ended, self._round_size = now, 0.0, max(LEAST_ROUND, int(self.limit))
        measured = [call for call in ended if call.ratio > 0]
        if measured and median(call.ratio for call in measured) > SLOW:
            inside = (
                self.limit * median(call.excess for call in measured) / max(_SHORTEST, fmean(c.total for c in ended))
            )
            # If the steps of a server take longer the more calls run, the excess is not the time of a queue.
            limit = max(self.limit - max(1.0, inside), self._needed())
            if limit != self.limit:
                self._cut(limit, now)
        elif self._is_by_tokens and in_use and self.limit > self._knee():
            # The time of a whole answer hardly shows a queue: less gave as many tokens.
            self._cut(self._knee(), now)
        elif in_use and (self._cut_at > -math.inf or not measured):
            self._grow(max(1.0, GROWTH * self.limit))

    def _knee(self) -> float:
        """Return the most that may be of use, as far as larger limits are known to give no more than a smaller one."""
        enough = NEARLY * max(self._rates.values(), default=math.inf)
        least = min((octave for octave, rate in self._rates.items() if rate >= enough), default=math.inf)
        return math.inf if least >= max(self._rates, default=0) else math.pow(2.0, (least + 0.6) / 2.0)

    def _needed(self) -> float:
        """Return the least limit that is known to give nearly the most calls per second, or half an octave less if
        nothing is known of that; 0 if nothing is known."""
        enough = NEARLY * max(self._rates.values(), default=math.inf)
        octave = min((octave for octave, rate in self._rates.items() if rate >= enough), default=None)
        if octave is None:
            return 0.0
        return math.pow(2.0, (octave if octave - 1 in self._rates else octave - 1) / 2.0)

    def _grow(self, calls: float) -> None:
        self.limit, self._before = min(self.at_most, self.limit + calls), 0.0

    def _cut(self, limit: float, now: float) -> None:
        self.limit = max(1.0, min(limit, self.at_most))
        self._cut_at = now
        self._round_at, self._round_size = math.inf, max(LEAST_ROUND, int(self.limit))
        self._round.clear()

    def _is_in_use(self) -> bool:
        return self.running >= IN_USE * int(self.limit)
