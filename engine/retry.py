"""Whether to try again, and when. Pure decisions; randomness is passed in.

Knows errors and `Retry`. Must not know timers, nor what an attempt is.
"""

from __future__ import annotations

from collections.abc import Callable

from ..providers.errors import ProviderError
from ..providers.options import Retry

HINT_SPREAD = 0.1
"""A server's hint is waited for in full, plus up to this part of it: a thousand calls that were told the same
second must not come back in the same millisecond."""


def retry_delay(error: ProviderError, attempts: int, options: Retry, random: Callable[[], float]) -> float | None:
    """Seconds to wait before the next attempt, or None for no more.

    attempts: made so far. random: gives numbers in [0, 1).
    """
    if not error.retryable or attempts >= options.max_attempts:
        return None
    if error.retry_after_ms >= 0:
        hint = error.retry_after_ms / 1000
        if hint > options.max_hint:
            return None
        return hint + random() * min(options.jitter, hint * HINT_SPREAD)
    backoff = min(options.cap, options.base * 2.0 ** min(attempts - 1, 60))
    return backoff + random() * options.jitter


class RetryBudget:
    """A bound on retries over a whole engine, so that an outage does not multiply the traffic.

    Each call that starts earns a part of a retry, each retry spends a whole one; a reserve lets a quiet engine
    retry at all. Beyond that a failure is reported at once, with its error as it is.
    """

    __slots__ = ("_balance", "_earned", "_most")

    def __init__(self, reserve: float = 100.0, earned: float = 0.2) -> None:
        self._balance = reserve
        self._most = reserve
        self._earned = earned

    def call_started(self) -> None:
        """Earn."""
        self._balance = min(self._most, self._balance + self._earned)

    def spend(self) -> bool:
        """Take one retry; False where there is none left."""
        if self._balance < 1.0:
            return False
        self._balance -= 1.0
        return True
