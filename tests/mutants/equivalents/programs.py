"""Known equivalents of `manystream/cli` and `manystream/bench`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "manystream/cli/connectivity.py",
        "_Answer.on_body",
        "if len(self.body) > MOST_BODY_BYTES:",
        ">",
        ">=",
        "a body of exactly this length is kept whole, and nothing else is read from the answer",
    ),
    Equivalent(
        "manystream/cli/batch.py",
        "Run",
        "interrupted: bool = False",
        "False",
        "True",
        "a run that ends without an error has set it before it is read",
    ),
    Equivalent(
        "manystream/cli/top_rich.py",
        "_table",
        'title_justify="left",',
        '"left"',
        "'leftx'",
        "rich leaves a title with an unknown alignment at the left; only spaces behind it are missing",
    ),
    Equivalent(
        "manystream/bench/load.py",
        "Load._ended",
        "delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures_in_a_row // self._plan.concurrency, 10))",
        "10",
        "11",
        "both delays are above the longest one; the bound is there because a larger power overflows",
    ),
    Equivalent(
        "manystream/cli/terminal.py",
        "UNSAFE",
        'if chr(code) not in "\\n\\t"',
        '"\\n\\t"',
        "'\\n\\tx'",
        "the codes of the table are control characters and surrogates, and x is neither",
    ),
    Equivalent(
        "manystream/cli/connectivity.py",
        "_ConnectivityCheck.__init__",
        "self._since = 0.0",
        "self._since = 0.0",
        "pass",
        "each step begins with a look at the clock, before the time is read",
    ),
    Equivalent(
        "manystream/cli/connectivity.py",
        "_ConnectivityCheck.__init__",
        "self._since = 0.0",
        "0.0",
        "1.0",
        "each step begins with a look at the clock, before the time is read",
    ),
    Equivalent(
        "manystream/cli/demo_display.py",
        "Display.look",
        "(counters.events - before) / span for counters, before in zip(self._all_counters, self._events, strict=True)",
        "True",
        "False",
        "both lists always have the same length",
    ),
    Equivalent(
        "manystream/cli/demo_display.py",
        "Display.look",
        "for counters, rate in zip(self._all_counters, rates, strict=True):",
        "True",
        "False",
        "both lists always have the same length",
    ),
    Equivalent(
        "manystream/cli/demo_display.py",
        "Display.look",
        'figures = [f"{column.heading} {cell}" for column, cell in zip(LIVE_COLUMNS[1:], total[1:], strict=True)]',
        "True",
        "False",
        "both lists always have the same length",
    ),
    Equivalent(
        "manystream/bench/load.py",
        "Load._look",
        "if time.perf_counter() - self._window > LAG_MEMORY:",
        ">",
        ">=",
        "the clock does not stop at the bound",
    ),
)
