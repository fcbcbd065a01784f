"""The run of a batch with a deadline, or with a fixed way: lines go into a provider's batches, into windows, or live.

`WaysRun` reads all lines into a temporary file, asks the planner by which way they go, and hands them over. Lines that
can only go live do so while the others are read. One task follows each `ProviderBatch` to its last result. A line goes
one way at a time: it leaves a batch only when the provider reports that this has ended. In memory, a line is two
numbers; its text and its id are in files. All steps that move a line from one way to another are in this one file, so
that it can be seen here that no line is lost or sent twice.

An answer in a window of OpenAI's Responses, which may take hours and costs less, is a durable call: as soon as the
server has named it, its resume token is in the file of submissions. The next run reads it, and pays for no other one.

One file because one run hands each line from way to way: what is sent, followed and noted changes the same state.
"""

from __future__ import annotations

import math
import re
import secrets
import struct
import sys
import tempfile
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO

import trio

from .. import (
    AttemptRecord,
    Call,
    Completion,
    Durable,
    ErrorCategory,
    InvalidRequestError,
    ManystreamError,
    OnCompletion,
    Provider,
    ProviderError,
    Timings,
    Warm,
)
from ..engine.embedding import BYTES_PER_TOKEN, OK, EmbeddedEngine, Prepared, Reservation, read_token, when_named
from ..providers.catalog.batches import BatchGroup, BatchResult, BatchState, interface_of
from ..providers.catalog.dialect import WireRequest
from ..providers.openai.responses.request import WINDOWS
from ..providers.wire.cache_marks import digest_of, wire_prefixes
from .calls import BATCH, LineCalls
from .line_ids import LineIds
from .lines import Item, LineId
from .planner import Planner, UnderWay, Way
from .prices import dollars
from .provider_batch import (
    ATTEMPTS,
    FIRST_PAUSE,
    GONE,
    LONGEST_LOOK,
    NO_INTERFACE,
    NOWHERE,
    RECORDED,
    REFUSALS,
    REFUSED,
    SETTLED,
    ProviderBatch,
    Target,
)
from .submissions import Submission, Submissions, shown_url

WINDOW, LIVE = "window", "live"

WINDOW_WAYS = {f"{WINDOW}-{window.name}": window for window in WINDOWS}

MOST_BYTES = 32 * 1024 * 1024
"""The most bytes of one batch, and of all that are being made, whatever the provider allows: they are in memory."""

MOST_IN_WINDOWS = 10_000
"""The most calls in windows at a time: each has some 13 kB. Further lines wait until there is room, or go another way
when the deadline comes into danger."""

ANSWER_SECONDS, TAIL_SECONDS = 10.0, 60.0
"""The time of a usual and of a long live answer, before any was observed."""
MEASURED_SECONDS, MEASURED_LINES = 5.0, 20
"""The rate of live answers is known after so many seconds and lines."""

FIRST_BLOCK, LONGEST_BLOCK = 30.0, 900.0
"""Seconds for which nothing is submitted after the provider has refused a batch because its queue is full."""
MOST_GENERATIONS = 3
"""The most batches that a line is in, one after the other."""
DELETION_SECONDS = 30.0
"""At the end, uploaded files are deleted for so long. The next run deletes the rest."""
SHORTEST_LOOK = 0.1
"""The least seconds between two decisions while batches are under way: one on 200 of them takes up to 13 ms, and each
live answer asks for one."""
STEP = 100
"""After so many lines, other tasks run."""

_NO_LIST = "the batches of {!r} cannot be listed"
LINE_NAMED = re.compile(r"requests[.\[](\d+)")
"""The place of a line in the message that refuses a batch."""

Lines = AsyncGenerator[list[tuple[int, bytes]], None]
_Name = tuple[str, BatchGroup, int, bool]
"""What the lines of one batch share: the provider's name, the group, how often they were in a batch before, and whether
others wait for them."""

MOST_BEGINNINGS = 10_000
"""The most beginnings of prompts that are waited for in a run."""


@dataclass(slots=True)
class InWindow:
    """A line whose answer is made in a window.

    position: where the line is in the spool.
    since: when its answer was begun, on trio's clock.
    holding: what is reserved of a budget, if its call reserves nothing.
    moved: whether its call was cancelled so that it goes live.
    """

    way: str
    position: int
    since: float
    holding: Reservation | None
    moved: bool = False


class Spool:
    """All lines that are to be answered, in a temporary file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = 0

    def add(self, number: int, data: bytes) -> int:
        """Add a line, and return its position."""
        position = self._size
        self._size += self._file.write(struct.pack("<QQ", number, len(data))) + self._file.write(data)
        return position

    def line(self, position: int) -> tuple[int, bytes]:
        self._file.seek(position)
        number, size = struct.unpack("<QQ", self._file.read(16))
        data = self._file.read(size)
        self._file.seek(0, 2)
        return number, data


class Pool:
    """The positions of lines that wait for one way, in their order."""

    def __init__(self) -> None:
        self._lines = array("q")
        self._head = 0
        self._returned = array("q")  # the next one last

    def __len__(self) -> int:
        return len(self._returned) + len(self._lines) - self._head

    def add(self, positions: Iterable[int]) -> None:
        self._lines.extend(positions)

    def give_back(self, positions: Iterable[int]) -> None:
        """Put lines before all others."""
        self._returned.extend(reversed([*positions]))

    def take(self) -> int:
        if self._returned:
            return self._returned.pop()
        self._head += 1
        return self._lines[self._head - 1]


class Targets:
    """The providers of a run that have a batch interface.

    refuse: called with the reason where a provider has none.

    known: name of a provider → it.
    """

    def __init__(self, engine: EmbeddedEngine, refuse: Callable[[str], None]) -> None:
        self._engine = engine
        self._refuse = refuse
        self._of_model: dict[str, Target | None] = {}
        self.known: dict[str, Target] = {}

    def of(self, item: Item) -> Target | None:
        """Return the provider whose batches can have the line; None if it can only go live."""
        model = item.request.model
        if model not in self._of_model:
            try:
                provider = self._engine.prepare(item.request)[0].provider
            except InvalidRequestError:
                return None  # the start of its call reports the reason
            self._of_model[model] = self._of_provider(provider)
        target = self._of_model[model]
        return None if target is None or target.closed else target

    def named(self, name: str) -> Target | None:
        """Return the provider with this name; None if the run has none, or no batch interface of it is known."""
        provider = next((each for each in self._engine.providers if each.name == name), None)
        return None if provider is None else self._of_provider(provider)

    def _of_provider(self, provider: Provider) -> Target | None:
        if provider.name not in self.known:
            interface = interface_of(provider)
            if interface is None:
                self._refuse(f"{provider.name!r} has no batch interface that is known here")
                return None
            target = self.known[provider.name] = Target(self._engine, provider, interface)
            target.most_bytes = min(target.most_bytes, MOST_BYTES)
        return self.known[provider.name]

    def ways(self) -> list[Way]:
        """Return the ways that all of them have, beside the live one."""
        terms = [target.interface.terms for target in self.known.values()]
        if not terms:
            return []
        slowest = max(terms, key=lambda term: term.prior[-1][1] * 10 + term.prior[0][1])
        price, stop = max(term.price for term in terms), max(term.stop for term in terms)
        ways = [Way(BATCH, price, slowest.prior, stop)]
        if all(target.provider.profile.name == "openai-responses" for target in self.known.values()):
            for name, window in WINDOW_WAYS.items():
                ways.append(Way(name, window.price, ((0.5, window.seconds / 2), (0.99, window.seconds)), 10.0))
        return ways


@dataclass(slots=True)
class LiveRate:
    """How fast live answers come while all places are taken."""

    since: float = 0.0
    answers: int = 0
    longest: float = 0.0  # seconds of the longest answer

    def add(self, seconds: float) -> None:
        self.answers += 1
        self.longest = max(self.longest, seconds)

    def measure(self, now: float, *, is_full: bool) -> float | None:
        """Return the answers of a second, once they are known. is_full: all places are taken."""
        if not is_full:
            self.since, self.answers = now, 0
        known = now - self.since >= MEASURED_SECONDS and self.answers >= MEASURED_LINES
        return self.answers / (now - self.since) if known else None


@dataclass(slots=True)
class Submitting:
    """When batches may be submitted: not for a while after the provider has refused one, nor without a budget."""

    pause: float = FIRST_BLOCK
    blocked_until: float = -math.inf
    waits_for_budget: bool = False

    def block(self) -> None:
        """Submit nothing for a while, which doubles each time."""
        self.blocked_until = trio.current_time() + self.pause
        self.pause = min(2 * self.pause, LONGEST_BLOCK)

    @property
    def is_blocked(self) -> bool:
        """Whether nothing may be submitted now."""
        return trio.current_time() < self.blocked_until


class Beginnings:
    """The marked beginnings of prompts that one line of a batch writes to the provider's cache, and others read.

    reading_pays: tells of a model and a number of tokens whether reading costs less than sending again.
    """

    def __init__(self, reading_pays: Callable[[str, int], bool]) -> None:
        self._reading_pays = reading_pays
        self._pays: dict[str, bool] = {}  # of a model
        self._writers: dict[bytes, ProviderBatch] = {}  # digest → the batch that writes it

    def of(self, prepared: Prepared, wire: WireRequest) -> list[bytes]:
        """Return the digests of those of a prompt, the shortest first; none if it does not pay to wait for them."""
        model = f"{prepared.provider.name}/{prepared.model}"
        prefixes = wire_prefixes(wire.body, unmarked=False)
        tokens = [int(prefix.size / BYTES_PER_TOKEN) for prefix in prefixes]
        if model not in self._pays and prefixes:
            self._pays[model] = self._reading_pays(model, tokens[-1])
        if not self._pays.get(model):
            return []
        digests = [
            b"%b/%b" % (model.encode(), digest_of(*prefix.parts(wire.body)))
            for prefix, size in zip(prefixes, tokens, strict=True)
            if size >= Warm().least_tokens
        ]
        return digests if len(self._writers) < MOST_BEGINNINGS else [each for each in digests if each in self._writers]

    def writer(self, digests: Sequence[bytes]) -> ProviderBatch | None:
        """Return the batch that writes the longest of them; None if none does."""
        return next((self._writers[each] for each in reversed(digests) if each in self._writers), None)

    def are_written(self, digests: Sequence[bytes]) -> bool:
        """Return whether a batch writes each of them."""
        return all(each in self._writers for each in digests)

    def write(self, digests: Sequence[bytes], job: ProviderBatch) -> None:
        """Note the batch that writes those that no other one does."""
        for each in digests:
            self._writers.setdefault(each, job)

    def forget(self, job: ProviderBatch) -> None:
        """A batch is not created: it writes none."""
        self._writers = {digest: writer for digest, writer in self._writers.items() if writer is not job}


class WaysRun:
    """One run of a batch by several ways.

    deadline: seconds on trio's clock, or None.
    """

    def __init__(
        self,
        calls: LineCalls,
        submissions: Submissions,
        *,
        deadline: float | None,
        via: str | None,
        concurrency: int,
    ) -> None:
        self._engine = EmbeddedEngine(calls.engine)
        self._submissions = submissions
        self._calls = calls
        self._deadline = deadline
        self._via = via
        self._concurrency = concurrency
        self._pool = Pool()  # lines that go no way yet
        self._moved = {LIVE: Pool(), **{way: Pool() for way in WINDOW_WAYS}}  # lines that go this way next
        self._in_windows: dict[LineId, InWindow] = {}
        self._paused = 0  # lines whose answer in a window is read again after a pause
        self._unsynced = False  # whether a token of them may not be on the disk
        self._generations: dict[int, int] = {}
        self._targets = Targets(self._engine, self._refuse_way)
        self._jobs: dict[str, ProviderBatch] = {}
        self._wanted = {BATCH: 0, LIVE: 0}
        self._drafts: dict[_Name, ProviderBatch] = {}
        self._beginnings = Beginnings(calls.reading_pays)
        self._submitting = Submitting()
        self._changed = trio.Event()  # decide again
        self._decided = trio.Event()  # lines may go now that could not before
        self._live_rate = LiveRate()
        self._planner = Planner((Way(LIVE, 1.0),), None, rate=1.0, tail=TAIL_SECONDS)  # until all lines are read

    async def run(self, lines: Lines) -> None:
        """Send all lines, and return when each has its record."""
        failure: Exception | None = None
        with tempfile.TemporaryFile() as spooled:
            self._spool = Spool(spooled)
            submitted = LineIds()  # id of a line in a batch of an earlier run → its position
            for submission in self._submissions.open.values():
                submitted.update((id, NOWHERE) for id in self._submissions.ids(submission))
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._feed)
                try:
                    async with aclosing(lines):
                        async for some in lines:
                            for number, data in some:
                                self._take(number, data, submitted)
                            self._wake()
                            await trio.lowlevel.checkpoint()
                except Exception as error:  # raised below, since the nursery would wrap it
                    failure = error
                else:
                    await self._send_all(submitted)
                self._nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self._deadline is not None:
            self._calls.counters.missed = max(0.0, trio.current_time() - self._deadline)

    async def _send_all(self, submitted: LineIds) -> None:
        """Send the lines by the ways of a plan, and return when each has its record."""
        self._planner = self._make_planner()
        async with trio.open_nursery() as self._deletions:
            for key, (provider, file) in list(self._submissions.leftover.items()):
                self._delete_soon(key, provider, file)
            self._resume(submitted)
            self._nursery.start_soon(self._submit)
            await self._direct()
            self._deletions.cancel_scope.deadline = trio.current_time() + DELETION_SECONDS

    # --- the lines ---

    def _take(self, number: int, data: bytes, submitted: LineIds) -> None:
        item = self._calls.read(number, data)
        if item is None:
            return
        position = self._spool.add(number, data)
        target = self._targets.of(item)
        if item.id in submitted:
            submitted[item.id] = position
            return
        answer = self._submissions.windows.get(item.id)
        if answer is not None and answer.way in WINDOW_WAYS:
            self._moved[answer.way].add([position])
        elif self._via == LIVE or target is None:
            self._moved[LIVE].add([position])
        else:
            self._pool.add([position])

    def _refuse_way(self, reason: str) -> None:
        """Note that lines go live because a way is closed; with a fixed way, this ends the batch."""
        if self._via in (BATCH, WINDOW):
            self._calls.fail(f"{reason} (--via {self._via})")
        elif self._via is None:
            self._note(f"{reason}: its lines go live")

    def _note(self, text: str) -> None:
        self._calls.counters.notes += [] if text in self._calls.counters.notes else [text]

    def _item(self, position: int) -> Item:
        return self._calls.parse(*self._spool.line(position))

    # --- the plan ---

    def _make_planner(self) -> Planner:
        ways = self._targets.ways() if self._via != LIVE else []
        if self._via == WINDOW and self._targets.known:
            windows = [way for way in ways if way.name in WINDOW_WAYS]
            if not windows:
                self._calls.fail("only OpenAI's Responses have windows (--via window)")
            ways = fitting_window(windows, self._deadline)
        elif self._via == BATCH:
            ways = [way for way in ways if way.name == BATCH]
        if self._via is None or not ways:
            ways.append(Way(LIVE, 1.0))
        return Planner(ways, self._deadline, rate=self._concurrency / ANSWER_SECONDS, tail=TAIL_SECONDS)

    async def _direct(self) -> None:
        """Decide what goes which way, whenever something has changed, until all is done."""
        while not self._is_done():
            self._changed = trio.Event()
            if self._unsynced:  # once for all tokens that came since the last time
                self._unsynced = False
                with self._failures("the tokens of windows cannot be written"):
                    self._submissions.sync()
            now = trio.current_time()
            is_full = self._running() >= self._concurrency or len(self._moved[LIVE]) > 0 or self._wanted[LIVE] > 0
            rate = self._live_rate.measure(now, is_full=is_full)
            if rate is not None:
                self._planner.observe_live(rate, self._live_rate.longest)
            under_way = (*self._drafts.values(), *self._jobs.values())
            drafted = sum(len(draft.positions) for draft in self._drafts.values())
            behind = sum(len(job.behind) for job in under_way)
            decision = self._planner.decide(
                now,
                unsent=len(self._pool) + drafted + behind,
                live=self._running() + len(self._moved[LIVE]),
                under_way=self._under_way(),
            )
            for key, way in decision.move.items():
                if key in self._jobs:
                    self._jobs[key].move(way)
                else:
                    self._leave_window(key)
            if behind and (BATCH not in decision.send or not self._planner.has_time_for_two(BATCH, now)):
                behind = 0
                for job in under_way:
                    self._let_go(job)
            self._wanted[BATCH] = max(0, decision.send.get(BATCH, 0) - drafted - behind)
            self._wanted[LIVE] = decision.send.get(LIVE, 0)
            for way in WINDOW_WAYS:
                count = min(decision.send.get(way, 0), len(self._pool), self._room(way))
                self._moved[way].add([self._pool.take() for _ in range(count)])
            self._count()
            self._wake()
            if self._jobs:
                await trio.sleep(SHORTEST_LOOK)
            with trio.move_on_at(min(decision.look, now + LONGEST_LOOK)):
                await self._changed.wait()

    def _count(self) -> None:
        self._calls.counters.submissions = len(self._jobs)
        self._calls.counters.submitted = sum(job.left for job in self._jobs.values())

    def _is_done(self) -> bool:
        waiting = len(self._pool) or any(map(len, self._moved.values())) or self._drafts or self._jobs
        return not waiting and not self._running() and not self._in_windows and not self._paused

    def _running(self) -> int:
        """Return the number of calls that run live."""
        return self._calls.counters.running - len(self._in_windows)

    def _wake(self) -> None:
        """Let the tasks look at the lines that wait for them."""
        self._decided.set()
        self._decided = trio.Event()

    def _ended(self, item: Item, completion: Completion) -> None:
        """Take the end of a call: record it, unless its line goes another way."""
        self._changed.set()
        self._submitting.waits_for_budget = False
        window = self._in_windows.pop(item.id, None)
        if window is None:
            self._live_rate.add(completion.timings.finished or 0.0)
        elif self._goes_on(window, item, completion):
            return
        way, price = (LIVE, 1.0) if window is None else (window.way, WINDOW_WAYS[window.way].price)
        if self._calls.record(item, completion, way, price) and has_ended(completion.error):
            self._submissions.forget(item.id)

    def _under_way(self) -> list[UnderWay]:
        jobs = [
            UnderWay(job.submission.key, BATCH, job.left, job.since, stopping=bool(job.to))
            for job in self._jobs.values()
            if job.is_known and self._via in (None, BATCH)
        ]
        for way in self._planner.names & WINDOW_WAYS.keys():
            since = [window.since for window in self._in_windows.values() if window.way == way]
            if since:
                jobs.append(UnderWay(way, way, len(since), min(since)))
        return jobs

    # --- live calls, and those in windows ---

    async def _feed(self) -> None:
        """Start the lines that go live or into a window, one after the other, as there are places for them."""
        while True:
            way = next((way for way, pool in self._moved.items() if way != LIVE and len(pool)), LIVE)
            if len(self._moved[way]):
                position = self._moved[way].take()
            elif self._wanted[LIVE] > 0 and len(self._pool):
                self._wanted[LIVE] -= 1
                position = self._pool.take()
            else:
                await self._decided.wait()
                continue
            item = self._item(position)
            begin = None if way == LIVE else partial(self._begin_in_window, item, way, position)
            try:
                await self._calls.start(item, begin, self._ended)
            except ManystreamError as error:
                self._calls.fail(str(error))

    def _begin_in_window(self, item: Item, way: str, position: int, on_completion: OnCompletion) -> Call:
        """Start the call of a line; or read its answer, if an earlier run has created it. Raises as the engine does."""
        item.request = replace(item.request, durable=Durable(WINDOW_WAYS[way].name))
        answer, since, holding = self._submissions.windows.get(item.id), trio.current_time(), None
        if answer is not None:  # its call reserves nothing
            since -= max(0.0, time.time() - answer.at)
            with suppress(InvalidRequestError):
                need = self._engine.prepare(item.request)
                found = self._engine.reserve(item.request, *need, 1.0)  # the request names its window
                holding = found if isinstance(found, Reservation) else None
        self._in_windows[item.id] = InWindow(way, position, since, holding)
        try:
            if answer is not None:
                return self._engine.read_again(answer.token, on_completion, item.request)
            call = self._calls.engine.start_request(item.request, on_completion)
        except BaseException:
            if self._in_windows.pop(item.id, None) is not None:
                self._settle(holding, 0.0)
            self._changed.set()
            raise
        when_named(call, partial(self._named, item.id, way))
        return call

    def _named(self, id: LineId, way: str, token: str) -> None:
        with self._failures(""):
            self._submissions.note(token, "named", line=id, way=way, at=time.time())
        self._unsynced = True
        self._changed.set()

    def _leave_window(self, way: str) -> None:
        for id, window in list(self._in_windows.items()):
            if window.way == way:
                window.moved = True
                self._calls.cancel(id)

    def _goes_on(self, window: InWindow, item: Item, completion: Completion) -> bool:
        """Take the end of a call in a window. Returns whether its line goes on: another way, or to be read again.

        A completion of an answer that an earlier run has created gets what that run would have known of it.
        """
        seconds, error = trio.current_time() - window.since, completion.error
        answer = self._submissions.windows.get(item.id)
        earlier = answer is not None and answer.earlier
        if answer is not None and earlier:
            token = read_token(answer.token)
            if self._engine.has_traffic:
                name_target(completion, f"{token.provider}/{token.model}", seconds)
            completion.timings.finished = seconds
            provider, price = self._engine.provider_named(token.provider), WINDOW_WAYS[window.way].price
            completion.cost = dollars(self._engine, provider, token.model, completion, price)
        self._settle(window.holding, completion.cost or 0.0)
        if answer is not None and answer.failures < most_failures(error):
            answer.failures += 1
            answer.earlier = True
            self._paused += 1
            self._nursery.start_soon(self._read_again, window, FIRST_PAUSE * 2 ** (answer.failures - 1))
            return True
        if error is not None and earlier and has_ended(error):  # it has failed, or the server does not have it any more
            self._pool.give_back([window.position])
        elif error is not None and error.category is ErrorCategory.CANCELLED and window.moved:
            self._moved[LIVE].add([window.position])
        else:
            self._planner.observe(window.way, seconds)
            return False
        self._submissions.forget(item.id)
        return True

    async def _read_again(self, window: InWindow, pause: float) -> None:
        """Read an answer again after a pause, as a later run does: a proxy may have answered in the server's place."""
        await trio.sleep(pause)
        self._paused -= 1
        self._moved[window.way].add([window.position])
        self._wake()

    # --- new batches ---

    async def _submit(self) -> None:
        """Make batches of the lines that are to go this way."""
        while True:
            now = trio.current_time()
            ready = not self._submitting.is_blocked and not self._submitting.waits_for_budget
            if ready and self._wanted[BATCH] > 0 and len(self._pool):
                with self._failures("a batch cannot be created"):
                    await self._submit_some()
                self._changed.set()
                continue
            until = self._submitting.blocked_until
            with trio.move_on_at(until if until > now else math.inf):
                await self._decided.wait()

    async def _submit_some(self) -> None:
        drafts, count = self._drafts, 0
        while self._wanted[BATCH] > 0 and len(self._pool) and not self._submitting.is_blocked:
            if self._submitting.waits_for_budget:
                break
            self._wanted[BATCH] -= 1
            name = self._draft(self._pool.take())
            count += 1
            if count % STEP == 0:
                await trio.lowlevel.checkpoint()
            if name is not None and drafts[name].is_full:
                await self._create(drafts.pop(name))
            elif count % STEP == 0 and sum(draft.size for draft in drafts.values()) > MOST_BYTES:
                await self._create(drafts.pop(max(drafts, key=lambda name: drafts[name].size)))
        for name in list(drafts):
            await self._create(drafts.pop(name))

    def _draft(self, position: int) -> _Name | None:
        """Add a line to the draft that fits it, and return the draft's name. Returns None for a line that goes live, or
        waits for the budget."""
        item = self._item(position)
        target = self._targets.of(item)
        found = self._grouped(item, target) if target is not None else None
        if target is None or found is None:
            self._moved[LIVE].add([position])
            return None
        prepared, wire, group = found
        generation = self._generations.get(position, 0)
        beginnings = self._beginnings.of(prepared, wire)
        if beginnings and not self._planner.has_time_for_two(BATCH, trio.current_time()):
            beginnings = []
        writer = self._beginnings.writer(beginnings)
        if writer is not None and (writer.submission.key in self._jobs or writer in self._drafts.values()):
            writer.behind.append(position)
            return None
        holding = self._engine.reserve(item.request, prepared, wire, target.interface.terms.price)
        if isinstance(holding, bool):
            if not holding and (self._jobs or self._drafts or self._running()):
                self._pool.give_back([position])
                self._submitting.waits_for_budget = True  # until something ends that has reserved more than it used
            else:
                self._moved[LIVE].add([position])  # where the budget does not allow it either, and that is counted
            return None
        provider = target.provider
        name = provider.name, group, generation, not self._beginnings.are_written(beginnings)
        draft = self._drafts.get(name)
        if draft is None:
            where = provider.name, provider.profile.name, shown_url(provider)
            submission = Submission(secrets.token_hex(8), *where, group, generation)
            draft = self._drafts[name] = ProviderBatch(submission, self._submissions, target)
        self._beginnings.write(beginnings, draft)
        place = len(draft.positions)
        if holding is not None:
            draft.holdings[place] = holding
        line = target.interface.line(f"{draft.submission.key}-{place}", wire.body, group)
        draft.add(position, item.id, line)
        return name

    def _let_go(self, job: ProviderBatch) -> None:
        """Send the lines that have waited for a batch."""
        self._pool.give_back(job.behind)
        del job.behind[:]

    def _grouped(self, item: Item, target: Target) -> tuple[Prepared, WireRequest, BatchGroup] | None:
        """Return a line's live request and its group; None for a line that no batch takes."""
        try:
            prepared, wire = self._engine.prepare(item.request)
        except InvalidRequestError:
            return None  # the start of its call reports the reason
        group = target.interface.group(prepared.model, wire)
        return None if group is None or len(wire.body) > target.most_bytes // 2 else (prepared, wire, group)

    def _settle(self, holding: Reservation | None, dollars: float) -> None:
        """Replace what is reserved for a line by what it has cost."""
        self._submitting.waits_for_budget = False
        self._engine.settle(holding, dollars)

    async def _create(self, job: ProviderBatch) -> None:
        """Create a batch, unless its lines are to go another way by now."""
        if self._submitting.is_blocked:
            for holding in job.holdings.values():
                self._settle(holding, 0.0)
            self._let_go(job)
            self._pool.give_back(job.positions)
            self._beginnings.forget(job)
            return
        self._jobs[job.submission.key] = job
        try:
            created = await job.create(self._created)
        except ProviderError as error:
            if job.is_known:
                self._not_created(job, error)
            else:
                self._calls.fail(f"{_NO_LIST.format(job.submission.provider)}: {error.message}")
            return
        if not created:  # its lines go another way before it was created
            self._drop(job)
            self._move_on(job.positions, job.to)
            return
        self._submitting = Submitting(waits_for_budget=self._submitting.waits_for_budget)
        self._nursery.start_soon(self._follow, job)

    def _not_created(self, job: ProviderBatch, error: ProviderError) -> None:
        """Send the lines of a batch that the provider has refused another way, or later."""
        self._drop(job)
        target, status, positions = job.target, error.http_status, job.positions
        named = LINE_NAMED.search(error.message)
        limited, doubtful = error.category is ErrorCategory.RATE_LIMIT, status < 400 and not error.retryable
        waited = self._submitting.pause >= LONGEST_BLOCK and not self._jobs
        if status in NO_INTERFACE or (waited and (doubtful or (limited and not error.retryable))):
            target.closed = status in NO_INTERFACE
            model = job.submission.group.model
            self._refuse_way(f"{target.provider.name!r} takes no batch of {model!r} ({error.message})")
            self._moved[LIVE].add(positions)
        elif limited or status == 413:
            self._wait_for_room(target, len(positions), too_large=status == 413)
            self._pool.give_back(positions)
        elif error.retryable or doubtful:
            self._wait_for_room(target, 0)
            self._note(f"{target.provider.name!r} takes no batch now ({error.message})")
            self._pool.give_back(positions)
        elif named is not None and int(named[1]) < len(positions):
            self._send_on(job, [int(named[1])], f"the batch refused the line: {error.message}", more=0)
            positions.pop(int(named[1]))
            self._pool.give_back(positions)
        else:
            if self._via != BATCH:
                self._note(f"{target.provider.name!r} refused a batch ({error.message}): its lines go live")
            self._send_on(job, range(len(positions)), f"the batch was refused: {error.message}", more=0)
        self._changed.set()

    def _wait_for_room(self, target: Target, lines: int, *, too_large: bool = False) -> None:
        """Submit nothing for a while, or until a batch has ended.

        A batch that is refused again and again, although no other is under way, is made smaller.
        """
        if lines > 1 and (too_large or (self._submitting.pause > 2 * FIRST_BLOCK and not self._jobs)):
            target.most_lines = lines // 2
        if not too_large:
            self._submitting.block()

    def _drop(self, job: ProviderBatch) -> None:
        """End a batch that was not created."""
        self._submissions.note(job.submission.key, "dropped")
        self._close(job)

    def _close(self, job: ProviderBatch) -> None:
        self._submitting.waits_for_budget = False
        for holding in job.holdings.values():
            self._settle(holding, 0.0)
        del self._jobs[job.submission.key]
        self._let_go(job)
        self._count()
        if job.submission.file is not None:
            self._delete_soon(job.submission.key, job.submission.provider, job.submission.file)
        self._changed.set()

    # --- batches of earlier runs ---

    def _resume(self, submitted: LineIds) -> None:
        for submission in list(self._submissions.open.values()):
            target = self._targets.named(submission.provider)
            if target is None:
                self._calls.fail(
                    f"{submission.lines:,} lines are in a batch of {submission.provider!r}, which this run does"
                    " not use: give the options of the run before"
                )
                return
            job = ProviderBatch(submission, self._submissions, target)
            job.positions.extend(submitted[id] for id in self._submissions.ids(submission))
            job.handled = bytearray(len(job.positions))
            job.since = trio.current_time() - max(0.0, time.time() - submission.at)
            job.to = LIVE if submission.cancelled else ""
            job.is_known = submission.batch is not None
            self._jobs[submission.key] = job
            self._nursery.start_soon(self._follow if job.is_known else self._recover, job)

    async def _recover(self, job: ProviderBatch) -> None:
        """Find out whether a batch was created before its run was killed."""
        submission, interface = job.submission, job.target.interface
        with self._failures(_NO_LIST.format(submission.provider)):
            found: BatchState | None = None
            if submission.sent:
                left = min(max(0.0, submission.at + SETTLED - time.time()), SETTLED)
                found = await job.settle(self._created, left)
            elif interface.files is not None and submission.file is None:
                submission.file = await job.find_file()
            if found is None:
                self._drop(job)
                self._pool.give_back(_there(job.positions))
                self._changed.set()
                return
            self._submissions.note(submission.key, "submitted", batch=found.id)
            job.is_known = True
            await self._follow(job)

    def _created(self) -> set[str | None]:
        """Return the provider's ids of the batches that are known."""
        return {job.submission.batch for job in self._jobs.values()}

    # --- the end of a batch ---

    async def _follow(self, job: ProviderBatch) -> None:
        """Follow a batch to its end, and take its results."""
        with self._failures(f"the batch {job.submission.batch!r} of {job.submission.provider!r} cannot be read"):
            await self._take_results(job, await job.follow(lambda: self._changed.set()))

    @contextmanager
    def _failures(self, what: str) -> Generator[None, None, None]:
        """End the batch with the reason if a task fails. What is under way goes on, and the next run takes it."""
        try:
            yield
        except ProviderError as error:
            self._calls.fail(f"{what}: {error.message}")
        except InvalidRequestError as error:
            self._calls.fail(str(error))
        except OSError as error:
            self._calls.fail(f"cannot write {self._submissions.path}: {error.strerror}")

    async def _take_results(self, job: ProviderBatch, state: BatchState) -> None:
        """Record the results of a batch that has ended, and send what has none another way."""
        unreadable = await job.read_results(state, partial(self._record, job))
        await trio.lowlevel.checkpoint()  # it ends here if the last result could not be written
        self._submissions.note(job.submission.key, "taken")
        left = job.unhandled()
        if len(left) < len(job.positions) and not job.to:
            self._planner.observe(BATCH, trio.current_time() - job.since)
        self._submitting.blocked_until = -math.inf
        self._close(job)
        if unreadable:
            self._fail_lines(job, left, f"the results of the batch cannot be read: {unreadable}")
        elif state.is_full:
            self._wait_for_room(job.target, len(job.positions))
            self._pool.give_back(_there(job.positions[index] for index in left))
        elif state.problem:
            self._note(f"a batch of {job.submission.provider!r} failed: {state.problem}")
            bad = {line - 1 for line in state.bad_lines}
            named = [index for index in left if index in bad]
            self._send_on(job, named, f"the batch refused the line: {state.problem}", more=0)
            others, more = [index for index in left if index not in bad], MOST_GENERATIONS if named else 1
            self._send_on(job, others, f"the batch failed: {state.problem}", more=more)
        else:
            reason = f"{MOST_GENERATIONS} batches, one after the other, did not answer the line"
            self._send_on(job, left, reason, more=MOST_GENERATIONS - 1 if self._via == BATCH else 0)

    def _record(self, job: ProviderBatch, index: int, result: BatchResult) -> None:
        """Record a result. Its line goes on instead if it was refused for a reason that passes: see `_send_on`."""
        if job.handled[index] == RECORDED:
            return
        if job.positions[index] == NOWHERE:
            job.handled[index] = RECORDED
            return
        item = self._item(job.positions[index])
        completion = self._engine.completion_of(item.request, result.status, result.body)
        part = job.target.interface.terms.price
        completion.cost = dollars(self._engine, job.target.provider, job.submission.group.model, completion, part)
        last = self._via == BATCH and job.submission.generation >= MOST_GENERATIONS - 1
        if completion.error is not None and completion.error.retryable and not last:
            if job.handled[index] != REFUSED:
                self._calls.count_unrecorded(item, completion)  # an answer that broke was paid, too
            job.handled[index] = REFUSED
        else:
            job.handled[index] = RECORDED
            seconds = trio.current_time() - job.since
            completion.timings = Timings(finished=seconds)
            completion.request_id = completion.request_id or result.request_id
            name_target(completion, f"{job.submission.provider}/{job.submission.group.model}", seconds)
            self._calls.record(item, completion, BATCH, part)
        self._settle(job.holdings.pop(index, None), completion.cost or 0.0)

    def _send_on(self, job: ProviderBatch, left: Iterable[int], reason: str, *, more: int) -> None:
        """Send lines that a batch did not answer on their next way: into another batch, as long as they were in so many
        at the most; else live. Where all lines go into batches, they fail with the reason."""
        left = [index for index in left if job.positions[index] != NOWHERE]
        positions = [job.positions[index] for index in left]
        if job.to or (self._via != BATCH and job.submission.generation >= more):
            self._move_on(positions, job.to or LIVE)
        elif job.submission.generation < more:
            self._generations.update(dict.fromkeys(positions, job.submission.generation + 1))
            self._pool.give_back(positions)
        else:
            self._fail_lines(job, left, reason)
        self._changed.set()

    def _move_on(self, positions: Sequence[int], way: str) -> None:
        """Send lines a way next, as many as have room there. The plan decides about the others."""
        room = self._room(way)
        self._moved[way].add(positions[:room])
        self._pool.give_back(positions[room:])

    def _room(self, way: str) -> int:
        """Return how many further lines may go this way."""
        in_windows = len(self._in_windows) + sum(len(self._moved[each]) for each in WINDOW_WAYS)
        return max(0, MOST_IN_WINDOWS - in_windows) if way in WINDOW_WAYS else sys.maxsize

    def _fail_lines(self, job: ProviderBatch, left: Iterable[int], reason: str) -> None:
        for position in _there(job.positions[index] for index in left):
            error = ProviderError(reason, category=ErrorCategory.SERVER)
            self._calls.record(self._item(position), Completion(False, error=error, attempts=1), BATCH, 1.0)

    # --- files ---

    def _delete_soon(self, key: str, provider: str, file: str) -> None:
        target = self._targets.named(provider)
        if target is not None:
            self._deletions.start_soon(self._delete, key, target, file)

    async def _delete(self, key: str, target: Target, file: str) -> None:
        """Delete an uploaded file. One that is gone already is no error."""
        assert target.interface.files is not None, "it was uploaded"
        with self._failures(""):
            try:
                delete = target.interface.delete_file(target.interface.files, file)
                await target.repeat(partial(target.send, delete), final=GONE)
            except ProviderError as error:
                if error.http_status not in GONE:
                    self._note(f"the file {file!r} could not be deleted at {target.provider.name!r}: {error.message}")
                    return
            self._submissions.note(key, "deleted")


def fitting_window(windows: list[Way], deadline: float | None) -> list[Way]:
    """Return the cheapest window that ends before the deadline, else the shortest; none of none."""
    left = math.inf if deadline is None else deadline - trio.current_time()
    fitting = [way for way in windows if way.prior[-1][1] <= left]
    if fitting:
        return [min(fitting, key=lambda way: way.price)]
    return [max(windows, key=lambda way: way.price)] if windows else []


def name_target(completion: Completion, target: str, seconds: float) -> None:
    """Give a completion what a call would have had, where no call of this run got the answer."""
    outcome = OK if completion.success else "error"
    completion.attempt_records = (AttemptRecord(target, 0.0, seconds, outcome),)


def _there(positions: Iterable[int]) -> list[int]:
    """Return the positions of lines that the input still has."""
    return [position for position in positions if position != NOWHERE]


def most_failures(error: ProviderError | None) -> int:
    """Return how often in a row the answer of a window may fail in this way before the error is believed."""
    if error is None or error.category is ErrorCategory.CANCELLED:
        return 0
    if error.category is ErrorCategory.AUTH:
        return REFUSALS
    return 0 if has_ended(error) and error.http_status not in GONE else ATTEMPTS


def has_ended(error: ProviderError | None) -> bool:
    """Return whether a server makes the answer of a window no more. Without an error it is complete."""
    if error is None or error.http_status in GONE:
        return True
    cut = error.category in (ErrorCategory.NETWORK, ErrorCategory.TIMEOUT)
    return 200 <= error.http_status < 300 and not cut
