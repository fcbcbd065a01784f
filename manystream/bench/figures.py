"""What a bench measures: counts, spans, and what is read from them. Values only; time is handed in, in nanoseconds.

`StreamWatch.on_event` runs for each event on the core that is being measured, so it is a handful of plain operations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..engine.completion import Completion
from ..providers.errors import ErrorCategory
from ..providers.events import Error, Event, TextDelta, ThinkingDelta, ToolCallDelta
from .latency import LAST, SHIFT, Counts, new_counts, percentile

CONTENT = frozenset({TextDelta, ThinkingDelta, ToolCallDelta})
"""The events between which gaps are measured: what a reader waits for."""

FULL_CORE = 0.9
"""From this share of one core on, a process counts as the limit of what was measured."""
TELLING_SECONDS = 0.5
"""A shorter window tells nothing of who was the limit."""
HELD_UP_SECONDS = 0.1
"""A turn of the loop that takes longer was, in a process that is not busy, taken from it by others."""


class Figures:
    """One run's figures.

    Calls, and the time to their first content, are counted from the beginning; events, gaps and processor time from
    `open_window` on, when all streams have been started.

    A server tells a call's tokens when the call ends, and few calls begin and end within the window. So a stream's
    tokens are those that belong to its events in the window, by the tokens per event of the calls that have ended.
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
        """Forget what came while streams were being started."""
        self.ok_before_window = self.ok
        self.events = self.longest_gap = 0
        self.gaps = new_counts()
        self.long_gaps = []

    @property
    def failed(self) -> int:
        """Calls that failed."""
        return self.failures.total()

    @property
    def tokens(self) -> int | None:
        """Output tokens in the window; None where no call that ended told any."""
        if not self.ended_tokens:
            return None
        return round(self.events * self.ended_tokens / self.ended_events)

    def gap(self, share: float) -> float | None:
        """Seconds within which that share of the gaps was over."""
        long = sorted(self.long_gaps)
        short = sum(self.gaps.values())
        rank = max(1, math.ceil(share * (short + len(long))))
        if rank > short:
            return long[rank - short - 1] if long else None
        return percentile(self.gaps, rank / short)

    def on_completion(self, completion: Completion, events: int = 1) -> None:
        """A call has ended, after so many events; an unstreamed answer is one. A call that the end of the run cut off
        is neither a success nor a failure."""
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
    """One stream's events, into the figures of all."""

    __slots__ = ("_clock", "_figures", "_last", "_started", "events")

    def __init__(self, figures: Figures, clock: Callable[[], int]) -> None:
        self._figures = figures
        self._clock = clock
        self._started = clock()
        self._last = 0
        self.events: int = 0

    def on_event(self, event: Event) -> None:
        """Count it, and how long it came after the one before."""
        figures = self._figures
        self.events += 1
        if type(event) not in CONTENT:
            figures.events += type(event) is not Error
            return
        figures.events += 1
        now = self._clock()
        if self._last:
            gap = now - self._last
            bucket = gap >> SHIFT
            if bucket < LAST:
                figures.gaps[bucket] += 1
            else:
                figures.long_gaps.append(gap / 1e9)
            if gap > figures.longest_gap:
                figures.longest_gap = gap
        else:
            figures.first_contents.append((now - self._started) / 1e9)
        self._last = now


@dataclass(slots=True, frozen=True)
class Percentiles:
    """Seconds; None where there was nothing to measure."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


def percentiles(spans: Sequence[float]) -> Percentiles:
    """By nearest rank."""
    if not spans:
        return Percentiles()
    ordered = sorted(spans)
    return Percentiles(*(ordered[max(1, math.ceil(share * len(ordered))) - 1] for share in (0.5, 0.9, 0.99)))


@dataclass(slots=True, frozen=True)
class Result:
    """One run, as it is told. All spans are in seconds.

    seconds: the window in which events, gaps, tokens and processor time were counted. failures: calls by the error's
    category. unfinished: calls that the end cut off. calls_per_second: successes in the window. events: of streams; of
    unstreamed calls, the answers. tokens: of these events, None where no server told any.
    client_seconds, simulator_seconds: processor time in the window; None where it cannot be known.
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


def warnings_of(*, seconds: float, client_share: float, simulator_share: float | None, loop_lag: float) -> list[str]:
    """Why the figures may say less about the server than they seem to."""
    found: list[str] = []
    if seconds < TELLING_SECONDS:
        return found
    if client_share >= FULL_CORE:
        found.append(
            f"this process took {client_share:.0%} of a core: the client was the limit, not the server; use a lower"
            " --concurrency, or several processes"
        )
    if simulator_share is not None and simulator_share >= FULL_CORE:
        found.append(
            f"the simulator, one Python process, took {simulator_share:.0%} of a core: it was the limit; use a lower"
            " --concurrency or rate, or a server of your own"
        )
    if client_share < FULL_CORE and loop_lag > HELD_UP_SECONDS:
        found.append(
            f"this process was held up for {loop_lag * 1000:.0f} ms without being busy: the machine had other things"
            " to do, and the gaps show it"
        )
    return found
