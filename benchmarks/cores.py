"""Assigns the client and the load source to different cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def choose_cores() -> tuple[int, int]:
    """Return the cores of client and source. On a machine with one core both get it, and the figures mean nothing."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[1 % len(allowed)]


CLIENT_AND_SOURCE = choose_cores()


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Run this process, and the processes that it starts in the block, on that core. The processes keep it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
