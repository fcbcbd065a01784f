"""Many requests as one iteration: each is started while there is room, and comes back with its completion.

`MappedCalls` keeps the calls and decides when another one may start; it never waits. `CallMap` waits in trio;
`manystream.aio_map` waits in asyncio, and `portal_map.py` blocks a thread. Knows how a call is started and ended. Must
not know what happens inside a call.

One task reads the requests. A call is no task: its end is a callback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar, cast

import trio

from ..providers.errors import ErrorCategory, InvalidRequestError, ProviderError
from ..providers.request import Request
from ..providers.rules import whole
from .completion import Completion
from .ending import OnCompletion
from .errors import TooManyCallsError

Key = TypeVar("Key")

Requests: TypeAlias = "Iterable[Request] | AsyncIterable[Request]"
KeyedRequests: TypeAlias = "Iterable[tuple[Key, Request]] | AsyncIterable[tuple[Key, Request]]"

CONCURRENCY = 1_000
"""Calls of one map that may run at the same time, where the program does not say."""

STARTS_AT_ONCE = 16
"""Calls that are started in a row before the event loop runs again: a start costs tens of microseconds."""

_END = object()


class Cancellable(Protocol):
    """What is needed of a call here."""

    def cancel(self) -> None: ...


Start: TypeAlias = "Callable[[Request, OnCompletion], Cancellable]"


class _Entry(Generic[Key]):
    """One request that was taken from the source, until its completion is given to the program."""

    __slots__ = ("_calls", "call", "completion", "key")

    def __init__(self, calls: MappedCalls[Key], key: Key) -> None:
        self._calls = calls
        self.key = key
        self.call: Cancellable | None = None
        self.completion: Completion | None = None

    def end(self, completion: Completion) -> None:
        """Take the completion of its call."""
        self._calls.on_completion(self, completion)


class MappedCalls(Generic[Key]):
    """The calls of one map. concurrency: the most that run at the same time. ordered: completions come in the order of
    the requests.

    At most twice `concurrency` requests are held, running or ended, until the program takes their completions: a slow
    program holds back the source.
    """

    def __init__(
        self,
        start: Start,
        concurrency: int,
        *,
        ordered: bool,
        on_result: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        """start: starts a call. on_result: called when there is something to take. on_room: called when another request
        may be started. Raises `InvalidRequestError`."""
        whole(1).check(concurrency, "concurrency")
        self._start = start
        self._concurrency = concurrency
        self._ordered = ordered
        self._on_result = on_result
        self._on_room = on_room
        self._running: dict[_Entry[Key], None] = {}
        self._results: deque[_Entry[Key]] = deque()  # where ordered, all entries; else the ended ones
        self._held = 0
        self._refused = False  # the engine took no more calls: wait until one of these ends
        self._source_ended = False
        self._failure: BaseException | None = None
        self._closed = False

    @property
    def room(self) -> int:
        """How many requests may be started now."""
        if self._refused or self._closed:
            return 0
        return min(self._concurrency - len(self._running), 2 * self._concurrency - self._held)

    def add(self, item: object) -> bool:
        """Start a request, or a pair of a key and a request. False where the engine has no place for another call:
        offer it again when there is room. A request that cannot be sent has its completion at once. Raises
        `EngineClosedError`."""
        key, request = cast("tuple[Key, Request]", item if isinstance(item, tuple) else (item, item))
        entry = _Entry(self, key)
        try:
            entry.call = self._start(request, entry.end)
        except InvalidRequestError as error:
            entry.completion = unsendable(error)
        except TooManyCallsError:
            if not self._running:
                raise
            self._refused = True
            return False
        else:
            self._running[entry] = None
        self._held += 1
        if self._ordered or entry.completion is not None:
            self._results.append(entry)
        if entry.completion is not None:
            self._on_result()
        return True

    def on_completion(self, entry: _Entry[Key], completion: Completion) -> None:
        """A call has ended."""
        self._running.pop(entry, None)
        entry.call = None
        entry.completion = completion
        if not self._ordered:
            self._results.append(entry)
        self._refused = False
        self._on_result()
        self._on_room()

    def end_source(self, failure: BaseException | None = None) -> None:
        """There are no more requests. failure: raised by the source, and raised again after the last completion."""
        self._source_ended = True
        self._failure = failure
        self._on_result()

    def take(self) -> tuple[Key, Completion] | None:
        """The next completion with its key; None while there is none."""
        if not self._results or self._results[0].completion is None:
            return None
        entry = self._results.popleft()
        assert entry.completion is not None
        self._held -= 1
        self._on_room()
        return entry.key, entry.completion

    def check_over(self) -> bool:
        """Whether all completions were taken and no more will come. Raises what the source raised."""
        if self._closed:
            return True
        if not self._source_ended or self._held:
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def close(self) -> None:
        """Start no more, and cancel what runs. May be called again."""
        self._closed = True
        for entry in list(self._running):
            if entry.call is not None:
                entry.call.cancel()


def unsendable(error: InvalidRequestError) -> Completion:
    """The completion of a request that cannot be sent. Its error names the field."""
    return Completion(False, error=ProviderError(str(error), category=ErrorCategory.INVALID_ARG))


def check_source(requests: object) -> None:
    """Raises `InvalidRequestError` for what holds no requests."""
    if not isinstance(requests, (Iterable, AsyncIterable)):
        raise InvalidRequestError("requests", f"must be an iterable of Request, not {type(requests).__name__}")


class Source:
    """The requests as one asynchronous iteration, whichever kind they are."""

    def __init__(self, requests: object) -> None:
        self._asynchronous: AsyncIterator[object] | None = None
        if isinstance(requests, AsyncIterable):
            self._asynchronous = cast("AsyncIterable[object]", requests).__aiter__()
        else:
            self._plain = iter(cast("Iterable[object]", requests))

    async def next(self) -> object:
        """The next item, or `Source.END`. Raises what the source raises."""
        if self._asynchronous is None:
            return next(self._plain, _END)
        try:
            return await self._asynchronous.__anext__()
        except StopAsyncIteration:
            return _END

    async def aclose(self) -> None:
        """Close an asynchronous generator: nobody else would, where it was not read to its end."""
        close: Callable[[], Awaitable[object]] | None = getattr(self._asynchronous, "aclose", None)
        if close is not None:
            await close()

    END: ClassVar[object] = _END


class Feeder(Generic[Key]):
    """Reads the source and starts its requests while there is room. `wait` waits for room, `rest` lets others run."""

    def __init__(
        self,
        calls: MappedCalls[Key],
        requests: object,
        wait: Callable[[], Awaitable[object]],
        rest: Callable[[], Awaitable[object]],
    ) -> None:
        self._calls = calls
        self._requests = requests
        self._wait = wait
        self._rest = rest

    async def run(self) -> None:
        """Read until the source ends or raises, or this is cancelled."""
        failure: BaseException | None = None
        source: Source | None = None
        try:
            source = Source(self._requests)
            await self._feed(source)
        except Exception as error:
            failure = error
        except BaseException as error:  # in asyncio also what a source raises that waited for a cancelled task
            failure = error
            raise
        finally:
            self._calls.end_source(failure)
            if source is not None:
                await source.aclose()

    async def _feed(self, source: Source) -> None:
        started = 0
        while True:
            await self._room()
            item = await source.next()
            if item is Source.END:
                return
            while not self._calls.add(item):
                await self._room()
            started += 1
            if started % STARTS_AT_ONCE == 0:
                await self._rest()

    async def _room(self) -> None:
        while self._calls.room <= 0:
            await self._wait()


class CallMap(Generic[Key]):
    """The requests' completions, each with its request or its key: made by `engine.map`.

        async with engine.map(requests) as results:
            async for request, completion in results: ...

    They come as the calls end; where `ordered`, in the order of the requests. The iteration raises what the source of
    the requests raises, after the completions of what was started. Leaving the block cancels what runs.
    """

    def __init__(self, start: Start, requests: object, concurrency: int, *, ordered: bool) -> None:
        check_source(requests)
        self._arrived = trio.Event()
        self._has_room = trio.Event()
        self._calls: MappedCalls[Key] = MappedCalls(
            start, concurrency, ordered=ordered, on_result=self._wake, on_room=self._let_in
        )
        self._feeder = Feeder(self._calls, requests, self._wait_for_room, trio.lowlevel.checkpoint)
        self._block = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        check_not_entered(self._nursery)
        self._nursery = await self._block.__aenter__()
        self._nursery.start_soon(self._feeder.run, name="manystream map")
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._calls.close()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
            # Without the body's exception, which is raised by the block itself and needs no group around it.
            await self._block.__aexit__(None, None, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Key, Completion]:
        check_entered(self._nursery, FORM)
        await trio.lowlevel.checkpoint()
        while (result := self._calls.take()) is None:
            if self._calls.check_over():
                raise StopAsyncIteration
            self._arrived = trio.Event()
            await self._arrived.wait()
        return result

    def _wake(self) -> None:
        self._arrived.set()

    def _let_in(self) -> None:
        self._has_room.set()

    async def _wait_for_room(self) -> None:
        self._has_room = trio.Event()
        await self._has_room.wait()


FORM = "    async with engine.map(requests) as results:\n        async for request, completion in results: ..."
"""How a map is opened and read, for error messages."""


def check_entered(entered: object, form: str) -> None:
    """Raises `RuntimeError` before the block is entered: nothing was started."""
    if entered is None:
        raise RuntimeError(f"this map's block was not entered, so nothing was started. Write:\n{form}")


def check_not_entered(entered: object) -> None:
    """Raises `RuntimeError` when the block is entered again."""
    if entered is not None:
        raise RuntimeError("this map was entered already: each map(…) reads its requests once")
