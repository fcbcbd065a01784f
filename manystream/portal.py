"""The engine for programs without an event loop: `with open_portal([…]) as portal: portal.request(request)`.

The engine and its trio run have a thread of their own. The portal passes requests to that thread.

Knows threads, and how to open an engine. Must not know how a call works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Unpack

import trio

from .engine.core import open_engine
from .engine.engine_thread import EngineThread
from .engine.options import EngineOptions
from .engine.portal import Portal, PortalCall, PortalRecording, PortalStream
from .engine.portal_map import PortalMap
from .providers.provider import Provider

__all__ = ["Portal", "PortalCall", "PortalMap", "PortalRecording", "PortalStream", "open_portal"]


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
    cannot be used.
    """
    opened: Future[tuple[Portal, Callable[[], None]]] = Future()

    async def hold() -> None:
        async with open_engine(providers, **options) as engine:
            leave = trio.Event()
            opened.set_result((engine.from_thread, partial(EngineThread().soon, leave.set)))
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

    thread = threading.Thread(target=run, name="manystream portal", daemon=True)
    thread.start()
    portal, close = opened.result()
    try:
        yield portal
    finally:
        close()
        thread.join()
    if failures:
        raise failures[0]
