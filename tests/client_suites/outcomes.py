"""Compare the outcomes of one suite over the package's own transport and over ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .plan import Row, matches, reason_for


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test.

    result: "passed", "failed" or "skipped".
    requests: how many requests the transport under test carried.
    reason: the last line of the failure, or the reason of the skip.
    """

    result: str
    requests: int
    reason: str = ""


@dataclass(slots=True)
class Comparison:
    """The tests by what was found.

    same: they sent requests over both transports, and passed over both.
    explained: the outcome differs, and a row gives the reason.
    differing: the outcome differs, or only one transport carried requests, and no row gives a reason.
    failing: they fail over the package's own transport, too.
    without: they send no request over a transport that can be replaced.
    only_theirs: they fail over the package's own transport only.
    stale: the rows that should match a difference and match none.
    """

    same: list[str] = field(default_factory=list[str])
    explained: dict[str, str] = field(default_factory=dict[str, str])
    differing: dict[str, str] = field(default_factory=dict[str, str])
    failing: dict[str, str] = field(default_factory=dict[str, str])
    without: list[str] = field(default_factory=list[str])
    only_theirs: list[str] = field(default_factory=list[str])
    stale: list[str] = field(default_factory=list[str])

    @property
    def complete(self) -> bool:
        """Whether every difference has its reason and every reason a difference, and some tests sent requests."""
        return bool(self.same) and not self.differing and not self.stale


def compare(theirs: Mapping[str, Outcome], ours: Mapping[str, Outcome], rows: tuple[Row, ...]) -> Comparison:
    """Compare the outcomes over the package's own transport with those over ours."""
    found = Comparison()
    missing = Outcome("not run", 0)
    differences: list[str] = []
    for name in sorted({*theirs, *ours}):
        before, after = theirs.get(name, missing), ours.get(name, missing)
        if before.result == after.result and bool(before.requests) == bool(after.requests):
            if before.result == "failed":
                found.failing[name] = after.reason
            elif before.requests and before.result == "passed":
                found.same.append(name)
            else:
                found.without.append(name)
            continue
        if after.result == "passed" and after.requests:
            found.only_theirs.append(name)
            continue
        differences.append(name)
        reason = reason_for(name, rows)
        if reason is None:
            found.differing[name] = f"{before.result} over its own, {after.result} over ours: {after.reason}"
        else:
            found.explained[name] = reason
    found.stale = [
        row.pattern for row in rows if row.always and not any(matches(name, row.pattern) for name in differences)
    ]
    return found
