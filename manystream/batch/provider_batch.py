"""One batch at a provider, from its lines to its results, and the requests to that provider, which are no calls.

A batch writes each step to the file of submissions first.
"""

from __future__ import annotations

import math
import re
import time
from array import array
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from .. import ErrorCategory, Provider, ProviderError, Timeouts
from ..engine.embedding import EmbeddedEngine, Reservation
from ..providers.catalog.batches import BatchInterface, BatchResult, BatchState
from ..providers.catalog.dialect import WireRequest
from ..providers.json.json_values import JSONObject, MalformedJSONError, loads_object
from .lines import LineId
from .submissions import Submission, Submissions

FIRST_LOOK, LONGEST_LOOK = 1.0, 60.0
"""Seconds between two requests for the state of a batch: a tenth of its age, within these limits. The age begins anew
when it is cancelled."""

SETTLED = 63.0
"""Seconds after which a batch is in the provider's list, if the request that creates it has arrived. Nothing is made
again before, and it is looked for after pauses that double."""
MOST_PAGES = 200
CLOCK_SECONDS = 2 * 86_400.0
"""The most seconds between the provider's clock and ours, at the submission: ours may have been wrong."""

ATTEMPTS = 7
"""Attempts in a row that may fail for a reason that does not pass: a proxy may have answered, and a batch may not be
known to all of the provider's servers yet. With the pauses, these are 63 seconds."""
REFUSALS = 3
"""The same, where a refusal says what is to be done, so that it need not be waited for longer."""

NO_INTERFACE = (401, 403, 404, 405, 501)
"""Statuses with which a server says that it has no batch interface for this key or model."""
GONE = (404, 410)
"""Statuses with which a server says that it does not have it, or not any more."""

RECORDED, REFUSED = 1, 2
"""What became of the result of a line: it was recorded, or its line goes on, since it was refused for a reason that
passes."""

NOWHERE = -1
"""The position of a line that the input does not have any more."""

TIMEOUTS = Timeouts(connect=300.0, first_byte=300.0, idle=300.0, total=math.inf, queue=300.0)
"""The timeouts of each request. A large file needs long to be sent and to be read."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts. The pause doubles with each attempt."""

Take = Callable[[int, BatchResult], None]
"""Gets the place of a line, and its result."""
OnData = Callable[[bytes], None]
T = TypeVar("T")


class Target:
    """A provider that has a batch interface, over an engine's connections. Its errors name it and show no key.

    most_lines, most_bytes: the most of a batch; refusals may lower the lines.
    closed: whether it has refused a batch for good, so that its lines go live.
    """

    def __init__(self, engine: EmbeddedEngine, provider: Provider, interface: BatchInterface) -> None:
        self._engine = engine
        self.provider: Provider = provider
        self.interface: BatchInterface = interface
        self.most_lines: int = interface.terms.lines
        self.most_bytes: int = interface.terms.bytes
        self.closed: bool = False

    async def send(self, wire: WireRequest, on_data: OnData | None = None) -> bytes:
        """Send a request once and return the body of its response. The server gets it once at the most.

        on_data: gets the body's pieces as they come; then nothing is returned.

        Raises `ProviderError` for an error response, and for no or half a response.
        """
        return await self._engine.send(self.provider, wire, TIMEOUTS, on_data)

    async def get(self, wire: WireRequest, read: Callable[[JSONObject], T]) -> T:
        """Send a request once, and return what `read` makes of the object that is its response.

        Raises `ProviderError` as `send` does, and for a response that is not what was asked for.
        """
        body = await self.send(wire)
        try:
            return read(loads_object(body))
        except MalformedJSONError as error:
            message = f"the answer of {self.provider.name!r} cannot be read: {error}"
            raise ProviderError(message, category=ErrorCategory.UNKNOWN, http_status=200, body=body) from None

    async def repeat(
        self, send: Callable[[], Awaitable[T]], attempts: int = ATTEMPTS, final: Collection[int] = ()
    ) -> T:
        """Send a request that may be repeated, until it has succeeded: without end if its errors pass.

        attempts: how often it is sent at the most, if they do not.
        final: statuses that are believed at once.

        Raises `ProviderError`.
        """
        pause, failures = FIRST_PAUSE, 0
        while True:
            try:
                return await send()
            except ProviderError as error:
                failures += not error.retryable
                most = REFUSALS if error.category is ErrorCategory.AUTH else attempts
                if error.http_status in final or failures >= min(most, attempts):
                    raise
                await trio.sleep(max(pause, min(error.retry_after_ms / 1000, LONGEST_PAUSE)))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def ask(self, wire: WireRequest, read: Callable[[JSONObject], T]) -> T:
        """Repeat a request until `read` can make something of its response. Raises `ProviderError`."""
        return await self.repeat(partial(self.get, wire, read))

    async def make(
        self,
        wire: WireRequest,
        read: Callable[[JSONObject], T],
        find: Callable[[], Awaitable[T | None]],
        attempts: int = ATTEMPTS,
    ) -> T:
        """Send a request that makes something which must not be made twice. Raises `ProviderError` if it is not made.

        find: looks for it after an answer that leaves open whether it was made, until that is settled.
        attempts: how often it is sent at the most, if that stays open.
        """
        for attempt in range(1, attempts + 1):
            try:
                return await self.get(wire, read)
            except ProviderError as error:
                status, most = error.http_status, attempts
                if (400 <= status < 500 and status not in (408, 409)) or status == 501:  # it was not made
                    most = REFUSALS if status in NO_INTERFACE else 1
                elif (found := await find()) is not None:
                    return found
                if attempt >= most:
                    raise
            await trio.sleep(FIRST_PAUSE * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")


@dataclass(slots=True, eq=False)
class ProviderBatch:
    """One batch. Before its creation it has its lines, and afterwards only where they are.

    positions: where its lines are among those of the run, in its order.
    ids, lines: of its lines, until it is created: their ids, and their form in the batch.
    size: the bytes of these lines.
    since: when it was created, on this program's clock.
    handled: for each line, 0 until its result was read, then `RECORDED` or `REFUSED`.
    reported: the number of lines that the provider has answered, as it says.
    to: the way that the unanswered lines go when the batch is cancelled; empty while it is not.
    is_known: whether it is known at the provider, or known not to be there. Otherwise it cannot be cancelled.
    holdings: place of a line → what is reserved of a budget for it.
    behind: positions of the lines that go when it has ended, because it writes the beginning of their prompts.
    creating: the scope of what happens before the batch is created.
    woken: set when it is to be looked at before its time.
    """

    submission: Submission
    submissions: Submissions
    target: Target
    positions: array[int] = field(default_factory=lambda: array("q"))
    ids: list[LineId] = field(default_factory=list[LineId])
    lines: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    since: float = 0.0
    handled: bytearray = field(default_factory=bytearray)
    reported: int = 0
    to: str = ""
    is_known: bool = True
    holdings: dict[int, Reservation] = field(default_factory=dict[int, Reservation])
    behind: array[int] = field(default_factory=lambda: array("q"))
    creating: trio.CancelScope = field(default_factory=trio.CancelScope)
    woken: trio.Event = field(default_factory=trio.Event)

    @property
    def left(self) -> int:
        """The number of lines without an answer."""
        count = len(self.positions)
        return count - max(self.handled.count(RECORDED), min(self.reported, count))

    @property
    def is_full(self) -> bool:
        """Whether the lines fill a batch."""
        return len(self.lines) >= self.target.most_lines or self.size >= self.target.most_bytes * 0.9

    def add(self, position: int, id: LineId, line: bytes) -> None:
        """Add a line before the creation. Its id in the batch is `KEY-N`."""
        self.positions.append(position)
        self.handled.append(0)
        self.ids.append(id)
        self.lines.append(line)
        self.size += len(line) + 1

    def place(self, id: str) -> int | None:
        """Return the place of the line that has an id in the batch; None if it has no such line."""
        key, _, number = id.rpartition("-")
        place = int(number) if number.isdecimal() and len(number) < 9 else len(self.positions)
        return place if key == self.submission.key and place < len(self.positions) else None

    def unhandled(self) -> list[int]:
        """Return the places of the lines whose result was not recorded."""
        return [index for index, handled in enumerate(self.handled) if handled != RECORDED]

    def move(self, way: str) -> None:
        """Cancel it, so that its unanswered lines can go another way."""
        if not self.to:
            self.to = way
            self.creating.cancel()
            self.woken.set()

    # --- creation ---

    async def create(self, others: Callable[[], Collection[str | None]]) -> bool:
        """Create it. Returns False if it was moved before. Raises `ProviderError` if there is none then.

        others: returns the provider's ids of batches that are known to be others.
        """
        interface, target = self.target.interface, self.target
        submission = self.submission = self.submissions.intend(self.submission, self.ids)
        self.ids, lines, self.lines = [], self.lines, []
        self.since = trio.current_time()
        files = interface.files
        if files is not None:
            with self.creating:
                upload = interface.upload(files, submission.key, lines)
                file = await target.make(
                    upload, partial(interface.file_id, files), partial(self.find_file, FIRST_PAUSE)
                )
                self.submissions.note(submission.key, "uploaded", file=file)
        if self.to:
            return False
        self.submissions.note(submission.key, "sent", at=time.time(), sync=True)
        wire = interface.create(submission.key, lines, submission.file, submission.group)
        del lines
        state = await target.make(wire, interface.read_state, partial(self.settle, others), REFUSALS)
        self.submissions.note(submission.key, "submitted", batch=state.id)
        return True

    async def find_file(self, pause: float = 0.0) -> str | None:
        """Find the file that was uploaded for it, after a pause; None if there is none, or the files are not listed."""
        await trio.sleep(pause)
        interface, target = self.target.interface, self.target
        assert interface.files is not None, "lines were uploaded"
        read = partial(interface.file_of, interface.files, key=self.submission.key)
        with suppress(ProviderError):
            return await target.repeat(partial(target.get, interface.list_files(interface.files), read), attempts=1)
        return None

    async def settle(self, others: Callable[[], Collection[str | None]], seconds: float = SETTLED) -> BatchState | None:
        """Look for it until it must be in the provider's list. Returns None if it was not created. As `find`.

        seconds: how long it may still be missing there.
        """
        pause, found = FIRST_PAUSE, None
        while found is None:
            await trio.sleep(min(pause, seconds))
            found = await self.find(others())
            if seconds <= pause:
                break
            pause, seconds = 2 * pause, seconds - pause
        return found

    async def find(self, others: Collection[str | None]) -> BatchState | None:
        """Find it in the provider's list. Raises `ProviderError`, and then `is_known` is False.

        others: the provider's ids of batches that are known to be others.
        """
        self.is_known = False
        interface, target, submission = self.target.interface, self.target, self.submission
        since = submission.at - CLOCK_SECONDS
        candidates: list[BatchState] = []
        after: str | None = None
        for _ in range(MOST_PAGES):
            states, after = await target.ask(interface.list(after), interface.read_list)
            recent = [state for state in states if state.created is None or state.created >= since]
            for state in recent:
                if interface.keeps_key and state.key == submission.key:
                    self.is_known = True
                    return state
                if not interface.keeps_key and state.total in (0, submission.lines) and state.id not in others:
                    candidates.append(state)
            if after is None or (states and not recent):
                break
        else:
            raise ProviderError("the list of batches does not end", category=ErrorCategory.UNKNOWN)
        found: BatchState | None = None
        for candidate in candidates:  # the interface keeps no key: only the results show whose a batch is
            if await self._key_in_results(candidate) == submission.key:
                found = candidate
                break
        self.is_known = True
        return found

    async def _key_in_results(self, state: BatchState) -> str | None:
        """Return the key that the first result of a batch names, once that has ended; None if it has no result."""
        while not state.ended or not (state.results or state.lines):
            state = await self._state(state.id)
            if state.ended:
                break
            await trio.sleep(LONGEST_LOOK)
        found = [result.id for result in map(self.target.interface.result, state.lines[:1]) if result is not None]
        for name in state.results[:1]:
            await self._read_file(name, lambda result: found.append(result.id), lambda line: None, ATTEMPTS)
        return found[0].rpartition("-")[0] if found else None

    async def _state(self, batch: str) -> BatchState:
        return await self.target.ask(self.target.interface.read(batch), self.target.interface.read_state)

    # --- following it ---

    async def follow(self, changed: Callable[[], None]) -> BatchState:
        """Wait for its end, and cancel it if it is moved. Raises `ProviderError` and `OSError`.

        changed: called when its figures may have changed.
        """
        submission = self.submission
        assert submission.batch is not None, "it was created"
        begun, asked = self.since, False
        while True:
            try:
                state = await self._state(submission.batch)
            except ProviderError as error:
                if error.category is ErrorCategory.NOT_FOUND:
                    said = error.message.rstrip(".")
                    error.message = (
                        f"{said}. Use the key that made it. If it was deleted, its answers are lost,"
                        f" and the next run sends its lines again if you delete {self.submissions.path}"
                    )
                raise
            self.reported = state.done
            if state.ended:
                return state
            if self.to:
                begun, asked = (begun if asked else trio.current_time()), True
                await self._cancel(submission.batch)
            changed()
            self.woken = trio.Event()
            age = trio.current_time() - begun
            with trio.move_on_after(min(max(FIRST_LOOK, age / 10), LONGEST_LOOK)):
                await self.woken.wait()

    async def _cancel(self, batch: str) -> None:
        """Ask the provider to cancel it, once more at each look until it has ended: an answer may be none of its own.
        An error is none: the batch may have ended meanwhile."""
        if not self.submission.cancelled:
            self.submissions.note(self.submission.key, "cancelled")
        with suppress(ProviderError):
            await self.target.send(self.target.interface.cancel(batch))

    # --- results ---

    async def read_results(self, state: BatchState, take: Take) -> str:
        """Read all results of the batch, which has ended. Returns why they are lost; empty if they were read.

        take: may get a result more than once. One that is cut gets there as an answer that cannot be read.

        An answer was paid for. So where one is missing that the provider says it has, all are read again, a few times.
        Raises `ProviderError` if something else is sent in their place even then: a later run may read them.
        """
        interface, count = self.target.interface, len(self.positions)
        problems: list[ProviderError] = []
        is_foreign = False  # whether a line is no result of any batch
        cut: dict[str, bytes] = {}  # id of a line → its result, which is cut
        read = bytearray(count)  # for each line, whether its result was read

        def on_result(result: BatchResult) -> None:
            place = self.place(result.id)
            if place is not None and result.status:
                read[place] = 1
                take(place, result)

        def on_other(line: bytes) -> None:
            nonlocal is_foreign
            found = re.search(rb"\b%b-\d{1,8}\b" % self.submission.key.encode(), line)
            if found is not None:
                cut[found[0].decode()] = line
            else:
                is_foreign = True

        for attempt in range(ATTEMPTS):
            if attempt:
                await trio.sleep(FIRST_PAUSE * 2 ** (attempt - 1))
                state = await self._state(state.id)
            problems, cut, is_foreign = [], {}, False
            for result in filter(None, map(interface.result, state.lines)):
                on_result(result)
                await trio.lowlevel.checkpoint()
            for name in state.results:
                try:
                    await self._read_file(name, on_result, on_other, attempts=1)
                except ProviderError as error:
                    problems.append(error)
            is_whole = read.count(1) >= min(state.answered, count) and not cut
            if is_whole and not problems and (state.total or not is_foreign):
                return ""
        if is_foreign and not read.count(1):
            problems.append(ProviderError("what is sent as its results has none", category=ErrorCategory.UNKNOWN))
        for problem in problems:
            if problem.http_status not in GONE:
                raise problem
        for id, line in cut.items():
            place = self.place(id)
            if place is not None:
                take(place, BatchResult(id, 200, line))
        if problems:
            return problems[0].message
        return "" if read.count(1) or cut else f"they have none of its {state.answered:,} answers"

    async def _read_file(
        self, name: str, take: Callable[[BatchResult], None], other: Callable[[bytes], None], attempts: int
    ) -> None:
        """Read a file of results line by line; again from its beginning if the connection is lost. Raises
        `ProviderError`.

        other: gets a line that is no result.
        attempts: as for `Target.repeat`.
        """
        interface = self.target.interface
        pieces: list[bytes] = []

        def feed(data: bytes) -> None:
            first, *more = data.split(b"\n")
            pieces.append(first)
            for piece in more:
                line = b"".join(pieces)
                pieces[:] = [piece]
                result = interface.result_of_line(line)
                if result is not None:
                    take(result)
                elif line.strip():
                    other(line)

        async def read() -> None:
            pieces.clear()
            await self.target.send(interface.results(name), feed)

        await self.target.repeat(read, attempts)
        feed(b"\n")
