"""Which core the client gets and which the load source, and how a process is put there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def choose_cores() -> tuple[int, int]:
    """Client and source. On a machine with one core both get it, and no figure is worth anything."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[1 % len(allowed)]


CLIENT_AND_SOURCE = choose_cores()


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """This process, and what it starts meanwhile, run on that core. A child keeps it; this process does not."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
