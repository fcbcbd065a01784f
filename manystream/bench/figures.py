"""The figures of a load test: counts, time spans, and values derived from them.

`StreamWatch.on_event` runs for each event on the core that is measured, so it does only a few simple operations.

Must not read a clock: the caller passes one that returns nanoseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..engine.call.completion import Completion
from ..providers.model.events import Error, Event, TextDelta, ThinkingDelta, ToolCallDelta
from ..providers.model.provider_error import ErrorCategory
from .latency import LAST, SHIFT, Counts, new_counts, percentile

CONTENT = frozenset({TextDelta, ThinkingDelta, ToolCallDelta})
"""The events between which gaps are measured: those with content that a reader waits for."""

FULL_CORE = 0.9
"""A process that uses at least this share of one core counts as the bottleneck."""
SHORTEST_WINDOW = 0.5
"""The shortest window, in seconds, that shows which process is the bottleneck."""
HELD_UP_SECONDS = 0.1
"""A longer iteration of the loop, in a process that is not busy, means that other processes used the core."""


class Figures:
    """The figures of one run.

    Calls, and the time to their first content, are counted from the start. Events, gaps and processor time are counted
    after `open_window`, when all streams have been started.

    A server reports a call's tokens when the call ends, and few calls begin and end within the window. So the tokens of
    the window are estimated: its events, multiplied by the tokens per event of the calls that have ended.

    ok: calls that succeeded.
    ok_before_window: those of them that ended before the window.
    failures: error category → number of failed calls.
    first_failure: the message of the first failure, or empty.
    first_contents: each stream's time to its first content, in seconds.
    call_seconds: each successful call's duration, in seconds.
    loop_lag: the longest iteration of the engine's loop, in seconds.
    events: events in the window.
    ended_tokens: output tokens of the calls that have ended.
    ended_events: events of the calls that have ended and reported tokens.
    gaps: counts of gaps by bucket (`latency.py`).
    long_gaps: gaps beyond the last bucket, in seconds.
    longest_gap: the longest gap, in nanoseconds.
    """

    def __init__(self) -> None:
        self.ok: int = 0
        self.ok_before_window: int = 0
        self.failures: Counter[str] = Counter()
        self.first_failure: str = ""
        self.first_contents: list[float] = []
        self.call_seconds: list[float] = []
        self.loop_lag: float = 0.0
        self.events: int = 0
        self.ended_tokens: int = 0
        self.ended_events: int = 0
        self.gaps: Counts = new_counts()
        self.long_gaps: list[float] = []
        self.longest_gap: int = 0

    def open_window(self) -> None:
        """Begin the window: reset the events and gaps that were counted while streams were being started."""
        self.ok_before_window = self.ok
        self.events = self.longest_gap = 0
        self.gaps = new_counts()
        self.long_gaps = []

    @property
    def failed(self) -> int:
        """The number of calls that failed."""
        return self.failures.total()

    @property
    def tokens(self) -> int | None:
        """Estimated output tokens in the window; None if no call that ended has reported any."""
        if not self.ended_tokens:
            return None
        return round(self.events * self.ended_tokens / self.ended_events)

    def gap(self, share: float) -> float | None:
        """Return a percentile of the gaps in seconds, or None if there are none.

        share: the percentile's share, above 0 and at most 1.
        """
        long = sorted(self.long_gaps)
        short = sum(self.gaps.values())
        rank = max(1, math.ceil(share * (short + len(long))))
        if rank > short:
            return long[rank - short - 1] if long else None
        return percentile(self.gaps, rank / short)

    def end_window(self, running: Iterable[StreamWatch], opened: int, now: int) -> int:
        """Count the waits that the end of the window cuts. Return the number of streams without content in the window.

        Such a wait would have become longer. It is counted as it is, if it is longer than the 99th percentile of the
        waits that have ended: without it, a server that has stalled would look fast.

        running: the streams that still run.
        opened: when the window was opened, in nanoseconds of the streams' clock.
        now: the time, likewise.
        """
        usual_gap, usual_first = self.gap(0.99), percentiles(self.first_contents).p99
        silent = 0
        for watch in running:
            since = watch.last or watch.started
            wait = (now - since) / 1e9
            silent += since <= opened
            if watch.last and usual_gap is not None and wait > usual_gap:
                self._count_gap(now - since)
            elif not watch.last and usual_first is not None and wait > usual_first:
                self.first_contents.append(wait)
        return silent

    def _count_gap(self, gap: int) -> None:
        """Count a gap in nanoseconds, as `StreamWatch.on_event` does inline."""
        if gap >> SHIFT < LAST:
            self.gaps[gap >> SHIFT] += 1
        else:
            self.long_gaps.append(gap / 1e9)
        self.longest_gap = max(self.longest_gap, gap)

    def on_completion(self, completion: Completion, events: int = 1) -> None:
        """Count a call that has ended. A cancelled call is neither a success nor a failure: the end of the run cut it.

        completion: the call's completion.
        events: the number of its events; an unstreamed call counts as one.
        """
        if completion.error is not None:
            if completion.error.category is ErrorCategory.CANCELLED:
                return
            self.failures[completion.error.category.value] += 1
            self.first_failure = self.first_failure or completion.error.message
            return
        self.ok += 1
        self.call_seconds.append(completion.timings.finished or 0.0)
        if completion.response is not None:
            usage = completion.response.usage
            if usage.output_tokens is not None:
                self.ended_tokens += usage.output_tokens + (usage.thinking_tokens or 0)
                self.ended_events += events


class StreamWatch:
    """A counter of one stream's events. It adds them to the figures of all streams.

    figures: the figures of all streams.
    clock: returns the time in nanoseconds.

    started: when this object was made, in nanoseconds.
    last: when the last content arrived, in nanoseconds; 0 before the first.
    events: the number of this stream's events so far.
    """

    __slots__ = ("_clock", "_figures", "events", "last", "started")

    def __init__(self, figures: Figures, clock: Callable[[], int]) -> None:
        self._figures = figures
        self._clock = clock
        self.started: int = clock()
        self.last: int = 0
        self.events: int = 0

    def on_event(self, event: Event) -> None:
        """Count an event, and measure its gap to the event before it."""
        figures = self._figures
        self.events += 1
        if type(event) not in CONTENT:
            figures.events += type(event) is not Error
            return
        figures.events += 1
        now = self._clock()
        if self.last:
            gap = now - self.last
            bucket = gap >> SHIFT
            if bucket < LAST:
                figures.gaps[bucket] += 1
            else:
                figures.long_gaps.append(gap / 1e9)
            if gap > figures.longest_gap:
                figures.longest_gap = gap
        else:
            figures.first_contents.append((now - self.started) / 1e9)
        self.last = now


@dataclass(slots=True, frozen=True)
class Percentiles:
    """Three percentiles of a set of time spans, in seconds. They are None if the set is empty.

    p50: the 50th percentile.
    p90: the 90th percentile.
    p99: the 99th percentile.
    """

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


def percentiles(spans: Sequence[float]) -> Percentiles:
    """Return the percentiles of time spans in seconds, by the nearest-rank method."""
    if not spans:
        return Percentiles()
    ordered = sorted(spans)
    return Percentiles(*(ordered[max(1, math.ceil(share * len(ordered))) - 1] for share in (0.5, 0.9, 0.99)))


@dataclass(slots=True, frozen=True)
class Result:
    """The result of one run. All times are in seconds.

    concurrency: calls at a time.
    seconds: the length of the window in which events, gaps, tokens and processor time were counted.
    stream: whether the calls were streamed.
    ok: calls that succeeded.
    calls_per_second: successful calls per second of the window.
    unfinished: calls that the end of the run cut off.
    failures: error category → number of failed calls.
    first_failure: the message of the first failure, or empty.
    first_content: time from a call's start to its first content.
    call: duration of the successful calls.
    events: events of streams in the window; the number of answers, if the calls were not streamed.
    tokens: output tokens of these events; None if no server reported any.
    gap_p50: the 50th percentile of the gaps between two events with content; None if there were none.
    gap_p99: the 99th percentile of these gaps.
    gap_longest: the longest of these gaps.
    client_seconds: processor time of this process in the window.
    simulator_seconds: processor time of the simulator in the window; None if it is unknown.
    loop_lag: the longest iteration of the engine's loop.
    connections_opened: connections that were opened.
    connections_reused: how often a connection was used again.
    interrupted: whether Ctrl-C ended the run.
    silent: streams that received no content in the window.
    warnings: reasons why the figures may not show the server's performance.
    """

    concurrency: int
    seconds: float
    stream: bool
    ok: int
    calls_per_second: float
    unfinished: int
    failures: dict[str, int]
    first_failure: str
    first_content: Percentiles
    call: Percentiles
    events: int
    tokens: int | None
    gap_p50: float | None
    gap_p99: float | None
    gap_longest: float | None
    client_seconds: float
    simulator_seconds: float | None
    loop_lag: float
    connections_opened: int
    connections_reused: int
    interrupted: bool = False
    silent: int = 0
    warnings: list[str] = field(default_factory=list[str])

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.tokens else None

    @property
    def client_share(self) -> float:
        return self.client_seconds / self.seconds

    @property
    def simulator_share(self) -> float | None:
        return self.simulator_seconds / self.seconds if self.simulator_seconds is not None else None

    @property
    def client_per_event(self) -> float | None:
        return self.client_seconds / self.events if self.events else None


def warnings_of(
    *, seconds: float, client_share: float, simulator_share: float | None, loop_lag: float, silent: int = 0
) -> list[str]:
    """Return the reasons why the figures may not show the server's performance, as sentences.

    seconds: the length of the window.
    client_share: processor time of this process, as a share of one core.
    simulator_share: processor time of the simulator, as a share of one core; None if it is unknown.
    loop_lag: the longest iteration of the engine's loop, in seconds.
    silent: streams that received no content in the window.
    """
    found: list[str] = []
    if seconds < SHORTEST_WINDOW:
        return found
    if silent:
        found.append(
            f"{silent:,} of the streams received nothing in the measured time: the server has stalled, or lets them"
            " wait"
        )
    if client_share >= FULL_CORE:
        found.append(
            f"this process used {client_share:.0%} of a core: the client was the bottleneck, not the server; use a"
            " lower --concurrency, or several processes"
        )
    if simulator_share is not None and simulator_share >= FULL_CORE:
        found.append(
            f"the simulator, one Python process, used {simulator_share:.0%} of a core: it was the bottleneck; use a"
            " lower --concurrency or rate, or another server"
        )
    if client_share < FULL_CORE and loop_lag > HELD_UP_SECONDS:
        found.append(
            f"this process was delayed for {loop_lag * 1000:.0f} ms although it was not busy: other processes used the"
            " machine, which makes the gaps longer"
        )
    return found
