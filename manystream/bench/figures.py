"""The figures of a load test, under the names of the field.

| name | meaning |
|---|---|
| `ttfb` | time to first byte: to the first byte of the response |
| `ttft` | time to first token: to the first content, thinking included |
| `ttfo` | time to first output: to the first content after thinking; only for calls that thought |
| `tpot` | time per output token: from the first content to the last one, for each token after the first |
| `itl` | inter-token latency: the gaps between the contents of a stream |
| `e2el` | end-to-end latency: to the end of the answer |
| `late` | from the time at which a call was due to its start; only in an open loop |

The spans of a call begin when its request was given to the kernel; in an open loop, when the call was due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from .. import ErrorCategory, ProviderError
from .histogram import SHARES, Counts, Interval, Windows, bucket_of, mean, merge, merged, new_counts
from .histogram import percentile as percentile_of

NAMES = ("ttfb", "ttft", "ttfo", "tpot", "itl", "e2el", "late")
WORDS = {name: name.upper() for name in NAMES} | {"late": "late"}
"""Name of a figure → its name in a report, in the order of the rows."""
SLO_NAMES = ("ttfb", "ttft", "ttfo", "tpot", "itl", "e2el")
"""The figures that a service level objective may bound; `itl` bounds the longest gap of a call."""

Slo = Mapping[str, float]
"""A service level objective: name of a figure → the longest time in seconds that keeps it. Empty: there is none."""


@dataclass(slots=True, eq=False, repr=False)
class Window:
    """A part of a run."""

    # name of a figure → its histogram
    spans: dict[str, Counts] = field(default_factory=lambda: {name: new_counts() for name in NAMES}, init=False)
    ok: int = field(default=0, init=False)  # calls that succeeded
    good: int = field(default=0, init=False)  # those of them that kept the objective
    ended: int = field(default=0, init=False)  # calls that succeeded or failed

    def add(self, other: Window) -> None:
        for name, counts in other.spans.items():
            merge(self.spans[name], counts)
        self.ok += other.ok
        self.good += other.good
        self.ended += other.ended


@dataclass(slots=True, eq=False, repr=False)
class Figures:
    """The figures of one run, or of several that were merged.

    Calls and their spans are counted from the start. Gaps, events and rates are counted in the measured time: after
    `open_windows`, when the first calls of a closed loop were started, until `close_windows`.

    A server reports a call's tokens when the call ends, and few calls begin and end within the measured time. So the
    tokens are estimated: events, multiplied by the tokens per event of the calls that have ended.
    """

    slo: InitVar[Slo | None] = None  # the objective
    _slo: Slo = field(init=False)
    before: Window = field(default_factory=Window, init=False)  # what happened before the measured time
    windows: list[Window] = field(default_factory=list[Window], init=False)  # the measured time
    after: Window = field(default_factory=Window, init=False)  # what happened after it
    failures: Counter[str] = field(default_factory=Counter[str], init=False)  # error category → number of failed calls
    first_failure: str = field(default="", init=False)  # the message of the first failure, or empty
    events: int = field(default=0, init=False)  # events in the measured time
    ended_tokens: int = field(default=0, init=False)  # output tokens of the calls that have ended
    ended_events: int = field(default=0, init=False)  # their events
    unreported: int = field(default=0, init=False)  # calls that succeeded without a report of tokens
    # streams whose content came in one event: nothing is known of the time of a token
    at_once: int = field(default=0, init=False)
    due: int = field(default=0, init=False)  # calls that were due
    started: int = field(default=0, init=False)  # calls that were started
    # when the measured time began, in nanoseconds; 0 if it includes the start
    opened_at: int = field(default=0, init=False)
    # nanoseconds that successful calls ran in the measured time, and the calls that its end cut
    call_time: int = field(default=0, init=False)
    # first_end, last_end: when the first and the last successful call ended, in nanoseconds; 0 if none has
    first_end: int = field(default=0, init=False)
    last_end: int = field(default=0, init=False)
    window: Window = field(init=False)  # the current one
    itl: Counts = field(init=False)  # the histogram of gaps in the current window
    _events_measured: int | None = field(default=None, init=False)

    def __post_init__(self, slo: Slo | None) -> None:
        self._slo = slo or {}
        self.window = self.before
        self.itl = self.before.spans["itl"]

    # --- while calls run ---

    def open_windows(self, *, from_start: bool) -> None:
        """Begin the measured time. from_start: it includes what happened before."""
        if from_start:
            self.windows.append(self.before)
            self.before = Window()
        else:
            self.events = self.call_time = 0
            self.next_window()

    def next_window(self) -> None:
        self.windows.append(Window())
        self._enter(self.windows[-1])

    def close_windows(self) -> None:
        self._events_measured = self.events
        self._enter(self.after)

    def _enter(self, window: Window) -> None:
        self.window, self.itl = window, window.spans["itl"]

    def count(self, name: str, span: int) -> None:
        """Count a span in nanoseconds."""
        self.window.spans[name][bucket_of(max(0, span) // 1000)] += 1

    def failed(self, error: ProviderError) -> None:
        """Count a call that failed. A cancelled call is no failure: the end of the run cut it."""
        if error.category is ErrorCategory.CANCELLED:
            return
        self.failures[error.category.value] += 1
        self.first_failure = self.first_failure or error.message
        self.window.ended += 1

    def succeeded(self, spans: Mapping[str, int], ended: int, events: int, tokens: int | None, pieces: int) -> None:
        """Count a call that succeeded.

        ended: when it ended, in nanoseconds.
        spans: name of a figure → nanoseconds; those that were not counted before are counted here.
        events: its events; an unstreamed call counts as one.
        tokens: the output tokens that the server reported, or None.
        pieces: its events with content.
        """
        window = self.window
        self.first_end, self.last_end = self.first_end or ended, ended
        self.call_time += max(0, min(spans["e2el"], ended - self.opened_at))
        window.ok += 1
        window.ended += 1
        for name in ("e2el", "tpot"):
            if name in spans:
                self.count(name, spans[name])
        window.good += all(spans.get(name, 0) <= limit * 1e9 for name, limit in self._slo.items())
        self.unreported += tokens is None
        if tokens is not None or pieces:
            self.ended_tokens += pieces if tokens is None else tokens
            self.ended_events += events

    def count_cut(self, waits: Iterable[tuple[str, int]]) -> None:
        """Count the waits that the end of the run cuts, in nanoseconds.

        A cut wait would have become longer. It is counted as it is, if it is longer than the 99th percentile of the
        waits that have ended: without it, a server that has stalled would look fast.

        waits: names of figures and spans.
        """
        usual = {name: percentile_of(self.all_of(name), 0.99) for name in ("ttft", "itl", "e2el")}
        for name, span in waits:
            limit = usual[name]
            if limit is not None and span / 1e9 > limit:
                self.count(name, span)

    # --- results ---

    @property
    def ok(self) -> int:
        """The number of calls that succeeded."""
        return sum(window.ok for window in self._all)

    @property
    def good(self) -> int:
        """The number of calls that succeeded and kept the objective."""
        return sum(window.good for window in self._all)

    @property
    def heard(self) -> bool:
        """Whether any stream has received content."""
        return any(window.spans["ttft"] for window in self._all)

    @property
    def failures_total(self) -> int:
        """The number of calls that failed."""
        return self.failures.total()

    @property
    def measured_events(self) -> int:
        return self.events if self._events_measured is None else self._events_measured

    @property
    def tokens(self) -> int | None:
        """Estimated output tokens in the measured time; None if no call has ended to estimate them from.

        Of an answer without a report of tokens, each event with content counts as one.
        """
        if self.ended_tokens:
            return round(self.measured_events * self.ended_tokens / self.ended_events)
        return None

    @property
    def _all(self) -> list[Window]:
        return [self.before, *self.windows, self.after]

    def all_of(self, name: str) -> Counts:
        """Return the whole histogram of a figure. Gaps before the measured time are not in it."""
        windows = self._all[1:] if name == "itl" else self._all
        return merged(window.spans[name] for window in windows)

    def histograms(self, name: str) -> list[Counts]:
        """Return the histograms of a figure, one for each window; the ends of the run are in the nearest one."""
        found = [window.spans[name] for window in self.windows]
        before = [] if name == "itl" else [self.before.spans[name]]
        if not found:
            return [merged([*before, self.after.spans[name]])]
        found[0] = merged([*before, found[0]])
        found[-1] = merged([found[-1], self.after.spans[name]])
        return found

    def summary(self, name: str) -> Summary:
        return summary_of(self.histograms(name))

    # --- several processes ---

    def add(self, other: Figures) -> None:
        self.before.add(other.before)
        self.after.add(other.after)
        while len(self.windows) < len(other.windows):
            self.windows.append(Window())
        for mine, its in zip(self.windows, other.windows, strict=False):
            mine.add(its)
        self.failures += other.failures
        self.first_failure = self.first_failure or other.first_failure
        self._events_measured = self.measured_events + other.measured_events
        self.first_end = min(self.first_end or other.first_end, other.first_end or self.first_end)
        self.last_end = max(self.last_end, other.last_end)
        for name in ("call_time", "ended_tokens", "ended_events", "unreported", "at_once", "due", "started"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True, frozen=True)
class Summary:
    """What is reported of one figure. Times are in seconds; None if there are none.

    mean, p50, p90, p99, longest: their mean, percentiles and maximum.
    intervals: the confidence intervals of the percentiles; None for each with too few windows.
    """

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    longest: float | None = None
    intervals: Sequence[Interval | None] = field(default=(None, None, None))


def summary_of(histograms: Sequence[Mapping[int, int]]) -> Summary:
    """Return what is reported of a figure. histograms: one for each window."""
    whole = merged(histograms)
    if not whole:
        return Summary()
    p50, p90, p99 = (percentile_of(whole, share) for share in SHARES)
    longest, intervals = percentile_of(whole, 1.0), Windows(histograms).intervals()
    return Summary(sum(whole.values()), mean(whole), p50, p90, p99, longest, intervals)
