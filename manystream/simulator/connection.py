"""One client connection of the simulator, and the response that is being sent on it.

It returns the next frames of a program. The server's loop decides when they are due.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from ..http_server import BadRequest, HTTPConnection, HTTPRequest
from .limiter import Ticket
from .program import Program

if TYPE_CHECKING:
    from .server import Server


class Connection(HTTPConnection):
    """A client's connection.

    The loop reads and writes these attributes for each event, so they are flat.

    asked: the latest request.
    program: the response that is being sent; None between two exchanges.
    interval: seconds between two frames.
    position: index of the next frame.
    due: when the next frame is due, on the monotonic clock.
    ticket: the account of the response, where limits cover it.
    stamps: the times that frames of this response have shown so far, in nanoseconds.
    """

    __slots__ = ("_owner", "asked", "due", "end", "frames", "interval", "position", "program", "stamps", "ticket")

    def __init__(self, owner: Server, sock: socket.socket) -> None:
        HTTPConnection.__init__(self, owner.http, sock)
        self._owner = owner
        self.asked: HTTPRequest = HTTPRequest("", "", {})
        self.program: Program | None = None
        self.frames: list[bytes] = []
        self.position: int = 0
        self.end: int = 0
        self.interval: float = 0.0
        self.due: float = 0.0
        self.stamps: list[int] = []
        self.ticket: Ticket | None = None

    def begin(self, request: HTTPRequest) -> None:
        self._owner.begin(self, request)

    def refuse(self, error: BadRequest) -> None:
        self._owner.refuse(self, error)

    def drained(self) -> None:
        self._owner.drained(self)

    def client_left(self) -> None:
        self._owner.client_left(self)

    def write(self, data: bytes) -> None:
        program = self.program
        if program is None or program.frames_per_send > 1 or not 0 < self.position < self.end:
            super().write(data)
        else:  # what was sent may end inside a message
            self.frames, self.end = [*self.frames, data], self.end + 1

    def on_writable(self) -> None:
        waiting = len(self.unsent)
        super().on_writable()
        self._owner.statistics.bytes_sent += waiting - len(self.unsent)

    def start(self, program: Program, due: float) -> None:
        """Begin to send a program. Its first frame is due at `due`."""
        self.program = program
        self.frames = program.frames
        self.position, self.end = 0, len(program.frames)
        self.interval = program.interval
        self.due = due
        self.stamps = []

    def due_count(self, program: Program, now: float) -> int:
        """How many frames may be sent now, where several of them may be due."""
        count = program.frames_per_send
        if self.interval:
            count = 1 + int((now - self.due) / self.interval)
            if program.frames_per_send == 1:
                count = 1
        return min(count, self.end - self.position)

    def stamped(self, program: Program, last: int) -> bytes:
        """The frames up to `last` (not included). Frames that show a time are built now."""
        now = time.monotonic_ns()
        first, templates = self.position, program.templates
        if last - first == 1:
            template = templates.get(first)
            return self.frames[first] if template is None else template.render(self.stamps, now)
        rendered = [
            templates[place].render(self.stamps, now) if place in templates else self.frames[place]
            for place in range(first, last)
        ]
        return b"".join(rendered)

    def close(self, *, reset: bool = False) -> None:
        self.program = None
        super().close(reset=reset)
