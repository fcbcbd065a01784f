"""The states of a connection: to which part of an exchange its next byte belongs."""

from __future__ import annotations

import enum


class State(enum.Enum):
    """The part of the exchange to which the next byte belongs."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    CLOSED = "closed"


IDLE, HEAD, BODY, CLOSED = State
"""The members."""
