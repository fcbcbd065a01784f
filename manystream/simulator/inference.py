"""An inference server's concurrency: running calls slow each other down, and more calls wait inside.

The server works in steps. A step takes `step` seconds plus `per_call` seconds for each running call, and gives each of
them one event. A call runs if its tokens fit into the KV cache beside those of the other running calls; else it waits
inside, in order of arrival. Calls beyond the queue get an error. Calls are given as opaque objects; this module knows
no sockets and no clock.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from .knobs import KnobError, read_options, readers_of

Call = TypeVar("Call")


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchModel:
    """The speed and the size of an inference server.

    step: seconds of a step without calls.
    per_call: seconds that each running call adds to a step.
    prefill: seconds that each input token adds before the first event.
    kv: tokens, input and output, of all calls that run at once.
    queue: calls that may wait inside.
    status: the HTTP status for calls beyond the queue.
    """

    step: float = 0.02
    per_call: float = 0.0005
    prefill: float = 0.00001
    kv: float = 100_000
    queue: float = math.inf
    status: int = 503

    def __post_init__(self) -> None:
        for name in ("step", "per_call", "prefill", "queue"):
            if not getattr(self, name) >= 0:
                raise KnobError(f"batch: {name}={getattr(self, name)}: {name} is a number from 0")
        if not self.kv > 0 or not 400 <= self.status <= 599:
            raise KnobError("batch: kv is a number above 0, and status an HTTP status from 400 to 599")


def read_batch(text: str) -> BatchModel:
    """A batch model from text: `step=0.02 per-call=0.0005 kv=100000 queue=64`. Raises `KnobError`."""
    return BatchModel(**dict(read_options("batch", text, readers_of(BatchModel))))  # type: ignore[arg-type]


class InferenceServer(Generic[Call]):
    """The calls of one inference server.

    running: call → its tokens in the KV cache.
    """

    def __init__(self, model: BatchModel) -> None:
        self.model = model
        self.running: dict[Call, float] = {}
        self._waiting: deque[Call] = deque()
        self._sizes: dict[Call, float] = {}
        self._used = 0.0

    def is_full_for(self, tokens: float) -> bool:
        """Whether a call would neither run nor fit into the queue."""
        waits = bool(self._sizes) or (bool(self.running) and self._used + tokens > self.model.kv)
        return waits and len(self._sizes) >= self.model.queue

    @property
    def queued(self) -> int:
        """Number of calls that wait inside."""
        return len(self._sizes)

    @property
    def step(self) -> float:
        """Seconds of a step with the calls that run now."""
        return self.model.step + self.model.per_call * len(self.running)

    def add(self, call: Call, tokens: float) -> None:
        """Take a call. It waits until `start_waiting` returns it."""
        self._waiting.append(call)
        self._sizes[call] = tokens

    def start_waiting(self) -> list[Call]:
        """Start the waiting calls for which there is room, in order of arrival. A call runs alone if it is larger than
        the whole KV cache."""
        started: list[Call] = []
        while self._waiting:
            call = self._waiting[0]
            tokens = self._sizes.get(call)
            if tokens is None:  # removed while it waited
                self._waiting.popleft()
                continue
            if self.running and self._used + tokens > self.model.kv:
                break
            self._waiting.popleft()
            del self._sizes[call]
            self.running[call] = tokens
            self._used += tokens
            started.append(call)
        return started

    def remove(self, call: Call) -> bool:
        """Forget a call that ended or whose client has left. Returns whether it was known."""
        tokens = self.running.pop(call, None)
        if tokens is not None:
            self._used -= tokens
            return True
        return self._sizes.pop(call, None) is not None
