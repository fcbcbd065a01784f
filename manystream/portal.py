"""The engine for programs without an event loop: `with open_portal([…]) as portal: portal.request(request)`.

The engine and its trio run have a thread of their own. The portal passes requests to that thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Unpack

import trio

from . import Engine, EngineClosedError, EngineOptions, Portal, Provider, open_engine
from .engine.call.home import Home
from .engine.frontends.engine_thread import EngineThread as EngineThread
from .engine.frontends.portal import PortalCall, PortalRecording, PortalStream
from .engine.frontends.portal_map import PortalMap

__all__ = ["Portal", "PortalCall", "PortalMap", "PortalRecording", "PortalStream", "open_portal"]

NO_THREAD = "the program is ending, and no thread begins any more: open the portal before that"


@contextmanager
def open_portal(
    providers: Sequence[Provider],
    **options: Unpack[EngineOptions],
) -> Generator[Portal, None, None]:
    """Open an engine in a thread of its own until the block is left.

    providers: the providers that requests may name.
    options: those of `manystream.open_engine`.

    Leaving the block cancels the calls that still run and waits until the thread has ended. An exception that ended the
    engine, such as `SystemExit` from a callback, is raised then. Raises `InvalidRequestError` for a provider that
    cannot be used, and `EngineClosedError` in a finalizer when the program ends.
    """
    with open_thread(providers, **options) as (engine, _):
        yield engine.from_thread


@contextmanager
def open_thread(
    providers: Sequence[Provider],
    **options: Unpack[EngineOptions],
) -> Generator[tuple[Engine, EngineThread], None, None]:
    """Open an engine as `open_portal` does, and yield it together with its thread.

    The engine's own methods are for functions that run on that thread.
    """
    if sys.is_finalizing():
        raise EngineClosedError(NO_THREAD)  # a started thread would never run
    opened: Future[tuple[Engine, EngineThread, trio.Event]] = Future()

    async def hold() -> None:
        async with open_engine(providers, **options) as engine:
            leave = trio.Event()
            opened.set_result((engine, EngineThread(Home(trio.lowlevel.current_trio_token)), leave))
            await leave.wait()

    failures: list[BaseException] = []  # the exception that ended the engine, such as `SystemExit` from a callback

    def run() -> None:
        try:
            trio.run(hold)
        except BaseException as error:
            if opened.done():
                failures.append(error)
            else:
                opened.set_exception(error)

    runner = threading.Thread(target=run, name="manystream portal", daemon=True)
    try:
        runner.start()
        engine, thread, _ = opened.result()
        yield engine, thread
    finally:
        opened.add_done_callback(_leave)  # Ctrl-C may have interrupted the wait for it
        if runner.ident is not None and not sys.is_finalizing():  # else the thread has stopped
            runner.join()
    if failures:
        raise failures[0]


def _leave(opened: Future[tuple[Engine, EngineThread, trio.Event]]) -> None:
    """End the engine's thread, if its engine was opened."""
    if opened.exception() is None:
        _, thread, leave = opened.result()
        thread.leave(leave.set)
