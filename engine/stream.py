"""A streamed call as an async iterator, with backpressure down to TCP.

Knows a call's callbacks and its `pause`. Must not know how a call works.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType

import trio

from ..providers.errors import ProviderError
from ..providers.events import Error, Event
from .call import Call, OnCompletion
from .completion import Completion
from .delivery import OnEvent

HIGH_WATER = 64
"""Events that may wait for their consumer before the socket is read no more."""
LOW_WATER = 16


class EventStream:
    """The events of one call, in order. Ends after `Done`; a failed stream raises its `ProviderError`.

    completion: the call's final record, once it has ended.
    """

    def __init__(self, start: Callable[[OnEvent, OnCompletion], Call]) -> None:
        self._start = start
        self._call: Call | None = None
        self._waiting: deque[Event] = deque()
        self._arrived = trio.Event()
        self._paused = False
        self._failed: ProviderError | None = None
        self.completion: Completion | None = None

    async def __aenter__(self) -> EventStream:
        self._call = self._start(self._on_event, self._on_completion)
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._call is not None:
            self._call.cancel()
        await trio.lowlevel.checkpoint_if_cancelled()

    @property
    def call(self) -> Call:
        """The call behind it."""
        assert self._call is not None, "enter the block first"
        return self._call

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self.completion is not None:
                if self._failed is not None:
                    raise self._failed
                raise StopAsyncIteration
            self._arrived = trio.Event()
            await self._arrived.wait()
        event = self._waiting.popleft()
        if self._paused and len(self._waiting) <= LOW_WATER:
            self._paused = False
            self.call.resume()
        return event

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, Error):
            self._waiting.append(event)
        if not self._paused and len(self._waiting) >= HIGH_WATER:
            self._paused = True
            self.call.pause()
        self._arrived.set()

    def _on_completion(self, completion: Completion) -> None:
        self.completion = completion
        self._failed = completion.error
        self._arrived.set()
