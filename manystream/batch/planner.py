"""The plan of a batch: by which way its lines go so that a deadline is kept at the lowest price.

It is pure: it has no clock and does no I/O. All times are seconds on one clock of the caller's.

    planner = Planner((BATCH, LIVE), deadline=now + 3 * 3600, rate=20.0, tail=30.0)
    decision = planner.decide(now, unsent=5000, live=0, under_way=())
    # submit decision.batch lines, start decision.live lines, and decide again at decision.look or after any change

Why deadlines are kept: what is under way is unpaid until it is answered, so a cheap way may always be tried. It is
given up at the latest moment at which it can still be cancelled and all its unanswered lines be sent live. That moment
depends on the number of these lines, on the rate of live calls and on how long a cancellation takes, and not on how
long the provider's queue is expected to be. The expected queue only decides between ways that cost less than live.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field

MARGIN = 30.0
"""Seconds before the deadline at which all answers should be there: reports and results take time to arrive."""

PRIOR_WEIGHT = 2.0
"""The prior counts as so many submissions that were observed."""

CAUTION = (1.5, 1.15)
"""A live call is taken to need so many times its time: before its rate was observed, and after."""

HOPE = (0.6, 1.0)
"""A live call needs at least so many times its time: before its rate was observed, and after. What live calls cannot do
even so is not theirs."""

CHANCE = 0.1
"""What live calls may not do in time goes the cheapest way, if this share of its answers is expected by then."""

SURE = 0.98
"""A way that cannot be left is used if this share of its answers is expected before the deadline."""

LEAST_GAIN = 0.005
"""A way that is expected to save less, as a part of the list price, is not tried."""


@dataclass(slots=True, frozen=True)
class Way:
    """One way to an answer.

    name: `"batch"`, `"window"` or `"live"`; several windows have names such as `"window-2h"`.
    price: what an answer costs, as a part of the list price: 0.5 for half of it.
    prior: how long an answer takes from its submission: (share of answers, seconds), both rising. No answer is expected
        before a tenth of the first, and the shares that are not listed need longer than any deadline. Unused for live.
    stop: seconds from a cancellation until what was answered can be read, at most. Lines wait so long before they
        can go another way, since a line that the provider still answers would be paid for twice. Infinite if nothing
        can be cancelled: then lines go this way only if nearly all answers are expected before the deadline.
    """

    name: str
    price: float
    prior: tuple[tuple[float, float], ...] = ()
    stop: float = 0.0


@dataclass(slots=True, frozen=True)
class UnderWay:
    """Lines that were submitted together and are not all answered: a provider's batch, or the calls in a window.

    key: its name in the decision.
    lines: the number of lines without an answer. A provider that reports no progress has all of them here.
    since: when it was submitted.
    stopping: whether it is being cancelled. Its lines count as lines that go live soon.
    """

    key: str
    way: str
    lines: int
    since: float
    stopping: bool = False


@dataclass(slots=True, frozen=True)
class Decision:
    """What to do now.

    send: way → number of unsent lines that go this way now. The sum may be smaller than the unsent lines.
    move: key of what is to be cancelled → the way that its unanswered lines go then.
    look: when to decide again if nothing changes before; infinite for never.
    """

    send: Mapping[str, int]
    move: Mapping[str, str]
    look: float


@dataclass(slots=True)
class _Outlook:
    """What is known of the time of one way's answers: the prior, corrected by this run's own."""

    way: Way
    seen: list[float] = field(default_factory=list[float])

    def share(self, seconds: float) -> float:
        """Return the share of answers that are expected within so many seconds."""
        within = bisect_right(self.seen, seconds)
        return (PRIOR_WEIGHT * self._prior(seconds) + within) / (PRIOR_WEIGHT + len(self.seen))

    def share_after(self, elapsed: float, seconds: float) -> float:
        """Return the share that is expected within so many seconds, of what was not there after `elapsed`."""
        before = self.share(elapsed)
        return 0.0 if before >= 1.0 or seconds <= elapsed else (self.share(seconds) - before) / (1.0 - before)

    @property
    def longest(self) -> float:
        """Seconds within which nearly all answers are expected."""
        return max((self.way.prior[-1][1] if self.way.prior else 0.0, *self.seen))

    def _prior(self, seconds: float) -> float:
        """Interpolate the prior on a logarithmic scale of time."""
        lower, since = 0.0, self.way.prior[0][1] / 10 if self.way.prior else 0.0
        for share, until in self.way.prior:
            if seconds <= since:
                break
            if seconds < until:
                return lower + (share - lower) * math.log(seconds / since) / math.log(until / since)
            lower, since = share, until
        return lower


class Planner:
    """Decides by which way lines go.

    ways: the ways that are allowed. With one way, all lines go that way and nothing is moved.
    deadline: when all answers should be there; None for no deadline, and then the cheapest way is used.
    rate: live answers per second, as a first guess; `observe_live` corrects it.
    tail: seconds of the longest live answers, as a first guess.

    names: those of the ways.
    """

    def __init__(self, ways: Iterable[Way], deadline: float | None, *, rate: float, tail: float) -> None:
        self._outlooks = {way.name: _Outlook(way) for way in sorted(ways, key=lambda way: way.price)}
        self.names: KeysView[str] = self._outlooks.keys()
        self._ways: list[Way] = [outlook.way for outlook in self._outlooks.values()]
        self._deadline = deadline if deadline is not None else math.inf
        self._rate = rate
        self._tail = tail
        self._caution, self._hope = CAUTION[0], HOPE[0]

    def observe(self, way: str, seconds: float) -> None:
        """Note how long something took that has ended with answers."""
        if way in self._outlooks:  # a batch of an earlier run may end in one with another fixed way
            insort(self._outlooks[way].seen, seconds)

    def observe_live(self, rate: float, tail: float) -> None:
        """Note the rate of live answers in answers per second, and how many seconds the longest of them took."""
        self._rate, self._tail = rate, tail
        self._caution, self._hope = CAUTION[1], HOPE[1]

    def has_time_for_two(self, way: str, now: float) -> bool:
        """Return whether half of the answers of a way are expected within a quarter of the time that is left."""
        return self._outlooks[way].share((self._deadline - now) / 4) >= 0.5

    def live_seconds(self, lines: float) -> float:
        """Return how long so many lines are taken to need if they go live."""
        return (self._tail + lines / self._rate) * self._caution if lines > 0 else 0.0

    def _waiting(self, live: int) -> float:
        """Return how many of the lines that are live have not started."""
        return max(0.0, live - self._rate * self._tail)

    def _most_live(self, begin: float, factor: float) -> float:
        """Return how many lines can go live from a time to the deadline, if each needs so many times its time."""
        return max(0.0, (self._deadline - begin) / factor - self._tail) * self._rate

    def decide(self, now: float, *, unsent: int, live: int, under_way: Sequence[UnderWay]) -> Decision:
        """Decide what to send and what to cancel.

        unsent: lines that went no way yet.
        live: lines that run live, or were moved to live and wait.
        under_way: what was submitted and has not ended.
        """
        cheapest, dearest = self._ways[0], self._ways[-1]
        if len(self._ways) == 1 or math.isinf(self._deadline):
            return Decision({cheapest.name: unsent}, {}, math.inf)
        staying = [each for each in under_way if not each.stopping and math.isfinite(self._outlooks[each.way].way.stop)]
        moving = live + sum(each.lines for each in under_way if each.stopping)
        move, look = self._moved(now, unsent + moving, staying)
        moving += sum(each.lines for each in staying if move.get(each.key) == dearest.name)
        waiting = sum(each.lines for each in staying if move.get(each.key) != dearest.name)
        way = self._way_of_unsent(now, unsent + moving + waiting)
        send = {way.name: unsent}
        left, needed = self._deadline - now, unsent + self._waiting(moving)
        if way is dearest and left > 0 and self._outlooks[cheapest.name].share(left) >= CHANCE:
            begun = self._rate * min(self._tail, left)  # so many have no time to wait for, however long one needs
            if needed > max(begun, self._most_live(now, self._hope)):
                # Live calls alone cannot keep the deadline, and what they cannot do has a chance in the cheapest way.
                beyond = math.ceil(needed - max(begun, self._most_live(now, self._caution)))
                send = {dearest.name: max(0, unsent - beyond), cheapest.name: min(unsent, beyond)}
        if unsent and now + self.live_seconds(unsent + moving + waiting) > self._deadline:
            look = min(look, now + max(1.0, self._tail))  # the rate of live calls is known better then
        send = {name: lines for name, lines in send.items() if lines}
        return Decision(send, move, max(look, math.nextafter(now, math.inf)))

    # --- unsent lines ---

    def _way_of_unsent(self, now: float, lines: int) -> Way:
        """Return the way with the least expected price; `lines` may have to go live in the end."""
        dearest = self._ways[-1]
        prices = [self._expected(place, now, 0.0, lines) for place in range(len(self._ways) - 1)]
        best = min(range(len(prices)), key=prices.__getitem__)
        return self._ways[best] if prices[best] < dearest.price - LEAST_GAIN else dearest

    def _expected(self, place: int, now: float, elapsed: float, lines: int) -> float:
        """Return the expected price of a line that is on a way and moves up at the best time.

        place: the way's place among the ways, by price.
        elapsed: how long it has been on its way.
        lines: as many may have to go live in the end.
        """
        way, outlook = self._ways[place], self._outlooks[self._ways[place].name]
        best = self._ways[-1].price
        if math.isinf(way.stop):
            return way.price if outlook.share(self._deadline - MARGIN - now) >= SURE else best
        for next_place in range(place + 1, len(self._ways)):
            for start in self._starts(next_place, lines):
                if start - way.stop > now:
                    share = outlook.share_after(elapsed, elapsed + start - way.stop - now)
                    then = self._price_from(next_place, start, lines)
                    best = min(best, share * way.price + (1 - share) * then)
        return best

    def _price_from(self, place: int, start: float, lines: int) -> float:
        """Return the expected price of a line that begins a way at this time."""
        return self._ways[-1].price if place == len(self._ways) - 1 else self._expected(place, start, 0.0, lines)

    def _starts(self, place: int, lines: int) -> list[float]:
        """Return the times at which so many lines may best begin a way: the last one for live calls, and for others
        those that leave it the times of its prior."""
        way = self._ways[place]
        latest = self._deadline - MARGIN - self.live_seconds(lines)
        return [latest] if place == len(self._ways) - 1 else [latest - way.stop - seconds for _, seconds in way.prior]

    # --- what is under way ---

    def _moved(self, now: float, others: int, staying: Sequence[UnderWay]) -> tuple[dict[str, str], float]:
        """Return what is to be cancelled and where its lines go, and when to look again.

        What has the best outlook is moved last: until then, live calls have the lines of the others to send.
        """
        places = {way.name: place for place, way in enumerate(self._ways)}
        dearest = self._ways[-1].name
        move: dict[str, str] = {}
        look = math.inf
        lines = sum(each.lines for each in staying)
        ahead = others
        hopeful = sorted(staying, key=lambda each: (self._promise(each, now), each.since))
        while hopeful and now < self._deadline and self._is_hopeless(now, hopeful[-1], lines, others):
            lines -= hopeful.pop().lines  # it may still be answered in time, and live calls have enough without it
        for each in hopeful:
            stop = self._outlooks[each.way].way.stop
            latest = self._deadline - MARGIN - stop - self.live_seconds(lines)
            idle = self.live_seconds(ahead) <= max(stop, self._deadline - MARGIN - now)
            if now >= latest and idle:
                move[each.key] = dearest
                ahead += each.lines
            else:
                look = min(look, latest if latest > now else now + 1.0)  # live calls have room for it soon
                next_way, next_look = self._upgrade(each, places[each.way], now, lines)
                look = min(look, next_look)
                if next_way is not None:
                    move[each.key] = next_way
            lines -= each.lines
        return move, look

    def _is_hopeless(self, now: float, each: UnderWay, lines: int, others: int) -> bool:
        """Whether live calls cannot do so many lines by the deadline: `lines` after a cancellation, `others` now."""
        stop = self._outlooks[each.way].way.stop
        needed = lines + self._waiting(others)
        return lines > self._most_live(now + stop, self._hope) or needed > self._most_live(now, self._hope)

    def _promise(self, each: UnderWay, now: float) -> float:
        elapsed = now - each.since
        return self._outlooks[each.way].share_after(elapsed, max(elapsed, self._deadline - each.since))

    def _upgrade(self, each: UnderWay, place: int, now: float, lines: int) -> tuple[str | None, float]:
        """Return the way between this one and live that is cheaper than to go on waiting, if any, and the next time at
        which to ask."""
        middle = range(place + 1, len(self._ways) - 1)
        begins = now + self._ways[place].stop
        prices = {next_place: self._expected(next_place, begins, 0.0, lines) for next_place in middle}
        if not prices:
            return None, math.inf
        best = min(prices, key=prices.__getitem__)
        if prices[best] < self._expected(place, now, now - each.since, lines) - LEAST_GAIN:
            return self._ways[best].name, math.inf
        starts = (start - self._ways[place].stop for next_place in middle for start in self._starts(next_place, lines))
        return None, min((start for start in starts if start > now), default=math.inf)
