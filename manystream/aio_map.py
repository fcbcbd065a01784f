"""`map` for asyncio programs: the completions of many requests as one iteration."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from .engine.call.completion import Completion
from .engine.call.home import Home
from .engine.frontends.map import (
    FORM,
    Feeder,
    MappedCalls,
    Start,
    check_entered,
    check_not_entered,
    check_source,
)
from .engine.request.errors import refuse_await
from .transport.asyncio_backend import start_task

Key = TypeVar("Key")


class CallMap(Generic[Key]):
    """An async iterator over the requests' completions, each with its request or key. `engine.map` returns it.

        async with engine.map(requests) as results:
            async for request, completion in results: ...

    The order of completions and the errors are those of `manystream.Engine.map`. One asyncio task reads the requests.
    """

    if not TYPE_CHECKING:
        __await__ = refuse_await("a map is not awaited; write: async with engine.map(requests) as results:")

    def __init__(self, home: Home, start: Start, requests: object, concurrency: int, *, ordered: bool) -> None:
        home.check()
        check_source(requests)
        self._home = home
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._calls: MappedCalls[Key] = MappedCalls(
            start, concurrency, ordered=ordered, on_result=self._arrived.set, on_room=self._has_room.set
        )
        self._feeder = Feeder(self._calls, requests, self._wait_for_room, partial(asyncio.sleep, 0))
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        check_not_entered(self._task)
        self._task = start_task(self._feeder.run, asyncio.get_running_loop())
        self._task.set_name("manystream map")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calls.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._feeder.check_closed()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Key, Completion]:
        check_entered(self._task, FORM)
        self._home.check()
        while (result := self._calls.take()) is None:
            if self._calls.check_over():
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return result

    async def _wait_for_room(self) -> None:
        self._has_room.clear()
        await self._has_room.wait()
