"""`map` for programs with threads: an iterator whose thread also reads the requests."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Generic, Self, TypeVar, cast

from ...providers.errors import InvalidRequestError
from ..call.completion import Completion
from .engine_thread import EngineThread
from .map import STARTS_AT_ONCE, MappedCalls, Start, check_entered, check_not_entered, check_source

Key = TypeVar("Key")

REFILL = 8
"""New requests are started when one place in this many is free, because each start wakes the engine's thread."""

FORM = "    with portal.map(requests) as results:\n        for request, completion in results: ..."


class PortalMap(Generic[Key]):
    """An iterator over the requests' completions, for one thread at a time. `portal.map` returns it.

        with portal.map(requests) as results:
            for request, completion in results: ...

    The thread that iterates also reads the requests, so an iterable that blocks delays the iteration, but not the
    calls. The order of completions and the errors are those of `Engine.map`.
    """

    def __init__(
        self, thread: EngineThread, start: Start, requests: object, concurrency: int, *, ordered: bool
    ) -> None:
        if isinstance(requests, AsyncIterable):
            raise InvalidRequestError("requests", "are an async iterable: use the map of an engine on trio or asyncio")
        check_source(requests)
        self._thread = thread
        self._changed = threading.Condition()
        self._reading = threading.Lock()  # held by the thread that iterates
        self._calls: MappedCalls[Key] = MappedCalls(
            start, concurrency, ordered=ordered, on_result=self._wake, on_room=self._wake
        )
        self._requests = cast("Iterable[object]", requests)
        self._refill = max(1, concurrency // REFILL)
        self._source: Iterator[object] | None = None
        self._ended = False
        self._failure: Exception | None = None
        self._left: list[object] = []  # items read from the source and not yet started

    def __enter__(self) -> Self:
        check_not_entered(self._source)
        self._source = iter(self._requests)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.leave(self._close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Key, Completion]:
        check_entered(self._source, FORM)
        self._thread.check_may_block()
        if not self._reading.acquire(blocking=False):
            raise RuntimeError("another thread is already waiting for this map's next completion")
        try:
            return self._next()
        finally:
            self._reading.release()

    def _next(self) -> tuple[Key, Completion]:
        while True:
            with self._changed:
                room = self._calls.room
                result = None if self._wants_more(room) else self._calls.take()
                if result is None and not self._wants_more(room):
                    if self._calls.check_over():
                        raise StopIteration
                    if not self._can_start(room):
                        self._changed.wait()
                        continue
            if result is not None:
                return result
            self._start_some(room)

    def _can_start(self, room: int) -> bool:
        return room > 0 and (bool(self._left) or not self._ended)

    def _wants_more(self, room: int) -> bool:
        """Return True if enough places are free to start more requests before the next completion is taken."""
        return room >= self._refill and self._can_start(room)

    def _start_some(self, room: int) -> None:
        """Read up to `room` requests, and start them on the engine's thread."""
        self._read(min(room, STARTS_AT_ONCE))
        if self._left:
            try:
                del self._left[: sum(self._thread.run(self._start_left))]
            except Exception as error:
                self._ended, self._failure = True, error
                self._left.clear()
        if self._ended and not self._left:
            with self._changed:
                self._calls.end_source(self._failure)

    def _read(self, count: int) -> None:
        assert self._source is not None
        while len(self._left) < count and not self._ended:
            try:
                self._left.append(next(self._source))
            except StopIteration:
                self._ended = True
            except Exception as error:
                self._ended, self._failure = True, error

    def _start_left(self) -> list[bool]:
        with self._changed:
            taken: list[bool] = []
            for item in self._left:
                taken.append(self._calls.add(item))
                if not taken[-1]:
                    break
            return taken

    def _close(self) -> None:
        with self._changed:
            self._calls.close()
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
