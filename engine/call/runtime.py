"""The runtime that the calls of one engine share: loop, timers, connection pool, reserve of retries and next tick."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from ...providers.model.request import Request
from ...transport.backend import Backend
from ...transport.errors import TransportError
from ...transport.exchange import Exchange, RawHeaders
from ...transport.loop import Loop
from ...transport.pool import Pool
from ...transport.timers import Timers
from ...transport.url import Origin
from ..request.limits import EngineLimits
from ..request.noting import Notes
from ..request.prepared import Prepared, WallClock
from .buffered import Buffered
from .completion import Completion
from .home import Home
from .sockets import ConversationSockets

Action: TypeAlias = Callable[[], None]


class Note(Protocol):
    """What is noted of one exchange. What its methods raise changes no call."""

    def head(self, status: int, headers: RawHeaders) -> None:
        """Note the head of the response."""
        ...

    def body(self, data: bytes) -> None:
        """Note bytes of its body."""
        ...

    def ended(self, how: str) -> None:
        """Note how the exchange has ended: the answer is "whole", the connection is "broken", or the attempt has "left"
        before the end. A report after the first one says nothing new."""
        ...

    def accepted(self) -> None:
        """Note that the answer is the call's, which has succeeded."""
        ...


class Tap(Exchange):
    """An exchange in front of another one, to which it forwards everything, after it was noted."""

    __slots__ = ("_exchange", "_notes")

    def __init__(self, notes: list[tuple[Note, Notes]], exchange: Exchange) -> None:
        self._notes = notes
        self._exchange = exchange

    def on_head(self, status: int, headers: RawHeaders) -> None:
        for note, notes in self._notes:
            notes.take(note.head, status, headers)
        self._exchange.on_head(status, headers)

    def on_body(self, data: bytes) -> None:
        for note, notes in self._notes:
            notes.take(note.body, data)
        self._exchange.on_body(data)

    def on_end(self) -> None:
        self.ended("whole")
        self._exchange.on_end()

    def on_failure(self, error: TransportError) -> None:
        self.ended("broken")
        self._exchange.on_failure(error)

    def on_defect(self, error: Exception) -> None:
        self.ended("broken")
        self._exchange.on_defect(error)

    def ended(self, how: str) -> None:
        """Note how the exchange has ended."""
        for note, notes in self._notes:
            notes.take(note.ended, how)

    def accepted(self) -> None:
        """Note that the answer is the call's."""
        for note, notes in self._notes:
            notes.take(note.accepted)


KeptAnswer: TypeAlias = tuple[RawHeaders, bytes]
"""The headers and the body of an answer that was kept."""


class Recorder(Protocol):
    """Notes exchanges. notes: guards its notes, and says which are lost."""

    notes: Notes

    def note(self, prepared: Prepared, call: object) -> Note | None:
        """Return what notes the exchange of an attempt of a call; None if nothing does."""
        ...


class AnswerStore(Recorder, Protocol):
    """Keeps the answers of requests when they are accepted, so that no request is sent whose answer it has."""

    def find(self, prepared: Prepared) -> KeptAnswer | None:
        """Return the answer to a request, or None if there is none."""
        ...


class CallRecorder(Recorder, Protocol):
    """A recording of all exchanges, until it is closed."""

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...

    def call_started(self, call: object, number: int, request: Request, prepared: Prepared) -> None:
        """Note a call, before its first attempt."""
        ...

    def call_ended(self, call: object, completion: Completion) -> None:
        """Note the end of a call."""
        ...


class Runtime:
    """The runtime of one engine.

    home: where the engine lives.
    backend: the tasks of the engine, and the events for which tasks of the program wait.
    loop: reads and writes all sockets.
    timers: run functions at a time of the loop's clock.
    pool: the connections, for which attempts wait.
    buffered: the sizes of all answers under way.
    retry_reserve: the retries that all calls together may make now (`retry.EARNED`).
    most_retries: the largest reserve; `math.inf` for no bound.
    source: of random numbers. random: returns one from 0 to 1, for the jitter of delays and the choice of targets.
    wall_clock: returns Unix seconds, for dates in headers.
    on_callback_raised: called with the exception of a callback; it may end the engine.
    recording: records the bytes sent and received, until it is closed; None: there was no recording.
    answers: answers that need no request; None: every call is sent.
    retried: the number of attempts made after a failure and a delay.
    paused: origin → when its server went on after a pause of the program's; `math.inf` while it is paused.
    sockets: the WebSockets of conversations.
    resent: the number of attempts that sent a request again although the server may have read it.
    """

    def __init__(
        self,
        backend: Backend,
        loop: Loop,
        timers: Timers,
        pool: Pool,
        home: Home,
        on_callback_raised: Callable[[BaseException], None],
        limits: EngineLimits,
    ) -> None:
        self.backend: Backend = backend
        self.loop: Loop = loop
        self.timers: Timers = timers
        self.pool: Pool = pool
        self.buffered: Buffered = Buffered(limits.max_buffered_bytes)
        self.retry_reserve: float = limits.retry_reserve
        self.most_retries: float = limits.retry_reserve
        self.source: random.Random = random.Random()
        self.random: Callable[[], float] = self.source.random
        self.wall_clock: WallClock = time.time
        self.on_callback_raised: Callable[[BaseException], None] = on_callback_raised
        self.recording: CallRecorder | None = None
        self.answers: AnswerStore | None = None
        self.paused: dict[Origin, float] = {}
        self.retried: int = 0
        self.resent: int = 0
        self.home: Home = home
        self.sockets: ConversationSockets = ConversationSockets(self)
        self._next: list[tuple[Action, Callable[[Exception], None]]] = []

    def tap(self, exchange: Exchange, prepared: Prepared, call: object) -> Tap | None:
        """Return an exchange that lets the recording and the store of answers note everything; None if neither does."""
        recorders = (self.recording, None if prepared.reads else self.answers)
        given = [each for each in recorders if each is not None]
        named = [(each.notes.take(each.note, prepared, call), each.notes) for each in given]
        notes = [(note, guard) for note, guard in named if note is not None]
        return Tap(notes, exchange) if notes else None

    def soon(self, action: Action, on_defect: Callable[[Exception], None]) -> None:
        """Perform an action at the loop's next tick, outside the code that runs now. on_defect: called if it raises."""
        if not self._next:
            self.backend.soon(self._run_next)
        self._next.append((action, on_defect))

    def forget_next(self) -> None:
        """Drop all actions of the next tick: the engine is closed."""
        self._next.clear()

    def _run_next(self) -> None:
        if self.loop.forked:
            return  # the parent performs them
        actions, self._next = self._next, []
        for action, on_defect in actions:
            try:
                action()
            except Exception as error:
                on_defect(error)
