"""What a call does after a failed attempt, as a table of what failed × how the answer stands × what limits say."""

from __future__ import annotations

import math

import pytest

import manystream as ms
from manystream.engine.call.next_step import (
    Complete,
    Fail,
    Failure,
    Limits,
    NextStep,
    Outlook,
    Pause,
    ReadOn,
    Send,
    Wait,
    next_step,
)
from manystream.engine.request.answers import Progress, Verdict
from manystream.engine.request.durable import IN_PROGRESS

BUSY = ms.ProviderError("busy", category=ms.ErrorCategory.SERVER)
CUT = ms.ProviderError("cut", category=ms.ErrorCategory.NETWORK)
WRONG = ms.ProviderError("wrong", category=ms.ErrorCategory.INVALID_ARG)
UNFINISHED = ms.ProviderError("it is made", category=ms.ErrorCategory.SERVER, provider_code=IN_PROGRESS)
HINTED = ms.ProviderError("busy", category=ms.ErrorCategory.SERVER, retry_after_ms=3_000)
TOO_LATE = ms.ProviderError("busy", category=ms.ErrorCategory.SERVER, retry_after_ms=200_000)

AGAIN, REST, READ, WHOLE, LOST = Verdict
NONE, SLOWLY, WAIT = Limits

CASES: dict[str, tuple[Progress, Outlook, dict[str, object], NextStep]] = {
    "a stale connection": (Progress(AGAIN, at_once=True), Outlook(NONE, CUT), {"unread": True}, Send(fresh=True)),
    "a newer key": (Progress(AGAIN, at_once=True), Outlook(NONE, WRONG), {}, Send(fresh=False)),
    "the last attempt was stale": (Progress(AGAIN, at_once=True), Outlook(NONE, CUT), {"attempts": 4}, Fail(CUT)),
    "a limit": (Progress(AGAIN), Outlook(WAIT, BUSY, is_counted=False), {}, Wait()),
    "a failure": (Progress(AGAIN), Outlook(NONE, BUSY), {}, Pause(1.0, is_spent=True)),
    "the third one": (Progress(AGAIN), Outlook(NONE, BUSY), {"attempts": 3}, Pause(4.0, is_spent=True)),
    "the last one": (Progress(AGAIN), Outlook(NONE, BUSY), {"attempts": 4}, Fail(BUSY)),
    "a failure with a hint": (Progress(AGAIN), Outlook(NONE, HINTED), {}, Pause(3.0)),
    "a hint that is too long": (Progress(AGAIN), Outlook(NONE, TOO_LATE), {}, Fail(TOO_LATE)),
    "a failure in an outage": (
        Progress(AGAIN), Outlook(NONE, BUSY), {"reserve": 0.5},
        Fail(BUSY, " (not repeated: all 8 retries of the engine's limits.retry_reserve are used up)"),
    ),
    "a hint in an outage": (Progress(AGAIN), Outlook(NONE, HINTED), {"reserve": 0.5}, Pause(3.0)),
    "a server that may be away": (
        Progress(AGAIN), Outlook(SLOWLY, CUT, longest_pause=1.0), {"attempts": 3, "reserve": 0.0}, Pause(1.0),
    ),
    "a wrong request": (Progress(AGAIN), Outlook(NONE, WRONG), {}, Fail(WRONG)),
    "a part was delivered": (Progress(LOST), Outlook(NONE, BUSY), {}, Fail(BUSY)),
    "the rest, and a limit": (Progress(REST, in_vain=1), Outlook(WAIT, BUSY, is_counted=False), {}, Wait()),
    "the rest, after a part": (Progress(REST, at_once=True), Outlook(NONE, BUSY), {}, Pause(0.0)),
    "the rest, after no part": (Progress(REST, in_vain=2), Outlook(NONE, BUSY), {}, Pause(2.0)),
    "the rest, in vain": (Progress(REST, in_vain=4), Outlook(NONE, BUSY), {}, Fail(BUSY)),
    "the rest, uncounted": (Progress(REST, in_vain=4), Outlook(SLOWLY, CUT, is_counted=False), {}, Pause(4.0)),
    "all ids are there": (Progress(WHOLE), Outlook(NONE, CUT), {}, Complete()),
    "a stale read": (Progress(READ, at_once=True), Outlook(NONE, CUT), {"unread": True}, ReadOn(fresh=True)),
    "a read that was cut": (
        Progress(READ, in_vain=2, reached_at=90.0), Outlook(NONE, CUT), {}, ReadOn(after=2.0, is_cut=True),
    ),
    "a read of what is made": (
        Progress(READ, reached_at=90.0), Outlook(NONE, UNFINISHED), {}, ReadOn(after=1.0, is_asked=True),
    ),
    "a read that may last no longer": (
        Progress(READ, in_vain=3, reached_at=71.0), Outlook(NONE, CUT), {}, ReadOn(after=1.0, is_cut=True),
    ),
    "a read with a hint": (
        Progress(READ, in_vain=3, reached_at=0.0), Outlook(NONE, HINTED), {},
        ReadOn(after=3.0, is_asked=True, is_cut=True),
    ),
    "a server out of reach": (Progress(READ, in_vain=3, reached_at=60.0), Outlook(NONE, BUSY), {}, Fail(BUSY)),
}  # fmt: skip


def failed(progress: Progress, outlook: Outlook, **changed: object) -> NextStep:
    usual = Failure(outlook, progress, False, 1, ms.Retry(jitter=0), 30.0, 8.0, 8.0, 100.0, lambda: 0.5)
    return next_step(usual._replace(**changed))


@pytest.mark.parametrize("case", CASES)
def test_a_failed_attempt_has_one_next_step(case: str) -> None:
    progress, outlook, changed, expected = CASES[case]
    assert failed(progress, outlook, **changed) == expected


def test_a_server_that_is_never_reached_is_a_timeout() -> None:
    step = failed(Progress(READ, in_vain=3, reached_at=60.0), Outlook(NONE, CUT))
    assert isinstance(step, Fail)
    assert (step.error.category, step.error.provider_code) == ("timeout", "idle")


@pytest.mark.parametrize("limits", Limits)
@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("error", [BUSY, CUT, WRONG, UNFINISHED, HINTED, TOO_LATE])
def test_no_next_step_repeats_for_ever(verdict: Verdict, limits: Limits, error: ms.ProviderError) -> None:
    """Whatever happens, a call whose attempts are used up waits for limits or its kept answer, completes or fails."""
    progress = Progress(verdict, in_vain=4, reached_at=-math.inf)
    step = failed(progress, Outlook(limits, error), attempts=4)
    assert isinstance(step, Fail | Complete | ReadOn | (Wait if limits is WAIT else Fail))
