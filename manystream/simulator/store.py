"""The answers that the service keeps: they are read again by their id, from any event on, and cancelled.

An answer in the background is written whether or not anyone reads it: how much of it there is depends on the time
alone. Each response that shows it begins with what is written and goes on at the answer's own pace. Faults that the
knobs ask for belong to one response; only `error` belongs to the answer. This module knows no sockets.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from ..http_server import LAST_CHUNK, chunk
from .knobs import Knobs
from .program import Program, position_of, resumed, streamed, unstreamed
from .prompt import APIError, Prompt
from .scenario import Scenario
from .wire import StoringWire

OPENING = 2
"""The events of a stream in the background that come before the answer is written: the answer has an id by then."""

KEPT_ANSWERS = 10_000
"""The store holds so many answers. Then it forgets the oldest."""


@dataclass(slots=True, kw_only=True, eq=False)
class StoredAnswer:
    """One answer. It keeps what its events are made of, and makes them again for each response.

    keys: the API keys that made it, which alone may read it.
    begins: when its first event after the opening is written.
    rate: events per second; 0 writes all of them when it begins.
    length: number of its events.
    failure, failed_at: the error that ends it, and the number of events before the error.
    cancelled_at: the number of events that were written when it was cancelled.
    """

    wire: StoringWire
    prompt: Prompt
    scenario: Scenario
    keys: set[str]
    begins: float = 0.0
    rate: float = 0.0
    length: int = 0
    failure: APIError | None = None
    failed_at: int = 0
    cancelled_at: int | None = None

    @property
    def id(self) -> str:
        return self.wire.id(self.scenario)

    def events(self) -> list[bytes]:
        """All events of the stream, also those that are not written yet."""
        prompt, scenario = self.prompt, self.scenario
        events = self.wire.frames(prompt, scenario)
        if self.failure is not None:
            place = self.failed_at
            events[place:] = self.wire.error_frames(prompt, scenario, self.failure, place)
        if self.cancelled_at is not None:
            events[self.cancelled_at :] = self.wire.cancelled_frames(prompt, scenario, self.cancelled_at)
        return events

    def written(self, now: float) -> int:
        """How many events there are now."""
        if self.cancelled_at is not None or (now >= self.begins and not self.rate):
            return self.length
        count = OPENING if now < self.begins else OPENING + 1 + int((now - self.begins) * self.rate)
        return min(count, self.length)

    def status(self, now: float) -> str:
        """`queued`, `in_progress`, `ended`, `failed` or `cancelled`."""
        if self.cancelled_at is not None:
            return "cancelled"
        if self.written(now) < self.length:
            return "queued" if now < self.begins else "in_progress"
        return "ended" if self.failure is None else "failed"

    def stream(self, position: int, knobs: Knobs, now: float, *, keep: bool) -> Program:
        """The stream from an event on. knobs: the faults of this response."""
        events = self.events()[position:]
        knobs = replace(knobs, rate=self.rate, delay=0.0, error=None)
        headers = self.wire.headers(replace(self.prompt, stream=True), self.scenario.identity[:24])
        program = streamed(headers, events, knobs, ping=self.wire.ping, keep=keep)
        program.answer = self
        ready = max(0, self.written(now) - position)
        following = max(position + ready, OPENING)
        wait = self.begins - now + ((following - OPENING) / self.rate if self.rate else 0.0)
        if knobs.chunk and events:
            ready = ready * len(program.frames) // len(events)
        return resumed(program, ready, max(0.0, wait))

    def shown(self, status: str, knobs: Knobs, *, keep: bool) -> Program:
        """The answer as a JSON object. knobs: the faults of this response."""
        body = self.wire.shown(self.prompt, self.scenario, status, self.failure)
        headers = self.wire.headers(replace(self.prompt, stream=False), self.scenario.identity[:24])
        return unstreamed(headers, body, replace(knobs, delay=0.0, error=None), keep=keep)

    def cancel(self, now: float) -> Program | None:
        """Cancel the answer if it is not complete. Returns the end of the responses that show it now."""
        if self.status(now) not in ("queued", "in_progress"):
            return None
        self.cancelled_at = self.written(now)
        last = self.wire.cancelled_frames(self.prompt, self.scenario, self.cancelled_at)
        self.length = self.cancelled_at + len(last)
        return Program([b"".join(map(chunk, last)) + LAST_CHUNK], events=len(last))


class AnswerStore:
    """The answers, by id. An id is known only to the keys that made the answer."""

    def __init__(self) -> None:
        self._answers: dict[str, StoredAnswer] = {}
        self._created = 0

    def create(
        self, wire: StoringWire, prompt: Prompt, scenario: Scenario, knobs: Knobs, key: str, now: float, wall: float
    ) -> StoredAnswer:
        """Begin an answer in the background. Each has an id of its own, whatever was asked before.

        now: the clock of the answers. wall: Unix time, which makes the ids of two simulators differ.
        """
        self._created += 1
        unique = f"{scenario.identity}/{wall}/{self._created}"
        scenario = replace(scenario, identity=hashlib.blake2b(unique.encode(), digest_size=16).hexdigest())
        answer = StoredAnswer(
            wire=wire, prompt=prompt, scenario=scenario, keys={key}, begins=now + knobs.delay, rate=knobs.rate
        )
        if knobs.error is not None:
            answer.failure = APIError(knobs.error_status, "", code=knobs.code)
            answer.failed_at = position_of(knobs.error, len(answer.wire.frames(prompt, scenario)))
        answer.length = len(answer.events())
        self.keep(answer, key)
        return answer

    def keep(self, answer: StoredAnswer, key: str) -> None:
        """Keep an answer that a key made. The oldest answers are forgotten."""
        answer.keys.add(key)
        self._answers[answer.id] = answer
        while len(self._answers) > KEPT_ANSWERS:
            del self._answers[next(iter(self._answers))]

    def find(self, wire: StoringWire, id: str, key: str) -> StoredAnswer:
        """The answer with an id. Raises `APIError` if this key made none with it."""
        answer = self._answers.get(id)
        if answer is None or answer.wire is not wire or key not in answer.keys:
            raise wire.not_found(id)
        return answer

    def forget(self, answer: StoredAnswer) -> None:
        self._answers.pop(answer.id, None)
