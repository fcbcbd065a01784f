"""The server's loop: sockets, HTTP exchanges, and the pacing of thousands of streams in one thread.

One selector (epoll or kqueue, whichever the system has) reports which sockets are ready. A timer wheel, a dict from
tick to the connections that are due in it, reports which streams are due. An iteration waits for the earlier of the
two, then sends every stream's due events. A stream costs nothing between two events; an event costs a list access, one
`send` and one append to the wheel. A stream that is late by more than one event sends all due events at once.

This module knows nothing of models. `Service` makes the `Program` that it sends.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import selectors
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from ..http_server import BadRequest, HTTPRequest, HTTPServer, Watched
from .connection import Connection
from .inference import InferenceServer
from .journal import Statistics
from .knobs import KnobError
from .program import Ending, Program, head_of
from .service import Service, ServiceSettings
from .store import StoredAnswer
from .websocket import ResponsesSocket

logger: logging.Logger = logging.getLogger("manystream.simulator")

TICKS_PER_SECOND = 1000
AT_ONCE = 0
"""The tick of everything that is due in the next iteration."""

LAST_PORT = 65_535
RESET_PAUSE = 0.05
"""Seconds between the last byte and a reset: after a reset, the peer discards bytes that it has not read."""

RESET_NOW = Program([b""], ending=Ending.RESET_NOW, counted=False)
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_WOULD_BLOCK = (BlockingIOError, InterruptedError)


@dataclass(slots=True, frozen=True, kw_only=True)
class Settings:
    """The configuration of a simulator.

    port: 0 takes a free port.
    service: what it answers.

    Raises `KnobError` for a number that is no port.
    """

    host: str = "127.0.0.1"
    port: int = 0
    service: ServiceSettings = field(default_factory=ServiceSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= LAST_PORT:
            raise KnobError(f"port: {self.port} is no port: it is a number from 0 to {LAST_PORT}")


class SelectorLoop:
    """Serves the sockets of one simulator: epoll or kqueue, whichever the system has."""

    def __init__(self) -> None:
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []  # a heap
        self._numbers = count()

    def clock(self) -> float:
        return time.monotonic()

    def at(self, when: float, function: Callable[[], None]) -> None:
        """Call a function when the clock has reached a time."""
        heapq.heappush(self._timers, (when, next(self._numbers), function))

    def add(self, connection: Watched) -> None:
        self.selector.register(connection.sock, READ, connection)

    def remove(self, connection: Watched) -> None:
        with contextlib.suppress(KeyError):
            self.selector.unregister(connection.sock)

    def watch(self, connection: Watched, *, read: bool, write: bool) -> None:
        events = (READ if read else 0) | (WRITE if write else 0)
        if not events:
            self.remove(connection)  # kqueue has no entry without events
            return
        try:
            self.selector.modify(connection.sock, events, connection)
        except KeyError:
            self.selector.register(connection.sock, events, connection)

    def serve(self, timeout: float | None) -> None:
        """Wait for sockets that are ready, at most `timeout` seconds, and serve each of them once."""
        timers = self._timers
        if timers:
            left = max(0.0, timers[0][0] - self.clock())
            timeout = left if timeout is None else min(timeout, left)
        for key, mask in self.selector.select(timeout):
            ready: Watched = key.data
            if mask & WRITE:
                ready.on_writable()
            if mask & READ:
                ready.on_readable()
        while timers and timers[0][0] <= self.clock():
            heapq.heappop(timers)[2]()


@dataclass(slots=True)
class Signal:
    """A descriptor whose bytes mean something to the server itself."""

    on_readable: Callable[[], None]


class Server:
    """A simulator that listens. `run` serves until `stop`, then closes all sockets.

    Raises `OSError` if it cannot listen on the port.
    """

    def __init__(self, settings: Settings) -> None:
        self.service: Service = Service(settings.service)
        self.statistics: Statistics = self.service.statistics
        self._inference = self.service.inference
        self._wheel: defaultdict[int, list[Connection]] = defaultdict(list)
        self._running = True
        self.loop: SelectorLoop = SelectorLoop()
        self.http: HTTPServer = HTTPServer(self.loop, settings.host, settings.port, self._connect, self.loop.at)
        self._waker, self._wakes = socket.socketpair()
        self.loop.selector.register(self._wakes, READ, Signal(self._wake))
        self.host: str = self.http.host
        self.port: int = self.http.port

    def watch(self, descriptor: int) -> None:
        """Stop when the file ends. The file is a pipe whose other end only the parent process holds."""
        self.loop.selector.register(descriptor, READ, Signal(partial(self._stop_at_end, descriptor)))

    def stop(self) -> None:
        """End the loop. Any thread may call this."""
        self._running = False
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def run(self) -> None:
        """Serve until `stop` is called."""
        loop, wheel, clock = self.loop, self._wheel, time.monotonic
        statistics, jobs = self.statistics, self.service.jobs
        try:
            while self._running:
                timeout = max(0.0, min(wheel) / TICKS_PER_SECOND - clock()) if wheel else None
                if jobs.behind:
                    jobs.work()
                    timeout = 0.0
                loop.serve(timeout)
                now = clock()
                tick = int(now * TICKS_PER_SECOND)
                for due in sorted([key for key in wheel if key <= tick]):
                    self._play(wheel.pop(due), now)
                    if due:
                        statistics.late_ms = max(statistics.late_ms, float(tick - due))
        finally:
            self._close()

    def _play(self, connections: list[Connection], now: float) -> None:
        """Send the due frames. This is the hot path: every event of every stream passes here."""
        wheel = self._wheel
        events = bytes_sent = 0
        for connection in connections:
            program = connection.program
            if program is None or connection.unsent:
                continue  # the client has closed, or must read first
            position = connection.position
            following = connection.due + connection.interval
            last = position + 1
            if following <= now:
                count = connection.due_count(program, now)
                last = position + count
                following = connection.due + connection.interval * count
            if program.templates:
                data = connection.stamped(program, last)
            elif last - position == 1:
                data = connection.frames[position]
            else:
                data = b"".join(connection.frames[position:last])
            try:
                sent = connection.send(data)
            except _WOULD_BLOCK:
                sent = 0
            except OSError:
                self.client_left(connection)
                continue
            bytes_sent += sent
            if program.events:
                events += last - position
            connection.position = last
            connection.due = following
            if sent != len(data):
                connection.keep(data[sent:])
            elif last == connection.end:
                self._finish(connection, program, now)
            elif connection.interval:
                wheel[int(following * TICKS_PER_SECOND) + 1].append(connection)
            else:
                wheel[AT_ONCE].append(connection)
        self.statistics.events += events
        self.statistics.bytes_sent += bytes_sent

    def _finish(self, connection: Connection, program: Program, now: float) -> None:
        """Continue after the last frame of a program: with the next program, the next request, or a close."""
        following = program.following
        if following is not None:
            connection.start(following, connection.due + following.delay)
            self._schedule(connection, connection.due)
            return
        ending = program.ending
        if ending in (Ending.STALL, Ending.SILENT):
            if program.ping and program.ping_interval:
                connection.frames, connection.position, connection.end = [program.ping], 0, 1
                self._schedule(connection, now + program.ping_interval)
            return
        if program.counted:
            self.statistics.completed += 1
            self.statistics.live -= 1
        if connection.ticket is not None or self._inference is not None:
            self._end_account(connection, now, whole=True)
        connection.program = None
        if ending is Ending.KEEP:
            connection.next()
        elif ending is Ending.UPGRADE:
            connection.open_websocket(ResponsesSocket(self, connection, connection.asked))
        elif ending is Ending.RESET:
            connection.start(RESET_NOW, now)
            self._schedule(connection, now + RESET_PAUSE)
        else:
            self._drop(connection, reset=ending is Ending.RESET_NOW)

    def _schedule(self, connection: Connection, due: float) -> None:
        connection.due = due
        self._wheel[int(due * TICKS_PER_SECOND) + 1].append(connection)

    def begin(self, connection: Connection, request: HTTPRequest) -> None:
        connection.asked = request
        try:
            program = self.service.answer(request)
        except Exception as error:  # a defect must cost one connection, not the server
            logger.exception("a request could not be answered: a defect in the simulator")
            program = self.service.bad_request(BadRequest(500, f"the simulator raised {type(error).__name__}"))
        self._answer(connection, program)

    def refuse(self, connection: Connection, error: BadRequest) -> None:
        """Begin the answer to bytes that are no request."""
        self._answer(connection, self.service.bad_request(error))

    def _answer(self, connection: Connection, program: Program) -> None:
        if program.counted:
            statistics = self.statistics
            statistics.started += 1
            statistics.live += 1
            statistics.most_live = max(statistics.most_live, statistics.live)
        now = time.monotonic()
        if program.cancels is not None:
            self._end_responses(*program.cancels, now)
        connection.start(program, now + program.delay)
        connection.ticket = program.ticket
        if self._inference is not None and program.usage is not None:
            usage = program.usage
            self._inference.add(connection, usage.input_tokens + usage.output_tokens)
            self._run_waiting(self._inference, now)
        elif program.delay:
            self._schedule(connection, connection.due)
        else:
            self._wheel[AT_ONCE].append(connection)

    def _end_responses(self, answer: StoredAnswer, last: Program, now: float) -> None:
        """End the responses that show an answer: it was cancelled."""
        for connection in self.http.connections:
            assert isinstance(connection, Connection)
            program = connection.program
            if program is None or program.answer is not answer:
                continue
            due = connection.due_count(program, now) if connection.due <= now else 0
            begun = connection.frames[connection.position : connection.position + due]
            if not due and not connection.position and connection.frames[0].startswith(b"HTTP/"):
                begun = [head_of(connection.frames[0])]
            for tick in (AT_ONCE, int(connection.due * TICKS_PER_SECOND) + 1):
                if connection in self._wheel.get(tick, ()):
                    self._wheel[tick].remove(connection)
            ending = Ending.CLOSE if program.ending is Ending.CLOSE else Ending.KEEP
            connection.start(replace(last, frames=[*begun, *last.frames], ending=ending), now)
            if not connection.unsent:
                self._wheel[AT_ONCE].append(connection)

    def _run_waiting(self, inference: InferenceServer[object], now: float) -> None:
        """Start the calls that have room in the inference server, and give all running calls their new pace."""
        for call in inference.start_waiting():
            assert isinstance(call, Connection)
            program = call.program
            assert program is not None
            assert program.usage is not None
            model = inference.model
            steps = 1 if program.usage.streamed else program.usage.output_tokens
            wait = program.delay + model.prefill * program.usage.input_tokens + steps * inference.step
            self._schedule(call, now + wait)
        step = inference.step
        for call in inference.running:
            assert isinstance(call, Connection)
            call.interval = step
        self.statistics.queued = inference.queued

    def _end_account(self, connection: Connection, now: float, *, whole: bool) -> None:
        """Account for the end of an answer at the limits and at the inference server."""
        ticket, connection.ticket = connection.ticket, None
        if ticket is not None:
            self.service.end(ticket, whole=whole)
        if self._inference is not None and self._inference.remove(connection):
            self._run_waiting(self._inference, now)

    def _stop_at_end(self, descriptor: int) -> None:
        """Stop at the end of the pipe. Bytes that the parent writes mean nothing."""
        if not os.read(descriptor, 4096):
            self._running = False

    def _wake(self) -> None:
        """Wake up the loop, which then sees that it is to stop."""

    def _connect(self, accepted: socket.socket) -> Connection:
        self.statistics.accepted += 1
        self.statistics.connections += 1
        return Connection(self, accepted)

    def drained(self, connection: Connection) -> None:
        """Go on with a response: the client has read what the socket had not taken."""
        program = connection.program
        if program is None:
            return
        if connection.position == connection.end:
            self._finish(connection, program, time.monotonic())
        elif connection.due > time.monotonic():
            self._schedule(connection, connection.due)
        else:
            self._wheel[AT_ONCE].append(connection)

    def client_left(self, connection: Connection) -> None:
        """Drop a connection whose client closed it, perhaps during a response."""
        program = connection.program
        if program is not None and program.counted:
            self.statistics.aborted += 1
            self.statistics.live -= 1
        self._drop(connection)

    def _drop(self, connection: Connection, *, reset: bool = False) -> None:
        if connection.is_open:
            self._end_account(connection, time.monotonic(), whole=False)
            self.statistics.connections -= 1
            self.http.drop(connection, reset=reset)

    def _close(self) -> None:
        for connection in list(self.http.connections):
            assert isinstance(connection, Connection)
            self._drop(connection)
        self.http.close()
        self.loop.selector.close()
        for end in (self._waker, self._wakes):
            end.close()
