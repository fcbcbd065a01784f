"""The engine's own tasks (the loop, timers, dials, the monitor), in a nursery of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import trio


class Services:
    """A nursery whose tasks end the engine when one of them fails.

    What ends a task, such as Ctrl-C in the middle of an iteration of the loop, is reported at once, and not when the
    body of `open_engine` comes to its next checkpoint.

    on_failure: called with the exception that ended a task. nursery: for the tasks, once `run` has started.
    """

    __slots__ = ("nursery", "on_failure")

    nursery: trio.Nursery

    def __init__(self) -> None:
        self.on_failure: Callable[[BaseException], None] | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the nursery until cancelled: `await nursery.start(services.run)`."""
        try:
            async with trio.open_nursery() as self.nursery:
                task_status.started()
                await trio.sleep_forever()
        except BaseExceptionGroup as group:
            failure = _first_failure(group)
            if failure is None or self.on_failure is None:
                raise
            self.on_failure(failure)


def _first_failure(error: BaseException) -> BaseException | None:
    """The first exception in a group that is no cancellation."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next(filter(None, map(_first_failure, group.exceptions)), None)
    return None if isinstance(error, trio.Cancelled) else error
