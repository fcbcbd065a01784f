"""One batch at a provider, from its lines to its results, and the requests to that provider, which are no calls.

A batch writes each step to the file of submissions first.
"""

from __future__ import annotations

import math
import re
import time
from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import trio

from ..engine.call.plain_request import fetch
from ..engine.call.timeouts import Clocks
from ..engine.frontends.engine import Engine
from ..engine.traffic.budgets.budgets import Reservation
from ..providers.catalog.batches import BatchInterface, BatchResult, BatchState
from ..providers.catalog.dialect import WireRequest
from ..providers.catalog.provider import Provider
from ..providers.json.json_values import JSONObject, MalformedJSONError, loads_object
from ..providers.model.provider_error import ErrorCategory, ProviderError
from .lines import LineId
from .submissions import Submission, Submissions

FIRST_LOOK, LONGEST_LOOK = 1.0, 60.0
"""Seconds between two requests for the state of a batch: a tenth of its age, within these limits."""

SETTLED = 3.0
"""Seconds after which a batch is in the provider's list, if the request that creates it has arrived."""
UNSEEN_SECONDS = 60.0
"""A batch that is younger may not be known to all of the provider's servers yet."""
CREATE_ATTEMPTS = 6
MOST_PAGES = 200
CLOCK_SECONDS = 2 * 86_400.0
"""The most seconds between the provider's clock and ours, at the submission: ours may have been wrong."""
RESULT_ATTEMPTS = 5
"""Attempts to read results that the provider says it has, and does not give."""

NOWHERE = -1
"""The position of a line that the input does not have any more."""

CLOCKS = Clocks(connect=300.0, first_byte=300.0, idle=300.0, total=math.inf, queue=300.0)
"""The timeouts of each request. A large file needs long to be sent and to be read."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts. The pause doubles with each attempt."""

Take = Callable[[BatchResult], None]
OnData = Callable[[bytes], None]


class Target:
    """A provider that has a batch interface, over an engine's connections. Its errors name it and show no key.

    most_lines, most_bytes: the most of a batch; refusals may lower the lines.
    closed: whether it has refused a batch for good, so that its lines go live.
    """

    def __init__(self, engine: Engine, provider: Provider, interface: BatchInterface) -> None:
        self._starter = engine._calls.starter  # pyright: ignore[reportPrivateUsage]
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
        prepared = self._starter.prepare_wire(self.provider, wire)
        return await fetch(prepared, self._starter.runtime, CLOCKS, on_data, idempotent=False)

    async def send_patiently(self, wire: WireRequest, on_data: Callable[[], OnData] | None = None) -> bytes:
        """Send a request that may be repeated, again and again until the server answers.

        on_data: returns what gets the body's pieces, for each attempt.

        Raises `ProviderError` for an error that does not pass.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.send(wire, None if on_data is None else on_data())
            except ProviderError as error:
                if not error.retryable:
                    raise
                await trio.sleep(max(pause, min(error.retry_after_ms / 1000, LONGEST_PAUSE)))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def ask(self, wire: WireRequest) -> JSONObject:
        """Send a request that may be repeated, until the server answers with an object. Raises `ProviderError`."""
        return self.object(await self.send_patiently(wire))

    def object(self, body: bytes) -> JSONObject:
        """Parse the object that a response must have. Raises `ProviderError`."""
        try:
            return loads_object(body)
        except MalformedJSONError as error:
            message = f"the answer of {self.provider.name!r} is no JSON object: {error}"
            raise ProviderError(message, category=ErrorCategory.UNKNOWN, http_status=200, body=body) from None


@dataclass(slots=True, eq=False)
class ProviderBatch:
    """One batch. Before its creation it has its lines, and afterwards only where they are.

    positions: where its lines are among those of the run, in its order.
    ids, lines: of its lines, until it is created: their ids, and their form in the batch.
    size: the bytes of these lines.
    since: when it was created, on this program's clock.
    handled: for each line, whether its result was read.
    reported: the number of lines that the provider has answered, as it says.
    to: the way that the unanswered lines go when the batch is cancelled; empty while it is not.
    is_known: whether the provider's id is known, so that it can be cancelled.
    holdings: place of a line → what is reserved of a budget for it.
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
    creating: trio.CancelScope = field(default_factory=trio.CancelScope)
    woken: trio.Event = field(default_factory=trio.Event)

    @property
    def left(self) -> int:
        """The number of lines without an answer."""
        count = len(self.positions)
        return count - max(self.handled.count(1), min(self.reported, count))

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

    def index(self, result: BatchResult) -> int | None:
        """Return which line a result is of; None for one of no line that waits for it."""
        key, _, number = result.id.rpartition("-")
        index = int(number) if number.isdecimal() and len(number) < 9 else len(self.handled)
        waits = key == self.submission.key and index < len(self.handled) and not self.handled[index]
        return index if waits and result.status else None

    def unhandled(self) -> list[int]:
        """Return the places of the lines whose result was not read."""
        return [index for index, handled in enumerate(self.handled) if not handled]

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
        if interface.files is not None:
            with self.creating:
                answer = await target.ask(interface.upload(interface.files, submission.key, lines))
                file = interface.file_id(interface.files, answer)
                if file is None:
                    raise ProviderError("the uploaded file has no id", category=ErrorCategory.UNKNOWN)
                self.submissions.note(submission.key, "uploaded", file=file)
        if self.to:
            return False
        self.submissions.note(submission.key, "sent", at=time.time(), sync=True)
        wire = interface.create(submission.key, lines, submission.file, submission.group)
        del lines
        for attempt in range(CREATE_ATTEMPTS):
            state: BatchState | None = None
            try:
                state = interface.state(target.object(await target.send(wire)))
            except ProviderError as error:
                refused = 400 <= error.http_status < 500 and error.http_status not in (408, 409)
                if refused or attempt == CREATE_ATTEMPTS - 1:
                    raise
            if state is None:  # it may have been created nevertheless
                await trio.sleep(SETTLED)
                state = await self.find(others())
            if state is not None:
                self.submissions.note(submission.key, "submitted", batch=state.id)
                return True
            await trio.sleep(FIRST_LOOK * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def find(self, others: Collection[str | None]) -> BatchState | None:
        """Find it in the provider's list. Raises `ProviderError`.

        others: the provider's ids of batches that are known to be others.
        """
        interface, target, submission = self.target.interface, self.target, self.submission
        since = submission.at - CLOCK_SECONDS
        candidates: list[BatchState] = []
        after: str | None = None
        for _ in range(MOST_PAGES):
            states, after = interface.read_list(await target.ask(interface.list(after)))
            recent = [state for state in states if state.created is None or state.created >= since]
            for state in recent:
                if interface.keeps_key and state.key == submission.key:
                    return state
                if not interface.keeps_key and state.total in (0, submission.lines) and state.id not in others:
                    candidates.append(state)
            if after is None or (states and not recent):
                break
        self.is_known = False
        for candidate in candidates:  # the interface keeps no key: only the results show whose a batch is
            if await self._key_in_results(candidate) == submission.key:
                return candidate
        self.is_known = True
        return None

    async def _key_in_results(self, state: BatchState) -> str | None:
        """Return the key that the first result of a batch names, once that has ended; None if it has no result."""
        while not state.ended or not (state.results or state.lines):
            state = self.target.interface.state(await self.target.ask(self.target.interface.read(state.id)))
            if state.ended:
                break
            await trio.sleep(LONGEST_LOOK)
        found: list[BatchResult] = [*filter(None, map(self.target.interface.result, state.lines[:1]))]
        for name in state.results[:1]:
            await self._read_file(name, found.append)
        return found[0].id.rpartition("-")[0] if found else None

    # --- following it ---

    async def follow(self, changed: Callable[[], None]) -> BatchState:
        """Wait for its end, and cancel it if it is moved. Raises `ProviderError` and `OSError`.

        changed: called when its figures may have changed.
        """
        interface, target, submission = self.target.interface, self.target, self.submission
        assert submission.batch is not None, "it was created"
        asked = False
        while True:
            age = trio.current_time() - self.since
            try:
                state = interface.state(await target.ask(interface.read(submission.batch)))
            except ProviderError as error:
                if error.category is not ErrorCategory.NOT_FOUND:
                    raise
                if age > UNSEEN_SECONDS:
                    said = error.message.rstrip(".")
                    error.message = (
                        f"{said}. Use the key that made it. If it was deleted, its answers are lost,"
                        f" and the next run sends its lines again if you delete {self.submissions.path}"
                    )
                    raise
                state = BatchState(submission.batch, "", ended=False)
            self.reported = state.done
            if state.ended:
                return state
            if self.to and not asked:
                asked = True
                await self._cancel(submission.batch)
                continue
            changed()
            self.woken = trio.Event()
            with trio.move_on_after(min(max(FIRST_LOOK, age / 10), LONGEST_LOOK)):
                await self.woken.wait()

    async def _cancel(self, batch: str) -> None:
        """Ask the provider to cancel it. It may have ended meanwhile, and that is no error."""
        if not self.submission.cancelled:
            self.submissions.note(self.submission.key, "cancelled")
        try:
            await self.target.send_patiently(self.target.interface.cancel(batch))
        except ProviderError as error:
            if error.category is ErrorCategory.AUTH:
                raise

    # --- results ---

    async def read_results(self, state: BatchState, take: Take) -> str:
        """Read all results of the batch, which has ended. Returns why a file cannot be read; empty if all were."""
        for result in filter(None, map(self.target.interface.result, state.lines)):
            take(result)
            await trio.lowlevel.checkpoint()
        failure = ""
        for name in state.results:
            for attempt in range(RESULT_ATTEMPTS):
                try:
                    await self._read_file(name, take)
                    break
                except ProviderError as error:
                    if attempt == RESULT_ATTEMPTS - 1:
                        failure = error.message
                    await trio.sleep(FIRST_LOOK * 2**attempt)
        return failure

    async def _read_file(self, name: str, take: Take) -> None:
        """Read a file of results line by line; again from its beginning if the connection is lost. Raises
        `ProviderError`."""
        interface = self.target.interface
        pieces: list[bytes] = []

        def begin() -> Callable[[bytes], None]:
            pieces.clear()
            return feed

        def feed(data: bytes) -> None:
            first, *more = data.split(b"\n")
            pieces.append(first)
            for piece in more:
                line = b"".join(pieces)
                result = interface.result_of_line(line) or self._unreadable(line)
                pieces[:] = [piece]
                if result is not None:
                    take(result)

        await self.target.send_patiently(interface.results(name), begin)
        feed(b"\n")

    def _unreadable(self, line: bytes) -> BatchResult | None:
        """Return the result of a line that cannot be read, if it has the id of one of ours.

        Its answer was paid for, so it counts as the answer: its record says why it cannot be read.
        """
        found = re.search(rb"\b%b-\d{1,8}\b" % self.submission.key.encode(), line)
        return None if found is None else BatchResult(found[0].decode(), 200, line)
