"""The interface between the transport and the asynchronous library that it runs on: trio or asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeAlias, TypeVar, TypeVarTuple

Parameters = TypeVarTuple("Parameters")
Result = TypeVar("Result")

AddressInfo: TypeAlias = tuple[int, int, int, str, Sequence[object]]
"""One result of getaddrinfo: family, type, protocol, canonical name, socket address."""

WAIT: Final = -1.0
"""Returned by a function that `Backend.serve` calls: call it again when the descriptor is readable."""


class Cancellable(Protocol):
    """Something that runs until it ends or is cancelled."""

    def cancel(self) -> None:
        """End it. Idempotent. A task receives the cancellation at the point at which it waits."""
        ...


class Alarm(Protocol):
    """One deadline that can be moved."""

    def set(self, when: float) -> None:
        """Move the deadline to `when`, in seconds on the backend's clock; `math.inf` for no deadline."""
        ...

    def cancel(self) -> None:
        """Remove the deadline for good."""
        ...


class Event(Protocol):
    """A flag that tasks wait for. It is set once."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    async def wait(self) -> object: ...


class Signal(Protocol):
    """A flag that one task waits for. It is set once."""

    def set(self) -> None: ...
    def wait(self) -> Awaitable[object]: ...


class TaskGroup(Protocol):
    """Tasks that end before the block does in which they were started."""

    def start(self, function: Callable[[*Parameters], Awaitable[None]], *arguments: *Parameters) -> None:
        """Start a task."""
        ...

    def cancel(self) -> None:
        """Cancel all tasks of the group."""
        ...


class Backend(Protocol):
    """Tasks, waits and clock of one running event loop. A cancelled wait raises the library's own exception."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock: seconds since an arbitrary start."""
        ...

    def start(self, function: Callable[[*Parameters], Awaitable[None]], *arguments: *Parameters) -> Cancellable:
        """Start a task in the background. Even if it is cancelled at once, it runs until it waits first."""
        ...

    def serve(self, descriptor: int, turn: Callable[[], float]) -> Cancellable:
        """Call `turn` whenever `descriptor` is readable.

        `turn` returns the seconds after which to call it again even if the descriptor is not readable, or `WAIT`.
        """
        ...

    def wakers(self) -> tuple[int, int]:
        """Return the sockets with which the event loop wakes itself: the one that it reads, and the one that it writes.

        -1 for an unknown one.
        """
        ...

    def alarm(self, fire: Callable[[], None]) -> Alarm:
        """Return an alarm that calls `fire` at its deadline. It has no deadline yet."""
        ...

    def event(self) -> Event:
        """Return an event that is not set."""
        ...

    def signal(self) -> Signal:
        """Return a signal that is not set. It costs less than an event."""
        ...

    @property
    def handshaking(self) -> bool:
        """Whether a TLS handshake makes a step, or waits for its turn to make one."""
        ...

    def handshake_lock(self) -> AbstractAsyncContextManager[object]:
        """Return the lock that TLS handshakes share."""
        ...

    def open_group(self) -> AbstractAsyncContextManager[TaskGroup]:
        """Return a block that waits at its end for the tasks that were started in it."""
        ...

    def lock(self) -> AbstractAsyncContextManager[object]:
        """Return a lock that is free: `async with lock:`."""
        ...

    def scope(self, deadline: float) -> AbstractAsyncContextManager[Cancellable, bool]:
        """Return a block that ends early at `deadline`, on the backend's clock, or when it is cancelled.

        The program continues behind the block; nothing is raised.
        """
        ...

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function in the event loop's next iteration, outside the code that runs now."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...

    async def run_in_thread(self, function: Callable[[], Result], *, abandon: bool = False) -> Result:
        """Call a function that blocks, in another thread, and return its result.

        abandon: a cancelled task does not wait for the function's end; the result is lost then.
        """
        ...

    async def checkpoint(self) -> None:
        """Let other tasks run. Raises the cancellation of a cancelled task."""
        ...

    async def checkpoint_without_wait(self) -> None:
        """The checkpoint of an async function that need not wait: those of trio always make one, asyncio's do not."""
        ...

    async def checkpoint_if_cancelled(self) -> None:
        """Raise the cancellation of a cancelled task; otherwise return at once."""
        ...

    async def wait_readable(self, descriptor: int) -> None:
        """Wait until the descriptor is readable."""
        ...

    async def wait_writable(self, descriptor: int) -> None:
        """Wait until the descriptor is writable."""
        ...

    async def wait_at_most(self, event: Event, seconds: float) -> None:
        """Wait until the event is set, or until `seconds` have passed."""
        ...

    async def getaddrinfo(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Look up the addresses for stream sockets. Raises `OSError` and `UnicodeError`, as `socket.getaddrinfo`."""
        ...
