"""One batch at a provider, from its creation to its results. It writes each step to the file of submissions first."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import trio

from ..engine.traffic.budgets.budgets import Holding
from ..providers.catalog.batches import BatchInterface, BatchResult, BatchState
from ..providers.catalog.provider import Provider
from ..providers.json.json_values import JSONObject, string
from ..providers.model.provider_error import ErrorCategory, ProviderError
from .client import BatchClient
from .lines import LineId
from .submissions import Submission, Submissions

FIRST_LOOK, LONGEST_LOOK = 1.0, 60.0
"""Seconds between two requests for the state of a batch: a tenth of its age, within these limits."""

SETTLED = 3.0
"""Seconds after which a batch is in the provider's list, if the request that creates it has arrived."""
CREATE_ATTEMPTS = 6
MOST_PAGES = 200
CLOCK_SECONDS = 600.0
"""The most seconds between the provider's clock and ours."""
RESULT_ATTEMPTS = 5
"""Attempts to read results that the provider says it has, and does not give."""

Take = Callable[[BatchResult], None]


@dataclass(slots=True, eq=False)
class Target:
    """A provider that has a batch interface.

    most_lines: the most lines of a batch, which refusals may have lowered.
    most_bytes: the most bytes of a batch.
    closed: whether it has refused a batch for good, so that its lines go live.
    """

    provider: Provider
    interface: BatchInterface
    client: BatchClient
    most_lines: int
    most_bytes: int
    closed: bool = False


@dataclass(slots=True, eq=False)
class ProviderBatch:
    """One batch.

    ids: of its lines, in its order.
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
    ids: Sequence[LineId]
    since: float
    handled: bytearray
    reported: int = 0
    to: str = ""
    is_known: bool = True
    holdings: dict[int, Holding] = field(default_factory=dict[int, Holding])
    creating: trio.CancelScope = field(default_factory=trio.CancelScope)
    woken: trio.Event = field(default_factory=trio.Event)

    @property
    def left(self) -> int:
        """The number of lines without an answer."""
        return len(self.ids) - max(self.handled.count(1), min(self.reported, len(self.ids)))

    def move(self, way: str) -> None:
        """Cancel it, so that its unanswered lines can go another way."""
        if not self.to:
            self.to = way
            self.creating.cancel()
            self.woken.set()

    # --- creation ---

    async def create(self, lines: Sequence[bytes], others: Callable[[], Collection[str | None]]) -> bool:
        """Create it. Returns False if it was moved before. Raises `ProviderError` if there is none then.

        others: returns the provider's ids of batches that are known to be others.
        """
        interface, client, submission = self.target.interface, self.target.client, self.submission
        if interface.has_files:
            with self.creating:
                file = string(await client.ask(interface.upload(submission.key, lines)), "id")
                if file is None:
                    raise ProviderError("the uploaded file has no id", category=ErrorCategory.UNKNOWN)
                self.submissions.uploaded(submission, file)
        if self.to:
            return False
        self.submissions.sending(submission)
        wire = interface.create(submission.key, lines, submission.file, submission.group)
        for attempt in range(CREATE_ATTEMPTS):
            state: BatchState | None = None
            try:
                state = interface.state(client.object(await client.send(wire)))
            except ProviderError as error:
                refused = 400 <= error.http_status < 500 and error.http_status not in (408, 409)
                if refused or attempt == CREATE_ATTEMPTS - 1:
                    raise
            if state is None:  # it may have been created nevertheless
                await trio.sleep(SETTLED)
                state = await self.find(others())
            if state is not None:
                self.submissions.created(submission, state.id)
                return True
            await trio.sleep(FIRST_LOOK * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def find(self, others: Collection[str | None]) -> BatchState | None:
        """Find it in the provider's list. Raises `ProviderError`.

        others: the provider's ids of batches that are known to be others.
        """
        interface, client, submission = self.target.interface, self.target.client, self.submission
        since = submission.at - CLOCK_SECONDS
        candidates: list[BatchState] = []
        after: str | None = None
        for _ in range(MOST_PAGES):
            states, after = interface.read_list(await client.ask(interface.list(after)))
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
            state, body = await self._ended(candidate.id)
            if await self._first_key(state, body) == submission.key:
                return state
        self.is_known = True
        return None

    async def _ended(self, id: str) -> tuple[BatchState, JSONObject]:
        interface = self.target.interface
        while True:
            body = await self.target.client.ask(interface.read(id))
            state = interface.state(body)
            if state.ended:
                return state, body
            await trio.sleep(LONGEST_LOOK)

    async def _first_key(self, state: BatchState, body: JSONObject) -> str | None:
        found: list[str] = []

        def take(result: BatchResult) -> None:
            if not found:
                found.append(result.id.rpartition("-")[0])

        for result in self.target.interface.inline_results(body):
            take(result)
        for name in state.results[:1]:
            await self.read_file(name, take)
        return found[0] if found else None

    # --- following it ---

    async def follow(self, changed: Callable[[], None]) -> tuple[BatchState, JSONObject]:
        """Wait for its end, and cancel it if it is moved. Returns its state. Raises `ProviderError` and `OSError`.

        changed: called when its figures may have changed.
        """
        interface, client, submission = self.target.interface, self.target.client, self.submission
        assert submission.batch is not None, "it was created"
        asked = False
        while True:
            body = await client.ask(interface.read(submission.batch))
            state = interface.state(body)
            self.reported = state.done
            if state.ended:
                return state, body
            if self.to and not asked:
                asked = True
                await self._cancel(submission.batch)
                continue
            changed()
            self.woken = trio.Event()
            age = trio.current_time() - self.since
            with trio.move_on_after(min(max(FIRST_LOOK, age / 10), LONGEST_LOOK)):
                await self.woken.wait()

    async def _cancel(self, batch: str) -> None:
        """Ask the provider to cancel it. It may have ended meanwhile, and that is no error."""
        if not self.submission.cancelled:
            self.submissions.cancelling(self.submission)
        try:
            await self.target.client.send_patiently(self.target.interface.cancel(batch))
        except ProviderError as error:
            if error.category is ErrorCategory.AUTH:
                raise

    # --- results ---

    async def read_results(self, name: str, take: Take) -> str:
        """Read a file of results. Returns why it cannot be read; empty if it was."""
        failure = ""
        for attempt in range(RESULT_ATTEMPTS):
            try:
                await self.read_file(name, take)
            except ProviderError as error:
                failure = error.message
                await trio.sleep(FIRST_LOOK * 2**attempt)
            else:
                return ""
        return failure

    async def read_file(self, name: str, take: Take) -> None:
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

        await self.target.client.send_patiently(interface.results(name), begin)
        feed(b"\n")

    def _unreadable(self, line: bytes) -> BatchResult | None:
        """Return the result of a line that cannot be read, if it has the id of one of ours.

        Its answer was paid for, so it counts as the answer: its record says why it cannot be read.
        """
        found = re.search(rb"\b%b-\d{1,8}\b" % self.submission.key.encode(), line)
        return None if found is None else BatchResult(found[0].decode(), 200, line)
