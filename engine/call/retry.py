"""Decide whether and when to retry. Pure functions; randomness is passed in."""

from __future__ import annotations

from collections.abc import Callable

from ...providers.model.options import Retry
from ...providers.model.provider_error import ProviderError
from ..request.durable import IN_PROGRESS

HINT_SPREAD = 0.1
"""The maximum jitter that is added to a server's hint, as a part of it. Without it, a thousand calls with the same hint
would retry in the same millisecond."""

LEAST_PAUSE = 0.1
"""The shortest pause in seconds after a refusal with a hint. A hint of 0 would repeat the request without any pause."""

LONGEST_GROWN = 2.0
"""Seconds up to which the shortest pause doubles with each refusal in a row. A server that has recovered is asked again
within this time."""


FIRST_PAUSE = 0.1
"""The most seconds before the first attempt to read on after a cut. Many streams may be cut at the same time."""

LONGEST_POLL = 10.0
"""The most seconds between two questions whether the server has ended an answer, where it names no time for that."""

EARNED = 0.2
"""The retries that each started call adds to the engine's reserve, up to `Limits.retry_reserve`. Each retry takes one
out of it, so that an outage does not multiply the traffic; if it is empty, a failure is reported at once."""


def hinted_pause(hint: float, refusals: int, at_most: float) -> float:
    """Return the seconds to wait after a refusal with a hint.

    hint: seconds, as the server says.
    refusals: the refusals in a row before this one.
    at_most: the longest pause.
    """
    return min(at_most, max(hint, min(LONGEST_GROWN, LEAST_PAUSE * 2.0 ** max(0, min(refusals, 60)))))


def follows_hint(error: ProviderError, options: Retry) -> bool:
    """Return whether the server names a time to wait which is followed: of at most `max_hint`."""
    return 0 <= error.retry_after_ms <= options.max_hint * 1000


def retry_delay(error: ProviderError, attempts: int, options: Retry, random: Callable[[], float]) -> float | None:
    """Return the seconds to wait before the next attempt; None for no further attempt.

    attempts: the number of attempts so far.
    random: returns numbers in [0, 1).
    """
    if not error.retryable or attempts >= options.max_attempts:
        return None
    if follows_hint(error, options):
        return _obeyed(error, attempts - 1, options, random)
    return None if error.retry_after_ms >= 0 else backoff(attempts, options, random)


def _obeyed(error: ProviderError, refusals: int, options: Retry, random: Callable[[], float]) -> float:
    """Return `hinted_pause`, with the jitter."""
    pause = hinted_pause(error.retry_after_ms / 1000, refusals, options.max_hint)
    return pause + random() * min(options.jitter, pause * HINT_SPREAD)


def backoff(attempts: int, options: Retry, random: Callable[[], float]) -> float:
    """Return the seconds to wait after a number of attempts in vain, of at least 1."""
    return min(options.cap, options.base * 2.0 ** min(attempts - 1, 60)) + random() * options.jitter


def read_again_delay(error: ProviderError, before: int, options: Retry, random: Callable[[], float]) -> float:
    """Return the seconds to wait before an answer is read again that the server keeps.

    error: why the latest read has not brought its end.
    before: the reads in vain before that one, in a row.
    """
    if follows_hint(error, options):
        return _obeyed(error, before, options, random)
    if error.provider_code == IN_PROGRESS:
        return min(LONGEST_POLL, backoff(before + 1, options, random))
    return backoff(before, options, random) if before else random() * min(options.jitter, FIRST_PAUSE)
