"""The progress display and the summary of `manystream batch`.

Progress is a bar on a terminal with rich, and otherwise a line every few seconds. It is written to standard error.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from pathlib import Path

from ..batch import Counters
from ..engine.embedding import OUTAGE
from .answer import price_reason
from .batch_budget import dollars, spent_text
from .output.terminal import Display, Paint, bar, clock, compact, counted, harmless, money

LOOK_SECONDS = 0.25
"""The interval of updates, in seconds."""
PLAIN_SECONDS = 5.0
"""The interval of plain lines, in seconds."""

BAR_WIDTH = 24

RECENT_SECONDS = 60.0
"""The remaining time is computed from the lines that ended within so many seconds."""

RATE_WEIGHT = 0.1
"""The weight of the newest update in the moving average of the rate, which covers a few seconds."""


class Progress:
    """The progress display of a run.

    total: the number of lines; None if it is unknown.
    label: the name of the part of the input, such as `shard 2/8`; empty for the whole input.
    outage: seconds for which lines wait for a server that is away.
    plain: whether to print lines instead of drawing a bar.
    """

    def __init__(
        self, counters: Counters, total: int | None, label: str = "", *, outage: float = OUTAGE, plain: bool
    ) -> None:
        self._display = None if plain else Display(sys.stderr)
        self._counters = counters
        self._total = total
        self._outage = outage
        self._label = f"{label}: " if label else ""
        self._began = self._last = time.monotonic()
        self._next = self._began + PLAIN_SECONDS
        self._done = self._tokens = 0
        self._rate = self._token_rate = 0.0
        self._ended: deque[tuple[float, int]] = deque([(self._began, 0)])

    @property
    def elapsed(self) -> float:
        """Seconds since this object was made."""
        return time.monotonic() - self._began

    def look(self) -> None:
        """Read the counters, compute the rates since the last update, and show them."""
        now = time.monotonic()
        span, self._last = max(now - self._last, 1e-3), now
        counters = self._counters
        done, tokens = counters.answered + counters.failed, counters.input_tokens + counters.output_tokens
        weight = max(RATE_WEIGHT, LOOK_SECONDS / max(self.elapsed, LOOK_SECONDS))  # the first updates weigh more
        self._rate += ((done - self._done) / span - self._rate) * weight
        self._token_rate += ((tokens - self._tokens) / span - self._token_rate) * weight
        self._done, self._tokens = done, tokens
        self._ended.append((now, done))
        while self._ended[0][0] < now - RECENT_SECONDS:
            self._ended.popleft()
        self.show()

    @property
    def remaining(self) -> str:
        """The estimated remaining time, such as `1:02:03`; empty if it is unknown.

        It is computed from the lines that ended within the last minute. The current rate is not used: it falls to zero
        while lines wait for their next attempt.
        """
        (since, before), (now, done) = self._ended[0], self._ended[-1]
        if self._total is None or done <= before:
            return ""
        return clock((self._total - self._counters.ended) * (now - since) / (done - before))

    def figures(self) -> str:
        """Return the figures beside the bar as text."""
        counters = self._counters
        failed = counters.failed + counters.invalid
        parts = [
            *([self._away()] if counters.away else []),
            f"{self._rate:,.1f}/s",
            f"{compact(counters.input_tokens + counters.output_tokens)} tokens ({compact(self._token_rate * 60)}/min)",
            *([cost] if (cost := spent_text(counters) or cost_text(counters)) else []),
            f"{counters.running - counters.waiting:,} running",
            *([f"{counters.submitted:,} in batches"] if counters.submitted else []),
            *([f"{counters.waiting:,} waiting"] if counters.waiting else []),
            f"{failed:,} failed",
        ]
        if counters.retries:
            parts.append(f"{counters.retries:,} retried")
        return ", ".join(parts)

    def _away(self) -> str:
        """Return for how long a server has been away, and how long lines wait for it."""
        text = f"server away for {clock(self._counters.away)}"
        if self._counters.away >= self._outage:
            return text
        return f"{text}, waiting {f'up to {clock(self._outage)}' if self._outage < math.inf else 'for it'}"

    def show(self) -> None:
        """Show the figures: on the display, or as a line every few seconds."""
        counters, remaining = self._counters, self.remaining
        total = f"/{self._total:,}" if self._total is not None else ""
        left = f"{remaining} left" if remaining else ""
        if self._display is not None:
            filled = bar(counters.ended / self._total, BAR_WIDTH) if self._total else []
            ended = f" {counters.ended:,}{total} "
            self._display.draw(
                [[(self._label, ""), *filled, (ended, ""), (self.figures(), "dim"), (f" {left}", "cyan")]]
            )
        elif self._last >= self._next:
            self._next = self._last + PLAIN_SECONDS
            line = f"{clock(self.elapsed):>7}  {self._label}{counters.ended:,}{total} lines, {self.figures()}"
            print(line + (f", {left}" if left else ""), file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._display is not None:
            self._display.close()


def summary(counters: Counters, elapsed: float, answers: Path, errors: Path, paint: Paint) -> str:
    """Return the summary of a run as text of several lines. elapsed: in seconds."""
    rate = counters.answered / elapsed if elapsed > 0 else 0.0
    shown = harmless(str(errors))
    lines = [
        paint(f"{counters.answered:,} answered", "green")
        + f" in {elapsed:.1f} s ({rate:,.1f}/s), {counters.input_tokens:,} tokens in, {counters.output_tokens:,} out"
        + f" → {harmless(str(answers))}"
    ]
    if counters.cost:
        lines.append(f"{cost_text(counters)} {'paid' if counters.ways else 'by list prices'}")
    if counters.budget is not None:
        lines.append(f"{spent_text(counters)} of the budget")
    if counters.unpriced:
        lines.append(f"{counters.unpriced:,} without a price: {harmless(price_reason(counters.unpriced_reason))}")
    if counters.cached:
        lines.append(f"{counters.cached:,} of the cache, without a request")
    if counters.answered_before:
        lines.append(f"{counters.answered_before:,} were answered before")
    if counters.lost:
        lost = counted(counters.lost, "worker was", "workers were")
        again = counted(counters.asked_again, "line was", "lines were")
        late = f"; {counted(counters.late, 'late answer was', 'late answers were')} dropped" if counters.late else ""
        lines.append(f"{lost} lost: {again} given to others{late}")
    if counters.lost_usd:
        lines.append(f"{dollars(counters.lost_usd)} that lost workers may have spent count as spent")
    if counters.failed:
        kinds = ", ".join(f"{count:,} {category}" for category, count in sorted(counters.failures.items()))
        lines.append(paint(f"{counters.failed:,} failed", "red") + f" ({kinds}) → {shown}")
    if counters.failed_before:
        lines.append(f"{counters.failed_before:,} failed before and were skipped: --retry-failed sends them again")
    if counters.invalid:
        invalid = counted(counters.invalid, "line is not a valid request", "lines are not valid requests")
        lines.append(paint(invalid, "red") + f" → {shown}")
    return "\n".join(lines)


def cost_text(counters: Counters) -> str:
    """Return the cost of this run's answers, or an empty text if no answer has a price."""
    text = " + ".join(money(amount, currency) for currency, amount in sorted(counters.cost.items()))
    return f"at least {text}" if text and counters.unpriced else text
