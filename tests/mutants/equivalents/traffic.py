"""Known equivalents of `engine/traffic`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "engine/traffic/queue.py",
        "FairQueue._drop",
        "if len(self._deadlines) > 2 * self._with_deadline + 32:",
        ">",
        ">=",
        "old entries leave the heap one call earlier; entries of calls that wait stay either way",
    ),
    Equivalent(
        "engine/traffic/quota.py",
        "Quota._read_limit",
        "if abs(rate - bucket.rate) > 1e-9 * rate:",
        ">",
        ">=",
        "a rate that differs by exactly the tolerance for rounding may be taken or left",
    ),
    Equivalent(
        "engine/traffic/bucket.py",
        "Bucket.fill",
        "if now > self.at:",
        ">",
        ">=",
        "in no time nothing flows into a bucket",
    ),
    Equivalent(
        "engine/traffic/bucket.py",
        "Bucket.fill",
        "if self.level < self.capacity:",
        "<",
        "<=",
        "a full bucket stays full",
    ),
    Equivalent(
        "engine/traffic/bucket.py",
        "Bucket.take",
        "if now > self.at:",
        ">",
        ">=",
        "in no time nothing flows into a bucket",
    ),
    Equivalent(
        "engine/traffic/breaker.py",
        "Breaker.__init__",
        "self._opened_at = -math.inf",
        "self._opened_at = -math.inf",
        "pass",
        "it is read only of an open breaker, and the failure that opens it sets it",
    ),
    Equivalent(
        "engine/traffic/bucket_size.py",
        "BucketSize.read",
        "used = 1.0 - limit.remaining / limit.limit",
        "1.0",
        "3.0",
        "only differences of two such values are used",
    ),
    Equivalent(
        "engine/traffic/concurrency.py",
        "_Running",
        "excess: float = 0.0",
        "0.0",
        "1.0",
        "it is read only of calls that were judged, and judging sets it",
    ),
    Equivalent(
        "engine/traffic/hedge.py",
        "HedgeState.allows",
        "return sum(self._hedges) + 1 <= self.hedge.at_most * sum(self._calls) + _ROUNDING",
        "<=",
        "<",
        "no sum of calls differs from a whole number by exactly the allowance for rounding",
    ),
    Equivalent(
        "engine/traffic/route.py",
        "RouteState.choose",
        "if self.balance is Balance.STICKY and session is not None:",
        "and",
        "or",
        "only a sticky route keeps sessions, and only calls with a session: otherwise `_kept` finds none",
    ),
    Equivalent(
        "engine/traffic/route.py",
        "RouteState.fail",
        "if session is not None and self._sessions.get(session, (-1, now))[0] == place:",
        "1",
        "2",
        "no target has a place below 0",
    ),
)
