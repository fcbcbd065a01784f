"""What a forked process lets go of, so that its parent keeps it.

After a fork, parent and child share each epoll object. What one of them registers or removes there is registered or
removed for both, and an event that the child receives is lost to the parent. The event loop has such an object, too,
and a pair of sockets with which it wakes itself. So a child that only leaves its `async with` blocks would cut the
parent off from its sockets.

Therefore the child replaces these objects by new ones under the same descriptors: the epoll object of a multi-request
loop, that of the event loop which serves it, and the pair. Nothing that the child still does there reaches the parent.
The child's event loop can end, but no other descriptor of before the fork wakes it any more.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import weakref
from typing import Protocol

EPOLL = "anon_inode:[eventpoll]"
"""The target of the link `/proc/self/fd/N` of an epoll object."""


class Forked(Protocol):
    """An object that must not go on in a forked process."""

    def on_fork(self) -> None:
        """Let go of everything, in the child."""
        ...


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch_forks(owner: Forked) -> None:
    """Call `owner.on_fork` in each process that is forked, until `ignore_forks` or while `owner` exists."""
    _watched.add(owner)


def ignore_forks(owner: Forked) -> None:
    """Do not call `owner.on_fork` any more: it is closed, and its descriptors may be those of other files by now."""
    _watched.discard(owner)


def _in_child() -> None:
    owners = list(_watched)
    _watched.clear()
    with contextlib.ExitStack() as stack:  # it calls each of them, also after one that raises
        for owner in owners:
            stack.callback(owner.on_fork)


def socket_pair(holder: object, reader: str, writer: str) -> tuple[int, int]:
    """Return the descriptors of the sockets that `holder` has under two names; -1 where it has none."""
    ends = getattr(holder, reader, None), getattr(holder, writer, None)
    first, second = (end.fileno() if isinstance(end, socket.socket) else -1 for end in ends)
    return first, second


def detach(epoll: int, wakers: tuple[int, int]) -> None:
    """Replace what this process shares with its parent.

    epoll: the descriptor of an epoll object. The epoll objects in which it is registered are replaced, too.
    wakers: the sockets with which the event loop wakes itself: the one that it reads, and the one that it writes; -1
        for an unknown one. The child of such an event loop may wait forever at its end.
    """
    event_loops = _epolls_that_watch(epoll)
    with contextlib.suppress(OSError):  # no descriptor is left
        for each in (epoll, *event_loops):
            with select.epoll() as empty:
                os.dup2(empty.fileno(), each, inheritable=False)
        if -1 in wakers:
            return
        for end, waker in zip(socket.socketpair(), wakers, strict=True):
            with end:
                end.setblocking(False)
                os.dup2(end.fileno(), waker, inheritable=False)
        for each in event_loops:
            with select.epoll.fromfd(os.dup(each)) as own:
                own.register(wakers[0], select.EPOLLIN)


def _epolls_that_watch(descriptor: int) -> list[int]:
    """Return the descriptors of the epoll objects in which this one is registered: those of event loops.

    An event loop has no public name for its own (proc(5) describes the form of `fdinfo`).
    """
    found: list[int] = []
    with contextlib.suppress(OSError):  # there is no /proc
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the descriptor of this listing
                if os.readlink(f"/proc/self/fd/{name}") == EPOLL:
                    with open(f"/proc/self/fdinfo/{name}", encoding="ascii", errors="replace") as information:
                        lines = [line.split() for line in information]
                    if any(line[:2] == ["tfd:", str(descriptor)] for line in lines):
                        found.append(int(name))
    return found


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
