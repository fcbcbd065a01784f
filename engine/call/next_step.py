"""What a call does after a failed attempt, and the seconds that it waits. The functions here are pure: time and
randomness are passed in, and `RunningCall` performs what `next_step` returns.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ...providers.model.options import Retry
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ..request.answers import Progress, Verdict
from ..request.durable import IN_PROGRESS
from .timeouts import Clock, timeout_error

UNANSWERED = (ErrorCategory.NETWORK, ErrorCategory.TIMEOUT)
"""The errors of an attempt to which the server gave no whole answer."""

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


class Limits(enum.Enum):
    """What traffic control says of a failed attempt."""

    NONE = enum.auto()
    """It was not asked, or knows no other way: the call's own options decide."""
    ASK_SLOWLY = enum.auto()
    """The same, and the server may be away. One call at a time asks it, so that no retry of the reserve is spent."""
    WAIT = enum.auto()
    """The call waits: for a limit, for its server, or for another key or target."""


class Outlook(NamedTuple):
    """What traffic control says of a failed attempt, whose permit and reservation have ended.

    error: the one that decides: with several targets it may be an earlier one.
    is_counted: whether the attempt counts against `Retry.max_attempts`.
    longest_pause: seconds before the next attempt, at most.
    """

    limits: Limits
    error: ProviderError
    is_counted: bool = True
    longest_pause: float = math.inf


class Failure(NamedTuple):
    """A failed attempt, and what is known of its call.

    progress: how the answer stands.
    unread: the server cannot have read the request.
    attempts: the attempts that count.
    reserve, most: the retries that the engine has left, and the largest reserve.
    random: returns numbers in [0, 1).
    """

    outlook: Outlook
    progress: Progress
    unread: bool
    attempts: int
    retry: Retry
    idle: float
    reserve: float
    most: float
    now: float
    random: Callable[[], float]


class Send(NamedTuple):
    """Send the request again at once, with the permit of the failed attempt. fresh: on a new connection."""

    fresh: bool


class Wait(NamedTuple):
    """Wait until traffic control admits the call."""


class Pause(NamedTuple):
    """Wait for some seconds, then ask traffic control. is_spent: one retry of the engine's reserve is spent."""

    seconds: float
    is_spent: bool = False


class ReadOn(NamedTuple):
    """Read on in an answer that the server keeps.

    fresh: on a new connection.
    after: seconds to wait before; None: at once.
    is_asked: the server has asked for this time, which is no silence.
    is_cut: the latest connection was lost; else the server is still making the answer.
    """

    fresh: bool = False
    after: float | None = None
    is_asked: bool = False
    is_cut: bool = False


class Complete(NamedTuple):
    """Complete with the parts of the answer that have arrived."""


class Fail(NamedTuple):
    """Fail. why: what to add to the error's message."""

    error: ProviderError
    why: str = ""


NextStep: TypeAlias = Send | Wait | Pause | ReadOn | Complete | Fail


def next_step(failure: Failure) -> NextStep:
    """Return what a call does after a failed attempt."""
    return STEPS[failure.progress.verdict](failure)


def _send_again(failure: Failure) -> NextStep:
    (limits, error, _, longest), retry = failure.outlook, failure.retry
    if failure.progress.at_once and failure.attempts < retry.max_attempts:
        return Send(failure.unread)
    if limits is Limits.WAIT:
        return Wait()
    delay = retry_delay(error, failure.attempts, retry, failure.random)
    if delay is None:
        return Fail(error)
    # If the server named a time to retry after, obey it. If it named none, or "at once", take a retry out of the
    # reserve, so that retries add little traffic during an outage.
    if limits is Limits.ASK_SLOWLY or (error.retry_after_ms >= retry.base * 1000 and error.retry_after_ms > 0):
        return Pause(min(delay, longest))
    if failure.reserve < 1.0:
        most = f"all {failure.most:g} retries of the engine's limits.retry_reserve are used up"
        return Fail(error, f" (not repeated: {most})")
    return Pause(delay, is_spent=True)


def _ask_for_the_rest(failure: Failure) -> NextStep:
    if failure.outlook.limits is Limits.WAIT:
        return Wait()
    if failure.progress.at_once:
        return Pause(0.0)
    in_vain, retry = failure.progress.in_vain - (not failure.outlook.is_counted), failure.retry
    if in_vain >= retry.max_attempts:
        return Fail(failure.outlook.error)
    return Pause(backoff(max(1, in_vain), retry, failure.random))


def _read_on(failure: Failure) -> NextStep:
    progress, error, retry = failure.progress, failure.outlook.error, failure.retry
    if progress.at_once:
        return ReadOn(failure.unread)
    pause = read_again_delay(error, progress.in_vain, retry, failure.random)
    # A server that names times again and again, and never answers, is out of reach.
    hinted = follows_hint(error, retry) and progress.in_vain < retry.max_attempts
    is_cut = error.provider_code != IN_PROGRESS
    is_asked = hinted or not is_cut
    left = max(progress.reached_at - failure.now, pause if is_asked else -math.inf) + failure.idle
    if left > 0:
        return ReadOn(after=min(pause, left), is_asked=is_asked, is_cut=is_cut)
    return Fail(timeout_error(Clock.IDLE, failure.idle, error.message) if error.category in UNANSWERED else error)


STEPS: dict[Verdict, Callable[[Failure], NextStep]] = {
    Verdict.AGAIN: _send_again,
    Verdict.REST: _ask_for_the_rest,
    Verdict.READ: _read_on,
    Verdict.WHOLE: lambda _: Complete(),
    Verdict.LOST: lambda failure: Fail(failure.outlook.error),
}
"""How the answer stands → what is done."""


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
    """Return the seconds to wait after so many attempts; None for no further attempt."""
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
    """Return the seconds to wait before the next read of an answer that the server keeps.

    error: why the latest read has not brought its end.
    before: the reads in vain before that one, in a row.
    """
    if follows_hint(error, options):
        return _obeyed(error, before, options, random)
    if error.provider_code == IN_PROGRESS:
        return min(LONGEST_POLL, backoff(before + 1, options, random))
    return backoff(before, options, random) if before else random() * min(options.jitter, FIRST_PAUSE)
