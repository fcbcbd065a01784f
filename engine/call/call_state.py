"""The states of a call, and which may follow which."""

from __future__ import annotations

import enum


class CallState(enum.StrEnum):
    """The state of a call.

    followers: the states that may come next: a copy of `MAY_FOLLOW`, which is found without hashing a member.
    """

    followers: tuple[CallState, ...]

    QUEUED = "queued"
    CONNECTING = "connecting"
    SENDING = "sending"
    WAITING = "waiting"
    READING = "reading"
    BACKOFF = "backoff"
    ENDED = "ended"


QUEUED, CONNECTING, SENDING, WAITING, READING, BACKOFF, ENDED = CallState
"""The members, for the states of every call. CPython 3.11 needs a thousand instructions to find one in `CallState`."""

MAY_FOLLOW: dict[CallState, tuple[CallState, ...]] = {
    CallState.QUEUED: (
        CallState.CONNECTING,
        CallState.SENDING,
        CallState.BACKOFF,
        CallState.ENDED,
    ),
    CallState.CONNECTING: (CallState.SENDING, CallState.QUEUED, CallState.BACKOFF, CallState.ENDED),
    CallState.SENDING: (CallState.READING, CallState.QUEUED, CallState.BACKOFF, CallState.ENDED),
    CallState.WAITING: (CallState.READING, CallState.QUEUED, CallState.BACKOFF, CallState.ENDED),
    CallState.READING: (CallState.ENDED, CallState.BACKOFF, CallState.QUEUED),
    CallState.BACKOFF: (CallState.QUEUED, CallState.ENDED),
    CallState.ENDED: (CallState.ENDED,),
}
"""State → the states that may follow it.

A call begins in the queue. A request on a connection that the server had closed goes back to the queue, for a fresh
connection; so does one that a limit of the provider has refused, and one that goes to another target of
its route. The end may be entered twice: its steps can be repeated.
"""

for _state, _followers in MAY_FOLLOW.items():
    _state.followers = _followers
