"""`map`: makes a call for each of many requests, and iterates over their completions.

`MappedCalls` stores the calls and decides when another one may start; it never waits. `CallMap` waits on the engine's
event loop, and `portal_map.py` blocks a thread. One task reads the requests; a call is not a task, and reports its end
to a callback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeAlias, TypeGuard, TypeVar, cast

from ...providers.errors import InvalidRequestError
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.request import Request
from ...providers.model.rules import check_iterable, flag, whole
from ..call.callbacks import OnCompletion
from ..call.completion import Completion
from ..call.handle import Call
from ..request.errors import TooManyCallsError, refuse_await

if TYPE_CHECKING:
    from ...transport.backend import Backend, TaskGroup
    from ..call.home import Home

Key = TypeVar("Key")

Requests: TypeAlias = Iterable[Request] | AsyncIterable[Request]
KeyedRequests: TypeAlias = Iterable[tuple[Key, Request]] | AsyncIterable[tuple[Key, Request]]

STARTS_AT_ONCE = 16
"""The number of calls started in a row before the event loop runs again. A start takes tens of microseconds."""

_END = object()


Start: TypeAlias = Callable[[Request, OnCompletion], Call]


class _Item(Generic[Key]):
    """A request of the source, from its start until the program has taken its completion."""

    __slots__ = ("_calls", "call", "completion", "key")

    def __init__(self, calls: MappedCalls[Key], key: Key) -> None:
        self._calls = calls
        self.key: Key = key
        self.call: Call | None = None
        self.completion: Completion | None = None

    def completed(self, completion: Completion) -> None:
        self._calls.on_completion(self, completion)


@dataclass(slots=True, eq=False, repr=False)
class MappedCalls(Generic[Key]):
    """The calls of one map.

    At most twice `concurrency` requests are held, as running calls or as completions that the program has not taken.
    Thus a slow program slows down the source.
    """

    _start: Start  # the function that starts a call
    _concurrency: int  # the largest number of calls that run at the same time
    _: KW_ONLY
    ordered: bool  # True: completions come in the order of the requests; False: as the calls end
    on_result: Callable[[], None]  # called when `take` has something to return or to report
    on_room: Callable[[], None]  # called when another request may be started
    _running: dict[_Item[Key], None] = field(default_factory=lambda: {}, init=False)
    # all entries if ordered; else the ended ones
    _results: deque[_Item[Key]] = field(default_factory=lambda: deque(), init=False)
    _held: int = field(default=0, init=False)
    _refused: bool = field(default=False, init=False)  # the engine refused a call: wait until a call of this map ends
    _source_ended: bool = field(default=False, init=False)
    _failure: BaseException | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        whole(1).check(self._concurrency, "concurrency")
        flag().check(self.ordered, "ordered")

    @property
    def room(self) -> int:
        """The number of requests that may be started now."""
        if self._refused or self._closed:
            return 0
        return min(self._concurrency - len(self._running), 2 * self._concurrency - self._held)

    def add(self, item: object) -> bool:
        """Start a call for a request, or for a pair of a key and a request.

        Returns False if the engine accepts no more calls now; add the item again when there is room. A request that
        cannot be sent gets its completion at once. Raises `EngineClosedError`.
        """
        entry = _Item(self, cast("Key", item[0] if _is_pair(item) else item))
        try:
            entry.call = self._start(_request_of(item), entry.completed)
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
        if self.ordered or entry.completion is not None:
            self._results.append(entry)
        if entry.completion is not None:
            self.on_result()
        return True

    def on_completion(self, entry: _Item[Key], completion: Completion) -> None:
        self._running.pop(entry, None)
        entry.call = None
        entry.completion = completion
        if not self.ordered:
            self._results.append(entry)
        self._refused = False
        self.on_result()
        self.on_room()

    def end_source(self, failure: BaseException | None = None) -> None:
        """Record that no more requests come. `failure`: the source's exception, raised after the last completion."""
        self._source_ended = True
        self._failure = failure
        self.on_result()

    def take(self) -> tuple[Key, Completion] | None:
        """Remove and return the next completion with its key; None if there is none yet."""
        if not self._results or self._results[0].completion is None:
            return None
        entry = self._results.popleft()
        assert entry.completion is not None
        self._held -= 1
        self.on_room()
        return entry.key, entry.completion

    def check_over(self) -> bool:
        """Return True if all completions were taken and no more will come. Raises the source's exception then."""
        if self._closed:
            return True
        if not self._source_ended or self._held:
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def close(self) -> None:
        """Start no more calls, and cancel the running ones. Idempotent."""
        self._closed = True
        for entry in list(self._running):
            if entry.call is not None:
                entry.call.cancel()


def _is_pair(item: object) -> TypeGuard[tuple[object, object]]:
    return isinstance(item, tuple) and len(cast("tuple[object, ...]", item)) == 2


def _request_of(item: object) -> Request:
    """Return the request of an item. Raises `InvalidRequestError` for a tuple that is no pair."""
    if _is_pair(item):
        return cast("Request", item[1])
    if isinstance(item, tuple):
        size = len(cast("tuple[object, ...]", item))
        raise InvalidRequestError(
            "requests", f"an item must be a Request or a pair of a key and a Request, not a tuple of {size}"
        )
    return cast("Request", item)


def unsendable(error: InvalidRequestError) -> Completion:
    """Return the completion of a request that cannot be sent. Its error names the field."""
    return Completion(False, error=ProviderError(str(error), category=ErrorCategory.INVALID_ARG))


def check_source(requests: object) -> None:
    """Raise `InvalidRequestError` if the argument `requests` is not an iterable of requests."""
    if not isinstance(requests, AsyncIterable):
        check_iterable(requests, "requests", "an iterable of Request, or of pairs of a key and a Request")


class Source:
    """An asynchronous iterator over the requests of an iterable or an async iterable."""

    def __init__(self, requests: object) -> None:
        self._asynchronous: AsyncIterator[object] | None = None
        if isinstance(requests, AsyncIterable):
            self._asynchronous = cast("AsyncIterable[object]", requests).__aiter__()
        else:
            self._plain = iter(cast("Iterable[object]", requests))

    async def next(self) -> object:
        """Return the next item, or `Source.END` after the last one. Raises the exceptions of the program's iterable."""
        if self._asynchronous is None:
            return next(self._plain, _END)
        try:
            return await self._asynchronous.__anext__()
        except StopAsyncIteration:
            return _END

    async def aclose(self) -> None:
        """Close an async generator, which may not have been read to its end. Do nothing for other iterables."""
        close: Callable[[], Awaitable[object]] | None = getattr(self._asynchronous, "aclose", None)
        if close is not None:
            await close()

    END: ClassVar[object] = _END


@dataclass(slots=True, eq=False, repr=False)
class Feeder(Generic[Key]):
    """Reads requests from the source and starts them while there is room."""

    _calls: MappedCalls[Key]
    _requests: object
    _wait: Callable[[], Awaitable[object]]  # waits until there is room
    _rest: Callable[[], Awaitable[object]]  # lets other tasks run
    # the exception with which an async generator refused to be closed; None if there is none
    unclosed: Exception | None = field(default=None, init=False)

    async def run(self) -> None:
        """Read until the source ends or raises, or this is cancelled."""
        failure: BaseException | None = None
        source: Source | None = None
        try:
            source = Source(self._requests)
            await self._feed(source)
        except Exception as error:
            failure = error
        except BaseException as error:  # in asyncio also a cancellation that the source raises
            failure = error
            raise
        finally:
            self._calls.end_source(failure)
            if source is not None:
                await self._close(source)

    async def _close(self, source: Source) -> None:
        try:
            await source.aclose()
        except Exception as error:
            self.unclosed = error

    def check_closed(self) -> None:
        """Raise the exception with which the source refused to be closed, if there is one."""
        if self.unclosed is not None:
            raise self.unclosed

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
    """An async iterator over the requests' completions, each with its request or key. `engine.map` returns it.

        async with engine.map(requests) as results:
            async for request, completion in results: ...

    Completions come as the calls end, or in the order of the requests if `ordered` is true. An exception from the
    iterable of requests is raised after the completions of the started calls. Leaving the block cancels the running
    calls, and raises an exception with which an async generator of requests ends when it is closed.
    """

    if not TYPE_CHECKING:
        __await__ = refuse_await("a map is not awaited; write: async with engine.map(requests) as results:")

    def __init__(
        self, home: Home, backend: Backend, start: Start, requests: object, concurrency: int, *, ordered: bool
    ) -> None:
        home.check()
        check_source(requests)
        self._home = home
        self._backend = backend
        self._arrived = backend.event()
        self._has_room = backend.event()
        self._calls: MappedCalls[Key] = MappedCalls(
            start, concurrency, ordered=ordered, on_result=self._wake, on_room=self._let_in
        )
        self._feeder = Feeder(self._calls, requests, self._wait_for_room, backend.checkpoint)
        self._block = backend.open_group()
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        check_not_entered(self._group)
        self._group = await self._block.__aenter__()
        self._group.start(self._feeder.run)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calls.close()
        if self._group is not None:
            self._group.cancel()
            # The group does not get the body's exception. The block raises it itself, so it is not put into a group.
            try:
                await self._block.__aexit__(None, None, None)
            except BaseExceptionGroup as group:  # what the source raised, such as Ctrl-C, in a nursery
                raise group.exceptions[0] from None
        self._feeder.check_closed()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Key, Completion]:
        check_entered(self._group, FORM)
        self._home.check()
        await self._backend.checkpoint_without_wait()
        while (result := self._calls.take()) is None:
            if self._calls.check_over():
                raise StopAsyncIteration
            if self._arrived.is_set():  # else another task waits for this event
                self._arrived = self._backend.event()
            await self._arrived.wait()
        return result

    def _wake(self) -> None:
        self._arrived.set()

    def _let_in(self) -> None:
        self._has_room.set()

    async def _wait_for_room(self) -> None:
        self._has_room = self._backend.event()
        await self._has_room.wait()


FORM = "    async with engine.map(requests) as results:\n        async for request, completion in results: ..."
"""Example code that opens and reads a map, for error messages."""


def check_entered(entered: object, form: str) -> None:
    """Raise `RuntimeError` if the block was not entered, so that no call was started. `form`: the example code."""
    if entered is None:
        raise RuntimeError(f"this map's block was not entered, so nothing was started. Write:\n{form}")


def check_not_entered(entered: object) -> None:
    """Raise `RuntimeError` if the block was entered before."""
    if entered is not None:
        raise RuntimeError("this map was entered already: each map(…) reads its requests once")
