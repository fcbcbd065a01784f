"""Decide whether and when to retry. Pure functions; randomness is passed in.

Knows errors and `Retry`. Must not know timers or attempts.
"""

from __future__ import annotations

from collections.abc import Callable

from ...providers.errors import ProviderError
from ...providers.model.options import Retry

HINT_SPREAD = 0.1
"""The maximum jitter that is added to a server's hint, as a part of it. Without it, a thousand calls with the same hint
would retry in the same millisecond."""


def retry_delay(error: ProviderError, attempts: int, options: Retry, random: Callable[[], float]) -> float | None:
    """Return the seconds to wait before the next attempt; None for no further attempt.

    attempts: the number of attempts so far.
    random: returns numbers in [0, 1).
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
    """A bound on the retries of a whole engine, so that an outage does not multiply the traffic.

    Each started call adds `earned` retries to the budget, and each retry takes one. A quiet engine can retry because of
    the `reserve`. If the budget is empty, a failure is reported at once.
    """

    __slots__ = ("_balance", "_earned", "_most")

    def __init__(self, reserve: float = 100.0, earned: float = 0.2) -> None:
        self._balance = reserve
        self._most = reserve
        self._earned = earned

    def call_started(self) -> None:
        """Add the share of a started call."""
        self._balance = min(self._most, self._balance + self._earned)

    def spend(self) -> bool:
        """Take one retry. Returns False if none is left."""
        if self._balance < 1.0:
            return False
        self._balance -= 1.0
        return True
