"""The batches and files of the batch interfaces: how long batches take, and what goes wrong with them.

How far a batch has come is a function of the time: nothing runs while nobody asks. The answer to a line is the one that
the same request gets live. The modules `…_batches` read requests and write objects in the form of their service.
"""

from __future__ import annotations

import abc
import datetime
import hashlib
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import NormalDist
from typing import TypeAlias, TypeVar

from ..http_server import HTTPRequest
from .json_text import JSON, JSONObject, dumps, raw_json
from .knobs import HEADER, KnobError
from .limiter import Usage
from .prompt import APIError
from .wire import Wire

DAY = 86_400.0
HALF = 0.5
"""A batch waits for this part of its time before its first line is answered."""

LONGEST_STEP = 60.0
"""Validating, finalizing and cancelling take a twentieth of the batch's time each, at most so many seconds."""

_SEPARATORS = re.compile(r"[,\s]+")
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


_NAMES = tuple(field.name for field in fields(BatchTime))


def read_batch_time(text: str) -> BatchTime:
    """The time of batches from text: `420`, or `median=420 p90=3600 errors=0.01`. Raises `KnobError`."""
    found: dict[str, float] = {}
    for pair in filter(None, _SEPARATORS.split(text.strip())):
        name, equals, value = pair.partition("=")
        if not equals:
            name, value = "median", pair
        if name not in _NAMES:
            raise KnobError(f"batch-time: {pair!r} is not an option; write seconds, or name=value with a name of: "
                            + ", ".join(_NAMES))  # fmt: skip
        try:
            found[name] = int(value) if name == "seed" else float(value)
        except ValueError:
            raise KnobError(f"batch-time: {name}={value!r}: {name} is a number") from None
    return BatchTime(**found)  # type: ignore[arg-type]  # seed is an int


@dataclass(slots=True)
class Answered:
    """The answer to one line: the status and the body that the live request gets."""

    status: int
    body: bytes
    usage: Usage | None = None

    @property
    def is_error(self) -> bool:
        return self.status >= 400


Answer: TypeAlias = Callable[[HTTPRequest], Answered]
"""Answers the request of one line."""


@dataclass(slots=True)
class Line:
    """One request of a batch. id: what the client names it. metadata: what its answer carries along (Gemini).

    answered: None while it has no answer.
    """

    id: str
    request: HTTPRequest
    metadata: JSONObject | None = None
    answered: Answered | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One batch.

    service: the interface that it was created at.
    key: the API key that made it, which alone may see it.
    order: the numbers of the lines in the order of their answers.
    begun, created: when it was created, on the monotonic clock and in Unix time.
    takes, expires: seconds from its creation to its end, and to the end that it has at the latest.
    errors: why it fails as a whole; None if it does not.
    members: what the interface keeps of the request.
    cancelled: seconds from its creation to the request to cancel it.
    count: how many lines have their answer.
    """

    id: str
    service: str
    key: str
    lines: list[Line]
    order: list[int]
    begun: float
    created: float
    takes: float
    expires: float
    errors: list[JSONObject] | None = None
    members: JSONObject = field(default_factory=dict[str, JSON])
    cancelled: float | None = None
    count: int = 0

    @property
    def step(self) -> float:
        """The seconds of validating, finalizing and cancelling."""
        return min(self.takes / 20, LONGEST_STEP)

    @property
    def end(self) -> tuple[float, str]:
        """The seconds from its creation to its end, and its last phase."""
        if self.errors is not None:
            return self.step, "failed"
        ends = [(self.takes, "completed"), (self.expires, "expired")]
        if self.cancelled is not None:
            ends.append((self.cancelled + self.step, "cancelled"))
        return min(ends, key=lambda end: end[0])

    def times(self, now: float) -> dict[str, float]:
        """The phases so far, the present one last, and since when, in seconds from the creation: `validating`,
        `in_progress`, `finalizing` or `cancelling`, and `completed`, `expired`, `cancelled` or `failed`."""
        end, last = self.end
        phases = {"validating": 0.0}
        if last != "failed":
            phases["in_progress"] = self.step
            if self.cancelled is not None:
                phases["cancelling"] = self.cancelled
            elif last == "completed":
                phases["finalizing"] = end - self.step
        phases[last] = end
        since = now - self.begun
        return {phase: at for phase, at in phases.items() if at < since or phase == "validating"}

    def phase(self, now: float) -> str:
        """The present phase. At the moment of its creation, a batch is always `validating`."""
        return [*self.times(now)][-1]

    def has_ended(self, now: float) -> bool:
        """Whether it has reached its last phase."""
        return self.phase(now) == self.end[1]

    def left(self) -> list[Line]:
        """The lines that have no answer."""
        return [line for line in self.lines if line.answered is None]

    def work(self, now: float, answer: Answer) -> list[Line]:
        """Answer the lines whose answer was due. Returns all that are answered, in the order of their answers."""
        end, last = self.end
        since = min(now - self.begun, end)
        due = 0
        if last != "failed" and since > self.takes * HALF:
            span = self.takes * (1 - HALF) - self.step
            share = (since - self.takes * HALF) / span if span else 1.0
            due = len(self.lines) if since >= self.takes else min(len(self.lines), int(len(self.lines) * share))
        elif last != "failed" and not self.takes and now > self.begun:
            due = len(self.lines)
        while self.count < due:
            line = self.lines[self.order[self.count]]
            line.answered = answer(line.request)
            self.count += 1
        return [self.lines[number] for number in self.order[: self.count]]


@dataclass(slots=True, eq=False)
class StoredFile:
    """One uploaded or written file. members: what the interface keeps of it."""

    id: str
    key: str
    created: float
    data: bytes
    members: JSONObject


Kept = TypeVar("Kept", Job, StoredFile)


@dataclass(slots=True)
class Reply:
    """The response of a batch interface."""

    body: bytes
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=lambda: [("content-type", "application/json")])


def time_text(seconds: float) -> str:
    """A Unix time as RFC 3339 writes it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")


def json_reply(value: object, status: int = 200) -> Reply:
    """A response with a JSON value."""
    return Reply(dumps(value), status)


class JobStore:
    """The batches and the files of all keys. answer: answers the request of one line.

    now, wall: the present time, monotonic and Unix; set before each use.
    """

    def __init__(self, time: BatchTime, answer: Answer) -> None:
        self.time: BatchTime = time
        self.now: float = 0.0
        self.wall: float = 0.0
        self.files: dict[str, StoredFile] = {}
        self._jobs: dict[str, Job] = {}
        self._answer = answer
        self._source = random.Random(time.seed)
        self._created = 0

    def new_id(self, digits: int = 24) -> str:
        """Hexadecimal digits that no other id has."""
        self._created += 1
        return hashlib.blake2b(f"{self.wall}/{self._created}".encode()).hexdigest()[:digits]

    def create(
        self, service: str, id: str, key: str, lines: list[Line], errors: list[JSONObject], members: JSONObject
    ) -> Job:
        """Create a batch. errors: why it cannot be run; empty if it can."""
        source = self._source
        takes, fails = self.time.draw(source), source.random() < self.time.fails
        for line in lines:
            if source.random() < self.time.errors:
                line.request.headers = {**line.request.headers, HEADER: "fail=500"}
        order = list(range(len(lines)))
        source.shuffle(order)
        if fails and not errors:
            errors = [
                {"code": "server_error", "message": "The batch could not be processed.", "param": None, "line": None}
            ]
        job = Job(
            id=id, service=service, key=key, lines=lines, order=order, begun=self.now, created=self.wall, takes=takes,
            expires=self.time.expires, errors=errors or None, members=members,
        )  # fmt: skip
        self._jobs[id] = job
        return job

    def is_full_for(self, key: str, lines: int) -> bool:
        """Whether a key may not have so many more lines in batches that have not ended."""
        if self.time.queue == math.inf:
            return False
        waiting = sum(len(job.lines) for job in self._jobs.values() if job.key == key and not job.has_ended(self.now))
        return waiting + lines > self.time.queue

    def jobs(self, service: str, key: str) -> list[Job]:
        """The batches of a key, newest first."""
        return [job for job in reversed(self._jobs.values()) if job.key == key and job.service == service]

    def find(self, service: str, id: str, key: str) -> Job | None:
        """The batch with an id, if this key made it."""
        job = self._jobs.get(id)
        return job if job is not None and job.key == key and job.service == service else None

    def forget(self, job: Job) -> None:
        """Forget a batch."""
        del self._jobs[job.id]

    def cancel(self, job: Job) -> None:
        """Begin to cancel a batch, unless that has begun."""
        if job.cancelled is None:
            job.cancelled = self.now - job.begun

    def answered(self, job: Job) -> list[Line]:
        """The lines of a batch that are answered by now, in the order of their answers."""
        return job.work(self.now, self._answer)

    def keep(self, id: str, key: str, data: bytes, members: JSONObject) -> StoredFile:
        """Keep a file."""
        file = self.files[id] = StoredFile(id, key, self.wall, data, members)
        return file

    def file(self, id: str, key: str) -> StoredFile | None:
        """The file with an id, if this key has it."""
        file = self.files.get(id)
        return file if file is not None and file.key == key else None

    def page(self) -> bytes:
        """All batches and their lines as JSON, oldest first, and the number of files: what was submitted, answered and
        charged. An error is not charged."""
        return dumps({"batches": [self._shown(job) for job in self._jobs.values()], "files": len(self.files)})

    def _shown(self, job: Job) -> dict[str, object]:
        self.answered(job)
        lines: list[dict[str, object]] = []
        for line in job.lines:
            charged = line.answered is not None and not line.answered.is_error
            body = raw_json(line.request.body)
            lines.append({"id": line.id, "body": body, "answered": line.answered is not None, "charged": charged})
        return {"id": job.id, "interface": job.service, "phase": job.phase(self.now), "lines": lines, **job.members}


class Batches:
    """One batch interface. wire: the dialect of its errors."""

    wire: Wire

    def __init__(self, store: JobStore) -> None:
        self._store = store

    @abc.abstractmethod
    def reply(self, request: HTTPRequest, key: str) -> Reply:
        """The response to a request. key: the API key. Raises `APIError`."""


def page_of(
    items: Sequence[Kept], query: Mapping[str, str], names: str = "after limit", *, usual: int = 20, most: int = 100
) -> tuple[list[Kept], bool]:
    """The items of one page, and whether more follow. names: the members of the query that have the id of the last item
    of the page before, and the size. Raises `APIError`."""
    after, limit = (query.get(name, "") for name in names.split())
    size = int(limit) if limit.isdecimal() and len(limit) < 6 else 0
    if limit and not 1 <= size <= most:
        raise APIError(400, f"limit: must be a number from 1 to {most}", param="limit")
    start = next((place + 1 for place, item in enumerate(items) if item.id == after), 0) if after else 0
    end = start + (size or usual)
    return list(items[start:end]), end < len(items)


_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')


def form_parts(request: HTTPRequest) -> list[tuple[bytes, bytes]]:
    """The headers and the content of each part of a multipart body (RFC 2046, 5.1). Raises `APIError`."""
    boundary = _BOUNDARY.search(request.headers.get("content-type", ""))
    if boundary is None:
        raise APIError(400, "The request's body must be multipart.")
    parts = request.body.split(b"--" + boundary[1].encode("latin-1"))[1:-1]
    split = (part.removeprefix(b"\r\n").partition(b"\r\n\r\n") for part in parts)
    return [(head, content.removesuffix(b"\r\n")) for head, _, content in split]


class Lines:
    """Makes the lines of one batch. request: the one that creates the batch; its headers are those of each line."""

    def __init__(self, request: HTTPRequest) -> None:
        headers = {name: value for name, value in request.headers.items() if name != HEADER}
        self._form = replace(request, method="POST", headers=headers)
        self.lines: list[Line] = []

    def add(self, id: str, target: str, body: object, metadata: JSONObject | None = None) -> None:
        """Add a line. target: that of the live request. body: its JSON value."""
        self.lines.append(Line(id, replace(self._form, target=target, body=dumps(body)), metadata))
