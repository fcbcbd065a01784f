"""The engine for objects that are made before an event loop runs: each loop's first call opens one for that loop."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, Self, Unpack

from ...providers.catalog.provider import Provider
from ...transport.backend import Backend
from ...transport.loop import Loop
from ...transport.running import EventLoop, EventLoopEndedError, running_event_loop
from .. import asyncio_tasks
from ..call.home import Home
from ..gate import Calls
from ..option_rules import Configuration
from ..request.errors import EngineClosedError, EventLoopError
from .engine import EngineMethods
from .opening import OpenEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..options import EngineOptions

CLOSED: Final = "engine.close() was called. Make another ms.LazyEngine"
LOOP_ENDED: Final = "its event loop has ended"
NO_LOOP: Final = (
    "no event loop runs here: an ms.LazyEngine opens an engine in a task of trio or asyncio; manystream.portal needs no"
    " event loop"
)


class LoopTasks:
    """The tasks of an engine without a block: they run until it is closed, or until the event loop ends."""

    def __init__(self, event_loop: EventLoop) -> None:
        self._event_loop = event_loop
        self.home: Home = Home(event_loop.token)
        self.on_failure: Callable[[BaseException], None] | None = None
        self.backend: Backend = event_loop.backend(self._failed)

    def _failed(self, error: BaseException) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    def make_loop(self) -> Loop:
        """Return a multi-request loop. Raises `EventLoopError` where the event loop cannot wait for it."""
        return asyncio_tasks.make_loop(self.home.loop, self.backend.clock)

    def interrupt(self, error: BaseException) -> None:
        """End the event loop with the exception: there is no block that could raise it."""

        def end() -> NoReturn:
            raise error

        if not isinstance(error, Exception):  # a defect of a task closes this engine only, and is in the log
            self.backend.soon(end)


class LazyEngine(EngineMethods):
    """An engine that is made anywhere and opens nothing: `engine = ms.LazyEngine([provider])`.

    Its methods are those of `Engine`. On each event loop, of trio or asyncio, the first call opens an engine of that
    loop, which closes with the loop. So an object that a framework makes in a plain constructor can hold it, and use it
    in one `asyncio.run` after the other, and in threads with event loops of their own. The engines share no traffic
    control, unless `ms.Traffic(shared=…)` is given.

    `await engine.close()`, or `async with engine:`, closes it for good.
    """

    __slots__ = ("__weakref__", "_closed", "_configuration", "_opened")

    def __init__(self, providers: Sequence[Provider], **options: Unpack[EngineOptions]) -> None:
        """Check the providers and the options, which are those of `open_engine`. Raises `InvalidRequestError`."""
        self._configuration = Configuration(providers, options)
        self._opened: dict[EventLoop, OpenEngine] = {}
        self._closed = False
        weakref.finalize(self, _dropped, self._opened).atexit = False

    def __repr__(self) -> str:
        return f"<LazyEngine {'closed' if self._closed else f'of {len(self._opened)} event loops'}>"

    @property
    def closed(self) -> bool:
        """Whether the engine is closed, so that it starts no call. The end of an event loop does not close it."""
        return self._closed

    @property
    def _calls(self) -> Calls:
        event_loop = running_event_loop()
        if event_loop is None:
            raise EventLoopError(NO_LOOP)
        opened = self._opened.get(event_loop)
        if opened is None or opened.calls.closed or opened.calls.home.is_forked:
            opened = self._open(event_loop)
        return opened.calls

    def _open(self, event_loop: EventLoop) -> OpenEngine:
        if self._closed:
            raise EngineClosedError(f"this engine is closed: {CLOSED}")
        for other, opened in list(self._opened.items()):
            if other.ended and not opened.calls.home.is_forked:
                self._opened.pop(other, None)
                opened.drop(LOOP_ENDED)
        opened = OpenEngine(LoopTasks(event_loop), self._configuration)
        try:
            opened.begin()
            opened.at_end = event_loop.at_end(lambda: opened.end(LOOP_ENDED))
        except BaseException:
            opened.end("it could not be opened")
            raise
        self._opened[event_loop] = opened
        return opened

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel and complete the running calls of every event loop, and close every socket. Idempotent.

        The engines of other event loops are closed there, soon. A call that starts later raises `EngineClosedError`.
        """
        self._closed = True
        here = running_event_loop()
        for event_loop, opened in list(self._opened.items()):
            self._opened.pop(event_loop, None)
            if event_loop != here:
                _end_elsewhere(event_loop, opened, partial(opened.end, CLOSED))
                continue
            opened.end(CLOSED)
            await opened.calls.backend.checkpoint_without_wait()


def _end_elsewhere(event_loop: EventLoop, opened: OpenEngine, end: Callable[[], object]) -> None:
    """Call `end` on the event loop of an engine; where that has ended, close the engine's sockets."""
    if opened.calls.home.is_forked:
        return
    try:
        event_loop.soon(end)
    except EventLoopEndedError:
        opened.drop(LOOP_ENDED)


def _dropped(engines: dict[EventLoop, OpenEngine]) -> None:
    """Close the engines of a `LazyEngine` that nobody holds any more, each when its running calls have ended."""
    for event_loop, opened in engines.items():
        _end_elsewhere(event_loop, opened, opened.end_soon)
