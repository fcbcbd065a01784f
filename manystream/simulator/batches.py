"""The batches of the batch interfaces: how far each has come, and what goes wrong with it.

How far a batch has come is a function of the time: nothing runs before a client asks. Then the lines whose answers are
due get them: a few at once, and the rest from the server's loop. The answer to a line is the one that the same request
gets live.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TypeAlias, TypeVar

from ..http_server import HTTPRequest
from .json_text import JSON, JSONObject, dumps, raw_json
from .knobs import HEADER, KnobError, read_options, readers_of
from .limiter import Usage

DAY = 86_400.0
HALF = 0.5
"""A batch waits for this part of its time before its first line is answered."""

LONGEST_STEP = 60.0
"""Validating, finalizing and cancelling take a twentieth of the batch's time each, at most so many seconds."""

LINES_AT_ONCE = 128
"""A request to a batch interface waits for the answers to at most so many lines of a batch."""

LINES_BETWEEN = 16
"""The server's loop answers so many lines of a batch between two iterations."""

_NINE_OF_TEN = NormalDist().inv_cdf(0.9)


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchTime:
    """How long the batches of the batch interfaces take. A number alone is the median.

    median: seconds from the creation of a batch to its end; `inf` never ends.
    p90: seconds within which nine of ten batches end: the times are spread log-normally; 0: all take the median.
    expires: seconds after which a batch ends with the answers that it has.
    errors: the part of the lines that fail with a server error, from 0 to 1.
    fails: the part of the batches that fail as a whole, from 0 to 1.
    queue: lines that one key may have in batches that have not ended.
    seed: varies the times, the failures and the order of the answers.
    """

    median: float = 0.0
    p90: float = 0.0
    expires: float = DAY
    errors: float = 0.0
    fails: float = 0.0
    queue: float = math.inf
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.median >= 0 or not self.expires > 0 or not self.queue >= 0:
            raise KnobError("batch-time: median, expires and queue are numbers from 0")
        if self.p90 and not 0 < self.median <= self.p90 < math.inf:
            raise KnobError("batch-time: p90 is a number above the median, and the median one above 0")
        if not 0 <= self.errors <= 1 or not 0 <= self.fails <= 1:
            raise KnobError("batch-time: errors and fails are numbers from 0 to 1")

    def draw(self, source: random.Random) -> float:
        """The seconds that one batch takes."""
        if not self.p90:
            return self.median
        return self.median * math.exp(math.log(self.p90 / self.median) * source.gauss(0.0, 1.0) / _NINE_OF_TEN)


def read_batch_time(text: str) -> BatchTime:
    """The time of batches from text: `420`, or `median=420 p90=3600 errors=0.01`. Raises `KnobError`."""
    options = read_options("batch-time", text, readers_of(BatchTime), usual="median")
    return BatchTime(**dict(options))  # type: ignore[arg-type]


Answer: TypeAlias = Callable[[HTTPRequest], tuple[int, bytes, Usage | None]]
"""Answers the request of one line: the status, the body and the tokens of the live response."""


@dataclass(slots=True)
class Line:
    """One request of a batch. id: what the client names it. status: that of its answer; 0 while it has none."""

    id: str
    request: HTTPRequest
    metadata: JSONObject | None = None
    status: int = 0
    body: bytes = b""
    usage: Usage | None = None

    @property
    def failed(self) -> bool:
        """Whether its answer is an error."""
        return self.status >= 400


@dataclass(slots=True, kw_only=True, eq=False)
class StoredFile:
    """One uploaded or written file. members: what its interface shows of it beside the bytes."""

    id: str
    key: str
    created: float
    members: JSONObject
    data: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One batch.

    key: the API key that made it, which alone may see it.
    begun, created: when it was created, on the monotonic clock and in Unix time.
    members: what its interface keeps of the request.
    lines, order: its lines, and the same in the order of their answers.
    takes, expires: seconds from its creation to its end, and to the end that it has at the latest.
    errors: why it fails as a whole; empty if it does not.
    cancelled: seconds from its creation to the request to cancel it; `inf` without one.
    count, failed: how many lines have their answer, and how many of these are errors.
    times: the phases so far, the present one last, and since when, in seconds from the creation: `validating`,
        `in_progress`, `finalizing` or `cancelling`, and `completed`, `expired`, `cancelled` or `failed`.
    ended: whether the present phase is the last.
    """

    id: str
    key: str
    begun: float
    created: float
    members: JSONObject
    lines: list[Line]
    order: list[Line]
    takes: float
    expires: float
    errors: list[JSONObject]
    cancelled: float = math.inf
    count: int = 0
    failed: int = 0
    times: dict[str, float] = field(default_factory=dict[str, float])
    ended: bool = False

    @property
    def phase(self) -> str:
        return [*self.times][-1]

    @property
    def since(self) -> float:
        """When the present phase began, in Unix time."""
        return self.created + self.times[self.phase]

    def advance(self, now: float, answer: Answer, most: int) -> bool:
        """Answer the lines that are due, at most so many, and note the phases. Returns whether more lines are due."""
        step, since = min(self.takes / 20, LONGEST_STEP), now - self.begun
        ends = {"completed": self.takes, "expired": self.expires, "cancelled": self.cancelled + step}
        last = "failed" if self.errors else min(ends, key=ends.__getitem__)
        end, due, phases = ends.get(last, step), 0, {"validating": 0.0}
        if last != "failed":
            due = self._due(min(since, end), step) if since > 0 else 0
            phases["in_progress"] = step
            if self.cancelled < math.inf:
                phases["cancelling"] = self.cancelled
            elif last == "completed":
                phases["finalizing"] = end - step
        for line in self.order[self.count : min(due, self.count + most)]:
            line.status, line.body, line.usage = answer(line.request)
            self.count += 1
            self.failed += line.failed
        if self.count == due:  # it does not end before its last answer
            phases[last] = end
        begun = ("validating", "cancelling")  # by a request: such a phase is there at once
        self.times = {phase: at for phase, at in phases.items() if at < since or (at <= since and phase in begun)}
        self.ended = self.phase == last
        return self.count < due

    def _due(self, since: float, step: float) -> int:
        """How many lines have their answer so many seconds after the creation."""
        lines, wait = len(self.lines), self.takes * HALF
        if since >= self.takes:
            return lines
        return min(lines, int(lines * (since - wait) / (self.takes - wait - step))) if since > wait else 0


Item: TypeAlias = Job | StoredFile
Kept = TypeVar("Kept", bound=Job | StoredFile)


class JobStore:
    """The batches and the files of all keys.

    answer: answers the request of one line.
    clock, wall: the time in seconds, monotonic and Unix.
    items: interface, API key and id → batch or file, oldest first. Only this key may see it.
    behind: the batches that a client has asked for and that have more lines to answer.
    """

    def __init__(self, time: BatchTime, answer: Answer, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._time = time
        self._answer = answer
        self._clock = clock
        self._source = random.Random(time.seed)
        self._created = 0
        self.wall: Callable[[], float] = wall
        self.items: dict[tuple[str, str, str], Item] = {}
        self.behind: set[Job] = set()

    def new_id(self) -> str:
        """Hexadecimal digits that no other id has."""
        self._created += 1
        return hashlib.blake2b(f"{self.wall()}/{self._created}".encode(), digest_size=16).hexdigest()

    def new_file(self, id: str, key: str, data: bytes, **members: JSON) -> StoredFile:
        return StoredFile(id=id, key=key, created=self.wall(), members=members, data=data)

    def new_job(self, id: str, key: str, lines: list[Line], errors: list[JSONObject], **members: JSON) -> Job:
        """A batch that is made now. errors: why it cannot be run; empty if it can."""
        source, time = self._source, self._time
        takes, fails = time.draw(source), source.random() < time.fails
        for line in lines:
            if source.random() < time.errors:
                line.request.headers = {**line.request.headers, HEADER: "fail=500"}
        if fails and not errors:
            errors = [{"code": "server_error", "message": "The batch failed.", "param": None, "line": None}]
        return Job(
            id=id, key=key, begun=self._clock(), created=self.wall(), members=members, lines=lines,
            order=source.sample(lines, len(lines)), takes=takes, expires=time.expires, errors=errors,
        )  # fmt: skip

    def is_full_for(self, job: Job) -> bool:
        """Whether a key may not have the lines of a batch beside those of its batches that have not ended."""
        jobs = [self.advanced(item) for item in self.items.values() if item.key == job.key]
        waiting = sum(len(one.lines) for one in jobs if isinstance(one, Job) and not one.ended)
        return waiting + len(job.lines) > self._time.queue

    def cancel(self, job: Job) -> None:
        """Begin to cancel a batch, unless that has begun."""
        job.cancelled = min(job.cancelled, self._clock() - job.begun)
        self.advanced(job)

    def advanced(self, item: Kept, most: int = LINES_AT_ONCE) -> Kept:
        if isinstance(item, Job) and item.advance(self._clock(), self._answer, most):
            self.behind.add(item)
        return item

    def work(self) -> None:
        """Answer a few more lines of a batch that is behind."""
        self.advanced(self.behind.pop(), LINES_BETWEEN)

    def page(self) -> bytes:
        """All batches and their lines as JSON, oldest first, and the number of files: what was submitted, answered and
        charged. An error is not charged."""
        batches: list[dict[str, object]] = []
        for (service, _, _), job in self.items.items():
            if isinstance(job, Job):
                self.advanced(job, len(job.lines))
                lines = [
                    {"id": line.id, "body": raw_json(line.request.body), "answered": bool(line.status),
                     "charged": 0 < line.status < 400}
                    for line in job.lines
                ]  # fmt: skip
                batches.append({"id": job.id, "interface": service, "phase": job.phase, "lines": lines, **job.members})
        return dumps({"batches": batches, "files": len(self.items) - len(batches)})
