"""A timer of the kernel that an event loop waits for as it waits for a socket (Linux: timerfd).

Why: on Linux, trio and asyncio round each timeout up to a whole millisecond, because epoll_wait(2) does. A pause of the
multi-request loop is often a fifth of one. Python has `os.timerfd_create` since 3.13, so this module calls the C
library.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Final

_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""TFD_NONBLOCK and TFD_CLOEXEC. Linux defines them as these two flags of open(2)."""

_NANOSECONDS: Final = 1_000_000_000
_NANOSECONDS_PLACE: Final = 3
"""The place of `it_value.tv_nsec` in `struct itimerspec`, which is four longs."""


class KernelTimer:
    """A timer whose descriptor is readable from its expiration until it is started again or stopped.

    `make_kernel_timer` makes it.
    """

    def __init__(self, descriptor: int, library: ctypes.PyDLL) -> None:
        self._descriptor = descriptor
        # interval seconds, interval nanoseconds, seconds, nanoseconds. Kept, so that a start makes no object.
        self._specification = (ctypes.c_long * 4)()
        self._address = ctypes.c_void_p(ctypes.addressof(self._specification))
        self._set_time = library.timerfd_settime
        self._set_time.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def fileno(self) -> int:
        """Return the descriptor; -1 after `close`."""
        return self._descriptor

    def start(self, seconds: float) -> None:
        """Expire after this time, which is more than 0 and less than 1. An earlier start is forgotten."""
        self._specification[_NANOSECONDS_PLACE] = max(1, min(_NANOSECONDS - 1, int(seconds * _NANOSECONDS)))
        self._set_time(self._descriptor, 0, self._address, None)

    def stop(self) -> None:
        """Do not expire, and be no longer readable."""
        self._specification[_NANOSECONDS_PLACE] = 0
        self._set_time(self._descriptor, 0, self._address, None)

    def close(self) -> None:
        """Close the descriptor. Call it when nothing waits for it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        # An event loop that is closed with its service still running drops the service without `cancel`.
        self.close()


def make_kernel_timer() -> KernelTimer | None:
    """Return a timer; None if the system has none or refuses one."""
    if sys.platform != "linux":
        return None
    try:
        library = ctypes.PyDLL(None)  # unlike CDLL, it keeps the interpreter's lock: the calls do not block
        descriptor = library.timerfd_create(time.CLOCK_MONOTONIC, _FLAGS)
    except (OSError, AttributeError):  # no such function in this C library
        return None
    return KernelTimer(descriptor, library) if descriptor >= 0 else None
