"""How many frames one send takes: all that are due, up to the limit of the program."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from manystream.simulator.connection import Connection
from manystream.simulator.program import Program


@pytest.mark.parametrize(
    ("interval", "frames_per_send", "seconds", "count"),
    [
        (0.0, 64, 0.0, 64),  # unpaced: as many as one send may hold
        (0.0, 1, 5.0, 1),
        (0.1, 64, 0.0, 1),  # paced: the first frame, and one for each interval that has passed
        (0.1, 64, 0.35, 4),
        (0.1, 1, 0.35, 1),  # one frame per send, however late
        (0.1, 64, 1000.0, 100),  # no more frames than the program has
    ],
)
def test_as_many_frames_are_sent_as_are_due(interval: float, frames_per_send: int, seconds: float, count: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(cast("Any", SimpleNamespace(http=None)), ours)
        program = Program([b"x"] * 100, interval=interval, frames_per_send=frames_per_send)
        connection.start(program, 50.0)
        assert connection.due_count(program, 50.0 + seconds) == count
        connection.position = 99
        assert connection.due_count(program, 50.0 + seconds) == 1
