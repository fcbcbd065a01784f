"""A streamed call as an async iterator with backpressure down to TCP, and what it shares with the portal's iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn, TypeVar

from ...providers.errors import InvalidRequestError
from ...providers.model.events import ErrorEvent, Event
from ...providers.model.request import Request
from ...transport.backend import Backend, Signal
from ..call.callbacks import OnCompletion, OnEvent
from ..call.completion import Completion
from ..call.handle import Call
from ..call.home import Home

HIGH_WATER = 64
"""The high-water mark: the number of waiting events from which the socket is not read."""
LOW_WATER = 16

if TYPE_CHECKING:
    from ..gate import Calls
    from .portal import PortalCall

AnyCall = TypeVar("AnyCall", bound="Call | PortalCall")
"""The call of an iterator: one on the engine's own thread, or one for another thread."""


@dataclass(slots=True, eq=False, repr=False)
class BufferedEvents(Generic[AnyCall]):
    """The buffer of one call's events. While it is full, the socket is not read."""

    _call: AnyCall | None = field(default=None, init=False)
    _waiting: deque[Event] = field(default_factory=lambda: deque(), init=False)
    _paused: bool = field(default=False, init=False)
    completion: Completion | None = field(default=None, init=False)  # the call's final record, once it has ended

    _FORM: ClassVar[str] = "    async with engine.stream(request) as events:\n        async for event in events: ..."
    """The correct use of a stream, for error messages."""

    @property
    def call(self) -> AnyCall:
        """The stream's call. Raises `RuntimeError` before the block is entered."""
        self._check_entered()
        assert self._call is not None
        return self._call

    if not TYPE_CHECKING:  # a type checker refuses `await` by itself

        def __await__(self) -> NoReturn:
            raise TypeError(f"a stream is not awaited; engine.request is, for the whole answer. Write:\n{self._FORM}")

    def _check_entered(self) -> None:
        """Raise `RuntimeError` before the block is entered: there is no call yet."""
        if self._call is None:
            raise RuntimeError(f"this stream's block was not entered, so its call is not started. Write:\n{self._FORM}")

    def _check_not_entered(self) -> None:
        """Raise `RuntimeError` when the block is entered a second time: one stream makes one call."""
        if self._call is not None:
            raise RuntimeError("this stream was entered already: each engine.stream(…) makes one call")

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, ErrorEvent):  # the iteration raises it, from the completion
            self._waiting.append(event)
        if not self._paused and len(self._waiting) >= HIGH_WATER and self._call is not None:
            self._paused = True
            self._call.pause()
        self._wake()

    def _on_completion(self, completion: Completion) -> None:
        self.completion = completion
        self._wake()

    def _wake(self) -> None:
        """Wake the consumer: an event or the completion has arrived."""
        raise NotImplementedError

    def _over(self) -> bool:
        """Return whether no event waits and none will follow.

        Raises the `ProviderError` of a failed stream, and `RuntimeError` if the block was not entered.
        """
        if self._waiting:
            return False
        if self.completion is None:
            self._check_entered()  # without a call no event would ever come
            return False
        if self.completion.error is not None:
            raise self.completion.error.with_traceback(None)  # without the frames of an earlier raise
        return True

    def _take(self) -> Event:
        """Remove and return the next event. The buffer must not be empty."""
        event = self._waiting.popleft()
        if self._paused and len(self._waiting) <= LOW_WATER:
            self._paused = False
            self.call.resume()
        return event


def starter(calls: Calls, request: Request | str, after: int | None) -> Callable[[OnEvent, OnCompletion], Call]:
    """Return the function that starts the call of an iterator.

    request: a request, or the resume token of a durable call.
    after: the number of events to leave out, for a token. Raises `InvalidRequestError` where it is given for a request.
    """
    if isinstance(request, str):
        return lambda on_event, on_completion: calls.attach(request, on_event, on_completion, after)
    if after is not None:
        raise InvalidRequestError("after", "is for a resume token: a request has no earlier events")
    return lambda on_event, on_completion: calls.start(request, on_event, on_completion, stream=True)


class EventStream(BufferedEvents[Call]):
    """An async iterator of one call's events, in order. It ends after `Done`; a failed stream raises `ProviderError`.

    completion: the call's final record, once it has ended.
    """

    def __init__(self, home: Home, backend: Backend, start: Callable[[OnEvent, OnCompletion], Call]) -> None:
        super().__init__()
        self._home = home
        self._backend = backend
        self._start = start
        self._arrived: Signal | None = None

    async def __aenter__(self) -> EventStream:
        self._check_not_entered()
        self._call = self._start(self._on_event, self._on_completion)
        try:
            await self._backend.checkpoint_without_wait()
        except BaseException:
            self._call.cancel()  # `__aexit__` is not called
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._call is not None:
            self._call.cancel()
        await self._backend.checkpoint_without_wait()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if not self._waiting and self.completion is None:
            self._home.check()
        await self._backend.checkpoint_without_wait()
        while not self._waiting:
            if self._over():
                raise StopAsyncIteration
            if self._arrived is not None:
                raise RuntimeError("another task is already waiting for this stream's next event")
            self._arrived = self._backend.signal()
            try:
                await self._arrived.wait()
            finally:
                self._arrived = None
        return self._take()

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()
