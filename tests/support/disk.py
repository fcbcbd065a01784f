"""Simulate a full disk within one process."""

import resource
import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def room(size: int) -> Generator[None]:
    """Limit the size of each file that this process writes to `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
