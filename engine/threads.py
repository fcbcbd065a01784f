"""The engine from another thread. Knows trio's token; must not know calls beyond starting and cancelling them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ..providers.request import Request
from ..providers.response import Response
from .statistics import Statistics

if TYPE_CHECKING:
    from .call import Call
    from .core import Engine
    from .delivery import OnEvent
    from .ending import OnCompletion


class FromThread:
    """`engine.from_thread`: the engine's methods for other threads. Callbacks still run on the engine's thread.

    Those that start something raise `EngineClosedError` once the engine's block was left; the others
    `trio.RunFinishedError` once its `trio.run` has ended. In a process that was forked each raises `EngineClosedError`.
    """

    __slots__ = ("_engine", "_token")

    def __init__(self, engine: Engine, token: trio.lowlevel.TrioToken) -> None:
        self._engine = engine
        self._token = token

    def start_stream(
        self, request: Request, on_event: OnEvent | None = None, on_completion: OnCompletion | None = None
    ) -> Call:
        """As `Engine.start_stream`."""
        self._engine.check_open()
        return trio.from_thread.run_sync(
            self._engine.start_stream, request, on_event, on_completion, trio_token=self._token
        )

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> Call:
        """As `Engine.start_request`."""
        self._engine.check_open()
        return trio.from_thread.run_sync(self._engine.start_request, request, on_completion, trio_token=self._token)

    def request(self, request: Request) -> Response:
        """Make a call and block this thread until its answer is there. Raises `ProviderError`."""
        self._engine.check_open()
        return trio.from_thread.run(self._engine.request, request, trio_token=self._token)

    def drain(self, timeout: float) -> bool:
        """As `Engine.drain`, blocking this thread."""
        self._engine.check_process()
        return trio.from_thread.run(self._engine.drain, timeout, trio_token=self._token)

    def cancel(self, call: Call) -> None:
        """As `Call.cancel`."""
        self._engine.check_process()
        trio.from_thread.run_sync(call.cancel, trio_token=self._token)

    def statistics(self) -> Statistics:
        """As `Engine.statistics`."""
        self._engine.check_process()
        return trio.from_thread.run_sync(self._engine.statistics, trio_token=self._token)
