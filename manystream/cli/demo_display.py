"""The live display of `manystream demo`, and the table at its end.

It runs on the core that is measured. An update takes a fraction of a millisecond, twice per second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from ..bench.histogram import Counts, merge, new_counts, percentile
from .demo_streams import Counters
from .output.terminal import Display as TerminalDisplay
from .output.terminal import Table, bar, columns, duration, print_table

LIVE_COLUMNS = columns("<dialect  open  events/s  p50  p99  errors")
# The headings are short so that the table fits into 80 columns, with a dialect's name of 16 characters and half a
# million events.
FINAL_COLUMNS = columns("<dialect  streams  done  errors  events  events/s  p50  p99")
BAR_WIDTH = 40


class Display:
    """The live display of a run.

    seconds: the expected length of the run, for the bar.
    plain: whether to print lines instead of redrawing a table.

    peak: the largest number of open streams at an update.
    """

    def __init__(self, all_counters: Sequence[Counters], seconds: float, *, plain: bool) -> None:
        self._all_counters = all_counters
        self._seconds = seconds
        self._display = None if plain else TerminalDisplay(sys.stdout)
        self._began = self._last = time.monotonic()
        self._events = [0] * len(all_counters)
        self.peak: int = 0

    @property
    def elapsed(self) -> float:
        """Seconds since this object was made."""
        return time.monotonic() - self._began

    def look(self) -> None:
        """Show the figures since the last update."""
        now = time.monotonic()
        span, self._last = max(now - self._last, 1e-9), now
        everything = new_counts()
        rates = [
            (counters.events - before) / span for counters, before in zip(self._all_counters, self._events, strict=True)
        ]
        self._events = [counters.events for counters in self._all_counters]
        rows: list[list[str]] = []
        for counters, rate in zip(self._all_counters, rates, strict=True):
            window, counters.window = counters.window, new_counts()
            merge(counters.latencies, window)
            merge(everything, window)
            rows.append(_live_row(counters.dialect, counters.open, rate, window, counters.errors))
        open_streams = sum(counters.open for counters in self._all_counters)
        self.peak = max(self.peak, open_streams)
        total = _live_row(
            "all", open_streams, sum(rates), everything, sum(counters.errors for counters in self._all_counters)
        )
        if self._display is None:
            figures = [f"{column.heading} {cell}" for column, cell in zip(LIVE_COLUMNS[1:], total[1:], strict=True)]
            print(f"{now - self._began:6.1f} s  " + "  ".join(figures), flush=True)
        else:
            elapsed = now - self._began
            line = [*bar(elapsed / self._seconds, BAR_WIDTH), (f" {elapsed:5.1f} s", "")]
            heading, *lines, last = Table(
                LIVE_COLUMNS, [*rows, total]
            ).lines()  # rich's own table takes ten times as long
            self._display.draw([line, [(heading, "dim")], *lines, [(last, "bold")]])

    def close(self) -> None:
        """Remove the live lines. The final table follows."""
        if self._display is not None:
            self._display.close()

    def print_summary(self, elapsed: float, *, plain: bool) -> Counts:
        """Print the final table, and return the latencies of all dialects together."""
        everything = new_counts()
        rows: list[list[str]] = []
        for counters in self._all_counters:
            merge(counters.latencies, counters.window)
            counters.window = new_counts()
            merge(everything, counters.latencies)
            rows.append(_final_row(counters, elapsed))
        total = Counters("all", latencies=everything)
        for counters in self._all_counters:
            total.started += counters.started
            total.completed += counters.completed
            total.errors += counters.errors
            total.events += counters.events
        rows.append(_final_row(total, elapsed))
        print_table(Table(FINAL_COLUMNS, rows, total=True), sys.stdout, plain=plain)
        return everything


def _live_row(name: str, open_streams: int, rate: float, window: Counts, errors: int) -> list[str]:
    p50, p99 = percentile(window, 0.5), percentile(window, 0.99)
    return [name, f"{open_streams:,}", f"{rate:,.0f}", duration(p50), duration(p99), f"{errors:,}"]


def _final_row(counters: Counters, elapsed: float) -> list[str]:
    return [
        counters.dialect,
        f"{counters.started:,}",
        f"{counters.completed:,}",
        f"{counters.errors:,}",
        f"{counters.events:,}",
        f"{counters.events / elapsed:,.0f}" if elapsed > 0 else "–",
        duration(percentile(counters.latencies, 0.5)),
        duration(percentile(counters.latencies, 0.99)),
    ]
